"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = id => document.getElementById(id);
  const isDiff = data.windows.length === 2;
  const side = isDiff ? 1 : 0;
  const count = data.nodes.length;
  const ROW = 18, YEAR = 31536000;
  const parents = new Int32Array(count + 1);
  for (let i = 0; i < count; i++) parents[i + 1] = data.parents[i] ? i + 1 - data.parents[i] : 0;
  const frameOf = node => node ? data.frames[data.nodes[node - 1]] : null;
  const nameOf = node => node ? data.texts[frameOf(node)[0]] : "all";
  const binaryOf = node => node ? data.texts[frameOf(node)[1]] : "";

  // Sums for the labels that are chosen: processor time in microseconds of each side, alone and with what was called.
  let own, total, samples, children;
  const chosen = new Map();
  const sets = data.labels.map(set => {
    const labels = new Map();
    for (let i = 0; i < set.length; i += 2) labels.set(data.texts[set[i]], data.texts[set[i + 1]]);
    return labels;
  });
  function sum() {
    own = [new Float64Array(count + 1), new Float64Array(count + 1)];
    total = [new Float64Array(count + 1), new Float64Array(count + 1)];
    samples = [new Float64Array(count + 1), new Float64Array(count + 1)];
    const fits = sets.map(set => [...chosen].every(([name, value]) => (set.get(name) || "") === value));
    for (const row of data.samples) {
      if (!fits[row[1]]) continue;
      for (let s = 0; s <= side; s++) {
        samples[s][row[0]] += row[2 + 2 * s];
        own[s][row[0]] += row[3 + 2 * s];
      }
    }
    for (let s = 0; s <= side; s++) total[s].set(own[s]);
    children = Array.from({ length: count + 1 }, () => []);
    for (let node = count; node > 0; node--) {
      for (let s = 0; s <= side; s++) total[s][parents[node]] += total[s][node];
      children[parents[node]].push(node);
    }
    for (const list of children) list.sort((a, b) => nameOf(a) < nameOf(b) ? -1 : nameOf(a) > nameOf(b) ? 1 : a - b);
  }

  // Numbers as people read them.
  const number = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const seconds = us => us >= 1e6 ? number(us / 1e6, 2) + " s" : number(us / 1e3, 1) + " ms";
  const percent = (part, all) => number(all ? part / all * 100 : 0, 2) + " %";
  const signed = (value, text) => (value > 0 ? "+" : value < 0 ? "−" : "±") + text(Math.abs(value));
  function yearly(us) {
    const window = data.windows[side].seconds;
    if (!window) return "";
    const hours = us / 1e6 / window * YEAR / 3600;
    return `${number(hours, 1)} core-hours, ${number(hours * data.rates.usd, 2)} USD, ${number(hours * data.rates.co2 * 1000, 1)} kg CO₂ a year`;
  }

  // The graph.
  const canvas = document.querySelector("canvas"), paper = canvas.getContext("2d");
  let zoom = 0, boxes = [], current = -1, pattern = null, markedRule = 0, widthSide = side;
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function path(node) {
    const nodes = [];
    for (let at = node; at; at = parents[at]) nodes.unshift(at);
    return nodes;
  }
  function layout() {
    boxes = [];
    const width = canvas.parentNode.clientWidth;
    const widths = total[widthSide];
    const above = zoom ? [0, ...path(zoom).slice(0, -1)] : [];
    above.forEach((node, depth) => boxes.push({ node, x: 0, width, depth, faded: true }));
    const place = [[zoom, 0, width, above.length]];
    while (place.length) {
      const [node, x, wide, depth] = place.pop();
      boxes.push({ node, x, width: wide, depth });
      let left = x;
      for (const child of children[node]) {
        const part = widths[node] ? wide * widths[child] / widths[node] : 0;
        if (part >= 0.4) place.push([child, left, part, depth + 1]);
        left += part;
      }
    }
    boxes.sort((a, b) => a.depth - b.depth || a.x - b.x);
  }
  const ruleOf = node => node ? data.rule_of[data.nodes[node - 1]] : 0;
  const isMarked = node => pattern ? pattern.test(nameOf(node)) : markedRule > 0 && ruleOf(node) === markedRule;
  // What is found may be below the part of the graph that is visible.
  function reveal(box) {
    const graph = by("graph"), top = box.depth * ROW;
    if (top < graph.scrollTop || top + ROW > graph.scrollTop + graph.clientHeight) graph.scrollTop = Math.max(0, top - graph.clientHeight / 2);
  }
  function revealMarked() {
    const box = boxes.find(box => box.node && isMarked(box.node));
    if (box) reveal(box);
  }
  function fill(box, colors) {
    if (!box.node) return colors.line;
    if (isMarked(box.node)) return colors.mark;
    if (!isDiff) return [colors.kernel, colors.native, colors.made][frameOf(box.node)[2]];
    // The change as a part of the larger side, and of everything, so that what is small stays pale.
    const change = total[1][box.node] - total[0][box.node];
    const all = Math.max(total[0][0], total[1][0]) || 1;
    const strength = Math.min(1, Math.abs(change) / all * 12 + Math.abs(change) / Math.max(total[0][box.node], total[1][box.node], 1) * 0.25);
    const light = colors.dark ? 30 : 90;
    const lightness = light + (colors.dark ? 18 : -30) * strength;
    return `hsl(${change > 0 ? 6 : 215} ${Math.round(15 + 75 * strength)}% ${lightness}%)`;
  }
  function draw() {
    const width = canvas.parentNode.clientWidth, rows = boxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
    const scale = window.devicePixelRatio || 1;
    canvas.style.width = width + "px";
    canvas.style.height = rows * ROW + "px";
    // A canvas cannot be higher than browsers allow.
    canvas.width = width * scale;
    canvas.height = Math.min(rows * ROW * scale, 30000);
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.font = "12px ui-monospace, Menlo, Consolas, monospace";
    paper.textBaseline = "middle";
    const letter = paper.measureText("m").width;
    const colors = { kernel: color("--kernel"), native: color("--native"), made: color("--made"), mark: color("--mark"), line: color("--line"), text: color("--text"), dark: matchMedia("(prefers-color-scheme: dark)").matches };
    boxes.forEach((box, index) => {
      paper.globalAlpha = box.faded ? 0.45 : 1;
      paper.fillStyle = fill(box, colors);
      const y = box.depth * ROW;
      paper.fillRect(box.x, y, Math.max(box.width - 0.6, 0.4), ROW - 1);
      const room = Math.floor((box.width - 8) / letter);
      if (room >= 3) {
        const name = nameOf(box.node);
        paper.fillStyle = colors.text;
        paper.fillText(name.length <= room ? name : name.slice(0, room - 1) + "…", box.x + 4, y + ROW / 2);
      }
      if (index === current) {
        paper.strokeStyle = colors.text;
        paper.lineWidth = 2;
        paper.strokeRect(box.x + 1, y + 1, Math.max(box.width - 2, 1), ROW - 3);
      }
      paper.globalAlpha = 1;
    });
  }
  function tell(node) {
    const all = total[side][0];
    const binary = binaryOf(node);
    const lines = [nameOf(node) + (binary ? "  —  " + binary : "") + (ruleOf(node) ? "  —  " + data.rules[ruleOf(node) - 1].title : "")];
    if (isDiff) {
      const change = total[1][node] - total[0][node];
      lines.push(`total ${seconds(total[0][node])} before, ${seconds(total[1][node])} now: ${signed(change, seconds)}`);
      lines.push(`self ${seconds(own[0][node])} before, ${seconds(own[1][node])} now` + (yearly(1) ? `; saved: ${yearly(-change)}` : ""));
    } else {
      lines.push(`total ${seconds(total[0][node])} (${percent(total[0][node], all)}), self ${seconds(own[0][node])} (${percent(own[0][node], all)}), ${number(samples[0][node], 0)} samples innermost`);
      lines.push(yearly(total[0][node]));
    }
    by("detail").textContent = lines.join("\n");
  }
  function show() { layout(); draw(); }
  function go(node) { zoom = node; current = -1; show(); tell(node); }
  const at = event => boxes.findIndex(box => event.offsetX >= box.x && event.offsetX < box.x + box.width && Math.floor(event.offsetY / ROW) === box.depth);
  canvas.addEventListener("mousemove", event => {
    const index = at(event);
    if (index !== current && index >= 0) { current = index; draw(); tell(boxes[index].node); }
  });
  canvas.addEventListener("click", event => { const index = at(event); if (index >= 0) go(boxes[index].node); });
  canvas.addEventListener("keydown", event => {
    const box = boxes[current] || boxes[0];
    const near = (depth, test) => boxes.findIndex(other => other.depth === depth && test(other));
    let next = -1;
    if (event.key === "ArrowDown") next = near(box.depth + 1, other => parents[other.node] === box.node);
    else if (event.key === "ArrowUp") next = near(box.depth - 1, other => other.x <= box.x + 0.01 && other.x + other.width >= box.x + box.width - 0.01);
    else if (event.key === "ArrowRight") next = near(box.depth, other => other.x > box.x + 0.01);
    else if (event.key === "ArrowLeft") next = boxes.findLastIndex(other => other.depth === box.depth && other.x < box.x - 0.01);
    else if (event.key === "Enter") return go(box.node);
    else if (event.key === "Escape") return go(0);
    else return;
    event.preventDefault();
    if (next >= 0) { current = next; draw(); reveal(boxes[next]); tell(boxes[next].node); }
  });

  // What to look at: the kinds of work that take much time. A sample counts once for each.
  function ruleSums() {
    const KNOWN = 1 << 30;
    const sums = data.rules.map(() => [0, 0]);
    const seen = new Int32Array(count + 1);
    for (let node = 1; node <= count; node++) {
      const rule = ruleOf(node);
      seen[node] = seen[parents[node]];
      if (rule) seen[node] |= 1 << rule;
      // The rule of the kernel has what no other rule knows of the kernel.
      if (rule && !data.rules[rule - 1].kernel && frameOf(node)[2] === 0) seen[node] |= KNOWN;
      for (let r = 0; r < sums.length; r++) {
        if (!(seen[node] & 1 << r + 1) || data.rules[r].kernel && seen[node] & KNOWN) continue;
        for (let s = 0; s <= side; s++) sums[r][s] += own[s][node];
      }
    }
    return sums;
  }
  function advise() {
    const share = (sums, s) => total[s][0] ? sums[s] / total[s][0] : 0;
    const most = sums => Math.max(share(sums, 0), side ? share(sums, 1) : 0);
    const found = ruleSums().map((sums, index) => ({ sums, index })).filter(({ sums }) => most(sums) >= 0.01);
    found.sort((a, b) => most(b.sums) - most(a.sums));
    const entries = found.map(({ sums, index }) => {
      const rule = data.rules[index];
      const shares = (isDiff ? [0, 1] : [0]).map(s => percent(sums[s], total[s][0])).join(" → ");
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Mark" });
      button.setAttribute("aria-pressed", markedRule === index + 1);
      button.addEventListener("click", event => {
        event.preventDefault();
        markedRule = markedRule === index + 1 ? 0 : index + 1;
        by("search").value = "";
        search();
        advise();
      });
      const summary = Object.assign(document.createElement("summary"), { textContent: `${shares}  ${rule.title} ` });
      summary.append(button);
      const entry = document.createElement("details");
      entry.open = markedRule === index + 1;
      entry.append(summary, Object.assign(document.createElement("p"), { textContent: `${rule.advice} Source: ${rule.source}` }));
      return entry;
    });
    by("advice").hidden = !entries.length;
    by("advice").replaceChildren(by("advice").firstElementChild, ...entries);
  }

  // The table of functions.
  function table() {
    const rows = new Map();
    const stack = [];
    const add = (node, s) => {
      const frame = data.nodes[node - 1];
      const row = rows.get(frame) || { frame, own: [0, 0], total: [0, 0] };
      rows.set(frame, row);
      row.own[s] += own[s][node];
      // A function that calls itself counts once.
      for (let up = parents[node]; up; up = parents[up]) if (data.nodes[up - 1] === frame) return;
      row.total[s] += total[s][node];
    };
    for (let node = 1; node <= count; node++) for (let s = 0; s <= side; s++) if (total[s][node]) add(node, s);
    const change = row => row.own[1] - row.own[0];
    const order = isDiff ? (a, b) => Math.abs(change(b)) - Math.abs(change(a)) : (a, b) => b.own[0] - a.own[0];
    const list = [...rows.values()].sort(order).slice(0, 50);
    const heads = isDiff ? ["self before", "self now", "change", "total before", "total now", "function"] : ["self", "", "total", "", "a year (self)", "function"];
    const head = document.createElement("tr");
    for (const text of heads) head.append(Object.assign(document.createElement("th"), { textContent: text }));
    document.querySelector("thead").replaceChildren(head);
    const lines = list.map(row => {
      const all = total[side][0];
      const window = data.windows[side].seconds;
      const usd = window ? number(row.own[0] / 1e6 / window * YEAR / 3600 * data.rates.usd, 2) + " USD" : "";
      const cells = isDiff
        ? [seconds(row.own[0]), seconds(row.own[1]), signed(change(row), seconds), seconds(row.total[0]), seconds(row.total[1])]
        : [percent(row.own[0], all), seconds(row.own[0]), percent(row.total[0], all), seconds(row.total[0]), usd];
      const line = document.createElement("tr");
      for (const text of cells) line.append(Object.assign(document.createElement("td"), { textContent: text }));
      const name = Object.assign(document.createElement("td"), { textContent: data.texts[data.frames[row.frame][0]] + " " });
      name.append(Object.assign(document.createElement("small"), { textContent: data.texts[data.frames[row.frame][1]].split("/").pop() + (data.rule_of[row.frame] ? " · " + data.rules[data.rule_of[row.frame] - 1].title : "") }));
      line.append(name);
      line.addEventListener("click", () => {
        by("search").value = "^" + data.texts[data.frames[row.frame][0]].replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + "$";
        search();
        scrollTo({ top: 0, behavior: "smooth" });
      });
      return line;
    });
    document.querySelector("tbody").replaceChildren(...lines);
  }

  // The head.
  function search() {
    const text = by("search").value;
    pattern = null;
    by("found").textContent = "";
    if (text) {
      try { pattern = new RegExp(text, "i"); } catch { by("found").textContent = "not a regular expression"; }
    }
    if (pattern) {
      let found = 0;
      const inside = new Uint8Array(count + 1);
      for (let node = 1; node <= count; node++) {
        inside[node] = inside[parents[node]];
        if (!inside[node] && pattern.test(nameOf(node))) { inside[node] = 1; found += total[side][node]; }
      }
      by("found").textContent = `${percent(found, total[side][0])} of all`;
    }
    draw();
    revealMarked();
  }
  function choices() {
    const names = [...new Set(sets.flatMap(set => [...set.keys()]))].sort();
    for (const name of names) {
      const values = [...new Set(sets.map(set => set.get(name) || ""))].sort();
      if (values.length < 2) continue;
      const select = document.createElement("select");
      select.append(new Option("all", "*"));
      for (const value of values) select.append(new Option(value || "(none)", "=" + value));
      select.addEventListener("change", () => {
        if (select.value === "*") chosen.delete(name); else chosen.set(name, select.value.slice(1));
        zoom = 0;
        current = -1;
        sum();
        show();
        table();
        advise();
        search();
        tell(0);
      });
      const label = document.createElement("label");
      label.append(name, select);
      by("labels").append(label);
    }
  }
  function legend() {
    const entries = isDiff ? [["hsl(6 80% 65%)", "more than before"], ["hsl(215 80% 65%)", "less"]] : [["var(--kernel)", "kernel"], ["var(--native)", "native"], ["var(--made)", "interpreted"]];
    for (const [background, text] of entries) {
      const square = document.createElement("i");
      square.style.background = background;
      by("legend").append(square, text);
    }
  }
  document.querySelector("h1").textContent = data.title;
  sum();
  by("facts").textContent = data.windows.map((window, s) => {
    const facts = [`${seconds(total[s][0])} of processor time`];
    if (window.seconds) facts.push(`in ${number(window.seconds, 1)} s from ${new Date(window.start).toISOString().slice(0, 19)}Z`);
    if (window.hz) facts.push(`${number(window.hz, 0)} Hz`);
    if (window.lost) facts.push(`${number(window.lost, 0)} samples lost`);
    return (isDiff ? ["before: ", "now: "][s] : "") + facts.join(", ");
  }).join("  ·  ");
  by("sides").hidden = !isDiff;
  by("before").addEventListener("change", event => { widthSide = event.target.checked ? 0 : side; show(); });
  by("search").addEventListener("input", search);
  by("reset").addEventListener("click", () => go(0));
  addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  choices();
  legend();
  show();
  table();
  advise();
  if (!total[0][0] && !total[side][0]) by("detail").textContent = "There are no samples.";
})();

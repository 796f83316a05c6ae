// Writes numbered documents with the official client: bulk.cjs PACKAGE ADDRESS FIRST COUNT.
const fs = require("node:fs");
const [name, node, first, count] = process.argv.slice(2);
const { Client } = require(name);

async function main() {
  const client = new Client({ node, auth: { username: "agent", password: "secret" }, compression: name === "es7" ? "gzip" : true });
  const result = (answer) => answer.body ?? answer;
  const info = result(await client.info());
  if (info.tagline !== "You Know, for Search") throw new Error(JSON.stringify(info));
  const documents = Array.from({ length: Number(count) }, (_, n) => ({ n: Number(first) + n }));
  const stats = await client.helpers.bulk({
    datasource: documents,
    flushBytes: 20_000,
    concurrency: 3,
    onDocument: (document) => (document.n % 2 ? { create: { _index: "js", _id: `js-${document.n}` } } : { index: { _index: "js" } }),
    onDrop: (dropped) => { throw new Error(JSON.stringify(dropped)); },
  });
  if (stats.successful !== Number(count) || stats.failed) throw new Error(JSON.stringify(stats));
  console.log(JSON.parse(fs.readFileSync(`${__dirname}/node_modules/${name}/package.json`)).version);
}

main().catch((error) => { console.error(error); process.exit(1); });

//! Results as a page: one file, with its charts in it.

use std::fmt::Write;

use component::grouped;
use pipeline::report::bytes;

use super::results::{Measured, Outcome, Results, Spread};
use super::series::Series;

const PAGE: &str = include_str!("page.html");

/// Points of a line.
const POINTS: usize = 200;

/// Size of a chart, and the room for the words beside and below it.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 62.0;
const BELOW: f64 = 22.0;

/// The page.
pub fn page(title: &str, results: &Results) -> String {
    let mut body = String::new();
    let _ = writeln!(
        body,
        "<p>Millpond {} on {}, {} CPUs{}. Medians; below each, the best and the worst run.</p>",
        escaped(&results.millpond),
        escaped(&results.host),
        results.cpus,
        match results.scale {
            1.0 => String::new(),
            scale => format!(", {scale} of the files"),
        },
    );
    body += &table(results);
    for measured in &results.scenarios {
        write_scenario(&mut body, measured);
    }
    PAGE.replace("{title}", &escaped(title))
        .replace("{body}", &body)
}

fn table(results: &Results) -> String {
    let mut text = "<table>\n<tr><th>scenario</th><th>events/s</th><th>CPU-seconds for a million events</th><th></th><th>peak memory</th></tr>\n".to_owned();
    let medians = results
        .scenarios
        .iter()
        .map(|measured| measured.cpu().median);
    let most = medians.fold(1e-12, f64::max);
    for measured in &results.scenarios {
        let cpu = measured.cpu();
        let cell = |spread: Spread, word: &dyn Fn(f64) -> String| {
            format!(
                "<td>{}<br><small>{} – {}</small></td>",
                word(spread.median),
                word(spread.min),
                word(spread.max)
            )
        };
        let _ = writeln!(
            text,
            "<tr><td>{}</td>{}{}<td><svg viewBox=\"0 0 120 12\" style=\"width: 120px\"><rect class=\"bar\" width=\"{:.1}\" height=\"12\"/></svg></td>{}</tr>",
            escaped(&measured.name),
            cell(measured.throughput(), &|rate| grouped(rate as u64)),
            cell(cpu, &|seconds| format!("{seconds:.3}")),
            120.0 * cpu.median / most,
            cell(measured.memory(), &|size| bytes(size as u64)),
        );
    }
    text + "</table>\n"
}

fn write_scenario(body: &mut String, measured: &Measured) {
    let Some(typical) = measured.typical() else {
        return;
    };
    let _ = writeln!(
        body,
        "<h2>{}</h2>\n<pre>{}</pre>",
        escaped(&measured.name),
        escaped(measured.what.trim_end())
    );
    if let Some(verdict) = &typical.verdict {
        let _ = writeln!(body, "<p>{}</p>", escaped(verdict));
    }
    if let Some(cpu) = typical.receiver_cpu_seconds {
        let _ = writeln!(
            body,
            "<p>Millpond, which received: {cpu:.2} CPU-seconds.</p>"
        );
    }
    if let Some((runs, most)) = measured.disturbed() {
        let _ = writeln!(
            body,
            "<p>Disturbed: in {runs} of {} runs, other programs and the kernel's own work used up to {most:.1} CPUs.</p>",
            measured.runs.len()
        );
    }
    body.push_str("<div class=\"charts\">\n");
    let cpus = |run: &Outcome| Series::cpus(&run.samples, POINTS);
    let memory = |run: &Outcome| Series::memory(&run.samples, POINTS);
    body.push_str(&chart("CPUs in use", "cpu", measured, &cpus, &|value| {
        format!("{value:.2}")
    }));
    body.push_str(&chart("memory", "memory", measured, &memory, &|value| {
        bytes(value as u64)
    }));
    body.push_str("</div>\n");
}

/// A line for each run over time, the typical one in front.
fn chart(
    title: &str,
    class: &str,
    measured: &Measured,
    series: &dyn Fn(&Outcome) -> Series,
    word: &dyn Fn(f64) -> String,
) -> String {
    let all: Vec<Series> = measured.runs.iter().map(series).collect();
    let typical = measured.typical().map(series);
    let max = all.iter().map(Series::max).fold(0.0, f64::max).max(1e-9);
    let seconds = all
        .iter()
        .map(|it| it.seconds)
        .fold(0.0, f64::max)
        .max(1e-9);
    let mut text = format!(
        "<figure><figcaption>{title}</figcaption><svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title} over time\">\n",
        HEIGHT + BELOW
    );
    for share in [0.0, 0.5, 1.0] {
        let y = HEIGHT - share * (HEIGHT - 8.0);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            word(max * share)
        );
    }
    for share in [0.0, 0.5, 1.0] {
        let anchor = ["start", "middle", "end"][(share * 2.0) as usize];
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{:.1} s</text>",
            LEFT + share * (WIDTH - LEFT),
            HEIGHT + 16.0,
            seconds * share
        );
    }
    for run in &all {
        let line = points(run, seconds, max);
        let _ = writeln!(
            text,
            "<polyline class=\"{class} other\" points=\"{line}\"/>"
        );
    }
    if let Some(run) = typical.filter(|run| !run.values.is_empty()) {
        let line = points(&run, seconds, max);
        let end = LEFT + run.seconds / seconds * (WIDTH - LEFT);
        let _ = writeln!(
            text,
            "<polygon class=\"{class}-area\" points=\"{LEFT},{HEIGHT} {line} {end:.1},{HEIGHT}\"/><polyline class=\"{class} typical\" points=\"{line}\"/>"
        );
    }
    text + "</svg></figure>\n"
}

/// The middle of each span of time.
fn points(series: &Series, seconds: f64, max: f64) -> String {
    let count = series.values.len().max(1) as f64;
    let point = |(index, value): (usize, &f64)| {
        let at = (index as f64 + 0.5) / count * series.seconds;
        let x = LEFT + at / seconds * (WIDTH - LEFT);
        let y = HEIGHT - value / max * (HEIGHT - 8.0);
        format!("{x:.1},{y:.1}")
    };
    let points: Vec<String> = series.values.iter().enumerate().map(point).collect();
    points.join(" ")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_suite_are_no_markup() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}

//! Results as JUnit XML, which continuous integration reads.

use std::fmt::Write;
use std::time::Duration;

use super::Tested;

/// The results as one document, with a suite for each file.
pub fn xml(files: &[(String, Vec<Tested>)]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all = || files.iter().flat_map(|(_, tests)| tests);
    let _ = writeln!(text, "<testsuites {}>", totals("millpond test", all()));
    for (file, tests) in files {
        let _ = writeln!(text, "  <testsuite {}>", totals(file, tests.iter()));
        for test in tests {
            let _ = write!(
                text,
                "    <testcase name=\"{}\" classname=\"{}\" file=\"{}\" line=\"{}\" time=\"{}\"",
                escape(&test.name),
                escape(file),
                escape(file),
                test.line,
                seconds(test.time)
            );
            match test.failure.is_empty() {
                true => text.push_str("/>\n"),
                false => {
                    let failure = test.failure_text();
                    let first: Vec<&str> = failure.lines().take(3).map(str::trim).collect();
                    let (first, failure) = (escape(&first.join("; ")), escape(&failure));
                    let (element, kind) = match test.is_error {
                        true => ("error", "not run"),
                        false => ("failure", "difference"),
                    };
                    let _ = write!(
                        text,
                        ">\n      <{element} message=\"{first}\" type=\"{kind}\">{failure}</{element}>\n    </testcase>\n"
                    );
                }
            }
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

/// The attributes of a suite.
fn totals<'t>(name: &str, tests: impl Iterator<Item = &'t Tested>) -> String {
    let (mut count, mut failures, mut errors, mut time) = (0, 0, 0, Duration::ZERO);
    for test in tests {
        count += 1;
        errors += usize::from(test.is_error);
        failures += usize::from(!test.failure.is_empty() && !test.is_error);
        time += test.time;
    }
    let (name, time) = (escape(name), seconds(time));
    format!(
        "name=\"{name}\" tests=\"{count}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"0\" time=\"{time}\""
    )
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// A text in XML, in an element or an attribute. Characters that XML cannot have, such as most control characters, are shown as Rust escapes them.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.extend(character.escape_unicode()),
            character if character.is_control() => out.extend(character.escape_unicode()),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(
            escape("a<b> & \"c\"\n\u{1b}[31m\u{0}\u{ffff}é"),
            "a&lt;b&gt; &amp; &quot;c&quot;\n\\u{1b}[31m\\u{0}\\u{ffff}é"
        );
    }
}

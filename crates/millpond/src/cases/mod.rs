//! `millpond test`: events that go in, and what is to come of them, for a pipeline's processors.
//!
//! | module | holds |
//! | --- | --- |
//! | [`files`], [`settings`] | test files, and what they say |
//! | [`trial`], [`watched`] | one test run, and what is seen of it |
//! | [`compare`] | what was expected against what came |
//! | [`junit`] | results for continuous integration |
//!
//! A test builds its configuration as a run does. A file with the test's events stands in the place of the pipeline's inputs, a
//! collector in the place of its outputs, and every processor is wrapped in one that notes what it drops.

mod compare;
mod files;
mod junit;
mod settings;
mod trial;
mod watched;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use component::terminal::escaped;
use component::{grouped, plural};
use tokio::runtime::Runtime;

use self::compare::{DiffLine, differences};
use self::files::test_files;
use self::settings::{TestCase, TestFile};
use self::trial::Trial;
use crate::colour::Painter;
use crate::console::{can_write, print};
use crate::run::runtime;

#[derive(Args)]
pub struct TestArgs {
    /// Test files, or folders in which and below which every *.test.yaml is one.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Runs only the tests with this text in their names.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Also writes the results to this file, as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// A test that was run.
pub struct Tested {
    name: String,
    /// The line on which it begins.
    line: usize,
    time: Duration,
    /// What is other than expected, or why it could not be run; nothing where it passed.
    failure: Vec<DiffLine>,
    /// Whether it could not be run.
    is_error: bool,
    /// What was said while it ran.
    notes: Vec<String>,
}

/// Runs tests.
pub fn test(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let files = read(args)?;
    let runtime = runtime()?;
    let painter = Painter::stdout();
    let mut results = Vec::new();
    for TestFile { name, cases } in files {
        let mut tested = Vec::new();
        for case in &cases {
            let result = Tested::run(case, &runtime);
            if !result.failure.is_empty() {
                print(result.shown(&name, painter).as_bytes())?;
            }
            tested.push(result);
        }
        results.push((name, tested));
    }
    runtime.shutdown_background();
    if let Some(path) = &args.junit {
        let shown = path.display();
        std::fs::write(path, junit::xml(&results))
            .with_context(|| format!("cannot write {shown}"))?;
    }
    let all = || results.iter().flat_map(|(_, tests)| tests);
    let failed = all().filter(|test| !test.failure.is_empty()).count();
    print(summary(all().count(), failed, begin.elapsed(), painter).as_bytes())?;
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Reads the files, and the pipelines that they are about, before any test is run.
fn read(args: &TestArgs) -> anyhow::Result<Vec<TestFile>> {
    let mut paths = Vec::new();
    for path in &args.files {
        match path.is_dir() {
            true => paths.extend(test_files(path)?),
            false => paths.push(path.clone()),
        }
    }
    let mut files = Vec::new();
    for path in &paths {
        let mut file = TestFile::read(path)?;
        if let Some(text) = &args.filter {
            file.cases.retain(|case| case.name.contains(&**text));
        }
        let mut checked: Vec<&TestCase> = Vec::new();
        for case in &file.cases {
            if !checked.iter().any(|other| case.is_about_the_same(other)) {
                trial::check(case)?;
                checked.push(case);
            }
        }
        files.push(file);
    }
    if files.iter().all(|file| file.cases.is_empty()) {
        match &args.filter {
            Some(text) => bail!("no test has `{text}` in its name"),
            None => bail!("there are no tests"),
        }
    }
    if let Some(path) = &args.junit {
        can_write(path)?;
    }
    Ok(files)
}

/// `12 tests, 11 passed, 1 failed in 0.1 s`.
fn summary(tests: usize, failed: usize, time: Duration, painter: Painter) -> String {
    let passed = grouped((tests - failed) as u64);
    let tests = plural(tests as u64, "test");
    let time = time.as_secs_f64();
    match failed {
        0 => painter.good(&format!("{tests}, {passed} passed in {time:.1} s")) + "\n",
        _ => {
            painter.bad(&format!(
                "{tests}, {passed} passed, {} failed in {time:.1} s",
                grouped(failed as u64)
            )) + "\n"
        }
    }
}

impl Tested {
    fn run(case: &TestCase, runtime: &Runtime) -> Self {
        let begin = Instant::now();
        let ran = trial::run(case, runtime);
        let is_error = ran.is_err();
        let Trial {
            outcomes,
            problems,
            notes,
        } = ran.unwrap_or_else(|error| Trial::not_run(&error));
        let mut failure: Vec<DiffLine> = problems.into_iter().map(DiffLine::About).collect();
        if !is_error {
            failure.extend(differences(&case.expected, &outcomes));
        }
        Self {
            name: case.name.clone(),
            line: case.line,
            time: begin.elapsed(),
            failure,
            is_error,
            notes,
        }
    }

    /// The failure for a terminal or a file.
    fn shown(&self, file: &str, painter: Painter) -> String {
        let title = format!("{file}:{}: {}", self.line, escaped(&self.name));
        let mut text = format!("{} {title}\n", painter.bad("FAILED"));
        self.write(&mut text, painter);
        text.push('\n');
        text
    }

    /// The failure without colours.
    fn failure_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, Painter::plain());
        text
    }

    fn write(&self, text: &mut String, painter: Painter) {
        for line in &self.failure {
            let line = match line {
                DiffLine::About(words) => format!("  {}", escaped(words)),
                DiffLine::Expected(words) => painter.bad(&format!("    - {}", escaped(words))),
                DiffLine::Got(words) => painter.good(&format!("    + {}", escaped(words))),
            };
            text.push_str(&line);
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&format!("  {}\n", escaped(note)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_cannot_be_run_has_failed_and_the_others_are_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["there.log", "gone.log"] {
            std::fs::write(path(name), "x\n").expect("written");
        }
        let tests = "config: file a.log | discard
tests:
  - { name: first, file: gone.log, count: 1 }
  - { name: second, file: there.log, count: 1 }
  - { name: third, file: there.log, count: 2 }
";
        std::fs::write(path("a.test.yaml"), tests).expect("written");
        let file = TestFile::read(&path("a.test.yaml")).expect("it is right");
        std::fs::remove_file(path("gone.log")).expect("it is there");
        let runtime = runtime().expect("a runtime");
        let tested: Vec<Tested> = { file.cases.iter() }
            .map(|case| Tested::run(case, &runtime))
            .collect();
        let failed: Vec<bool> = tested.iter().map(|it| !it.failure.is_empty()).collect();
        assert_eq!(failed, [true, false, true]);
        let shown = tested[0].shown("a.test.yaml", Painter::plain());
        assert!(
            shown.starts_with("FAILED a.test.yaml:3: first\n  error: cannot read "),
            "{shown}"
        );
        assert!(!shown.contains("(os error"), "{shown}");
        let xml = junit::xml(&[("a.test.yaml".to_owned(), tested)]);
        assert!(
            xml.contains("tests=\"3\" failures=\"1\" errors=\"1\""),
            "{xml}"
        );
        assert!(
            xml.contains("<error message=\"error: cannot read "),
            "{xml}"
        );
        assert_eq!(xml.matches("<failure ").count(), 1, "{xml}");
    }
}

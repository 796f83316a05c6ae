//! Pipelines that would read what they write.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::{Ended, command, ended};

fn run_in(folder: &Path, args: &[&str]) -> Ended {
    let mut command = command(args);
    ended(command.current_dir(folder).output().expect("it runs"))
}

fn prepare() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    for name in ["lp", "other"] {
        fs::create_dir(root.join(name)).expect("created");
    }
    fs::write(
        root.join("levels.ndjson"),
        "{\"level\":\"a\"}\n{\"level\":\"b\"}\n",
    )
    .expect("written");
    fs::write(root.join("lp/in.ndjson"), "{\"level\":\"c\"}\n").expect("written");
    fs::hard_link(root.join("levels.ndjson"), root.join("hard")).expect("linked");
    std::os::unix::fs::symlink("levels.ndjson", root.join("link")).expect("linked");
    std::os::unix::fs::symlink("lp", root.join("way")).expect("linked");
    folder
}

#[test]
fn what_would_read_its_own_output_is_refused() {
    let folder = prepare();
    for pipeline in [
        "file levels.ndjson | file levels.ndjson",
        "file ./levels.ndjson | file lp/../levels.ndjson",
        "file levels.ndjson | file link",
        "file link | file levels.ndjson",
        "file levels.ndjson | file hard",
        "file *.ndjson | file out.ndjson",
        "file loop.txt follow=true | file loop.txt",
        "file lp follow=true | file lp/out.ndjson",
        "file lp/ follow=true | file way/out.ndjson",
        "file **/*.ndjson | file new/a.ndjson create_dirs=true",
        "file lp follow=true | file 'lp/%{level}.ndjson'",
        "file lp follow=true | file 'lp/out-%{+yyyy-MM-dd}.ndjson'",
    ] {
        let refused = run_in(folder.path(), &["run", pipeline]).expect(2);
        assert!(
            refused.err.contains("without end"),
            "{pipeline}: {}",
            refused.err
        );
        let refused = run_in(folder.path(), &["check", pipeline]).expect(2);
        assert!(
            refused.err.contains("exclude"),
            "{pipeline}: {}",
            refused.err
        );
    }
    for pipeline in [
        "file levels.ndjson | file out.txt",
        "file *.ndjson exclude=out.ndjson | file out.ndjson",
        "file lp | file other/out.ndjson",
        "file lp | file lp/.out.ndjson",
        "file lp | file /dev/null",
        "stdin | file levels.ndjson",
    ] {
        run_in(folder.path(), &["check", pipeline]).expect(0);
    }
    let content = fs::read_to_string(folder.path().join("levels.ndjson")).expect("it is there");
    assert_eq!(content.lines().count(), 2);
}

#[test]
fn pipelines_that_read_each_others_files_in_a_circle_are_refused() {
    let folder = prepare();
    let yaml = |last: &str| {
        let text = format!(
            "pipelines:\n  a: {{input: {{file: {{paths: [levels.ndjson], follow: false}}}}, output: {{file: {{path: b.ndjson}}}}}}\n  b: {{input: {{file: {{paths: [b.ndjson], follow: false}}}}, output: {{pipeline: c}}}}\n  c: {{input: {{pipeline: {{}}}}, output: {{file: {{path: {last}}}}}}}\n"
        );
        fs::write(folder.path().join("p.yaml"), text).expect("written");
    };
    yaml("levels.ndjson");
    let refused = run_in(folder.path(), &["check", "p.yaml"]).expect(2);
    assert!(refused.err.contains("pipeline `"), "{}", refused.err);
    assert!(refused.err.contains("without end"), "{}", refused.err);
    yaml("end.ndjson");
    run_in(folder.path(), &["check", "p.yaml"]).expect(0);
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What only shows while it runs: a field decides which file is written, and standard output goes to a file that is read.
#[test]
fn files_that_are_written_are_not_read() {
    for (pipeline, out, to) in [
        (
            "file lp/a*.ndjson lp/in.ndjson follow=true | file 'lp/%{name}.ndjson'",
            None,
            "lp/abc.ndjson",
        ),
        (
            "file lp follow=true | stdout json",
            Some("lp/out"),
            "lp/out",
        ),
    ] {
        let folder = prepare();
        let root = folder.path();
        fs::write(root.join("lp/in.ndjson"), "{\"name\":\"abc\"}\n").expect("written");
        let stdout = match out {
            Some(name) => Stdio::from(fs::File::create(root.join(name)).expect("created")),
            None => Stdio::null(),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        command
            .args(["run", pipeline])
            .current_dir(root)
            .stdin(Stdio::null());
        command.stdout(stdout).stderr(Stdio::piped());
        let mut running = Running(command.spawn().expect("it runs"));
        let lines = || {
            let content = fs::read_to_string(root.join(to)).unwrap_or_default();
            content.lines().count()
        };
        for _ in 0..200 {
            if lines() > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(lines(), 1, "{pipeline}");
        running.0.kill().expect("it is stopped");
        let mut said = String::new();
        let pipe = running.0.stderr.as_mut().expect("a pipe");
        std::io::Read::read_to_string(pipe, &mut said).expect("it reads");
        assert!(
            said.contains("is not read, because an output writes"),
            "{pipeline}: {said}"
        );
    }
}

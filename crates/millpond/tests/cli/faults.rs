//! Outputs that cannot write.

use std::fs::OpenOptions;

use crate::program::{Folder, command, ended, millpond};

const GIVE_UP: &str = "retry: { initial: 20ms, give_up_after: 300ms }";

#[test]
fn a_full_disk_is_retried_then_reported_and_nothing_is_acknowledged() {
    let folder = Folder::new();
    let path = folder.write(
        "full.yaml",
        format!("pipelines:\n  one:\n    input:\n      generate: {{ format: apache, count: 1000 }}\n    outputs: [stdout]\n    {GIVE_UP}\n"),
    );
    let full = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("the system's full disk");
    let output = command(&["run", &path, "--metrics"])
        .stdout(full)
        .output()
        .expect("runs");
    let ended = ended(output).expect(1);
    assert!(
        ended.err.contains("warning: pipeline one: output stdout: ")
            && ended.err.contains("retrying"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("No space left"), "{}", ended.err);
    assert!(
        ended
            .err
            .contains("1,000 events were read but not delivered"),
        "{}",
        ended.err
    );
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let ended = crate::program::run(&format!(
        "generate apache count=10 | file {}",
        folder.path("")
    ));
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    assert!(ended.err.contains("error: "), "{}", ended.err);
}

#[test]
fn one_output_that_gives_up_does_not_stop_the_other() {
    let folder = Folder::new();
    let yaml = format!(
        "pipelines:\n  one:\n    input:\n      generate: {{ format: apache, count: 5000 }}\n    outputs:\n      - stdout\n      - file: {{ path: \"{}\", codec: text }}\n    {GIVE_UP}\n",
        folder.path("good.txt")
    );
    let path = folder.write("two.yaml", yaml);
    let full = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("the system's full disk");
    let output = command(&["run", &path])
        .stdout(full)
        .output()
        .expect("runs");
    let ended = ended(output).expect(1);
    assert_eq!(
        folder.read("good.txt").lines().count(),
        5000,
        "{}",
        ended.err
    );
}

#[test]
fn files_are_compressed_and_named_by_field_and_time() {
    let folder = Folder::new();
    let pipeline = format!(
        "generate apache count=2000 seed=5 | grok '%{{COMBINEDAPACHELOG}}' | date timestamp 'dd/MMM/yyyy:HH:mm:ss Z' | file '{}/%{{verb}}-%{{+yyyy}}.ndjson.gz'",
        folder.path("out")
    );
    millpond(&["run", &pipeline]).expect(0);
    let files: Vec<_> = std::fs::read_dir(folder.path("out"))
        .expect("made")
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert!(
        files
            .iter()
            .any(|path| path.ends_with("GET-2015.ndjson.gz")
                || path.to_string_lossy().contains("GET-")),
        "{files:?}"
    );
    let read = millpond(&[
        "run",
        &format!("file '{}/*.gz' codec=json | stdout", folder.path("out")),
    ])
    .expect(0);
    assert_eq!(read.out.lines().count(), 2000);
}

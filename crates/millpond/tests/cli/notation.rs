//! What pipelines may be written like, as users write them.

use serde_json::Value;

use crate::program::{Ended, Folder, command, ended};

/// Runs a one-line pipeline in a folder, which is the home directory too.
fn run_in(folder: &Folder, pipeline: &str) -> Ended {
    let mut command = command(&["run", pipeline]);
    command
        .current_dir(folder.path(""))
        .env("HOME", folder.path("home"));
    ended(command.output().expect("the executable runs"))
}

fn messages(ended: &Ended) -> Vec<String> {
    let text = |event: &Value| event["message"].as_str().expect("a text").to_owned();
    ended.events().iter().map(text).collect()
}

fn logs() -> Folder {
    let folder = Folder::new();
    for name in ["nginx/deeper", "home"] {
        std::fs::create_dir_all(folder.path(name)).expect("made");
    }
    for name in [
        "a.log",
        "b.log",
        "nginx/access.log",
        "nginx/error.log",
        "nginx/.hidden",
        "nginx/deeper/d.log",
        "home/x.log",
    ] {
        folder.write(name, format!("{name}\n"));
    }
    folder
}

#[test]
fn several_files_folders_and_the_home_directory() {
    let folder = logs();
    for (pipeline, expected) in [
        (
            "file a.log b.log nginx/ ~/x.log | stdout",
            &[
                "a.log",
                "b.log",
                "nginx/access.log",
                "nginx/error.log",
                "home/x.log",
            ][..],
        ),
        ("file a.log, b.log | stdout", &["a.log", "b.log"]),
        ("file {b,a}.log,~/*.log", &["a.log", "b.log", "home/x.log"]),
        ("file nginx", &["nginx/access.log", "nginx/error.log"]),
        ("file ~", &["home/x.log"]),
        (
            "file nginx/** exclude=~/x.log",
            &["nginx/access.log", "nginx/deeper/d.log", "nginx/error.log"],
        ),
    ] {
        let ended = run_in(&folder, pipeline).expect(0);
        assert_eq!(messages(&ended), expected, "{pipeline}");
    }
    let lists = "pipelines: { p: { input: { file: [a.log, nginx, ~/x.log] }, output: { file: ~/out.ndjson } } }\n";
    let yaml = folder.write("p.yaml", lists.replace("nginx,", "nginx, follow.log,"));
    let mut check = command(&["check", &yaml]);
    check.env_remove("HOME");
    let refused = ended(check.output().expect("the executable runs")).expect(2);
    assert!(
        refused
            .err
            .contains("environment variable HOME, which is not set"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("~/x.log"), "{}", refused.err);
}

#[test]
fn paths_of_outputs_and_settings_know_the_home_directory() {
    let folder = logs();
    run_in(&folder, "file a.log | file ~/out/%{+yyyy}-x.ndjson").expect(0);
    let files = std::fs::read_dir(folder.path("home/out")).expect("a folder");
    let count = files.filter(|file| {
        file.as_ref()
            .is_ok_and(|file| file.file_name().to_string_lossy().ends_with("-x.ndjson"))
    });
    assert_eq!(count.count(), 1);
    folder.write("home/token", "secret\n");
    let secret = run_in(
        &folder,
        "file a.log | http http://localhost:1/ auth.bearer=file:~/no-token",
    );
    let path = folder.path("home/no-token");
    assert!(secret.expect(2).err.contains(&path));
    let yaml = "data_dir: ~/state\npipelines: { p: { input: stdin, output: discard, queue: { disk: { path: ~/queue } } } }\n";
    let yaml = folder.write("p.yaml", yaml);
    run_in(&folder, &yaml).expect(0);
    for name in ["home/state", "home/queue"] {
        assert!(std::path::Path::new(&folder.path(name)).is_dir(), "{name}");
    }
}

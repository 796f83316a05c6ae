//! Configurations of several files.

use std::fs;

use crate::program::{Ended, Folder, command, ended, millpond};

fn pipeline(name: &str) -> String {
    format!(
        "  {name}: {{ input: {{ generate: {{ format: apache, rate: 1 }} }}, output: discard }}\n"
    )
}

fn pipelines(names: &[&str]) -> String {
    let pipelines: String = names.iter().map(|name| pipeline(name)).collect();
    format!("pipelines:\n{pipelines}")
}

fn print(path: &str) -> Ended {
    millpond(&["run", "--print-config", path])
}

fn names(printed: &Ended) -> Vec<&str> {
    let lines = printed.out.lines();
    let pipelines = lines.skip_while(|line| *line != "pipelines:").skip(1);
    let keys = pipelines.filter_map(|line| line.strip_prefix("  "));
    let keys = keys.filter(|line| !line.starts_with(' '));
    keys.map(|line| line.split(':').next().unwrap_or_default())
        .collect()
}

#[test]
fn files_are_included_and_folders_are_read_by_name() {
    let folder = Folder::new();
    for name in ["parts", "parts/more"] {
        fs::create_dir(folder.path(name)).expect("a writable folder");
    }
    let main = folder.write(
        "main.yaml",
        "workers: 2\nx-anything: &rate { format: apache, rate: 1 }\ninclude: [parts/*.yaml, 'parts/more']\npipelines:\n  own: { input: { generate: *rate }, output: discard }\n",
    );
    folder.write("parts/b.yaml", pipelines(&["b"]));
    folder.write(
        "parts/a.yaml",
        format!("include: ../c.yml\n{}", pipelines(&["a"])),
    );
    folder.write("c.yml", pipelines(&["c"]).replace('\n', "\r\n"));
    folder.write("parts/more/d.yaml", "# nothing yet\n");
    folder.write("parts/more/e.yml", format!("\u{feff}{}", pipelines(&["e"])));
    folder.write("parts/more/notes.txt", "pipelines: nonsense");
    folder.write("parts/more/.hidden.yaml", "pipelines: nonsense");
    folder.write("parts/.hidden.yaml", "pipelines: nonsense");
    folder.write("parts/a.test.yaml", "tests: nonsense");
    folder.write("parts/more/e.test.yml", "tests: nonsense");
    fs::create_dir(folder.path("parts/folder.yaml")).expect("a writable folder");
    let printed = print(&main).expect(0);
    assert_eq!(names(&printed), ["c", "a", "b", "e", "own"]);
    assert!(printed.out.contains("workers: 2"), "{}", printed.out);
    assert!(!printed.out.contains("x-anything") && !printed.out.contains("include"));
    millpond(&["check", &main]).expect(0);
    let printed = print(&folder.path("parts/more")).expect(0);
    assert_eq!(names(&printed), ["e"]);
}

#[test]
fn what_is_wrong_is_told_with_its_file_and_line() {
    let folder = Folder::new();
    let other = folder.write("other.yaml", format!("workers: 1\n{}", pipelines(&["web"])));
    folder.write("circle.yaml", "include: main.yaml\n");
    folder.write(
        "broken.yaml",
        "pipelines:\n  broken: { input: nothing, output: discard }\n",
    );
    folder.write("list.yaml", "- pipelines\n");
    folder.write("scalar.yaml", "pipelines\n");
    folder.write("latin.yaml", [b'#', 0xe9]);
    fs::create_dir(folder.path("empty")).expect("a writable folder");
    for (main, said) in [
        (
            format!("include: list.yaml\n{}", pipelines(&["a"])),
            vec!["a map of settings is expected", "list.yaml:1"],
        ),
        (
            format!("include: scalar.yaml\n{}", pipelines(&["a"])),
            vec!["a map of settings is expected", "scalar.yaml:1"],
        ),
        (
            format!("include: latin.yaml\n{}", pipelines(&["a"])),
            vec!["latin.yaml", "not valid UTF-8", "main.yaml:1"],
        ),
        (
            format!("include: '*/a.yaml'\n{}", pipelines(&["a"])),
            vec!["only the last part of the path", "main.yaml:1"],
        ),
        (
            format!("include: [other.yaml, ./other.yaml]\n{}", pipelines(&["a"])),
            vec!["other.yaml was read already", "main.yaml:1"],
        ),
        (
            format!("include: other.yaml\n{}", pipelines(&["web"])),
            vec![
                "`web` is given a second time",
                "main.yaml:3",
                "other.yaml, line 3",
            ],
        ),
        (
            format!("workers: 2\ninclude: other.yaml\n{}", pipelines(&["a"])),
            vec![
                "`workers` is given a second time",
                "other.yaml:1",
                "main.yaml, line 1",
            ],
        ),
        (
            format!("include: [circle.yaml]\n{}", pipelines(&["a"])),
            vec!["includes itself", "circle.yaml:1"],
        ),
        (
            format!("include: missing.yaml\n{}", pipelines(&["a"])),
            vec!["missing.yaml", "No such file", "main.yaml:1"],
        ),
        (
            format!("include: broken.yaml\n{}", pipelines(&["a"])),
            vec!["nothing", "broken.yaml:2"],
        ),
        (
            format!("include: {{ a: b }}\n{}", pipelines(&["a"])),
            vec!["a path of a YAML file is expected", "main.yaml:1"],
        ),
    ] {
        let path = folder.write("main.yaml", main);
        let ended = millpond(&["check", &path]).expect(2);
        for part in said {
            assert!(ended.err.contains(part), "{part}: {}", ended.err);
        }
    }
    let ended = millpond(&["run", &folder.path("empty")]).expect(2);
    assert!(ended.err.contains("contains no YAML file"), "{}", ended.err);
    millpond(&["check", &other]).expect(0);
}

#[test]
fn a_folder_runs_as_a_service() {
    let folder = Folder::new();
    fs::create_dir(folder.path("conf")).expect("a writable folder");
    for name in ["one", "two"] {
        let log = folder.write(name, format!("line of {name}\n"));
        let text = format!(
            "pipelines:\n  {name}: {{ input: {{ file: {{ paths: {log}, follow: false }} }}, output: file {} }}\n",
            folder.path(&format!("{name}.out"))
        );
        folder.write(&format!("conf/{name}.yaml"), text);
    }
    let output = command(&["run", &folder.path("conf")]).output();
    ended(output.expect("it ends when its inputs have")).expect(0);
    for name in ["one", "two"] {
        let out = folder.read(&format!("{name}.out"));
        assert!(out.contains(&format!("line of {name}")), "{out}");
    }
}

#[test]
fn several_files_are_one_configuration() {
    let folder = Folder::new();
    let a = folder.write("a.yaml", format!("workers: 2\n{}", pipelines(&["a"])));
    let b = folder.write("b.yml", pipelines(&["b"]));
    fs::create_dir(folder.path("more")).expect("a writable folder");
    folder.write("more/c.yaml", pipelines(&["c"]));
    let more = folder.path("more");
    let printed = millpond(&["run", &b, "--print-config", &a, &more]).expect(0);
    assert_eq!(names(&printed), ["b", "a", "c"]);
    assert!(printed.out.contains("workers: 2"), "{}", printed.out);
    let checked = millpond(&["check", &a, &b]).expect(0);
    assert_eq!(
        checked.out,
        "a: generate | discard\nb: generate | discard\nThe configuration is valid.\n"
    );
    for (args, said) in [
        (vec![&*a, &a], format!("error: {a} was read already\n")),
        (
            vec![&*a, "none.yaml"],
            "error: cannot read none.yaml: No such file or directory\n".to_owned(),
        ),
        (
            vec!["file", &a, "|", "stdout"],
            format!("error: a pipeline is one argument: put it in quotes, 'file {a} | stdout'\n"),
        ),
    ] {
        let ended = millpond(&[&["check"], &args[..]].concat()).expect(2);
        assert_eq!(ended.err, said);
    }
    let ended = millpond(&["bench", &a, "stdin | discard"]).expect(2);
    assert!(ended.err.contains("put it in quotes"), "{}", ended.err);
}

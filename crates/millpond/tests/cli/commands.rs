//! The other commands.

use serde_json::Value;

use crate::program::{Folder, millpond};

#[test]
fn docs_come_from_the_components() {
    let index = millpond(&["docs"]).expect(0).out;
    for name in [
        "input-file",
        "processor-grok",
        "output-stdout",
        "expressions",
        "functions",
        "exit-codes",
        "pipeline",
        "queue",
    ] {
        assert!(index.contains(name), "{name} in\n{index}");
        let page = millpond(&["docs", name]).expect(0).out;
        assert!(page.starts_with("# "), "{page}");
    }
    let page = millpond(&["docs", "input-file"]).expect(0).out;
    for row in [
        "| `close` | map | - |",
        "| `close.inactive` | duration | `5m` |",
        "| `multiline.max_lines` | whole number | `500` |",
        "| `start_at` | `beginning` or `end` | `beginning` |",
    ] {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    let page = millpond(&["docs", "functions"]).expect(0).out;
    for function in expr::functions() {
        assert!(
            page.contains(&format!("| `{}`", function.signature)),
            "{}",
            function.name
        );
    }
    let page = millpond(&["docs", "queue"]).expect(0).out;
    for row in [
        "| `overflow` | `none` or `disk` or map | `none` |",
        "| `max_bytes` | size | `1GiB` |",
        "| `max_events` | count | no limit |",
        "| `durability` | `fsync` or `interval` | `fsync` |",
    ] {
        assert!(page.contains(row), "{row} in\n{page}");
    }
    let both = millpond(&["docs", "file"]).expect(0).out;
    assert!(both.contains("# `file` (input)") && both.contains("# `file` (output)"));
    let ended = millpond(&["docs", "grk"]).expect(2);
    assert!(
        ended.err.starts_with("error: there is no page")
            && ended.err.contains("did you mean")
            && ended.err.contains("accepted"),
        "{}",
        ended.err
    );
}

#[test]
fn whole_configurations_on_the_pages_are_valid() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("pipelines")).expect("what the example of `include` names");
    let mut checked = 0;
    for page in ["pipeline", "queue"] {
        let text = millpond(&["docs", page]).expect(0).out;
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            let path = folder.write("page.yaml", block);
            let ended = millpond(&["check", &path]);
            if block.contains("kafka:") && !cfg!(feature = "kafka") {
                assert!(ended.err.contains("--features kafka"), "{}", ended.err);
                continue;
            }
            assert_eq!(ended.code, Some(0), "{page}: {block}\n{}", ended.err);
            checked += 1;
        }
    }
    assert!(checked >= 3, "{checked} configurations");
}

#[test]
fn every_component_explains_itself() {
    let folder = Folder::new();
    millpond(&["docs", "--out", &folder.path("pages")]).expect(0);
    let mut pages = 0;
    for entry in std::fs::read_dir(folder.path("pages")).expect("made") {
        let path = entry.expect("a page").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if ["input-", "processor-", "output-"]
            .iter()
            .any(|kind| name.starts_with(kind))
        {
            pages += 1;
            for part in ["## Settings", "## Examples"] {
                assert!(text.contains(part), "{name} has no {part}");
            }
            assert!(
                !text.contains("|  |\n"),
                "{name} has a setting without a meaning"
            );
        }
    }
    assert!(pages >= 20, "{pages} components");
}

#[test]
fn the_schema_is_json_and_knows_every_component() {
    let schema: Value = serde_json::from_str(&millpond(&["schema"]).expect(0).out).expect("JSON");
    let text = schema.to_string();
    for name in [
        "grok",
        "geoip",
        "stdout",
        "generate",
        "on_failure",
        "shutdown_deadline",
        "overflow",
        "orphan_retention",
    ] {
        assert!(text.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["run"][..],
        &["run", "a | b", "--nosuch"],
        &["nosuch"],
        &[],
    ] {
        let ended = millpond(args).expect(2);
        assert!(!ended.err.is_empty(), "{args:?}");
    }
    millpond(&["--version"]).expect(0);
    assert!(millpond(&["--help"]).expect(0).out.contains("Usage"));
}

//! House rules that no lint knows: sizes, the order of the crates, imports within them, one file for each component.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/circles.rs"]
mod circles;

/// The crates, each depending only on those before it.
const ORDER: [&str; 21] = [
    "datetime",
    "disk",
    "batch",
    "grok",
    "config",
    "codec",
    "registry",
    "component",
    "net",
    "kafka",
    "stores",
    "expr",
    "queue",
    "profiler",
    "inputs",
    "processors",
    "outputs",
    "pipeline",
    "millpond",
    "testkit",
    "fuzzkit",
];

/// The crates that never use each other.
const SIDE_BY_SIDE: [&str; 3] = ["inputs", "processors", "outputs"];

/// The modules that may hold `unsafe`, each a small one with a safe interface.
const UNSAFE_MODULES: [&str; 6] = [
    "crates/codec/src/compress/raw.rs",
    "crates/component/src/standard.rs",
    "crates/kafka/src/produced.rs",
    "crates/kafka/src/records.rs",
    "crates/net/src/unsent.rs",
    "crates/profiler/src/sampling/timers/handler.rs",
];

/// Names of types that say nothing where several crates have them. A type has a noun of its own.
const VAGUE_NAMES: [&str; 11] = [
    "Step", "Place", "Found", "Reader", "Part", "State", "Desk", "Ends", "Look", "Who", "Thing",
];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

fn root() -> PathBuf {
    Path::new("../..")
        .canonicalize()
        .expect("the workspace is there")
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    assert!(files.len() > 50, "the sources were found");
    files
        .into_iter()
        .map(|path| {
            (
                path.clone(),
                fs::read_to_string(&path).expect("a readable file"),
            )
        })
        .collect()
}

/// The functions of a file, each with its name and number of lines. Relies on the formatter: a function ends with a
/// brace at its own indentation.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let starts = [
            "fn ",
            "pub fn ",
            "pub(crate) fn ",
            "pub(super) fn ",
            "async fn ",
            "pub async fn ",
            "const fn ",
            "pub const fn ",
        ];
        // A declaration in a trait has no lines of its own.
        if code.ends_with(';') || !starts.iter().any(|start| code.starts_with(start)) {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        if let Some(length) = lines[index..].iter().position(|line| *line == end) {
            found.push((
                code.split('(').next().unwrap_or(code).to_owned(),
                length + 1,
            ));
        }
    }
    found
}

#[test]
fn types_have_names_of_their_own() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        if path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs") {
            continue;
        }
        for line in text.lines() {
            let mut words = line
                .split_whitespace()
                .skip_while(|word| word.starts_with("pub"));
            let is_type = ["struct", "enum", "type", "trait"].contains(&words.next().unwrap_or(""));
            let name = words.next().unwrap_or("");
            let name = name
                .split(|letter: char| !letter.is_alphanumeric())
                .next()
                .unwrap_or("");
            if is_type && VAGUE_NAMES.contains(&name) {
                problems.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn files_and_functions_fit_their_sizes() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            problems.push(format!("{} has {lines} lines", path.display()));
        }
        // Tables of test cases may be long.
        let is_test = ["tests", "examples", "tests.rs"]
            .iter()
            .any(|part| path.iter().any(|step| step == *part));
        let code = text.split("#[cfg(test)]").next().unwrap_or(&text);
        for (name, lines) in functions(if is_test { "" } else { code }) {
            if lines > FUNCTION_LINES_MAX {
                problems.push(format!("{}: {name} has {lines} lines", path.display()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_module_says_what_it_is_for() {
    let undocumented: Vec<_> = sources()
        .into_iter()
        .filter(|(path, text)| !text.starts_with("//!") && !path.ends_with("tests.rs"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(
        undocumented.is_empty(),
        "files without a module doc:\n{}",
        undocumented.join("\n")
    );
}

#[test]
fn crates_depend_upward_only() {
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let name = entry
            .expect("a crate")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let place = ORDER
            .iter()
            .position(|known| *known == name)
            .unwrap_or_else(|| panic!("{name} has no place in the order"));
        let manifest = fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml"))
            .expect("a manifest");
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines() {
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if let Some(other) = ORDER.iter().position(|known| *known == used) {
                assert!(other < place, "{name} uses {used}, which comes after it");
                let both = SIDE_BY_SIDE.contains(&name.as_str()) && SIDE_BY_SIDE.contains(&used);
                assert!(!both, "{name} uses {used}");
            }
        }
    }
}

#[test]
fn every_component_has_a_module_of_its_name() {
    for name in SIDE_BY_SIDE {
        let dir = root().join("crates").join(name).join("src");
        let lib = fs::read_to_string(dir.join("lib.rs")).expect("a lib.rs");
        let listed: Vec<&str> = lib
            .split("::SPEC")
            .filter_map(|before| before.rsplit([' ', '[', '\n']).next())
            .filter(|module| module.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
            .filter(|module| !module.is_empty())
            .collect();
        assert!(!listed.is_empty(), "{name} lists components");
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        assert_eq!(listed, sorted, "{name} lists its components by name");
        for module in listed {
            let exists = dir.join(format!("{module}.rs")).exists()
                || dir.join(module).join("mod.rs").exists();
            assert!(exists, "{name}::{module} has a file or folder of its own");
        }
    }
}

#[test]
fn nothing_is_left_to_do_or_skipped() {
    let marks = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
    ];
    for (path, text) in sources() {
        for mark in marks {
            assert!(!text.contains(mark), "{} holds {mark}", path.display());
        }
    }
}

#[test]
fn unsafe_code_stays_in_its_modules() {
    let marks = [
        concat!("allow(unsafe", "_code"),
        concat!("expect(unsafe", "_code"),
        concat!("warn(unsafe", "_code"),
    ];
    let mut found: Vec<String> = Vec::new();
    for (path, text) in sources() {
        if marks.iter().any(|mark| text.contains(mark)) {
            let path = path.strip_prefix(root()).expect("a file of the workspace");
            found.push(path.display().to_string());
        }
    }
    found.sort();
    assert_eq!(found, UNSAFE_MODULES, "the modules that allow unsafe code");

    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    assert!(manifest.contains("unsafe_code = \"deny\""));
    assert!(manifest.contains("undocumented_unsafe_blocks"));
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let manifest = entry.expect("a crate").path().join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{} takes the lints of the workspace",
            manifest.display()
        );
    }
}

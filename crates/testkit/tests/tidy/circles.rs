//! The rule that the files of a crate import from each other in no circle, so that each can be read after those that it
//! builds on.
//!
//! Imports are the paths of `use` and those within the code, followed through imports of imports to the file that
//! defines the name. Calls of methods are not seen. What a module takes from the modules that it is part of is left
//! out: it sees even their private items, and makes a circle only together with a third file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{ORDER, root, rust_files};

#[test]
fn files_import_each_other_in_no_circle() {
    let mut problems = Vec::new();
    for name in ORDER {
        let source = Source::of_crate(name);
        let imports = Imports::of(&source);
        let circles = imports.circles();
        problems.extend(circles.iter().map(|circle| imports.explain(circle)));
    }
    assert!(
        problems.is_empty(),
        "Files import each other. Move what they share to a file of its own, or a function to the file of its data.\n{}",
        problems.join("\n")
    );
}

#[test]
fn an_import_leads_to_the_file_that_defines_the_name() {
    let source = Source::new(
        "lib.rs",
        &[
            ("lib.rs", "mod a; mod b; pub use {a::A, b::C};"),
            ("a.rs", "pub struct A;"),
            ("b/mod.rs", "mod c; pub use c::C; use super::A as Other;"),
            ("b/c.rs", "pub struct C(super::Other); // crate::C"),
        ],
    );
    let imports = Imports::of(&source);
    assert!(imports.circles().is_empty());
    assert!(imports.arrows["b/c.rs"].keys().eq(&["a.rs"]));

    let source = Source::new(
        "lib.rs",
        &[
            (
                "lib.rs",
                "mod a; mod c; #[cfg(test)] mod t { use super::a::A; }",
            ),
            (
                "a.rs",
                "mod b; mod x { pub const C: char = '\"'; } use b::B;",
            ),
            (
                "a/b.rs",
                "pub struct B<'a>(&'a char); fn f() { crate::c::C }",
            ),
            ("c.rs", "pub const C: char = crate::a::x::C;"),
        ],
    );
    let imports = Imports::of(&source);
    let circle = ["a.rs", "a/b.rs", "c.rs"];
    assert!(imports.circles().iter().eq(&[circle]));
}

/// The `.rs` files of a crate, by their paths.
struct Source {
    root: String,
    texts: BTreeMap<String, String>,
}

impl Source {
    fn new(root: &str, files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self {
            root: root.to_owned(),
            texts: files.iter().map(owned).collect(),
        }
    }

    fn of_crate(name: &str) -> Self {
        let crates = root().join("crates");
        let mut files = Vec::new();
        rust_files(&crates.join(name).join("src"), &mut files);
        let mut texts = BTreeMap::new();
        for path in files {
            let text = fs::read_to_string(&path).expect("a readable file");
            let path = path.strip_prefix(&crates).expect("a file of a crate");
            texts.insert(path.display().to_string(), text);
        }
        let roots = ["lib.rs", "main.rs"].map(|file| format!("{name}/src/{file}"));
        let root = roots.into_iter().find(|file| texts.contains_key(file));
        Self {
            root: root.expect("a crate has a root"),
            texts,
        }
    }

    /// The file of the module `name` that `parent` declares.
    fn child(&self, parent: &str, name: &str) -> &str {
        let (folder, file) = parent.rsplit_once('/').unwrap_or(("", parent));
        let folder = match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder,
            _ => parent.trim_end_matches(".rs"),
        };
        let paths = [".rs", "/mod.rs"].map(|end| format!("{folder}/{name}{end}"));
        let known = paths
            .iter()
            .find_map(|path| self.texts.get_key_value(path.trim_start_matches('/')));
        known.unwrap_or_else(|| panic!("{parent}: no {name}")).0
    }
}

/// What a module declares and uses, without its tests. A module that has no file of its own has that of its parent.
#[derive(Default)]
struct Module<'a> {
    file: &'a str,
    parent: usize,
    children: BTreeMap<&'a str, usize>,
    items: BTreeSet<&'a str>,
    /// What `use` brings in, by the name that it has here.
    imported: BTreeMap<&'a str, Vec<&'a str>>,
    /// The paths in `use path::*`.
    globs: Vec<Vec<&'a str>>,
    paths: BTreeSet<Vec<&'a str>>,
}

/// Where a path leads: to a module, or to something that a module defines.
enum Target {
    Module,
    Item(usize),
}

/// The modules of a crate, its root first, and which file takes which names from which other.
struct Imports<'a> {
    modules: Vec<Module<'a>>,
    arrows: BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>,
}

impl<'a> Imports<'a> {
    fn of(source: &'a Source) -> Self {
        let mut imports = Self {
            modules: Vec::new(),
            arrows: BTreeMap::new(),
        };
        imports.add_file(source, &source.root, 0);
        for (index, module) in imports.modules.iter().enumerate() {
            for path in &module.paths {
                let Some(Target::Item(target)) = imports.resolve(index, path, STEPS_MAX) else {
                    continue;
                };
                if !imports.is_within(index, target) {
                    let arrows = imports.arrows.entry(module.file).or_default();
                    let names = arrows.entry(imports.modules[target].file).or_default();
                    let item = path
                        .iter()
                        .find(|name| name.starts_with(char::is_uppercase));
                    names.extend(item.or(path.last()));
                }
            }
        }
        imports
    }

    /// Whether a module is part of another, or in the same file.
    fn is_within(&self, module: usize, other: usize) -> bool {
        let mut around = std::iter::successors(Some(module), |at| {
            (*at > 0).then_some(self.modules[*at].parent)
        });
        around.any(|at| self.modules[at].file == self.modules[other].file)
    }

    fn add_file(&mut self, source: &'a Source, file: &'a str, parent: usize) -> usize {
        let file = source.texts.get_key_value(file).expect("a known file");
        self.add(source, file.0, &tokens(file.1), parent)
    }

    fn add(
        &mut self,
        source: &'a Source,
        file: &'a str,
        tokens: &[&'a str],
        parent: usize,
    ) -> usize {
        let index = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        let mut depth = 0;
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += match rest {
                ["#", "[", "cfg", "(", "test", ")", "]", item @ ..] => 7 + item_length(item),
                ["mod", name, ";", ..] => {
                    let child = self.add_file(source, source.child(file, name), index);
                    self.modules[index].children.insert(name, child);
                    3
                }
                ["mod", name, "{", ..] => {
                    let length = item_length(rest);
                    let child = self.add(source, file, &rest[3..length - 1], index);
                    self.modules[index].children.insert(name, child);
                    length
                }
                ["{", ..] => {
                    depth += 1;
                    1
                }
                ["}", ..] => {
                    depth -= 1;
                    1
                }
                _ => self.modules[index].read(rest, depth == 0),
            };
        }
        index
    }

    /// Where a path in a module leads; nothing outside the crate.
    fn resolve(&self, from: usize, path: &[&str], steps: usize) -> Option<Target> {
        let mut at = from;
        for (index, name) in path.iter().enumerate() {
            let module = &self.modules[at];
            at = match *name {
                "crate" => 0,
                "self" => at,
                "super" => module.parent,
                name if module.children.contains_key(name) => module.children[name],
                _ => return self.find(at, &path[index..], index > 0, steps),
            };
        }
        Some(Target::Module)
    }

    /// Where a path that begins with an item or an imported name of the module leads. A name that the module does not
    /// show comes from a macro if something else asks the module for it.
    fn find(&self, at: usize, path: &[&str], is_qualified: bool, steps: usize) -> Option<Target> {
        let module = &self.modules[at];
        let steps = steps.checked_sub(1)?;
        if module.items.contains(path[0]) {
            return Some(Target::Item(at));
        }
        if let Some(imported) = module.imported.get(path[0]) {
            return self.resolve(at, &[imported, &path[1..]].concat(), steps);
        }
        let in_globs =
            module
                .globs
                .iter()
                .find_map(|glob| match self.resolve(at, glob, steps)? {
                    Target::Module => self.resolve(at, &[glob, path].concat(), steps),
                    Target::Item(_) => None,
                });
        in_globs.or(is_qualified.then_some(Target::Item(at)))
    }

    /// The files that a file reaches through imports.
    fn reached(&self, file: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(file) = open.pop() {
            let imported = self.arrows.get(file).into_iter().flat_map(BTreeMap::keys);
            open.extend(imported.filter(|other| reached.insert(**other)));
        }
        reached
    }

    /// The strongly connected components of two or more files.
    fn circles(&self) -> BTreeSet<Vec<&'a str>> {
        let files = self.arrows.keys();
        let reached: BTreeMap<_, _> = files.map(|file| (*file, self.reached(file))).collect();
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        reached
            .iter()
            .filter(|(file, _)| reaches(file, file))
            .map(|(file, all)| {
                all.iter()
                    .copied()
                    .filter(|other| reaches(other, file))
                    .collect()
            })
            .collect()
    }

    fn explain(&self, circle: &[&str]) -> String {
        let mut text = format!("a circle of {} files:", circle.len());
        for file in circle {
            for (target, names) in &self.arrows[file] {
                if circle.contains(target) {
                    let names: Vec<_> = names.iter().copied().collect();
                    text += &format!("\n  {file} imports from {target}: {}", names.join(", "));
                }
            }
        }
        text
    }
}

/// How many imports of imports are followed, which ends names that lead to themselves.
const STEPS_MAX: usize = 16;

impl<'a> Module<'a> {
    /// Reads an item's name, an import or a path at the start of the tokens, and returns their number.
    fn read(&mut self, tokens: &[&'a str], is_top: bool) -> usize {
        match tokens {
            ["use", tree @ ..] if tree.first() != Some(&"<") => {
                let end = tree.iter().position(|token| *token == ";");
                let end = end.unwrap_or(tree.len());
                self.read_use(&tree[..end], &[], is_top);
                end + 1
            }
            [
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static",
                name,
                ..,
            ] if is_top => {
                self.items.insert(name);
                1
            }
            ["macro_rules", "!", name, ..] => {
                self.items.insert(name);
                3
            }
            [first, "::", ..] if is_word(first) => {
                let mut path = vec![*first];
                let more = tokens[1..].chunks_exact(2);
                path.extend(
                    more.take_while(|pair| pair[0] == "::" && is_word(pair[1]))
                        .map(|pair| pair[1]),
                );
                let length = 2 * path.len() - 1;
                self.paths.insert(path);
                length
            }
            _ => 1,
        }
    }

    fn read_use(&mut self, tree: &[&'a str], prefix: &[&'a str], is_top: bool) {
        let mut depth = 0;
        let parts = tree.split(|token| {
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            *token == "," && depth == 0
        });
        for part in parts.filter(|part| !part.is_empty()) {
            let ends = |token: &&&str| !matches!(**token, "{" | "as");
            let head = part.iter().take_while(ends).count();
            let names = part[..head].iter().filter(|token| **token != "::");
            let mut path: Vec<&str> = prefix.iter().chain(names).copied().collect();
            if part.get(head) == Some(&"{") {
                self.read_use(&part[head + 1..part.len() - 1], &path, is_top);
                continue;
            }
            if path.len() > 1 {
                path.pop_if(|last| *last == "self");
            }
            let last = path[path.len() - 1];
            if last == "*" {
                path.pop();
                self.globs.push(path);
                continue;
            }
            let name = part.get(head + 1).unwrap_or(&last);
            if is_top || !self.imported.contains_key(name) {
                self.imported.insert(name, path.clone());
            }
            self.paths.insert(path);
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The number of tokens up to the end of an item: its closing brace or semicolon, or the end of what it is in.
fn item_length(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return index,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(*token, "}" | ";") {
            return index + 1;
        }
    }
    tokens.len()
}

/// The words and signs of a text, without comments, strings, characters and lifetimes.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_length(rest);
        let length = skipped.unwrap_or_else(|| match word_length(rest) {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        });
        if skipped.is_none() {
            found.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    found
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}

/// The length of the white space, comment, string, character or lifetime at the start of a text.
fn skipped_length(text: &str) -> Option<usize> {
    let through = |from: usize, end: &str| {
        let found = text[from..].find(end);
        found.map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with(char::is_whitespace) {
        return Some(text.len() - text.trim_start().len());
    }
    if text.starts_with("//") {
        return Some(through(2, "\n"));
    }
    if text.starts_with("/*") {
        return Some(through(2, "*/"));
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let mut is_escaped = false;
        let end = quoted.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        return Some(end.map_or(text.len(), |at| at + 2));
    }
    if text.starts_with("'\\") {
        return Some(through(3, "'"));
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        let is_character = quoted.chars().nth(1) == Some('\'');
        return Some(if is_character {
            through(1, "'")
        } else {
            1 + word_length(quoted)
        });
    }
    let raw = text.strip_prefix("br").or(text.strip_prefix('r'))?;
    let hashes = raw.find(|c| c != '#')?;
    let start = text.len() - raw.len() + hashes + 1;
    let end = format!("\"{}", &raw[..hashes]);
    raw[hashes..].starts_with('"').then(|| through(start, &end))
}

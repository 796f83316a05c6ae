//! The YAML files of a configuration: one file, a folder of files, and what they include.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use config::{ConfigError, Node, NodeKind, Source, parse_yaml};
use globset::GlobBuilder;

/// Names other files whose settings belong to the configuration too.
pub const INCLUDE: &str = "include";

/// Settings at the top whose names begin so are not read: they hold what anchors refer to.
pub const IGNORED: &str = "x-";

/// Other settings whose entries may come from several files.
const PIPELINES: &str = "pipelines";

/// A file or folder that was looked at, as it was before it was read: a change of it may change the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    path: PathBuf,
    /// Inode, length, and the time of the last change in seconds and nanoseconds; none where it is not there.
    state: Option<(u64, u64, i64, i64)>,
}

impl Seen {
    fn new(path: &Path) -> Self {
        let state = path.metadata().ok().map(|meta| {
            let (seconds, nanoseconds) = (meta.mtime(), meta.mtime_nsec());
            (meta.ino(), meta.len(), seconds, nanoseconds)
        });
        Self {
            path: path.to_owned(),
            state,
        }
    }

    /// The same file or folder as it is now.
    pub fn again(&self) -> Self {
        Self::new(&self.path)
    }
}

/// Whether a file of that name has tests of configurations, and is no part of one.
pub fn is_test(name: &str) -> bool {
    name.ends_with(".test.yaml") || name.ends_with(".test.yml")
}

/// Files that were read, and what they say together.
#[derive(Default)]
struct Reading {
    seen: Vec<Seen>,
    /// Files that are being read, each included by the one before it.
    open: Vec<PathBuf>,
    /// Files that were read.
    read: Vec<PathBuf>,
    entries: Vec<(Node, Node)>,
    root: Option<Node>,
}

/// What the YAML files at these paths say together, with what they include, and all files of folders; and everything that was looked
/// at for it.
///
/// # Errors
/// A file cannot be read or is no YAML, a setting is given twice, or files include each other in a circle.
pub fn read(paths: &[String]) -> anyhow::Result<(Node, Vec<Seen>)> {
    let mut reading = Reading::default();
    for path in paths.iter().map(Path::new) {
        let shown = path.display();
        let files = match path.is_dir() {
            true => {
                reading.seen.push(Seen::new(path));
                files_of(path)?
            }
            false => vec![path.to_owned()],
        };
        if files.is_empty() {
            bail!("{shown} contains no YAML file (*.yaml, *.yml)");
        }
        for file in &files {
            // One file that is given twice has everything twice.
            let real = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
            if reading.read.contains(&real) {
                bail!("{} was read already", file.display());
            }
            reading.file(file)?;
        }
    }
    let root = reading.root.context("no file was read")?;
    let merged = Node::map(root.source(), root.span, reading.entries);
    Ok((merged.rooted(), reading.seen))
}

/// The YAML files of a folder by name. Others are not read, nor are hidden ones and tests.
fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_yaml = |name: &str| name.ends_with(".yaml") || name.ends_with(".yml");
    files_named(folder, |name| {
        is_yaml(name) && !name.starts_with('.') && !is_test(name)
    })
}

/// The files of a folder with such names, by name.
fn files_named(folder: &Path, is_one: impl Fn(&str) -> bool) -> anyhow::Result<Vec<PathBuf>> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot read {shown}"))?
            .path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_one(&name) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    String::from_utf8(text)
        .map_err(|_| anyhow!("{shown} is not a YAML file: it is not valid UTF-8"))
}

fn has_wildcards(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '[', '{'])
}

impl Reading {
    fn file(&mut self, path: &Path) -> anyhow::Result<()> {
        self.seen.push(Seen::new(path));
        let text = text_of(path)?;
        let tree = parse_yaml(&Source::new(path.display().to_string(), text))?;
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.open.push(real.clone());
        self.read.push(real);
        let entries = match &tree.kind {
            NodeKind::Map(entries) => entries.clone(),
            NodeKind::Null => Vec::new(),
            _ => bail!(tree.error("a map of settings is expected, such as `pipelines: …`")),
        };
        self.root.get_or_insert(tree);
        for (key, value) in entries {
            match key.as_str() {
                Some(INCLUDE) => self.include(path, &value)?,
                Some(name) if name.starts_with(IGNORED) => {}
                _ => self.add(key, value)?,
            }
        }
        self.open.pop();
        Ok(())
    }

    /// Reads the files that a file includes: paths, relative to its own folder, in which the last part may have wildcards.
    fn include(&mut self, from: &Path, value: &Node) -> anyhow::Result<()> {
        let folder = from.parent().unwrap_or(Path::new(""));
        for item in value.items() {
            let Some(text) = item.as_str().filter(|text| !text.is_empty()) else {
                return Err(item.error("a path of a YAML file is expected").into());
            };
            for path in self.included(&folder.join(text), item)? {
                self.include_one(&path, item)?;
            }
        }
        Ok(())
    }

    fn include_one(&mut self, path: &Path, item: &Node) -> anyhow::Result<()> {
        let shown = path.display();
        let real = fs::canonicalize(path)
            .map_err(|error| item.error(format!("cannot read {shown}: {error}")))?;
        if self.open.contains(&real) {
            let text = format!("{shown} includes itself, directly or through others");
            return Err(item.error(text).into());
        }
        if self.read.contains(&real) {
            return Err(item.error(format!("{shown} was read already")).into());
        }
        // What is wrong inside has its own place; what cannot be read at all has none but this.
        text_of(path).map_err(|error| item.error(format!("{error:#}")))?;
        self.file(path)
    }

    /// The files that a path stands for.
    fn included(&mut self, path: &Path, item: &Node) -> anyhow::Result<Vec<PathBuf>> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let placed = |error: anyhow::Error| item.error(format!("{error:#}"));
        if path.is_dir() {
            self.seen.push(Seen::new(path));
            return Ok(files_of(path).map_err(placed)?);
        }
        if path.exists() || !has_wildcards(path) {
            return Ok(vec![path.to_owned()]);
        }
        if has_wildcards(folder) && !folder.exists() {
            let error = item.error("only the last part of the path may have wildcards");
            return Err(error.into());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let glob = GlobBuilder::new(&name).literal_separator(true).build();
        let glob = glob.map_err(|error| item.error(error.to_string()))?;
        let matcher = glob.compile_matcher();
        let shows_hidden = name.starts_with('.');
        self.seen.push(Seen::new(folder));
        let files = files_named(folder, |name| {
            matcher.is_match(name) && (shows_hidden || !name.starts_with('.')) && !is_test(name)
        });
        Ok(files.map_err(placed)?)
    }

    /// Adds a setting at the top. Pipelines may come from several files, everything else from one.
    fn add(&mut self, key: Node, value: Node) -> Result<(), ConfigError> {
        let name = key.as_str().map(str::to_owned);
        let known = self
            .entries
            .iter_mut()
            .find(|(known, _)| known.as_str() == name.as_deref());
        let Some((first, known)) = known else {
            self.entries.push((key, value));
            return Ok(());
        };
        let (true, NodeKind::Map(pipelines), NodeKind::Map(more)) = (
            name.as_deref() == Some(PIPELINES),
            &mut known.kind,
            value.kind,
        ) else {
            return Err(twice(&key, first));
        };
        for (key, value) in more {
            match pipelines
                .iter()
                .find(|(known, _)| known.as_str() == key.as_str())
            {
                Some((first, _)) => return Err(twice(&key, first)),
                None => pipelines.push((key, value)),
            }
        }
        Ok(())
    }
}

/// That a key is given a second time.
fn twice(key: &Node, first: &Node) -> ConfigError {
    let name = key.as_str().unwrap_or_default();
    let (line, _) = first.source().locate(first.span.start);
    let error = key.error(format!("`{name}` is given a second time"));
    error.note(format!(
        "the first is in {}, line {line}",
        first.source().name
    ))
}

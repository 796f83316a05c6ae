//! `file`: reads files from their start to their end, one after the other.
//!
//! Each file is read by a [`Reader`] of its own, which knows its position; the id of a file is made of host, path,
//! device, inode and its first bytes, so that the same file gives the same event ids in every run.
//!
//! # Limits
//! Files are read once: what is appended behind the end after that has been read is not seen.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::paths::{Exclusion, Pattern};
use crate::reading::emitter::{Emitter, End};
use crate::reading::identity::Identity;
use crate::reading::reader::{Reader, describe};
use crate::reading::settings::{Codec, Compression, codec_settings, line_size_default};
use crate::reading::source::Source;
use crate::reading::{on_blocking_thread, read_stream};

/// The component.
pub const SPEC: Spec = Spec {
    name: "file",
    summary: "Reads files from start to end, plain or compressed with gzip.",
    description: "\
Files are read once, one after the other: in the order of `paths`, and sorted by name where a wildcard stands for several. \
A file that several of the paths stand for is read once.\n\n\
A path may have wildcards: `*`, `?`, `[a-z]` and `{a,b}` match within one name, `**` as a whole name stands for any number \
of folders. A wildcard matches no hidden file, and folders that it matches are passed over. A path that exists as it is \
written stands for itself.\n\n\
Lines end with a line feed, before which a carriage return does not count; the last line may lack it. What is not UTF-8 is \
replaced by U+FFFD and counted (`invalid_utf8_lines`). A line longer than `max_line_bytes` is cut there, tagged \
`_truncated` and counted (`truncated_lines`). The first of each kind is also told as a warning. A byte order mark at the \
start of a file is passed over. A truncated or corrupt gzip file gives everything that can be read, then a \
problem; several members are read as one file, and what follows the last one and is no member is ignored with a warning.\n\n\
A file that is missing, is a directory or cannot be read is a problem: the others are read all the same, and the run ends \
with exit code 1.",
    positional: Positional::with_rest(&["paths"]),
    examples: &[
        Example {
            title: "All logs of a web server, rotated and compressed ones too",
            stage: "file /var/log/apache2/access.log*",
            input: "",
            output: "",
        },
        Example {
            title: "JSON documents, a line each",
            stage: "file eve.json.gz codec=json",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

/// Settings of the input `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The files to read. Wildcards are allowed.
    paths: Vec<String>,
    /// Files to leave out: wildcards for whole paths or for names alone. Default: none.
    #[serde(default)]
    exclude: Vec<String>,
    /// How events are written in the files. Default: `text`.
    #[serde(default)]
    codec: Codec,
    /// Gives JSON and MessagePack events `@timestamp`, `host.name`, `log.file.path` and `log.offset` where they have no
    /// such field; lines of text always get them. Default: false.
    #[serde(default)]
    add_fields: bool,
    /// The longest line in bytes, its end not counted; a longer one is cut there. Also the largest MessagePack document,
    /// a larger one ends its file with an error. At most 1GiB. Default: 1MiB.
    #[serde(default = "line_size_default")]
    max_line_bytes: Size,
    /// How the files are compressed. Default: `auto`.
    #[serde(default)]
    compression: Compression,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    if config.paths.is_empty() {
        return Err(node
            .nearest("paths")
            .error("`paths` needs at least one path"));
    }
    let refused = |setting: &str, index: usize, error: &globset::Error| {
        node.nearest(&format!("{setting}[{index}]"))
            .error(format!("not a path with wildcards: {error}"))
    };
    let parse = |(index, path): (usize, &String)| {
        Pattern::parse(path).map_err(|error| refused("paths", index, &error))
    };
    Ok(Box::new(FileInput {
        patterns: config
            .paths
            .iter()
            .enumerate()
            .map(parse)
            .collect::<Result<_, _>>()?,
        exclusion: Exclusion::new(&config.exclude)
            .map_err(|(index, error)| refused("exclude", index, &error))?,
        compression: config.compression,
        settings: codec_settings(node, config.codec, config.add_fields, config.max_line_bytes)?,
    }))
}

struct FileInput {
    patterns: Vec<Pattern>,
    exclusion: Exclusion,
    compression: Compression,
    settings: codec::Settings,
}

#[async_trait]
impl Input for FileInput {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        on_blocking_thread(ctx, move |ctx| self.read_all(ctx)).await
    }
}

impl FileInput {
    /// Reads all files; gives what went wrong.
    fn read_all(&self, ctx: &InputContext) -> Vec<String> {
        let mut problems = Vec::new();
        let files = self.files(&mut problems);
        for file in &files {
            ctx.progress
                .add_total(fs::metadata(file).map_or(0, |found| found.len()));
        }
        let mut emitter = Emitter::new(&self.settings, ctx);
        for file in &files {
            match self.open(file, ctx) {
                Ok(reader) => {
                    if read_stream(reader, &mut emitter, &mut problems) == Err(End::Stopped) {
                        break;
                    }
                }
                Err(problem) => problems.push(format!("{}: {problem}", file.display())),
            }
            if ctx.stop.is_stopped() {
                break;
            }
        }
        problems
    }

    /// The files to read, each once.
    fn files(&self, problems: &mut Vec<String>) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut known = HashSet::new();
        for pattern in &self.patterns {
            let mut found = pattern.expand(problems);
            found.retain(|path| !self.exclusion.has(path));
            if found.is_empty() && !pattern.is_plain() {
                problems.push(format!("no file matches {}", pattern.text()));
            }
            files.extend(
                found
                    .into_iter()
                    .filter(|path| known.insert(full_path(path))),
            );
        }
        files
    }

    /// Opens a file.
    fn open(&self, path: &Path, ctx: &InputContext) -> Result<Reader, String> {
        let found = fs::metadata(path).map_err(|error| describe(&error))?;
        if found.is_dir() {
            let folder = path.display().to_string();
            return Err(format!(
                "is a directory; to read the files in it write {}/*",
                folder.trim_end_matches('/')
            ));
        }
        let file = File::open(path).map_err(|error| describe(&error))?;
        let source = if found.is_file() {
            Source::File(file)
        } else {
            Source::Pipe(file.into())
        };
        let shown = full_path(path).to_string_lossy().into_owned();
        let (device, inode) = (found.dev().to_le_bytes(), found.ino().to_le_bytes());
        let identity = Identity::new([ctx.host.name.as_bytes(), shown.as_bytes(), &device, &inode]);
        let path_for_events = Some(Arc::from(shown));
        let name = path.display().to_string();
        Ok(Reader::new(
            &name,
            path_for_events,
            identity,
            source,
            self.compression,
            &self.settings,
            ctx,
        ))
    }
}

/// The path that events carry: absolute ones as they are written, others below the real path of their folder.
fn full_path(path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

//! `file` writes events to files: lines of JSON or text, compressed or not, at a path that may hold times and fields.
//!
//! # Guarantees
//! - A file holds whole lines only: after a write that fails half way (a full disk) it is cut back, and the pipeline
//!   tries again. When a file is opened that a killed process left with a torn end, that end is cut, or made a line of its
//!   own where it may be somebody else's ([`recover`]). Compressed files are noted while they are open, so that the next
//!   start mends those too that are never opened again, or have nothing whole in them ([`journal`], [`mend`]).
//! - Events count as delivered when the system has them (`write(2)`); compressed, or with `fsync: true`, when the next
//!   flush has ended the member, or made it durable. So what is delivered lies in whole members.
//! - Rotated files are never overwritten ([`rotate`]).
//!
//! # Limits
//! One writer a file: it is locked while it is open. At most `max_open_files` are open.

mod destination;
mod files;
mod journal;
mod mend;
mod notes;
mod open;
mod recover;
mod rotate;
mod settings;
mod storage;

#[cfg(test)]
mod codec_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Build, BuildContext, Compression, DestinationPart, Effects, Encoded, Example, Output,
    RowAnswer, Spec, Warning, WriteError, Writer, Written, WrittenFiles,
};
use config::{ConfigError, Node, Period, Positional, Size};
use expr::Template;
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::Deserialize;

use self::destination::{Destination, Obstacle, by_path};
use self::files::{Failure, Files};
use self::notes::Notes;
use self::recover::Lines;
use self::rotate::Rotation;
use self::settings::Settings;
use self::storage::{Disk, Options, Storage};
use crate::codec::{Codec, CodecName, CodecSettings};
use crate::compression::CompressionName;
use crate::partition::refuse_rows;
use crate::schema::with_codec;

/// The description of `file`.
pub const SPEC: Spec = Spec {
    name: "file",
    aliases: &[],
    summary: "Writes events to files.",
    description: concat!("\
`codec` determines how events are written (page [codecs](codecs.md)): one JSON object per line by default.

`path` and `template` may contain fields and times: ", expr::template_syntax!(), " A field that is absent or null is written as `-`. In a path, the value of a field \
cannot leave its directory: slashes and control characters become `_`, and so does a value that is empty or consists only of dots. \
An event with a path that no file can have (too long, a directory) is rejected; the others are written.

An existing file is appended to. An incomplete write at its end, left by a process that was killed, is first removed and reported; in a \
compressed file and with `codec: msgpack`, this requires reading the file once. With codecs of lines other than `json` and no compression nothing is ever removed, \
because an incomplete line cannot be distinguished from other text: a last line without a newline is kept, completed with a newline, and reported. \
The same applies to a last line of JSON that only lacks its newline. A row of CSV that was cut off within quotes takes in the rows that follow it, up to the next quote. A file with content in a different format is not changed, and an error is reported.

Incomplete writes in compressed files are removed at the next start even if these files are not opened again, because the path contains a time or because \
they were renamed within their directory. This is reported, and a file that contains nothing complete becomes an \
empty archive. No removed event had counted as delivered. To recognise its own files, the output lists the \
open files in a hidden journal, `.millpond-HASH-NUMBER.writing`, in the common parent directory of all its paths, and removes the journal \
when it stops. The journal contains the inode, the creation time and the initial size of each file; a file that does not match is not changed, and content \
that was in a file before is never removed. Limits: if the journal cannot be written (which is logged), if the file \
system does not record creation times, if files were moved to another directory, or if `path` or `compression` was \
changed, incomplete writes are only removed when the file is opened again. A file that then contains nothing complete, or is damaged \
elsewhere than at its end, is renamed like a rotated file and otherwise left unchanged. Without `fsync: true`, this can also happen after a power failure.

Events count as delivered after `write(2)`; in compressed files, and with `fsync: true`, after the next flush, which happens \
when the pipeline is idle and at least every 64 batches. Each flush ends a gzip member (or zstd frame), so that \
a compressed file is complete and readable at that point. If the disk is full, the file is truncated to its last complete line, \
and writing is retried.

Problems that can be fixed from outside are retried as well, in a service without a time limit: a path whose directory is missing, is not a directory or is not \
writable, a read-only file system, a file that is in use by another process or has content in a different format. This is logged, \
and so is the recovery; nothing is lost, and no restart is needed. A service also starts in that state. A \
one-line pipeline ends at once with an error. Only a failed `fsync` is permanent, because the state of the disk is then unknown. \
The output then accepts no more events; with a disk queue, it writes everything that was not durable again after the next start.

With `rotate`, `app.ndjson.gz` becomes `app-20240229T123456Z-000.ndjson.gz`: the time of the rotation in UTC and a number, \
so that nothing is ever overwritten. If another process renames or removes the file, it is opened again."),
    positional: Positional::fields(&["path"]),
    one_line: &[],
    examples: &[
        Example { title: "JSON lines", stage: "file events.ndjson", input: "", output: "" },
        Example {
            title: "One compressed file per day and host",
            stage: r#"file "archive/%{host.name}-%{+yyyy-MM-dd}.ndjson.gz""#,
            input: "",
            output: "",
        },
        Example {
            title: "Lines of text, a new file every 100 MB, keeping the last ten",
            stage: r#"file app.log codec=template template="%{@timestamp} %{message}" rotate.max_bytes=100MB rotate.keep=10"#,
            input: "",
            output: "",
        },
        Example {
            title: "CSV, with a header at the start of every file",
            stage: r#"file "report-%{+yyyy-MM}.csv" codec=csv csv.columns=[host.name, status, message]"#,
            input: "",
            output: "",
        },
    ],
    schema: |generator| with_codec::<Config>(generator, CodecName::Json),
    build: Build::Writer { ordered: true, build },
};

/// The settings of `file`, without those of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Where events go; may hold `%{field}` and `%{+time format}`. `~` at its beginning stands for the home directory.
    #[serde(deserialize_with = "config::paths")]
    path: String,
    /// How files are compressed. Default: determined by the extension of the path, `.gz` for gzip, `.zst` for zstd.
    compression: Option<CompressionName>,
    /// The compression level: gzip 0 to 9, zstd 1 to 22. Default: 6 for gzip, 3 for zstd.
    compression_level: Option<i32>,
    /// When files are rotated. Default: never.
    #[serde(default)]
    rotate: RotateConfig,
    /// Whether every flush syncs the files to disk (`fsync`), and events count as delivered only then. A file is
    /// always synced when it is closed, be it at the end, for rotation, or to open another file.
    #[serde(default)]
    fsync: bool,
    /// Whether missing directories are created.
    #[serde(default = "yes")]
    create_dirs: bool,
    /// Permissions of new files, in octal; the umask applies. Default: `0666`.
    file_mode: Option<String>,
    /// The maximum number of open files; beyond that, or if the system has no more file descriptors, the least
    /// recently used file is closed.
    #[serde(default = "open_max")]
    #[schemars(range(min = 1))]
    max_open_files: usize,
}

fn yes() -> bool {
    true
}

fn open_max() -> usize {
    64
}

/// When files are rotated.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RotateConfig {
    /// Rotates a file before it exceeds this size. A compressed file may exceed it by the data of one batch.
    max_bytes: Option<Size>,
    /// Rotates at the end of each interval, counted from 1970 in UTC: `1h` starts a new file every full hour.
    interval: Option<Period>,
    /// How many rotated files of a path are kept; the oldest are removed. Default: all.
    #[schemars(range(min = 1))]
    keep: Option<usize>,
}

struct FileOutput {
    destination: Destination,
    codec: Codec,
    /// Events are safe after a flush only.
    until_flush: bool,
    compression: Compression,
    written: Arc<WrittenFiles>,
    state: Mutex<WriteState>,
}

struct WriteState {
    files: Files,
    /// The part of the current batch to go on with: those before it are written.
    next_part: usize,
    /// Rows of the current batch whose path was no good.
    refused: Vec<RowAnswer>,
}

fn build(node: &Node, ctx: &BuildContext) -> Result<Arc<dyn Writer>, ConfigError> {
    Ok(Arc::new(FileOutput::new(node, Box::new(Disk), ctx)?))
}

impl FileOutput {
    /// Where a finite run cannot write now it does not begin. A service does: what is in the way may be gone later. A run that
    /// writes nothing does not look.
    fn new(
        node: &Node,
        storage: Box<dyn Storage>,
        ctx: &BuildContext,
    ) -> Result<Self, ConfigError> {
        let (codec, own) = CodecSettings::divide(node)?;
        let config: Config = codec.parse_rest(&own)?;
        let codec = codec.codec(node, CodecName::Json)?;
        if config.max_open_files == 0 {
            return Err(node
                .nearest("max_open_files")
                .error("at least one file must be open"));
        }
        let rotation = rotation(&config.rotate, node)?;
        let rotates = rotation.size.is_some() || rotation.interval.is_some();
        let settings = Settings {
            compression: compression(&config, node)?,
            lines: match codec {
                Codec::Json => Lines::Json,
                Codec::MsgPack => Lines::MsgPack,
                _ => Lines::Text,
            },
            rotation,
            sync: config.fsync,
            options: Options {
                mode: file_mode(&config, node)?,
                create_dirs: config.create_dirs,
            },
            open_max: config.max_open_files,
        };
        let destination = Destination::new(node, &config.path)?;
        let notes = Notes::new(settings, destination.directory(), &config.path);
        let written = Arc::new(WrittenFiles::new(destination.example()));
        let header = codec.header().unwrap_or_default().into();
        let mut files = Files::new(storage, settings, header, notes, written.clone());
        let look = match ctx.effects {
            Effects::Nothing => Ok(()),
            Effects::All | Effects::Outputs => destination.look(config.create_dirs, rotates),
        };
        files.warnings.extend(destination.foreign_time());
        match look {
            Ok(()) => {}
            Err(Obstacle { message, note }) if ctx.finite => {
                let error = node.nearest("path").error(message);
                return Err(note.into_iter().fold(error, ConfigError::note));
            }
            Err(Obstacle { message, .. }) => {
                let warning = format!("{message}; its events wait until this is fixed");
                files.warn(warning);
            }
        }
        Ok(Self {
            destination,
            codec,
            until_flush: config.fsync || settings.compression != Compression::None,
            compression: settings.compression,
            written,
            state: Mutex::new(WriteState {
                files,
                next_part: 0,
                refused: Vec::new(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock()
    }
}

fn compression(config: &Config, node: &Node) -> Result<Compression, ConfigError> {
    let by_ending = || match &config.path {
        path if path.ends_with(".gz") => CompressionName::Gzip,
        path if path.ends_with(".zst") => CompressionName::Zstd,
        _ => CompressionName::None,
    };
    let name = config.compression.unwrap_or_else(by_ending);
    name.with_level(node, config.compression_level)
}

fn rotation(config: &RotateConfig, node: &Node) -> Result<Rotation, ConfigError> {
    let wrong = |name: &str, message: &str| Err(node.nearest(name).error(message));
    if config.keep == Some(0) {
        return wrong("rotate.keep", "`keep: 0` would remove every rotated file");
    }
    if config.keep.is_some() && config.max_bytes.is_none() && config.interval.is_none() {
        return wrong("rotate.keep", "`keep` requires `max_bytes` or `interval`");
    }
    if config.max_bytes == Some(Size(0)) {
        return wrong("rotate.max_bytes", "`max_bytes` must be greater than 0");
    }
    let interval = config.interval.map(|period| period.0.as_secs() as i64);
    if interval == Some(0) {
        return wrong(
            "rotate.interval",
            "the interval must be at least one second",
        );
    }
    Ok(Rotation {
        size: config.max_bytes.map(|size| size.0),
        interval,
        keep: config.keep,
    })
}

fn file_mode(config: &Config, node: &Node) -> Result<u32, ConfigError> {
    let Some(text) = &config.file_mode else {
        return Ok(0o666);
    };
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|&mode| mode <= 0o777);
    mode.ok_or_else(|| {
        let message = format!("`{text}` is no file mode: it has three octal digits, such as 0640");
        node.nearest("file_mode").error(message)
    })
}

#[async_trait]
impl Output for FileOutput {
    fn exclusive(&self) -> Option<String> {
        match &self.destination {
            // A device may be shared: what is written to it is not read again.
            Destination::Fixed(path) if !path.starts_with("/dev/") => {
                Some(format!("the file {path}"))
            }
            _ => None,
        }
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let path = self.destination.template().into_iter();
        let path = path.flat_map(Template::reads);
        path.chain(self.codec.reads()).collect()
    }

    fn written(&self) -> Option<Arc<WrittenFiles>> {
        Some(self.written.clone())
    }

    async fn open(&self) -> Result<(), ConfigError> {
        self.lock().files.mend_noted();
        Ok(())
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut codec = self.codec.bind(batch);
        let Some(template) = self.destination.template() else {
            encoded.rows = rows.count();
            return codec.write_rows(rows, &mut encoded.bytes, |_, _| {});
        };
        for group in by_path(template, batch, rows) {
            match group.destination {
                Ok(destination) => {
                    let start = encoded.bytes.len();
                    codec.write_rows(&group.rows, &mut encoded.bytes, |_, _| {});
                    let rows: Vec<usize> = group.rows.iter().collect();
                    encoded.rows += rows.len();
                    encoded.parts.push(DestinationPart {
                        destination,
                        bytes: start..encoded.bytes.len(),
                        rows,
                    });
                }
                Err(reason) => refuse_rows(&group.rows, &reason, encoded),
            }
        }
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.lock().files.counters)
    }

    fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.lock().files.warnings)
    }
}

#[async_trait]
impl Writer for FileOutput {
    fn compression(&self) -> Compression {
        self.compression
    }

    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        let mut state = self.lock();
        let WriteState {
            files,
            next_part,
            refused,
        } = &mut *state;
        if let Destination::Fixed(path) = &self.destination
            && !encoded.bytes.is_empty()
        {
            files
                .append(path, &encoded.bytes)
                .map_err(|failure| match failure {
                    Failure::Path(reason) => WriteError::Blocked(reason),
                    Failure::Write(error) => error,
                })?;
        }
        while let Some(part) = encoded.parts.get(*next_part) {
            match files.append(&part.destination, &encoded.bytes[part.bytes.clone()]) {
                Ok(()) => {}
                Err(Failure::Write(error)) => return Err(error),
                Err(Failure::Path(reason)) if !self.destination.has_base() => {
                    return Err(WriteError::Blocked(reason));
                }
                Err(Failure::Path(reason)) => {
                    let reason: Arc<str> = reason.into();
                    refused.extend(part.rows.iter().map(|&row| RowAnswer {
                        row,
                        reason: reason.clone(),
                    }));
                }
            }
            *next_part += 1;
        }
        *next_part = 0;
        Ok(Written {
            refused: std::mem::take(refused),
            until_flush: self.until_flush,
        })
    }

    async fn flush(&self) -> Result<(), WriteError> {
        self.lock().files.flush()
    }

    async fn close(&self) -> Result<(), WriteError> {
        self.lock().files.close()
    }
}

//! Streams of bytes that are cut into records: the same events however the bytes come.

use std::sync::Arc;

use batch::{Budget, Encoding, Stream};
use codec::syslog::{Format, Syslog};
use codec::{
    Chunk, Chunker, ContainerFormat, Csv, Decoder, LineEnding, Match, Multiline, MultilineConfig,
    Settings,
};
use datetime::Zone;

use crate::choice;
use crate::rows::{checked, host};

/// Short, so that records are longer.
const RECORD_BYTES_MAX: usize = 300;

/// Reads a stream at once and in pieces.
fn same(settings: &Settings, piece: usize, bytes: &[u8]) {
    let whole = events(settings, bytes, usize::MAX, 1 << 20);
    let pieces = events(settings, bytes, piece % 50 + 1, 64);
    assert_eq!(whole, pieces);
}

fn events(settings: &Settings, bytes: &[u8], piece: usize, buffer: usize) -> Vec<String> {
    let pool = Budget::new(64 << 20).pool(64 << 20, buffer);
    let mut chunker = Chunker::new(settings);
    let mut reader = EventReader::new(settings);
    let mut rest = bytes;
    while !rest.is_empty() && !chunker.is_broken() {
        if let Some(chunk) = chunker.take() {
            reader.read(chunk);
        } else if let Some(size) = chunker.needs() {
            chunker.give(pool.take_sized(size));
        } else {
            let space = chunker.space();
            let read = piece.min(space.len()).min(rest.len());
            assert!(read > 0, "there is room, or something to take");
            space[..read].copy_from_slice(&rest[..read]);
            chunker.advance(read);
            rest = &rest[read..];
        }
    }
    while let Some(chunk) = chunker.finish() {
        reader.read(chunk);
    }
    reader.events
}

struct EventReader {
    /// Nothing behind a document that is broken is read.
    is_broken: bool,
    decoder: Decoder,
    stream: Arc<Stream>,
    events: Vec<String>,
}

impl EventReader {
    fn new(settings: &Settings) -> Self {
        Self {
            is_broken: false,
            decoder: Decoder::new(settings, &host()),
            stream: Arc::new(Stream::unnamed(1)),
            events: Vec::new(),
        }
    }

    fn read(&mut self, mut chunk: Chunk) {
        let stream = self.stream.clone();
        while !self.is_broken {
            match self.decoder.next_batch(&stream, &mut chunk, 0) {
                Ok(Some(batch)) => {
                    let rows = batch.alive().iter().zip(checked(&batch));
                    let place = |row| (batch.origin().start(row), batch.origin().end(row));
                    let event = |(row, text): (usize, String)| {
                        format!("{:?} {}", place(row), in_order(&text))
                    };
                    self.events.extend(rows.map(event));
                }
                Ok(None) => return,
                Err(error) => {
                    self.is_broken = true;
                    self.events.push(error.to_string());
                }
            }
        }
    }
}

/// The text with its tags in order: which one comes first depends on how a long line came.
fn in_order(text: &str) -> String {
    let cut = "\"_truncated\"";
    match text.split_once(&format!("[{cut},")) {
        Some((before, behind)) => match behind.split_once(']') {
            Some((tags, behind)) => format!("{before}[{tags},{cut}]{behind}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}

fn text() -> Settings {
    Settings::new(Encoding::Text, RECORD_BYTES_MAX)
}

/// Lines of any ending and encoding, and messages with their length before them.
pub(crate) fn framing(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let mut settings = text();
    match choice % 8 {
        0 => {}
        1 => settings.line_ending = LineEnding::Nul,
        2 => settings.line_ending = LineEnding::Cr,
        3 => settings.is_counted = true,
        4 => settings.charset = codec::charset("utf-16"),
        5 => settings.charset = codec::charset("windows-1252"),
        6 => settings.charset = codec::charset("shift_jis"),
        _ => settings.charset = codec::charset("utf-16be"),
    }
    same(&settings, choice, bytes);
}

/// Records of several lines.
pub(crate) fn multiline(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let some = |text: &str| Some(text.to_owned());
    let config = match choice % 4 {
        0 => MultilineConfig {
            start: some("^[0-9A-Z]"),
            max_lines: 5,
            ..MultilineConfig::default()
        },
        1 => MultilineConfig {
            pattern: some(r"\\$"),
            matching: Some(Match::Before),
            ..MultilineConfig::default()
        },
        2 => MultilineConfig {
            start: some(r"^\S"),
            end: some("end$"),
            ..MultilineConfig::default()
        },
        _ => MultilineConfig {
            pattern: some("^a"),
            negate: true,
            max_lines: 3,
            ..MultilineConfig::default()
        },
    };
    let multiline = Multiline::new(&config).expect("good patterns");
    let mut settings = text();
    settings.multiline = Some(Arc::new(multiline));
    if choice >= 128 {
        settings.container = Some(ContainerFormat::Auto);
    }
    same(&settings, choice, bytes);
}

/// Logs of containers, as Docker and the CRI write them.
pub(crate) fn container(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let formats = [
        ContainerFormat::Auto,
        ContainerFormat::Docker,
        ContainerFormat::Cri,
    ];
    let mut settings = text();
    settings.container = Some(formats[choice % 3]);
    same(&settings, choice, bytes);
}

/// Rows of CSV.
pub(crate) fn csv(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let columns = match choice % 2 {
        0 => Vec::new(),
        _ => vec!["a".to_owned(), "b.c".to_owned(), "b.d".to_owned()],
    };
    let mut settings = text();
    settings.csv = Some(Csv::new(b",;\t|"[choice / 2 % 4], &columns));
    same(&settings, choice, bytes);
}

/// Syslog messages, with their length before them or a line each.
pub(crate) fn syslog(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let formats = [Format::Auto, Format::Rfc3164, Format::Rfc5424];
    let mut settings = text();
    settings.syslog = Some(Syslog::new(formats[choice % 3], Zone::UTC));
    settings.is_counted = choice >= 128;
    same(&settings, choice, bytes);
}

/// JSON documents, a line each or not.
pub(crate) fn json(bytes: &[u8]) {
    documents(Encoding::Json, bytes);
}

/// MessagePack documents.
pub(crate) fn msgpack(bytes: &[u8]) {
    documents(Encoding::MsgPack, bytes);
}

fn documents(encoding: Encoding, bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let mut settings = Settings::new(encoding, RECORD_BYTES_MAX);
    settings.add_fields = choice >= 128;
    same(&settings, choice, bytes);
}

/// Entries of a journal in the export format: the same documents however the bytes come.
pub(crate) fn journal(bytes: &[u8]) {
    let Some((piece, bytes)) = choice(bytes) else {
        return;
    };
    let whole = inputs::probe::journal(bytes, usize::MAX);
    let pieces = inputs::probe::journal(bytes, piece % 40 + 1);
    assert_eq!(whole, pieces);
}

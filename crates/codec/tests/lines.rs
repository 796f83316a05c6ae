//! Lines as the decoder gives them are those of a naive split, however they were read.

use std::sync::Arc;

use batch::{Budget, BufferPool, Encoding, FieldPath, HostInfo, Stream, Value};
use codec::{BATCH_EVENTS_MAX, Chunk, Chunker, CodecError, Counts, Decoder, Settings};
use proptest::prelude::*;

/// An event: text or JSON, start, end, tags.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    text: String,
    start: u64,
    end: u64,
    tags: String,
}

fn event(text: &str, start: u64, end: u64, tags: &str) -> Event {
    Event {
        text: text.to_owned(),
        start,
        end,
        tags: tags.to_owned(),
    }
}

fn settings(encoding: Encoding, record_max: usize) -> Settings {
    Settings::new(encoding, record_max)
}

fn pool(buffer_size: usize) -> BufferPool {
    let budget = Budget::new(64 << 20);
    budget.pool(64 << 20, buffer_size)
}

/// Cuts `content` into chunks, reading pieces of these sizes in turn and taking a chunk after each `take_every` reads.
fn chunks(
    content: &[u8],
    settings: &Settings,
    pool: &BufferPool,
    reads: &[usize],
    take_every: usize,
) -> Vec<Chunk> {
    let mut chunker = Chunker::new(settings);
    let mut chunks = Vec::new();
    let mut rest = content;
    let mut turn = 0;
    while !rest.is_empty() && !chunker.is_broken() {
        if let Some(size) = chunker.needs() {
            chunker.give(pool.take_sized(size));
        }
        let space = chunker.space();
        let read = reads[turn % reads.len()].min(space.len()).min(rest.len());
        space[..read].copy_from_slice(&rest[..read]);
        rest = &rest[read..];
        chunker.advance(read);
        turn += 1;
        while chunker.is_full() || (turn % take_every == 0 && chunker.is_ready()) {
            chunks.push(chunker.take().expect("it is ready"));
            let Some(size) = chunker.needs() else {
                continue;
            };
            chunker.give(pool.take_sized(size));
        }
    }
    while let Some(chunk) = chunker.finish() {
        chunks.push(chunk);
    }
    chunks
}

/// The events of chunks, what was counted, and why the stream ended.
fn decode(chunks: Vec<Chunk>, settings: &Settings) -> (Vec<Event>, Counts, Option<CodecError>) {
    let host = Arc::new(HostInfo { name: "h".into() });
    let stream = Arc::new(Stream::unnamed(1));
    let mut decoder = Decoder::new(settings, &host);
    let mut events = Vec::new();
    for mut chunk in chunks {
        let before = events.len();
        loop {
            match decoder.next_batch(&stream, &mut chunk, 0) {
                Ok(Some(batch)) => events.extend(events_of(&batch)),
                Ok(None) => break,
                Err(error) => return (events, decoder.take_counts(), Some(error)),
            }
        }
        let rows: u64 = events[before..]
            .iter()
            .map(|event| event.end - event.start)
            .sum();
        let dropped: u64 = decoder
            .take_dropped()
            .iter()
            .map(|dropped| dropped.bytes)
            .sum();
        assert_eq!(
            rows + dropped,
            chunk.source_bytes,
            "every byte is accounted for"
        );
    }
    (events, decoder.take_counts(), None)
}

fn events_of(batch: &batch::Batch) -> Vec<Event> {
    assert!(!batch.is_empty() && batch.len() <= BATCH_EVENTS_MAX);
    let column = |name: &str| batch.column(&FieldPath::parse(name).expect("a path"));
    let (messages, tags) = (column("message"), column("tags"));
    let writer = batch::JsonWriter::new(batch);
    let event = |row| {
        let mut text = Vec::new();
        match messages.value(row) {
            Value::Text(message) => text.extend_from_slice(message),
            _ => writer.write(row, &mut text),
        }
        let mut tag = Vec::new();
        tags.value(row).write_text(&mut tag);
        let utf8 = |bytes| String::from_utf8(bytes).expect("texts are UTF-8");
        Event {
            text: utf8(text),
            start: batch.origin().start(row),
            end: batch.origin().end(row),
            tags: utf8(tag),
        }
    };
    (0..batch.len()).map(event).collect()
}

/// What lines of text are, written as simply as possible.
fn naive(content: &[u8], record_max: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut start = 0;
    while start < content.len() {
        let (mut line, end) = match content[start..].iter().position(|byte| *byte == b'\n') {
            Some(len) => {
                let line = &content[start..start + len];
                (line.strip_suffix(b"\r").unwrap_or(line), start + len + 1)
            }
            None => (&content[start..], content.len()),
        };
        let is_cut = line.len() > record_max;
        if is_cut {
            let mut at = record_max;
            // No character is cut in two, where there is one.
            while at > record_max.saturating_sub(3) && line[at] & 0xC0 == 0x80 {
                at -= 1;
            }
            let at = if line[at] & 0xC0 == 0x80 {
                record_max
            } else {
                at
            };
            line = &line[..at];
        }
        let tags = if is_cut { "[\"_truncated\"]" } else { "" };
        events.push(event(
            &String::from_utf8_lossy(line),
            start as u64,
            end as u64,
            tags,
        ));
        start = end;
    }
    events
}

fn check_text(
    content: &[u8],
    record_max: usize,
    buffer: usize,
    reads: &[usize],
    take_every: usize,
) -> Result<(), TestCaseError> {
    let settings = settings(Encoding::Text, record_max);
    let chunks = chunks(content, &settings, &pool(buffer), reads, take_every);
    let (events, counts, error) = decode(chunks, &settings);
    let expected = naive(content, record_max);
    prop_assert_eq!(
        counts.truncated,
        expected
            .iter()
            .filter(|event| !event.tags.is_empty())
            .count() as u64
    );
    prop_assert_eq!(&events, &expected);
    prop_assert_eq!(error, None);
    Ok(())
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"\n".to_vec()),
        2 => Just(b"\r\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        1 => Just(b"\0".to_vec()),
        1 => Just("é€😀".as_bytes().to_vec()),
        1 => Just(vec![0xC3]),
        1 => Just(vec![0x80, 0xFF]),
        4 => proptest::collection::vec(b'a'..=b'z', 0..40),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn lines_are_those_of_a_naive_split(
        content in pieces(),
        record_max in prop_oneof![1usize..30, Just(1000)],
        buffer in 1usize..200,
        reads in proptest::collection::vec(1usize..50, 1..5),
        take_every in 1usize..6,
    ) {
        check_text(&content, record_max, buffer, &reads, take_every)?;
    }

    #[test]
    fn long_lines_are_cut_the_same_way(
        lengths in proptest::collection::vec((0usize..300_000, any::<bool>()), 1..5),
        record_max in 1usize..100_000,
        reads in proptest::collection::vec(1usize..70_000, 1..5),
    ) {
        let mut content = Vec::new();
        for (length, crlf) in lengths {
            content.extend((0..length).map(|at| b'a' + (at % 26) as u8));
            content.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
        }
        check_text(&content, record_max, 1000, &reads, 2)?;
    }
}

#[test]
fn lines_around_the_limit() {
    for length in 65_530..65_545 {
        for end in ["\n", "\r\n", "", "\r", "\nx", "\r\nx\n"] {
            for record_max in [65_536, 65_534] {
                let content = ["y".repeat(length).as_bytes(), end.as_bytes()].concat();
                check_text(&content, record_max, 4096, &[4096, 1], 1).expect("as naively split");
            }
        }
    }
}

#[test]
fn a_batch_has_4096_events_at_most_and_900_kib() {
    let settings = settings(Encoding::Text, 1 << 20);
    let lengths = |content: &[u8], buffer| {
        let stream = Arc::new(Stream::unnamed(1));
        let mut decoder = Decoder::new(&settings, &Arc::new(HostInfo { name: "h".into() }));
        let mut lengths = Vec::new();
        for mut chunk in chunks(content, &settings, &pool(buffer), &[buffer], 1) {
            while let Some(batch) = decoder
                .next_batch(&stream, &mut chunk, 0)
                .expect("text is never broken")
            {
                lengths.push(batch.len());
            }
        }
        lengths
    };
    assert_eq!(lengths(&[b'\n'; 10_000], 16 << 10), [4096, 4096, 1808]);
    let long = format!("{}\n", "x".repeat(400_000)).repeat(4);
    assert_eq!(lengths(long.as_bytes(), 2 << 20), [3, 1]);
}

#[test]
fn json_lines() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        (
            "{\"a\":1}\n  {\"b\": 2}\t\r\n\n \r\n{}",
            &[("{\"a\":1}", ""), ("{\"b\": 2}", ""), ("{}", "")],
        ),
        (
            "{\"a\":1,\"a\":2}\n{\"x\":0}\n",
            &[("{\"a\":2}", ""), ("{\"x\":0}", "")],
        ),
        ("{\"a\":\"\u{e9}\"}\n", &[("{\"a\":\"\u{e9}\"}", "")]),
        (
            "[1]\n{\"a\":1}\n",
            &[("[1]", "[\"_jsonparsefailure\"]"), ("{\"a\":1}", "")],
        ),
        (
            "{}\n {\"a\":\n",
            &[("{}", ""), (" {\"a\":", "[\"_jsonparsefailure\"]")],
        ),
        (
            "{\"a\":1} x\n",
            &[("{\"a\":1} x", "[\"_jsonparsefailure\"]")],
        ),
    ];
    for (content, expected) in cases {
        let settings = settings(Encoding::Json, 100);
        let (events, counts, error) = decode(
            chunks(content.as_bytes(), &settings, &pool(64), &[7], 1),
            &settings,
        );
        let seen: Vec<_> = events
            .iter()
            .map(|event| (event.text.as_str(), event.tags.as_str()))
            .collect();
        assert_eq!(&seen, expected, "{content}");
        let broken = expected.iter().filter(|(_, tags)| !tags.is_empty()).count() as u64;
        assert_eq!(
            (counts.broken_documents, error),
            (broken, None),
            "{content}"
        );
    }
}

#[test]
fn json_that_is_not_utf8_or_too_long() {
    let settings = settings(Encoding::Json, 100);
    let long = format!("{{\"a\":\"{}\"}}\n{{\"b\":1}}\n", "x".repeat(200));
    let content = [
        b"{\"a\":\"\xFF\"}\n{\"a\xFF\":1,\"a\xFF\":2}\n\xFF{}\n",
        long.as_bytes(),
    ]
    .concat();
    let (events, counts, _) = decode(chunks(&content, &settings, &pool(64), &[7], 1), &settings);
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event.text.as_str(), event.tags.as_str()))
        .collect();
    let cut = &long[..100];
    let both = "[\"_jsonparsefailure\",\"_truncated\"]";
    let expected = [
        ("{\"a\":\"\u{FFFD}\"}", ""),
        ("{\"a\u{FFFD}\":2}", ""),
        ("\u{FFFD}{}", "[\"_jsonparsefailure\"]"),
        (cut, both),
        ("{\"b\":1}", ""),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        counts,
        Counts {
            truncated: 1,
            invalid_utf8: 3,
            broken_documents: 2,
            ..Counts::default()
        }
    );
}

#[test]
fn nested_json() {
    let settings = settings(Encoding::Json, 1 << 20);
    let nested = |depth: usize| format!("{}1{}\n", "{\"a\":".repeat(depth), "}".repeat(depth));
    let content = [nested(1000), nested(100_000), nested(2)].concat();
    let (events, counts, _) = decode(
        chunks(content.as_bytes(), &settings, &pool(4096), &[4096], 3),
        &settings,
    );
    let tags: Vec<_> = events.iter().map(|event| event.tags.as_str()).collect();
    assert_eq!(tags, ["", "[\"_jsonparsefailure\"]", ""]);
    assert_eq!(events[0].text, nested(1000).trim_end());
    assert_eq!(counts.broken_documents, 1);
}

#[test]
fn nothing_but_broken_documents() {
    let settings = settings(Encoding::Json, 1 << 20);
    // The first line says that there is a document on each.
    let content = "{}\n".to_owned() + &"{\"a\":\n".repeat(50_000);
    let pool = pool(256 << 10);
    let (events, counts, _) = decode(
        chunks(content.as_bytes(), &settings, &pool, &[256 << 10], 1),
        &settings,
    );
    assert_eq!((events.len(), counts.broken_documents), (50_001, 50_000));
    assert!(
        events[1..]
            .iter()
            .all(|event| event.tags == "[\"_jsonparsefailure\"]")
    );
}

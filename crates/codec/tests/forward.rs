//! Messages of the Fluent Forward protocol: every mode, every way to be malformed, and arbitrary bytes.

use std::sync::Arc;

use batch::msgpack::{
    write_array_header, write_bin, write_ext, write_f64, write_i64, write_map_header, write_nil,
    write_str, write_u64,
};
use batch::{BatchBuilder, Encoding, HostInfo, MsgPackWriter, Stream};
use bytes::Bytes;
use codec::forward::{Compression, Content, Cuts, EventTime, Events, Message};
use proptest::prelude::*;

/// A record with a number.
fn record(number: i64) -> Vec<u8> {
    let mut out = Vec::new();
    write_map_header(&mut out, 2);
    write_str(&mut out, b"number");
    write_i64(&mut out, number);
    write_str(&mut out, b"text");
    write_str(&mut out, b"as it \xFF came");
    out
}

fn value(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn array(elements: &[&[u8]]) -> Vec<u8> {
    let mut out = value(|out| write_array_header(out, elements.len()));
    elements
        .iter()
        .for_each(|element| out.extend_from_slice(element));
    out
}

fn text(text: &str) -> Vec<u8> {
    value(|out| write_str(out, text.as_bytes()))
}

fn seconds(seconds: i64) -> Vec<u8> {
    value(|out| write_i64(out, seconds))
}

fn event_time(seconds: u32, nanos: u32) -> Vec<u8> {
    let data = [seconds.to_be_bytes(), nanos.to_be_bytes()].concat();
    value(|out| write_ext(out, 0, &data))
}

fn map(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = value(|out| write_map_header(out, members.len()));
    for (key, value) in members {
        out.extend_from_slice(&text(key));
        out.extend_from_slice(value);
    }
    out
}

fn entry(time: &[u8], number: i64) -> Vec<u8> {
    array(&[time, &record(number)])
}

/// What a message is read as.
#[derive(Debug, PartialEq)]
struct Read {
    tag: String,
    chunk: Option<String>,
    packed: bool,
    compression: Option<Compression>,
    records: Vec<Vec<u8>>,
    times: Vec<EventTime>,
    metadata: Vec<Option<Vec<u8>>>,
}

/// Reads one message, which must end where the bytes do.
fn read(message: &[u8]) -> Result<Read, String> {
    read_divided(&[Bytes::copy_from_slice(message)])
}

/// As [`read`], of a message that lies in several buffers.
fn read_divided(body: &[Bytes]) -> Result<Read, String> {
    let mut events = Events::default();
    let head = Message::read(body, 0, &mut events).map_err(|error| error.to_string())?;
    let last = &body[head.end.buffer];
    assert_eq!((head.end.buffer, head.end.at), (body.len() - 1, last.len()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut read = Read {
        tag: text(&body[0][head.tag]),
        chunk: head.chunk.map(|chunk| text(&last[chunk.text])),
        packed: false,
        compression: None,
        records: Vec::new(),
        times: Vec::new(),
        metadata: Vec::new(),
    };
    if let Content::Packed(entries, compression) = head.content {
        read.packed = true;
        read.compression = compression;
        if compression.is_some() {
            return Ok(read);
        }
        let count = events.read_packed(body, entries);
        count.map_err(|error| error.to_string())?;
    }
    push(&mut events, body, &mut read);
    Ok(read)
}

fn push(events: &mut Events, body: &[Bytes], read: &mut Read) {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut from = 0;
    while from < events.len() {
        let mut builder = BatchBuilder::new(Encoding::MsgPack, &host, 0, false);
        builder.stream(&Arc::new(Stream::unnamed(1)));
        let next = events.push(body, from, 100, &mut builder, |time, metadata| {
            read.times.push(time);
            read.metadata.push(metadata.map(Vec::from));
        });
        assert!(next > from, "every batch takes some");
        let batch = builder.finish();
        let writer = MsgPackWriter::new(&batch);
        for row in 0..batch.len() {
            let mut record = Vec::new();
            writer.write(row, &mut record);
            assert_eq!(batch.origin().start(row), 100 + (from + row) as u64);
            read.records.push(record);
        }
        from = next;
    }
}

/// Divides a message as one that comes in pieces of `most` bytes; where that is not possible, a piece is longer.
fn divided(message: &[u8], most: usize) -> Vec<Bytes> {
    let (mut cuts, mut buffers) = (Cuts::default(), Vec::new());
    let (mut begin, mut end) = (0, 0);
    loop {
        end += most;
        if end >= message.len() {
            buffers.push(Bytes::copy_from_slice(&message[begin..]));
            return buffers;
        }
        if let Some(at) = cuts.cut(&message[begin..end]) {
            buffers.push(Bytes::copy_from_slice(&message[begin..begin + at]));
            begin += at;
            end = begin;
        }
    }
}

#[test]
fn divided_messages_are_read_as_whole_ones() {
    let metadata = array(&[&seconds(1), &map(&[("k", &text("v"))])]);
    let entries: Vec<_> = (0..40)
        .map(|n| match n % 4 {
            0 => entry(&metadata, n),
            // A key that is rewritten.
            1 => array(&[&seconds(n), &[&[0x81, 7][..], &text("seven")].concat()]),
            _ => entry(&event_time(2, 3), n),
        })
        .collect();
    let option = map(&[("chunk", &text("c1")), ("size", &[40])]);
    let all = entries.concat();
    let one_is_cut = &all[..all.len() - 3];
    let reserved = [&all[..], &[0x92, 1, 0x81, 0xC1], &all].concat();
    let whole: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
    let mut buffers_max = 0;
    for content in [
        array(&whole),
        value(|out| write_bin(out, &all)),
        value(|out| write_str(out, &all)),
        value(|out| write_bin(out, one_is_cut)),
        value(|out| write_bin(out, &reserved)),
        value(|out| write_bin(out, &[7; 300])),
        value(|out| write_bin(out, &[])),
        array(&[]),
    ] {
        let message = array(&[&text("app.web"), &content, &option]);
        let expected = read(&message);
        for most in [1, 7, 20, 100, 1000, 10_000] {
            let buffers = divided(&message, most);
            buffers_max = buffers_max.max(buffers.len());
            assert_eq!(read_divided(&buffers), expected, "{most}");
        }
    }
    assert!(buffers_max > 40, "{buffers_max} buffers");
}

#[test]
fn every_mode_gives_its_events() {
    let (tag, option) = (text("app.web"), map(&[("chunk", &text("c1"))]));
    let entries = [entry(&seconds(1), 0), entry(&event_time(2, 3), 1)];
    let listed = array(&[&entries[0], &entries[1]]);
    let both = entries.concat();
    let times = [EventTime::At(1_000_000_000), EventTime::At(2_000_000_003)];
    let cases = [
        (array(&[&tag, &seconds(1), &record(0)]), 1, false, false),
        (
            array(&[&tag, &seconds(1), &record(0), &option]),
            1,
            true,
            false,
        ),
        (array(&[&tag, &listed]), 2, false, false),
        (array(&[&tag, &listed, &option]), 2, true, false),
        (
            array(&[&tag, &value(|out| write_bin(out, &both))]),
            2,
            false,
            true,
        ),
        (
            array(&[&tag, &value(|out| write_bin(out, &both)), &option]),
            2,
            true,
            true,
        ),
        (
            array(&[&tag, &value(|out| write_str(out, &both)), &option]),
            2,
            true,
            true,
        ),
        (
            array(&[&tag, &value(|out| write_bin(out, b"")), &option]),
            0,
            true,
            true,
        ),
        (
            array(&[&tag, &array(&[]), &value(write_nil)]),
            0,
            false,
            false,
        ),
    ];
    for (message, count, has_chunk, packed) in cases {
        let expected = Read {
            tag: "app.web".to_owned(),
            chunk: has_chunk.then(|| "c1".to_owned()),
            packed,
            compression: None,
            records: (0..count).map(record).collect(),
            times: times[..count as usize].to_vec(),
            metadata: vec![None; count as usize],
        };
        assert_eq!(read(&message), Ok(expected), "{message:x?}");
    }
    let heartbeat = Message::read(&[Bytes::from_static(&[0xC0])], 0, &mut Events::default())
        .expect("a heartbeat");
    let end = (heartbeat.end.buffer, heartbeat.end.at);
    assert_eq!((heartbeat.content, end), (Content::Heartbeat, (0, 1)));
}

#[test]
fn options_say_how_entries_are_compressed() {
    for (name, compression) in [
        ("gzip", Some(Compression::Gzip)),
        ("zstd", Some(Compression::Zstd)),
        ("text", None),
    ] {
        let option = map(&[
            ("size", &seconds(3)),
            ("compressed", &text(name)),
            ("fluent_signal", &seconds(0)),
        ]);
        let read = read(&array(&[
            &text("t"),
            &value(|out| write_bin(out, b"")),
            &option,
        ]));
        assert_eq!(read.expect("a message").compression, compression, "{name}");
    }
}

#[test]
fn metadata_and_times_of_all_kinds() {
    let known = map(&[("a", &seconds(1))]);
    // A number as a key: it becomes text.
    let other = [&[0x81, 5][..], &seconds(1)].concat();
    let with = |time: &[u8], metadata: &[u8]| array(&[&array(&[time, metadata]), &record(0)]);
    let float = value(|out| write_f64(out, 1.5));
    let at = |seconds: f64| entry(&value(|out| write_f64(out, seconds)), 0);
    let cases: [(Vec<u8>, EventTime, Option<Vec<u8>>); 16] = [
        // A float of this size cannot tell nanoseconds.
        (
            at(1_700_000_000.123_457),
            EventTime::At(1_700_000_000_123_457_000),
            None,
        ),
        (at(1_700_000_000_000.0), EventTime::Invalid, None),
        (at(f64::NAN), EventTime::Invalid, None),
        (
            with(&seconds(1), &[0x80]),
            EventTime::At(1_000_000_000),
            None,
        ),
        (
            with(&seconds(1), &known),
            EventTime::At(1_000_000_000),
            Some(known.clone()),
        ),
        (
            with(&float, &other),
            EventTime::At(1_500_000_000),
            Some(map(&[("5", &seconds(1))])),
        ),
        // The start and the end of a group.
        (
            with(&event_time(0xFFFF_FFFF, 0), &known),
            EventTime::Absent,
            Some(known.clone()),
        ),
        (
            with(&event_time(0xFFFF_FFFE, 0), &[0x80]),
            EventTime::Absent,
            None,
        ),
        (
            entry(&event_time(0xFFFF_FFFF, 0), 0),
            EventTime::At(4_294_967_295_000_000_000),
            None,
        ),
        (entry(&value(write_nil), 0), EventTime::Absent, None),
        (entry(&seconds(0), 0), EventTime::Absent, None),
        (entry(&event_time(0, 0), 0), EventTime::Absent, None),
        (entry(&seconds(-1), 0), EventTime::At(-1_000_000_000), None),
        (
            entry(&seconds(1_700_000_000_000), 0),
            EventTime::BeyondRange(1_700_000_000_000),
            None,
        ),
        (
            entry(&event_time(1, 1_000_000_000), 0),
            EventTime::Invalid,
            None,
        ),
        (
            entry(&value(|out| write_u64(out, u64::MAX)), 0),
            EventTime::Invalid,
            None,
        ),
    ];
    for (entry, time, metadata) in cases {
        // Before it and behind it events without metadata.
        let plain = plain_entry();
        let message = array(&[&text("t"), &array(&[&plain, &entry, &plain])]);
        let read = read(&message).expect("a message");
        assert_eq!(read.times[1], time, "{entry:x?}");
        assert_eq!(read.metadata, [None, metadata, None], "{entry:x?}");
    }
}

fn plain_entry() -> Vec<u8> {
    entry(&seconds(9), 9)
}

#[test]
fn malformed_messages_say_what_is_wrong_and_where() {
    let (tag, bin) = (text("t"), |data: &[u8]| value(|out| write_bin(out, data)));
    let packed = |entries: &[u8]| array(&[&text("t"), &bin(entries)]);
    let option = |option: &[u8]| array(&[&text("t"), &bin(b""), option]);
    let deep = [&b"\x81\xA1a".repeat(200_000)[..], &[0xC0]].concat();
    let cases: [(Vec<u8>, &str); 28] = [
        (
            b"GET / HTTP/1.1\r\n".to_vec(),
            "expected an array or nil as a message, not text (does the client speak HTTP?) at byte 0",
        ),
        (
            vec![0x80],
            "expected an array or nil as a message at byte 0",
        ),
        (vec![0xC1], "reserved MessagePack byte at byte 0"),
        (vec![], "unexpected end of MessagePack at byte 0"),
        (
            array(&[&tag]),
            "expected 2 to 4 elements in a message at byte 0",
        ),
        (
            array(&[&tag[..]; 5]),
            "expected 2 to 4 elements in a message at byte 0",
        ),
        (
            array(&[&seconds(1), &seconds(1), &record(1)]),
            "expected a string as the tag at byte 1",
        ),
        (
            array(&[&tag, &seconds(1)]),
            "unexpected end of MessagePack at byte 4",
        ),
        (
            array(&[&tag, &[0xC2], &record(1)]),
            "expected a time (an integer, a float or an EventTime) at byte 3",
        ),
        (
            array(&[&tag, &seconds(1), &tag]),
            "not a MessagePack map at byte 4",
        ),
        (
            array(&[&tag, &bin(b""), &[0x80], &[0x80]]),
            "expected nothing after the option of a message at byte 0",
        ),
        (
            array(&[&tag, &array(&[&tag])]),
            "expected an array of a time and a record as an entry at byte 4",
        ),
        (
            array(&[&tag, &array(&[&[0x91, 1]])]),
            "expected an array of a time and a record as an entry at byte 4",
        ),
        (
            array(&[&tag, &array(&[&[0x93, 1, 0x80, 0x80]])]),
            "expected an array of a time and a record as an entry at byte 4",
        ),
        (packed(&[0x92, 1, 0xC0]), "not a MessagePack map at byte 7"),
        (
            packed(&[0x92, 1, 0x80, 0xC0]),
            "expected an array of a time and a record as an entry at byte 8",
        ),
        (
            packed(&[0x92, 1, 0x82, 0xA1, b'a', 1]),
            "unexpected end of MessagePack at byte 11",
        ),
        (
            packed(&[0x92, 0x93, 1, 0x80, 1, 0x80]),
            "expected an array of a time and metadata at the start of an entry at byte 6",
        ),
        (
            packed(&[0x92, 0x92, 1, 1, 0x80]),
            "not a MessagePack map at byte 8",
        ),
        (
            packed(&[&[0x92, 1][..], &deep].concat()),
            "nested too deeply",
        ),
        (
            packed(&[0x92, 1, 0x81, 0x81, 0x81, 0, 0, 0, 0]),
            "container as a map key inside another such key",
        ),
        (
            vec![0x92, 0xA1, b't', 0xDD, 0xFF, 0xFF, 0xFF, 0xFF],
            "unexpected end of MessagePack at byte 8",
        ),
        (
            vec![0x92, 0xA1, b't', 0xC6, 0xFF, 0xFF, 0xFF, 0xFF],
            "unexpected end of MessagePack at byte 8",
        ),
        (option(&tag), "expected a map as the option at byte 5"),
        (
            option(&map(&[("chunk", &seconds(1))])),
            "expected a string as `chunk` at byte 12",
        ),
        (
            option(&map(&[("chunk", &text(&"x".repeat(1025)))])),
            "expected 1024 bytes at most as `chunk` at byte 12",
        ),
        (
            option(&map(&[("compressed", &text("lz4"))])),
            "the compression \"lz4\" is not supported; gzip and zstd are at byte 17",
        ),
        (
            option(&map(&[("fluent_signal", &seconds(1))])),
            "only logs are accepted, not metrics or traces (`fluent_signal` is 1) at byte 20",
        ),
    ];
    for (message, expected) in cases {
        let error = read(&message).expect_err("malformed");
        let shown = &message[..message.len().min(20)];
        assert!(
            error.starts_with(expected),
            "{shown:x?}: {error}, not {expected}"
        );
    }
}

#[test]
fn messages_longer_than_the_list_come_whole_and_in_order() {
    let count = 40_000;
    let entries: Vec<u8> = (0..count).flat_map(|n| entry(&seconds(n + 1), n)).collect();
    let packed = array(&[&text("t"), &value(|out| write_bin(out, &entries))]);
    let mut listed = value(|out| write_array_header(out, count as usize));
    listed.extend_from_slice(&entries);
    let option = map(&[("chunk", &text("c"))]);
    for message in [packed, array(&[&text("t"), &listed, &option])] {
        let read = read(&message).expect("a message");
        assert_eq!(read.records.len(), count as usize);
        for (n, (found, time)) in read.records.iter().zip(read.times).enumerate() {
            assert_eq!(*found, record(n as i64));
            assert_eq!(time, EventTime::At((n as i64 + 1) * 1_000_000_000));
        }
    }
    // What is wrong behind the list is found before anything is handed on.
    let broken = [&entries[..], &[0x92, 1, 1]].concat();
    let message = array(&[&text("t"), &value(|out| write_bin(out, &broken))]);
    assert!(read(&message).is_err());
}

/// Messages of every mode.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let time = prop_oneof![
        any::<u32>().prop_map(|time| seconds(time.into())),
        (any::<u32>(), 0..2_000_000_000u32).prop_map(|(seconds, nanos)| event_time(seconds, nanos)),
        Just(value(write_nil)),
    ];
    let entry = (time, any::<bool>(), any::<i64>()).prop_map(|(time, has_metadata, number)| {
        let metadata = map(&[("m", &seconds(number))]);
        match has_metadata {
            true => array(&[&array(&[&time, &metadata]), &record(number)]),
            false => array(&[&time, &record(number)]),
        }
    });
    let option = prop_oneof![
        Just(Vec::new()),
        "[a-z]{1,9}".prop_map(|chunk| map(&[("chunk", &text(&chunk)), ("size", &seconds(1))])),
    ];
    let parts = (prop::collection::vec(entry, 0..9), option, 0..3);
    parts.prop_map(|(entries, option, mode)| {
        let all: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        let content = match mode {
            0 => array(&all),
            1 => value(|out| write_bin(out, &all.concat())),
            _ => [seconds(5), record(5)].concat(),
        };
        let elements = 2 + usize::from(mode == 2) + usize::from(!option.is_empty());
        let mut out = value(|out| write_array_header(out, elements));
        out.extend_from_slice(&text("tag"));
        out.extend_from_slice(&content);
        out.extend_from_slice(&option);
        out
    })
}

/// Reads bytes as a client of the codec does; nothing may panic.
fn consume(bytes: &[u8]) {
    let mut events = Events::default();
    let body = [Bytes::copy_from_slice(bytes)];
    let mut at = 0;
    while at < bytes.len()
        && let Ok(message) = Message::read(&body, at, &mut events)
    {
        let end = message.end.at;
        assert!(end > at && end <= bytes.len());
        if let Content::Packed(entries, None) = message.content
            && events.read_packed(&body, entries).is_err()
        {
            assert!(events.is_empty());
        }
        assert!(events.len() <= bytes.len());
        let mut read = Read {
            tag: String::new(),
            chunk: None,
            packed: false,
            compression: None,
            records: Vec::new(),
            times: Vec::new(),
            metadata: Vec::new(),
        };
        push(&mut events, &body, &mut read);
        assert_eq!(read.records.len(), events.len());
        at = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_panics_on_arbitrary_bytes(bytes in prop::collection::vec(
        prop_oneof![any::<u8>(), 0x90u8..0x95, 0x80u8..0x83, 0xA0u8..0xA4, 0xC0u8..0xE0], 0..200,
    )) {
        consume(&bytes);
        consume(&array(&[&text("t"), &value(|out| write_bin(out, &bytes))]));
    }

    #[test]
    fn nothing_panics_on_changed_messages(
        message in messages(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        consume(&message);
        prop_assert!(read(&message).is_ok());
        let mut changed = message;
        for (at, byte) in changes {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        consume(&changed);
        consume(&changed[..cut.index(changed.len())]);
    }
}

//! Messages whose ends do not follow from their content may end within a character. Found by the fuzzer: the bytes are UTF-8 as
//! a whole, the messages are not.

mod reading;

use std::sync::Arc;

use batch::{Encoding, FieldPath, HostInfo, Stream, Value};
use bytes::Bytes;
use codec::syslog::{Format, Syslog};
use codec::{Chunk, Decoder, Settings};
use datetime::Zone;
use reading::{Plan, read};

fn settings() -> Settings {
    Settings::new(Encoding::Text, 100)
}

#[test]
fn a_length_that_ends_within_a_character_leaves_two_messages_that_are_repaired() {
    let settings = Settings {
        is_counted: true,
        syslog: Some(Syslog::new(Format::Auto, Zone::UTC)),
        ..settings()
    };
    // Behind a frame, what is no length begins a line.
    let stream = "5 <1>aéx\n6 <1>eéz\n".as_bytes();
    let events = read(stream, &settings, &Plan::simple());
    let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["a\u{fffd}", "\u{fffd}x", "eé", "z"]);
}

#[test]
fn datagrams_that_split_a_character_are_repaired() {
    let bytes = Bytes::from_static("aébé".as_bytes());
    let mut chunk = Chunk::of_messages(bytes, &[0..2, 2..4, 4..6], 0);
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut decoder = Decoder::new(&settings(), &host);
    let stream = Arc::new(Stream::unnamed(1));
    let batch = decoder.next_batch(&stream, &mut chunk, 0).expect("lines");
    let batch = batch.expect("three events");
    let messages = batch.column(&FieldPath::from_keys(["message"]));
    let text = |row| match messages.value(row) {
        Value::Text(text) => String::from_utf8(text.to_vec()).expect("texts are UTF-8"),
        other => panic!("{other:?}"),
    };
    let texts: Vec<String> = (0..batch.len()).map(text).collect();
    assert_eq!(texts, ["a\u{fffd}", "\u{fffd}b", "é"]);
    assert_eq!(decoder.take_counts().invalid_utf8, 2);
}

//! MessagePack documents, one after the other, whole or broken.

use std::sync::Arc;

use batch::msgpack::{write_i64, write_map_header, write_str};
use batch::{Budget, Encoding, HostInfo, JsonWriter, Stream};
use codec::{Chunker, CodecError, Decoder, Settings};

/// The documents as JSON with their places, and why the stream ended.
fn decode(
    content: &[u8],
    record_max: usize,
    read: usize,
) -> (Vec<(String, u64, u64)>, Option<CodecError>) {
    let settings = Settings::new(Encoding::MsgPack, record_max);
    let budget = Budget::new(16 << 20);
    let pool = budget.pool(16 << 20, 512);
    let stream = Arc::new(Stream::unnamed(1));
    let mut decoder = Decoder::new(&settings, &Arc::new(HostInfo { name: "h".into() }));
    let (mut chunker, mut rest, mut events) = (Chunker::new(&settings), content, Vec::new());
    let mut add = |mut chunk: codec::Chunk| {
        let mut bytes = 0;
        let mut next = |chunk: &mut codec::Chunk| {
            let batch = decoder.next_batch(&stream, chunk, 0);
            let dropped = decoder.take_dropped();
            (
                batch,
                dropped.iter().map(|dropped| dropped.bytes).sum::<u64>(),
            )
        };
        let result = loop {
            let (batch, dropped) = next(&mut chunk);
            bytes += dropped;
            let batch = match batch {
                Ok(Some(batch)) => batch,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            for row in 0..batch.len() {
                let mut json = Vec::new();
                JsonWriter::new(&batch).write(row, &mut json);
                let json = String::from_utf8(json).expect("JSON is UTF-8");
                let (start, end) = (batch.origin().start(row), batch.origin().end(row));
                bytes += end - start;
                events.push((json, start, end));
            }
        };
        assert_eq!(bytes, chunk.source_bytes, "every byte is accounted for");
        result
    };
    let mut error = None;
    while !rest.is_empty() && !chunker.is_broken() && error.is_none() {
        if let Some(size) = chunker.needs() {
            chunker.give(pool.take_sized(size));
        }
        let space = chunker.space();
        let len = read.min(space.len()).min(rest.len());
        space[..len].copy_from_slice(&rest[..len]);
        chunker.advance(len);
        rest = &rest[len..];
        while error.is_none() && chunker.is_full() {
            error = chunker.take().and_then(|chunk| add(chunk).err());
        }
    }
    while error.is_none()
        && let Some(chunk) = chunker.finish()
    {
        error = add(chunk).err();
    }
    (events, error)
}

fn map(key: &str, value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    write_map_header(&mut out, 1);
    write_str(&mut out, key.as_bytes());
    write_i64(&mut out, value);
    out
}

#[test]
fn documents_follow_each_other() {
    let content: Vec<u8> = (0..5000).flat_map(|n| map("key", n)).collect();
    for read in [1, 7, 512, 100_000] {
        let (events, error) = decode(&content, 1 << 20, read);
        assert_eq!(error, None);
        assert_eq!(events.len(), 5000);
        assert_eq!(events[4999].0, "{\"key\":4999}");
        assert!(
            events.windows(2).all(|pair| pair[0].2 == pair[1].1),
            "no gap"
        );
        assert_eq!(events[4999].2, content.len() as u64);
    }
}

#[test]
fn a_large_document_makes_the_buffer_grow() {
    let mut large = Vec::new();
    write_map_header(&mut large, 1);
    write_str(&mut large, b"key");
    write_str(&mut large, &[b'x'; 100_000]);
    let content = [map("a", 1), large.clone(), map("b", 2)].concat();
    let (events, error) = decode(&content, 200_000, 1000);
    assert_eq!((events.len(), error), (3, None));
    let (events, error) = decode(&content, 50_000, 1000);
    assert_eq!(events.len(), 1);
    assert_eq!(
        error,
        Some(CodecError::MsgPackTooLarge {
            offset: 4,
            bytes_max: 50_000
        })
    );
}

#[test]
fn what_is_broken_ends_the_stream_after_everything_before() {
    let whole = [map("a", 1), map("b", 2)].concat();
    let cases: [(&[u8], u64, &str); 5] = [
        (&[0xC1], 8, "reserved"),
        (b"\x01", 8, "not a MessagePack map"),
        (b"{\"json\":1}", 8, "not a MessagePack map"),
        (&map("c", 3)[..2], 10, "unexpected end"),
        (&[0x81, 0xA1, b'k', 0xC1], 11, "reserved"),
    ];
    for (broken, place, text) in cases {
        let (events, error) = decode(&[&whole, broken].concat(), 1000, 5);
        assert_eq!(events.len(), 2, "{broken:x?}");
        let Some(CodecError::MsgPack { offset, reason }) = error else {
            panic!("{broken:x?}: {error:?}")
        };
        assert_eq!(offset, place, "{broken:x?}");
        assert!(reason.contains(text), "{reason}");
    }
}

#[test]
fn keys_that_come_twice_are_rewritten() {
    let mut content = Vec::new();
    write_map_header(&mut content, 2);
    for value in [1, 2] {
        write_str(&mut content, b"a");
        write_i64(&mut content, value);
    }
    assert_eq!(decode(&content, 1000, 100).0[0].0, "{\"a\":2}");
}

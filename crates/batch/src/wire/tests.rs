//! What only shows from inside: what is shared, what is copied, and heads made to harm.

use super::*;
use crate::{BatchBuilder, Bitmap, Column, Encoding, FieldPath, HostInfo, Span, Stream};
use std::sync::Arc;

/// A batch whose rows are these parts of one buffer.
fn batch_of(encoding: Encoding, buffer: &Bytes, parts: &[(u32, u32)]) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let stream = Arc::new(Stream::file(1, "x.log"));
    let mut builder = BatchBuilder::new(encoding, &host, 5, false);
    let number = builder.buffer(buffer.clone());
    builder.stream(&stream);
    for &(start, len) in parts {
        let span = Span {
            buffer: number,
            start,
            len,
        };
        let offset = u64::from(start);
        if encoding == Encoding::Json && buffer[start as usize] != b'{' {
            builder.push_text(span, offset, offset + u64::from(len));
        } else {
            builder.push(span, offset, offset + u64::from(len));
        }
    }
    builder.finish()
}

fn payload(frozen: &Frozen) -> Bytes {
    let parts = frozen.documents.iter().flatten();
    frozen.head.iter().chain(parts).copied().collect()
}

fn thawed(batch: &Batch) -> Batch {
    Batch::thaw(payload(&batch.freeze())).expect("what was frozen thaws")
}

fn own<'a>(batch: &'a Batch, keys: &[&str]) -> &'a Column {
    let keys: Vec<Box<str>> = keys.iter().map(|&key| key.into()).collect();
    let node = batch.root().descend(&keys).expect("the node is there");
    node.own.as_ref().expect("something was written there")
}

#[test]
fn documents_are_slices_without_what_lies_around_them() {
    let buffer = Bytes::from_static(b"before one\ntwo\n\nfour after");
    let batch = batch_of(
        Encoding::Text,
        &buffer,
        &[(7, 3), (11, 3), (15, 0), (16, 4)],
    );
    let frozen = batch.freeze();
    let lines = &frozen.documents[0];
    assert_eq!(&lines[..], b"one\ntwo\n\nfour");
    assert_eq!(lines.as_ptr(), buffer[7..].as_ptr(), "nothing was copied");
}

#[test]
fn the_pieces_of_a_sparse_buffer_are_copied_together() {
    let mut text = vec![b'-'; 1000];
    text[100..105].copy_from_slice(b"first");
    text[900..906].copy_from_slice(b"second");
    let text = Bytes::from(text);
    // Out of order, twice the same, overlapping, and empty inside and outside of what is used.
    let parts = [
        (900, 6),
        (100, 5),
        (900, 6),
        (102, 3),
        (0, 0),
        (902, 0),
        (999, 0),
    ];
    let batch = batch_of(Encoding::Text, &text, &parts);
    assert_eq!(&batch.freeze().documents[0][..], b"firstsecond");
    let column = thawed(&batch).column(&FieldPath::from_keys(["message"]));
    let values: Vec<_> = (0..7).map(|row| column.value(row)).collect();
    let expected: [&[u8]; 7] = [b"second", b"first", b"second", b"rst", b"", b"", b""];
    assert_eq!(values, expected.map(crate::Value::Text));
}

#[test]
fn columns_share_again_what_they_shared() {
    let text = Bytes::from_static(b"{\"a\":1}\nno JSON\n{\"a\":2}\n");
    let batch = batch_of(Encoding::Json, &text, &[(0, 7), (8, 7), (16, 7)]);
    let frozen = batch.freeze();
    let documents = |part: &&Bytes| part.len() > 10;
    assert_eq!(frozen.documents.iter().filter(documents).count(), 1);
    let payload = payload(&frozen);
    let batch = Batch::thaw(payload.clone()).expect("what was frozen thaws");
    let (root, message) = (own(&batch, &[]), own(&batch, &["message"]));
    assert!(Arc::ptr_eq(root.buffers(), message.buffers()));
    assert!(payload.as_ptr_range().contains(&root.buffers()[0].as_ptr()));
}

#[test]
fn constants_and_offsets_stay_what_they_are() {
    let batch = thawed(&batch_of(Encoding::Text, &"a\nb".into(), &[(0, 1), (2, 1)]));
    assert!(own(&batch, &["@timestamp"]).as_constant().is_some());
    assert!(own(&batch, &["host", "name"]).as_constant().is_some());
    let crate::column::Cells::Offsets(starts) = own(&batch, &["log", "offset"]).cells() else {
        panic!("the offsets are those of the origin");
    };
    assert!(Arc::ptr_eq(starts, batch.origin().starts()));
}

#[test]
fn a_usual_batch_takes_few_bytes_a_row() {
    let lines: String = (0..4000)
        .map(|row| "x".repeat(100 + row * 7 % 300) + "\n")
        .collect();
    let mut at = 0;
    let parts: Vec<(u32, u32)> = lines
        .lines()
        .map(|line| {
            at += line.len() as u32 + 1;
            (at - line.len() as u32 - 1, line.len() as u32)
        })
        .collect();
    let frozen = batch_of(Encoding::Text, &lines.into(), &parts).freeze();
    assert!(frozen.head.len() < 500 + 5 * 4000, "{}", frozen.head.len());
}

#[test]
fn another_version_is_told_from_damage() {
    let mut bytes = batch_of(Encoding::Text, &"a".into(), &[(0, 1)])
        .freeze()
        .head;
    bytes[0] = VERSION_MAX + 1;
    let thaw = |bytes: &[u8]| Batch::thaw(Bytes::copy_from_slice(bytes)).map(|_| ());
    assert_eq!(
        thaw(&bytes),
        Err(WireError::Newer {
            version: u16::from(VERSION_MAX) + 1
        })
    );
    bytes[0] = 0;
    for bytes in [&bytes[..], &[1], &[], b"hello, no batch", b"{}"] {
        assert!(matches!(thaw(bytes), Err(WireError::Damaged(_))));
    }
}

/// A head from its rows on, with nothing of interest before the root's first byte.
fn head_with(rows: u32, starts_and_ends: &[u8], nodes: &[u8]) -> Bytes {
    let mut head = [
        &u16::from(VERSION_1).to_le_bytes()[..],
        &[0; 6],
        &rows.to_le_bytes(),
        &[0; 20],
    ]
    .concat();
    head.extend_from_slice(&[1, 0, 0, 0]);
    head.extend_from_slice(&[0; 17]);
    head.extend_from_slice(&[1, 0, 0, 0]);
    head.extend_from_slice(&[0; 16]);
    head.extend_from_slice(starts_and_ends);
    head.extend_from_slice(&[rows::ALL, rows::ALL, 0, 0, 0, 0]);
    head.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    head.extend_from_slice(nodes);
    let len = head.len() as u32;
    head[4..8].copy_from_slice(&len.to_le_bytes());
    head.into()
}

#[test]
fn small_heads_do_not_make_large_batches() {
    let same = [0; 18];
    let leaf = [0; 9];
    let fine = head_with(1000, &same, &leaf);
    assert_eq!(
        Batch::thaw(fine).expect("a batch without fields").len(),
        1000
    );
    let error = Batch::thaw(head_with(u32::MAX, &same, &leaf)).map(|_| ());
    let too_much = WireError::Damaged("it asks for more memory than it can need");
    assert_eq!(error, Err(too_much.clone()));
    // A hundred columns of the same cell in each of 100,000 rows.
    let mut nodes = vec![0, 0, 0, 0, 100, 0, 0, 0, kept::NONE];
    for key in 0..100 {
        nodes.extend_from_slice(&[
            1,
            0,
            0,
            0,
            key,
            0,
            0,
            0,
            0,
            kept::ROWS,
            0,
            0,
            0,
            0,
            tag::NULL,
        ]);
    }
    let error = Batch::thaw(head_with(100_000, &same, &nodes)).map(|_| ());
    assert_eq!(error, Err(too_much));
}

#[test]
fn trees_of_any_shape_do_no_harm() {
    let same = [0; 18];
    let deep = |levels: usize| {
        let mut nodes = [0, 0, 0, 0, 1, 0, 0, 0, kept::NONE].repeat(levels);
        nodes.extend_from_slice(&[0; 9]);
        Batch::thaw(head_with(1, &same, &nodes)).map(|_| ())
    };
    assert_eq!(deep(crate::json::DEPTH_MAX), Ok(()));
    let error = Err(WireError::Damaged("its keys nest too deeply"));
    assert_eq!(deep(crate::json::DEPTH_MAX + 1), error);
    assert_eq!(deep(1_000_000), error);
    let twins = [&[0, 0, 0, 0, 2, 0, 0, 0, kept::NONE][..], &[0; 18]].concat();
    let error = Batch::thaw(head_with(1, &same, &twins)).map(|_| ());
    assert_eq!(error, Err(WireError::Damaged("a key comes twice")));
}

#[test]
fn damaged_text_is_refused_wherever_it_lies() {
    let text = "aé\nbü";
    let parts = [(0, 3), (4, 3)];
    let frozen = batch_of(Encoding::Text, &text.into(), &parts).freeze();
    let whole = payload(&frozen);
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.to_vec();
        change(&mut bytes);
        let error = Batch::thaw(bytes.into()).map(|_| ());
        assert_eq!(error, Err(WireError::Damaged("a text is not UTF-8")));
    };
    let at = whole
        .windows(text.len())
        .position(|part| part == text.as_bytes())
        .expect("the text is there");
    refused(&|bytes| bytes[at + 1] = 0xFF);
    refused(&|bytes| bytes[at + 5] = b'x');
    // What lies between the rows may be anything.
    let mut between = whole.to_vec();
    between[at + 3] = 0xFF;
    let batch = Batch::thaw(between.into()).expect("its texts are whole");
    assert_eq!(batch.alive(), &Bitmap::all(2));
}

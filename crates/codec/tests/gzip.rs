//! Gzip in pieces of every size, whole, cut off, corrupt and with something behind it.

use std::io::Write;

use codec::CodecError;
use codec::compress::{Decompressor, Format};
use flate2::{Compression, GzBuilder, write::GzEncoder};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("a vector takes it");
    encoder.finish().expect("a vector takes it")
}

fn log(lines: usize) -> Vec<u8> {
    (0..lines)
        .flat_map(|n| format!("line {n} {}\n", n * 7919 % 1000).into_bytes())
        .collect()
}

/// The content, why it ended, and whether there was garbage.
fn gunzip(data: &[u8], read: usize, space: usize) -> (Vec<u8>, Option<CodecError>, bool) {
    let mut gunzip = Decompressor::new(Format::Gzip);
    let (mut content, mut output) = (Vec::new(), vec![0; space]);
    let mut rest = data;
    loop {
        let input = &rest[..rest.len().min(read)];
        let step = gunzip.step(input, &mut output);
        content.extend_from_slice(&output[..step.produced]);
        rest = &rest[step.consumed..];
        if step.failure.is_some() {
            return (content, step.failure, gunzip.has_garbage());
        }
        if rest.is_empty() && step.produced == 0 {
            let end = gunzip.finish();
            assert_eq!(gunzip.input_offset(), data.len() as u64);
            return (content, end.err(), gunzip.has_garbage());
        }
    }
}

#[test]
fn members_follow_each_other() {
    let (one, two) = (log(1000), log(20));
    let named = GzBuilder::new()
        .filename("access.log")
        .comment("a header with text in it");
    let mut named = named.write(Vec::new(), Compression::best());
    named.write_all(&two).expect("a vector takes it");
    let data = [
        gzip(&one),
        gzip(b""),
        named.finish().expect("a vector takes it"),
    ]
    .concat();
    let content = [one, two].concat();
    for (read, space) in [(1, 1), (1, 1000), (1000, 1), (7, 13), (64 << 10, 64 << 10)] {
        assert_eq!(
            gunzip(&data, read, space),
            (content.clone(), None, false),
            "{read} {space}"
        );
    }
}

#[test]
fn what_follows_the_last_member_is_ignored() {
    let cases: [(&[u8], bool); 7] = [
        (&[0; 1000], false),
        (b"garbage", true),
        (b"\0\0garbage", true),
        (b"\x1F", true),
        (b"\x1Fx", true),
        (b"\x1F\0", true),
        (b"", false),
    ];
    for (trailing, has_garbage) in cases {
        let data = [gzip(b"content"), trailing.to_vec()].concat();
        for read in [1, 3, 1000] {
            assert_eq!(
                gunzip(&data, read, 100),
                (b"content".to_vec(), None, has_garbage),
                "{trailing:x?}"
            );
        }
    }
}

#[test]
fn cut_off_data_gives_everything_before_the_cut() {
    let content = log(5000);
    let data = gzip(&content);
    for cut in [
        0,
        1,
        2,
        9,
        10,
        11,
        data.len() / 2,
        data.len() - 8,
        data.len() - 1,
    ] {
        for (read, space) in [(1, 100), (64 << 10, 64 << 10)] {
            let (got, error, _) = gunzip(&data[..cut], read, space);
            assert!(content.starts_with(&got), "{cut}");
            assert_eq!(
                error,
                Some(CodecError::Truncated {
                    format: Format::Gzip,
                    offset: cut as u64
                }),
                "{cut}"
            );
            assert!(
                got.len() * 3 >= content.len() || cut < data.len() / 2,
                "{cut}: {} bytes",
                got.len()
            );
        }
    }
}

#[test]
fn corrupt_data_gives_what_can_be_read() {
    let content = log(5000);
    let data = gzip(&content);
    let is_corrupt = |error: &Option<CodecError>| matches!(error, Some(CodecError::Corrupt { .. }));

    let mut wrong_sum = data.clone();
    wrong_sum[data.len() - 6] ^= 1;
    let (got, error, _) = gunzip(&wrong_sum, 1000, 1000);
    assert_eq!(got, content, "the checksum comes last");
    assert!(is_corrupt(&error), "{error:?}");

    let mut hole = data.clone();
    let middle = data.len() / 2;
    hole[middle..middle + 50].fill(0xFF);
    let (got, error, _) = gunzip(&hole, 1000, 1000);
    assert!(is_corrupt(&error), "{error:?}");
    let same = got
        .iter()
        .zip(&content)
        .take_while(|(got, content)| got == content)
        .count();
    assert!(same > content.len() / 4, "{same} of {}", content.len());

    let (got, error, _) = gunzip(b"plain text", 100, 100);
    assert!(got.is_empty() && is_corrupt(&error), "{error:?}");
    let (_, error, _) = gunzip(b"\x1F\x8B\x07\0\0\0\0\0\0\0", 100, 100);
    assert!(is_corrupt(&error), "an unknown method: {error:?}");
}

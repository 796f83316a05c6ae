//! Decompressing with stops: from every checkpoint on, with buffers of every size and members, blocks and frames that
//! lie anyhow, the same bytes come as in one read.

mod compressed;

use codec::CodecError;
use codec::compress::{Checkpoint, Decompressor, Format, is_undecided, recognise};
use compressed::{Content, Random, Unit, frame, member, skippable, unit};
use proptest::prelude::*;

/// Feeds data in pieces of random sizes.
struct Feeder<'a> {
    data: &'a [u8],
    random: Random,
    input_max: usize,
    output_max: usize,
}

impl Feeder<'_> {
    /// One step. No content and no progress means that the data ends here.
    fn step(&mut self, from: &mut Decompressor) -> (Vec<u8>, bool, Option<CodecError>) {
        let rest = &self.data[(from.input_offset() as usize).min(self.data.len())..];
        let input = &rest[..rest.len().min(self.random.below(self.input_max) + 1)];
        let mut output = vec![0; self.random.below(self.output_max) + 1];
        let before = (from.input_offset(), from.output_offset());
        let step = from.step(input, &mut output);
        assert_eq!(from.input_offset(), before.0 + step.consumed as u64);
        assert_eq!(from.output_offset(), before.1 + step.produced as u64);
        output.truncate(step.produced);
        let is_end = rest.is_empty() && step.produced == 0;
        (output, is_end, step.failure)
    }

    /// Everything from here to the end or to a failure.
    fn read(&mut self, from: &mut Decompressor) -> (Vec<u8>, Result<(), CodecError>) {
        let mut content = Vec::new();
        loop {
            let (piece, is_end, failure) = self.step(from);
            content.extend(piece);
            match failure {
                Some(failure) => return (content, Err(failure)),
                None if is_end => return (content, from.finish()),
                None => {}
            }
        }
    }
}

fn feeder(data: &[u8], seed: u64, sizes: (usize, usize)) -> Feeder<'_> {
    Feeder {
        data,
        random: Random(seed),
        input_max: sizes.0,
        output_max: sizes.1,
    }
}

/// Through bytes, as the registry keeps them.
fn kept(checkpoint: &Checkpoint) -> Checkpoint {
    let read = Checkpoint::decode(&checkpoint.encode()).expect("what was encoded can be read");
    assert_eq!(&read, checkpoint);
    read
}

fn sizes() -> impl Strategy<Value = (usize, usize)> {
    let size = || prop_oneof![1..8usize, 1..2000usize, 20_000..200_000usize];
    (size(), size())
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![3 => Just(Format::Gzip), 1 => Just(Format::Zstd)]
}

/// The compressed data, its content and where members or frames end.
fn build(format: Format, units: &[Unit]) -> (Vec<u8>, Vec<u8>, Vec<usize>) {
    let (mut data, mut content, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for unit in units {
        data.extend(match format {
            Format::Gzip => member(unit),
            Format::Zstd => frame(unit),
        });
        content.extend(unit.content());
        ends.push(data.len());
    }
    (data, content, ends)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Stops anywhere, several times, goes on from the newest checkpoint each time and passes over what it had before.
    #[test]
    fn a_read_with_stops_is_one_read(
        format in format(),
        units in prop::collection::vec(unit(), 1..5),
        stops in prop::collection::vec((1..60usize, any::<bool>(), sizes()), 0..8),
        last in sizes(),
        interval in prop_oneof![1..100u64, 1000..100_000u64],
        seed in any::<u64>(),
    ) {
        let (data, content, _) = build(format, &units);
        let start = || Decompressor::new(format).with_interval(interval);
        let (mut from, mut newest, mut got) = (start(), None::<Checkpoint>, Vec::new());
        for (round, (steps, is_often, sizes)) in stops.into_iter().enumerate() {
            let mut feeder = feeder(&data, seed + round as u64, sizes);
            for _ in 0..steps {
                let at = from.output_offset() as usize;
                let (piece, _, failure) = feeder.step(&mut from);
                prop_assert_eq!(failure, None);
                prop_assert_eq!(&piece[..], &content[at..at + piece.len()]);
                got.truncate(at);
                got.extend(piece);
                if is_often {
                    newest = from.take_checkpoint().or(newest);
                }
            }
            newest = from.take_checkpoint().or(newest);
            from = match &newest {
                Some(checkpoint) => Decompressor::resume(&kept(checkpoint)).expect("memory").with_interval(interval),
                None => start(),
            };
            prop_assert!(from.output_offset() as usize <= got.len(), "nothing is passed over");
        }
        got.truncate(from.output_offset() as usize);
        let (rest, end) = feeder(&data, seed, last).read(&mut from);
        got.extend(rest);
        prop_assert_eq!(end, Ok(()));
        prop_assert!(got == content, "{} of {} bytes", got.len(), content.len());
        prop_assert!(!from.has_garbage());
        prop_assert_eq!(from.output_offset(), content.len() as u64);
    }

    /// Every checkpoint that there is leads to the same end and knows what lies before it.
    #[test]
    fn every_checkpoint_leads_to_the_same_end(
        format in format(),
        units in prop::collection::vec(unit(), 1..4),
        sizes in sizes(),
        interval in 1..50_000u64,
        seed in any::<u64>(),
    ) {
        let (data, content, ends) = build(format, &units);
        let mut from = Decompressor::new(format).with_interval(interval);
        let (mut feeder, mut found, mut is_end) = (feeder(&data, seed, sizes), Vec::new(), false);
        while !is_end {
            let failure;
            (_, is_end, failure) = feeder.step(&mut from);
            prop_assert_eq!(failure, None);
            found.extend(from.take_checkpoint());
        }
        let last = found.last().expect("there is one at the end");
        prop_assert_eq!((last.input, last.output), (data.len() as u64, content.len() as u64));
        let step = found.len() / 12 + 1;
        for checkpoint in found.iter().step_by(step) {
            let at = checkpoint.output as usize;
            let tail = checkpoint.tail();
            prop_assert_eq!(tail, &content[at - tail.len()..at]);
            prop_assert!(!tail.is_empty() || ends.contains(&(checkpoint.input as usize)) || at == 0 || interval == 1);
            let mut resumed = Decompressor::resume(&kept(checkpoint)).expect("memory");
            let (rest, end) = feeder.read(&mut resumed);
            prop_assert_eq!(end, Ok(()));
            prop_assert!(rest == content[at..], "from {at}");
        }
    }

    /// Data that ends anywhere gives what a whole read of that much gives, and everything once the rest is there.
    #[test]
    fn data_that_grows_is_read_on(
        format in format(),
        units in prop::collection::vec(unit(), 1..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        sizes in sizes(),
        seed in any::<u64>(),
    ) {
        let (data, content, ends) = build(format, &units);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len())).collect();
        cuts.sort_unstable();
        let (mut from, mut got) = (Decompressor::new(format), Vec::new());
        for cut in cuts {
            let (piece, end) = feeder(&data[..cut], seed, sizes).read(&mut from);
            got.extend(piece);
            let offset = cut as u64;
            // The first bytes of a magic number behind a member could also be garbage.
            let between = ends.iter().any(|end| (*end..*end + 4).contains(&cut));
            match end {
                Ok(()) => prop_assert!(between, "{cut}"),
                Err(error) => prop_assert_eq!(error, CodecError::Truncated { format, offset }),
            }
            prop_assert!(content.starts_with(&got));
            prop_assert!(got.len() >= compressed::readable(format, &data[..cut]), "at {cut}");
        }
        let (rest, end) = feeder(&data, seed, sizes).read(&mut from);
        got.extend(rest);
        prop_assert_eq!(end, Ok(()));
        prop_assert!(got == content);
    }

    /// Whatever comes in, it ends with an answer.
    #[test]
    fn damaged_data_is_no_danger(
        format in format(),
        units in prop::collection::vec(unit(), 1..3),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        sizes in sizes(),
        seed in any::<u64>(),
    ) {
        let (mut data, _, _) = build(format, &units);
        for (place, value) in damage {
            let place = place.index(data.len());
            data[place] = value;
        }
        let mut from = Decompressor::new(format).with_interval(1000);
        let mut feeder = feeder(&data, seed, sizes);
        let (content, end) = feeder.read(&mut from);
        prop_assert_eq!(content.len() as u64, from.output_offset());
        if let Err(error @ CodecError::Corrupt { .. }) = end {
            let again = from.step(&data, &mut [0; 100]);
            prop_assert_eq!((again.consumed, again.produced, again.failure), (0, 0, Some(error.clone())));
            prop_assert_eq!(from.finish(), Err(error));
        }
        if let Some(checkpoint) = from.take_checkpoint() {
            prop_assert_eq!(kept(&checkpoint).format, format);
        }
    }
}

fn log(lines: usize) -> Vec<u8> {
    Content::Lines(lines * 30).bytes(7)
}

fn whole(format: Format, data: &[u8]) -> (Vec<u8>, Result<(), CodecError>) {
    feeder(data, 1, (1 << 20, 1 << 20)).read(&mut Decompressor::new(format))
}

fn reason(end: Result<(), CodecError>) -> String {
    match end {
        Err(CodecError::Corrupt { reason, .. }) => reason,
        end => panic!("not corrupt: {end:?}"),
    }
}

#[test]
fn checks_hold_after_a_resume() {
    let content = log(10_000);
    let good = compressed::plain(&content, 6);
    let length = good.len();
    for (place, told) in [
        (length - 8, "incorrect data check"),
        (length - 1, "incorrect length check"),
    ] {
        let mut data = good.clone();
        data[place] ^= 0x10;
        let mut from = Decompressor::new(Format::Gzip).with_interval(50_000);
        let mut feeder = feeder(&data, 3, (5000, 5000));
        while from.output_offset() < content.len() as u64 / 2 {
            feeder.step(&mut from);
        }
        let checkpoint = from.take_checkpoint().expect("there is one by then");
        let at = checkpoint.output as usize;
        assert!(at > 0 && checkpoint.tail().len() == 32 * 1024);
        let mut resumed = Decompressor::resume(&kept(&checkpoint)).expect("memory");
        let (rest, end) = feeder.read(&mut resumed);
        assert!(rest == content[at..], "the checks come last");
        assert_eq!(reason(end), told);
    }
}

#[test]
fn headers_are_read_and_checked() {
    const EVERYTHING: u8 = 31;
    let content = Content::Lines(1000).bytes(1);
    let good = member(&Unit::simple(1, 1000).flagged(EVERYTHING));
    for sizes in [(1, 1), (3, 2000), (5000, 5000)] {
        let (got, end) = feeder(&good, 1, sizes).read(&mut Decompressor::new(Format::Gzip));
        assert_eq!(end, Ok(()));
        assert!(got == content, "{sizes:?}");
    }
    for (place, value, told) in [
        (2, 7, "unknown compression method"),
        (3, 0x3F, "unknown header flags set"),
        (4, 0xFF, "header crc mismatch"),
        (100, 0xFF, "header crc mismatch"),
        (315, b'A', "header crc mismatch"),
    ] {
        let mut data = good.clone();
        data[place] = value;
        for sizes in [(1, 1), (5000, 5000)] {
            let (got, end) = feeder(&data, 1, sizes).read(&mut Decompressor::new(Format::Gzip));
            assert_eq!((got.len(), reason(end)), (0, told.to_owned()), "{place}");
        }
    }
    for (start, read) in [(&b"\x1Fx"[..], 1), (b"\x1Fx", 2), (b"text", 4)] {
        let (_, end) = feeder(start, 1, (read, 1)).read(&mut Decompressor::new(Format::Gzip));
        let message = "corrupt gzip data at compressed byte 0: not a gzip header";
        assert_eq!(end.expect_err("no header").to_string(), message);
    }
}

#[test]
fn checkpoints_come_every_few_megabytes() {
    const MEGABYTE: usize = 1 << 20;
    let content = Content::Lines(14 * MEGABYTE).bytes(1);
    let data = [compressed::plain(&content, 6), compressed::plain(b"end", 6)].concat();
    let mut from = Decompressor::new(Format::Gzip);
    let mut feeder = feeder(&data, 5, (64 << 10, 64 << 10));
    let mut places = vec![0];
    loop {
        let (_, is_end, failure) = feeder.step(&mut from);
        assert_eq!(failure, None);
        places.extend(from.take_checkpoint().map(|taken| taken.output as usize));
        if is_end {
            break;
        }
    }
    assert_eq!(places.len(), 5, "three within, one at the end: {places:?}");
    for pair in places[..4].windows(2) {
        let distance = pair[1] - pair[0];
        assert!(
            (4 * MEGABYTE..5 * MEGABYTE).contains(&distance),
            "{places:?}"
        );
    }
    assert_eq!(places[4], content.len() + 3);
}

#[test]
fn a_member_that_is_appended_later_needs_no_window() {
    for format in [Format::Gzip, Format::Zstd] {
        let unit = |seed| Unit::simple(seed, 50_000);
        let (first, ..) = build(format, &[unit(1)]);
        let (both, content, _) = build(format, &[unit(1), unit(2)]);
        let mut from = Decompressor::new(format);
        let (mut got, end) = feeder(&first, 1, (999, 999)).read(&mut from);
        assert_eq!(end, Ok(()));
        let checkpoint = kept(&from.take_checkpoint().expect("one at the end"));
        assert!(checkpoint.tail().is_empty());
        assert!(checkpoint.encode().len() < 30);
        let mut resumed = Decompressor::resume(&checkpoint).expect("memory");
        assert_eq!(resumed.finish(), Ok(()), "nothing has been appended yet");
        for from in [&mut from, &mut resumed] {
            let (rest, end) = feeder(&both, 1, (999, 999)).read(from);
            assert_eq!(end, Ok(()));
            assert!([&got[..], &rest].concat() == content);
        }
        got.clear();
    }
}

#[test]
fn zstd_skips_what_is_to_be_skipped() {
    let content = log(2000);
    let unit = Unit::simple(3, 40_000);
    let data = [
        skippable(b""),
        skippable(&content),
        frame(&unit),
        skippable(b"abc"),
        frame(&unit),
        skippable(&[0; 300]),
    ]
    .concat();
    let expected = [unit.content(), unit.content()].concat();
    for sizes in [(1, 1), (7, 1000), (1 << 20, 1 << 20)] {
        let (got, end) = feeder(&data, 9, sizes).read(&mut Decompressor::new(Format::Zstd));
        assert_eq!(end, Ok(()));
        assert!(got == expected, "{sizes:?}");
    }
    assert_eq!(recognise(&data), Some(Format::Zstd));
}

#[test]
fn corrupt_zstd_gives_every_block_before() {
    let content = Content::Lines(1 << 20).bytes(4);
    let good = zstd::bulk::compress(&content, 3).expect("compressed");
    let blocks = compressed::zstd_blocks(&good);
    assert_eq!(blocks.len(), 8);
    let mut data = good.clone();
    // The type of a block that is reserved.
    data[blocks[5]] |= 0b110;
    for sizes in [(1, 1 << 20), (1 << 21, 1 << 21), (5000, 777)] {
        let mut from = Decompressor::new(Format::Zstd);
        let (got, end) = feeder(&data, 2, sizes).read(&mut from);
        assert_eq!(got.len(), 5 * (128 << 10), "{sizes:?}");
        assert!(content.starts_with(&got));
        assert!(!reason(end).is_empty());
    }
}

#[test]
fn zstd_says_what_is_wrong() {
    let good = frame(&Unit::simple(3, 40_000));
    let mut wrong_sum = good.clone();
    wrong_sum[good.len() - 1] ^= 1;
    let (got, end) = whole(Format::Zstd, &wrong_sum);
    assert_eq!(got.len(), 40_000, "the checksum comes last");
    assert!(reason(end).contains("checksum"));
    // No checksum, no length, a window of 2^28 bytes; an empty block.
    let large = [&good[..4], &[0, 18 << 3], &[1, 0, 0]].concat();
    assert_eq!(
        reason(whole(Format::Zstd, &large).1),
        "the window is larger than 128 MiB"
    );
    let allowed = [&good[..4], &[0, 17 << 3], &[1, 0, 0]].concat();
    assert_eq!(whole(Format::Zstd, &allowed), (Vec::new(), Ok(())));
    assert_eq!(reason(whole(Format::Zstd, b"plain").1), "not a zstd frame");
}

#[test]
fn what_follows_the_last_frame_is_ignored() {
    let good = frame(&Unit::simple(3, 100));
    for (trailing, has_garbage) in [
        (&b""[..], false),
        (&[0; 100], false),
        (b"garbage", true),
        (&[0x28], true),
        (&[0x28, 0xB5, 0x2F], true),
        (&[0x28, 0, 0, 0], true),
    ] {
        let data = [&good, trailing].concat();
        let mut from = Decompressor::new(Format::Zstd);
        let (got, end) = feeder(&data, 1, (3, 30)).read(&mut from);
        assert_eq!((got.len(), end), (100, Ok(())));
        assert_eq!(from.has_garbage(), has_garbage, "{trailing:x?}");
        assert_eq!(from.input_offset(), data.len() as u64);
    }
}

#[test]
fn formats_are_recognised_by_their_first_bytes() {
    let cases: [(&[u8], Option<Format>, bool); 11] = [
        (b"", None, true),
        (b"\x1F", None, true),
        (b"\x1F\x8B", Some(Format::Gzip), false),
        (b"\x1F\x8B\x08\0\0", Some(Format::Gzip), false),
        (b"\x1Fa", None, false),
        (b"\x28\xB5\x2F", None, true),
        (b"\x28\xB5\x2F\xFD", Some(Format::Zstd), false),
        (b"\x28\xB5\x2F\xFE", None, false),
        (b"P*M", None, true),
        (b"_*M\x18abc", Some(Format::Zstd), false),
        (b"O*M\x18", None, false),
    ];
    for (start, format, is_open) in cases {
        assert_eq!(recognise(start), format, "{start:x?}");
        assert_eq!(is_undecided(start), is_open, "{start:x?}");
    }
}

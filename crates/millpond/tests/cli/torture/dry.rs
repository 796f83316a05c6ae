//! The torture without Millpond: what lies in the files at the end is exactly what must lie there.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::check::{Checker, Delivered};
use super::crowd::{Crowd, Small};
use super::history::History;
use super::journal::{End, Layout};
use super::lines::Lines;
use super::rotator::{Done, Origin, Rotated};
use super::settings::{Compressing, Mode, Packing, Schedule, Settings};
use super::start;

/// A run of a schedule, with all the ways that it could draw set by the number.
fn settings(schedule: Schedule, number: u64) -> Settings {
    let mut settings = Settings {
        duration: Duration::from_millis(1_500),
        megabytes: 4,
        gap: Duration::from_millis(200),
        ..schedule.settings(number, "")
    };
    if settings.compressing != Compressing::Quick {
        settings.duration *= 4;
    }
    settings.crowd /= 10;
    settings.rewrites /= 2;
    settings
}

#[test]
fn the_files_hold_what_was_written() {
    let schedules = Schedule::ALL.into_iter();
    let modes = Mode::ALL.into_iter().map(|mode| Settings {
        mode,
        header_bytes: 1_500,
        rewrites: 3,
        ..settings(Schedule::Plain, 1)
    });
    let packings = Packing::ALL.into_iter().map(|packing| Settings {
        packing,
        mode: Mode::Mixed,
        ..settings(Schedule::Members, 2)
    });
    let compressing = [Compressing::Slow, Compressing::Hidden].map(|compressing| Settings {
        compressing,
        ..settings(Schedule::Slow, 3)
    });
    let all = (0..).zip(schedules);
    let all = all.map(|(number, schedule)| settings(schedule, number));
    let all: Vec<Settings> = all
        .chain(modes)
        .chain(packings)
        .chain(compressing)
        .collect();
    // They sleep more than they work.
    std::thread::scope(|scope| {
        for settings in &all {
            scope.spawn(move || {
                dry_run(settings).unwrap_or_else(|error| panic!("{settings}: {error:#}"));
            });
        }
    });
}

fn dry_run(settings: &Settings) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lines = Lines::new(settings.seed, settings.header_bytes);
    let never: Done = Box::new(|_, _| Ok(false));
    let (logs, crowded) = (folder.path().join("logs"), folder.path().join("crowd"));
    fs::create_dir(&logs)?;
    fs::create_dir(&crowded)?;
    let history = History::new(folder.path())?;
    let (writer, rotator) = start(settings, &lines, &logs, never, &history)?;
    let rng = settings.rng(4);
    let crowd = Crowd::start(&crowded, settings.crowd, settings.duration, rng);
    let signals = writer.signals();
    for rewrite in 0..settings.rewrites {
        std::thread::sleep(settings.duration / settings.rewrites);
        signals.rewrite(f64::from(rewrite % 3) / 1.5)?;
    }
    std::thread::sleep(settings.duration / (1 + settings.rewrites));
    let (rotated, journal) = (rotator.stop()?, writer.stop()?);
    let small = crowd.stop()?;
    let layout = Layout::new(&lines, journal, &rotated.copies)?;
    expect_enough(settings, &layout, &rotated, &small)?;
    let mut checker = Checker::new(&layout, &small, false);
    check_logs(&layout, &rotated, &logs, &mut checker)?;
    for number in 0..settings.crowd {
        let content = content(&crowded.join(Small::name(number)))?;
        add_lines(&mut checker, &format!("small-{number}"), &content);
    }
    let place = |span| rotated.place(&layout, span);
    let (report, fault) = checker.finish(place);
    ensure!(fault.is_none(), "{}", fault.unwrap_or_default());
    ensure!(report.repeats == 0, "{report:?}");
    let unsure = layout.unsure(End::Truncated) + layout.unsure(End::Overwritten);
    ensure!(report.lost_by_nature as u64 >= unsure.saturating_sub(report.halves as u64));
    ensure!(settings.loses() || report.ids as u64 == layout.lines());
    Ok(())
}

fn expect_enough(
    settings: &Settings,
    layout: &Layout,
    rotated: &Rotated,
    small: &Small,
) -> Result<()> {
    let is_packed = settings.packing != Packing::Plain;
    ensure!(
        rotated.kept.len() > 2 && (rotated.compressed > 0 || is_packed),
        "enough happened: {} rotations",
        rotated.kept.len()
    );
    let bytes = layout.bytes();
    ensure!(bytes >= settings.megabytes * 900_000, "{bytes} bytes");
    let files = small.lines.len();
    ensure!(files == settings.crowd as usize, "{files} small files");
    let overwritten = layout.spans_by(End::Overwritten).count();
    ensure!(
        overwritten == settings.rewrites as usize,
        "{overwritten} spans were written over"
    );
    let in_gaps = layout.unsure(End::Truncated);
    ensure!(
        in_gaps > 0 || settings.mode != Mode::Live,
        "no line lies in a gap"
    );
    Ok(())
}

/// Every file has, byte for byte, what is sure of its span.
fn check_logs(
    layout: &Layout,
    rotated: &Rotated,
    logs: &Path,
    checker: &mut Checker<'_>,
) -> Result<()> {
    let copies: Vec<usize> = layout.spans_by(End::Truncated).collect();
    for (name, old) in rotated.files() {
        let span = match old.origin {
            Origin::Span(span) => span,
            Origin::Copy(copy) => copies[copy],
            Origin::Unknown => unreachable!("the writer left it"),
        };
        let content = content(&logs.join(&name))?;
        ensure!(content == layout.held(span), "{name} holds span {span}");
        ensure!(content.len() as u64 == old.bytes, "{name} is whole");
        let whole = content.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |end| end as u64 + 1);
        ensure!(
            whole == old.whole_bytes,
            "{name} has {whole} bytes of lines"
        );
        add_lines(checker, &name, &content);
    }
    let content = content(&logs.join("app.log"))?;
    ensure!(
        content.len() as u64 == layout.last_bytes(),
        "app.log is the last span"
    );
    add_lines(checker, "app.log", &content);
    ensure!(
        fs::read_dir(logs)?.count() == rotated.kept.len() + 1,
        "nothing else is there"
    );
    Ok(())
}

/// Delivers a file as it should be.
fn add_lines(checker: &mut Checker<'_>, name: &str, content: &[u8]) {
    let mut offset = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        checker.add(&Delivered {
            id: &format!("{name}-{offset}-"),
            message: &String::from_utf8_lossy(text),
            offset,
        });
        offset += line.len() as u64;
    }
}

/// What is in a file, decompressed.
fn content(path: &Path) -> Result<Vec<u8>> {
    let mut raw = Vec::new();
    File::open(path)?.read_to_end(&mut raw)?;
    let mut content = Vec::new();
    match raw.as_slice() {
        [0x1F, 0x8B, ..] => {
            flate2::read::MultiGzDecoder::new(raw.as_slice()).read_to_end(&mut content)?;
        }
        [0x28, 0xB5, 0x2F, 0xFD, ..] => content = zstd::decode_all(raw.as_slice())?,
        _ => content = raw,
    }
    Ok(content)
}

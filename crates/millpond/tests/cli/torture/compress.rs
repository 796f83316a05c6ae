//! Compressing a rotated file, in the ways that are met: the `gzip` program, one or many members, stored blocks, zstd
//! frames; under the final name while it grows, or under another name first; at once, or with long pauses where a member
//! ends within a line.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use flate2::{Compression, write::GzEncoder};

use super::settings::Packing;

/// How many bytes reach the file at once: as many as the `gzip` program writes.
const PIECE_BYTES: usize = 16 * 1024;

/// Compresses `plain` and removes it; gives the ending of the new name. Names that end in `.part` may be used on the way.
pub fn compress(plain: &Path, rng: &mut Rng) -> Result<&'static str> {
    let ending = draw_ending(rng);
    let target = with_ending(plain, ending);
    let part = with_ending(plain, ".part");
    let under_final_name = rng.bool();
    let path = if under_final_name { &target } else { &part };
    match rng.u32(..4) {
        _ if ending == ".zst" => frames(plain, path, rng)?,
        0 if program_exists() => by_program(plain, path, rng)?,
        // Stored blocks, so that text shows in the compressed file.
        1 => members(plain, path, Compression::none(), rng)?,
        _ => members(plain, path, Compression::new(rng.u32(1..=9)), rng)?,
    }
    if !under_final_name {
        fs::rename(&part, &target)?;
    }
    // Both files are there for a while, at times.
    pause(rng, 100);
    fs::remove_file(plain).context("removing the plain file")?;
    Ok(ending)
}

/// Compresses `plain` as above and takes its time, with members or frames that end within lines. The plain file is there
/// until it is done, or `is_hidden` meanwhile.
pub fn compress_slowly(plain: &Path, is_hidden: bool, rng: &mut Rng) -> Result<&'static str> {
    let ending = draw_ending(rng);
    let packing = match ending {
        ".zst" => Packing::Zstd,
        _ => Packing::Gzip,
    };
    let content = fs::read(plain)?;
    let kept = match is_hidden {
        true => with_ending(plain, ".part"),
        false => plain.to_owned(),
    };
    fs::rename(plain, &kept)?;
    let mut file = File::create(with_ending(plain, ending))?;
    let mut rest = &content[..];
    loop {
        let size = content.len() / rng.usize(1..=4) + 1;
        let (piece, after) = rest.split_at(end_within_line(rest, size.min(rest.len())));
        let member = packing.member(piece)?.context("it is compressed")?;
        for written in member.chunks(PIECE_BYTES) {
            file.write_all(written)?;
        }
        rest = after;
        // A file that grows slowly must not look whole for long while its original is out of sight.
        let most_ms = if is_hidden { 1_000 } else { 3_000 };
        std::thread::sleep(Duration::from_millis(rng.u64(..most_ms)));
        if rest.is_empty() {
            break;
        }
    }
    fs::remove_file(kept).context("removing the plain file")?;
    Ok(ending)
}

/// The first place from `size` on that is within a line, or the end.
fn end_within_line(text: &[u8], size: usize) -> usize {
    let within = |at: &usize| text[*at - 1] != b'\n';
    (size.max(1)..text.len()).find(within).unwrap_or(text.len())
}

fn draw_ending(rng: &mut Rng) -> &'static str {
    match rng.u32(..4) {
        0 => ".zst",
        _ => ".gz",
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Sleeps up to so many milliseconds, in half of the cases.
pub fn pause(rng: &mut Rng, most_ms: u64) {
    if rng.bool() {
        std::thread::sleep(Duration::from_millis(rng.u64(..most_ms)));
    }
}

fn program_exists() -> bool {
    let mut gzip = Command::new("gzip");
    let asked = gzip.arg("--version").stdout(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

fn by_program(plain: &Path, target: &Path, rng: &mut Rng) -> Result<()> {
    let level = format!("-{}", rng.u32(1..=9));
    let status = Command::new("gzip")
        .args(["-c", &level])
        .arg(plain)
        .stdout(File::create(target)?)
        .status()?;
    ensure!(status.success(), "gzip ended with {status}");
    Ok(())
}

/// Writes one to four members, cut anywhere, with pauses within them at times.
fn members(plain: &Path, target: &Path, level: Compression, rng: &mut Rng) -> Result<()> {
    let content = fs::read(plain)?;
    let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create(target)?);
    for member in cut(&content, rng) {
        let mut encoder = GzEncoder::new(&mut file, level);
        for piece in member.chunks(rng.usize(32..=512) * 1024) {
            encoder.write_all(piece)?;
            pause(rng, 20);
        }
        encoder.finish()?;
    }
    Ok(file.flush()?)
}

/// Writes one to four frames, cut anywhere.
fn frames(plain: &Path, target: &Path, rng: &mut Rng) -> Result<()> {
    let content = fs::read(plain)?;
    let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create(target)?);
    for frame in cut(&content, rng) {
        let frame = Packing::Zstd.member(frame)?.context("it is compressed")?;
        file.write_all(&frame)?;
        pause(rng, 20);
    }
    Ok(file.flush()?)
}

/// One to four pieces, cut anywhere.
fn cut<'c>(content: &'c [u8], rng: &mut Rng) -> Vec<&'c [u8]> {
    let mut pieces = Vec::new();
    let mut rest = content;
    for _ in 1..rng.usize(1..=4) {
        let (piece, after) = rest.split_at(rng.usize(..=rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

#[test]
fn members_end_within_lines() {
    assert_eq!(end_within_line(b"one\ntwo\n", 4), 5);
    assert_eq!(end_within_line(b"one\ntwo\n", 2), 2);
    assert_eq!(end_within_line(b"one\ntwo\n", 8), 8);
    assert_eq!(end_within_line(b"\n\n", 1), 2);
}

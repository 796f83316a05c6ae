//! Compressing a rotated file, in the ways that are met: the `gzip` program, one or many members, stored blocks; under
//! the final name while it grows, or under another name first.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use flate2::{Compression, write::GzEncoder};

/// How many bytes reach the file at once: as many as the `gzip` program writes.
const PIECE_BYTES: usize = 16 * 1024;

/// Compresses `plain` into `target` and removes it. A name that ends in `.part` may be used on the way.
pub fn compress(plain: &Path, target: &Path, rng: &mut Rng) -> Result<()> {
    let under_final_name = rng.bool();
    let part = target.with_extension("part");
    let path = if under_final_name { target } else { &part };
    match rng.u32(..4) {
        0 if program_exists() => by_program(plain, path, rng)?,
        // Stored blocks, so that text shows in the compressed file.
        1 => members(plain, path, Compression::none(), rng)?,
        _ => members(plain, path, Compression::new(rng.u32(1..=9)), rng)?,
    }
    if !under_final_name {
        fs::rename(&part, target)?;
    }
    // Both files are there for a while, at times.
    pause(rng, 100);
    fs::remove_file(plain).context("removing the plain file")
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
    let mut rest = &content[..];
    for left in (0..rng.usize(1..=4)).rev() {
        let size = match left {
            0 => rest.len(),
            _ => rng.usize(..=rest.len()),
        };
        let (member, after) = rest.split_at(size);
        let mut encoder = GzEncoder::new(&mut file, level);
        for piece in member.chunks(rng.usize(32..=512) * 1024) {
            encoder.write_all(piece)?;
            pause(rng, 20);
        }
        encoder.finish()?;
        rest = after;
    }
    Ok(file.flush()?)
}

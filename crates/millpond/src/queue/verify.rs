//! `millpond queue verify`: every checksum of a queue.

use std::process::ExitCode;

use component::plural;
use pipeline::report::bytes;
use queue::inspect::{Damage, Verified};

use super::{Folder, Out};

/// Says each damage and ends with 1 when there is any. What a crash left behind is said and is none.
pub fn verify(folder: &Folder) -> anyhow::Result<ExitCode> {
    let mut out = Out::new();
    let mut is_clean = true;
    for queue in folder.all()? {
        let verified = queue.verify()?;
        let mut text = String::new();
        for damage in &verified.damage {
            let word = if damage.torn { "torn" } else { "damage" };
            let path = queue.path().join(&damage.file);
            text.push_str(&format!(
                "{word}: {} {}\n",
                path.display(),
                describe(damage)
            ));
        }
        text.push_str(&format!(
            "{}: {}, {} with {}, {}, {} read; {}\n",
            queue.path().display(),
            plural(verified.segments, "segment"),
            plural(verified.blocks, "block"),
            plural(verified.events, "event"),
            plural(verified.cursors, "cursor"),
            bytes(verified.bytes),
            verdict(&verified)
        ));
        is_clean &= verified.is_clean();
        out.write(text.as_bytes())?;
    }
    out.flush()?;
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn verdict(verified: &Verified) -> String {
    let torn = verified.damage.iter().filter(|damage| damage.torn).count();
    let missing = match verified.events_missing() {
        0 => String::new(),
        events => format!(", {} missing", plural(events, "event")),
    };
    let torn = match torn {
        0 => String::new(),
        torn => format!(
            ", {} left by a crash",
            plural(torn as u64, "incomplete write")
        ),
    };
    match verified.damage.iter().filter(|damage| !damage.torn).count() {
        0 => format!("no damage{torn}"),
        damaged => format!("{}{missing}{torn}", plural(damaged as u64, "damaged range")),
    }
}

/// Where a damage is, what it is, and what is missing for it.
pub fn describe(damage: &Damage) -> String {
    let Damage {
        offset,
        length,
        reason,
        ..
    } = damage;
    let missing = match (damage.first_sequence, damage.last_sequence) {
        _ if damage.torn => String::new(),
        (Some(first), Some(last)) if first > last => "; nothing is missing".to_owned(),
        (Some(first), Some(last)) if first == last => format!("; sequence {first} is missing"),
        (Some(first), Some(last)) => format!("; of sequences {first} to {last}"),
        (Some(first), None) => format!("; of sequences from {first} on"),
        (None, _) => String::new(),
    };
    let events = match damage.events {
        _ if damage.torn => String::new(),
        0 => String::new(),
        events => format!(", {}", plural(events, "event")),
    };
    let length = match length {
        0 => String::new(),
        length => format!(", {}", plural(*length, "byte")),
    };
    format!("at offset {offset}{length}: {reason}{missing}{events}")
}

//! `millpond queue verify`: every checksum of a queue.

use std::process::ExitCode;

use pipeline::report::{bytes, grouped};
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
            "{}: {} segments, {} blocks with {} events, {} cursors, {} read; {}\n",
            queue.path().display(),
            grouped(verified.segments),
            grouped(verified.blocks),
            grouped(verified.events),
            grouped(verified.cursors),
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
        1 => ", 1 event is missing".to_owned(),
        events => format!(", {} events are missing", grouped(events)),
    };
    let torn = match torn {
        0 => String::new(),
        1 => ", and one place that a crash left unfinished".to_owned(),
        torn => format!(", and {torn} places that a crash left unfinished"),
    };
    match verified.damage.iter().filter(|damage| !damage.torn).count() {
        0 => format!("no damage{torn}"),
        1 => format!("1 damage{missing}{torn}"),
        damaged => format!("{damaged} damages{missing}{torn}"),
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
        1 => ", 1 event".to_owned(),
        events => format!(", {} events", grouped(events)),
    };
    let length = match length {
        0 => String::new(),
        length => format!(", {length} bytes"),
    };
    format!("at offset {offset}{length}: {reason}{missing}{events}")
}

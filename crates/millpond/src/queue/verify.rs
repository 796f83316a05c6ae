//! `millpond queue verify`: every checksum of a queue.

use std::process::ExitCode;

use pipeline::report::{bytes, grouped};
use queue::inspect::Damage;

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
        let damaged = verified.damage.iter().filter(|damage| !damage.torn).count();
        text.push_str(&format!(
            "{}: {} segments, {} blocks with {} events, {} cursors, {} read; {}\n",
            queue.path().display(),
            grouped(verified.segments),
            grouped(verified.blocks),
            grouped(verified.events),
            grouped(verified.cursors),
            bytes(verified.bytes),
            verdict(damaged, verified.damage.len() - damaged)
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

fn verdict(damaged: usize, torn: usize) -> String {
    let torn = match torn {
        0 => String::new(),
        1 => ", and one place that a crash left unfinished".to_owned(),
        torn => format!(", and {torn} places that a crash left unfinished"),
    };
    match damaged {
        0 => format!("no damage{torn}"),
        1 => format!("1 damage{torn}"),
        damaged => format!("{damaged} damages{torn}"),
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
    format!("at offset {offset}, {length} bytes: {reason}{missing}")
}

//! `millpond queue quarantine`: what was set aside because it was damaged.

use std::process::ExitCode;

use anyhow::bail;
use component::{grouped, plural};
use queue::inspect::{Quarantined, QueueFolder, Salvaged};

use super::export::render;
use super::{ListArgs, Out, SalvageArgs, table};
use crate::console::say;

/// Shows what was set aside, as a table or as one JSON object a line.
pub fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let mut out = Out::new();
    for queue in args.folder.all()? {
        let found = queue.quarantined()?;
        let mut text = Vec::new();
        if args.json {
            for file in &found {
                let mut object = serde_json::to_value(file)?;
                object["folder"] = queue.path().display().to_string().into();
                serde_json::to_writer(&mut text, &object)?;
                text.push(b'\n');
            }
        } else {
            let path = queue.path().display();
            let heading = match found.len() as u64 {
                0 => format!("{path}: nothing is quarantined\n"),
                count => format!("{path}: {} quarantined\n", plural(count, "file")),
            };
            text.extend_from_slice(heading.as_bytes());
            text.extend_from_slice(files_table(&found).as_bytes());
        }
        out.write(&text)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A table of what was set aside; empty where that is nothing.
pub fn files_table(found: &[Quarantined]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let heads = [
        "file",
        "size",
        "segment",
        "offset",
        "readable events",
        "reason",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    rows.extend(found.iter().map(|file| {
        vec![
            file.file.clone(),
            grouped(file.size_bytes),
            number(file.segment),
            number(file.offset),
            grouped(file.whole_events),
            file.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }));
    table(&rows)
}

/// Prints the events of every whole block and says what could not be read, which makes the exit code 1.
pub fn export(args: &SalvageArgs) -> anyhow::Result<ExitCode> {
    let queue = args.folder.only()?;
    let mut found = queue.quarantined()?;
    if let Some(wanted) = &args.file {
        let name = |file: &Quarantined| file.file.rsplit('/').next() == wanted.rsplit('/').next();
        found.retain(name);
        if found.is_empty() {
            bail!(
                "{} contains no quarantined file named {wanted}",
                queue.path().display()
            );
        }
    }
    let mut out = Out::new();
    let mut is_complete = true;
    for file in found.iter().filter(|file| file.segment.is_some()) {
        is_complete &= export_file(&queue, file, &mut out)?;
        if !out.is_open {
            return Ok(ExitCode::SUCCESS);
        }
    }
    out.flush()?;
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Whether everything in the file could be read.
fn export_file(queue: &QueueFolder, file: &Quarantined, out: &mut Out) -> anyhow::Result<bool> {
    let path = queue.path().join(&file.file);
    let mut is_complete = true;
    let mut text = Vec::new();
    for piece in queue.salvage(file)? {
        text.clear();
        let (offset, problem) = match piece {
            Salvaged::Lost {
                offset,
                length,
                reason,
            } => (offset, Some(format!("{length} bytes: {reason}"))),
            Salvaged::Block {
                offset, payload, ..
            } => (
                offset,
                render(payload, None, &mut text)
                    .err()
                    .map(|error| error.to_string()),
            ),
        };
        if let Some(problem) = problem {
            is_complete = false;
            say(&format!(
                "error: {} at offset {offset}: {problem}",
                path.display()
            ));
            continue;
        }
        out.write(&text)?;
        if !out.is_open {
            break;
        }
    }
    Ok(is_complete)
}

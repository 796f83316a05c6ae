//! `millpond queue inspect`: segments, cursors, damage and what was set aside.

use std::fmt::Write;
use std::process::ExitCode;

use component::{grouped, plural};
use pipeline::report::bytes;
use queue::inspect::{BlockReport, CursorReport, Report, SegmentReport};

use super::quarantine::files_table;
use super::verify::describe;
use super::{InspectArgs, Out, age, now, table};

/// Shows what is in every queue, as tables or as one JSON object a line.
pub fn inspect(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let mut out = Out::new();
    for (index, queue) in args.folder.all()?.iter().enumerate() {
        let report = queue.report(now(), args.blocks)?;
        let mut text = if args.json {
            serde_json::to_string(&report)?
        } else {
            tables(&report)
        };
        if args.json {
            text.push('\n');
        } else if index > 0 {
            text.insert(0, '\n');
        }
        out.write(text.as_bytes())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn tables(report: &Report) -> String {
    let mut text = heading(report);
    if !report.segments.is_empty() {
        text.push('\n');
        text.push_str(&segments(&report.segments));
    }
    for segment in &report.segments {
        if let Some(list) = segment.list.as_ref().filter(|list| !list.is_empty()) {
            let _ = write!(
                text,
                "\nblocks of segment {}\n{}",
                segment.number,
                blocks(list)
            );
        }
    }
    if !report.cursors.is_empty() {
        text.push('\n');
        text.push_str(&cursors(&report.cursors));
    }
    if !report.damage.is_empty() {
        text.push('\n');
    }
    for damage in &report.damage {
        let word = if damage.torn { "torn" } else { "damage" };
        let _ = writeln!(text, "{word}: {} {}", damage.file, describe(damage));
    }
    if !report.quarantine.is_empty() {
        let _ = write!(text, "\nquarantined\n{}", files_table(&report.quarantine));
    }
    text
}

fn heading(report: &Report) -> String {
    let name = match &report.pipeline {
        Some(pipeline) => format!(
            "queue of the pipeline {pipeline}: {}",
            report.folder.display()
        ),
        None => format!("queue {}", report.folder.display()),
    };
    let user = match report.process {
        Some(0) => "in use by another process".to_owned(),
        Some(process) => format!("in use by process {process}"),
        None => "not in use".to_owned(),
    };
    format!(
        "{name}\n{}, {}; {} with {}; {user}\n",
        plural(report.segments.len() as u64, "segment"),
        bytes(report.size_bytes),
        plural(report.blocks, "block"),
        plural(report.events, "event"),
    )
}

fn heads(heads: &[&str]) -> Vec<Vec<String>> {
    vec![heads.iter().map(|head| (*head).to_owned()).collect()]
}

fn number(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

fn segments(segments: &[SegmentReport]) -> String {
    let mut rows = heads(&[
        "segment",
        "first",
        "last",
        "blocks",
        "events",
        "superseded",
        "used",
        "size",
        "oldest",
        "newest",
    ]);
    rows.extend(segments.iter().map(|segment| {
        vec![
            segment.number.to_string(),
            number(segment.first_sequence),
            number(segment.last_sequence),
            grouped(segment.blocks),
            grouped(segment.events),
            grouped(segment.superseded_blocks),
            bytes(segment.used_bytes),
            bytes(segment.size_bytes),
            age(segment.oldest_seconds),
            age(segment.newest_seconds),
        ]
    }));
    table(&rows)
}

fn blocks(list: &[BlockReport]) -> String {
    let mut rows = heads(&[
        "sequence",
        "offset",
        "events",
        "stored",
        "raw",
        "compression",
        "age",
        "",
    ]);
    rows.extend(list.iter().map(|block| {
        vec![
            block.sequence.to_string(),
            block.offset.to_string(),
            grouped(u64::from(block.events)),
            grouped(u64::from(block.stored_bytes)),
            grouped(u64::from(block.raw_bytes)),
            format!("{:?}", block.compression).to_lowercase(),
            age(Some(block.age_seconds)),
            if block.superseded { "superseded" } else { "" }.to_owned(),
        ]
    }));
    table(&rows)
}

fn cursors(cursors: &[CursorReport]) -> String {
    let mut rows = heads(&["output", "next", "lag", "bytes", "age", ""]);
    rows.extend(cursors.iter().map(|cursor| {
        vec![
            cursor.output.clone(),
            cursor.sequence.to_string(),
            plural(cursor.lag_events, "event"),
            bytes(cursor.lag_bytes),
            age(cursor.lag_seconds),
            match cursor.retired {
                Some(since) => {
                    let seconds = now() as f64 / 1e9 - since as f64;
                    format!("retired {} ago", age(Some(seconds.max(0.0))))
                }
                None => String::new(),
            },
        ]
    }));
    table(&rows)
}

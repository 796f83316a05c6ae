//! `list`, `show` and `export`: what there is.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::bail;
use batch::{FieldPath, JsonWriter, Value};
use component::plural;
use datetime::rfc3339;
use queue::letters::{Letter, LetterFolder, Page, Unreadable};

use super::{Selection, ShowArgs, only};
use crate::console::say;
use crate::queue::Out;

/// So much of a reason is shown in a list, in characters.
const REASON_SHOWN: usize = 100;

/// Prints the letters, as a table or as one JSON object a line.
pub fn list(selection: &Selection, as_json: bool) -> anyhow::Result<ExitCode> {
    let stores = selection.stores()?;
    let mut out = Out::new();
    let mut count = 0;
    let unreadable = selection.each(&stores, &mut |_, page, row, letter| {
        let line = match as_json {
            true => json(page, row, &letter)?,
            false => {
                if count == 0 {
                    out.write(heading().as_bytes())?;
                }
                line(&letter)
            }
        };
        count += 1;
        out.write(line.as_bytes())?;
        Ok(go_on(&out))
    })?;
    if !as_json {
        let text = match (count, stores.iter().find_map(LetterFolder::holder)) {
            (0, _) if selection.is_restricted() => "no dead letter matches".to_owned(),
            (0, _) => "no dead letters".to_owned(),
            (count, None) => plural(count, "dead letter"),
            (count, Some(_)) => {
                let letters = plural(count, "dead letter");
                format!("{letters}; the data directory is in use")
            }
        };
        out.write(format!("{text}\n").as_bytes())?;
    }
    out.flush()?;
    let is_complete = unreadable.iter().all(Unreadable::is_empty);
    Ok(ExitCode::from(u8::from(!is_complete)))
}

/// Prints one letter.
pub fn show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let mut selection = Selection::all(args.data_dir.clone(), args.pipeline.clone());
    selection.number.push(args.number);
    let store = only(selection.stores()?, &args.data_dir)?;
    let mut out = Out::new();
    let mut text = None;
    selection.each(std::slice::from_ref(&store), &mut |_, page, row, letter| {
        text = Some(match args.json {
            true => json(page, row, &letter)?,
            false => details(page, row, &letter),
        });
        Ok(ControlFlow::Break(()))
    })?;
    let Some(text) = text else {
        bail!(
            "there is no dead letter {} of the pipeline `{}`",
            args.number,
            store.pipeline()
        );
    };
    out.write(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the events.
pub fn export(selection: &Selection) -> anyhow::Result<ExitCode> {
    let stores = selection.stores()?;
    let mut out = Out::new();
    let mut is_empty = true;
    let unreadable = selection.each(&stores, &mut |_, page, row, _| {
        is_empty = false;
        let mut event = event(page, row);
        event.push('\n');
        out.write(event.as_bytes())?;
        Ok(go_on(&out))
    })?;
    out.flush()?;
    if is_empty {
        say(match selection.is_restricted() {
            true => "no dead letter matches",
            false => "no dead letters",
        });
    }
    let is_complete = unreadable.iter().all(Unreadable::is_empty);
    Ok(ExitCode::from(u8::from(!is_complete)))
}

fn go_on(out: &Out) -> ControlFlow<()> {
    match out.is_open() {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

/// The event as an output would write it, in one line.
fn event(page: &Page, row: usize) -> String {
    let mut event = Vec::new();
    JsonWriter::new(&page.batch).write(row, &mut event);
    one_line(event)
}

/// Strings hold their newlines escaped, so that these stand between tokens.
fn one_line(mut json: Vec<u8>) -> String {
    for byte in json.iter_mut().filter(|byte| **byte == b'\n') {
        *byte = b' ';
    }
    String::from_utf8_lossy(&json).into_owned()
}

/// The event's `@metadata`, without what is known of the letter.
fn metadata(page: &Page, row: usize) -> String {
    let column = page.batch.column(&FieldPath::from_keys(["@metadata"]));
    match column.value(row) {
        Value::Json(json) => one_line(json.to_vec()),
        _ => "{}".to_owned(),
    }
}

fn shown(nanos: i64) -> String {
    let mut text = Vec::new();
    rfc3339::write_rfc3339(&mut text, nanos);
    String::from_utf8_lossy(&text).into_owned()
}

fn of(letter: &Letter) -> String {
    match letter.position {
        Some(position) => format!("{} {} (number {position})", letter.role, letter.component),
        None => format!("{} {}", letter.role, letter.component),
    }
}

const WIDTHS: [usize; 5] = [8, 14, 30, 26, 8];

fn heading() -> String {
    row(
        ["number", "pipeline", "time", "component", "attempts"],
        "reason",
    )
}

fn line(letter: &Letter) -> String {
    let mut reason: String = letter.reason.chars().take(REASON_SHOWN).collect();
    if reason.len() < letter.reason.len() {
        reason.push('…');
    }
    let component = format!("{} {}", letter.role, letter.component);
    let (number, attempts) = (letter.number.to_string(), letter.attempts.to_string());
    row(
        [
            &number,
            &letter.pipeline,
            &shown(letter.time),
            &component,
            &attempts,
        ],
        &reason.escape_debug().to_string(),
    )
}

fn row(cells: [&str; 5], reason: &str) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        let _ = write!(text, "{cell:<width$}  ");
    }
    text.push_str(reason);
    text.push('\n');
    text
}

fn details(page: &Page, row: usize, letter: &Letter) -> String {
    let mut text = String::new();
    let position = of(letter);
    let (number, attempts) = (letter.number.to_string(), letter.attempts.to_string());
    let time = shown(letter.time);
    let lines = [
        ("number", Some(&number)),
        ("pipeline", Some(&letter.pipeline)),
        ("component", Some(&position)),
        ("time", Some(&time)),
        ("reason", Some(&letter.reason)),
        ("tag", letter.tag.as_ref()),
        ("attempts", Some(&attempts)),
        ("id", Some(&letter.id)),
        ("@metadata", Some(&metadata(page, row))),
        ("event", Some(&event(page, row))),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(text, "{name:<10} {value}");
        }
    }
    text
}

fn json(page: &Page, row: usize, letter: &Letter) -> anyhow::Result<String> {
    let mut object = serde_json::to_value(letter)?;
    object["time"] = shown(letter.time).into();
    let mut text = serde_json::to_string(&object)?;
    // As they are: numbers keep their digits.
    text.pop();
    let (metadata, event) = (metadata(page, row), event(page, row));
    let _ = writeln!(text, r#","@metadata":{metadata},"event":{event}}}"#);
    Ok(text)
}

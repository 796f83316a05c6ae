//! `millpond queue export`: events of a queue as NDJSON, as a `stdout` output would write them unprocessed.

use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::bail;
use batch::{Batch, JsonWriter, WireError, json};
use bytes::Bytes;
use component::plural;
use queue::cursor::Saved;
use queue::inspect::{Block, QueueFolder, Range};

use super::verify::describe;
use super::{ExportArgs, Out};
use crate::console::say;

/// Prints the events of a range. What is damaged is said and passed over, and makes the exit code 1.
pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        bail!("--from {from} is greater than --to {to}");
    }
    let queue = args.folder.only()?;
    let cursor = args.cursor.as_deref();
    let cursor = cursor.map(|output| queue.cursor(output)).transpose()?;
    let from = match &cursor {
        Some(saved) => saved.sequence,
        None => args.from.unwrap_or(0),
    };
    let range = Range {
        from,
        to: args.to.unwrap_or(u64::MAX),
    };
    let mut export = Export {
        out: Out::new(),
        text: Vec::new(),
        ids: args.ids,
        cursor,
        is_complete: true,
        failed: None,
    };
    let scan = queue.scan(range, false, &mut |block| export.block(&queue, block))?;
    if let Some(error) = export.failed {
        return Err(error);
    }
    export.out.flush()?;
    if !export.out.is_open {
        return Ok(ExitCode::SUCCESS);
    }
    for damage in &scan.damage {
        let file = queue.path().join(&damage.file);
        let word = if damage.torn { "warning" } else { "error" };
        say(&format!("{word}: {} {}", file.display(), describe(damage)));
        export.is_complete &= damage.torn;
    }
    Ok(if export.is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

struct Export {
    out: Out,
    /// The events of one block.
    text: Vec<u8>,
    ids: bool,
    /// Of the output whose events are wanted alone.
    cursor: Option<Saved>,
    is_complete: bool,
    failed: Option<anyhow::Error>,
}

impl Export {
    fn block(&mut self, queue: &QueueFolder, block: &Block) -> ControlFlow<()> {
        let sequence = block.header.sequence;
        let is_due = |saved: &Saved| saved.is_due(sequence);
        if block.superseded || !self.cursor.as_ref().is_none_or(is_due) {
            return ControlFlow::Continue(());
        }
        self.text.clear();
        let ids = self.ids.then_some(Some(sequence));
        let rendered = match queue.load(block) {
            Ok(payload) => render(payload, ids, &mut self.text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = rendered {
            self.is_complete = false;
            say(&format!(
                "error: {} at offset {}: {reason}; sequence {sequence} with {} is skipped",
                queue.path().join(block.file_name()).display(),
                block.offset,
                plural(u64::from(block.header.events), "event")
            ));
            return ControlFlow::Continue(());
        }
        if let Err(error) = self.out.write(&self.text) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        if self.out.is_open {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Appends the events of a frozen batch, one a line, each with its id and the sequence if that is asked for.
pub fn render(
    payload: Bytes,
    ids: Option<Option<u64>>,
    text: &mut Vec<u8>,
) -> Result<(), WireError> {
    let batch = Batch::thaw(payload)?;
    let writer = JsonWriter::new(&batch);
    let mut event = Vec::new();
    for row in batch.alive().iter() {
        event.clear();
        writer.write(row, &mut event);
        let body = match ids {
            Some(sequence) => {
                write_metadata(&batch, row, sequence, text);
                let body = event.get(1..).unwrap_or_default().trim_ascii_start();
                if body != b"}" {
                    text.push(b',');
                }
                body
            }
            None => &event,
        };
        let start = text.len();
        text.extend_from_slice(body);
        // Strings hold their newlines escaped, so that these stand between tokens.
        for byte in text[start..].iter_mut().filter(|byte| **byte == b'\n') {
            *byte = b' ';
        }
        text.push(b'\n');
    }
    Ok(())
}

fn write_metadata(batch: &Batch, row: usize, sequence: Option<u64>, text: &mut Vec<u8>) {
    text.extend_from_slice(br#"{"@metadata":{"id":"#);
    let mut id = Vec::new();
    batch.origin().write_id(row, &mut id);
    json::write_string(text, &id);
    if let Some(sequence) = sequence {
        text.extend_from_slice(format!(r#","sequence":{sequence}"#).as_bytes());
    }
    text.push(b'}');
}

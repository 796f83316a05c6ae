//! Reading columns, and checking what their cells point at.

use std::sync::Arc;

use bytes::Bytes;

use super::input::{Input, Result, damaged};
use super::{kept, series, tag};
use crate::cell::{Cell, Span};
use crate::column::{Cells, Column};
use crate::json;
use crate::origin::Origin;

/// What is known of the text in a region.
#[derive(Clone, Copy)]
enum Text {
    Unknown,
    Ascii,
    Utf8,
    /// Parts of it may be UTF-8 still.
    NotUtf8,
}

/// The regions, and the lists of buffers that columns have.
pub(super) struct Lists {
    lists: Vec<List>,
    /// What is known of each region; the first is the empty buffer.
    texts: Vec<Text>,
}

struct List {
    buffers: Arc<[Bytes]>,
    regions: Vec<u32>,
}

impl Lists {
    pub fn read(input: &mut Input<'_>, bytes: &Bytes, head_len: usize) -> Result<Self> {
        let mut regions = vec![Bytes::new()];
        let mut at = head_len;
        let lens = input.u32()? as usize;
        for len in input.items(lens)? {
            let end = usize::try_from(u64::from_le_bytes(*len))
                .ok()
                .and_then(|len| at.checked_add(len))
                .filter(|end| *end <= bytes.len());
            let Some(end) = end else {
                return damaged("its documents are cut off");
            };
            regions.push(bytes.slice(at..end));
            at = end;
        }
        if at != bytes.len() {
            return damaged("there is more than its documents");
        }
        let mut lists = Vec::new();
        for _ in 0..input.u32()? {
            let count = input.u32()? as usize;
            let numbers = input.items(count)?;
            let numbers: Vec<u32> = numbers.iter().map(|n| u32::from_le_bytes(*n)).collect();
            let buffers = numbers.iter().map(|&at| regions.get(at as usize).cloned());
            let Some(buffers) = buffers.collect::<Option<Vec<_>>>() else {
                return damaged("a buffer is not there");
            };
            lists.push(List {
                buffers: buffers.into(),
                regions: numbers,
            });
        }
        let texts = vec![Text::Unknown; regions.len()];
        Ok(Self { lists, texts })
    }

    /// Checks what the cells of a column of this list point at.
    fn check(&mut self, list: usize, cells: &[Cell]) -> Result<()> {
        let List { buffers, regions } = &self.lists[list];
        for cell in cells {
            let (Cell::Text(span) | Cell::Number(span) | Cell::Json(span)) = *cell else {
                continue;
            };
            let region = &buffers[span.buffer as usize];
            let known = &mut self.texts[regions[span.buffer as usize] as usize];
            if matches!(known, Text::Unknown) {
                *known = text_of(region);
            }
            let start = span.start as usize;
            let end = start + span.len as usize;
            let is_utf8 = match known {
                Text::Ascii => true,
                Text::Utf8 => is_boundary(region, start) && is_boundary(region, end),
                _ => simdutf8::basic::from_utf8(&region[start..end]).is_ok(),
            };
            if !is_utf8 {
                return damaged("a text is not UTF-8");
            }
            match cell {
                Cell::Json(_) if !is_json(&region[start..end]) => {
                    return damaged("a document is not JSON");
                }
                Cell::Number(_) if !is_number(&region[start..end]) => {
                    return damaged("a number is none");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn text_of(bytes: &[u8]) -> Text {
    if bytes.is_ascii() {
        Text::Ascii
    } else if simdutf8::basic::from_utf8(bytes).is_ok() {
        Text::Utf8
    } else {
        Text::NotUtf8
    }
}

fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)
}

/// Whether the bytes look like JSON from outside; where they do not at once, whether they are JSON.
fn is_json(text: &[u8]) -> bool {
    matches!(text, [b'{', .., b'}'] | [b'[', .., b']']) || json::validate(text).is_ok()
}

fn is_number(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'-' | b'0'..=b'9')) && json::validate(text).is_ok()
}

/// The column of a node, where it has one.
pub(super) fn column(
    input: &mut Input<'_>,
    lists: &mut Lists,
    origin: &Origin,
) -> Result<Option<Column>> {
    let len = origin.starts().len();
    let kind = input.u8()?;
    match kind {
        kept::NONE => return Ok(None),
        kept::STARTS => return Ok(Some(Column::offsets(origin.starts().clone()))),
        _ => {}
    }
    let number = input.u32()? as usize;
    let Some(list) = lists.lists.get(number) else {
        return damaged("a list of buffers is not there");
    };
    let buffers = list.buffers.clone();
    let cells = match kind {
        kept::CONSTANT => {
            let cell = constant(input, &buffers)?;
            lists.check(number, &[cell])?;
            Cells::Constant(cell, len)
        }
        kept::ROWS => {
            let cells = row_cells(input, &buffers, len)?;
            lists.check(number, &cells)?;
            Cells::Rows(cells)
        }
        _ => return damaged("an unknown kind of column"),
    };
    Ok(Some(Column::from_cells(cells, buffers)))
}

fn constant(input: &mut Input<'_>, buffers: &[Bytes]) -> Result<Cell> {
    let tag = input.u8()?;
    let mut number = [0; 8];
    if (tag::INT..tag::TEXT).contains(&tag) {
        number = input.array()?;
    }
    let mut span = Span::default();
    if tag >= tag::TEXT {
        span = Span {
            buffer: input.u32()?,
            start: input.u32()?,
            len: input.u32()?,
        };
        let end = u64::from(span.start) + u64::from(span.len);
        let fits = |buffer: &Bytes| end <= buffer.len() as u64;
        if !buffers.get(span.buffer as usize).is_some_and(fits) {
            return damaged("a value lies beyond its buffer");
        }
    }
    cell(tag, number, span)
}

fn row_cells(input: &mut Input<'_>, buffers: &[Bytes], len: usize) -> Result<Vec<Cell>> {
    input.charge(len, size_of::<Cell>())?;
    let all = input.u8()?;
    if all != tag::MIXED {
        let numbers = if (tag::INT..tag::TEXT).contains(&all) {
            input.items(len)?
        } else {
            &[]
        };
        if all >= tag::TEXT {
            let make = |span| cell(all, [0; 8], span);
            return spans(input, buffers, len)?.into_iter().map(make).collect();
        }
        if numbers.is_empty() {
            return Ok(vec![cell(all, [0; 8], Span::default())?; len]);
        }
        let make = |number: &[u8; 8]| cell(all, *number, Span::default());
        return numbers.iter().map(make).collect();
    }
    let tags = input.take(len)?;
    let count = |from: u8, to: u8| tags.iter().filter(|tag| (from..to).contains(tag)).count();
    let numbers = input.items(count(tag::INT, tag::TEXT))?;
    let spans = spans(input, buffers, count(tag::TEXT, tag::MSGPACK + 1))?;
    let (mut numbers, mut spans) = (numbers.iter(), spans.into_iter());
    let make = |&tag: &u8| match tag {
        tag::INT..tag::TEXT => {
            let number = numbers.next().copied().unwrap_or_default();
            cell(tag, number, Span::default())
        }
        tag::TEXT.. => cell(tag, [0; 8], spans.next().unwrap_or_default()),
        _ => cell(tag, [0; 8], Span::default()),
    };
    tags.iter().map(make).collect()
}

#[inline]
fn cell(tag: u8, number: [u8; 8], span: Span) -> Result<Cell> {
    let n = u64::from_le_bytes(number);
    Ok(match tag {
        tag::KEEP => Cell::Keep,
        tag::MISSING => Cell::Missing,
        tag::NULL => Cell::Null,
        tag::FALSE => Cell::Bool(false),
        tag::TRUE => Cell::Bool(true),
        tag::INT => Cell::Int(n as i64),
        tag::UINT => Cell::UInt(n),
        tag::FLOAT => Cell::Float(f64::from_bits(n)),
        tag::TIME => Cell::Time(n as i64),
        tag::TEXT => Cell::Text(span),
        tag::NUMBER => Cell::Number(span),
        tag::JSON => Cell::Json(span),
        tag::MSGPACK => Cell::MsgPack(span),
        _ => return damaged("an unknown kind of value"),
    })
}

/// Reads `count` spans, each of which lies in its buffer.
fn spans(input: &mut Input<'_>, buffers: &[Bytes], count: usize) -> Result<Vec<Span>> {
    let runs_count = input.u32()? as usize;
    let runs: &[[u8; 12]] = input.items(runs_count)?;
    let Some(gaps_count) = count.checked_sub(runs_count) else {
        return damaged("it has more runs than values");
    };
    let gaps = series::read(input, gaps_count)?;
    let lens = series::read(input, count)?;
    let mut spans = Vec::with_capacity(count);
    let (mut gaps, mut lens) = (&gaps[..], &lens[..]);
    for run in runs {
        let part = |at: usize| u32::from_le_bytes([run[at], run[at + 1], run[at + 2], run[at + 3]]);
        let (rows, buffer, first) = (part(0) as usize, part(4), part(8));
        let Some(bytes) = buffers.get(buffer as usize) else {
            return damaged("a buffer is not there");
        };
        let between = rows.checked_sub(1);
        let Some((gaps_here, gaps_left)) = between.and_then(|rows| gaps.split_at_checked(rows))
        else {
            return damaged("it has more runs than values");
        };
        let Some((lens_here, lens_left)) = lens.split_at_checked(rows) else {
            return damaged("it has more runs than values");
        };
        (gaps, lens) = (gaps_left, lens_left);
        // The first span of a run begins where the run says, as if after a gap of nothing.
        let limit = (bytes.len() as u64).min(u64::from(u32::MAX)) as i64;
        let mut end = i64::from(first);
        for (gap, len) in [0].iter().chain(gaps_here).zip(lens_here) {
            let start = end.wrapping_add(*gap);
            if !(0..=limit).contains(&start) || !(0..=limit - start).contains(len) {
                return damaged("a value lies beyond its buffer");
            }
            spans.push(Span {
                buffer,
                start: start as u32,
                len: *len as u32,
            });
            end = start + len;
        }
    }
    if spans.len() != count {
        return damaged("its runs do not hold all values");
    }
    Ok(spans)
}

//! Reading a batch: see the layout in the parent module. Nothing that is read is trusted.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::columns::{Lists, column};
use super::input::{Input, Result, damaged};
use super::{
    DOTTED, IDS, REENTRY, VERSION_1, VERSION_3, VERSION_4, VERSION_MAX, WireError, reentry, rows,
    series, source,
};
use crate::batch::{Batch, Drops, Encoding, HostInfo, ROW_OVERHEAD};
use crate::bitmap::Bitmap;
use crate::cell::Cell;
use crate::ids::Ids;
use crate::json;
use crate::origin::{Origin, Source, Stream};
use crate::reentry::Reentry;
use crate::tree::Node;

/// See [`Batch::thaw`].
pub(super) fn thaw(bytes: &Bytes) -> Result<Batch> {
    let mut preface = Input::new(bytes, bytes.len());
    let version = preface.u16()?;
    let version = match u8::try_from(version) {
        Ok(0) => return damaged("it has no version"),
        Ok(known @ 1..=VERSION_MAX) => known,
        Err(_) => return damaged("it is no batch"),
        Ok(_) => return Err(WireError::Newer { version }),
    };
    let flags = preface.u16()?;
    let head_len = preface.u32()? as usize;
    let (dotted, has_ids) = (flags & DOTTED != 0, flags & IDS != 0);
    let has_reentry = flags & REENTRY != 0;
    let encoding = match flags & !(DOTTED | IDS | REENTRY) {
        _ if has_ids && version == VERSION_1 => return damaged("unknown flags"),
        _ if has_reentry && version < VERSION_3 => return damaged("unknown flags"),
        0 => Encoding::Text,
        1 => Encoding::Json,
        2 => Encoding::MsgPack,
        _ => return damaged("unknown flags"),
    };
    let Some(head) = bytes.get(preface.at..head_len) else {
        return damaged("its head is cut off");
    };
    let mut input = Input::new(head, bytes.len());
    let len = input.u32()? as usize;
    let size = size(&mut input, len)?;
    let received = input.i64()?;
    let name = input.text()?.into();
    let mut origin = origin(&mut input, len, version)?;
    let (alive, sealed) = (bitmap(&mut input, len)?, bitmap(&mut input, len)?);
    let drops = drops(&mut input, len)?;
    let mut lists = Lists::read(&mut input, bytes, head_len)?;
    if has_ids {
        let ids = ids(&mut input, &mut lists, &origin)?;
        origin = origin.with_ids(ids);
    }
    let reentry = match has_reentry {
        true => Some(Arc::new(place(&mut input, version)?)),
        false => None,
    };
    let root = nodes(&mut input, &mut lists, &origin)?;
    if input.at != head.len() {
        return damaged("there is more than a batch in its head");
    }
    Ok(Batch {
        root,
        encoding,
        origin,
        host: Arc::new(HostInfo { name }),
        received,
        alive,
        sealed,
        drops,
        cache: Mutex::default(),
        dotted,
        size,
        reentry,
        charge: None,
    })
}

/// Where the batch goes on in its pipeline.
fn place(input: &mut Input<'_>, version: u8) -> Result<Reentry> {
    Ok(match input.u8()? {
        reentry::START => Reentry::Start,
        reentry::PROCESSOR => Reentry::Processor {
            index: input.u32()?,
            name: input.text()?.into(),
        },
        reentry::OUTPUT => Reentry::Output {
            name: input.text()?.into(),
        },
        reentry::OUTPUT_PROCESSOR if version >= VERSION_4 => Reentry::OutputProcessor {
            output: input.text()?.into(),
            index: input.u32()?,
            name: input.text()?.into(),
        },
        _ => return damaged("an unknown place to go on at"),
    })
}

/// The batch's size: what can be the sum of as many documents, so that sums of sizes never overflow.
fn size(input: &mut Input<'_>, len: usize) -> Result<usize> {
    let size = input.u64()?;
    let most = (len as u64).saturating_mul(u64::from(u32::MAX) + ROW_OVERHEAD as u64);
    match usize::try_from(size) {
        Ok(in_memory) if size <= most => Ok(in_memory),
        _ => damaged("its size is beyond what its rows can have"),
    }
}

fn origin(input: &mut Input<'_>, len: usize, version: u8) -> Result<Origin> {
    input.charge(len, 2 * size_of::<u64>())?;
    let streams: Vec<Arc<Stream>> = (0..input.u32()?)
        .map(|_| stream(input, version))
        .collect::<Result<_>>()?;
    let mut runs: Vec<(u32, Arc<Stream>)> = Vec::new();
    let mut firsts = Vec::new();
    for _ in 0..input.u32()? {
        let (row, stream) = (input.u32()?, input.u32()? as usize);
        let ascends = runs.last().map_or(row == 0, |(last, _)| *last <= row);
        let Some(stream) = streams
            .get(stream)
            .filter(|_| ascends && row as usize <= len)
        else {
            return damaged("its streams are out of order");
        };
        runs.push((row, stream.clone()));
        firsts.push(input.u64()?);
    }
    if runs.is_empty() && len > 0 {
        return damaged("its rows have no stream");
    }
    let ends_of_runs = runs.iter().skip(1).map(|(row, _)| *row as usize);
    let ranges: Vec<usize> = ends_of_runs.chain([len]).collect();
    let filled = runs
        .iter()
        .zip(&ranges)
        .filter(|((row, _), end)| (*row as usize) < **end);
    let gaps_count = len - filled.count();
    let gaps = series::read(input, gaps_count)?;
    let lens = series::read(input, len)?;
    let (mut starts, mut ends) = (Vec::with_capacity(len), Vec::with_capacity(len));
    let mut gaps = gaps.into_iter();
    let mut lens = lens.into_iter();
    for (((row, _), end), first) in runs.iter().zip(ranges).zip(firsts) {
        let mut start = first;
        for (index, len) in lens.by_ref().take(end - *row as usize).enumerate() {
            if index > 0 {
                start = start.wrapping_add(gaps.next().unwrap_or(0) as u64);
            }
            starts.push(start);
            start = start.wrapping_add(len as u64);
            ends.push(start);
        }
    }
    Ok(Origin::new(runs, starts, ends))
}

fn stream(input: &mut Input<'_>, version: u8) -> Result<Arc<Stream>> {
    let id = u128::from_le_bytes(input.array()?);
    let source = match input.u8()? {
        source::UNNAMED => Source::Unnamed,
        source::FILE => Source::File {
            path: input.text()?.into(),
        },
        source::CONNECTION.. if version == VERSION_1 => {
            return damaged("an unknown kind of stream");
        }
        source::CONNECTION => Source::Connection {
            peer: input.text()?.into(),
            listener: input.text()?.into(),
        },
        source::TOPIC => Source::Topic {
            name: input.text()?.into(),
            partition: input.u32()?,
        },
        source::GENERATED => Source::Generated,
        _ => return damaged("an unknown kind of stream"),
    };
    Ok(Arc::new(Stream::new(id, source)))
}

/// The ids that do not follow from places.
fn ids(input: &mut Input<'_>, lists: &mut Lists, origin: &Origin) -> Result<Option<Ids>> {
    let len = origin.starts().len();
    let Some(bases) = column(input, lists, origin)? else {
        return damaged("its ids are missing");
    };
    let is_base = |row| match bases.cell(row) {
        Cell::Keep => true,
        Cell::Text(span) => span.len > 0,
        _ => false,
    };
    if !(0..len).all(is_base) {
        return damaged("an id is no text");
    }
    input.charge(len, size_of::<i64>() + size_of::<Option<u32>>())?;
    let part = |index: i64| match index {
        0 => Ok(None),
        _ => match u32::try_from(index.wrapping_sub(1)) {
            Ok(index) => Ok(Some(index)),
            Err(_) => damaged("the number of a part is out of range"),
        },
    };
    let parts = series::read(input, len)?.into_iter().map(part);
    Ok(Ids::new(bases, parts.collect::<Result<_>>()?))
}

fn bitmap(input: &mut Input<'_>, len: usize) -> Result<Bitmap> {
    let words = len.div_ceil(64);
    input.charge(words, size_of::<u64>())?;
    match input.u8()? {
        rows::NONE => Ok(Bitmap::none(len)),
        rows::ALL => Ok(Bitmap::all(len)),
        rows::SOME => {
            let words = input.items(words)?;
            let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            Bitmap::from_words(words, len)
                .ok_or(WireError::Damaged("a set of rows beyond the last row"))
        }
        _ => damaged("an unknown kind of row set"),
    }
}

fn drops(input: &mut Input<'_>, len: usize) -> Result<Vec<Drops>> {
    let mut drops = Vec::new();
    for _ in 0..input.u32()? {
        let reason = input.text()?.into();
        let rows = bitmap(input, len)?;
        drops.push(Drops { reason, rows });
    }
    Ok(drops)
}

/// The tree of edits. It is built without recursion, so that no depth exhausts the stack.
fn nodes(input: &mut Input<'_>, lists: &mut Lists, origin: &Origin) -> Result<Node> {
    let mut open: Vec<(Node, u32)> = Vec::new();
    loop {
        let (mut node, mut children) = node(input, lists, origin)?;
        while children == 0 {
            let Some((mut parent, left)) = open.pop() else {
                return Ok(node);
            };
            parent.children.push(node);
            (node, children) = (parent, left - 1);
            if children == 0 && has_twins(&node.children) {
                return damaged("a key comes twice");
            }
        }
        if open.len() == json::DEPTH_MAX {
            return damaged("its keys nest too deeply");
        }
        open.push((node, children));
    }
}

fn node(input: &mut Input<'_>, lists: &mut Lists, origin: &Origin) -> Result<(Node, u32)> {
    let key = input.text()?.into();
    let children = input.u32()?;
    let own = column(input, lists, origin)?.map(Arc::new);
    let node = Node {
        key,
        own,
        children: Vec::new(),
    };
    Ok((node, children))
}

fn has_twins(nodes: &[Node]) -> bool {
    let mut keys: Vec<&str> = nodes.iter().map(|node| &*node.key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

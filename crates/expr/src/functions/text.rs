//! Functions of texts and lists.

use std::borrow::Cow;

use super::{text_of, whole_of};
use crate::fault::What;
use crate::value::Val;

pub(super) fn size<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let value = &args[0];
    let count = match value {
        Val::Text(_) => text_of(value)?.chars().count(),
        _ => match (value.elements(), value.members()) {
            (Some(elements), _) => elements.len(),
            (None, Some(members)) => members.len(),
            _ => return Err(What::Needs("a text, a list or a map", value.kind())),
        },
    };
    Ok(Val::Int(count as i64))
}

pub(super) fn lower<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    Ok(Val::text(text_of(&args[0])?.to_ascii_lowercase()))
}

pub(super) fn upper<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    Ok(Val::text(text_of(&args[0])?.to_ascii_uppercase()))
}

pub(super) fn trim<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?;
    let start = text.len() - text.trim_start().len();
    Ok(piece(&args[0], start, start + text.trim().len()))
}

pub(super) fn replace<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let (text, part, by) = (text_of(&args[0])?, text_of(&args[1])?, text_of(&args[2])?);
    let times = args.get(3).map(whole_of).transpose()?;
    Ok(match times.map(usize::try_from) {
        None | Some(Err(_)) => Val::text(text.replace(part, by)),
        Some(Ok(times)) => Val::text(text.replacen(part, by, times)),
    })
}

pub(super) fn split<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let (text, separator) = (text_of(&args[0])?, text_of(&args[1])?);
    let pieces = args.get(2).map(whole_of).transpose()?;
    let pieces = pieces.map_or(usize::MAX, |pieces| {
        usize::try_from(pieces).unwrap_or(usize::MAX)
    });
    let found = |piece_text: &str| {
        let start = piece_text.as_ptr() as usize - text.as_ptr() as usize;
        piece(&args[0], start, start + piece_text.len())
    };
    if !separator.is_empty() {
        return Ok(Val::list(
            text.splitn(pieces, separator).map(found).collect(),
        ));
    }
    let mut ends = text
        .char_indices()
        .map(|(start, c)| (start, start + c.len_utf8()))
        .collect::<Vec<_>>();
    if ends.len() > pieces {
        ends.truncate(pieces);
        if let Some(last) = ends.last_mut() {
            last.1 = text.len();
        }
    }
    Ok(Val::list(
        ends.into_iter()
            .map(|(start, end)| piece(&args[0], start, end))
            .collect(),
    ))
}

pub(super) fn join<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let elements = args[0]
        .elements()
        .ok_or(What::Needs("a list", args[0].kind()))?;
    let separator = args.get(1).map(text_of).transpose()?.unwrap_or("");
    let mut out = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator.as_bytes());
        }
        element.with_value(|value| value.write_text(&mut out));
    }
    Ok(Val::text(out))
}

pub(super) fn substring<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?;
    let end = args.get(2).map(whole_of).transpose()?.unwrap_or(i64::MAX);
    let byte_of = |index: i64| {
        let index = usize::try_from(index).unwrap_or(0);
        text.char_indices()
            .nth(index)
            .map_or(text.len(), |(at, _)| at)
    };
    let (start, end) = (byte_of(whole_of(&args[1])?), byte_of(end));
    Ok(piece(&args[0], start, end.max(start)))
}

/// A range of a text's bytes, without a copy where the text lies in the batch.
fn piece<'a>(value: &Val<'a>, start: usize, end: usize) -> Val<'a> {
    match value {
        Val::Text(Cow::Borrowed(text)) => Val::Text(Cow::Borrowed(&text[start..end])),
        Val::Text(Cow::Owned(text)) => Val::text(&text[start..end]),
        _ => Val::Absent,
    }
}

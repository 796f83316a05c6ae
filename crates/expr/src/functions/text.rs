//! Functions of texts. Positions count characters (Unicode code points), from 0.

use std::borrow::Cow;

use super::Takes::{Any, List, Plain, Replacement, Text, Whole};
use super::{BELOW_ZERO, FunctionDoc, INDEX, Kind, Question, list_of, text_of, whole_of};
use crate::fault::What;
use crate::types::Type;
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "contains",
        &[Text, Plain("matches")],
        Kind::Question(Question::Contains),
        [
            "text.contains(part) -> bool",
            "Whether the text contains the part, byte for byte.",
            "message.contains('index')",
        ],
    )
    .of_nothing(),
    FunctionDoc::new(
        "startsWith",
        &[Text, Plain("matches")],
        Kind::Question(Question::StartsWith),
        [
            "text.startsWith(part) -> bool",
            "Whether the text begins with the part.",
            "message.startsWith('GET ')",
        ],
    )
    .of_nothing(),
    FunctionDoc::new(
        "endsWith",
        &[Text, Plain("matches")],
        Kind::Question(Question::EndsWith),
        [
            "text.endsWith(part) -> bool",
            "Whether the text ends with the part.",
            "message.endsWith(' 502')",
        ],
    )
    .of_nothing(),
    FunctionDoc::new(
        "size",
        &[Any],
        Kind::Call(size),
        [
            "size(value) -> int",
            "The number of characters of a text, of elements of a list, or of members of a map.",
            "size(tags) == 2 && size(method) == 3",
        ],
    ),
    FunctionDoc::new(
        "lower",
        &[Text],
        Kind::Write(lower),
        [
            "text.lower() -> string",
            "The text in lower case, in every script.",
            "'ÄRGER'.lower() == 'ärger'",
        ],
    ),
    FunctionDoc::new(
        "upper",
        &[Text],
        Kind::Write(upper),
        [
            "text.upper() -> string",
            "The text in upper case, in every script.",
            "method.upper() == 'GET' && 'straße'.upper() == 'STRASSE'",
        ],
    ),
    FunctionDoc::new(
        "lowerAscii",
        &[Text],
        Kind::Write(lower_ascii),
        [
            "text.lowerAscii() -> string",
            "The text with its letters A to Z in lower case.",
            "'GET'.lowerAscii() == method",
        ],
    ),
    FunctionDoc::new(
        "upperAscii",
        &[Text],
        Kind::Write(upper_ascii),
        [
            "text.upperAscii() -> string",
            "The text with its letters a to z in upper case.",
            "method.upperAscii() == 'GET'",
        ],
    ),
    FunctionDoc::new(
        "trim",
        &[Text],
        Kind::Call(trim),
        [
            "text.trim() -> string",
            "The text without whitespace at its ends.",
            "'  get\\n'.trim() == method",
        ],
    ),
    FunctionDoc::new(
        "replace",
        &[Text, Plain("regex.replace"), Replacement, Whole],
        Kind::Write(replace),
        [
            "text.replace(part, by[, times]) -> string",
            "The text with a part, which is plain text, replaced everywhere or the first so many times. `regex.replace` takes a regular expression.",
            "message.replace('/', '_') == 'GET _index.html 502'",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "split",
        &[Text, Plain("regex.extractAll"), Whole],
        Kind::Call(split),
        [
            "text.split(separator[, pieces]) -> list",
            "The pieces of the text between the separators, at most so many; an empty separator splits into characters.",
            "message.split(' ')[2] == status",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "join",
        &[List, Text],
        Kind::Write(join),
        [
            "list.join([separator]) -> string",
            "The elements of a list as one text; a null is an empty text.",
            "tags.join(', ') == 'web, slow'",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "substring",
        &[Text, INDEX, INDEX],
        Kind::Call(substring),
        [
            "text.substring(start[, end]) -> string",
            "The characters from `start` up to but without `end`, counted from 0. What lies beyond the end is left out (in cel-go an error); a negative number is an error.",
            "message.substring(0, 3).lower() == method",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "charAt",
        &[Text, INDEX],
        Kind::Call(char_at),
        [
            "text.charAt(index) -> string",
            "The character at an index, counted from 0; an empty text at the end of the text, an error beyond it.",
            "message.charAt(4) == '/' && 'ab'.charAt(2) == ''",
        ],
    ),
    FunctionDoc::new(
        "indexOf",
        &[Text, Plain("regex.extract"), INDEX],
        Kind::Call(index_of),
        [
            "text.indexOf(part[, start]) -> int",
            "Where the part stands first, counted in characters from 0, not before `start`; -1 where it does not.",
            "message.indexOf('/') == 4 && message.indexOf('#') == -1",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "lastIndexOf",
        &[Text, Plain("regex.extract"), INDEX],
        Kind::Call(last_index_of),
        [
            "text.lastIndexOf(part[, start]) -> int",
            "Where the part stands last, counted in characters from 0, not after `start`; -1 where it does not.",
            "message.lastIndexOf(' ') == 15",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "reverse",
        &[Any],
        Kind::Call(reverse),
        [
            "reverse(value) -> string or list",
            "The characters of a text, or the elements of a list, in the opposite order.",
            "method.reverse() == 'teg' && tags.reverse()[0] == 'slow'",
        ],
    ),
    FunctionDoc::new(
        "format",
        &[Text, List],
        Kind::Format,
        [
            "text.format(list) -> string",
            "The text with the elements of the list in the places of `%s` (any value), `%d` (whole number), `%f` and `%e` (number; `%.2f` with two decimals, else six), `%x`, `%X`, `%o`, `%b` (whole number with base 16, 8 or 2; `%x` also the bytes of a text). `%%` is a percent sign. As many elements as places are needed; an absent one is an error, a null is `null`.",
            "'%s took %.1f s (%d bytes)'.format([method, took, bytes]) == 'get took 1.5 s (2048 bytes)'",
        ],
    ),
];

fn size<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
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

fn lower(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    change_case(text_of(&args[0])?, out, u8::to_ascii_lowercase, |text| {
        text.to_lowercase()
    });
    Ok(())
}

fn upper(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    change_case(text_of(&args[0])?, out, u8::to_ascii_uppercase, |text| {
        text.to_uppercase()
    });
    Ok(())
}

/// Texts of ASCII, which most are, take no room of their own.
fn change_case(
    text: &str,
    out: &mut Vec<u8>,
    ascii: impl Fn(&u8) -> u8,
    other: impl Fn(&str) -> String,
) {
    if text.is_ascii() {
        out.extend(text.as_bytes().iter().map(ascii));
    } else {
        out.extend_from_slice(other(text).as_bytes());
    }
}

fn lower_ascii(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    out.extend(
        text_of(&args[0])?
            .bytes()
            .map(|byte| byte.to_ascii_lowercase()),
    );
    Ok(())
}

fn upper_ascii(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    out.extend(
        text_of(&args[0])?
            .bytes()
            .map(|byte| byte.to_ascii_uppercase()),
    );
    Ok(())
}

fn trim<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?;
    let start = text.len() - text.trim_start().len();
    Ok(piece(&args[0], start, start + text.trim().len()))
}

fn replace(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let (text, part, by) = (text_of(&args[0])?, text_of(&args[1])?, text_of(&args[2])?);
    let times = args.get(3).map(whole_of).transpose()?;
    let times = times.map_or(usize::MAX, |times| {
        usize::try_from(times).unwrap_or(usize::MAX)
    });
    let mut end = 0;
    for (start, found) in text.match_indices(part).take(times) {
        out.extend_from_slice(&text.as_bytes()[end..start]);
        out.extend_from_slice(by.as_bytes());
        end = start + found.len();
    }
    out.extend_from_slice(&text.as_bytes()[end..]);
    Ok(())
}

fn split<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
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

fn join(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let elements = list_of(&args[0])?;
    let separator = args.get(1).map(text_of).transpose()?.unwrap_or("");
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator.as_bytes());
        }
        element.with_value(|value| value.write_text(out));
    }
    Ok(())
}

fn substring<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?;
    let end = args.get(2).map(whole_of).transpose()?.unwrap_or(i64::MAX);
    let byte_of = |index: i64| {
        let index = usize::try_from(index).map_err(|_| What::Other(BELOW_ZERO))?;
        let found = text.char_indices().nth(index);
        Ok(found.map_or(text.len(), |(at, _)| at))
    };
    let (start, end) = (byte_of(whole_of(&args[1])?)?, byte_of(end)?);
    Ok(piece(&args[0], start, end.max(start)))
}

const OUTSIDE: What = What::Other("the index lies outside the text");

/// The byte at which the character with this number begins; the end of the text counts as one more character.
fn byte_of(text: &str, index: i64) -> Result<usize, What> {
    let index = usize::try_from(index).map_err(|_| OUTSIDE)?;
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.nth(index).ok_or(OUTSIDE)
}

fn char_at<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?;
    let start = byte_of(text, whole_of(&args[1])?)?;
    let len = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(piece(&args[0], start, start + len))
}

fn index_of<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let (text, part) = (text_of(&args[0])?, text_of(&args[1])?);
    let start = args.get(2).map(whole_of).transpose()?.unwrap_or(0);
    let start = byte_of(text, start)?;
    Ok(character_of(
        text,
        text[start..].find(part).map(|at| start + at),
    ))
}

fn last_index_of<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let (text, part) = (text_of(&args[0])?, text_of(&args[1])?);
    let start = match args.get(2) {
        Some(start) => byte_of(text, whole_of(start)?)?,
        None => text.len(),
    };
    // The part may reach beyond where it may begin, up to a boundary between characters.
    let mut end = start.saturating_add(part.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(character_of(text, text[..end].rfind(part)))
}

fn character_of<'a>(text: &str, byte: Option<usize>) -> Val<'a> {
    Val::Int(byte.map_or(-1, |at| text[..at].chars().count() as i64))
}

fn reverse<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    match args[0].kind() {
        Type::Text => {
            let text: String = text_of(&args[0])?.chars().rev().collect();
            Ok(Val::text(text))
        }
        Type::List => {
            let mut elements = list_of(&args[0])?;
            elements.reverse();
            Ok(Val::list(elements))
        }
        other => Err(What::Needs("a text or a list", other)),
    }
}

/// A range of a text's bytes, without a copy where the text lies in the batch.
pub(super) fn piece<'a>(value: &Val<'a>, start: usize, end: usize) -> Val<'a> {
    match value {
        Val::Text(Cow::Borrowed(text)) => Val::Text(Cow::Borrowed(&text[start..end])),
        Val::Text(Cow::Owned(text)) => Val::text(&text[start..end]),
        _ => Val::Absent,
    }
}

//! Walking a valid text: skipping values, iterating over members and elements, finding one member.
//!
//! Strings are skipped sixteen bytes at a time, containers sixty-four: brackets outside strings are counted in bit
//! masks, without a look at what lies between them.

use std::ops::Range;

use super::lanes::{Block, Carry, Lanes, WIDTH};
use super::{byte_at, skip_whitespace};

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Any number
    Number,
    /// A string, quotes included
    String,
    /// An array
    Array,
    /// An object
    Object,
}

/// The type of a valid value without whitespace before it, by its first byte.
#[inline]
pub fn kind(value: &[u8]) -> Kind {
    match value.first() {
        Some(b'"') => Kind::String,
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b't' | b'f') => Kind::Bool,
        Some(b'-' | b'0'..=b'9') => Kind::Number,
        _ => Kind::Null,
    }
}

/// Where the value that begins at `pos` ends. `pos` is its first byte; the result is at most `text.len()`.
#[inline]
pub fn skip_value(text: &[u8], pos: usize) -> usize {
    let end = match byte_at(text, pos) {
        b'"' => skip_string(text, pos + 1),
        b'{' | b'[' => skip_container(text, pos),
        _ => skip_scalar(text, pos),
    };
    end.min(text.len())
}

#[inline(always)]
fn skip_string(text: &[u8], mut pos: usize) -> usize {
    while pos < text.len() {
        let stops = Lanes::load(text, pos).quotes_and_backslashes();
        if stops == 0 {
            pos += WIDTH;
            continue;
        }
        pos += stops.trailing_zeros() as usize;
        if byte_at(text, pos) == b'"' {
            return pos + 1;
        }
        pos += 2;
    }
    pos
}

/// The body of a JSON string, without its quotes.
pub(crate) enum StringBody<'a> {
    /// Its bytes are its text.
    Plain(&'a [u8]),
    /// It holds escape sequences.
    Escaped(&'a [u8]),
}

/// The string whose opening quote stands at `pos`, and where it ends.
#[inline(always)]
pub(crate) fn string_at(text: &[u8], pos: usize) -> (StringBody<'_>, usize) {
    let start = pos + 1;
    let mut at = start;
    while at < text.len() {
        let stops = Lanes::load(text, at).quotes_and_backslashes();
        if stops == 0 {
            at += WIDTH;
            continue;
        }
        at += stops.trailing_zeros() as usize;
        if byte_at(text, at) == b'"' {
            return (StringBody::Plain(&text[start..at]), at + 1);
        }
        break;
    }
    let end = skip_string(text, at).min(text.len());
    let body = text.get(start..end.saturating_sub(1)).unwrap_or_default();
    (StringBody::Escaped(body), end)
}

#[inline(always)]
fn skip_scalar(text: &[u8], mut pos: usize) -> usize {
    while pos < text.len() {
        let ends = Lanes::load(text, pos).scalar_ends();
        if ends != 0 {
            return pos + ends.trailing_zeros() as usize;
        }
        pos += WIDTH;
    }
    pos
}

fn skip_container(text: &[u8], mut pos: usize) -> usize {
    let mut carry = Carry::default();
    let mut depth = 0;
    while pos < text.len() {
        let block = Block::load(text, pos, &mut carry);
        // Most blocks have none, and without an instruction of its own, counting takes as long as a third of the rest.
        if block.opens | block.closes == 0 {
            pos += Block::WIDTH;
            continue;
        }
        let mut closes = block.closes;
        let (mut opens_seen, mut closes_seen) = (0, 0);
        while closes != 0 {
            let below = (closes & closes.wrapping_neg()) - 1;
            opens_seen = (block.opens & below).count_ones();
            closes_seen += 1;
            if depth + opens_seen <= closes_seen {
                return pos + closes.trailing_zeros() as usize + 1;
            }
            closes &= closes - 1;
        }
        depth = depth + block.opens.count_ones().max(opens_seen) - closes_seen;
        pos += Block::WIDTH;
    }
    pos
}

/// One member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key's bytes between its quotes. In a normalised text it is what [`super::write_string_body`] writes.
    pub key: &'a [u8],
    /// Where the key's opening quote stands, in bytes from the start of the object's text.
    pub start: usize,
    /// Where the value lies, in the same measure. The member ends with it; a comma or the closing bracket follows.
    pub value: Range<usize>,
}

/// The members of an object in their order; see [`members`].
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    pos: usize,
}

/// Iterates over the members of `object`, a valid text of an object with or without whitespace around it.
#[inline]
pub fn members(object: &[u8]) -> Members<'_> {
    Members {
        text: object,
        pos: skip_whitespace(object, 0) + 1,
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    #[inline]
    fn next(&mut self) -> Option<Member<'a>> {
        let mut start = skip_whitespace(self.text, self.pos);
        if byte_at(self.text, start) == b',' {
            start = skip_whitespace(self.text, start + 1);
        }
        if byte_at(self.text, start) != b'"' {
            self.pos = self.text.len();
            return None;
        }
        let key_end = skip_string(self.text, start + 1);
        let key = self.text.get(start + 1..key_end - 1)?;
        let colon = skip_whitespace(self.text, key_end);
        let value = skip_whitespace(self.text, colon + 1);
        self.pos = skip_value(self.text, value);
        (value <= self.pos).then_some(Member {
            key,
            start,
            value: value..self.pos,
        })
    }
}

/// The elements of an array in their order; see [`elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    pos: usize,
}

/// Iterates over where the elements of `array` lie, a valid text of an array with or without whitespace around it.
#[inline]
pub fn elements(array: &[u8]) -> Elements<'_> {
    Elements {
        text: array,
        pos: skip_whitespace(array, 0) + 1,
    }
}

impl Iterator for Elements<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let mut start = skip_whitespace(self.text, self.pos);
        if byte_at(self.text, start) == b',' {
            start = skip_whitespace(self.text, start + 1);
        }
        if matches!(byte_at(self.text, start), b']' | 0) {
            self.pos = self.text.len();
            return None;
        }
        self.pos = skip_value(self.text, start);
        (start < self.pos).then_some(start..self.pos)
    }
}

/// Whether a container, without whitespace before it, has no members or elements.
#[inline]
pub fn is_empty(container: &[u8]) -> bool {
    let first = skip_whitespace(container, 1);
    matches!(byte_at(container, first), b'}' | b']' | 0)
}

/// Where the value of `object`'s member `key` lies; `key` as [`super::write_string_body`] writes it.
///
/// The key's bytes are searched for first, in quotes, wherever they stand; only a hit makes it worthwhile to count
/// brackets up to there. So a key that does not occur costs little more than a search for a byte.
pub fn find(object: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let mut nesting = None;
    find_by(object, key, |at| match at {
        _ if object.len() - at < at.min(REST_MAX) => is_last_member_key(object, at),
        _ => nesting
            .get_or_insert_with(|| Nesting::new(object))
            .is_member_key(at),
    })
}

/// The same; `is_member_key` says whether a string opens at a place that belongs to the object itself. It is asked for ascending places.
#[inline(always)]
fn find_by(
    object: &[u8],
    key: &[u8],
    mut is_member_key: impl FnMut(usize) -> bool,
) -> Option<Range<usize>> {
    let last = key.last().copied().unwrap_or(b'"');
    // The same places of the text, of the text from a key's last byte on, and of the text from its closing quote on.
    let (parts, _) = object.as_chunks::<WIDTH>();
    let (parts_last, _) = object.get(key.len()..)?.as_chunks::<WIDTH>();
    let behind = object.get(key.len() + 1..)?;
    let (parts_behind, _) = behind.as_chunks::<WIDTH>();
    let mut pos = 0;
    for ((part, part_last), part_behind) in parts.iter().zip(parts_last).zip(parts_behind) {
        let hits = Lanes::new(*part).quoted(Lanes::new(*part_last), Lanes::new(*part_behind), last);
        if hits != 0
            && let Some(value) = first_member(object, key, pos, hits, &mut is_member_key)
        {
            return Some(value);
        }
        pos += WIDTH;
    }
    // The last places again in one step, without those that were looked at.
    let start = behind.len().saturating_sub(WIDTH);
    let hits = Lanes::load(object, start).quoted(
        Lanes::load(object, start + key.len()),
        Lanes::load(object, start + key.len() + 1),
        last,
    );
    let hits = hits >> (pos - start) << (pos - start);
    first_member(object, key, start, hits, &mut is_member_key)
}

/// The value of the first among the `hits` from `pos` on that is the object's own member with that key.
fn first_member(
    object: &[u8],
    key: &[u8],
    pos: usize,
    mut hits: u32,
    is_member_key: &mut impl FnMut(usize) -> bool,
) -> Option<Range<usize>> {
    while hits != 0 {
        let at = pos + hits.trailing_zeros() as usize;
        let end = at + 1 + key.len();
        let mut is_key = || match at {
            // What stands right behind the bracket is the first member.
            1 if object[0] == b'{' => true,
            _ => is_member_key(at),
        };
        if object.get(at + 1..end) == Some(key) && is_key() {
            let colon = skip_whitespace(object, end + 1);
            if byte_at(object, colon) == b':' {
                let value = skip_whitespace(object, colon + 1);
                let value_end = skip_value(object, value);
                return (value < value_end).then_some(value..value_end);
            }
        }
        hits &= hits - 1;
    }
    None
}

/// A key as [`super::write_string_body`] writes it, to be compared with many.
pub(crate) struct NotedKey {
    /// With the quote behind it.
    quoted: Vec<u8>,
    /// The first bytes of this.
    head: Lanes,
    /// A bit for each of its bytes; 0 if it does not fit in the head.
    mask: u32,
}

impl NotedKey {
    pub fn new(mut key: Vec<u8>) -> Self {
        key.push(b'"');
        let quoted = key;
        let mask = match quoted.len() <= WIDTH {
            true => u32::MAX >> (u32::BITS as usize - quoted.len()),
            false => 0,
        };
        Self {
            head: Lanes::load(&quoted, 0),
            mask,
            quoted,
        }
    }

    /// The key's bytes.
    pub fn text(&self) -> &[u8] {
        &self.quoted[..self.quoted.len() - 1]
    }

    /// Whether it is what stands from `start` to the next quote.
    #[inline(always)]
    fn stands_at(&self, object: &[u8], start: usize) -> bool {
        if self.mask != 0 {
            return Lanes::load(object, start).equal_to(self.head) & self.mask == self.mask;
        }
        object.get(start..start + self.quoted.len()) == Some(&self.quoted)
    }
}

/// As [`find`], in an object whose members have their keys at the places `places`, opening quotes included. `guess` is the number of the
/// member that had the key in the object before, and in this one afterwards.
#[inline]
pub(crate) fn find_noted(
    object: &[u8],
    key: &NotedKey,
    places: &[u16],
    guess: &mut usize,
) -> Option<Range<usize>> {
    let is_key = |place: &u16| key.stands_at(object, usize::from(*place) + 1);
    if !places.get(*guess).is_some_and(is_key) {
        *guess = places.iter().position(is_key)?;
    }
    let key_end = usize::from(places[*guess]) + 1 + key.quoted.len();
    value_behind(object, key_end, places.get(*guess + 1))
}

/// As [`members`], of an object whose members have their keys at the places `places`, opening quotes included, without a look at most values.
#[inline]
pub(crate) fn members_noted<'a>(
    object: &'a [u8],
    places: &'a [u16],
) -> impl Iterator<Item = Member<'a>> + 'a {
    places.iter().enumerate().map_while(move |(index, place)| {
        let start = usize::from(*place);
        let key_end = skip_string(object, start + 1);
        let key = object.get(start + 1..key_end - 1)?;
        let value = value_behind(object, key_end, places.get(index + 1))?;
        Some(Member { key, start, value })
    })
}

/// The value of the member whose key, quotes included, ends at `key_end`. `next` is where the next key opens.
#[inline]
fn value_behind(object: &[u8], key_end: usize, next: Option<&u16>) -> Option<Range<usize>> {
    let colon = skip_whitespace(object, key_end);
    let value = skip_whitespace(object, colon + 1);
    let end = end_before(object, value, next.map(|place| usize::from(*place)));
    debug_assert!(value < end, "places belong to their document");
    (value < end).then_some(value..end)
}

/// Where the value that begins at `pos` ends, given where the next member or element of its container begins, which is all of `text`.
#[inline]
pub(crate) fn end_before(text: &[u8], pos: usize, next: Option<usize>) -> usize {
    // What ends it mostly: a comma right before the next one, or the container's bracket.
    let last = next.unwrap_or(text.len()) - 1;
    match matches!(text[last], b',' | b'}' | b']') && text[last - 1] > b' ' {
        true => last,
        false => skip_value(text, pos),
    }
}

/// How much of a text is read behind a place, instead of all before it, to learn how deep that is nested.
const REST_MAX: usize = 4 * Block::WIDTH;

/// What [`Nesting::is_member_key`] says, by what stands from `at` on: it closes one bracket more than it opens. If there were no string that opens
/// at `at`, strings would be taken for what lies between them, and the text would end inside one.
#[inline]
fn is_last_member_key(text: &[u8], at: usize) -> bool {
    if at == 0 || text[at - 1] == b'\\' {
        return false;
    }
    let mut carry = Carry::default();
    let mut depth = 0;
    for pos in (at..text.len()).step_by(Block::WIDTH) {
        depth += balance(&Block::load(text, pos, &mut carry), u64::MAX);
    }
    depth == -1 && !carry.is_in_string()
}

/// How deep the positions of a text are nested, for ascending positions.
struct Nesting<'a> {
    text: &'a [u8],
    carry: Carry,
    block: Block,
    /// Where the block begins, and how many brackets are open there.
    pos: usize,
    depth: i64,
}

impl<'a> Nesting<'a> {
    fn new(text: &'a [u8]) -> Self {
        let mut carry = Carry::default();
        let block = Block::load(text, 0, &mut carry);
        Self {
            text,
            carry,
            block,
            pos: 0,
            depth: 0,
        }
    }

    /// Whether a string opens at `at` that belongs to the outermost container itself.
    #[inline]
    fn is_member_key(&mut self, at: usize) -> bool {
        while at - self.pos >= Block::WIDTH {
            self.depth += balance(&self.block, u64::MAX);
            self.pos += Block::WIDTH;
            self.block = Block::load(self.text, self.pos, &mut self.carry);
        }
        let bit = 1u64 << (at - self.pos);
        self.block.opening_quotes & bit != 0 && self.depth + balance(&self.block, bit - 1) == 1
    }
}

/// How deep the positions of a text are nested, for several searches: what one has looked at, the next ones know.
#[derive(Default)]
pub(crate) struct SharedNesting {
    /// The blocks from the beginning on, and how many brackets are open before each.
    blocks: Vec<(Block, i64)>,
    carry: Carry,
    /// How many are open behind the last one.
    depth: i64,
}

impl SharedNesting {
    /// Another text comes.
    pub fn restart(&mut self) {
        self.blocks.clear();
        self.carry = Carry::default();
        self.depth = 0;
    }

    /// As [`find`], in the text that was looked at since the restart.
    pub fn find(&mut self, object: &[u8], key: &[u8]) -> Option<Range<usize>> {
        find_by(object, key, |at| self.is_member_key(object, at))
    }

    #[inline]
    fn is_member_key(&mut self, text: &[u8], at: usize) -> bool {
        while at / Block::WIDTH >= self.blocks.len() {
            let pos = self.blocks.len() * Block::WIDTH;
            let block = Block::load(text, pos, &mut self.carry);
            self.blocks.push((block, self.depth));
            self.depth += balance(&block, u64::MAX);
        }
        let (block, depth) = &self.blocks[at / Block::WIDTH];
        let bit = 1u64 << (at % Block::WIDTH);
        block.opening_quotes & bit != 0 && depth + balance(block, bit - 1) == 1
    }
}

#[inline(always)]
fn balance(block: &Block, below: u64) -> i64 {
    // Most blocks have none, and without an instruction of its own, counting takes as long as all the rest.
    if block.opens | block.closes == 0 {
        return 0;
    }
    i64::from((block.opens & below).count_ones()) - i64::from((block.closes & below).count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn members_are_found_wherever_they_stand() {
        for before in 0..70 {
            for after in 0..20 {
                // The key also stands in a text, in an object within, and in another key.
                let (before, after) = ("x".repeat(before), "y".repeat(after));
                let head = format!(r#""t":"{before}\"key\"","o":{{"key":[1]}},"keys":0"#);
                for object in [
                    format!(r#"{{{head},"key":{{"a":7}},"z":"{after}"}}"#),
                    format!(r#"{{"key":{{"a":7}},{head},"z":"{after}"}}"#),
                    format!(r#"{{"{before}":1,"key":{{"a":7}}}}"#),
                    format!(r#" {{"key":{{"a":7}}}}{}"#, " ".repeat(after.len())),
                ] {
                    let found = find(object.as_bytes(), b"key").map(|at| &object[at]);
                    assert_eq!(found, Some(r#"{"a":7}"#), "{object}");
                }
                let object = format!(r#"{{{head},"z":"{after}"}}"#);
                assert_eq!(find(object.as_bytes(), b"key"), None, "{object}");
            }
        }
        for object in [
            "",
            "{",
            "{}",
            r#"{"key"#,
            r#"{"key""#,
            r#"{"key":"#,
            r#""key""#,
        ] {
            assert_eq!(find(object.as_bytes(), b"key"), None, "{object}");
        }
    }

    proptest! {
        #[test]
        fn late_members_are_told_from_what_looks_like_them(
            values in prop::collection::vec("[k\"\\\\,:{}\\[\\]]{0,40}", 0..12),
            nested in prop::collection::vec(any::<bool>(), 12),
            last in prop::option::of("[k\"]{0,80}"),
            guess in 0..20usize,
        ) {
            let mut object = serde_json::Map::new();
            for (index, value) in values.iter().enumerate() {
                let value = match nested[index] {
                    true => serde_json::json!([{ "k": value }, value]),
                    false => serde_json::json!(value),
                };
                object.insert(format!("{value}{index}"), value);
            }
            if let Some(last) = &last {
                object.insert("k".to_owned(), last.as_str().into());
            }
            object.insert("z".to_owned(), serde_json::json!({ "k": values }));
            let text = serde_json::to_string(&object).expect("it writes");
            let expected = members(text.as_bytes()).find(|member| member.key == b"k");
            let found = find(text.as_bytes(), b"k");
            prop_assert_eq!(found, expected.map(|member| member.value), "{}", text);
            prop_assert_eq!(last.is_some(), find(text.as_bytes(), b"k").is_some());
            let noted_in = |text: &str| {
                let mut noted = crate::json::Noted::new();
                crate::json::validate_object_noting(text.as_bytes(), &mut noted).expect("valid");
                noted.members().to_vec()
            };
            let places = noted_in(&text);
            let starts: Vec<u16> = members(text.as_bytes()).map(|member| member.start as u16).collect();
            prop_assert_eq!(&places, &starts, "{}", text);
            let walked: Vec<_> = members(text.as_bytes()).collect();
            prop_assert_eq!(members_noted(text.as_bytes(), &places).collect::<Vec<_>>(), walked);
            let spaced = serde_json::to_string_pretty(&object).expect("it writes");
            let spaced_places = noted_in(&spaced);
            let walked: Vec<_> = members(spaced.as_bytes()).collect();
            prop_assert_eq!(members_noted(spaced.as_bytes(), &spaced_places).collect::<Vec<_>>(), walked);
            let (mut guess, mut spaced_guess) = (guess, guess);
            let mut shared = SharedNesting::default();
            for key in object.keys().rev().chain(["k".to_owned()].iter()) {
                let mut key_text = Vec::new();
                crate::json::write_string_body(&mut key_text, key.as_bytes());
                let found = shared.find(text.as_bytes(), &key_text);
                prop_assert_eq!(&found, &find(text.as_bytes(), &key_text), "{} in {}", key, text);
                let noted_key = NotedKey::new(key_text.clone());
                let listed = find_noted(text.as_bytes(), &noted_key, &places, &mut guess);
                prop_assert_eq!(&listed, &found, "{} in {}", key, text);
                let listed = find_noted(spaced.as_bytes(), &noted_key, &spaced_places, &mut spaced_guess);
                prop_assert_eq!(listed, find(spaced.as_bytes(), &key_text), "{} in {}", key, spaced);
            }
        }
    }

    #[test]
    fn empty_containers_are_told() {
        for (container, expected) in [
            ("{}", true),
            ("[ \n]", true),
            (r#"{ "a":1}"#, false),
            ("[[]]", false),
        ] {
            assert_eq!(is_empty(container.as_bytes()), expected, "{container}");
        }
    }
}

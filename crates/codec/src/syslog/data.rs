//! Structured data of RFC 5424, as a JSON object of objects.
//!
//! ```text
//! DATA     1*ELEMENT
//! ELEMENT  "[" ID *(1*SP NAME "=" QUOTE VALUE QUOTE) "]"
//! ```
//! Inside a value a backslash takes its meaning from a quote, a backslash or `]`; before anything else it stands for
//! itself (section 6.3.3). A name that comes several times in an element, which the RFC allows, gives an array of its
//! values. An element that comes several times, which the RFC forbids, gives an array of objects: none of them is lost, and
//! what stood together stays together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use batch::json;

use super::Problem;

/// Up to how many names are compared each with each.
const FEW: usize = 16;

/// What was read last, and room to read it in.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The object; in normal form.
    pub json: Vec<u8>,
    /// Some key holds a dot.
    pub dotted_keys: bool,
    elements: Vec<Element>,
    params: Vec<Param>,
}

/// An element that was read.
#[derive(Debug, Clone)]
struct Element {
    /// The name's place in the line.
    id: Range<usize>,
    /// The object's place in [`Scratch::json`].
    object: Range<usize>,
}

/// A parameter's place in its line.
#[derive(Debug, Clone)]
struct Param {
    name: Range<usize>,
    value: Range<usize>,
    /// The value holds a backslash.
    has_escape: bool,
}

/// Reads the structured data of `line` that begins at `at`, and gives where it ends.
pub(super) fn parse(line: &[u8], mut at: usize, scratch: &mut Scratch) -> Result<usize, Problem> {
    scratch.json.clear();
    scratch.elements.clear();
    scratch.dotted_keys = false;
    if line.get(at) != Some(&b'[') {
        return Err(Problem::new("expected structured data or `-`", at));
    }
    scratch.json.push(b'{');
    while line.get(at) == Some(&b'[') {
        at = element(line, at + 1, scratch)?;
    }
    scratch.json.push(b'}');
    let elements = scratch.elements.as_slice();
    let ids = elements.iter().map(|element| element.id.clone());
    if elements.len() > 1 && has_repeated(line, ids) {
        write_repeated_elements(line, scratch);
    }
    Ok(at)
}

/// Writes the object anew: of elements with the same name an array, at the first one's place.
#[cold]
fn write_repeated_elements(line: &[u8], scratch: &mut Scratch) {
    let written = std::mem::take(&mut scratch.json);
    let groups = grouped(&scratch.elements, |element| &line[element.id.clone()]);
    let json = &mut scratch.json;
    for (index, group) in groups.iter().enumerate() {
        json.push(if index == 0 { b'{' } else { b',' });
        json::write_string(json, &line[group[0].id.clone()]);
        json.push(b':');
        write_one_or_array(group, json, |element, json| {
            json.extend_from_slice(&written[element.object.clone()]);
        });
    }
    json.push(b'}');
}

/// Reads an element from its name on, writes it, and gives where it ends.
fn element(line: &[u8], start: usize, scratch: &mut Scratch) -> Result<usize, Problem> {
    let id = name(line, start, &mut scratch.dotted_keys)?;
    let mut at = id.end;
    scratch.params.clear();
    loop {
        match line.get(at) {
            Some(b']') => break,
            Some(b' ') => at += 1,
            _ => return Err(Problem::new("expected a parameter or `]`", at)),
        }
        if matches!(line.get(at), Some(b' ' | b']')) {
            continue;
        }
        let name = name(line, at, &mut scratch.dotted_keys)?;
        if !line[name.end..].starts_with(b"=\"") {
            return Err(Problem::new(
                "expected `=` and a quote after the name",
                name.end,
            ));
        }
        let (value, has_escape) = value(line, name.end + 2)?;
        at = value.end + 1;
        scratch.params.push(Param {
            name,
            value,
            has_escape,
        });
    }
    let object = write_element(line, &id, scratch);
    scratch.elements.push(Element { id, object });
    Ok(at + 1)
}

/// A name: printable ASCII without `=`, `]`, quotes and spaces.
#[inline]
fn name(line: &[u8], start: usize, dotted: &mut bool) -> Result<Range<usize>, Problem> {
    let mut end = start;
    while let Some(byte) = line.get(end)
        && byte.is_ascii_graphic()
        && !matches!(byte, b'=' | b']' | b'"')
    {
        *dotted |= *byte == b'.';
        end += 1;
    }
    if end == start {
        return Err(Problem::new(
            "expected a name in the structured data",
            start,
        ));
    }
    Ok(start..end)
}

/// A value from after its quote up to the next one; whether it holds a backslash.
#[inline]
fn value(line: &[u8], start: usize) -> Result<(Range<usize>, bool), Problem> {
    let mut at = start;
    let mut has_escape = false;
    loop {
        match memchr::memchr2(b'"', b'\\', line.get(at..).unwrap_or_default()) {
            None => return Err(Problem::new("a value without a closing quote", start - 1)),
            Some(len) if line[at + len] == b'"' => return Ok((start..at + len, has_escape)),
            Some(len) => {
                has_escape = true;
                // Only the three escapes take the next byte with them; `\x"` ends at its quote like `x"`.
                let next = line.get(at + len + 1);
                let escapes = matches!(next, Some(b'"' | b'\\' | b']'));
                at += len + 1 + usize::from(escapes);
            }
        }
    }
}

/// Writes an element, and gives the place of its object.
fn write_element(line: &[u8], id: &Range<usize>, scratch: &mut Scratch) -> Range<usize> {
    let Scratch { json, params, .. } = scratch;
    if json.len() > 1 {
        json.push(b',');
    }
    json::write_string(json, &line[id.clone()]);
    json.push(b':');
    let start = json.len();
    json.push(b'{');
    let names = params.iter().map(|param| param.name.clone());
    if has_repeated(line, names) {
        write_groups(line, params, json);
    } else {
        for (index, param) in params.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            json::write_string(json, &line[param.name.clone()]);
            json.push(b':');
            write_value(line, param, json);
        }
    }
    json.push(b'}');
    start..json.len()
}

/// Writes parameters of which some have the same name: their values as an array, at the first one's place.
#[cold]
fn write_groups(line: &[u8], params: &[Param], json: &mut Vec<u8>) {
    let groups = grouped(params, |param| &line[param.name.clone()]);
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        json::write_string(json, &line[group[0].name.clone()]);
        json.push(b':');
        write_one_or_array(group, json, |param, json| write_value(line, param, json));
    }
}

/// The items in groups of the same name, in the order of their first ones.
fn grouped<'l, 'i, T>(items: &'i [T], name: impl Fn(&T) -> &'l [u8]) -> Vec<Vec<&'i T>> {
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut groups: Vec<Vec<&T>> = Vec::new();
    for item in items {
        match places.entry(name(item)) {
            Entry::Occupied(place) => groups[*place.get()].push(item),
            Entry::Vacant(place) => {
                place.insert(groups.len());
                groups.push(vec![item]);
            }
        }
    }
    groups
}

/// Writes a single value as it is, several as an array.
fn write_one_or_array<T>(values: &[T], json: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    if let [only] = values {
        return write(only, json);
    }
    for (index, value) in values.iter().enumerate() {
        json.push(if index == 0 { b'[' } else { b',' });
        write(value, json);
    }
    json.push(b']');
}

#[inline]
fn write_value(line: &[u8], param: &Param, json: &mut Vec<u8>) {
    let value = &line[param.value.clone()];
    if !param.has_escape {
        return json::write_string(json, value);
    }
    json.push(b'"');
    let mut rest = value;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let escapes = matches!(rest.get(at + 1), Some(b'"' | b'\\' | b']'));
        // The backslash of an escape goes; any other one stays, with what stands before it.
        json::write_string_body(json, &rest[..at + usize::from(!escapes)]);
        rest = &rest[at + 1..];
        if escapes {
            json::write_string_body(json, &rest[..1]);
            rest = &rest[1..];
        }
    }
    json::write_string_body(json, rest);
    json.push(b'"');
}

/// Whether some of the names of `line` are the same.
#[inline]
fn has_repeated(line: &[u8], names: impl ExactSizeIterator<Item = Range<usize>> + Clone) -> bool {
    if names.len() > FEW {
        return has_repeated_of_many(line, names.collect());
    }
    names.clone().enumerate().any(|(index, name)| {
        let mut before = names.clone().take(index);
        before.any(|other| line[other] == line[name.clone()])
    })
}

#[cold]
fn has_repeated_of_many(line: &[u8], mut names: Vec<Range<usize>>) -> bool {
    names.sort_by_key(|name| &line[name.clone()]);
    let mut pairs = names.windows(2);
    pairs.any(|pair| line[pair[0].clone()] == line[pair[1].clone()])
}

//! The JSON form of a push request:
//!
//! ```text
//! {"streams": [{"stream": {LABEL: TEXT, …}, "values": [[NANOSECONDS, LINE, {NAME: TEXT, …}], …]}, …]}
//! ```
//!
//! The object of an entry, its structured metadata, may be missing.

use batch::json::{self, Kind};

use super::item::{Entry, Item, Line, Pairs};

/// Calls for every stream and its entries. The body is a valid object in normal form.
pub(super) fn walk(
    body: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let streams = json::find(body, b"streams").map(|streams| &body[streams]);
    let Some(streams) = streams.filter(|streams| json::kind(streams) == Kind::Array) else {
        return Err("`streams` is missing, or not an array".to_owned());
    };
    for (number, place) in json::elements(streams).enumerate() {
        stream(&streams[place], visit).map_err(|reason| format!("stream {number}{reason}"))?;
    }
    Ok(())
}

fn stream(
    stream: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let missing = |what: &str| Err(format!(": {what}"));
    if json::kind(stream) != Kind::Object {
        return missing("it is not an object");
    }
    let (mut labels, mut values) = (None, None);
    for member in json::members(stream) {
        let value = &stream[member.value];
        match member.key {
            b"stream" => labels = Some(value),
            b"values" => values = Some(value),
            _ => {}
        }
    }
    let Some(labels) = labels.filter(|labels| is_texts(labels)) else {
        return missing("`stream` is missing, or not an object of text");
    };
    let Some(values) = values.filter(|values| json::kind(values) == Kind::Array) else {
        return missing("`values` is missing, or not an array");
    };
    visit(Item::Stream(Pairs::Json(labels))).map_err(|reason| format!(": {reason}"))?;
    for (number, place) in json::elements(values).enumerate() {
        let visited = entry(&values[place]).and_then(|entry| visit(Item::Entry(entry)));
        visited.map_err(|reason| format!(", entry {number}: {reason}"))?;
    }
    Ok(())
}

fn entry(entry: &[u8]) -> Result<Entry<'_>, String> {
    if json::kind(entry) != Kind::Array {
        return Err("it is not an array".to_owned());
    }
    let mut elements = json::elements(entry).map(|place| &entry[place]);
    let time = elements.next().unwrap_or_default();
    let text = time.strip_prefix(b"\"").unwrap_or(time);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    let nanos = std::str::from_utf8(text).ok();
    let nanos = nanos.and_then(|text| text.parse().ok());
    let line = elements.next().unwrap_or_default();
    if !line.starts_with(b"\"") {
        return Err("its second element is not a line of text".to_owned());
    }
    let metadata = elements.next();
    let metadata = metadata.filter(|metadata| json::kind(metadata) != Kind::Null);
    if metadata.is_some_and(|metadata| !is_texts(metadata)) {
        return Err("its structured metadata is not an object of text".to_owned());
    }
    if elements.next().is_some() {
        return Err("it has more than three elements".to_owned());
    }
    Ok(Entry {
        nanos: nanos.ok_or("its timestamp is not a number of nanoseconds, as text")?,
        line: Line::Json(line),
        metadata: metadata.map(Pairs::Json),
    })
}

/// Whether a value is an object all members of which are text.
fn is_texts(value: &[u8]) -> bool {
    let mut members = json::members(value);
    json::kind(value) == Kind::Object
        && members.all(|member| value[member.value].starts_with(b"\""))
}

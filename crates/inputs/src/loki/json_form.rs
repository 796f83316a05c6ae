//! The JSON form of a push request:
//!
//! ```text
//! {"streams": [{"stream": {LABEL: TEXT, …}, "values": [[NANOSECONDS, LINE, {NAME: TEXT, …}], …]}, …]}
//! ```
//!
//! The object of an entry, its structured metadata, may be missing. A body is walked with a [`Cursor`], which passes over each value
//! once; the iterators of [`json`] would pass over a line once for each level around it.

use batch::json::{self, Kind};

use super::item::{Entry, Item, Line, Pairs};

/// A place in a valid text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next byte that is no whitespace; zero at the end.
    fn peek(&mut self) -> u8 {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Passes over a value.
    fn value(&mut self) -> &'a [u8] {
        self.peek();
        let start = self.at;
        self.at = json::skip_value(self.text, start);
        &self.text[start..self.at]
    }

    /// Enters an object or an array, if `open` begins one.
    fn enter(&mut self, open: u8) -> bool {
        let is_open = self.peek() == open;
        self.at += usize::from(is_open);
        is_open
    }

    /// Whether the object or array has another member or element, which is next; else it is left.
    fn has_more(&mut self) -> bool {
        if self.peek() == b',' {
            self.at += 1;
        }
        let is_end = matches!(self.peek(), b'}' | b']' | 0);
        self.at += usize::from(is_end);
        !is_end
    }

    /// The key of the next member, whose value is next then.
    fn key(&mut self) -> Option<&'a [u8]> {
        if !self.has_more() {
            return None;
        }
        let key = self.value();
        self.enter(b':');
        key.get(1..key.len().saturating_sub(1))
    }

    /// The next element.
    fn element(&mut self) -> Option<&'a [u8]> {
        self.has_more().then(|| self.value())
    }
}

/// Calls for every stream and its entries. The body is a valid object in normal form.
pub(super) fn walk(
    body: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut cursor = Cursor { text: body, at: 0 };
    cursor.enter(b'{');
    let mut has_streams = false;
    while let Some(key) = cursor.key() {
        if key != b"streams" || !cursor.enter(b'[') {
            cursor.value();
            continue;
        }
        has_streams = true;
        let mut number = 0;
        while cursor.has_more() {
            let walked = stream(&mut cursor, visit);
            walked.map_err(|reason| format!("stream {number}{reason}"))?;
            number += 1;
        }
    }
    match has_streams {
        true => Ok(()),
        false => Err("`streams` is missing, or not an array".to_owned()),
    }
}

fn stream(
    cursor: &mut Cursor<'_>,
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    if !cursor.enter(b'{') {
        return Err(": it is not an object".to_owned());
    }
    let (mut labels, mut values_at, mut is_walked) = (None, None, false);
    while let Some(key) = cursor.key() {
        match key {
            b"stream" => labels = Some(cursor.value()),
            // Most clients write the labels first.
            b"values" if labels.is_some() => {
                values(labels, cursor, visit)?;
                is_walked = true;
            }
            b"values" => {
                values_at = Some(cursor.at);
                cursor.value();
            }
            _ => {
                cursor.value();
            }
        }
    }
    match values_at {
        _ if is_walked => Ok(()),
        Some(at) => {
            let text = cursor.text;
            values(labels, &mut Cursor { text, at }, visit)
        }
        None if labels.is_some() => Err(": `values` is missing".to_owned()),
        None => Err(": `stream` is missing, or not an object of text".to_owned()),
    }
}

/// Visits a stream with these labels, and its values, which are next.
fn values(
    labels: Option<&[u8]>,
    cursor: &mut Cursor<'_>,
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let Some(labels) = labels.filter(|labels| is_texts(labels)) else {
        return Err(": `stream` is missing, or not an object of text".to_owned());
    };
    visit(Item::Stream(Pairs::Json(labels))).map_err(|reason| format!(": {reason}"))?;
    if !cursor.enter(b'[') {
        return Err(": `values` is not an array".to_owned());
    }
    let mut number = 0;
    while cursor.has_more() {
        let visited = entry(cursor).and_then(|entry| visit(Item::Entry(entry)));
        visited.map_err(|reason| format!(", entry {number}: {reason}"))?;
        number += 1;
    }
    Ok(())
}

fn entry<'a>(cursor: &mut Cursor<'a>) -> Result<Entry<'a>, String> {
    if !cursor.enter(b'[') {
        return Err("it is not an array".to_owned());
    }
    // Behind its last element, the array is left.
    let time = cursor.element();
    let line = time.and_then(|_| cursor.element());
    let metadata = line.and_then(|_| cursor.element());
    if metadata.is_some() && cursor.has_more() {
        return Err("it has more than three elements".to_owned());
    }
    let time = time.unwrap_or_default();
    let text = time.strip_prefix(b"\"").unwrap_or(time);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    let nanos = std::str::from_utf8(text).ok();
    let nanos = nanos.and_then(|text| text.parse().ok());
    let line = line.unwrap_or_default();
    if !line.starts_with(b"\"") {
        return Err("its second element is not a line of text".to_owned());
    }
    let metadata = metadata.filter(|metadata| json::kind(metadata) != Kind::Null);
    if metadata.is_some_and(|metadata| !is_texts(metadata)) {
        return Err("its structured metadata is not an object of text".to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(body: &str) -> Result<String, String> {
        json::validate_object(body.as_bytes()).expect(body);
        let mut items = String::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        walk(body.as_bytes(), &mut |item| {
            match item {
                Item::Stream(Pairs::Json(labels)) => items.push_str(&text(labels)),
                Item::Entry(Entry {
                    nanos,
                    line: Line::Json(line),
                    metadata,
                }) => {
                    items.push_str(&format!(" {nanos} {}", text(line)));
                    if let Some(Pairs::Json(metadata)) = metadata {
                        items.push_str(&text(metadata));
                    }
                }
                _ => return Err("another form".to_owned()),
            }
            Ok(())
        })?;
        Ok(items)
    }

    #[test]
    fn members_may_stand_in_any_order() {
        for (body, expected) in [
            (r#"{"streams":[]}"#, Ok("")),
            (
                r#"{"a":{"streams":[1]},"streams": [ { "stream" : {"l":"v"} , "values" : [ [ "1" , "a]" , {"m":"n"} ] , ["2","b"] ] , "x":[1,2] } ],"z":0}"#,
                Ok(r#"{"l":"v"} 1 "a]"{"m":"n"} 2 "b""#),
            ),
            (
                r#"{"streams":[{"values":[["1","a"]],"stream":{}},{"stream":{"c":"d"},"values":[]}]}"#,
                Ok(r#"{} 1 "a"{"c":"d"}"#),
            ),
            ("{}", Err("`streams` is missing, or not an array")),
            (
                r#"{"streams":{}}"#,
                Err("`streams` is missing, or not an array"),
            ),
            (r#"{"streams":[1]}"#, Err("stream 0: it is not an object")),
            (
                r#"{"streams":[{"values":[]}]}"#,
                Err("stream 0: `stream` is missing, or not an object of text"),
            ),
            (
                r#"{"streams":[{"stream":{}}]}"#,
                Err("stream 0: `values` is missing"),
            ),
            (
                r#"{"streams":[{"stream":{},"values":{}}]}"#,
                Err("stream 0: `values` is not an array"),
            ),
            (
                r#"{"streams":[{"stream":{},"values":[["1","a",{},4]]}]}"#,
                Err("stream 0, entry 0: it has more than three elements"),
            ),
            (
                r#"{"streams":[{"stream":{},"values":[["1"],["2","b"]]}]}"#,
                Err("stream 0, entry 0: its second element is not a line of text"),
            ),
            (
                r#"{"streams":[{"stream":{},"values":[[]]}]}"#,
                Err("stream 0, entry 0: its second element is not a line of text"),
            ),
        ] {
            let walked = walked(body);
            let walked = walked.as_deref().map_err(String::as_str);
            assert_eq!(walked, expected, "{body}");
        }
    }
}

//! Bringing a text into normal form: no key twice, no needless escape in a key.

use hashbrown::HashMap;

use super::{byte_at, skip_value, skip_whitespace, unescape, write_string};

/// Appends the valid `text` in normal form: of members with the same key the last one's value stays, at the first one's
/// place; a key keeps an escape only where JSON demands one. Every other value keeps its bytes, all digits of a number
/// included; whitespace between values goes.
pub fn normalise(text: &[u8], out: &mut Vec<u8>) {
    // Arrays are `None`: there is nothing to remember about them.
    let mut open: Vec<Option<Object>> = Vec::new();
    let mut pos = skip_whitespace(text, 0);
    while pos < text.len() {
        let mut end = pos + 1;
        match text[pos] {
            b'{' => {
                separate(&open, out);
                open.push(Some(Object::new(out.len())));
                out.push(b'{');
            }
            b'[' => {
                separate(&open, out);
                open.push(None);
                out.push(b'[');
            }
            b'}' | b']' => match open.pop() {
                Some(Some(object)) => object.finish(out),
                _ => out.push(b']'),
            },
            b',' | b':' => {}
            first => {
                end = skip_value(text, pos).max(end);
                let is_key = first == b'"' && byte_at(text, skip_whitespace(text, end)) == b':';
                match open.last_mut() {
                    Some(Some(object)) if is_key => object.key(&text[pos + 1..end - 1], out),
                    _ => {
                        separate(&open, out);
                        out.extend_from_slice(&text[pos..end]);
                    }
                }
            }
        }
        pos = skip_whitespace(text, end);
    }
}

/// Writes the comma before an element of an array. Members get theirs with their keys.
fn separate(open: &[Option<Object>], out: &mut Vec<u8>) {
    if matches!(open.last(), Some(None)) && out.last() != Some(&b'[') {
        out.push(b',');
    }
}

/// An object whose members are being written.
struct Object {
    /// Where it begins in the output.
    start: usize,
    members: Vec<Member>,
    /// Which place in the finished object each key has.
    places: HashMap<Vec<u8>, usize, foldhash::fast::RandomState>,
}

/// A member as written: from its key's opening quote up to the next member's comma.
struct Member {
    start: usize,
    place: usize,
}

impl Object {
    fn new(start: usize) -> Self {
        Self {
            start,
            members: Vec::new(),
            places: HashMap::default(),
        }
    }

    fn key(&mut self, body: &[u8], out: &mut Vec<u8>) {
        if !self.members.is_empty() {
            out.push(b',');
        }
        let start = out.len();
        let mut key = Vec::with_capacity(body.len());
        unescape(body, &mut key);
        write_string(out, &key);
        out.push(b':');
        let next_place = self.places.len();
        let place = *self.places.entry(key).or_insert(next_place);
        self.members.push(Member { start, place });
    }

    /// Closes the object, having written it anew if a key came twice.
    fn finish(self, out: &mut Vec<u8>) {
        if self.places.len() < self.members.len() {
            let mut winners = vec![0..0; self.places.len()];
            let ends = self
                .members
                .iter()
                .skip(1)
                .map(|next| next.start - 1)
                .chain([out.len()]);
            for (member, end) in self.members.iter().zip(ends) {
                winners[member.place] = member.start - self.start..end - self.start;
            }
            let written = out.split_off(self.start);
            out.push(b'{');
            for (place, member) in winners.into_iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(&written[member]);
            }
        }
        out.push(b'}');
    }
}

//! Bringing a map into normal form: keys are strings of UTF-8, and none comes twice.

use hashbrown::HashMap;

use super::write::{write_map_header, write_str};
use super::{Head, convert, head, skip_value};

/// Appends the valid map (or any other value) in normal form: of members with the same key the last one's value stays, at
/// the first one's place; a key that is no string becomes its JSON text; what is not UTF-8 in a key becomes U+FFFD. All
/// values keep their bytes.
pub fn normalise(bytes: &[u8], out: &mut Vec<u8>) {
    let mut open: Vec<Level> = Vec::new();
    let mut pos = 0;
    loop {
        while open.last().is_some_and(|level| level.left == 0) {
            if let Some(map) = open.pop().and_then(|level| level.map) {
                map.finish(out);
            }
        }
        if pos > 0 && open.is_empty() {
            return;
        }
        let Ok((head, body)) = head(bytes, pos) else {
            return;
        };
        let mut end = body + head.body_len();
        let start = out.len();
        if let Some(Level { left, map }) = open.last_mut() {
            *left -= 1;
            if let (Some(map), false) = (map, left.is_multiple_of(2)) {
                end = skip_value(bytes, pos);
                map.key(convert::key_text(&bytes[pos..end]), out);
                pos = end;
                continue;
            }
        }
        out.extend_from_slice(&bytes[pos..end]);
        match head {
            Head::Map(_) => open.push(Level {
                left: head.values(),
                map: Some(Map::new(start, out.len())),
            }),
            Head::Array(_) => open.push(Level {
                left: head.values(),
                map: None,
            }),
            _ => {}
        }
        pos = end;
    }
}

/// A container that is being written.
struct Level {
    /// How many values of the source are still to come, keys included.
    left: u64,
    map: Option<Map>,
}

/// A map whose members are being written.
struct Map {
    /// Where it begins in the output, and where its first member does.
    start: usize,
    body: usize,
    members: Vec<Member>,
    /// Which place in the finished map each key has.
    places: HashMap<Vec<u8>, usize, foldhash::fast::RandomState>,
}

struct Member {
    start: usize,
    place: usize,
}

impl Map {
    fn new(start: usize, body: usize) -> Self {
        Self {
            start,
            body,
            members: Vec::new(),
            places: HashMap::default(),
        }
    }

    fn key(&mut self, key: Vec<u8>, out: &mut Vec<u8>) {
        let start = out.len();
        write_str(out, &key);
        let next_place = self.places.len();
        let place = *self.places.entry(key).or_insert(next_place);
        self.members.push(Member { start, place });
    }

    /// Writes the map anew if a key came twice.
    fn finish(self, out: &mut Vec<u8>) {
        if self.places.len() == self.members.len() {
            return;
        }
        let mut winners = vec![0..0; self.places.len()];
        let ends = self
            .members
            .iter()
            .skip(1)
            .map(|next| next.start)
            .chain([out.len()]);
        for (member, end) in self.members.iter().zip(ends) {
            winners[member.place] = member.start - self.body..end - self.body;
        }
        let written = out.split_off(self.body);
        out.truncate(self.start);
        write_map_header(out, winners.len());
        for member in winners {
            out.extend_from_slice(&written[member]);
        }
    }
}

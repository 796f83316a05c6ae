//! Which names `nest` takes apart, and where.

use batch::json::{self, Kind};
use memchr::memmem::Finder;

/// The most parts of a name.
const PARTS_MAX: usize = 100;

/// Which names are taken apart, and where.
#[derive(Clone)]
pub(super) struct NestRules {
    /// The objects that are made, by their names as they stand in JSON; none for all.
    wanted: Option<Vec<Vec<u8>>>,
    separator: Finder<'static>,
}

impl NestRules {
    pub fn new(wanted: Option<Vec<Vec<u8>>>, separator: &[u8]) -> Self {
        Self {
            wanted,
            separator: Finder::new(separator).into_owned(),
        }
    }

    /// Whether a name in an object, or in an object within it, is taken apart.
    pub fn has_names(&self, object: &[u8], is_event: bool) -> bool {
        self.separator.find(object).is_some()
            && json::members(object).any(|member| {
                let first = self.first_part(member.key);
                let value = &object[member.value];
                let is_wanted = !is_event || self.wants(member.key, first);
                let has_names =
                    || json::kind(value) == Kind::Object && self.has_names(value, false);
                is_wanted && (first.is_some() || has_names())
            })
    }

    /// Where the first part of a name ends; none where the name stays as it is.
    pub fn first_part(&self, key: &[u8]) -> Option<usize> {
        let first = self.part_end(key, 0);
        if first == key.len() {
            return None;
        }
        let (mut parts, mut start, mut end) = (1, 0, first);
        while end > start && end < key.len() {
            parts += 1;
            start = self.behind(end);
            end = self.part_end(key, start);
        }
        let is_whole = end > start && parts <= PARTS_MAX && !json::has_escape(key);
        is_whole.then_some(first)
    }

    /// Where the part of a name ends that begins at `start`.
    #[inline]
    pub fn part_end(&self, key: &[u8], start: usize) -> usize {
        let separator = self.separator.needle();
        // Names are short.
        let is_first = |at: &usize| key[*at] == separator[0];
        let mut ends = (start..key.len()).filter(is_first);
        ends.find(|end| key[*end..].starts_with(separator))
            .unwrap_or(key.len())
    }

    /// Where the next part of a name begins behind one that ends at `end`.
    #[inline]
    pub fn behind(&self, end: usize) -> usize {
        end + self.separator.needle().len()
    }

    /// Whether the object is made that the name of a field of the event begins with; what is in the field is taken apart likewise.
    pub fn wants(&self, key: &[u8], first_part: Option<usize>) -> bool {
        let name = &key[..first_part.unwrap_or(key.len())];
        let wanted = self.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.iter().any(|known| known == name))
    }
}

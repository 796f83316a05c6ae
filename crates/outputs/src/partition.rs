//! Rows of a batch by where they go, for outputs whose destination is made by templates.

use std::collections::HashMap;
use std::sync::Arc;

use batch::{Batch, Bitmap};
use component::{Encoded, RowAnswer};

/// Rows of a batch that go to one destination, or to none.
#[derive(Debug)]
pub struct Group {
    /// The destination, or why it cannot be one.
    pub destination: Result<Arc<str>, Arc<str>>,
    /// The rows.
    pub rows: Bitmap,
}

/// Renders each group with `write`, which gets its destination, as a part of its own; the rows of a group without one are refused.
pub fn encode_groups(
    groups: Vec<Group>,
    encoded: &mut Encoded,
    mut write: impl FnMut(&str, &Bitmap, &mut Encoded),
) {
    for group in groups {
        match group.destination {
            Ok(destination) => {
                encoded.begin_part(destination.clone());
                write(&destination, &group.rows, encoded);
            }
            Err(reason) => refuse_rows(&group.rows, &reason, encoded),
        }
    }
}

/// Refuses rows, all for the same reason.
pub fn refuse_rows(rows: &Bitmap, reason: &Arc<str>, encoded: &mut Encoded) {
    encoded.refused.extend(rows.iter().map(|row| RowAnswer {
        row,
        reason: reason.clone(),
    }));
}

/// Makes what a field gave, from `start` on, a name that cannot leave its directory: slashes, NUL and other control characters become `_`,
/// and so does a value that is empty or consists of dots.
pub fn clean_name(path: &mut Vec<u8>, start: usize) {
    let value = &mut path[start..];
    if value.iter().all(|&byte| byte == b'.') {
        path.truncate(start);
        path.push(b'_');
        return;
    }
    for byte in value {
        if *byte == b'/' || byte.is_ascii_control() {
            *byte = b'_';
        }
    }
}

/// The rows of a batch by destination, in the order in which the destinations come up. `render` appends the destination of a row;
/// `check` says, once for each, whether it can be one.
pub fn partition(
    batch: &Batch,
    rows: &Bitmap,
    mut render: impl FnMut(usize, &mut Vec<u8>),
    check: impl Fn(&[u8]) -> Result<Arc<str>, Arc<str>>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut destination = Vec::new();
    let mut last: Option<(Vec<u8>, usize)> = None;
    for row in rows.iter() {
        destination.clear();
        render(row, &mut destination);
        let index = match &last {
            Some((last, index)) if *last == destination => *index,
            _ => {
                let index = *known.entry(destination.clone()).or_insert_with(|| {
                    groups.push(Group {
                        destination: check(&destination),
                        rows: Bitmap::none(batch.len()),
                    });
                    groups.len() - 1
                });
                last = Some((destination.clone(), index));
                index
            }
        };
        groups[index].rows.insert(row);
    }
    groups
}

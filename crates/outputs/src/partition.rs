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

/// Renders each group with `write`, as a part of its own; the rows of a group without a destination are refused.
pub fn encode_groups(
    groups: Vec<Group>,
    encoded: &mut Encoded,
    mut write: impl FnMut(&Bitmap, &mut Encoded),
) {
    for group in groups {
        match group.destination {
            Ok(destination) => {
                encoded.begin_part(destination);
                write(&group.rows, encoded);
            }
            Err(reason) => {
                let refused = group.rows.iter().map(|row| RowAnswer {
                    row,
                    reason: reason.clone(),
                });
                encoded.refused.extend(refused);
            }
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

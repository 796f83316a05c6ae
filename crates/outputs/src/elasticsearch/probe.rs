//! Replies from memory, for the crate `fuzzkit`.

use component::RowAnswer;

use super::action::Verb;
use super::reply::{Asked, judge};

/// What a reply with this body says of a request of so many rows: which rows are sent again, which are refused, and how many
/// were there already. None where it cannot be believed.
pub fn reply(body: &[u8], rows: usize, creates: bool) -> Option<(Vec<usize>, Vec<usize>, u64)> {
    let asked = Asked {
        verb: if creates { Verb::Create } else { Verb::Index },
        finds_repeats: true,
        is_fixed: true,
        rows,
    };
    let judged = judge(body, "a server", &asked).ok()?;
    let numbers = |answers: &[RowAnswer]| answers.iter().map(|answer| answer.row).collect();
    let sent = &judged.sent;
    Some((numbers(&sent.retry), numbers(&sent.refused), judged.repeats))
}

//! What servers answer to requests.

use outputs::probe;

use crate::choice;

/// Replies to bulk requests: each row gets one verdict, and the fast way finds what the other one does.
pub(crate) fn reply(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else {
        return;
    };
    let (rows, creates) = (choice % 128, choice >= 128);
    let judged = probe::reply(body, rows, creates);
    // A blank before it means nothing, and is not what the fast way knows.
    let again = probe::reply(&[b" ", body].concat(), rows, creates);
    assert_eq!(judged, again);
    let Some((retried, refused, repeats)) = judged else {
        return;
    };
    let mut rows_of = [retried, refused].concat();
    let listed = rows_of.len();
    rows_of.sort_unstable();
    rows_of.dedup();
    assert_eq!(rows_of.len(), listed, "one verdict for a row");
    assert!(listed + usize::try_from(repeats).expect("few") <= rows);
    assert!(rows_of.iter().all(|row| *row < rows));
}

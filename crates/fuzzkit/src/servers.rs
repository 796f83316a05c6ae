//! What servers answer to requests.

use batch::json;
use codec::otlp::{Documents, Status};
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

/// Answers to requests with log records: the status and its delay are read as they are written.
pub(crate) fn otlp_answer(bytes: &[u8]) {
    if let Ok(status) = Status::read(bytes) {
        assert_eq!(Status::read(&status.write()), Ok(status));
    }
}

/// Events as log records: each is one record with its id, and what the input makes of it is sent as the same again, if it has no
/// field `attributes`.
pub(crate) fn otlp_event(bytes: &[u8]) {
    let Ok(scan) = json::validate_object(bytes) else {
        return;
    };
    if std::str::from_utf8(bytes).is_err() || scan.rewrite {
        return;
    }
    let again = |event: &[u8]| {
        let mut documents = Vec::new();
        let request = probe::otlp(event);
        let read = Documents::new(json::DEPTH_MAX).read(&request, |document| {
            documents.push(document.text.to_vec());
        });
        // Members of `resource` are a level deeper in a record than in the event.
        read.ok().and_then(|()| {
            assert_eq!(documents.len(), 1);
            documents.pop()
        })
    };
    let Some(once) = again(bytes) else { return };
    let Some(twice) = again(&once) else { return };
    // What stands below `attributes` may find a place of its own.
    if json::find(&once, b"attributes").is_none() {
        assert_eq!(once, twice);
    }
}

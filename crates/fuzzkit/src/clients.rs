//! What clients send. The decoders are those of the inputs, fed from memory.

use inputs::probe::{self, Decoded, Sending};

use crate::choice;

/// A frame that is cut, or that announces more than is allowed, may show what else is wrong with it, or not.
fn same(whole: &Decoded, pieces: &Decoded) {
    let is_early = |decoded: &Decoded| {
        let fault = decoded.fault.as_deref().unwrap_or_default();
        fault.starts_with("cut_connections") || fault.starts_with("oversized_frames")
    };
    if is_early(whole) || is_early(pieces) {
        assert_eq!(whole.events, pieces.events);
        assert!(whole.fault.is_some() && pieces.fault.is_some());
    } else {
        assert_eq!(whole, pieces);
    }
}

/// Lumberjack frames: the same events and the same fault however the bytes come.
pub(crate) fn beats(bytes: &[u8]) {
    let Some((piece, bytes)) = choice(bytes) else {
        return;
    };
    let whole = probe::beats(bytes, usize::MAX);
    let pieces = probe::beats(bytes, piece % 40 + 1);
    same(&whole, &pieces);
}

/// Messages of Fluent Forward: the same events and the same fault however the bytes come.
pub(crate) fn forward(bytes: &[u8]) {
    let Some((piece, bytes)) = choice(bytes) else {
        return;
    };
    let add_fields = piece >= 128;
    let whole = probe::forward(bytes, usize::MAX, add_fields);
    let pieces = probe::forward(bytes, piece % 40 + 1, add_fields);
    same(&whole, &pieces);
}

/// The client's side of the handshake. Nobody is let in by chance.
pub(crate) fn handshake(bytes: &[u8]) {
    let Some(pong) = probe::handshake(bytes) else {
        return;
    };
    let refused = b"\x95\xa4PONG\xc2";
    assert!(pong.starts_with(refused), "a made-up key is taken");
}

/// Bodies of bulk requests: the reply is JSON and has an item for each event at least, and a body that is refused has none.
pub(crate) fn bulk(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else {
        return;
    };
    let (decoded, reply) = probe::bulk(body, choice % 2 == 1);
    let Some(reply) = reply else {
        assert!(decoded.fault.is_some(), "what is not answered is refused");
        assert!(decoded.events.is_empty(), "what is refused has no events");
        return;
    };
    assert!(decoded.fault.is_none(), "what is answered is not refused");
    let reply: serde_json::Value = serde_json::from_slice(&reply).expect("the reply is JSON");
    let items = reply["items"].as_array().expect("a list");
    let taken = items.iter().filter(|item| {
        let status = item.as_object().and_then(|item| item.values().next());
        status.is_some_and(|item| item.get("error").is_none())
    });
    assert_eq!(taken.count(), decoded.events.len(), "{reply}");
}

/// Paths and `filter_path` parameters of requests.
pub(crate) fn route(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, filter) = text.split_once('?').unwrap_or((&text, ""));
    probe::route(path, filter);
}

/// Requests with log records: one that is refused has no events, and JSON gives the same as Protocol Buffers.
pub(crate) fn otlp_logs(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else {
        return;
    };
    let sending = match choice % 4 {
        0 => Sending::Protobuf,
        1 => Sending::Gzip,
        2 => Sending::Json,
        _ => Sending::Call,
    };
    let decoded = probe::otlp(body, sending);
    assert!(decoded.fault.is_none() || decoded.events.is_empty());
    if sending == Sending::Json
        && let Some(message) = probe::otlp_json(body)
        && body.len() + message.len() < 32 << 10
    {
        assert_eq!(probe::otlp(&message, Sending::Protobuf), decoded);
    }
}

/// Bodies of requests to `splunk_hec`: one that is refused has no events, one that is taken has some.
pub(crate) fn splunk_hec(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else {
        return;
    };
    let decoded = probe::splunk_hec(body, choice % 2 == 1, choice % 4 >= 2);
    let is_refused = decoded.fault.is_some();
    assert_eq!(is_refused, decoded.events.is_empty(), "{decoded:?}");
}

/// Bodies of requests to `loki`: one that is refused has no events.
pub(crate) fn loki(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else {
        return;
    };
    let decoded = probe::loki(body, choice % 2 == 1, choice % 4 >= 2);
    assert!(
        decoded.fault.is_none() || decoded.events.is_empty(),
        "{decoded:?}"
    );
}

//! What the output publishes, against a server that takes it.

use component::{Request, SendError, Sent};
use testkit::nats_server::{NatsServer, PublishReply};

use super::SPEC;
use crate::testing;

/// Sends the events of a batch, which go to one subject.
async fn send(server: &NatsServer, settings: &str, events: &str) -> Vec<Result<Sent, SendError>> {
    let yaml = format!("{{hosts: '{}', {settings}}}", server.address());
    let output = testing::build_sender(&SPEC, &yaml).expect("settings");
    output.open().await.expect("it opens");
    let batch = testing::documents(&events.lines().collect::<Vec<_>>());
    let encoded = testing::encode(&*output, &batch);
    let mut results = Vec::new();
    for (index, part) in encoded.parts.iter().enumerate() {
        let end = encoded.parts.get(index + 1);
        let end = end.map_or(encoded.bytes.len(), |next| next.bytes.start);
        let range = part.bytes.start..end;
        let rows = encoded.ends.iter();
        let rows = rows.filter(|row| row.end > range.start && row.end <= range.end);
        let request = Request {
            id: index as u128 + 1,
            destination: part.destination.clone(),
            rows: rows.count(),
            body: encoded.bytes[range].to_vec().into(),
            attempt: 0,
        };
        results.push(output.send(&request).await);
    }
    results
}

#[tokio::test]
async fn messages_have_a_subject_headers_and_their_ids() {
    let server = NatsServer::start(0, |_| PublishReply::Take);
    let settings = "subject: 'logs.%{s}', headers: {Level: '%{level}', Absent: '%{absent}'}";
    let events = "{\"s\":\"a\",\"level\":\"x\\ny\"}\n{\"s\":\"b\"}\n{\"s\":\"a\"}\n";
    for sent in send(&server, settings, events).await {
        assert_eq!(sent, Ok(Sent::default()));
    }
    let published = server.published();
    let shown = published.iter();
    let shown: Vec<_> = shown
        .map(|one| (&*one.subject, &*one.payload, one.header("Level")))
        .collect();
    assert_eq!(
        shown,
        [
            ("logs.a", r#"{"s":"a","level":"x\ny"}"#, Some("x y")),
            ("logs.a", r#"{"s":"a"}"#, None),
            ("logs.b", r#"{"s":"b"}"#, None),
        ]
    );
    assert!(
        published
            .iter()
            .all(|one| one.header("Nats-Msg-Id").is_some())
    );
    assert!(published.iter().all(|one| one.header("Absent").is_none()));
}

#[tokio::test]
async fn rows_are_taken_refused_or_sent_again_one_by_one() {
    let server = NatsServer::start(0, |number| match number {
        0 => PublishReply::Error(400, 10054, "message size exceeds maximum allowed"),
        1 => PublishReply::Error(503, 10077, "maximum messages exceeded"),
        _ => PublishReply::Take,
    });
    let events = "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n";
    let sent = send(&server, "subject: logs", events).await;
    let [Ok(sent)] = &sent[..] else {
        panic!("{sent:?}")
    };
    let rows = |answers: &[component::RowAnswer]| -> Vec<usize> {
        answers.iter().map(|answer| answer.row).collect()
    };
    assert_eq!((rows(&sent.refused), rows(&sent.retry)), (vec![0], vec![1]));
    let because = sent.because.as_ref().expect("a reason").to_string();
    assert!(because.contains("subject `logs`"), "{because}");
}

#[tokio::test]
async fn a_subject_without_a_stream_is_blocked() {
    let server = NatsServer::start(0, |_| PublishReply::NoStream);
    let sent = send(&server, "subject: logs", "{}\n").await;
    let [Ok(sent)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert!(
        matches!(&sent.because, Some(SendError::Blocked(reason)) if reason.contains("no stream"))
    );
}

#[test]
fn settings_that_cannot_work_are_refused_at_their_place() {
    for (yaml, part) in [
        ("{subject: s}", "`hosts` is missing"),
        ("{hosts: h}", "subject"),
        ("{hosts: h, subject: 'a..b'}", "cannot be a subject"),
        ("{hosts: h, subject: 'a.>'}", "cannot be a subject"),
        ("{hosts: h, subject: s, user: u}", "requires `password`"),
        (
            "{hosts: h, subject: s, token: t, nkey: n}",
            "mean nothing together",
        ),
        (
            "{hosts: h, subject: s, headers: {'a b': x}}",
            "name of a header",
        ),
        (
            "{hosts: h, subject: s, topic: x}",
            "unknown setting `topic`",
        ),
    ] {
        let error = testing::build_sender(&SPEC, yaml).err().expect(yaml);
        assert!(error.to_string().contains(part), "{yaml}: {error}");
    }
}

//! What the output writes, against a server that takes it.

use batch::Batch;
use component::{Request, SendError, Sender, Sent};
use testkit::redis_server::{CallReply, RedisServer};

use super::SPEC;
use crate::testing;

async fn send(server: &RedisServer, settings: &str, batch: &Batch) -> Vec<Result<Sent, SendError>> {
    let yaml = format!("{{hosts: '{}', {settings}}}", server.address());
    let output = testing::build_sender(&SPEC, &yaml).expect("settings");
    output.open().await.expect("it opens");
    let mut results = Vec::new();
    for (index, request) in requests(&*output, batch).into_iter().enumerate() {
        let request = Request {
            id: index as u128 + 1,
            ..request
        };
        results.push(again(&*output, &request).await);
    }
    results
}

/// Sends a request once more if its connection broke.
async fn again(output: &dyn Sender, request: &Request) -> Result<Sent, SendError> {
    match output.send(request).await {
        Err(SendError::Retry(reason)) if reason.contains("closed the connection") => {
            output.send(request).await
        }
        result => result,
    }
}

/// A request for each key.
fn requests(output: &dyn Sender, batch: &Batch) -> Vec<Request> {
    let encoded = testing::encode(output, batch);
    let starts = encoded.parts.iter().map(|part| part.bytes.start);
    let ends = starts.skip(1).chain([encoded.bytes.len()]);
    let parts = encoded.parts.iter().zip(ends);
    let request = |(part, end): (&component::DestinationPart, usize)| {
        let range = part.bytes.start..end;
        let rows = encoded.ends.iter();
        let rows = rows.filter(|row| row.end > range.start && row.end <= range.end);
        Request {
            id: 0,
            destination: part.destination.clone(),
            rows: rows.count(),
            body: encoded.bytes[range].to_vec().into(),
            attempt: 0,
        }
    };
    parts.map(request).collect()
}

fn take(_: usize) -> CallReply {
    CallReply::Take
}

#[tokio::test]
async fn events_go_to_the_lists_of_their_keys_in_order() {
    let server = RedisServer::start(0, take);
    let batch = testing::documents(&[
        r#"{"n":1,"k":"a"}"#,
        r#"{"n":2,"k":"b"}"#,
        r#"{"n":3}"#,
        r#"{"n":4,"k":"a"}"#,
    ]);
    let results = send(&server, "key: 'logs:%{k}'", &batch).await;
    assert_eq!(
        results,
        vec![
            Ok(Sent::default()),
            Ok(Sent::default()),
            Ok(Sent::default())
        ]
    );
    let lists = server.lists();
    let list = |key: &str| lists.get(key).cloned().unwrap_or_default();
    assert_eq!(list("logs:a"), [r#"{"n":1,"k":"a"}"#, r#"{"n":4,"k":"a"}"#]);
    assert_eq!(list("logs:b"), [r#"{"n":2,"k":"b"}"#]);
    assert_eq!(list("logs:-"), [r#"{"n":3}"#]);
    assert_eq!(server.commands()[0], ["EVAL", "logs:a", "600000"]);
}

#[tokio::test]
async fn a_stream_has_a_field_and_a_length() {
    let server = RedisServer::start(0, take);
    let batch = testing::documents(&[r#"{"n":1}"#]);
    let settings = "key: s, data_type: stream, field: e, max_length: 1k, remember_requests: 0s, codec: template, template: 'é %{n}'";
    send(&server, settings, &batch).await;
    assert_eq!(server.commands(), [["EVAL", "s", "0", "e", "1000"]]);
    assert_eq!(server.lists()["s"], ["é 1"]);
}

#[tokio::test]
async fn a_request_whose_answer_was_lost_is_taken_once() {
    let server = RedisServer::start(0, |call| match call {
        0 => CallReply::TakeAndClose,
        _ => CallReply::Take,
    });
    let batch = testing::documents(&[r#"{"n":1}"#, r#"{"n":2}"#]);
    let results = send(&server, "key: k", &batch).await;
    assert_eq!(results, [Ok(Sent::default())]);
    assert_eq!(server.events(), 2);
    assert_eq!(server.commands().len(), 2);
}

#[tokio::test]
async fn errors_of_the_server_are_said() {
    for (error, expected) in [
        (
            "WRONGTYPE it is a set",
            SendError::Blocked("WRONGTYPE it is a set".to_owned()),
        ),
        (
            "OOM no memory",
            SendError::Retry("OOM no memory".to_owned()),
        ),
    ] {
        let server = RedisServer::start(0, move |_| CallReply::Error(error));
        let batch = testing::documents(&[r#"{"n":1}"#]);
        let results = send(&server, "key: k", &batch).await;
        let found = results[0].as_ref().expect_err("it failed");
        assert_eq!(
            std::mem::discriminant(found),
            std::mem::discriminant(&expected)
        );
        assert!(found.to_string().contains(error), "{found}");
    }
}

#[tokio::test]
async fn a_password_and_a_database_come_first() {
    let server = RedisServer::start(0, take);
    let batch = testing::documents(&[r#"{"n":1}"#]);
    send(&server, "key: k, user: u, password: p, db: 3", &batch).await;
    let commands = server.commands();
    assert_eq!(commands[0], ["AUTH", "u", "p"]);
    assert_eq!(commands[1], ["SELECT", "3"]);
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    for (settings, expected) in [
        ("{hosts: h}", "key"),
        ("{hosts: h, key: ''}", "the key is empty"),
        ("{key: k}", "`hosts` is missing"),
        ("{hosts: h, key: k, user: u}", "`user` requires `password`"),
        (
            "{hosts: h, key: k, max_length: 5}",
            "requires `data_type: stream`",
        ),
        ("{hosts: h, key: k, data_type: set}", "set"),
    ] {
        let error = testing::build_sender(&SPEC, settings)
            .err()
            .expect("an error");
        assert!(error.to_string().contains(expected), "{settings}: {error}");
    }
}

#[test]
fn events_without_a_usable_key_are_refused() {
    let output = testing::build_sender(&SPEC, "{hosts: h, key: '%{k}'}").expect("settings");
    let long = format!(r#"{{"k":"{}"}}"#, "x".repeat(1025));
    let batch = testing::documents(&[&long, r#"{"k":"a"}"#]);
    let encoded = testing::encode(&*output, &batch);
    assert_eq!(encoded.rows, 1);
    assert_eq!(encoded.refused[0].row, 0);
    assert!(encoded.refused[0].reason.contains("1025 bytes"));
}

//! The output against the double of Loki.

use std::sync::Arc;
use std::time::Duration;

use component::{Request, Rows, SendError, Sender, Sent};
use config::ConfigError;
use testkit::http::{Answer, HttpServer};
use testkit::loki::Loki;

use super::SPEC;
use crate::testing;

/// The output with these settings, and `URL` in them replaced.
async fn output(settings: &str, url: &str) -> Result<Arc<dyn Sender>, ConfigError> {
    let output = testing::build_sender(&SPEC, &settings.replace("URL", url))?;
    output.open().await?;
    Ok(output)
}

/// Sends one document as the engine does.
async fn send(output: &dyn Sender, document: &str) -> Result<Sent, SendError> {
    let encoded = testing::encode(output, &testing::documents(&[document]));
    let destination = encoded.parts[0].destination.clone();
    let mut text = [b"[", encoded.bytes.as_slice(), b"]"].concat();
    let mut rows = Rows {
        destination: &destination,
        ends: &[text.len() - 1],
        text: &mut text,
    };
    let body = output
        .pack(&mut rows)
        .expect("memory")
        .expect("it is packed");
    let request = Request {
        destination,
        body,
        rows: 1,
        attempt: 0,
        id: 0,
    };
    output.send(&request).await
}

#[tokio::test]
async fn a_page_is_no_success() {
    let server = HttpServer::start(|_, _| {
        Answer::new(200)
            .header("content-type", "text/html; charset=utf-8")
            .body("<html>Sign in</html>")
    });
    let output = output("{hosts: URL, labels: {b: x}}", &server.url()).await;
    let sent = send(&*output.expect("it opens"), r#"{"m":"x"}"#).await;
    let Err(SendError::Retry(reason)) = sent else {
        panic!("{sent:?}");
    };
    assert!(reason.contains("check the address"), "{reason}");
}

#[tokio::test]
async fn an_entry_goes_to_its_stream_and_tenant() {
    let loki = Loki::default();
    let double = loki.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let settings = "{hosts: URL, compression: none, labels: {app: '%{a}', b: x}, tenant: 't-%{a}', \
                    structured_metadata: {c: '%{c}'}, template: '%{m}'}";
    let output = output(settings, &server.url()).await.expect("it opens");
    for _ in 0..2 {
        let document =
            r#"{"a":"\"1","c":"y","m":"text","@timestamp":"2024-01-01T00:00:00.000000001Z"}"#;
        // The quote is none that a tenant may have.
        let refused = testing::encode(&*output, &testing::documents(&[document])).refused;
        assert!(
            refused[0].reason.contains("a tenant consists of"),
            "{refused:?}"
        );
        let sent = send(&*output, &document.replace("\\\"", "")).await;
        assert_eq!(sent, Ok(Sent::default()));
    }
    let streams = loki.streams();
    let (name, entries) = streams.first_key_value().expect("a stream");
    assert_eq!(name, "t-1{app=\"1\", b=\"x\"}");
    let entry = (
        1_704_067_200_000_000_001,
        "text".to_owned(),
        serde_json::json!({"c": "y"}),
    );
    assert_eq!(*entries, [entry]);
    assert_eq!((loki.repeats(), loki.violations().len()), (1, 0));
}

#[tokio::test]
async fn statuses_say_what_becomes_of_a_request() {
    let retry = |reason: String| SendError::Retry(reason);
    for (status, after, body, expected) in [
        (204, None, "", None),
        (200, None, "", None),
        (
            260,
            None,
            "ingestion blocked",
            Some(SendError::Blocked(String::new())),
        ),
        (
            400,
            None,
            "entry too far behind",
            Some(SendError::Unfit(String::new())),
        ),
        (
            400,
            None,
            "stream '{}' includes structured metadata, but this feature is disallowed.",
            Some(SendError::Blocked(String::new())),
        ),
        (
            401,
            None,
            "no org id",
            Some(SendError::Blocked(String::new())),
        ),
        (404, None, "", Some(SendError::Blocked(String::new()))),
        (413, None, "", Some(SendError::Unfit(String::new()))),
        (
            429,
            Some("7"),
            "Ingestion rate limit exceeded",
            Some(SendError::Later {
                reason: String::new(),
                after: Some(Duration::from_secs(7)),
            }),
        ),
        (500, None, "", Some(retry(String::new()))),
    ] {
        let server = HttpServer::start(move |_, _| {
            let answer = Answer::new(status).body(body);
            match after {
                Some(after) => answer.header("retry-after", after),
                None => answer,
            }
        });
        let output = output("{hosts: URL, labels: {a: b}}", &server.url())
            .await
            .expect("it opens");
        let kind = |error: &SendError| match error {
            SendError::Later { after, .. } => format!("later {after:?}"),
            other => format!("{:?}", std::mem::discriminant(other)),
        };
        let sent = send(&*output, "{}").await;
        assert_eq!(
            sent.as_ref().err().map(kind),
            expected.as_ref().map(kind),
            "{status} {body}"
        );
        if let Err(error) = sent {
            assert!(error.to_string().contains(body), "{error}");
        }
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_their_place() {
    for (settings, place, part) in [
        ("{labels: {a: b}}", "1:1", "`hosts`"),
        ("{hosts: 'http://h'}", "1:1", "`labels`"),
        (
            "{hosts: 'http://h', labels: {}}",
            "1:29",
            "`labels` is missing",
        ),
        (
            "{hosts: 'http://h', labels: {a-b: x}}",
            "1:29",
            "`a-b` cannot be the name of a label",
        ),
        (
            "{hosts: 'http://h', labels: {__a: x}}",
            "1:29",
            "cannot be the name of a label",
        ),
        (
            "{hosts: 'http://h', labels: {a: '%{'}}",
            "1:34",
            "is not closed",
        ),
        (
            "{hosts: 'http://h', labels: {a: b}, structured_metadata: {a-b: x}}",
            "1:58",
            "cannot be the name of structured metadata",
        ),
        (
            "{hosts: 'http://h', labels: {a: b}, tenant: 'a/b'}",
            "1:45",
            "a tenant consists of",
        ),
        (
            "{hosts: 'http://h', labels: {a: b}, max_streams: many}",
            "1:50",
            "is not a count",
        ),
    ] {
        let error = match output(settings, "").await {
            Ok(_) => panic!("{settings} is accepted"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.contains(&format!("test.yaml:{place}")) && error.contains(part),
            "{settings}: {error}"
        );
    }
}

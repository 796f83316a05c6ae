//! The output against the double of the HTTP Event Collector.

use std::sync::Arc;
use std::time::Duration;

use component::{Request, SendError, Sender, Sent};
use config::ConfigError;
use testkit::http::{Answer, HttpServer};
use testkit::splunk::{Collector, TOKEN};

use super::SPEC;
use crate::testing;

/// The output with these settings, and `URL` and `TOKEN` in them replaced.
async fn output(settings: &str, url: &str) -> Result<Arc<dyn Sender>, ConfigError> {
    let settings = settings.replace("URL", url).replace("TOKEN", TOKEN);
    let output = testing::build_sender(&SPEC, &settings)?;
    output.open().await?;
    Ok(output)
}

/// Sends documents as one request.
async fn send(output: &dyn Sender, documents: &[&str]) -> Result<Sent, SendError> {
    let encoded = testing::encode(output, &testing::documents(documents));
    let destination = encoded.parts.first().map(|part| part.destination.clone());
    let request = Request {
        destination: destination.unwrap_or_else(|| "".into()),
        body: encoded.bytes.into(),
        rows: encoded.rows,
        attempt: 0,
        id: 0,
    };
    output.send(&request).await
}

const TWO: [&str; 2] = [r#"{"a":"x"}"#, r#"{"a":"y"}"#];

#[tokio::test]
async fn events_are_sent_to_every_host() {
    let collector = Collector::new(&[], None);
    let serve = || {
        let double = collector.clone();
        HttpServer::start(move |taken, _| double.answer(taken))
    };
    let servers = [serve(), serve()];
    let settings = format!("{{hosts: [URL, '{}/'], token: TOKEN}}", servers[1].url());
    let output = output(&settings, &servers[0].url())
        .await
        .expect("it opens");
    for _ in 0..4 {
        assert_eq!(send(&*output, &TWO).await, Ok(Sent::default()));
    }
    // Whoever does not ask for acknowledgements names no channel.
    let taken: Vec<_> = servers.iter().map(HttpServer::taken).collect();
    let channels = taken.iter().flatten();
    let mut channels = channels.map(|taken| taken.header("x-splunk-request-channel"));
    assert!(channels.all(str::is_empty));
    assert_eq!(servers.map(|server| server.taken().len()), [2, 2]);
    assert_eq!(collector.indexed().len(), 8);
    assert_eq!(collector.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_wrong_token_waits_and_is_never_said() {
    let server = HttpServer::start(|taken, _| {
        let said = taken.header("authorization").to_owned();
        Answer::new(403).body(format!(r#"{{"text":"Invalid token {said}","code":4}}"#))
    });
    let output = output("{hosts: URL, token: hunter2}", &server.url())
        .await
        .expect("it opens");
    let error = send(&*output, &TWO).await.expect_err("a wrong token");
    let SendError::Blocked(reason) = &error else {
        panic!("{error:?}")
    };
    assert!(
        reason.contains("Invalid token Splunk [secret] (code 4)"),
        "{reason}"
    );
}

#[tokio::test]
async fn an_acknowledgement_that_does_not_come_sends_the_request_again() {
    let collector = Collector::new(&[], Some(Duration::from_secs(3600)));
    let double = collector.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let settings = "{hosts: URL, token: TOKEN, acknowledge: true, acknowledge_interval: 10ms, acknowledge_timeout: 100ms}";
    let output = output(settings, &server.url()).await.expect("it opens");
    let error = send(&*output, &TWO).await.expect_err("not indexed");
    assert!(
        matches!(&error, SendError::Retry(reason) if reason.contains("`acknowledge_timeout`")),
        "{error:?}"
    );
    assert_eq!(output.take_counters(), [("unacknowledged", 1)]);
}

#[tokio::test]
async fn a_restarted_server_is_found_by_the_number_that_comes_again() {
    let collector = Collector::new(&[], Some(Duration::from_millis(300)));
    let double = collector.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let settings = "{hosts: URL, token: TOKEN, acknowledge: true, acknowledge_interval: 10ms, acknowledge_timeout: 1m}";
    let output = output(settings, &server.url()).await.expect("it opens");
    let first = tokio::spawn({
        let output = output.clone();
        async move { send(&*output, &TWO).await }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    collector.restart();
    // The server counts from 0 again, and knows nothing of the first request.
    let second = send(&*output, &TWO)
        .await
        .expect_err("its number was there before");
    let first = first.await.expect("it ends").expect_err("it is forgotten");
    for error in [first, second] {
        assert!(
            matches!(&error, SendError::Retry(reason) if reason.contains("restarted")),
            "{error:?}"
        );
    }
    assert_eq!(send(&*output, &TWO).await, Ok(Sent::default()));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_their_place() {
    for (settings, place, part) in [
        ("{token: x}", "1:1", "`hosts`"),
        ("{hosts: [], token: x}", "1:1", "`hosts` is missing"),
        ("{hosts: 'http://h'}", "1:1", "`token`"),
        (
            "{hosts: 'http://h', token: ''}",
            "1:28",
            "the token is empty",
        ),
        (
            "{hosts: 'http://h', token: 'file:/nowhere'}",
            "1:28",
            "cannot read",
        ),
        (
            "{hosts: 'http://h?x', token: x}",
            "1:9",
            "cannot contain `?`",
        ),
        (
            "{hosts: 'http://h', token: x, index: '%{a'}",
            "1:",
            "is not closed",
        ),
        (
            "{hosts: 'http://h', token: x, endpoint: raw, fields: {a: b}}",
            "1:54",
            "requires `endpoint: event`",
        ),
        (
            "{hosts: 'http://h', token: x, channel: y}",
            "1:40",
            "must be a GUID",
        ),
        (
            "{hosts: 'http://h', token: x, auth: {bearer: y}}",
            "1:31",
            "unknown setting",
        ),
        (
            "{hosts: 'http://h', token: x, compression_level: 1}",
            "1:50",
            "requires a `compression`",
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

//! The output against the double of ClickHouse.

use std::sync::Arc;

use component::{Request, SendError, Sender, Sent};
use config::ConfigError;
use testkit::clickhouse::ClickHouse;
use testkit::http::{Answer, HttpServer};

use super::SPEC;
use crate::testing;

/// The output with these settings, and `URL` in them replaced.
async fn output(settings: &str, url: &str) -> Result<Arc<dyn Sender>, ConfigError> {
    let output = testing::build_sender(&SPEC, &settings.replace("URL", url))?;
    output.open().await?;
    Ok(output)
}

/// Sends documents as one request of that id.
async fn send(output: &dyn Sender, documents: &[&str], id: u128) -> Result<Sent, SendError> {
    let encoded = testing::encode(output, &testing::documents(documents));
    let destination = encoded.parts.first().map(|part| part.destination.clone());
    let request = Request {
        destination: destination.unwrap_or_else(|| "".into()),
        body: encoded.bytes.into(),
        rows: encoded.rows,
        attempt: 0,
        id,
    };
    output.send(&request).await
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_stored_once() {
    let clickhouse = ClickHouse::new(&["logs_x"]);
    let double = clickhouse.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let settings = "{hosts: URL, table: 'logs_%{t}', settings: {async_insert: true, max_threads: 2, log_comment: 'a b'}, \
                    auth: {basic: {user: u, password: hunter2}}}";
    let output = output(settings, &server.url()).await.expect("it opens");
    let rows = [r#"{"t":"x","n":1}"#, "{\"t\":\n\"x\"}"];
    for id in [0, 0, 1] {
        assert_eq!(send(&*output, &rows, id).await, Ok(Sent::default()));
    }
    assert_eq!(
        (clickhouse.rows("logs_x").len(), clickhouse.ignored()),
        (4, 1)
    );
    assert_eq!(clickhouse.violations(), Vec::<String>::new());
    let taken = server.taken().swap_remove(0);
    assert_eq!(taken.header("authorization"), "Basic dTpodW50ZXIy");
    for part in [
        "async_insert=1",
        "max_threads=2",
        "log_comment=a+b",
        "input_format_skip_unknown_fields=1",
    ] {
        assert!(taken.path.contains(part), "{}", taken.path);
    }
}

#[tokio::test]
async fn an_exception_behind_a_status_of_success_is_heard() {
    let server = HttpServer::start(|_, _| {
        Answer::new(200).body("Code: 252. DB::Exception: Too many parts. (TOO_MANY_PARTS)")
    });
    let output = output("{hosts: URL, table: t, deduplicate: false}", &server.url()).await;
    let output = output.expect("it opens");
    let error = send(&*output, &["{}"], 0).await.expect_err("an exception");
    assert!(
        matches!(&error, SendError::Later { reason, .. } if reason.contains("Too many parts")),
        "{error:?}"
    );
    assert!(
        !server.taken()[0].path.contains("token"),
        "it was told not to"
    );
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_their_place() {
    for (settings, place, part) in [
        ("{table: t}", "1:1", "`hosts`"),
        ("{hosts: 'http://h'}", "1:1", "`table`"),
        ("{hosts: 'http://h', table: ''}", "1:28", "is empty"),
        ("{hosts: 'http://h', table: '%{a'}", "1:", "is not closed"),
        (
            "{hosts: 'http://h', table: t, database: ''}",
            "1:41",
            "is empty",
        ),
        (
            "{hosts: 'http://h', table: t, settings: {query: x}}",
            "1:49",
            "`query` is set by the output itself",
        ),
        (
            "{hosts: 'http://h', table: t, settings: {password: hunter2}}",
            "1:",
            "would appear in the logs",
        ),
        (
            "{hosts: 'http://h', table: t, compression: lz4}",
            "1:44",
            "lz4",
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
        assert!(!error.contains("hunter2"), "{error}");
    }
}

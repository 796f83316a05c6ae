//! The output against servers that are stricter than real ones.
//!
//! A double takes a bulk request apart line by line and panics at whatever a real server would not take. Its replies are those
//! that real servers gave (`replies/`); those of security and of proxies are made after the documentation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use component::{Compression, Request, SendError, Sender, Sent};
use config::ConfigError;
use serde_json::Value;
use testkit::authority::Authority;
use testkit::http::{Answer, HttpServer, Taken};

use super::SPEC;
use crate::testing;

/// The output with these settings, and `URL` in them replaced.
async fn output(settings: &str, url: &str) -> Result<Arc<dyn Sender>, ConfigError> {
    let output = testing::build_sender(&SPEC, &settings.replace("URL", url))?;
    output.open().await?;
    Ok(output)
}

/// Sends documents as the engine does: one request for each destination.
async fn send(output: &dyn Sender, documents: &[&str]) -> Vec<Result<Sent, SendError>> {
    let encoded = testing::encode(output, &testing::documents(documents));
    let mut parts: Vec<(Arc<str>, usize)> = encoded
        .parts
        .iter()
        .map(|part| (part.destination.clone(), part.bytes.start))
        .collect();
    if parts.is_empty() {
        parts.push((Arc::from(""), 0));
    }
    let mut answers = Vec::new();
    for (number, (destination, start)) in parts.iter().enumerate() {
        let end = parts
            .get(number + 1)
            .map_or(encoded.bytes.len(), |part| part.1);
        let rows = encoded
            .ends
            .iter()
            .filter(|row| row.end > *start && row.end <= end);
        let body = &encoded.bytes[*start..end];
        let body = match output.requests().compression {
            Compression::None => body.to_vec(),
            Compression::Gzip(_) => testing::gzip(body),
            Compression::Zstd(_) => panic!("no server takes it"),
        };
        let request = Request {
            id: 0,
            destination: destination.clone(),
            body: body.into(),
            rows: rows.count(),
            attempt: 0,
        };
        answers.push(output.send(&request).await);
    }
    answers
}

/// The documents of a request with their actions: panics unless it is as servers take it.
fn documents(taken: &Taken) -> Vec<(Value, Value)> {
    assert_eq!(taken.method, "POST");
    assert!(
        taken
            .path
            .contains("/_bulk?filter_path=errors%2Citems.*.status%2C"),
        "{}",
        taken.path
    );
    assert_eq!(taken.header("content-type"), "application/x-ndjson");
    let text = taken.text();
    assert!(text.ends_with('\n'), "the last line ends");
    let read = |line: &str| serde_json::from_str::<Value>(line).expect("JSON in a line");
    let lines: Vec<Value> = text.lines().map(read).collect();
    assert_eq!(lines.len() % 2, 0, "an action and a document");
    let pairs = lines.chunks(2).map(|pair| {
        assert_eq!(
            pair[0].as_object().map(serde_json::Map::len),
            Some(1),
            "one action"
        );
        assert!(pair[1].is_object(), "a document is an object");
        (pair[0].clone(), pair[1].clone())
    });
    pairs.collect()
}

/// The reply of a server that takes everything.
fn stored(taken: &Taken) -> Answer {
    let documents = documents(taken);
    let items: Vec<String> = documents
        .iter()
        .map(|(action, _)| {
            let verb = action.as_object().and_then(|action| action.keys().next());
            format!("{{\"{}\":{{\"status\":201}}}}", verb.expect("an action"))
        })
        .collect();
    let items = items.join(",");
    Answer::new(200).body(format!("{{\"errors\":false,\"items\":[{items}]}}"))
}

fn server() -> HttpServer {
    HttpServer::start(|taken, _| stored(taken))
}

const TWO: [&str; 2] = [
    r#"{"@timestamp":"2024-02-29T23:59:59Z","a":"x"}"#,
    r#"{"a":"Y"}"#,
];

#[tokio::test]
async fn hosts_alone_are_enough() {
    let server = server();
    let output = output("hosts: URL", &server.url()).await.expect("it opens");
    assert_eq!(output.requests().compression, Compression::Gzip(1));
    for answer in send(&*output, &TWO).await {
        let sent = answer.expect("it is taken");
        assert!(sent.retry.is_empty() && sent.refused.is_empty() && sent.because.is_none());
    }
    let taken = server.taken();
    assert_eq!(taken.len(), 1);
    assert!(
        taken[0].path.starts_with("/logs-generic-default/_bulk?"),
        "{}",
        taken[0].path
    );
    assert_eq!(taken[0].header("content-encoding"), "gzip");
    let documents = documents(&taken[0]);
    assert_eq!(documents[0].0["create"]["_id"], "AAAAAAAAAAAAAAAAAAABAS0");
    assert_eq!(documents[1].1["@timestamp"], "1970-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn settings_choose_address_action_and_body() {
    for (settings, expected) in [
        (
            "{hosts: [URL/es/], index: 'web-%{a}-%{+yyyy.MM}', compression: none}",
            &["/es/web-x-2024.02/_bulk", "/es/web-y-1970.01/_bulk"][..],
        ),
        (
            "{hosts: URL, data_stream: 'logs-%{a}-prod'}",
            &["/logs-x-prod/_bulk", "/logs-y-prod/_bulk"],
        ),
        (
            "{hosts: URL, index: i, pipeline: 'a b'}",
            &["/i/_bulk pipeline=a+b"],
        ),
        (
            "{hosts: URL, index: i, require: alias}",
            &["/i/_bulk require_alias=true"],
        ),
        (
            "{hosts: URL, require: data_stream}",
            &["/logs-generic-default/_bulk require_data_stream=true"],
        ),
    ] {
        let server = server();
        let output = output(settings, &server.url()).await.expect("it opens");
        for answer in send(&*output, &TWO).await {
            answer.expect("it is taken");
        }
        let shown: Vec<String> = server
            .taken()
            .iter()
            .map(|taken| {
                let (path, query) = taken.path.split_once('?').expect("a query");
                let others = query
                    .split('&')
                    .filter(|part| !part.starts_with("filter_path="));
                [path]
                    .into_iter()
                    .chain(others)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(shown, expected, "{settings}");
    }
}

#[tokio::test]
async fn what_a_reply_says_of_each_document_is_heard() {
    let reply = r#"{"errors":true,"items":[
        {"create":{"status":409,"error":{"type":"version_conflict_engine_exception","reason":"there"}}},
        {"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}},
        {"create":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"no number"}}}]}"#;
    let server = HttpServer::start(move |taken, _| {
        assert_eq!(documents(taken).len(), 3);
        Answer::new(200).body(reply)
    });
    let output = output("{hosts: URL, index: i}", &server.url())
        .await
        .expect("it opens");
    let answer = send(&*output, &[r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#])
        .await
        .remove(0);
    let sent = answer.expect("it is answered");
    assert_eq!((sent.retry.len(), sent.retry[0].row), (1, 1));
    assert_eq!((sent.refused.len(), sent.refused[0].row), (1, 2));
    assert_eq!(
        &*sent.refused[0].reason,
        "mapper_parsing_exception: no number"
    );
    let reason = format!("{}: es_rejected_execution_exception: full", server.url());
    assert_eq!(
        sent.because,
        Some(SendError::Later {
            reason,
            after: None
        })
    );
    assert_eq!(output.take_counters(), [("already_there", 1)]);
    assert!(output.take_counters().is_empty());
}

#[tokio::test]
async fn whole_requests_fail_as_their_status_says() {
    let server = HttpServer::start(|taken, _| {
        match taken.path.split('/').nth(1) {
        Some("security") => Answer::new(401).body(
            r#"{"error":{"root_cause":[],"type":"security_exception","reason":"unable to authenticate user [x] for REST request"},"status":401}"#,
        ),
        Some("busy") => Answer::new(429).header("retry-after", "7"),
        Some("large") => Answer::new(413),
        Some("moved") => Answer::new(302).header("location", "https://new.example/?secret"),
        Some("short") => Answer::new(200).body(r#"{"errors":false,"items":[{"create":{"status":201}}]}"#),
        Some("cut") => Answer::new(200).body(r#"{"errors":false,"items":[{"create":{"sta"#),
        Some("page") => Answer::new(200).body("<html>Please log in</html>"),
        _ => Answer::new(200).after(Duration::from_secs(5)),
    }
    });
    let url = server.url();
    for (index, expected) in [
        (
            "security",
            SendError::Blocked(format!(
                "{url} responded with 401 Unauthorized: security_exception: unable to authenticate user [x] for REST request"
            )),
        ),
        (
            "busy",
            SendError::Later {
                reason: format!("{url} responded with 429 Too Many Requests"),
                after: Some(Duration::from_secs(7)),
            },
        ),
        (
            "large",
            SendError::Unfit(format!("{url} responded with 413 Payload Too Large")),
        ),
        (
            "short",
            SendError::Retry(format!(
                "{url}: the response is about 1 document, but 2 were sent"
            )),
        ),
        (
            "cut",
            SendError::Retry(format!(
                "{url}: the response of 40 bytes cannot be parsed: EOF while parsing a string at line 1 column 40"
            )),
        ),
        (
            "page",
            SendError::Retry(format!(
                "{url}: the response of 26 bytes cannot be parsed: expected value at line 1 column 1"
            )),
        ),
        (
            "slow",
            SendError::Retry(format!("{url}: no response within the timeout")),
        ),
    ] {
        let settings = format!("{{hosts: URL, index: {index}, timeout: 300ms}}");
        let output = output(&settings, &url).await.expect("it opens");
        let error = send(&*output, &TWO).await.remove(0).expect_err("it fails");
        assert_eq!(error, expected, "{index}");
    }
    let output = output("{hosts: URL, index: moved}", &url)
        .await
        .expect("it opens");
    let error = send(&*output, &TWO).await.remove(0).expect_err("it fails");
    assert!(
        matches!(&error, SendError::Blocked(reason) if !reason.contains("secret")),
        "{error:?}"
    );
}

#[tokio::test]
async fn credentials_are_sent_and_never_said() {
    let server = HttpServer::start(|taken, _| {
        let said = taken.header("authorization").to_owned();
        Answer::new(403).body(format!(
            "{{\"error\":{{\"type\":\"security_exception\",\"reason\":\"{said}\"}}}}"
        ))
    });
    for (auth, authorization) in [
        ("{api_key: 'id:hunter2'}", "ApiKey aWQ6aHVudGVyMg=="),
        ("{api_key: aWQ6aHVudGVyMg==}", "ApiKey aWQ6aHVudGVyMg=="),
        (
            "{basic: {user: elastic, password: hunter2}}",
            "Basic ZWxhc3RpYzpodW50ZXIy",
        ),
        ("{bearer: hunter2}", "Bearer hunter2"),
    ] {
        let settings = format!("{{hosts: URL, auth: {auth}}}");
        let output = output(&settings, &server.url()).await.expect("it opens");
        let error = send(&*output, &TWO).await.remove(0).expect_err("refused");
        let said = error.to_string();
        assert!(
            said.contains("security_exception") && said.contains("[secret]"),
            "{said}"
        );
        assert!(
            !said.contains("hunter2") && !said.contains("aHVudGVy") && !said.contains("b0ZXIy"),
            "{said}"
        );
        let taken = server.taken().pop().expect("a request");
        assert_eq!(taken.header("authorization"), authorization);
    }
}

#[tokio::test]
async fn tls_proves_both_sides() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("client", "shipper");
    let tls = Some(authority.server("server"));
    let server = HttpServer::start_at(0, tls, |taken, _| stored(taken));
    let url = format!("https://localhost:{}", server.address().port());
    for (tls, is_fine) in [
        (
            "{ca: DIR/ca.pem, cert: DIR/client.pem, key: DIR/client.key}",
            true,
        ),
        ("{ca: DIR/ca.pem}", false),
    ] {
        let settings = authority.with_folder(&format!("{{hosts: URL, tls: {tls}}}"));
        let output = output(&settings, &url).await.expect("it opens");
        let answer = send(&*output, &TWO).await.remove(0);
        assert_eq!(answer.is_ok(), is_fine, "{tls}: {answer:?}");
    }
    assert_eq!(server.taken().len(), 1);
}

#[tokio::test]
async fn another_host_gets_what_one_cannot_be_sent() {
    let good = server();
    let settings = format!(
        "{{hosts: [URL, {}, '{}/']}}",
        "http://127.0.0.1:1",
        good.url()
    );
    let busy = HttpServer::start(|_, _| Answer::new(503));
    let output = output(&settings, &busy.url()).await.expect("it opens");
    for _ in 0..30 {
        let sent = send(&*output, &TWO).await.remove(0);
        assert_eq!(sent, Ok(Sent::default()));
    }
    assert_eq!(busy.taken().len(), 1, "it rests");
    assert_eq!(good.taken().len(), 30);
    let warnings: Vec<String> = output
        .take_warnings()
        .into_iter()
        .map(|warning| warning.text)
        .collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings
            .iter()
            .any(|text| text.starts_with("requests to http://127.0.0.1:1 are paused: ")),
        "{warnings:?}"
    );
}

/// What is wrong with one host keeps no request from the others.
#[tokio::test]
async fn a_host_that_cannot_work_gets_no_requests() {
    let wrong: [fn() -> Answer; 6] = [
        || Answer::new(401),
        || Answer::new(404).body("no such page"),
        || Answer::new(429).header("retry-after", "20"),
        || Answer::new(500),
        || Answer::new(503).header("retry-after", "20"),
        || Answer::new(302).header("location", "https://login.example/"),
    ];
    for (number, answer) in wrong.into_iter().enumerate() {
        let (good, bad) = (server(), HttpServer::start(move |_, _| answer()));
        let settings = format!("hosts: [URL, '{}']", good.url());
        let output = output(&settings, &bad.url()).await.expect("it opens");
        for _ in 0..10 {
            let sent = send(&*output, &TWO).await.remove(0);
            assert_eq!(sent, Ok(Sent::default()), "{number}");
        }
        assert_eq!((bad.taken().len(), good.taken().len()), (1, 10), "{number}");
    }
    // A page in place of a reply may hide what was stored: the engine sends the request again, to another host.
    let (good, bad) = (
        server(),
        HttpServer::start(|_, _| Answer::new(200).body("<html>Please log in</html>")),
    );
    let settings = format!("hosts: [URL, '{}']", good.url());
    let output = output(&settings, &bad.url()).await.expect("it opens");
    let mut failed = 0;
    for _ in 0..10 {
        failed += usize::from(send(&*output, &TWO).await.remove(0).is_err());
    }
    assert_eq!((failed, bad.taken().len(), good.taken().len()), (1, 1, 9));
}

#[tokio::test]
async fn of_what_all_hosts_say_the_hope_counts() {
    let later = |seconds: u64| {
        HttpServer::start(move |_, _| Answer::new(503).header("retry-after", seconds.to_string()))
    };
    let blocked = || HttpServer::start(|_, _| Answer::new(401));
    let away = "http://127.0.0.1:1";
    let long = later(20);
    for (other, expected) in [
        (later(7).url(), Some(7)),
        (blocked().url(), Some(20)),
        (away.to_owned(), None),
    ] {
        for hosts in [[long.url(), other.clone()], [other.clone(), long.url()]] {
            let settings = format!("hosts: ['{}', '{}']", hosts[0], hosts[1]);
            let output = output(&settings, "").await.expect("it opens");
            let error = send(&*output, &TWO).await.remove(0).expect_err("it fails");
            let after = match error {
                SendError::Later { after, .. } => after,
                SendError::Retry(_) => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(after, expected.map(Duration::from_secs), "{hosts:?}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_a_proxy_compresses_is_understood() {
    for (encoding, is_good) in [("gzip", true), ("br", false)] {
        let server = HttpServer::start(move |taken, _| {
            documents(taken);
            let reply =
                r#"{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}}]}"#;
            Answer::new(200)
                .header("content-encoding", encoding)
                .body(testing::gzip(reply.as_bytes()))
        });
        let output = output("hosts: URL", &server.url()).await.expect("it opens");
        match send(&*output, &TWO).await.remove(0) {
            Ok(sent) => assert!(is_good && sent == Sent::default()),
            Err(SendError::Retry(reason)) => assert!(
                !is_good && reason.contains("has the Content-Encoding `br`"),
                "{reason}"
            ),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn hosts_that_are_all_away_are_tried_again() {
    let settings = "hosts: [http://127.0.0.1:1, http://127.0.0.1:2]";
    let output = output(settings, "").await.expect("it opens");
    for _ in 0..3 {
        let error = send(&*output, &TWO).await.remove(0).expect_err("away");
        assert!(
            matches!(&error, SendError::Retry(reason) if reason.contains("cannot connect")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_template_is_made_once_and_only_where_there_is_none() {
    for (existing, data_stream, expected) in [
        (false, "logs-a-b", &["HEAD", "PUT", "POST", "POST"][..]),
        (true, "logs-a-b", &["HEAD", "POST", "POST"]),
        (
            false,
            "logs-%{a}-b",
            &["HEAD", "PUT", "POST", "POST", "POST", "POST"],
        ),
    ] {
        let server = HttpServer::start(move |taken, _| match taken.method.as_str() {
            "HEAD" => Answer::new(if existing { 200 } else { 404 }),
            "PUT" => Answer::new(200).body(r#"{"acknowledged":true}"#),
            _ => stored(taken),
        });
        let settings = format!("{{hosts: URL, data_stream: '{data_stream}', template: default}}");
        let output = output(&settings, &server.url()).await.expect("it opens");
        for _ in 0..2 {
            for answer in send(&*output, &TWO).await {
                answer.expect("it is taken");
            }
        }
        let taken = server.taken();
        let methods: Vec<&str> = taken.iter().map(|taken| taken.method.as_str()).collect();
        assert_eq!(methods, expected);
        let name = data_stream.replace("%{a}", "any");
        assert_eq!(taken[0].path, format!("/_index_template/millpond-{name}"));
        if !existing {
            assert_eq!(
                taken[1].path,
                format!("/_index_template/millpond-{name}?create=true")
            );
            assert_eq!(taken[1].header("content-type"), "application/json");
            let body: Value = serde_json::from_str(&taken[1].text()).expect("JSON");
            assert_eq!(body["index_patterns"][0], data_stream.replace("%{a}", "*"));
            assert!(body["data_stream"].is_object());
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_before_the_template_is_there() {
    let answers = Arc::new(AtomicUsize::new(0));
    let count = answers.clone();
    let server = HttpServer::start(move |taken, _| {
        match taken.method.as_str() {
        "HEAD" => Answer::new(404),
        "PUT" => match count.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::new(503),
            1 => Answer::new(403).body(r#"{"error":{"type":"security_exception","reason":"no"}}"#),
            _ => Answer::new(400).body(r#"{"error":{"type":"illegal_argument_exception","reason":"index template [x] already exists"}}"#),
        },
        _ => stored(taken),
    }
    });
    let output = output("{hosts: URL, template: default}", &server.url())
        .await
        .expect("it opens");
    let error = send(&*output, &TWO).await.remove(0).expect_err("not yet");
    assert!(matches!(error, SendError::Later { .. }), "{error:?}");
    let error = send(&*output, &TWO).await.remove(0).expect_err("not yet");
    let said = format!(
        "the index template `millpond-logs-generic-default` cannot be created: {} responded with 403 Forbidden: security_exception: no",
        server.url()
    );
    assert_eq!(error, SendError::Blocked(said));
    send(&*output, &TWO)
        .await
        .remove(0)
        .expect("somebody else made it");
    let sent = server.taken();
    assert_eq!(
        sent.iter().filter(|taken| taken.method == "POST").count(),
        1
    );
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_their_place() {
    for (settings, place, part) in [
        ("{}", "1:1", "`hosts` is missing"),
        ("{hosts: []}", "1:1", "`hosts` is missing"),
        (
            "{hosts: 'localhost:9200'}",
            "1:9",
            "such as http://localhost:9200",
        ),
        ("{hosts: ['http://h', 'ftp://h']}", "1:22", "not `ftp`"),
        ("{hosts: 'http://u:hunter2@h'}", "1:", "use `auth`"),
        ("{hosts: 'http://h?x=1'}", "1:9", "cannot contain `?`"),
        (
            "{hosts: 'http://h', cloud_id: 'x:YSRi'}",
            "1:31",
            "cannot be used together",
        ),
        ("{cloud_id: 'x:hello'}", "1:12", "not a cloud id"),
        (
            "{hosts: 'http://h', index: a, data_stream: b}",
            "1:28",
            "cannot be used together",
        ),
        ("{hosts: 'http://h', index: Abc}", "1:28", "lower case"),
        (
            "{hosts: 'http://h', data_stream: 'a b'}",
            "1:34",
            "name of a data stream",
        ),
        (
            "{hosts: 'http://h', op_type: index}",
            "1:30",
            "accept only `create`",
        ),
        ("{hosts: 'http://h', op_type: update}", "1:30", "create"),
        (
            "{hosts: 'http://h', document_id: Event}",
            "1:34",
            "the same id for all",
        ),
        (
            "{hosts: 'http://h', document_id: '%{a'}",
            "1:35",
            "is not closed",
        ),
        ("{hosts: 'http://h', routing: ''}", "1:30", "is empty"),
        ("{hosts: 'http://h', compression: zstd}", "1:34", "gzip"),
        (
            "{hosts: 'http://h', compression: none, compression_level: 1}",
            "1:59",
            "requires a `compression`",
        ),
        (
            "{hosts: 'http://h', compression_level: 10}",
            "1:40",
            "between 0 and 9",
        ),
        (
            "{hosts: 'http://h', template: /nowhere/t.json}",
            "1:31",
            "cannot read",
        ),
        (
            "{hosts: 'http://h', auth: {api_key: ''}}",
            "1:37",
            "is empty",
        ),
        ("{hosts: 'http://h', indx: x}", "1:21", "unknown setting"),
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

//! The output against servers of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::{Request, SendError, Sender, Sent};
use config::ConfigError;
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

/// Sends documents as the engine does, but for compression: one request for each destination.
async fn send(output: &dyn Sender, documents: &[&str]) -> Vec<Result<Sent, SendError>> {
    let encoded = testing::encode(output, &testing::documents(documents));
    assert_eq!(encoded.ends.len(), encoded.rows);
    let mut parts: Vec<(Arc<str>, usize)> = encoded
        .parts
        .iter()
        .map(|part| (part.destination.clone(), part.bytes.start))
        .collect();
    if parts.is_empty() {
        parts.push((Arc::from(""), 0));
    }
    let framing = output.requests().framing;
    let mut answers = Vec::new();
    for (number, (destination, start)) in parts.iter().enumerate() {
        let end = parts.get(number + 1).map_or(usize::MAX, |part| part.1);
        let mut begin = *start;
        let mut body = framing.before.to_vec();
        let ends = encoded.ends.iter().map(|row| row.end);
        let mine: Vec<usize> = ends.filter(|&at| at > *start && at <= end).collect();
        for (row, &at) in mine.iter().enumerate() {
            if row > 0 {
                body.extend_from_slice(framing.between);
            }
            body.extend_from_slice(&encoded.bytes[begin..at]);
            begin = at;
        }
        body.extend_from_slice(framing.after);
        answers.push(send_body(output, destination, body).await);
    }
    answers
}

async fn send_body(
    output: &dyn Sender,
    destination: &Arc<str>,
    body: impl Into<Bytes>,
) -> Result<Sent, SendError> {
    let request = Request {
        id: 0,
        destination: destination.clone(),
        body: body.into(),
        rows: 1,
        attempt: 0,
    };
    output.send(&request).await
}

/// What one request with these settings looked like.
async fn sent(settings: &str, documents: &[&str]) -> Vec<Taken> {
    let server = HttpServer::start(|_, _| Answer::new(200));
    let output = output(settings, &server.url()).await.expect("it opens");
    for answer in send(&*output, documents).await {
        answer.expect("it is taken");
    }
    server.taken()
}

const TWO: [&str; 2] = [r#"{"a":1.50,"b":"x"}"#, r#"{"a":2,"b":"y \"z\""}"#];

#[tokio::test]
async fn settings_choose_method_type_and_body() {
    for (settings, expected) in [
        (
            "url: URL/in?x=1",
            "POST /in?x=1 application/x-ndjson\n{\"a\":1.50,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y \\\"z\\\"\"}\n",
        ),
        (
            "{url: URL, method: PUT, body: array}",
            "PUT / application/json\n[{\"a\":1.50,\"b\":\"x\"},{\"a\":2,\"b\":\"y \\\"z\\\"\"}]",
        ),
        (
            "{url: URL, method: PATCH, codec: template, template: '%{b} is %{c}'}",
            "PATCH / text/plain; charset=utf-8\nx is -\ny \"z\" is -\n",
        ),
        (
            "{url: URL, codec: template, template: '\"%{b}\"', escape: json}",
            "POST / application/x-ndjson\n\"x\"\n\"y \\\"z\\\"\"\n",
        ),
        (
            r#"{url: URL, codec: template, template: '"%{b}"', escape: json, body: array}"#,
            "POST / application/json\n[\"x\",\"y \\\"z\\\"\"]",
        ),
        (
            "{url: URL, codec: csv, csv: {columns: [b, a]}}",
            "POST / text/csv; charset=utf-8\nx,1.50\n\"y \"\"z\"\"\",2\n",
        ),
        (
            "{url: URL, codec: logfmt}",
            "POST / text/plain; charset=utf-8\na=1.50 b=x\na=2 b=\"y \\\"z\\\"\"\n",
        ),
        (
            "{url: URL, headers: {content-type: 'application/vnd.x+json'}}",
            "POST / application/vnd.x+json\n{\"a\":1.50,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y \\\"z\\\"\"}\n",
        ),
    ] {
        let taken = sent(settings, &TWO).await;
        assert_eq!(taken.len(), 1, "{settings}");
        let taken = &taken[0];
        let shown = format!(
            "{} {} {}\n{}",
            taken.method,
            taken.path,
            taken.header("content-type"),
            taken.text()
        );
        assert_eq!(shown, expected, "{settings}");
        assert_eq!(taken.header("content-length"), taken.body.len().to_string());
    }
}

#[tokio::test]
async fn single_events_are_requests_of_their_own() {
    for (settings, kind, body) in [
        (
            "{url: URL, body: single}",
            "application/json",
            r#"{"a":1.50,"b":"x"}"#,
        ),
        (
            r#"{url: URL, body: single, codec: template, template: '{"t":"%{b}"}', escape: json}"#,
            "application/json",
            r#"{"t":"x"}"#,
        ),
        (
            "{url: URL, body: single, codec: template, template: 'b=%{b}'}",
            "text/plain; charset=utf-8",
            "b=x",
        ),
    ] {
        let taken = sent(settings, &TWO[..1]).await;
        assert_eq!(taken[0].header("content-type"), kind, "{settings}");
        assert_eq!(taken[0].text(), body, "{settings}");
        let output = testing::build_sender(&SPEC, &settings.replace("URL", "http://h/"));
        let limits = output.expect("it can work").requests().limits;
        assert_eq!(limits.rows_max, 1);
    }
}

#[tokio::test]
async fn addresses_and_headers_come_from_events() {
    let settings = "{url: 'URL/%{b}', headers: {X-A: 'a%{a}', X-Plain: '100%'}, \
                    auth: {bearer: hunter2}}";
    let documents = [TWO[0], TWO[1], r#"{"a":1.50,"b":"x","c":3}"#];
    let taken = sent(settings, &documents).await;
    let shown: Vec<String> = taken
        .iter()
        .map(|taken| {
            let header = |name: &str| taken.header(name).to_owned();
            format!(
                "{} {} {} {} {}",
                taken.path,
                header("x-a"),
                header("x-plain"),
                header("authorization"),
                taken.text().lines().count()
            )
        })
        .collect();
    let expected = [
        "/x a1.50 100% Bearer hunter2 2",
        "/y%20%22z%22 a2 100% Bearer hunter2 1",
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn compressed_bodies_say_so() {
    for (settings, encoding) in [
        ("url: URL", ""),
        ("{url: URL, compression: gzip}", "gzip"),
        (
            "{url: URL, compression: zstd, compression_level: 19}",
            "zstd",
        ),
    ] {
        let server = HttpServer::start(|_, _| Answer::new(200));
        let output = output(settings, &server.url()).await.expect("it opens");
        let text = b"{}\n".repeat(100);
        let body = match output.requests().compression {
            component::Compression::None => text.clone(),
            component::Compression::Gzip(level) => {
                assert_eq!(level, 6);
                testing::gzip(&text)
            }
            component::Compression::Zstd(level) => {
                assert_eq!(level, 19);
                zstd::bulk::compress(&text, level).expect("memory")
            }
        };
        let sent = send_body(&*output, &Arc::from(""), body).await;
        sent.expect("it is taken");
        let taken = server.taken();
        assert_eq!(taken[0].header("content-encoding"), encoding);
        assert_eq!(taken[0].text().as_bytes(), text, "{settings}");
    }
}

#[tokio::test]
async fn credentials_are_sent_and_never_said() {
    // A server that says back what it was sent.
    let server = HttpServer::start(|taken, _| {
        let said = taken.header("authorization").to_owned() + " " + taken.header("x-key");
        Answer::new(401).body(format!("wrong: {said}\n\u{1b}[31m{}", "x".repeat(1000)))
    });
    for (settings, authorization) in [
        ("auth: {bearer: hunter2}", "Bearer hunter2"),
        (
            "auth: {basic: {user: elastic, password: hunter2}}",
            "Basic ZWxhc3RpYzpodW50ZXIy",
        ),
        ("headers: {Authorization: ApiKey hunter2}", "ApiKey hunter2"),
        ("headers: {X-Key: hunter2}", ""),
    ] {
        let path = "path-hunter2?token=hunter2";
        let settings = format!("url: URL/{path}\n{settings}");
        let output = output(&settings, &server.url()).await.expect("it opens");
        let error = send(&*output, &TWO).await.remove(0).expect_err("refused");
        let SendError::Blocked(reason) = &error else {
            panic!("{error:?}")
        };
        let origin = server.url();
        assert!(
            reason.starts_with(&format!(
                "{origin} responded with 401 Unauthorized: wrong: "
            )),
            "{reason}"
        );
        assert!(
            !reason.contains("hunter2") && !reason.contains("ZWxh"),
            "{reason}"
        );
        assert!(reason.len() < 300 && !reason.contains('\u{1b}'), "{reason}");
        let taken = server.taken().pop().expect("a request");
        assert_eq!(taken.header("authorization"), authorization);
        assert!(taken.path.ends_with(path));
    }
}

#[tokio::test]
async fn answers_become_verdicts() {
    let server = HttpServer::start(|taken, _| match taken.path.as_str() {
        "/moved" => Answer::new(301).header("location", "https://new.example/in?token=hunter2"),
        "/busy" => Answer::new(503).header("retry-after", "7").body("later"),
        "/large" => Answer::new(413),
        "/odd" => Answer::new(409).body("conflict"),
        "/long" => Answer::new(200).body("x".repeat(1 << 20)),
        _ => Answer::new(200).after(Duration::from_secs(5)),
    });
    let url = server.url();
    for (path, expected) in [
        (
            "/moved",
            Err(SendError::Blocked(format!(
                "{url}: the response is a redirect (301 Moved Permanently) to https://new.example/in, \
                 which is not followed: use that address if it is correct"
            ))),
        ),
        (
            "/busy",
            Err(SendError::Later {
                reason: format!("{url} responded with 503 Service Unavailable: later"),
                after: Some(Duration::from_secs(7)),
            }),
        ),
        (
            "/large",
            Err(SendError::Unfit(format!(
                "{url} responded with 413 Payload Too Large"
            ))),
        ),
        (
            "/odd",
            Err(SendError::Refused(format!(
                "{url} responded with 409 Conflict: conflict"
            ))),
        ),
        ("/long", Ok(())),
        (
            "/slow",
            Err(SendError::Retry(format!(
                "{url}: no response within the timeout"
            ))),
        ),
    ] {
        let settings = format!("{{url: URL{path}, timeout: 300ms}}");
        let output = output(&settings, &url).await.expect("it opens");
        let answer = send(&*output, &TWO).await.remove(0);
        assert_eq!(answer.map(drop), expected, "{path}");
    }
}

#[tokio::test]
async fn servers_that_are_away_are_tried_again() {
    for (url, part) in [
        ("http://127.0.0.1:1", "cannot connect: Connection refused"),
        ("http://no-such-host.invalid", "cannot connect: "),
    ] {
        let output = output("url: URL/x", url).await.expect("it opens");
        let error = send(&*output, &TWO).await.remove(0).expect_err("away");
        let SendError::Retry(reason) = &error else {
            panic!("{error:?}")
        };
        assert!(reason.starts_with(url) && reason.contains(part), "{reason}");
    }
}

#[tokio::test]
async fn tls_proves_both_sides() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("client", "shipper");
    let tls = Some(authority.server("server"));
    let server = HttpServer::start_at(0, tls, |_, _| Answer::new(204));
    let url = format!("https://localhost:{}", server.address().port());
    for (tls, is_fine) in [
        (
            "{ca: DIR/ca.pem, cert: DIR/client.pem, key: DIR/client.key}",
            true,
        ),
        ("{ca: DIR/ca.pem}", false),
        (
            "{cert: DIR/client.pem, key: DIR/client.key, ca: DIR/client.pem}",
            false,
        ),
    ] {
        let settings = authority.with_folder(&format!("url: URL\ntls: {tls}"));
        let output = output(&settings, &url).await.expect("it opens");
        let answer = send(&*output, &TWO).await.remove(0);
        assert_eq!(answer.is_ok(), is_fine, "{tls}: {answer:?}");
        // The server may be mended while Millpond runs.
        assert!(
            is_fine || matches!(answer, Err(SendError::Retry(_))),
            "{answer:?}"
        );
    }
    assert_eq!(server.taken().len(), 1);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_their_place() {
    for (settings, place, part) in [
        ("{}", "1:1", "`url`"),
        ("{url: 'http://h/', timeuot: 1s}", "1:20", "unknown setting"),
        (
            "{url: 'http://h/', template: x}",
            "1:30",
            "requires `codec: template`",
        ),
        (
            "{url: 'http://h/', format: array}",
            "1:20",
            "set with `body`",
        ),
        (
            "{url: 'http://h/', body: array, codec: logfmt}",
            "1:26",
            "requires `codec: json`",
        ),
        (
            "{url: 'http://h/', escape: json}",
            "1:28",
            "requires `codec: template`",
        ),
        (
            "{url: 'http://h/', codec: template, template: '%{'}",
            "1:48",
            "is not closed",
        ),
        (
            "{url: 'http://h/', compression_level: 3}",
            "1:39",
            "requires a `compression`",
        ),
        (
            "{url: 'http://h/', compression: gzip, compression_level: 10}",
            "1:58",
            "between 0 and 9",
        ),
        (
            "{url: 'http://h/', retry_status: [404, 5xx, 200]}",
            "1:45",
            "`200` is not an error status",
        ),
        (
            "{url: 'http://h/', headers: {Authorization: hunter2}, auth: {bearer: hunter2}}",
            "1:30",
            "exclude each other",
        ),
        (
            "{url: 'https://h/', tls: {ca: /nowhere/ca.pem}}",
            "1:31",
            "cannot read",
        ),
        (
            "{url: 'https://h/', auth: {bearer: 'file:/nowhere/token'}}",
            "1:36",
            "cannot read the secret",
        ),
        (
            "{url: 'http://h/', headers: {X-Key: 'file:/nowhere/key'}}",
            "1:37",
            "cannot read the secret",
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
    let error = testing::build_sender(&SPEC, "{url: 'http://h/', timeuot: 1s}");
    let error = error.err().expect("unknown");
    for name in ["timeout", "headers", "codec", "body", "tls"] {
        assert!(
            error.accepted_words().iter().any(|word| word == name),
            "{name}"
        );
    }
}

//! The HTTP API: who may ask, and clients that should not be there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;
use testkit::authority::Authority;
use testkit::lumberjack::Client;

use crate::api::{Answer, ask, get, on_a_free_port, port, service};
use crate::program::{Folder, millpond};
use crate::running::eventually;

#[test]
fn without_the_token_nothing_is_told() {
    let folder = Folder::new();
    let api = json!({ "address": "127.0.0.1:0", "token": "right" });
    let mut service = service(&folder, &api, &json!({}));
    let port = port(&mut service);
    for path in [
        "/metrics",
        "/api/v1/stats",
        "/api/v1/pipelines",
        "/api/v1/profile",
        "/api/v1/openapi.json",
        "/",
        "/_node/stats/pipelines",
        "/nothing",
    ] {
        for headers in [
            "",
            "Authorization: Bearer wrong\r\n",
            "Authorization: Basic cmlnaHQ=\r\n",
        ] {
            let answer = ask(port, &format!("GET {path}"), headers);
            assert_eq!(answer.status, 401, "{path} {headers}");
            assert!(
                answer
                    .head
                    .to_lowercase()
                    .contains("www-authenticate: bearer"),
                "{}",
                answer.head
            );
        }
    }
    service.until("a start", || get(port, "/ready").status == 200);
    assert_eq!(get(port, "/health").status, 200);
    let known = ask(
        port,
        "GET /metrics",
        "Authorization: Bearer right\r\nHost: any.example\r\n",
    );
    assert_eq!(known.status, 200);
    service.kill();
}

#[test]
fn names_of_other_machines_and_other_sites_are_refused() {
    let folder = Folder::new();
    let mut service = service(&folder, &on_a_free_port(), &json!({}));
    let port = port(&mut service);
    assert_eq!(
        ask(port, "GET /metrics", "Host: rebound.example\r\n").status,
        403
    );
    assert_eq!(
        ask(port, "GET /health", "Host: rebound.example\r\n").status,
        403
    );
    assert_eq!(ask(port, "GET /metrics", "Host: localhost\r\n").status, 200);
    let posted = ask(
        port,
        "POST /metrics",
        "Origin: http://evil.example\r\nContent-Length: 0\r\n",
    );
    assert_eq!(posted.status, 403);
    service.kill();
}

#[test]
fn what_others_can_reach_needs_a_token_or_certificates() {
    let folder = Folder::new();
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let [cert, key] = ["server.pem", "server.key"].map(|file| authority.path(file));
    for (api, said) in [
        (
            "{ address: ':0' }".to_owned(),
            "it needs `token`, or `tls` with `client_ca`",
        ),
        (
            format!(
                "{{ address: '0.0.0.0:0', tls: {{ cert: {}, key: {} }} }}",
                cert.display(),
                key.display()
            ),
            "it needs `token`, or `tls` with `client_ca`",
        ),
        (
            "{ address: 9610, token: '' }".to_owned(),
            "the secret is empty",
        ),
        ("{ addres: 9610 }".to_owned(), "did you mean `address`?"),
        ("perhaps".to_owned(), "`true` or `false`"),
    ] {
        let text = format!("api: {api}\npipelines:\n  one: {{ input: stdin, output: discard }}\n");
        let path = folder.write("exposed.yaml", text);
        for command in ["run", "check"] {
            let ended = millpond(&[command, &path]).expect(2);
            assert!(
                ended.err.contains(said) && ended.err.contains("exposed.yaml:1:"),
                "{}",
                ended.err
            );
        }
    }
    let ended = millpond(&["run", "--api", ":9610", "generate apache count=1 | discard"]).expect(2);
    assert!(ended.err.contains("it needs `token`"), "{}", ended.err);
}

#[test]
fn a_port_that_is_taken_stops_only_who_asked_for_it() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let text = |api: &str| {
        format!("{api}pipelines:\n  one: {{ input: generate apache count=1, output: discard }}\n")
    };
    let path = folder.write("taken.yaml", text(&format!("api: {{ address: {port} }}\n")));
    let ended = millpond(&["run", &path]).expect(2);
    assert!(
        ended
            .err
            .contains("another program is already listening there"),
        "{}",
        ended.err
    );
    // Whether or not the default port is free.
    for api in ["", "api: false\n"] {
        let path = folder.write("default.yaml", text(api));
        millpond(&["run", &path]).expect(0);
    }
    let one_line = millpond(&[
        "run",
        "--api",
        "127.0.0.1:0",
        "generate apache count=1 | discard",
    ])
    .expect(0);
    assert!(
        one_line.err.contains("API on 127.0.0.1:"),
        "{}",
        one_line.err
    );
    let quiet = millpond(&["run", "generate apache count=1 | discard"]).expect(0);
    assert!(!quiet.err.contains("API"), "{}", quiet.err);
}

#[test]
fn slow_and_many_clients_lock_nobody_out() {
    let folder = Folder::new();
    let api = json!({ "address": "127.0.0.1:0", "max_connections": 4 });
    let mut service = service(&folder, &api, &json!({}));
    let port = port(&mut service);
    let silent: Vec<TcpStream> = (0..8)
        .filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok())
        .collect();
    assert_eq!(get(port, "/health").status, 200);
    drop(silent);
    let mut long = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let head = format!(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    let _ = long.write_all(head.as_bytes());
    long.set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    let mut answer = [0; 12];
    if long.read_exact(&mut answer).is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    assert_eq!(get(port, "/health").status, 200);
    service.kill();
}

#[test]
fn clients_show_their_certificates_where_that_is_asked_for() {
    let folder = Folder::new();
    let authority = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("client", "client");
    let tls = json!({
        "cert": authority.path("server.pem"), "key": authority.path("server.key"), "client_ca": authority.path("ca.pem"),
    });
    let mut service = service(
        &folder,
        &json!({ "address": "0.0.0.0:0", "tls": tls }),
        &json!({}),
    );
    let port = port(&mut service);
    let tried = |file: Option<&str>| -> Option<Answer> {
        let address = format!("127.0.0.1:{port}");
        let mut client = Client::connect_tls(&*address, authority.client(file)).ok()?;
        let request = "GET /metrics HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n";
        client.stream().write_all(request.as_bytes()).ok()?;
        let bytes = client.rest();
        (!bytes.is_empty()).then(|| Answer::of(&bytes))
    };
    assert!(tried(None).is_none());
    assert_eq!(tried(Some("client")).map(|answer| answer.status), Some(200));
    eventually("the service goes on", || tried(Some("client")).is_some());
    service.kill();
}

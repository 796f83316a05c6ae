//! Inputs that listen, with TLS and with clients that should not be there.

use std::fs;
use std::io::{Read, Write};
use std::thread::{self, sleep};
use std::time::Duration;

use testkit::authority::Authority;
use testkit::lumberjack::Client;

use crate::posting::{Listening, Service, listening, written};
use crate::program::{Folder, plain};
use crate::running::eventually;

/// Runs a check for every input, all at the same time.
fn each(check: impl Fn(&Listening) + Sync) {
    thread::scope(|scope| {
        for case in listening() {
            let check = &check;
            scope.spawn(move || check(&case));
        }
    });
}

/// The service ends, and has said of one client what this is about.
fn expect_said(service: Service, case: &Listening, reason: &str) {
    let log = plain(&service.stop().err);
    let is_said = |line: &&str| line.starts_with("warning: ") && line.contains(reason);
    let line = log.lines().find(is_said);
    let line = line.unwrap_or_else(|| panic!("{}: no line with {reason}:\n{log}", case.input));
    assert!(line.contains(": 127.0.0.1:"), "{line}");
    assert!(line.contains("the connection was closed"), "{line}");
}

#[test]
fn clients_with_the_right_certificates_are_served_and_others_are_not() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.issue("server", "localhost");
    authority.issue("client", "agent");
    stranger.issue("client", "agent");
    for (from, to) in [("client.pem", "foreign.pem"), ("client.key", "foreign.key")] {
        fs::copy(stranger.path(from), authority.path(to)).expect("copied");
    }
    let tls = ", tls: {cert: DIR/server.pem, key: DIR/server.key, client_ca: DIR/ca.pem}";
    let tls = authority.with_folder(tls);
    each(|case| {
        let Listening { input, event, .. } = case;
        for (refused, reason) in [
            (authority.client(None), "the client shows no certificate"),
            (
                authority.client(Some("foreign")),
                "the client's certificate is not accepted: UnknownIssuer",
            ),
            (
                stranger.client(Some("client")),
                "the client does not accept the certificate of this input (UnknownCA)",
            ),
        ] {
            let folder = Folder::new();
            let service = case.start(&folder, &tls);
            let address = ("127.0.0.1", service.port);
            let mut client = Client::connect_tls(address, refused).expect("connected");
            // It may learn only when it reads.
            let _ = client.send(event);
            assert_eq!(client.rest(), b"", "{input}: {reason}");
            let good = authority.client(Some("client"));
            let mut client = Client::connect_tls(address, good).expect("connected");
            case.send_event(client.stream());
            eventually("the event", || written(&folder) == 1);
            expect_said(
                service,
                case,
                &format!(": the TLS handshake failed: {reason}"),
            );
            assert_eq!(written(&folder), 1, "{input}");
        }
    });
}

#[test]
fn clients_and_ports_with_and_without_tls_do_not_meet() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let tls = ", tls: {cert: DIR/server.pem, key: DIR/server.key}";
    let tls = authority.with_folder(tls);
    each(|case| {
        let Listening { input, event, .. } = case;
        let folder = Folder::new();
        let service = case.start(&folder, &tls);
        let mut client = service.connect();
        client.write_all(event).expect("sent");
        let _ = client.read_to_end(&mut Vec::new());
        let reason = ": the TLS handshake failed: the client does not speak TLS; ";
        expect_said(service, case, reason);
        assert_eq!(written(&folder), 0, "{input}");

        let service = case.start(&folder, "");
        let address = ("127.0.0.1", service.port);
        let mut client = Client::connect_tls(address, authority.client(None)).expect("connected");
        assert!(client.send(event).is_err(), "{input}");
        // Some say it only when the client has closed its side too.
        drop(client);
        sleep(Duration::from_millis(300));
        expect_said(
            service,
            case,
            ": the client speaks TLS, which is not enabled here; ",
        );
        assert_eq!(written(&folder), 0, "{input}");
    });
}

#[test]
fn requests_that_are_no_http_are_reported() {
    each(|case| {
        let input = case.input;
        if !["http", "elasticsearch"].contains(&input) {
            return;
        }
        let folder = Folder::new();
        let service = case.start(&folder, "");
        let answer = service.raw(b"2W\0\0\0\x01\r\n\r\n");
        assert_eq!(answer.status, 400, "{input}: {answer:?}");
        expect_said(service, case, ": malformed request: ");
    });
}

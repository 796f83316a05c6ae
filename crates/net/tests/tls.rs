//! TLS both ways, with an authority of our own.

mod common;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::{Authority, Settings, node, read, said};
use config::Node;
use net::{Address, ClientTls, Listener, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const SERVER: &str = "cert: DIR/server.pem\nkey: DIR/server.key\n";

/// How long until a file is looked at again.
const LOOKED_AGAIN: Duration = Duration::from_millis(1100);

async fn listener(server: &Node) -> Listener {
    let address: Address = "0".parse().expect("an address");
    let tcp = address.bind(&node("0")).await.expect("a free port");
    let tls = read::<ServerTls>(server).open(server);
    Listener::new(tcp, Some(tls.expect("certificates")), 10)
}

/// The server's certificate as a client sees it that sent and received a byte.
async fn meet(listener: &mut Listener, client: &Node, host: &str) -> io::Result<Vec<u8>> {
    let context = read::<ClientTls>(client)
        .open(client)
        .expect("certificates");
    converse(listener, &context, host).await
}

async fn converse(
    listener: &mut Listener,
    context: &net::tls::ClientContext,
    host: &str,
) -> io::Result<Vec<u8>> {
    let address = listener.local_addr()?;
    let serving = async {
        let connection = listener.accept(&|_| {}).await.handshake().await?;
        let mut connection = connection.expect("a client that speaks");
        let byte = connection.read_u8().await?;
        connection.write_u8(byte + 1).await?;
        connection.shutdown().await
    };
    let asking = async {
        let tcp = TcpStream::connect(address).await?;
        let mut stream = context.connect(tcp, host).await?;
        stream.write_u8(1).await?;
        let answer = stream.read_u8().await?;
        assert_eq!(answer, 2);
        let certificates = stream.get_ref().1.peer_certificates();
        Ok(certificates.expect("a certificate")[0].to_vec())
    };
    let (served, asked) = tokio::join!(serving, asking);
    served.and(asked)
}

#[tokio::test]
async fn a_client_trusts_what_its_settings_say() {
    let authority = Authority::new();
    let stranger = Authority::new();
    authority.issue("server", "logs.example");
    let mut listener = listener(&authority.node(SERVER)).await;
    let foreign = stranger.node("ca: DIR/ca.pem");
    for (client, host, trusted) in [
        (authority.node("ca: DIR/ca.pem"), "logs.example", true),
        (
            authority.node("{ca: DIR/ca.pem, min_version: 1.3}"),
            "logs.example",
            true,
        ),
        (authority.node("ca: DIR/ca.pem"), "other.example", false),
        (
            authority.node("{ca: DIR/ca.pem, server_name: logs.example}"),
            "127.0.0.1",
            true,
        ),
        (
            authority.node("{ca: DIR/ca.pem, server_name: other.example}"),
            "logs.example",
            false,
        ),
        (foreign, "logs.example", false),
        (node("verify: false"), "other.example", true),
    ] {
        let met = meet(&mut listener, &client, host).await;
        assert_eq!(met.is_ok(), trusted, "{client:?} {host}: {met:?}");
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_where_the_settings_name_it() {
    let authority = Authority::new();
    authority.self_signed("server", "logs.example");
    authority.self_signed("other", "logs.example");
    let mut listener = listener(&authority.node(SERVER)).await;
    for (client, host, trusted) in [
        ("ca: DIR/server.pem", "logs.example", true),
        (
            "{ca: DIR/server.pem, server_name: logs.example}",
            "127.0.0.1",
            true,
        ),
        ("ca: DIR/server.pem", "other.example", false),
        ("ca: DIR/other.pem", "logs.example", false),
        ("ca: DIR/ca.pem", "logs.example", false),
    ] {
        let met = meet(&mut listener, &authority.node(client), host).await;
        assert_eq!(met.is_ok(), trusted, "{client} {host}: {met:?}");
    }
}

#[tokio::test]
async fn a_server_asks_for_certificates() {
    let authority = Authority::new();
    let stranger = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("client", "shipper");
    stranger.issue("client", "shipper");
    let ca = authority.path("ca.pem");
    let ca = ca.display();
    let without = node(&format!("ca: {ca}"));
    let with = authority.node("{ca: DIR/ca.pem, cert: DIR/client.pem, key: DIR/client.key}");
    let foreign = stranger.node(&format!(
        "{{ca: {ca}, cert: DIR/client.pem, key: DIR/client.key}}"
    ));
    let required = authority.node(&format!("{SERVER}client_ca: DIR/ca.pem\n"));
    let optional = authority.node(&format!(
        "{SERVER}client_ca: DIR/ca.pem\nclient_cert_optional: true\n"
    ));
    for (server, client, welcome) in [
        (&required, &without, false),
        (&required, &with, true),
        (&required, &foreign, false),
        (&optional, &without, true),
        (&optional, &with, true),
        (&optional, &foreign, false),
    ] {
        let mut listener = listener(server).await;
        let met = meet(&mut listener, client, "localhost").await;
        assert_eq!(met.is_ok(), welcome, "{server:?} {client:?}: {met:?}");
    }
}

#[tokio::test]
async fn renewed_certificates_are_picked_up() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let mut listener = listener(&authority.node(SERVER)).await;
    let client = authority.node("ca: DIR/ca.pem");
    let first = meet(&mut listener, &client, "localhost")
        .await
        .expect("met");

    // The certificate is there before its key: the old one stays in use, which is said once.
    authority.issue("next", "localhost");
    fs::rename(authority.path("next.pem"), authority.path("server.pem")).expect("replaced");
    for _ in 0..2 {
        sleep(LOOKED_AGAIN).await;
        let half = meet(&mut listener, &client, "localhost")
            .await
            .expect("met");
        assert_eq!(half, first);
    }
    let warnings = listener.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("does not belong to the certificate"),
        "{warnings:?}"
    );

    fs::rename(authority.path("next.key"), authority.path("server.key")).expect("replaced");
    sleep(LOOKED_AGAIN).await;
    let second = meet(&mut listener, &client, "localhost")
        .await
        .expect("met");
    assert_ne!(second, first);
    assert_eq!(listener.take_warnings(), Vec::<String>::new());
}

#[tokio::test]
async fn a_clients_renewed_certificate_is_picked_up() {
    let authority = Authority::new();
    let stranger = Authority::new();
    authority.issue("server", "localhost");
    stranger.issue("client", "shipper");
    let mut listener = listener(&authority.node(&format!("{SERVER}client_ca: DIR/ca.pem\n"))).await;
    let ca = authority.path("ca.pem");
    let client = stranger.node(&format!(
        "{{ca: {}, cert: DIR/client.pem, key: DIR/client.key}}",
        ca.display()
    ));
    let context = read::<ClientTls>(&client)
        .open(&client)
        .expect("certificates");
    let refused = converse(&mut listener, &context, "localhost").await;
    assert!(refused.is_err());
    authority.issue("client", "shipper");
    for file in ["client.pem", "client.key"] {
        fs::copy(authority.path(file), stranger.path(file)).expect("replaced");
    }
    sleep(LOOKED_AGAIN).await;
    let welcome = converse(&mut listener, &context, "localhost").await;
    assert!(welcome.is_ok(), "{welcome:?}");
    assert_eq!(context.take_warnings(), Vec::<String>::new());
}

#[test]
fn faults_stand_at_their_setting() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("other", "localhost");
    fs::write(authority.path("empty"), "nothing\n").expect("written");
    fs::write(authority.path("cut"), "-----BEGIN CERTIFICATE-----\nMIIB").expect("written");
    fs::write(
        authority.path("locked"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .expect("written");
    for (settings, line, part) in [
        (
            "cert: DIR/no.pem\nkey: DIR/server.key",
            1,
            "no.pem: No such file",
        ),
        (
            "cert: DIR/empty\nkey: DIR/server.key",
            1,
            "there is no certificate in",
        ),
        ("cert: DIR/cut\nkey: DIR/server.key", 1, "is damaged"),
        (
            "cert: DIR/server.pem\nkey: DIR/no.key",
            2,
            "no.key: No such file",
        ),
        (
            "cert: DIR/server.pem\nkey: DIR/server.pem",
            2,
            "there is no private key in",
        ),
        ("cert: DIR/server.pem\nkey: DIR/locked", 2, "is encrypted"),
        (
            "cert: DIR/server.pem\nkey: DIR/other.key",
            2,
            "does not belong to the certificate",
        ),
        (
            "cert: DIR/server.pem\nkey: DIR/server.key\nclient_ca: DIR/empty",
            3,
            "no certificate",
        ),
        (
            "cert: DIR/server.pem\nkey: DIR/server.key\nclient_cert_optional: true",
            3,
            "requires `client_ca`",
        ),
    ] {
        let node = authority.node(settings);
        let error = said(read::<ServerTls>(&node).open(&node));
        assert!(
            error.contains(&format!("t.yaml:{line}:")),
            "{settings}: {error}"
        );
        assert!(error.contains(part), "{settings}: {error}");
    }
    for (settings, part) in [
        ("cert: DIR/server.pem", "`cert` requires `key`"),
        ("key: DIR/server.key", "`key` requires `cert`"),
        ("ca: DIR/no.pem", "cannot read"),
        ("server_name: 'a b'", "a host name or an IP address"),
    ] {
        let node = authority.node(settings);
        let error = said(read::<ClientTls>(&node).open(&node));
        assert!(
            error.contains("t.yaml:1:") && error.contains(part),
            "{settings}: {error}"
        );
    }
}

#[test]
fn a_key_that_may_not_be_read_is_an_error() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let key = authority.path("server.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o000)).expect("changed");
    if fs::read(&key).is_ok() {
        // Root reads everything; a folder in place of the key cannot be read by anybody.
        fs::remove_file(&key).expect("removed");
        fs::create_dir(&key).expect("a folder");
    }
    let node = authority.node(SERVER);
    let error = said(read::<ServerTls>(&node).open(&node));
    assert!(
        error.contains("cannot read") && error.contains("t.yaml:2:6"),
        "{error}"
    );
}

#[tokio::test]
async fn a_client_that_just_closes_has_closed() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let mut listener = listener(&authority.node(SERVER)).await;
    let address = listener.local_addr().expect("an address");
    let client = authority.node("ca: DIR/ca.pem");
    let context = read::<ClientTls>(&client)
        .open(&client)
        .expect("an authority");
    let asking = async {
        let tcp = TcpStream::connect(address).await.expect("connected");
        let mut stream = context.connect(tcp, "localhost").await.expect("TLS");
        stream.write_all(b"said").await.expect("sent");
        // Without saying so in TLS.
        stream.get_mut().0.shutdown().await.expect("closed");
        stream
    };
    let serving = async {
        let connection = listener.accept(&|_| {}).await.handshake().await;
        let mut connection = connection.expect("TLS").expect("a client that speaks");
        let mut heard = String::new();
        connection.read_to_string(&mut heard).await.map(|_| heard)
    };
    let (_, heard) = tokio::join!(asking, serving);
    assert_eq!(heard.expect("no error"), "said");
}

//! What the tests of TLS and HTTP share: an authority of their own, settings from YAML, a server that answers.
#![allow(dead_code)]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::{ConfigError, Node, Source, parse_yaml};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use net::server::Peer;
use net::{Address, Handler, Listener, ServerTls, serve};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// An authority that writes certificates to a folder.
pub struct Authority {
    pub folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority, its certificate in `ca.pem`.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
        Self { folder, issuer }
    }

    /// A certificate for `name` with its key, in `FILE.pem` and `FILE.key`; what is there is replaced.
    pub fn issue(&self, file: &str, name: &str) {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(self.path(&format!("{file}.pem")), cert.pem()).expect("written");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("written");
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// A YAML text with `DIR` replaced by the folder.
    pub fn node(&self, yaml: &str) -> Node {
        let folder = self.folder.path().to_str().expect("UTF-8");
        node(&yaml.replace("DIR", folder))
    }
}

pub fn node(yaml: &str) -> Node {
    parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML")
}

pub fn read<T: DeserializeOwned>(node: &Node) -> T {
    node.deserialize().expect("settings")
}

/// Answers every request with its method, its path, its `Authorization` and its body.
pub struct Echo;

impl Handler for Echo {
    type Session = Peer;

    fn begin(&self, peer: Peer) -> Peer {
        peer
    }

    async fn handle(&self, peer: &Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let path = head.uri.to_string();
        if path.ends_with("/slow") {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => Bytes::from_static(b"broken"),
        };
        let auth = head.headers.get("authorization");
        let auth = auth.map_or("-", |auth| auth.to_str().expect("text"));
        let text = format!(
            "{} {path} {auth} {} {}",
            head.method,
            String::from_utf8_lossy(&body),
            peer.connection
        );
        let mut answer = Response::new(Full::new(text.into()));
        if path.ends_with("/moved") {
            *answer.status_mut() = http::StatusCode::FOUND;
            let place = "http://elsewhere/".parse().expect("a value");
            answer.headers_mut().insert("location", place);
        }
        answer
    }
}

/// A server on a port of its own.
pub struct Server {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(tls: Option<&Node>, idle_timeout: Duration, connections: usize) -> Self {
        let setting = node("0");
        let address: Address = "0".parse().expect("an address");
        let tcp = address.bind(&setting).await.expect("a free port");
        let tls = tls.map(|node| read::<ServerTls>(node).open(node).expect("certificates"));
        let listener = Listener::new(tcp, tls, connections);
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(async move {
            serve(listener, Arc::new(Echo), idle_timeout, stopped, |_| {}).await;
        });
        Self {
            address,
            stop: Some(stop),
            task,
        }
    }

    /// Begins to stop; [`Server::stopped`] waits for the end.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub async fn stopped(self) {
        self.task.await.expect("no panic");
    }
}

/// What an error says.
pub fn said<T>(result: Result<T, ConfigError>) -> String {
    match result {
        Ok(_) => panic!("an error is expected"),
        Err(error) => error.to_string(),
    }
}

//! The handshake with a server that has a shared key: it sends HELO, the client PING, the server PONG.
//!
//! Digests are SHA-512 in hexadecimal: of salt, own host name, nonce and shared key; of the server's salt, user and password.

use std::io;

use batch::msgpack::{Value, elements, find, read, write_array_header, write_str};
use config::{ConfigError, Node};
use net::{Dialed, Secret};
use ring::digest::{Context, SHA512};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::whole;
use crate::exchange::GreetError;

/// The longest message of a handshake.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// What a client knows.
pub struct Credentials {
    pub shared_key: Secret,
    /// The client's name.
    pub host: String,
    pub username: Option<String>,
    pub password: Option<Secret>,
}

/// What the server wants to have digested.
struct Helo {
    nonce: Vec<u8>,
    /// The salt of the password; empty where no user is asked for.
    auth: Vec<u8>,
}

impl Credentials {
    /// Whether the secrets can be read.
    pub fn check(&self, node: &Node) -> Result<(), ConfigError> {
        for (name, secret) in [
            ("shared_key", Some(&self.shared_key)),
            ("password", self.password.as_ref()),
        ] {
            if let Some(Err(error)) = secret.map(Secret::reveal) {
                return Err(node.nearest(name).error(error.to_string()).hiding_value());
            }
        }
        Ok(())
    }

    /// Proves to the server that the client knows the secrets, and has it prove that it knows the key.
    pub async fn prove(&self, stream: &mut Dialed) -> Result<(), GreetError> {
        let helo = Helo::read(&message(stream).await?)?;
        let salt = salt()?;
        let ping = self.ping(&helo, &salt)?;
        stream.write_all(&ping).await?;
        stream.flush().await?;
        self.judge(&message(stream).await?, &helo, &salt)
    }

    fn key(&self) -> Result<String, GreetError> {
        reveal(&self.shared_key)
    }

    fn ping(&self, helo: &Helo, salt: &str) -> Result<Vec<u8>, GreetError> {
        let key = self.key()?;
        let host = self.host.as_bytes();
        let (user, password) = match (&self.username, &self.password) {
            (Some(user), Some(password)) if !helo.auth.is_empty() => {
                let password = reveal(password)?;
                let digest = digest(&[&helo.auth, user.as_bytes(), password.as_bytes()]);
                (user.as_str(), digest)
            }
            _ if !helo.auth.is_empty() => {
                let reason = "the server asks for a user: set `username` and `password`";
                return Err(GreetError::Refused(reason.to_owned()));
            }
            _ => ("", String::new()),
        };
        let proof = digest(&[salt.as_bytes(), host, &helo.nonce, key.as_bytes()]);
        let mut out = Vec::with_capacity(512);
        write_array_header(&mut out, 6);
        for text in ["PING", &self.host, salt, &proof, user, &password] {
            write_str(&mut out, text.as_bytes());
        }
        Ok(out)
    }

    /// Looks at PONG: `["PONG", ok, reason, host, digest]`.
    fn judge(&self, pong: &[u8], helo: &Helo, salt: &str) -> Result<(), GreetError> {
        let values: Vec<Value<'_>> = elements(pong)
            .map(|element| read(pong, element.start).0)
            .collect();
        let text = |index: usize| match values.get(index) {
            Some(Value::Str(text) | Value::Bin(text)) => *text,
            _ => b"",
        };
        if values.len() < 5 || text(0) != b"PONG" {
            return Err(unexpected("PONG"));
        }
        if !matches!(values[1], Value::Bool(true)) {
            let reason = crate::answer::words(&String::from_utf8_lossy(text(2)));
            let reason = match reason.is_empty() {
                true => "the server refuses the credentials".to_owned(),
                false => format!("the server refuses the credentials: {reason}"),
            };
            return Err(GreetError::Refused(reason));
        }
        let key = self.key()?;
        let proof = digest(&[salt.as_bytes(), text(3), &helo.nonce, key.as_bytes()]);
        match proof.as_bytes() == text(4) {
            true => Ok(()),
            false => Err(GreetError::Refused(
                "the server does not know the shared key".to_owned(),
            )),
        }
    }
}

impl Helo {
    /// Reads `["HELO", {nonce, auth, keepalive}]`.
    fn read(message: &[u8]) -> Result<Self, GreetError> {
        let mut parts = elements(message);
        let name = parts.next().map(|at| read(message, at.start).0);
        let options = parts
            .next()
            .filter(|at| matches!(read(message, at.start).0, Value::Map(_)));
        let (Some(Value::Str(b"HELO")), Some(options)) = (name, options) else {
            return Err(unexpected("HELO"));
        };
        let options = &message[options];
        let text = |key: &[u8]| {
            let at = find(options, key)?;
            match read(options, at.start).0 {
                Value::Str(text) | Value::Bin(text) => Some(text.to_vec()),
                _ => None,
            }
        };
        Ok(Self {
            nonce: text(b"nonce").unwrap_or_default(),
            auth: text(b"auth").unwrap_or_default(),
        })
    }
}

/// The next message of the server.
async fn message(stream: &mut Dialed) -> Result<Vec<u8>, GreetError> {
    let mut received = Vec::new();
    loop {
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let is_array = matches!(received[0], 0x90..=0x9F | 0xDC | 0xDD);
        let end = whole(&received).map_err(io::Error::other)?;
        if !is_array || received.len() > MESSAGE_BYTES_MAX {
            return Err(unexpected("a handshake of the Forward protocol"));
        }
        if end == Some(received.len()) {
            return Ok(received);
        }
    }
}

fn unexpected(what: &str) -> GreetError {
    io::Error::other(format!("the server did not send {what}")).into()
}

fn reveal(secret: &Secret) -> Result<String, GreetError> {
    let revealed = secret.reveal();
    let revealed = revealed.map_err(|error| GreetError::Refused(error.to_string()))?;
    Ok(revealed.to_string())
}

fn salt() -> Result<String, GreetError> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(hexadecimal(&bytes))
}

fn digest(parts: &[&[u8]]) -> String {
    let mut context = Context::new(&SHA512);
    parts.iter().for_each(|part| context.update(part));
    hexadecimal(context.finish().as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! The protocol of NATS: <https://docs.nats.io/reference/reference-protocols/nats-protocol>.
//!
//! The server speaks first (`INFO`), in plain text, also where TLS is spoken after that. Commands are lines; `MSG` and `HMSG` have so many bytes of
//! headers and payload behind their line as it says.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::{ConfigError, Node};
use ring::signature::{Ed25519KeyPair, KeyPair};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::dial::{DialError, Dialed, Dialer, Endpoint};
use crate::secret::Secret;

/// The port of NATS.
pub const PORT: u16 = 4222;

/// The longest line that is no message.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The longest message that is read.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// How a client shows who it is. Each server takes one of these ways.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NatsLogin {
    /// The user. Requires `password`.
    pub user: Option<String>,
    /// The password, or `file:PATH` for the content of a file.
    pub password: Option<Secret>,
    /// A token, or `file:PATH` for the content of a file.
    pub token: Option<Secret>,
    /// The seed of an NKey (`SU…`), or `file:PATH` for the content of a file.
    pub nkey: Option<Secret>,
    /// A file with the JWT of a user and the seed of its key, as `nsc` writes it (`.creds`).
    #[serde(deserialize_with = "config::paths")]
    pub credentials: Option<PathBuf>,
}

impl NatsLogin {
    /// Refuses settings that mean nothing together. `node` holds them.
    ///
    /// # Errors
    /// At the place of one of them.
    pub fn check(&self, node: &Node) -> Result<(), ConfigError> {
        if self.user.is_some() != self.password.is_some() {
            let (name, other) = match self.user {
                Some(_) => ("user", "password"),
                None => ("password", "user"),
            };
            let error = node
                .nearest(name)
                .error(format!("`{name}` requires `{other}`"));
            return Err(error.hiding_value());
        }
        let ways = [
            ("user", self.user.is_some()),
            ("token", self.token.is_some()),
            ("nkey", self.nkey.is_some()),
            ("credentials", self.credentials.is_some()),
        ];
        let mut set = ways.iter().filter(|(_, is_set)| *is_set);
        if let (Some((first, _)), Some((second, _))) = (set.next(), set.next()) {
            let error = format!("`{first}` and `{second}` mean nothing together");
            return Err(node.nearest(second).error(error).hiding_value());
        }
        Ok(())
    }

    /// What `CONNECT` says about the client, for a server with this nonce.
    fn options(&self, nonce: &str) -> Result<serde_json::Value, String> {
        let revealed = |secret: &Secret| secret.reveal().map_err(|error| error.to_string());
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            return Ok(serde_json::json!({"user": user, "pass": &*revealed(password)?}));
        }
        if let Some(token) = &self.token {
            return Ok(serde_json::json!({"auth_token": &*revealed(token)?}));
        }
        if let Some(seed) = &self.nkey {
            let key = UserKey::new(revealed(seed)?.trim())?;
            let (nkey, sig) = (key.public(), key.sign(nonce));
            return Ok(serde_json::json!({"nkey": nkey, "sig": sig}));
        }
        if let Some(path) = &self.credentials {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            let part = |name: &str| {
                let missing = || format!("{}: there is no {name}", path.display());
                block(&text, name).ok_or_else(missing)
            };
            let (jwt, key) = (part("USER JWT")?, UserKey::new(part("USER NKEY SEED")?)?);
            return Ok(serde_json::json!({"jwt": jwt, "sig": key.sign(nonce)}));
        }
        Ok(serde_json::json!({}))
    }

    /// A connection that is ready for commands, and what the server said of itself.
    ///
    /// # Errors
    /// There is none within the time limit, or the server refuses the client.
    pub async fn connect(
        &self,
        dialer: &Dialer,
        endpoint: &Endpoint,
        patience: Duration,
    ) -> Result<(Dialed, ServerInfo), DialError> {
        let connected = timeout(patience, self.connected(dialer, endpoint)).await;
        connected.unwrap_or(Err(DialError::Timeout(patience)))
    }

    async fn connected(
        &self,
        dialer: &Dialer,
        endpoint: &Endpoint,
    ) -> Result<(Dialed, ServerInfo), DialError> {
        let mut stream = dialer.dial_plain(endpoint).await?;
        let first = line(&mut stream).await?;
        let info = first.strip_prefix("INFO ").map(serde_json::from_str);
        let info: ServerInfo = info
            .and_then(Result::ok)
            .ok_or_else(|| refused("the server does not speak the protocol of NATS"))?;
        let is_offered = info.tls_required || info.tls_available;
        match (dialer.has_tls(), info.tls_required) {
            (true, _) if !is_offered => {
                return Err(refused("the server does not use TLS on this port"));
            }
            (false, true) => return Err(refused("the server requires TLS: set `tls`")),
            _ => {}
        }
        let mut stream = dialer.secure(stream, endpoint).await?;
        let options = self.options(&info.nonce).map_err(DialError::Refused)?;
        let mut connect = serde_json::json!({
            "verbose": false, "pedantic": false, "tls_required": dialer.has_tls(), "name": "millpond",
            "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "headers": true, "no_responders": true,
        });
        if let (Some(all), serde_json::Value::Object(own)) = (connect.as_object_mut(), options) {
            all.extend(own);
        }
        let hello = format!("CONNECT {connect}\r\nPING\r\n");
        stream
            .write_all(hello.as_bytes())
            .await
            .map_err(DialError::Connect)?;
        stream.flush().await.map_err(DialError::Connect)?;
        loop {
            let line = line(&mut stream).await?;
            match line.strip_prefix("-ERR") {
                Some(error) => {
                    let error = error.trim().trim_matches('\'');
                    return Err(refused(&format!("NATS answered: {error}")));
                }
                None if line == "PONG" => return Ok((stream, info)),
                // Such as news of the cluster.
                None => {}
            }
        }
    }
}

fn refused(reason: &str) -> DialError {
    DialError::Refused(reason.to_owned())
}

/// Reads a line, and not a byte more: TLS may follow.
async fn line(stream: &mut Dialed) -> Result<String, DialError> {
    let mut line = Vec::new();
    loop {
        let byte = stream.read_u8().await.map_err(DialError::Connect)?;
        match byte {
            b'\n' => break,
            _ if line.len() > LINE_BYTES_MAX => {
                return Err(refused("the server does not speak the protocol of NATS"));
            }
            _ => line.push(byte),
        }
    }
    let text = String::from_utf8_lossy(&line);
    Ok(text.trim_end_matches('\r').to_owned())
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// What a client with a key has to sign.
    nonce: String,
    /// The longest message that it takes, headers included.
    pub max_payload: usize,
    tls_required: bool,
    tls_available: bool,
}

/// Something that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Wants [`PONG`].
    Ping,
    /// The answer to the client's.
    Pong,
    /// An error, without quotes.
    Error(&'a str),
    /// A message of a subscription.
    Message(Message<'a>),
    /// Nothing that anybody waits for.
    Other,
}

/// The answer to [`Frame::Ping`].
pub const PONG: &[u8] = b"PONG\r\n";

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its subject.
    pub subject: &'a str,
    /// Where an answer goes; empty where none is wanted.
    pub reply: &'a str,
    /// Its headers, with the line `NATS/1.0` before them; empty where there are none.
    pub headers: &'a [u8],
    /// What it says.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The status and its text in the first line of the headers, which servers send instead of a payload.
    pub fn status(&self) -> Option<(u16, &'a str)> {
        let headers = std::str::from_utf8(self.headers).ok()?;
        let line = headers.split("\r\n").next()?;
        let status = line.strip_prefix("NATS/1.0 ")?.trim();
        let (code, text) = status.split_once(' ').unwrap_or((status, ""));
        Some((code.parse().ok()?, text))
    }

    /// The headers, each with its name and value.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let headers = std::str::from_utf8(self.headers).unwrap_or_default();
        let lines = headers.split("\r\n").skip(1);
        lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name, value.trim()))
        })
    }
}

/// What stands at the beginning of what was received, and its length. None where it is not complete.
///
/// # Errors
/// It is not of the protocol.
pub fn frame(received: &[u8]) -> Result<Option<(Frame<'_>, usize)>, String> {
    let Some(end) = memchr::memmem::find(received, b"\r\n") else {
        return match received.len() > LINE_BYTES_MAX {
            true => Err(unexpected(received)),
            false => Ok(None),
        };
    };
    let line = std::str::from_utf8(&received[..end]).map_err(|_| unexpected(received))?;
    let after = end + 2;
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let frame = match word {
        "PING" => Frame::Ping,
        "PONG" => Frame::Pong,
        "+OK" | "INFO" => Frame::Other,
        "-ERR" => Frame::Error(rest.trim().trim_matches('\'')),
        "MSG" | "HMSG" => return message(received, word == "HMSG", rest, after),
        _ => return Err(unexpected(received)),
    };
    Ok(Some((frame, after)))
}

/// A message with this line, behind which its bytes begin at `after`.
fn message<'a>(
    received: &'a [u8],
    has_headers: bool,
    line: &'a str,
    after: usize,
) -> Result<Option<(Frame<'a>, usize)>, String> {
    let wrong = || unexpected(received);
    let mut words = line.split_ascii_whitespace();
    let number = |word: Option<&str>| {
        let number = word.and_then(|word| word.parse::<usize>().ok());
        number
            .filter(|number| *number <= MESSAGE_BYTES_MAX)
            .ok_or_else(wrong)
    };
    let total = number(words.next_back())?;
    let headers = match has_headers {
        true => number(words.next_back())?,
        false => 0,
    };
    let subject = words.next().ok_or_else(wrong)?;
    words.next().ok_or_else(wrong)?;
    let reply = words.next().unwrap_or_default();
    if headers > total {
        return Err(wrong());
    }
    let end = after + total;
    match received.get(end..end + 2) {
        None => return Ok(None),
        Some(b"\r\n") => {}
        Some(_) => return Err(wrong()),
    }
    let message = Message {
        subject,
        reply,
        headers: &received[after..after + headers],
        payload: &received[after + headers..end],
    };
    Ok(Some((Frame::Message(message), end + 2)))
}

fn unexpected(received: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&received[..received.len().min(40)]);
    format!("expected a line of the protocol of NATS, and received {shown:?}")
}

/// Appends a message with headers, which have their first line before them and an empty one behind them.
pub fn write_message(
    subject: &str,
    reply: &str,
    headers: &[u8],
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"HPUB ");
    for word in [subject, reply] {
        out.extend_from_slice(word.as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(number.format(headers.len()).as_bytes());
    out.push(b' ');
    out.extend_from_slice(number.format(headers.len() + payload.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(headers);
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// A random name that nobody else has, for the subjects of answers.
pub fn unique_inbox() -> String {
    format!("_INBOX.{:032x}", fastrand::u128(..))
}

/// The key of a user.
struct UserKey(Ed25519KeyPair);

/// The first byte of the public key of a user (`U`).
const USER: u8 = 20 << 3;

/// The first byte of a seed (`S`), with the upper bits of the kind of its key.
const SEED: u8 = 18 << 3;

impl UserKey {
    fn new(seed: &str) -> Result<Self, String> {
        let wrong = || "the NKey is not the seed of a user (`SU…`)".to_owned();
        let bytes = base32(seed).ok_or_else(wrong)?;
        let (body, crc) = bytes.split_at_checked(34).ok_or_else(wrong)?;
        let is_seed = body[0] & 0xF8 == SEED && (body[0] & 7) << 5 | body[1] >> 3 == USER;
        if !is_seed || *crc != crc16(body).to_le_bytes() {
            return Err(wrong());
        }
        let key = Ed25519KeyPair::from_seed_unchecked(&body[2..]);
        key.map(Self).map_err(|_| wrong())
    }

    fn public(&self) -> String {
        let mut bytes = vec![USER];
        bytes.extend_from_slice(self.0.public_key().as_ref());
        bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
        to_base32(&bytes)
    }

    fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.0.sign(nonce.as_bytes()))
    }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The bytes of a text in base 32 (RFC 4648, without padding).
fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.bytes() {
        let value = BASE32.iter().position(|&known| known == letter)?;
        bits = bits << 5 | u32::try_from(value).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

fn to_base32(bytes: &[u8]) -> String {
    let (mut bits, mut count, mut text) = (0_u32, 0, String::new());
    for &byte in bytes {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(BASE32[(bits >> count & 31) as usize].into());
            bits &= (1 << count) - 1;
        }
    }
    if count > 0 {
        text.push(BASE32[(bits << (5 - count) & 31) as usize].into());
    }
    text
}

/// CRC-16 as XMODEM has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        let mut crc = crc ^ u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
        crc
    })
}

/// What stands between the lines that name a part of a file with credentials.
fn block<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut begin = String::new();
    let _ = write!(
        begin,
        "BEGIN {}",
        name.replacen("USER JWT", "NATS USER JWT", 1)
    );
    let (_, rest) = text.split_once(&begin)?;
    let mut lines = rest.lines().skip(1).map(str::trim);
    lines.find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_pieces() {
        let received = b"HMSG in.1 7 out.2 12 17\r\nNATS/1.0\r\n\r\nhello\r\nPING\r\n";
        for len in 0..received.len() - 6 {
            assert_eq!(frame(&received[..len]), Ok(None), "{len}");
        }
        let message = Message {
            subject: "in.1",
            reply: "out.2",
            headers: b"NATS/1.0\r\n\r\n",
            payload: b"hello",
        };
        let len = received.len() - 6;
        assert_eq!(frame(received), Ok(Some((Frame::Message(message), len))));
        for (text, expected) in [
            ("PING\r\n", Frame::Ping),
            ("+OK\r\n", Frame::Other),
            (
                "-ERR 'Authorization Violation'\r\n",
                Frame::Error("Authorization Violation"),
            ),
        ] {
            assert_eq!(frame(text.as_bytes()), Ok(Some((expected, text.len()))));
        }
        for nonsense in [
            "HTTP/1.1 400\r\n",
            "MSG a 1 x\r\n",
            "HMSG a 1 9 2\r\nab\r\n",
            "MSG a 1 1\r\nabcd",
        ] {
            assert!(frame(nonsense.as_bytes()).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn headers_have_a_status_and_fields() {
        let message = |headers: &'static str| Message {
            subject: "s",
            reply: "",
            headers: headers.as_bytes(),
            payload: b"",
        };
        let none = message("NATS/1.0 503\r\n\r\n");
        assert_eq!(none.status(), Some((503, "")));
        let more = message("NATS/1.0 404 No Messages\r\nA: b c\r\nD:e\r\n\r\n");
        assert_eq!(more.status(), Some((404, "No Messages")));
        assert_eq!(
            more.fields().collect::<Vec<_>>(),
            [("A", "b c"), ("D", "e")]
        );
        assert_eq!(message("NATS/1.0\r\n\r\n").status(), None);
    }

    #[test]
    fn keys_sign() {
        // The first example of RFC 8032, as a user's seed.
        let mut body = vec![SEED | USER >> 5, (USER & 31) << 3];
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let byte = |at: usize| u8::from_str_radix(&seed[at..at + 2], 16).expect("hex");
        body.extend((0..64).step_by(2).map(byte));
        body.extend_from_slice(&crc16(&body).to_le_bytes());
        let text = to_base32(&body);
        assert!(text.starts_with("SU"), "{text}");
        assert_eq!(base32(&text).as_deref(), Some(&body[..]));
        let key = UserKey::new(&text).expect("a key");
        let public = key.public();
        assert_eq!((public.len(), &public[..1]), (56, "U"));
        assert_eq!(crc16(b"123456789"), 0x31C3, "the check value of XMODEM");
        let broken = text.replacen("SU", "SA", 1);
        for wrong in ["", "SU", &broken, &text[..50]] {
            assert!(UserKey::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn credentials_are_found_in_their_file() {
        let text = "-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\nSUA\n------END USER NKEY SEED------\n";
        assert_eq!(block(text, "USER JWT"), Some("eyJ0"));
        assert_eq!(block(text, "USER NKEY SEED"), Some("SUA"));
        assert_eq!(block("", "USER JWT"), None);
    }
}

//! The protocol of Redis, version 2 (RESP): <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
//!
//! A request is an array of texts, each with its length before it. An answer is a line, such as `+OK`, `:5`, or `-ERR` and why, a text with
//! its length before it, or an array of answers.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dial::Dialed;
use crate::secret::Secret;

/// The port of Redis.
pub const PORT: u16 = 6379;

/// The longest answer to a command of a login.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Appends a text with its length.
pub fn write_bulk(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(text.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Appends a command of these texts and `more` that follow.
pub fn write_command(texts: &[&[u8]], more: usize, out: &mut Vec<u8>) {
    out.push(b'*');
    let count = texts.len() + more;
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
    texts.iter().for_each(|text| write_bulk(text, out));
}

/// The first line, and where the next one begins.
pub fn line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memmem::find(received, b"\r\n")?;
    Some((&received[..end], end + 2))
}

/// What is said of bytes that are no answer.
pub fn unexpected(received: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&received[..received.len().min(40)]);
    format!("expected an answer of Redis, and received {shown:?}")
}

/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 64 << 10;

/// How many values an answer may have.
const VALUES_MAX: usize = 1 << 26;

/// Finds the end of an answer whose bytes come in pieces.
#[derive(Debug)]
pub struct AnswerEnd {
    /// Where the next value begins.
    at: usize,
    /// How many values are missing.
    missing: usize,
}

impl Default for AnswerEnd {
    fn default() -> Self {
        Self { at: 0, missing: 1 }
    }
}

impl AnswerEnd {
    /// The length of the answer at the beginning of what was received, if it is complete. Each call is given what the one before was
    /// given, and more.
    ///
    /// # Errors
    /// It is none.
    pub fn find(&mut self, received: &[u8]) -> Result<Option<usize>, String> {
        while self.missing > 0 {
            let rest = received.get(self.at..).unwrap_or_default();
            let Some((value, len)) = value(rest)? else {
                return Ok(None);
            };
            if len > rest.len() {
                return Ok(None);
            }
            self.at += len;
            self.missing -= 1;
            if let Value::Array(count) = value {
                self.missing = self.missing.saturating_add(count);
            }
            if self.missing > VALUES_MAX {
                return Err(unexpected(rest));
            }
        }
        Ok(Some(self.at))
    }
}

/// A part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A text, or a status such as `OK`.
    Text(&'a [u8]),
    /// An error.
    Error(&'a [u8]),
    /// A number.
    Number(i64),
    /// Nothing.
    Nil,
    /// So many values follow that belong to it.
    Array(usize),
}

/// The values of a complete answer, one after the other.
#[derive(Debug, Clone)]
pub struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The values in a complete answer.
    pub fn new(answer: &'a [u8]) -> Self {
        Self(answer)
    }

    /// The text that comes next; none where something else comes, which is passed over with all that belongs to it.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        match self.next()? {
            Value::Text(text) => Some(text),
            Value::Array(count) => {
                self.pass_over(count);
                None
            }
            _ => None,
        }
    }

    /// How many values the array has that comes next; none where something else comes.
    pub fn array(&mut self) -> Option<usize> {
        match self.next()? {
            Value::Array(count) => Some(count),
            _ => None,
        }
    }

    /// Passes over so many values, with all that belongs to them.
    pub fn pass_over(&mut self, values: usize) {
        let mut missing = values;
        while missing > 0 {
            missing -= 1;
            match self.next() {
                None => return,
                Some(Value::Array(count)) => missing = missing.saturating_add(count),
                Some(_) => {}
            }
        }
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let (value, len) = value(self.0).ok()??;
        self.0 = self.0.get(len..)?;
        Some(value)
    }
}

/// The value at the beginning, and its length; a text may be longer than what was received, and is empty then. None where its first
/// line is not complete.
fn value(received: &[u8]) -> Result<Option<(Value<'_>, usize)>, String> {
    let Some((&kind, _)) = received.split_first() else {
        return Ok(None);
    };
    if !b"+-:$*".contains(&kind) {
        return Err(unexpected(received));
    }
    let Some(end) = memchr::memchr(b'\n', received) else {
        return match received.len() > LINE_BYTES_MAX {
            true => Err(unexpected(received)),
            false => Ok(None),
        };
    };
    let line = received[1..end].strip_suffix(b"\r");
    let line = line.ok_or_else(|| unexpected(received))?;
    let number = || -> Result<i64, String> {
        let text = std::str::from_utf8(line).ok();
        let number = text.and_then(|text| text.parse().ok());
        number.ok_or_else(|| unexpected(received))
    };
    let after = end + 1;
    let value = match kind {
        b'+' => Value::Text(line),
        b'-' => Value::Error(line),
        b':' => Value::Number(number()?),
        b'$' => {
            let Ok(len) = usize::try_from(number()?) else {
                return Ok(Some((Value::Nil, after)));
            };
            let whole = after.saturating_add(len).saturating_add(2);
            let text = received.get(after..whole);
            return match text.map(|text| text.strip_suffix(b"\r\n")) {
                None => Ok(Some((Value::Text(b""), whole))),
                Some(Some(text)) => Ok(Some((Value::Text(text), whole))),
                Some(None) => Err(unexpected(received)),
            };
        }
        _ => usize::try_from(number()?).map_or(Value::Nil, Value::Array),
    };
    Ok(Some((value, after)))
}

/// An error that the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it says.
    pub reason: String,
    /// Whether it ends by itself; the others must be mended.
    pub is_passing: bool,
}

impl Failure {
    /// The error in the line behind `-`.
    pub fn new(text: &[u8]) -> Self {
        const PASSING: [&str; 9] = [
            "OOM ",
            "LOADING ",
            "BUSY ",
            "READONLY ",
            "MISCONF ",
            "MASTERDOWN ",
            "NOREPLICAS ",
            "CLUSTERDOWN ",
            "TRYAGAIN ",
        ];
        let text = String::from_utf8_lossy(text);
        let shown: String = text.chars().take(200).collect();
        // The second one is how it answers to a long command before the password.
        let hint = match text.contains("NOAUTH") || text.contains("unauthenticated") {
            true => "; set `password`",
            false => "",
        };
        Self {
            reason: format!("Redis answered: {shown}{hint}"),
            // Before version 7, errors of a script have its name before them.
            is_passing: PASSING.iter().any(|code| text.contains(code)),
        }
    }
}

/// Why a client is not logged in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server refuses the client, or a secret cannot be read: a person must mend something.
    #[error("{0}")]
    Refused(String),
    /// The connection broke, or the server takes no clients at the moment.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

/// What comes before the first request of a connection.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// The user. Requires a password.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The number of the database.
    pub db: u32,
}

impl Login {
    /// The commands, and how many.
    fn commands(&self) -> Result<(Vec<u8>, usize), LoginError> {
        let (mut commands, mut count) = (Vec::new(), 0);
        if let Some(password) = &self.password {
            let password = password.reveal();
            let password = password.map_err(|error| LoginError::Refused(error.to_string()))?;
            match &self.user {
                Some(user) => write_command(
                    &[b"AUTH", user.as_bytes(), password.as_bytes()],
                    0,
                    &mut commands,
                ),
                None => write_command(&[b"AUTH", password.as_bytes()], 0, &mut commands),
            }
            count += 1;
        }
        if self.db != 0 {
            let db = self.db.to_string();
            write_command(&[b"SELECT", db.as_bytes()], 0, &mut commands);
            count += 1;
        }
        Ok((commands, count))
    }

    /// Logs a connection in.
    ///
    /// # Errors
    /// The server refuses it, or the connection broke.
    pub async fn greet(&self, stream: &mut Dialed) -> Result<(), LoginError> {
        let (commands, count) = self.commands()?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&commands).await?;
        stream.flush().await?;
        let mut received = Vec::new();
        let mut answers = 0;
        while answers < count {
            if stream.read_buf(&mut received).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            while let Some((line, end)) = line(&received) {
                match line.split_first() {
                    Some((b'+', _)) => answers += 1,
                    Some((b'-', text)) => return Err(refusal(text)),
                    _ => return Err(io::Error::other(unexpected(line)).into()),
                }
                received.drain(..end);
            }
            if received.len() > ANSWER_BYTES_MAX {
                return Err(io::Error::other(unexpected(&received)).into());
            }
        }
        Ok(())
    }
}

fn refusal(text: &[u8]) -> LoginError {
    let failure = Failure::new(text);
    match failure.is_passing {
        true => io::Error::other(failure.reason).into(),
        false => LoginError::Refused(failure.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_end_by_themselves_or_must_be_mended() {
        for (text, is_passing) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                true,
            ),
            ("LOADING Redis is loading the dataset in memory", true),
            (
                "ERR Error running script (call to f_1): @user_script:1: OOM command not allowed",
                true,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                false,
            ),
            ("NOAUTH Authentication required.", false),
            ("MOVED 3999 127.0.0.1:6381", false),
            ("ERR unknown command 'EVAL'", false),
        ] {
            let failure = Failure::new(text.as_bytes());
            assert_eq!(failure.is_passing, is_passing, "{text}");
        }
    }

    #[test]
    fn answers_come_in_pieces() {
        let answer = b"*2\r\n$4\r\nlogs\r\n*3\r\n:-5\r\n$-1\r\n*-1\r\n";
        for piece in 1..answer.len() {
            let mut end = AnswerEnd::default();
            for known in (0..answer.len()).step_by(piece) {
                assert_eq!(end.find(&answer[..known]), Ok(None), "{piece} {known}");
            }
            let more = [answer, &b"+OK\r\n"[..]].concat();
            assert_eq!(end.find(&more), Ok(Some(answer.len())), "{piece}");
        }
        let values: Vec<_> = Values::new(answer).collect();
        let expected = [
            Value::Array(2),
            Value::Text(b"logs"),
            Value::Array(3),
            Value::Number(-5),
            Value::Nil,
            Value::Nil,
        ];
        assert_eq!(values, expected);
        let mut values = Values::new(answer);
        values.pass_over(1);
        assert_eq!(values.next(), None, "all of it is one value");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for nonsense in [
            "HTTP/1.1 400",
            ":x\r\n",
            "$3\r\nabcde",
            "*1\n",
            "*99999999999\r\n",
        ] {
            let found = AnswerEnd::default().find(nonsense.as_bytes());
            assert!(found.is_err(), "{nonsense:?}: {found:?}");
        }
        let long = [&b"+"[..], &vec![b'x'; LINE_BYTES_MAX + 1]].concat();
        assert!(AnswerEnd::default().find(&long).is_err());
    }
}

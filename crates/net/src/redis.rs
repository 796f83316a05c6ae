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
}

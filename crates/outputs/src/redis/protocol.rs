//! What is written to Redis and read from it, in version 2 of its protocol (RESP): <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
//!
//! A request is an array of texts, each with its length before it. An answer is a line: `+OK`, `:5`, or `-ERR` and why.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use component::{Request, SendError};
use net::{Dialed, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::exchange::{Answer, GreetError, Protocol};

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Appends to a list what follows the first argument, unless the second key says that this was done. A call has at most about 8,000 arguments
/// in Lua.
const TO_LIST: &str = "\
if redis.call('EXISTS',KEYS[2])==0 then \
for i=2,#ARGV,1000 do redis.call('RPUSH',KEYS[1],unpack(ARGV,i,math.min(i+999,#ARGV))) end \
if ARGV[1]~='0' then redis.call('SET',KEYS[2],1,'PX',ARGV[1]) end \
end return #ARGV-1";

/// The same for a stream, and what follows the third argument. The second one is the field, the third how many entries are kept, empty for all.
const TO_STREAM: &str = "\
if redis.call('EXISTS',KEYS[2])==0 then \
local max=ARGV[3] \
for i=4,#ARGV do \
if max=='' then redis.call('XADD',KEYS[1],'*',ARGV[2],ARGV[i]) \
else redis.call('XADD',KEYS[1],'MAXLEN','~',max,'*',ARGV[2],ARGV[i]) end \
end \
if ARGV[1]~='0' then redis.call('SET',KEYS[2],1,'PX',ARGV[1]) end \
end return #ARGV-3";

/// How a server is spoken to.
pub(super) struct Redis {
    pub login: Login,
    pub append: Append,
    /// How long a request is remembered.
    pub memory: Duration,
}

/// What comes before the first request.
pub(super) struct Login {
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub db: u32,
}

/// Where events go.
pub(super) enum Append {
    List,
    Stream {
        field: String,
        /// About how many entries are kept; all without it.
        max_length: Option<u64>,
    },
}

/// Appends a text with its length.
pub(super) fn write_bulk(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(text.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Appends a command of these texts and `more` that follow.
fn write_command(texts: &[&[u8]], more: usize, out: &mut Vec<u8>) {
    out.push(b'*');
    let count = texts.len() + more;
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
    texts.iter().for_each(|text| write_bulk(text, out));
}

impl Login {
    /// The commands, and how many.
    fn commands(&self) -> Result<(Vec<u8>, usize), GreetError> {
        let (mut commands, mut count) = (Vec::new(), 0);
        if let Some(password) = &self.password {
            let password = password.reveal();
            let password = password.map_err(|error| GreetError::Refused(error.to_string()))?;
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
}

impl Protocol for Redis {
    async fn greet(&self, stream: &mut Dialed) -> Result<(), GreetError> {
        let (commands, count) = self.login.commands()?;
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

    fn message(&self, request: &Request) -> [Bytes; 3] {
        let id = format!("millpond:request:{:032x}", request.id);
        let memory = self.memory.as_millis().to_string();
        let key = request.destination.as_bytes();
        let mut head = Vec::new();
        match &self.append {
            Append::List => {
                let texts: [&[u8]; 6] = [
                    b"EVAL",
                    TO_LIST.as_bytes(),
                    b"2",
                    key,
                    id.as_bytes(),
                    memory.as_bytes(),
                ];
                write_command(&texts, request.rows, &mut head);
            }
            Append::Stream { field, max_length } => {
                let max = max_length.map(|max| max.to_string()).unwrap_or_default();
                let texts: [&[u8]; 8] = [
                    b"EVAL",
                    TO_STREAM.as_bytes(),
                    b"2",
                    key,
                    id.as_bytes(),
                    memory.as_bytes(),
                    field.as_bytes(),
                    max.as_bytes(),
                ];
                write_command(&texts, request.rows, &mut head);
            }
        }
        [head.into(), request.body.clone(), Bytes::new()]
    }

    fn answer(&self, received: &[u8]) -> Result<Option<(Answer, usize)>, String> {
        let Some((line, end)) = line(received) else {
            return match received.first() {
                None | Some(b':' | b'-') => Ok(None),
                Some(_) => Err(unexpected(received)),
            };
        };
        let answer = match line.split_first() {
            Some((b':', number)) => {
                let rows = std::str::from_utf8(number)
                    .ok()
                    .and_then(|it| it.parse().ok());
                Answer::Rows(rows.ok_or_else(|| unexpected(line))?)
            }
            Some((b'-', text)) => Answer::Failed(failure(text)),
            _ => return Err(unexpected(line)),
        };
        Ok(Some((answer, end)))
    }
}

/// The first line, and where the next one begins.
fn line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memmem::find(received, b"\r\n")?;
    Some((&received[..end], end + 2))
}

fn unexpected(received: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&received[..received.len().min(40)]);
    format!("expected an answer of Redis, and received {shown:?}")
}

/// What an error says of a connection that begins.
fn refusal(text: &[u8]) -> GreetError {
    match failure(text) {
        SendError::Blocked(reason) => GreetError::Refused(reason),
        error => io::Error::other(error.to_string()).into(),
    }
}

/// What an error of the server means: some end by themselves, the others must be mended.
fn failure(text: &[u8]) -> SendError {
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
    let reason = format!("Redis answered: {shown}{hint}");
    // Before version 7, errors of a script have its name before them.
    match PASSING.iter().any(|code| text.contains(code)) {
        true => SendError::Retry(reason),
        false => SendError::Blocked(reason),
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
            let failure = failure(text.as_bytes());
            assert_eq!(matches!(failure, SendError::Retry(_)), is_passing, "{text}");
        }
    }

    #[test]
    fn answers_come_in_pieces() {
        let redis = Redis {
            login: Login {
                user: None,
                password: None,
                db: 0,
            },
            append: Append::List,
            memory: Duration::ZERO,
        };
        for (received, expected) in [
            ("", Ok(None)),
            (":1", Ok(None)),
            (":12\r", Ok(None)),
            (":12\r\n:1", Ok(Some((Answer::Rows(12), 5)))),
            ("-NO", Ok(None)),
        ] {
            assert_eq!(redis.answer(received.as_bytes()), expected, "{received:?}");
        }
        for nonsense in ["HTTP/1.1 400", "+OK\r\n", ":x\r\n", ":-1\r\n"] {
            assert!(redis.answer(nonsense.as_bytes()).is_err(), "{nonsense:?}");
        }
        let failed = redis.answer(b"-NOAUTH x\r\n").expect("an answer");
        let blocked = SendError::Blocked("Redis answered: NOAUTH x; set `password`".to_owned());
        assert_eq!(failed, Some((Answer::Failed(blocked), 11)));
    }
}

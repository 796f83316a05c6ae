//! What is written to Redis for a request, and what its answer says: `:5`, or `-ERR` and why.

use std::time::Duration;

use bytes::Bytes;
use component::{Request, SendError};
use net::Dialed;
use net::redis::{Failure, Login, line, unexpected, write_command};

use crate::exchange::{Answer, GreetError, Protocol};

/// Appends to a list what follows the first argument, unless the second key says that this was done. A call has at most about 8,000 arguments
/// in Lua. The key is set first, so that a user who may not do that appends nothing, and forgotten at once where nothing can be appended.
const TO_LIST: &str = "\
if redis.call('EXISTS',KEYS[2])==0 then \
if ARGV[1]~='0' then redis.call('SET',KEYS[2],1,'PX',ARGV[1]) end \
for i=2,#ARGV,1000 do \
local r=redis.pcall('RPUSH',KEYS[1],unpack(ARGV,i,math.min(i+999,#ARGV))) \
if type(r)=='table' and r.err then \
if ARGV[1]~='0' then redis.call('SET',KEYS[2],1,'PX',1) end return r end \
end end return #ARGV-1";

/// The same for a stream, and what follows the third argument. The second one is the field, the third how many entries are kept, empty for all.
const TO_STREAM: &str = "\
if redis.call('EXISTS',KEYS[2])==0 then \
if ARGV[1]~='0' then redis.call('SET',KEYS[2],1,'PX',ARGV[1]) end \
local max=ARGV[3] local r \
for i=4,#ARGV do \
if max=='' then r=redis.pcall('XADD',KEYS[1],'*',ARGV[2],ARGV[i]) \
else r=redis.pcall('XADD',KEYS[1],'MAXLEN','~',max,'*',ARGV[2],ARGV[i]) end \
if type(r)=='table' and r.err then \
if ARGV[1]~='0' then redis.call('SET',KEYS[2],1,'PX',1) end return r end \
end end return #ARGV-3";

/// How a server is spoken to.
pub(super) struct Redis {
    pub login: Login,
    pub append: Append,
    /// How long a request is remembered.
    pub memory: Duration,
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

impl Protocol for Redis {
    async fn greet(&self, stream: &mut Dialed) -> Result<(), GreetError> {
        Ok(self.login.greet(stream).await?)
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

/// What an error of the server means for a request.
fn failure(text: &[u8]) -> SendError {
    let Failure { reason, is_passing } = Failure::new(text);
    match is_passing {
        true => SendError::Retry(reason),
        false => SendError::Blocked(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_pieces() {
        let redis = Redis {
            login: Login::default(),
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

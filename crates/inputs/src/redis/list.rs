//! Reads a list so that nothing is lost.
//!
//! Beside the list `KEY` there are two keys for each reader: the list `KEY:millpond:CONSUMER` of elements that were taken and are not
//! known to be safe, and the hash `KEY:millpond:CONSUMER:state`:
//!
//! | field | what it is |
//! | --- | --- |
//! | `first` | the number of the first element in the reader's list: how many were removed from it |
//! | `epoch` | a random text from when the hash was made; ids are made of it and the number |
//! | `owner` | the run that reads; one that finds another there ends |
//!
//! One script removes what is safe, and moves the next elements from `KEY` to the reader's list. It is told the number of the next
//! element that the reader wants: those that are in the reader's list already, because an answer was lost or Millpond was killed, come
//! again with the numbers that they had. Numbers are absolute, so that telling twice what is safe removes nothing twice.

use std::sync::Arc;

use batch::{Source, Stream};
use net::redis::{Value, Values};

use super::link::{BYTES_AT_ONCE, Link, Server, failed};
use crate::messages::gather::Gathered;
use crate::messages::in_flight::InFlight;
use crate::messages::working::{MessageServer, ServerError};
use crate::reading::identity::Identity;

/// Makes this run the owner. Arguments: the run, an epoch, and the number that is wanted next where the run was the owner before. A server
/// that knows less than that number has lost data: the numbers of then count no more. Gives the epoch, the first number, and how many
/// elements are in both lists.
const OPEN: &str = "\
local s=KEYS[3] \
local owner=redis.call('HGET',s,'owner') \
if ARGV[3]~='' and owner and owner~=ARGV[1] then return redis.error_reply('MILLPOND another reader') end \
local held=redis.call('LLEN',KEYS[2]) \
local first=redis.call('HGET',s,'first') or '0' \
local epoch=redis.call('HGET',s,'epoch') \
if not epoch or ARGV[3]~='' and tonumber(ARGV[3])>tonumber(first)+held then epoch=ARGV[2] end \
redis.call('HMSET',s,'owner',ARGV[1],'epoch',epoch,'first',first) \
return {epoch,tonumber(first),held,redis.call('LLEN',KEYS[1])}";

/// Removes what is safe and reads what follows. Arguments: the run, the number up to which everything is safe, the number that is wanted
/// next, and how many elements and bytes are wanted. A call has at most about 8,000 arguments in Lua.
const READ: &str = "\
local s=KEYS[3] \
if redis.call('HGET',s,'owner')~=ARGV[1] then return redis.error_reply('MILLPOND another reader') end \
local first,safe,want=tonumber(redis.call('HGET',s,'first')),tonumber(ARGV[2]),tonumber(ARGV[3]) \
if safe>first then \
redis.call('LTRIM',KEYS[2],safe-first,-1) redis.call('HSET',s,'first',ARGV[2]) first=safe \
end \
local count,most=tonumber(ARGV[4]),tonumber(ARGV[5]) \
if count==0 then return {} end \
local at=want-first \
local again=at<redis.call('LLEN',KEYS[2]) \
local found \
if again then found=redis.call('LRANGE',KEYS[2],at,at+count-1) \
else found=redis.call('LRANGE',KEYS[1],0,count-1) end \
local n,bytes=0,0 \
for i=1,#found do bytes=bytes+#found[i] if n>0 and bytes>most then break end n=n+1 end \
for i=#found,n+1,-1 do found[i]=nil end \
if not again and n>0 then \
for i=1,n,1000 do redis.call('RPUSH',KEYS[2],unpack(found,i,math.min(i+999,n))) end \
redis.call('LTRIM',KEYS[1],n,-1) \
end \
return found";

/// An element that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementNumber {
    /// How often the numbers of the server had begun anew.
    era: u32,
    number: u64,
}

/// A server with a list.
pub(super) struct ListServer {
    server: Server,
    /// The list, the reader's list, and the hash.
    keys: [String; 3],
    owner: String,
    /// None before the first connection.
    taken: Option<Taken>,
    era: u32,
    /// How many elements are left to read, where the run is to end.
    left: u64,
}

/// How far the list is read.
struct Taken {
    epoch: Vec<u8>,
    stream: Arc<Stream>,
    /// The number that is wanted next.
    next: u64,
    /// The number up to which everything is safe.
    safe: u64,
}

/// What the server says when a run becomes the owner.
struct Opened {
    epoch: Vec<u8>,
    first: u64,
    held: u64,
    waiting: u64,
}

impl ListServer {
    pub(super) fn new(server: Server) -> Self {
        let key = &server.settings.own.key;
        let held = format!("{key}:millpond:{}", server.consumer);
        let keys = [key.clone(), held.clone(), format!("{held}:state")];
        Self {
            keys,
            owner: random(),
            taken: None,
            era: 0,
            left: 0,
            server,
        }
    }

    async fn call(
        &self,
        link: &mut Link,
        script: &str,
        arguments: &[&str],
    ) -> Result<bytes::Bytes, ServerError> {
        let keys = self.keys.iter().map(String::as_bytes);
        let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), b"3"];
        command.extend(keys);
        command.extend(arguments.iter().map(|argument| argument.as_bytes()));
        link.command(&command);
        let answer = link.any_answer().await?;
        match Values::new(&answer).next() {
            Some(Value::Error(text)) if memchr::memmem::find(text, b"MILLPOND").is_some() => {
                Err(ServerError::Ended(format!(
                    "another reader of `{}` uses the consumer `{}`, and goes on with what this one has not delivered; give each reader its own `consumer`",
                    self.keys[0], self.server.consumer
                )))
            }
            Some(Value::Error(text)) => Err(failed(text)),
            _ => Ok(answer),
        }
    }

    async fn opened(&self, link: &mut Link) -> Result<Opened, ServerError> {
        let next = self.taken.as_ref().map(|taken| taken.next.to_string());
        let arguments = [&*self.owner, &random(), &next.unwrap_or_default()];
        let answer = self.call(link, OPEN, &arguments).await?;
        let mut values = Values::new(&answer);
        let mut parts = || {
            values.array()?;
            let epoch = values.text()?.to_vec();
            let mut number = || match values.next()? {
                Value::Number(number) => u64::try_from(number).ok(),
                _ => None,
            };
            Some(Opened {
                epoch,
                first: number()?,
                held: number()?,
                waiting: number()?,
            })
        };
        parts().ok_or_else(no_answer)
    }

    /// Calls the script that reads; gives what it found.
    async fn next(
        &mut self,
        link: &mut Link,
        safe: &[ElementNumber],
        count: usize,
    ) -> Result<bytes::Bytes, ServerError> {
        let era = self.era;
        let Some(taken) = &mut self.taken else {
            return Err(no_answer());
        };
        let told = safe.iter().filter(|element| element.era == era);
        if let Some(last) = told.map(|element| element.number + 1).max() {
            taken.safe = taken.safe.max(last);
        }
        let numbers = [taken.safe, taken.next, count as u64, BYTES_AT_ONCE as u64];
        let numbers = numbers.map(|number| number.to_string());
        let mut arguments: Vec<&str> = vec![&self.owner];
        arguments.extend(numbers.iter().map(String::as_str));
        self.call(link, READ, &arguments).await
    }
}

impl MessageServer for ListServer {
    type Token = ElementNumber;
    type Link = Link;

    fn name(&self) -> String {
        self.server.endpoint.to_string()
    }

    async fn connect(
        &mut self,
        in_flight: &mut InFlight<ElementNumber>,
    ) -> Result<Link, ServerError> {
        let mut link = self.server.link().await?;
        let opened = self.opened(&mut link).await?;
        match &self.taken {
            Some(taken) if taken.epoch == opened.epoch => return Ok(link),
            Some(_) => {
                self.era += 1;
                in_flight.forget();
                self.server.ctx.diagnostics.warn(&format!(
                    "{}: the server has lost data; events that are read again get other ids",
                    self.server.endpoint
                ));
            }
            None => self.left = opened.held + opened.waiting,
        }
        let key = &self.server.settings.own.key;
        let identity = Identity::new([b"redis", key.as_bytes(), &opened.epoch]);
        let source = Source::Topic {
            name: key.as_str().into(),
            partition: 0,
        };
        self.taken = Some(Taken {
            stream: Arc::new(Stream::new(identity.id(), source)),
            epoch: opened.epoch,
            next: opened.first,
            safe: opened.first,
        });
        Ok(link)
    }

    async fn read(
        &mut self,
        link: &mut Link,
        safe: &mut Vec<ElementNumber>,
        _: &InFlight<ElementNumber>,
        gathered: &mut Gathered<ElementNumber>,
    ) -> Result<bool, ServerError> {
        let mut count = self.server.count;
        if self.server.settings.own.until.is_some() {
            count = count.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        }
        let answer = self.next(link, safe, count).await?;
        safe.clear();
        let (era, mut values) = (self.era, Values::new(&answer));
        let count = values.array().ok_or_else(no_answer)?;
        if let Some(taken) = &mut self.taken {
            for value in values.by_ref().take(count) {
                let Value::Text(text) = value else {
                    return Err(no_answer());
                };
                let number = taken.next;
                let element = ElementNumber { era, number };
                let value = |out: &mut Vec<u8>| out.extend_from_slice(text);
                gathered.push((&taken.stream, number), element, value, |_| {});
                taken.next += 1;
            }
        }
        self.left = self.left.saturating_sub(gathered.len() as u64);
        self.server.learn(gathered.len(), gathered.values.len());
        let is_end = gathered.is_empty() || self.left == 0;
        if gathered.is_empty() && self.server.settings.own.until.is_none() {
            self.server.rest().await;
        }
        Ok(is_end)
    }

    async fn acknowledge(
        &mut self,
        link: &mut Link,
        safe: &mut Vec<ElementNumber>,
    ) -> Result<(), ServerError> {
        if !safe.is_empty() {
            self.next(link, safe, 0).await?;
            safe.clear();
        }
        Ok(())
    }

    async fn keep(&mut self, _: &mut Link, _: &InFlight<ElementNumber>) -> Result<(), ServerError> {
        // Nobody else takes what is in the reader's list.
        Ok(())
    }

    async fn lag(&mut self, link: &mut Link) -> Result<Option<u64>, ServerError> {
        let mut sum = 0;
        for key in &self.keys[..2] {
            link.command(&[b"LLEN", key.as_bytes()]);
            let answer = link.answer().await?;
            if let Some(Value::Number(len)) = Values::new(&answer).next() {
                sum += u64::try_from(len).unwrap_or_default();
            }
        }
        Ok(Some(sum))
    }
}

fn random() -> String {
    format!("{:032x}", fastrand::u128(..))
}

fn no_answer() -> ServerError {
    ServerError::Broken("the server sent another answer than was expected".to_owned())
}

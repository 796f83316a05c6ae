//! A server that speaks as much of Redis' protocol as the output and the input need: it takes calls of scripts for what they append, and for
//! what they take from a list.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::serve_clients;

/// What it does with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallReply {
    /// It appends and answers.
    Take,
    /// It appends, and closes the connection instead of an answer.
    TakeAndClose,
    /// It answers with this error.
    Error(&'static str),
}

#[derive(Default)]
struct Stored {
    /// The events of each key.
    lists: BTreeMap<String, Vec<String>>,
    requests: BTreeSet<String>,
    /// Of the hash beside a reader's list: the owner, and the number of the first element.
    readers: BTreeMap<String, (String, usize)>,
    /// Commands that are no calls, and the arguments of calls before their events.
    commands: Vec<Vec<String>>,
    calls: usize,
}

type Behaviour = dyn Fn(usize) -> CallReply + Send + Sync;

/// A server on this machine.
pub struct RedisServer {
    address: SocketAddr,
    stored: Arc<Mutex<Stored>>,
}

impl RedisServer {
    /// One that does with each call what the function says of its number. Port 0 has the system choose one.
    ///
    /// # Panics
    /// The port is taken.
    pub fn start(
        port: u16,
        behaviour: impl Fn(usize) -> CallReply + Send + Sync + 'static,
    ) -> Self {
        let stored = Arc::<Mutex<Stored>>::default();
        let shared = stored.clone();
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        // A client may go at any time.
        let address = serve_clients(port, move |client| {
            drop(serve(client, &shared, &*behaviour));
        });
        Self { address, stored }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Appends an event to a list.
    pub fn append(&self, key: &str, event: String) {
        let lists = &mut self.stored.lock().lists;
        lists.entry(key.to_owned()).or_default().push(event);
    }

    /// The events of each key, in order.
    pub fn lists(&self) -> BTreeMap<String, Vec<String>> {
        self.stored.lock().lists.clone()
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.stored.lock().lists.values().map(Vec::len).sum()
    }

    /// Commands, of calls without their script, ids and events.
    pub fn commands(&self) -> Vec<Vec<String>> {
        self.stored.lock().commands.clone()
    }
}

fn serve(client: TcpStream, stored: &Mutex<Stored>, behaviour: &Behaviour) -> io::Result<()> {
    let mut writer = client.try_clone()?;
    let mut reader = BufReader::new(client);
    loop {
        let command = command(&mut reader)?;
        if command[0] == "LLEN" {
            let lists = &stored.lock().lists;
            let len = lists.get(&command[1]).map_or(0, Vec::len);
            writer.write_all(format!(":{len}\r\n").as_bytes())?;
            continue;
        }
        if command[0] == "EVAL" && command[2] == "3" {
            let answer = read(&command[3..], &mut stored.lock());
            writer.write_all(answer.as_bytes())?;
            continue;
        }
        if command[0] != "EVAL" {
            stored.lock().commands.push(command);
            writer.write_all(b"+OK\r\n")?;
            continue;
        }
        let call = stored.lock().calls;
        stored.lock().calls += 1;
        let reply = behaviour(call);
        if let CallReply::Error(error) = reply {
            writer.write_all(format!("-{error}\r\n").as_bytes())?;
            continue;
        }
        let taken = take(&command, &mut stored.lock());
        if reply == CallReply::TakeAndClose {
            return Ok(());
        }
        writer.write_all(format!(":{taken}\r\n").as_bytes())?;
    }
}

/// What a call of a reader of lists is answered: it begins (with 3 arguments), or takes what follows (with 5).
fn read(call: &[String], stored: &mut Stored) -> String {
    let (list, held, state) = (&call[0], &call[1], &call[2]);
    let number = |at: usize| call[at].parse::<usize>().unwrap_or_default();
    let (owner, first) = stored.readers.entry(state.clone()).or_default();
    if call.len() == 6 {
        owner.clone_from(&call[3]);
        let len = |key: &String| stored.lists.get(key).map_or(0, Vec::len);
        return format!(
            "*4\r\n$5\r\nepoch\r\n:{first}\r\n:{}\r\n:{}\r\n",
            len(held),
            len(list)
        );
    }
    if *owner != call[3] {
        return "-MILLPOND another reader\r\n".to_owned();
    }
    let mut mine = stored.lists.remove(held).unwrap_or_default();
    mine.drain(..number(4).saturating_sub(*first).min(mine.len()));
    *first = (*first).max(number(4));
    let wanted = number(5) - *first;
    if wanted >= mine.len() {
        let from = stored.lists.entry(list.clone()).or_default();
        mine.extend(from.drain(..number(6).min(from.len())));
    }
    let taken: Vec<&String> = mine.iter().skip(wanted).take(number(6)).collect();
    let mut answer = format!("*{}\r\n", taken.len());
    for text in taken {
        answer += &format!("${}\r\n{text}\r\n", text.len());
    }
    stored.lists.insert(held.clone(), mine);
    answer
}

/// Appends what a call says, once if it is to be remembered; how many events it has.
fn take(command: &[String], stored: &mut Stored) -> usize {
    let (key, request) = (&command[3], &command[4]);
    let settings = if command[1].contains("XADD") { 3 } else { 1 };
    let (settings, events) = command[5..].split_at(settings);
    let mut shown = vec!["EVAL".to_owned(), key.clone()];
    shown.extend_from_slice(settings);
    stored.commands.push(shown);
    if command[5] == "0" || stored.requests.insert(request.clone()) {
        let list = stored.lists.entry(key.clone()).or_default();
        list.extend_from_slice(events);
    }
    events.len()
}

fn command(reader: &mut impl BufRead) -> io::Result<Vec<String>> {
    let count = number(reader, '*')?;
    (0..count)
        .map(|_| {
            let mut text = vec![0; number(reader, '$')? + 2];
            reader.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            String::from_utf8(text).map_err(io::Error::other)
        })
        .collect()
}

fn number(reader: &mut impl BufRead, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = line.trim_end().strip_prefix(kind);
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other(line))
}

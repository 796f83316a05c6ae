//! A strict double of ClickHouse's HTTP interface for inserts, after its documentation and what version 26.9 says of rows.
//!
//! A table has columns of whole numbers and of texts. An insert is stored as a whole or not at all. One with a token that was used
//! before for the table is ignored, as tables with `non_replicated_deduplication_window` do.
//! Source: <https://clickhouse.com/docs/interfaces/http>.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::http::{Answer, Taken};

/// A ClickHouse. Clones are the same one.
#[derive(Clone)]
pub struct ClickHouse {
    store: Arc<Mutex<Store>>,
    tables: &'static [&'static str],
}

#[derive(Default)]
struct Store {
    rows: BTreeMap<String, Vec<Value>>,
    tokens: HashSet<(String, String)>,
    ignored: usize,
    violations: Vec<String>,
}

impl ClickHouse {
    /// One with these tables, in each of which the column `n` is one of whole numbers and all others take anything.
    pub fn new(tables: &'static [&'static str]) -> Self {
        Self {
            store: Arc::default(),
            tables,
        }
    }

    /// What it answers to a request.
    pub fn answer(&self, taken: &Taken) -> Answer {
        let query = taken.path.split_once('?').map_or("", |(_, query)| query);
        let parameter = |name: &str| {
            let pair = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut named = pair.filter(|(key, _)| *key == name);
            named.next().map(|(_, value)| decoded(value))
        };
        for (name, value) in [
            ("wait_end_of_query", "1"),
            ("date_time_input_format", "best_effort"),
        ] {
            if parameter(name).as_deref() != Some(value) {
                self.violated(format!("`{name}` is not {value}"));
            }
        }
        let statement = parameter("query").unwrap_or_default();
        let table = statement
            .strip_prefix("INSERT INTO `")
            .and_then(|rest| rest.strip_suffix("` FORMAT JSONEachRow"));
        let Some(table) = table else {
            self.violated(format!("the statement {statement}"));
            return exception(400, 62, "Syntax error");
        };
        let table = table.replace("`.`", ".");
        if !self.tables.contains(&table.as_str()) {
            return exception(404, 60, &format!("Table {table} does not exist"));
        }
        let mut rows = Vec::new();
        for (number, line) in taken.text().lines().enumerate() {
            let row: Value = match serde_json::from_str(line) {
                Ok(row) => row,
                Err(_) => {
                    return exception(
                        400,
                        26,
                        &format!("Cannot parse JSON string: (at row {})", number + 1),
                    );
                }
            };
            if row.get("n").is_some_and(|value| !value.is_u64()) {
                let what = format!(
                    "Cannot parse input: expected a number: (while reading the value of key n): (at row {})",
                    number + 1
                );
                return exception(400, 27, &what);
            }
            rows.push(row);
        }
        let mut store = self.store.lock();
        if let Some(token) = parameter("insert_deduplication_token")
            && !store.tokens.insert((table.clone(), token))
        {
            store.ignored += 1;
            return Answer::new(200);
        }
        store.rows.entry(table).or_default().extend(rows);
        Answer::new(200)
    }

    /// The rows of a table.
    pub fn rows(&self, table: &str) -> Vec<Value> {
        self.store
            .lock()
            .rows
            .get(table)
            .cloned()
            .unwrap_or_default()
    }

    /// How many inserts were ignored because of their token.
    pub fn ignored(&self) -> usize {
        self.store.lock().ignored
    }

    /// What a client must never do, and did.
    pub fn violations(&self) -> Vec<String> {
        self.store.lock().violations.clone()
    }

    fn violated(&self, what: String) {
        self.store.lock().violations.push(what);
    }
}

fn exception(status: u16, code: u32, text: &str) -> Answer {
    Answer::new(status)
        .header("x-clickhouse-exception-code", code.to_string())
        .body(format!(
            "Code: {code}. DB::Exception: {text}. (NAME) (version 26.9.2.1)"
        ))
}

/// A value of a form (`application/x-www-form-urlencoded`).
pub(crate) fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        (rest, bytes) = match (first, byte) {
            (b'%', Some(byte)) => (&behind[2..], [bytes, vec![byte]].concat()),
            (b'+', _) => (behind, [bytes, vec![b' ']].concat()),
            (first, _) => (behind, [bytes, vec![*first]].concat()),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

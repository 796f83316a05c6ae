//! Into which table rows go, and the statement that says so.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use config::{ConfigError, Node};
use expr::{Absent, Template};

use crate::partition::{Group, partition};

/// The longest name of a table, in bytes: it becomes that of a directory, with some letters in a longer form.
const NAME_BYTES_MAX: usize = 200;

/// Stands for a name of which a field is missing. No name holds it.
const MISSING: u8 = 0;

/// Where rows go.
#[derive(Debug)]
pub struct Target {
    database: Option<String>,
    table: Template,
}

impl Target {
    /// The table of that name, which stands in the setting `table` of an output.
    ///
    /// # Errors
    /// It cannot be a name, with its place.
    pub fn new(output: &Node, database: Option<&str>, table: &str) -> Result<Self, ConfigError> {
        let at = output.nearest("table");
        if let Some(problem) = database.and_then(|name| check(name).err()) {
            return Err(output
                .nearest("database")
                .error(format!("the name of the database {problem}")));
        }
        let template = crate::codec::template(output, at, table)?;
        check(&template.with_each("x"))
            .map_err(|problem| at.error(format!("the name of the table {problem}")))?;
        Ok(Self {
            database: database.map(str::to_owned),
            table: template,
        })
    }

    /// The fields that its name is made of.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        self.table.reads()
    }

    /// The rows of a batch by table; none where all go into the same.
    pub fn groups(&self, batch: &Batch, rows: &Bitmap) -> Option<Vec<Group>> {
        if self.table.constant().is_some() {
            return None;
        }
        // As for indices of Elasticsearch: the time of reading would choose another table when an event is read again.
        let mut table = self.table.bind(batch, Absent::Text("")).undated(0);
        let render = |row: usize, name: &mut Vec<u8>| match table.is_given(row) {
            true => table.write(row, name),
            false => name.push(MISSING),
        };
        Some(partition(batch, rows, render, checked))
    }

    /// The statement that inserts rows into the table of this destination.
    pub fn statement(&self, destination: &str) -> String {
        let table = quoted(self.table.constant().unwrap_or(destination));
        let database = self.database.as_deref().map(|name| quoted(name) + ".");
        let database = database.unwrap_or_default();
        format!("INSERT INTO {database}{table} FORMAT JSONEachRow")
    }
}

/// A name as an identifier (<https://clickhouse.com/docs/sql-reference/syntax#identifiers>).
fn quoted(name: &str) -> String {
    let mut quoted = String::from("`");
    for letter in name.chars() {
        if matches!(letter, '`' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted + "`"
}

fn checked(name: &[u8]) -> Result<Arc<str>, Arc<str>> {
    if name == [MISSING] {
        return Err("a field in the name of its table is absent".into());
    }
    let name = String::from_utf8_lossy(name);
    match check(&name) {
        Ok(()) => Ok(name.into()),
        Err(problem) => Err(format!("the name of its table {problem}").into()),
    }
}

fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        let len = name.len();
        return Err(format!(
            "has {len} bytes, but at most {NAME_BYTES_MAX} are allowed"
        ));
    }
    match name.chars().find(|letter| letter.is_control()) {
        Some(letter) => Err(format!("contains `{}`", letter.escape_debug())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn target(database: Option<&str>, table: &str) -> Target {
        let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
        Target::new(&node, database, table).expect("it can be used")
    }

    #[test]
    fn names_are_quoted() {
        for (database, table, expected) in [
            (None, "logs", "INSERT INTO `logs` FORMAT JSONEachRow"),
            (
                Some("a b"),
                "x.y",
                "INSERT INTO `a b`.`x.y` FORMAT JSONEachRow",
            ),
            (
                None,
                "a`; DROP\\",
                "INSERT INTO `a\\`; DROP\\\\` FORMAT JSONEachRow",
            ),
        ] {
            assert_eq!(target(database, table).statement(""), expected);
        }
        let by_event = target(None, "logs_%{a}");
        assert_eq!(
            by_event.statement("logs_x`"),
            "INSERT INTO `logs_x\\`` FORMAT JSONEachRow"
        );
    }

    #[test]
    fn an_event_without_a_table_is_refused() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(300));
        let batch = testing::documents(&[r#"{"a":"x"}"#, "{}", r#"{"a":"y\n"}"#, &long]);
        let target = target(None, "logs_%{a}");
        let groups = target
            .groups(&batch, batch.alive())
            .expect("events have a say");
        assert_eq!(groups[0].destination.as_deref(), Ok("logs_x"));
        for (group, part) in groups[1..]
            .iter()
            .zip(["is absent", "contains `\\n`", "305 bytes"])
        {
            let reason = group.destination.as_ref().expect_err("no table");
            assert!(reason.contains(part), "{reason}");
        }
        assert!(
            self::target(None, "logs")
                .groups(&batch, batch.alive())
                .is_none()
        );
    }
}

//! Rows that are JSON objects: those of NDJSON, and the entries of a database.

use std::io::BufRead;

use batch::Value;
use batch::json::{self, Kind};

use super::builder::TableBuilder;
use super::error::{RowError, TableError};
use super::lines::Lines;
use super::plan::Plan;

/// A member of an object, or of an object within it, and so on.
struct MemberPath {
    /// The whole name as one key, as JSON writes it.
    whole: Vec<u8>,
    /// The keys from the outermost one on, likewise; none where there is but one.
    keys: Vec<Vec<u8>>,
}

impl MemberPath {
    fn new(name: &str) -> Self {
        let written = |key: &str| {
            let mut out = Vec::new();
            json::write_string_body(&mut out, key.as_bytes());
            out
        };
        let keys = match name.contains('.') {
            true => name.split('.').map(written).collect(),
            false => Vec::new(),
        };
        Self {
            whole: written(name),
            keys,
        }
    }

    /// The JSON of the value.
    fn find<'o>(&self, object: &'o [u8]) -> Option<&'o [u8]> {
        if let Some(at) = json::find(object, &self.whole) {
            return Some(&object[at]);
        }
        let (first, rest) = self.keys.split_first()?;
        let value = |object: &'o [u8], key: &[u8]| json::find(object, key).map(|at| &object[at]);
        rest.iter().try_fold(value(object, first)?, |inner, key| {
            (json::kind(inner) == Kind::Object).then(|| value(inner, key))?
        })
    }
}

/// Takes objects as rows.
pub(super) struct ObjectRows {
    keys: Vec<MemberPath>,
    values: Vec<MemberPath>,
    /// The object at hand, where it has to be rewritten.
    normal: Vec<u8>,
    /// The value at hand, where it is escaped.
    text: Vec<u8>,
}

impl ObjectRows {
    pub fn new(plan: &Plan, builder: &mut TableBuilder<'_>) -> Result<Self, TableError> {
        let mut values = Vec::new();
        for column in plan.columns.iter().flatten() {
            values.push(MemberPath::new(&column.name));
            builder.column(&column.name, column.path.as_ref())?;
        }
        if plan.columns.is_none() {
            for (name, _) in &plan.defaults {
                values.push(MemberPath::new(name));
                builder.column(name, None)?;
            }
        }
        let names = plan.key.names();
        Ok(Self {
            keys: names.iter().map(|name| MemberPath::new(name)).collect(),
            values,
            normal: Vec::new(),
            text: Vec::new(),
        })
    }

    /// Adds an object, which stands in a line of the file. Gives the row.
    pub fn put(
        &mut self,
        plan: &Plan,
        builder: &mut TableBuilder<'_>,
        line: u32,
        object: &[u8],
    ) -> Result<u32, TableError> {
        let wrong = |error| TableError::row(line, error);
        if std::str::from_utf8(object).is_err() {
            return Err(wrong(RowError::NotUtf8));
        }
        let scan = json::validate_object(object).map_err(|error| wrong(error.into()))?;
        builder.has_dotted_keys |= scan.dotted_keys;
        let mut normal = std::mem::take(&mut self.normal);
        normal.clear();
        let object = match scan.rewrite {
            true => {
                json::normalise(object, &mut normal);
                &normal[..]
            }
            false => object,
        };
        if plan.columns.is_none() {
            self.add_columns(plan, builder, object)?;
        }
        let mut texts = vec![Vec::new(); self.keys.len()];
        let key = self.keys.iter().zip(&mut texts);
        let key: Vec<Value<'_>> = key
            .map(|(path, text)| {
                path.find(object)
                    .map_or(Value::Missing, |json| value(json, text))
            })
            .collect();
        let row = builder.begin(line, &key)?;
        builder.count(self.values.len());
        for (column, path) in self.values.iter().enumerate() {
            self.text.clear();
            let json = path.find(object);
            let value = json.map_or(Value::Missing, |json| value(json, &mut self.text));
            builder.value(column, value);
        }
        self.normal = normal;
        Ok(row)
    }

    /// Makes columns of members that are new.
    fn add_columns(
        &mut self,
        plan: &Plan,
        builder: &mut TableBuilder<'_>,
        object: &[u8],
    ) -> Result<(), TableError> {
        for member in json::members(object) {
            if self.values.iter().any(|known| known.whole == member.key) {
                continue;
            }
            let mut name = Vec::new();
            json::unescape(member.key, &mut name);
            let name = String::from_utf8_lossy(&name);
            if plan.takes(&name) {
                builder.column(&name, None)?;
                self.values.push(MemberPath::new(&name));
            }
        }
        Ok(())
    }
}

/// The value of a valid text of JSON; `text` gets its text where that is escaped.
fn value<'v>(json: &'v [u8], text: &'v mut Vec<u8>) -> Value<'v> {
    match json::kind(json) {
        Kind::Null => Value::Null,
        Kind::Bool => Value::Bool(json == b"true"),
        Kind::Number => Value::Number(json),
        Kind::Array | Kind::Object => Value::Json(json),
        Kind::String => {
            let body = &json[1..json.len() - 1];
            if !json::has_escape(body) {
                return Value::Text(body);
            }
            json::unescape(body, text);
            Value::Text(text)
        }
    }
}

/// Reads a file of NDJSON into a table.
pub(super) fn read_ndjson(
    plan: &Plan,
    input: impl BufRead,
    builder: &mut TableBuilder<'_>,
) -> Result<(), TableError> {
    let mut objects = ObjectRows::new(plan, builder)?;
    let mut lines = Lines::new(input);
    while lines.next()? {
        objects.put(plan, builder, lines.number, &lines.line)?;
    }
    match lines.number {
        0 => Err(TableError::Empty),
        _ => Ok(()),
    }
}

//! Why a table cannot be used.

use std::io;

use batch::FieldPath;
use batch::json::JsonError;
use component::plural;
use ipnet::IpNet;
use maxminddb::MaxMindDbError;

/// Why a file cannot be used as a table.
#[derive(Debug, thiserror::Error)]
pub(super) enum TableError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("line {line}: {problem}")]
    Row { line: u32, problem: RowError },
    #[error("the file is empty")]
    Empty,
    #[error("it has no column `{name}`; its columns are {}", .columns.join(", "))]
    NoColumn {
        /// The setting that names the column.
        setting: &'static str,
        name: String,
        columns: Vec<String>,
    },
    #[error("no row has `{0}`")]
    UnknownColumn(String),
    #[error("two columns are called `{0}`")]
    SameColumn(String),
    #[error("column {0} has no name; `columns` says which ones are wanted")]
    NoName(usize),
    #[error(
        "`{0}` and `{1}` would both be written to {2}; `columns` says which ones are wanted, and where"
    )]
    SameField(String, String, FieldPath),
    #[error("it has more than {0} columns; `columns` says which ones are wanted")]
    TooManyColumns(usize),
    #[error("its keys and values take more than 4 GiB")]
    TooLarge,
    #[error("it is not a MaxMind database: {0}")]
    Database(#[from] MaxMindDbError),
    #[error("the entry of {0} is not an object")]
    NoObject(IpNet),
}

impl TableError {
    pub fn row(line: u32, problem: RowError) -> Self {
        Self::Row { line, problem }
    }
}

/// Why a row cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("{0}")]
    Json(#[from] JsonError),
    #[error("it has {} and the header {wanted}", plural(*count as u64, "field"))]
    Fields { count: usize, wanted: usize },
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("the key column `{0}` has no value")]
    NoKey(String),
    #[error("its key, {0}, is in an earlier row already")]
    SameKey(String),
    #[error("`{0}` is not a network such as 10.0.0.0/8, and not an address")]
    NotNetwork(String),
    #[error("{0} to {1} is not a range: both must be numbers, or IP addresses of one version")]
    NotRange(String, String),
    #[error(
        "{0} to {1} is a range of another kind than in the rows before: numbers and addresses do not mix"
    )]
    OtherRange(String, String),
    #[error("the range ends before it begins: {0} to {1}")]
    Backwards(String, String),
    #[error("it has the same network as line {0}")]
    SameNetwork(u32),
    #[error("its range overlaps with that of line {0}")]
    Overlap(u32),
}

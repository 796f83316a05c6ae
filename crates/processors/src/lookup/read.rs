//! Reads the file of a table.

use std::io::{BufReader, Read};

use disk::regular;

use super::builder::TableBuilder;
use super::error::TableError;
use super::plan::{Plan, TableFormat};
use super::table::Table;
use super::{csv, mmdb, objects};

/// Reads a table.
///
/// # Errors
/// The file is not a regular one or cannot be read, or something in it not be used.
pub(super) fn read_table(plan: &Plan) -> Result<Table, TableError> {
    // A pipe would be waited for, at the start or by the thread that reads the table again.
    let mut file = BufReader::new(regular::open(plan.path.as_ref())?);
    let mut builder = TableBuilder::new(plan);
    match plan.format {
        TableFormat::Csv { delimiter } => {
            csv::read_csv(plan, file, delimiter, &mut builder)?;
        }
        TableFormat::Ndjson => {
            objects::read_ndjson(plan, file, &mut builder)?;
        }
        TableFormat::Mmdb => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            mmdb::read_database(plan, bytes, &mut builder)?;
        }
    }
    builder.finish()
}

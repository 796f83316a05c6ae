//! Reads the file of a table.

use std::fs::File;
use std::io::BufReader;

use super::builder::TableBuilder;
use super::error::TableError;
use super::plan::{Plan, TableFormat};
use super::table::Table;
use super::{csv, mmdb, objects};

/// Reads a table.
///
/// # Errors
/// The file cannot be read, or something in it not be used.
pub(super) fn read_table(plan: &Plan) -> Result<Table, TableError> {
    let mut builder = TableBuilder::new(plan);
    match plan.format {
        TableFormat::Csv { delimiter } => {
            let file = BufReader::new(File::open(&plan.path)?);
            csv::read_csv(plan, file, delimiter, &mut builder)?;
        }
        TableFormat::Ndjson => {
            let file = BufReader::new(File::open(&plan.path)?);
            objects::read_ndjson(plan, file, &mut builder)?;
        }
        TableFormat::Mmdb => {
            mmdb::read_database(plan, std::fs::read(&plan.path)?, &mut builder)?;
        }
    }
    builder.finish()
}

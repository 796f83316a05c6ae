//! `millpond profile symbolize`: gives names to the addresses of a profile.

use std::process::ExitCode;

use super::{SymbolizeArgs, files};

pub fn symbolize(args: &SymbolizeArgs) -> anyhow::Result<ExitCode> {
    // Reading gives names.
    let profile = files::read(&args.file)?;
    files::write(&profile, &args.output)?;
    Ok(ExitCode::SUCCESS)
}

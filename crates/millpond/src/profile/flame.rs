//! `millpond profile flame`: a flame graph as a page or a picture.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use profiler::flame::{self, Options};

use super::FlameArgs;
use super::files::Sources;
use crate::console::say;

pub fn flame(args: &FlameArgs) -> anyhow::Result<ExitCode> {
    let (filter, tariff) = (args.filter.filter()?, args.rates.tariff()?);
    let sources = Sources::new(&args.files, args.range.range()?)?;
    let profile = sources.profile(&filter)?;
    let options = Options {
        title: args.title.clone().unwrap_or_else(|| title(&args.files)),
        rates: tariff.mean(&profile),
    };
    let text = match is_picture(&args.output) {
        true => flame::svg(&profile, &filter, &options),
        false => flame::html(&profile, &filter, &options),
    };
    write(&args.output, &text)?;
    Ok(ExitCode::SUCCESS)
}

fn title(files: &[std::path::PathBuf]) -> String {
    let names = files.iter().map(|file| file.display().to_string());
    names.collect::<Vec<_>>().join(", ")
}

/// Whether a file is to hold a picture instead of a page.
pub(super) fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

/// Writes a page or a picture, and says where.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("written to {}", path.display()));
    Ok(())
}

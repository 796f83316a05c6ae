//! `millpond profile flame`: a flame graph as a page or a picture.

use std::path::Path;
use std::process::ExitCode;

use profiler::Profile;
use profiler::filter::Filter;
use profiler::flame::{self, Options};
use profiler::store::small;

use super::files::{Sources, save};
use super::{FlameArgs, NO_SAMPLES, lost};
use crate::console::say;

pub fn flame(args: &FlameArgs) -> anyhow::Result<ExitCode> {
    let (filter, tariff) = (args.filter.filter()?, args.rates.tariff()?);
    let sources = Sources::new(&args.files, &args.range.range()?)?;
    let profile = sources.graph(&filter)?;
    if profile.is_empty() && !filter.is_empty() {
        say(NO_SAMPLES);
    }
    let options = Options {
        title: args.title.clone().unwrap_or_else(|| title(&args.files)),
        rates: tariff.mean(&profile),
    };
    let all = Filter::default();
    let text = match is_picture(&args.output) {
        true => flame::svg(&profile, &all, &options),
        false => flame::html(&profile, &all, &options),
    };
    write(&args.output, &text, &[&profile])?;
    lost::warn("", &filter, profile.total().samples, profile.lost);
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

/// Writes a page or a picture of profiles, and says where, and what it leaves out.
pub(super) fn write(path: &Path, text: &str, profiles: &[&Profile]) -> anyhow::Result<()> {
    save(path, text.as_bytes())?;
    say(&format!("written to {}", path.display()));
    if let Some(note) = small::note(profiles) {
        say(&note);
    }
    Ok(())
}

//! `millpond profile compact`: joins the profiles of a store to hours and days, with names.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use component::plural;
use profiler::store::Store;

use super::CompactArgs;
use super::files::names;
use crate::console::say;
use crate::load::host;

/// How much this gives way to everything else.
const NICENESS: i32 = 19;

pub fn compact(args: &CompactArgs) -> anyhow::Result<ExitCode> {
    // Where the system refuses, it runs like everybody else.
    let _ = rustix::process::nice(NICENESS);
    let folder = args.store.display();
    if !args.store.is_dir() {
        bail!("there is no directory {folder}");
    }
    let own = host().name.to_string();
    let mut symbols = None;
    let name = |host: &str, profile: &profiler::Profile| match host == own {
        true => symbols.get_or_insert_with(names).name(profile),
        // Another machine's files are not here.
        false => profile.clone(),
    };
    let store = Store::at(&args.store);
    let compacted = store.compact(SystemTime::now(), args.host.as_deref(), name);
    let compacted = compacted.with_context(|| format!("cannot join the profiles in {folder}"))?;
    for (path, error) in &compacted.damaged {
        let path = path.display();
        say(&format!("warning: {path} is left as it is: {error}"));
    }
    if compacted.joined > 0 {
        let (joined, made) = (
            plural(compacted.joined, "file"),
            plural(compacted.made, "file"),
        );
        say(&format!("{joined} joined to {made}"));
    }
    Ok(ExitCode::SUCCESS)
}

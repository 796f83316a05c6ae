//! `millpond profile`: where processor time goes, by function.

mod archive;
mod chart;
mod compact;
mod diff;
mod ending;
pub mod files;
mod flame;
mod lost;
mod naming;
pub mod operators;
mod outbox;
pub mod own;
mod post;
mod ranges;
pub mod rates;
pub mod receive;
mod record;
mod requests;
pub mod send;
pub mod service;
pub mod settings;
mod symbolize;
pub mod tariff;
mod top;
mod upkeep;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use config::Period;
pub use files::write;
use profiler::filter::Filter;
use profiler::profile::label;
use profiler::top::Group;
use ranges::RangeArgs;
use rates::RateArgs;

/// What is said where a filter takes nothing.
const NO_SAMPLES: &str = "no sample fits --filter and --function; `millpond profile top --by LABEL` shows which values a label has";

#[derive(Subcommand)]
pub enum ProfileCommand {
    /// Samples what the processors of this machine do, and writes a profile.
    Record(RecordArgs),
    /// Shows the costliest functions of profiles, or the costliest hosts, services, processes and threads.
    Top(TopArgs),
    /// Writes a flame graph: a page that searches, zooms and filters, or a picture.
    Flame(FlameArgs),
    /// Compares two profiles: what has gained and lost, and what that saves a year.
    Diff(DiffArgs),
    /// Gives names to the addresses of a profile, from the files of this machine.
    Symbolize(SymbolizeArgs),
    /// Joins the profiles of a store to hours and days, with names; a service does so by itself.
    Compact(CompactArgs),
}

#[derive(Args)]
pub struct RecordArgs {
    /// Samples this process and those that it starts. May be given more than once. Without it the whole machine is sampled.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Samples every process of the machine; what is done without --pid.
    #[arg(long, conflicts_with = "pid")]
    all: bool,
    /// How long samples are taken, as in 60s or 5m. Ctrl-C ends it earlier.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    duration: Period,
    /// How often a second each core is sampled.
    #[arg(long, value_name = "HZ", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,
    /// Does not ask Java virtual machines for the names of their functions, which takes a signal and the attach protocol.
    #[arg(long)]
    no_attach: bool,
    /// The file to write: `.folded` gets collapsed stacks, `.json.gz` a file for the Firefox Profiler, `.otlp` OTLP; all others pprof.
    #[arg(long, short, value_name = "FILE", default_value = "profile.pb.gz")]
    output: PathBuf,
}

#[derive(Args)]
pub struct TopArgs {
    /// Profiles: pprof files of any program, collapsed stacks, what `perf script` prints, OTLP (`.otlp`), or directories that are stores. Several are
    /// added.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    range: RangeArgs,
    /// What has a row of its own: `function`, or a label such as `host`, `service`, `container`, `process`, `pid`, `thread`, `pipeline`, `operator`.
    #[arg(long, value_name = "WHAT", default_value = "function")]
    by: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// How many rows.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    rows: usize,
    /// Orders rows by the time in which functions were anywhere on the stack, not only innermost.
    #[arg(long)]
    total: bool,
    /// Also shows the rows over time, as a chart.
    #[arg(long)]
    over_time: bool,
    /// Prints one JSON object for each row.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rates: RateArgs,
}

#[derive(Args)]
pub struct FlameArgs {
    /// Profiles and stores, as for `top`. Several are added.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    range: RangeArgs,
    /// The file to write: `.svg` gets a picture, all others one HTML page that needs nothing else.
    #[arg(long, short, value_name = "FILE", default_value = "flame.html")]
    output: PathBuf,
    /// The title. Default: the names of the files.
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    rates: RateArgs,
}

#[derive(Args)]
pub struct DiffArgs {
    /// The profile or store from before.
    #[arg(value_name = "BEFORE")]
    first: PathBuf,
    /// The profile or store from after. Without it, parts of the first are compared, which --before and --after say.
    #[arg(value_name = "AFTER")]
    second: Option<PathBuf>,
    /// Which part is before: a range of time of a store, as in 2026-11-23..2026-11-24 or 2h..1h, or a label, as in host=web-1. May be given more than
    /// once.
    #[arg(long, value_name = "RANGE|NAME=VALUE")]
    before: Vec<String>,
    /// Which part is after.
    #[arg(long, value_name = "RANGE|NAME=VALUE")]
    after: Vec<String>,
    /// For the same amount of what they are compared.
    #[arg(long, value_enum, default_value = "time")]
    normalise: diff::By,
    /// With `--normalise events`: how many events there were while each was recorded.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    events: Vec<f64>,
    /// What has a row of its own, as for `top`.
    #[arg(long, value_name = "WHAT", default_value = "function")]
    by: String,
    /// How many rows.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    rows: usize,
    /// Prints one JSON object for each row.
    #[arg(long)]
    json: bool,
    /// Also writes a page with both flame graphs in one: red has gained, blue has lost.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    rates: RateArgs,
}

#[derive(Args)]
pub struct SymbolizeArgs {
    /// The profile; `-` is standard input.
    file: PathBuf,
    /// The file to write, as for `record`; `-` is standard output, as pprof.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Args)]
pub struct CompactArgs {
    /// The store.
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Joins those of this host only.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// Which samples count.
#[derive(Args)]
struct FilterArgs {
    /// Counts samples with this label only, as in host=web-1 or process=java*. Values of one label are alternatives.
    #[arg(long, value_name = "NAME=VALUE")]
    filter: Vec<String>,
    /// Counts samples only that have a function on their stack whose name holds this text.
    #[arg(long, value_name = "TEXT")]
    function: Option<String>,
}

impl FilterArgs {
    fn filter(&self) -> anyhow::Result<Filter> {
        let labels = self.filter.iter().map(|text| Filter::parse_label(text));
        Ok(Filter {
            labels: labels.collect::<Result<_, _>>()?,
            function: self.function.clone(),
        })
    }
}

/// What rows are of: functions, or a label that profiles can have.
fn group(by: &str) -> anyhow::Result<Group> {
    if by == "function" {
        return Ok(Group::Function);
    }
    if label::ALL.contains(&by) {
        return Ok(Group::Label(by.to_owned()));
    }
    let known = [&["function"], &label::ALL[..]].concat();
    let closest = config::closest(by, known.iter().copied());
    let meant = closest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    anyhow::bail!("--by {by}: known are {}{meant}", known.join(", "))
}

pub fn run(command: &ProfileCommand) -> anyhow::Result<ExitCode> {
    match command {
        ProfileCommand::Record(args) => record::record(args),
        ProfileCommand::Top(args) => top::top(args),
        ProfileCommand::Flame(args) => flame::flame(args),
        ProfileCommand::Diff(args) => diff::diff(args),
        ProfileCommand::Symbolize(args) => symbolize::symbolize(args),
        ProfileCommand::Compact(args) => compact::compact(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_groups_name_the_closest() {
        let error = group("proces").unwrap_err().to_string();
        assert!(error.ends_with("did you mean `process`?"), "{error}");
        assert_eq!(group("function").unwrap(), Group::Function);
    }
}

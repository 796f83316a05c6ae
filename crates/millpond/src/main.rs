//! The `millpond` command.
//!
//! Exit codes: 0 if everything was read and delivered; 1 if something could not be read or delivered, which is reported on standard
//! error; 2 if the command line or the configuration is invalid, before anything is read.

mod api;
mod api_client;
mod bench;
mod cases;
mod check;
mod colour;
mod console;
mod dead_letters;
mod docs;
mod files;
mod health;
mod interruption;
mod leaves;
mod load;
mod log;
mod manual;
mod notify;
mod own_metrics;
mod proc_status;
mod profile;
mod progress;
mod queue;
mod reload;
mod run;
mod sample;
mod schema;
mod sources;
mod stand_in;
mod suite;
mod tap;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use component::terminal::{self, Colours};
use pipeline::{Registry, StartError};

/// The components of this program.
static REGISTRY: Registry = Registry {
    inputs: inputs::SPECS,
    processors: processors::SPECS,
    outputs: outputs::SPECS,
    queue_output: outputs::queue_output,
    queue_input: inputs::queue_input,
};

/// Collects, buffers, processes and forwards log events.
#[derive(Parser)]
#[command(
    name = "millpond",
    version,
    arg_required_else_help = true,
    term_width = 80
)]
struct Cli {
    /// Whether messages, and events in `stdout pretty`, have colours: auto (on terminals, unless NO_COLOR is set), always, never.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true, hide_possible_values = true, value_parser = colours())]
    color: Colours,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a one-line pipeline, or every pipeline of a YAML file.
    Run(RunArgs),
    /// Checks a one-line pipeline or a YAML file; with --sample, shows what it makes of a file. No output writes.
    Check(CheckArgs),
    /// Runs a pipeline to the end, writing nothing, and reports what it cost and what limits it.
    Bench(BenchArgs),
    /// Shows what a running Millpond does: its pipelines, what limits them, and what they cost.
    Top(top::TopArgs),
    /// Says whether a running Millpond is well: exit code 0 or 1.
    Health(health::HealthArgs),
    /// Runs tests of pipelines: events that go in, and what is to come of them.
    Test(cases::TestArgs),
    /// Shows the state of every file that a data directory knows: position, lag, events read, acknowledged and dropped.
    Files(FilesArgs),
    /// Inspects disk queues: their contents, their integrity, and what an output has not received yet.
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Shows, replays and removes dead letters: events that outputs rejected or processors could not handle.
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Shows where processor time goes, by function, and what it costs.
    #[command(subcommand)]
    Profile(profile::ProfileCommand),
    /// Shows live events of a running pipeline, before or after one of its operators.
    Tap(tap::TapArgs),
    /// Prints the reference, or one page of it.
    Docs(DocsArgs),
    /// Prints the JSON Schema of the configuration, for editors.
    Schema,
    /// Prints the manual page (read it with: millpond man | man -l -), or writes one for each command.
    Man(ManArgs),
    /// Prints the script by which a shell completes commands and options.
    Completions(CompletionsArgs),
}

#[derive(Args)]
struct Source {
    /// 'INPUT | PROCESSOR … | OUTPUT', or the paths of YAML files and of folders of them, which are one configuration.
    #[arg(value_name = "PIPELINE", required = true)]
    given: Vec<String>,
}

impl Source {
    /// The pipeline, which must be one argument, or paths.
    fn pipeline(&self) -> anyhow::Result<&[String]> {
        if self.given.len() > 1 && !self.given.iter().all(|text| load::is_path(text)) {
            let given = self.given.join(" ");
            anyhow::bail!("a pipeline is one argument: put it in quotes, '{given}'");
        }
        Ok(&self.given)
    }
}

#[derive(Args)]
struct CheckArgs {
    #[command(flatten)]
    source: Source,
    /// The data directory that the pipeline will run with; `data_dir` in YAML.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Also reads the beginning of this file in place of the inputs, and prints what comes out of the processors.
    #[arg(long, value_name = "FILE")]
    sample: Option<String>,
    /// How many events of the sample are read.
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "sample")]
    lines: u64,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    source: Source,
    /// Prints the counters of every operator to standard error at the end.
    #[arg(long)]
    metrics: bool,
    /// Says nothing but warnings and errors: no progress, no line at the end, nothing of a service that starts and stops.
    #[arg(long, short)]
    quiet: bool,
    /// Saves the positions of inputs in this directory, so that a later run resumes there; `data_dir` in YAML.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Samples the run, and writes a profile of Millpond itself to this file, with the pipeline and component of each sample.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Reloads the configuration when its files change. SIGHUP reloads it in any case.
    #[arg(long)]
    watch: bool,
    /// Answers requests of the HTTP API at this address of this machine, such as 9610; `api` in YAML, where a service has one at 9610.
    #[arg(long, value_name = "ADDRESS")]
    api: Option<String>,
    /// Prints the configuration as YAML without running it.
    #[arg(long)]
    print_config: bool,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct BenchArgs {
    #[command(subcommand)]
    command: Option<suite::BenchCommand>,
    #[command(flatten)]
    source: Option<Source>,
    /// Prints one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Samples the run and shows the functions of each operator as well; with a file, also writes the profile there.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    profile: Option<Option<PathBuf>>,
    /// Has the outputs write what they render. Without it they render and compress, and what comes of that is thrown away.
    #[arg(long)]
    real_outputs: bool,
}

#[derive(Args)]
struct FilesArgs {
    /// The data directory; it may be in use by a running Millpond.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Prints one JSON object per file.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DocsArgs {
    /// A component's name, or `pipeline`, `notation`, `recipes`, `queue`, `queue-tools`, `shipping`, `dead-letters`, `api`, `top`, `tap`, `bench`, `bench-suite`, `test`, `profile`, `profile-kinds`, `expressions`, `functions`, `grok-patterns`, `install`, `exit-codes`.
    topic: Option<String>,
    /// Writes one Markdown file for each page into this directory instead.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct ManArgs {
    /// Writes millpond.1 and a page for each command into this directory instead.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Reads what `--color` says.
fn colours() -> impl TypedValueParser<Value = Colours> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(|word| colours_of(&word))
}

fn colours_of(word: &str) -> Colours {
    match word {
        "always" => Colours::Always,
        "never" => Colours::Never,
        _ => Colours::Auto,
    }
}

/// What `--color` says in arguments that were not read yet: those who read them show help and errors in these colours.
fn asked_colours(arguments: impl Iterator<Item = OsString>) -> Colours {
    let mut colours = Colours::Auto;
    let mut arguments = arguments.take_while(|it| it != "--");
    while let Some(argument) = arguments.next() {
        let Some(argument) = argument.to_str() else {
            continue;
        };
        match argument.strip_prefix("--color=") {
            Some(word) => colours = colours_of(word),
            None if argument == "--color" => {
                let word = arguments.next().unwrap_or_default();
                colours = colours_of(&word.to_string_lossy());
            }
            None => {}
        }
    }
    colours
}

fn main() -> ExitCode {
    let wanted = match asked_colours(std::env::args_os().skip(1)) {
        Colours::Auto => ColorChoice::Auto,
        Colours::Always => ColorChoice::Always,
        Colours::Never => ColorChoice::Never,
    };
    let matches = Cli::command().color(wanted).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    terminal::choose(cli.color);
    run::allow_open_files();
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            if error.is::<config::ConfigError>() {
                // It brings the word itself, and shows its place on lines below.
                console::say(&error.to_string());
            } else {
                log::fail(&format!("{error:#}"));
            }
            let is_refused = matches!(error.downcast_ref(), Some(StartError::Threads(_)));
            ExitCode::from(if is_refused { 1 } else { 2 })
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) if args.print_config => {
            console::print(load::load(args.source.pipeline()?)?.yaml().as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(args) => run::run(&args),
        Command::Check(args) => match args.sample {
            None => check::check(args.source.pipeline()?, args.data_dir),
            Some(file) => {
                check::check_sample(args.source.pipeline()?, args.data_dir, &file, args.lines)
            }
        },
        Command::Bench(args) => match &args.command {
            Some(command) => suite::run(command),
            None => bench::bench(&args),
        },
        Command::Top(args) => top::top(&args),
        Command::Health(args) => health::health(&args),
        Command::Test(args) => cases::test(&args),
        Command::Files(args) => files::files(&args.data_dir, args.json),
        Command::Queue(command) => queue::queue(&command),
        Command::DeadLetters(command) => dead_letters::dead_letters(&command),
        Command::Profile(command) => profile::run(&command),
        Command::Tap(args) => tap::run(&args),
        Command::Docs(args) => docs::docs(args.topic.as_deref(), args.out.as_deref()),
        Command::Schema => {
            console::print(schema::schema().as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => manual::man(args.out.as_deref()),
        Command::Completions(args) => manual::completions(args.shell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_known_before_the_arguments_are_read() {
        for (arguments, expected) in [
            ("run --color=always", Colours::Always),
            ("--color never --nothing", Colours::Never),
            ("--color always --color auto", Colours::Auto),
            ("--color", Colours::Auto),
            ("run -- --color=always", Colours::Auto),
        ] {
            let arguments = arguments.split(' ').map(OsString::from);
            assert_eq!(asked_colours(arguments), expected);
        }
    }
}

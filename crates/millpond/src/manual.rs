//! `millpond man` and `millpond completions`: from the definitions of the command line itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{Cli, console};

/// What every page ends with.
const FOOT: &str = "\
.SH EXIT STATUS
0 if everything was read and delivered; 1 if something could not be read or delivered, which is reported on standard error; 2 if the
command line or the configuration is invalid.
.SH SEE ALSO
\\fBmillpond docs\\fR prints the reference of components, settings and exit codes.
";

/// Prints the manual page of the program, or writes it and one page for each command into a directory.
pub fn man(out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match out {
        None => console::print(&page("millpond", &command)?)?,
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .and_then(|()| write_pages(dir, "millpond", &command))
                .with_context(|| format!("cannot write manual pages to {}", dir.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, and those of the commands below it.
fn write_pages(dir: &Path, name: &str, command: &Command) -> std::io::Result<()> {
    std::fs::write(dir.join(format!("{name}.1")), page(name, command)?)?;
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in below {
        write_pages(dir, &format!("{name}-{}", below.get_name()), below)?;
    }
    Ok(())
}

fn page(name: &str, command: &Command) -> std::io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    // The library leaves an empty date out, so that what follows it would be taken for the date.
    let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    let mut page = format!(
        ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH {title} 1 \"\" \"Millpond {version}\" \"Millpond\"\n"
    )
    .into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend_from_slice(FOOT.as_bytes());
    Ok(page)
}

/// Prints the script by which a shell completes commands, options and their values.
pub fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millpond", &mut script);
    console::print(&script)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of help of a command and of those below it that are too long for a terminal of 80 columns.
    fn long_lines(command: &mut Command, found: &mut Vec<String>) {
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            let is_long = |line: &&str| line.chars().count() > 80;
            found.extend(help.lines().filter(is_long).map(str::to_owned));
        }
        for below in command.get_subcommands_mut() {
            long_lines(below, found);
        }
    }

    #[test]
    fn help_fits_a_terminal() {
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        long_lines(&mut command, &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

//! How journalctl is called.
//!
//! - `--cursor` and not `--after-cursor`: where the entry of the cursor is gone, journalctl 252 continues behind the next one,
//!   and `--after-cursor` then leaves that one out. The input leaves out the entry of the cursor itself.
//! - `--merge`, because `--follow` alone shows only entries since the last start of the machine, and fails where there are none.
//! - Units as matches and not as `--unit`, which cannot be combined with the kernel's messages. They are those of journalctl's own
//!   `--unit`, but for the units of a slice.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use super::settings::Config;

/// The message id of a core dump (systemd's `sd-messages.h`).
const COREDUMP: &str = "MESSAGE_ID=fc2e22bc6ee647b6b90729ab34a250b1";

/// The call that reads the journal from an entry on.
pub(super) fn read(config: &Config, follows: bool, cursor: Option<&str>) -> Command {
    let mut command = Command::new(&config.program);
    command.args(arguments(config, follows, cursor));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Messages in English, as the others.
        .env("LC_ALL", "C")
        .env("SYSTEMD_COLORS", "0");
    command
}

fn arguments(config: &Config, follows: bool, cursor: Option<&str>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--output=export".into(), "--no-pager".into()];
    let mut add = |name: &str, value: &std::ffi::OsStr| {
        let mut argument = OsString::from(name);
        argument.push("=");
        argument.push(value);
        arguments.push(argument);
    };
    match (cursor, &config.since) {
        (Some(cursor), _) => add("--cursor", cursor.as_ref()),
        (None, Some(since)) => add("--since", since.as_ref()),
        (None, None) => {}
    }
    if let Some(directory) = &config.directory {
        add("--directory", directory.as_ref());
    }
    if let Some(namespace) = &config.namespace {
        add("--namespace", namespace.as_ref());
    }
    if let Some(priority) = &config.priority {
        add("--priority", priority.as_ref());
    }
    arguments.push(if config.boot { "--boot" } else { "--merge" }.into());
    if follows {
        arguments.extend(["--follow".into(), "--no-tail".into()]);
    }
    arguments.extend(matches(config).into_iter().map(OsString::from));
    arguments
}

/// What entries must match: groups of fields, one of which must match, with `+` between them.
fn matches(config: &Config) -> Vec<String> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for unit in &config.units {
        let unit = match unit.contains('.') {
            true => unit.clone(),
            false => format!("{unit}.service"),
        };
        groups.push(vec![format!("_SYSTEMD_UNIT={unit}")]);
        groups.push(vec![format!("UNIT={unit}"), "_PID=1".to_owned()]);
        groups.push(vec![
            format!("OBJECT_SYSTEMD_UNIT={unit}"),
            "_UID=0".to_owned(),
        ]);
        groups.push(vec![
            format!("COREDUMP_UNIT={unit}"),
            "_UID=0".to_owned(),
            COREDUMP.to_owned(),
        ]);
    }
    if !groups.is_empty() && config.kernel == Some(true) {
        groups.push(vec!["_TRANSPORT=kernel".to_owned()]);
    }
    if groups.is_empty() {
        groups.push(Vec::new());
    }
    let groups = groups.into_iter().map(|mut group| {
        group.extend(config.matches.iter().cloned());
        group
    });
    let groups: Vec<Vec<String>> = groups.collect();
    groups.join(&"+".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(settings: &str, follows: bool, cursor: Option<&str>) -> String {
        let config: Config = serde_json::from_str(settings).expect(settings);
        let arguments = arguments(&config, follows, cursor);
        let texts = arguments.iter().map(|argument| argument.to_string_lossy());
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn settings_are_arguments() {
        for (settings, follows, cursor, expected) in [
            ("{}", true, None, "--merge --follow --no-tail"),
            (
                r#"{"since":"yesterday","priority":"err","boot":true}"#,
                false,
                None,
                "--since=yesterday --priority=err --boot",
            ),
            (
                r#"{"since":"yesterday","directory":"/j","namespace":"n"}"#,
                false,
                Some("s=1"),
                "--cursor=s=1 --directory=/j --namespace=n --merge",
            ),
            (
                r#"{"matches":["A=1","A=2","B=3"]}"#,
                false,
                None,
                "--merge A=1 A=2 B=3",
            ),
            (
                r#"{"units":["a","b.timer"],"kernel":true,"matches":["X=1"]}"#,
                false,
                None,
                "--merge _SYSTEMD_UNIT=a.service X=1 + UNIT=a.service _PID=1 X=1 + OBJECT_SYSTEMD_UNIT=a.service _UID=0 X=1 + COREDUMP_UNIT=a.service _UID=0 MESSAGE_ID=fc2e22bc6ee647b6b90729ab34a250b1 X=1 + _SYSTEMD_UNIT=b.timer X=1 + UNIT=b.timer _PID=1 X=1 + OBJECT_SYSTEMD_UNIT=b.timer _UID=0 X=1 + COREDUMP_UNIT=b.timer _UID=0 MESSAGE_ID=fc2e22bc6ee647b6b90729ab34a250b1 X=1 + _TRANSPORT=kernel X=1",
            ),
        ] {
            let expected = format!("--output=export --no-pager {expected}");
            assert_eq!(called(settings, follows, cursor), expected, "{settings}");
        }
    }
}

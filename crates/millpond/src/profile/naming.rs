//! Names for the addresses of a profile, which a process of its own gives: it reads files of hundreds of megabytes.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail};
use profiler::{Profile, pprof};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// This program, also where its file was replaced.
pub fn own_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The command that reads a profile and writes it with names.
pub fn symbolize() -> Command {
    let mut command = Command::new(own_program());
    command.args(["profile", "symbolize", "-", "-o", "-"]);
    command
}

/// A profile with names, which the command gives it. The process is killed if the future is dropped.
///
/// # Errors
/// The process cannot be started, fails, or writes no profile.
pub async fn named(mut command: Command, profile: &Profile) -> anyhow::Result<Profile> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start `millpond profile symbolize`")?;
    let bytes = pprof::write(profile);
    // It reads everything before it writes.
    let written = match child.stdin.take() {
        Some(mut input) => input.write_all(&bytes).await,
        None => Ok(()),
    };
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        bail!("`millpond profile symbolize` ended with {}", output.status);
    }
    written?;
    Ok(pprof::read(&output.stdout)?)
}

//! What a run does, given by environment variables and, for what they leave open, by the seed.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;

/// How files are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Rename,
    CopyTruncate,
    Mixed,
}

/// What a run does.
impl Mode {
    pub const ALL: [Self; 3] = [Self::Rename, Self::CopyTruncate, Self::Mixed];
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    pub kills: u32,
    /// How long the writer writes.
    pub duration: Duration,
    pub megabytes: u64,
    pub mode: Mode,
    /// The part of the kills that are a SIGTERM instead.
    pub stops: f64,
    /// What performs such a run.
    pub command: &'static str,
}

impl Settings {
    /// A short run of `command` with a seed of its own, which draws one of the modes, but for what the environment says.
    pub fn from_env(command: &'static str, kills: u32, modes: &[Mode]) -> Self {
        let seed = var("TORTURE_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
        Self {
            seed,
            kills: var("TORTURE_KILLS").unwrap_or(kills),
            duration: Duration::from_secs(var("TORTURE_SECONDS").unwrap_or(8)),
            megabytes: var("TORTURE_MEGABYTES").unwrap_or(40),
            mode: var("TORTURE_MODE").unwrap_or(modes[Rng::with_seed(seed).usize(..modes.len())]),
            stops: 0.0,
            command,
        }
    }

    /// Random numbers for one part of the run: the same for the same seed, whatever the other parts draw.
    pub fn rng(&self, part: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(31).wrapping_add(part))
    }
}

impl Display for Settings {
    /// The command that replays the run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            kills,
            megabytes,
            command,
            ..
        } = self;
        let (seconds, mode) = (self.duration.as_secs(), self.mode);
        write!(
            f,
            "SEED={seed} KILLS={kills} SECONDS={seconds} MEGABYTES={megabytes} MODE={mode} {command}"
        )
    }
}

impl Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rename => "rename",
            Self::CopyTruncate => "copytruncate",
            Self::Mixed => "mixed",
        })
    }
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Self::Rename, Self::CopyTruncate, Self::Mixed];
        all.into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or(())
    }
}

fn var<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name}={text} is none of the values of {name}"),
    }
}

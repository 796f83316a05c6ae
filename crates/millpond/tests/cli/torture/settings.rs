//! What a run does, given by environment variables and, for what they leave open, by the schedule and the seed.
//!
//! A schedule is a set of such settings that goes for one weakness; all of them are parts of one mechanism, and any may
//! be combined. A run is replayed by its settings alone.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;

/// The time that the settings of a schedule are for, in seconds; a longer run does more.
const SHORT_SECONDS: u64 = 6;

/// More than the bytes by which files are recognised.
const HEADER_BYTES: usize = 1_500;

/// Settings that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Rotations, and Millpond killed again and again.
    Plain,
    /// The writer writes while its log is copied and truncated.
    Live,
    /// Millpond stands still for a while, again and again.
    Stalls,
    /// Compressed logs that grow by members which end within lines.
    Members,
    /// Compressors that take their time.
    Slow,
    /// Logs that are written over while Millpond is down.
    Rewrites,
    /// Thousands of small files.
    Crowd,
}

/// How files are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Rename,
    /// While the writer pauses.
    CopyTruncate,
    /// One of those two, anew each time.
    Mixed,
    /// Copied and truncated while the writer writes.
    Live,
    /// One of those three, anew each time.
    Any,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    /// A member for each write.
    Gzip,
    /// A frame for each write.
    Zstd,
}

/// How long compressing takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressing {
    Quick,
    /// Long, with members that end within lines; the plain file is there until the end.
    Slow,
    /// The same, with the plain file out of sight from the beginning.
    Hidden,
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// How often Millpond is killed and started again.
    pub kills: u32,
    /// How often Millpond is killed, and the log written over before the next start.
    pub rewrites: u32,
    /// How often Millpond is stopped by SIGSTOP and goes on some time after.
    pub stalls: u32,
    /// How long the writer writes.
    pub duration: Duration,
    pub megabytes: u64,
    pub mode: Mode,
    /// The most time between the end of a copy and the truncation, where the writer writes.
    pub gap: Duration,
    pub packing: Packing,
    pub compressing: Compressing,
    /// Bytes that are the same at the beginning of every file.
    pub header_bytes: usize,
    /// Small files that are created beside the log.
    pub crowd: u32,
    /// The part of the kills that are a SIGTERM instead.
    pub stops: f64,
    /// What performs such a run.
    pub command: &'static str,
}

impl Schedule {
    pub const ALL: [Self; 7] = [
        Self::Plain,
        Self::Live,
        Self::Stalls,
        Self::Members,
        Self::Slow,
        Self::Rewrites,
        Self::Crowd,
    ];

    /// The settings of a short run of `command`.
    pub fn settings(self, seed: u64, command: &'static str) -> Settings {
        let mut rng = Rng::with_seed(seed);
        let mut settings = Settings {
            seed,
            kills: 2,
            rewrites: 0,
            stalls: 0,
            duration: Duration::from_secs(SHORT_SECONDS),
            megabytes: 10,
            mode: Mode::ALL[rng.usize(..3)],
            gap: Duration::from_secs(5),
            packing: Packing::Plain,
            compressing: Compressing::Quick,
            header_bytes: rng.usize(..2) * HEADER_BYTES,
            crowd: 0,
            stops: 0.0,
            command,
        };
        match self {
            Self::Plain => {
                (settings.kills, settings.megabytes) = (8, 40);
                settings.header_bytes = 0;
            }
            Self::Live => settings.mode = Mode::Live,
            Self::Stalls => settings.stalls = 4,
            Self::Members => {
                settings.mode = Mode::Rename;
                settings.packing = [Packing::Gzip, Packing::Zstd][rng.usize(..2)];
            }
            Self::Slow => {
                settings.compressing = Compressing::ALL[rng.usize(1..3)];
                settings.mode = Mode::Rename;
            }
            Self::Rewrites => settings.rewrites = 10,
            Self::Crowd => {
                (settings.crowd, settings.megabytes) = (4_000, 100);
                settings.kills = rng.u32(..2);
            }
        }
        settings
    }
}

impl Mode {
    pub const ALL: [Self; 5] = [
        Self::Rename,
        Self::CopyTruncate,
        Self::Mixed,
        Self::Live,
        Self::Any,
    ];

    /// One of the ways that logs are rotated.
    pub fn draw(self, rng: &mut Rng) -> Self {
        match self {
            Self::Mixed => Self::ALL[rng.usize(..2)],
            Self::Any => [Self::Rename, Self::CopyTruncate, Self::Live][rng.usize(..3)],
            one => one,
        }
    }
}

impl Compressing {
    pub const ALL: [Self; 3] = [Self::Quick, Self::Slow, Self::Hidden];
}

impl Packing {
    pub const ALL: [Self; 3] = [Self::Plain, Self::Gzip, Self::Zstd];
}

impl Settings {
    /// A run of `command` with a seed of its own, as the schedule has it, but for what the environment says.
    pub fn from_env(command: &'static str, schedule: Schedule) -> Self {
        Self::from_env_or(command, schedule, |_| ())
    }

    /// As above, with other settings where the environment says nothing.
    pub fn from_env_or(
        command: &'static str,
        schedule: Schedule,
        change: impl FnOnce(&mut Self),
    ) -> Self {
        let seed = var("TORTURE_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
        let base = var("TORTURE_SCHEDULE").unwrap_or(schedule);
        let mut base = base.settings(seed, command);
        change(&mut base);
        let seconds = var("TORTURE_SECONDS").unwrap_or(SHORT_SECONDS);
        // A longer run does more of everything.
        let more = |amount: u32| {
            let amount = u64::from(amount) * seconds / SHORT_SECONDS;
            u32::try_from(amount).expect("not as much as that")
        };
        let settings = Self {
            kills: var("TORTURE_KILLS").unwrap_or(more(base.kills)),
            rewrites: var("TORTURE_REWRITES").unwrap_or(more(base.rewrites)),
            stalls: var("TORTURE_STALLS").unwrap_or(more(base.stalls)),
            duration: Duration::from_secs(seconds),
            megabytes: var("TORTURE_MEGABYTES").unwrap_or(base.megabytes * seconds / SHORT_SECONDS),
            mode: var("TORTURE_MODE").unwrap_or(base.mode),
            gap: var("TORTURE_GAP").map_or(base.gap, Duration::from_secs_f64),
            packing: var("TORTURE_LOG").unwrap_or(base.packing),
            compressing: var("TORTURE_COMPRESSING").unwrap_or(base.compressing),
            header_bytes: var("TORTURE_HEADER").unwrap_or(base.header_bytes),
            crowd: var("TORTURE_CROWD").unwrap_or(base.crowd),
            ..base
        };
        assert!(
            settings.packing == Packing::Plain || !settings.is_live(),
            "a log that is compressed cannot be truncated while it is written"
        );
        settings
    }

    /// Whether the log may be truncated while the writer writes.
    pub fn is_live(&self) -> bool {
        matches!(self.mode, Mode::Live | Mode::Any)
    }

    /// Whether lines may be lost by nature.
    pub fn loses(&self) -> bool {
        self.is_live() || self.rewrites > 0
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
            rewrites,
            stalls,
            megabytes,
            mode,
            packing,
            compressing,
            header_bytes,
            crowd,
            command,
            ..
        } = self;
        let (seconds, gap) = (self.duration.as_secs(), self.gap.as_secs_f64());
        write!(
            f,
            "SEED={seed} SECONDS={seconds} MEGABYTES={megabytes} KILLS={kills} REWRITES={rewrites} STALLS={stalls} \
             MODE={mode} GAP={gap} LOG={packing} COMPRESSING={compressing} HEADER={header_bytes} CROWD={crowd} {command}"
        )
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Live => "live",
            Self::Stalls => "stalls",
            Self::Members => "members",
            Self::Slow => "slow",
            Self::Rewrites => "rewrites",
            Self::Crowd => "crowd",
        })
    }
}

impl Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rename => "rename",
            Self::CopyTruncate => "copytruncate",
            Self::Mixed => "mixed",
            Self::Live => "live",
            Self::Any => "any",
        })
    }
}

impl Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

impl Display for Compressing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quick => "quick",
            Self::Slow => "slow",
            Self::Hidden => "hidden",
        })
    }
}

/// The one of them that has this name.
fn named<T: Display + Copy>(all: &[T], name: &str) -> Result<T, ()> {
    let mut all = all.iter().copied();
    all.find(|one| one.to_string() == name).ok_or(())
}

impl FromStr for Schedule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        named(&Self::ALL, text)
    }
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        named(&Self::ALL, text)
    }
}

impl FromStr for Packing {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        named(&Self::ALL, text)
    }
}

impl FromStr for Compressing {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        named(&Self::ALL, text)
    }
}

fn var<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name}={text} is none of the values of {name}"),
    }
}

//! Dates, times of day, zones and spans of time, as logs and people write them.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`civil`] | the Gregorian calendar in whole numbers: days since 1970 to dates and back |
//! | [`rfc3339`] | points in time as text, for every event |
//! | [`zone`] | local times to points in time; offsets such as `+02:00` |
//! | [`span`] | lengths of time such as `1h30m` |
//!
//! Points in time are nanoseconds, or seconds, since 1970-01-01T00:00:00Z without leap seconds, as Unix counts. `jiff` knows the
//! rules of the zones; what is called for every event does without it.

pub mod civil;
pub mod rfc3339;
pub mod span;
pub mod zone;

pub use zone::Zone;

/// Nanoseconds of a second.
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Seconds of a day.
pub const DAY: i64 = 86_400;

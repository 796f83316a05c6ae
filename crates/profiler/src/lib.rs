//! Where processor time goes: profiles of a host or a fleet, by function, in core-hours, money and CO2.
//!
//! | module | holds |
//! | --- | --- |
//! | [`profile`] | the model: stacks with labels, and how much processor time each took |
//! | [`pprof`] | profiles as files that every pprof tool reads |
//! | [`collapsed`] | profiles as lines of text: `a;b;c 12` |
//! | [`perf_script`] | profiles from the text that `perf script` prints |
//! | [`firefox`] | profiles as files that the Firefox Profiler shows |
//! | [`otlp`] | profiles as OpenTelemetry sends them |
//! | [`breakdown`] | the costliest functions of each process, host or service |
//! | [`cost`] | core-hours, money and CO2 a year |
//! | [`diff`] | what has changed from one profile to another |
//! | [`flame`] | flame graphs and comparisons of two profiles, as pages and pictures |
//! | [`filter`] | which samples count |
//! | [`formats`] | files of any of these formats, read |
//! | [`sampling`] | samples what the processors of this machine do |
//! | [`store`] | a folder of profiles, of a host or a fleet |
//! | [`symbols`] | names for addresses |
//! | [`top`] | the costliest functions, or hosts, services, threads |
//! | [`advice`] | known kinds of costly functions, and what to look at |
//!
//! The crate knows no component and no pipeline; what labels mean is up to those who set them. The names of labels that the tools
//! know stand in [`profile::label`].

pub mod advice;
pub mod breakdown;
pub mod collapsed;
pub mod cost;
pub mod diff;
pub mod filter;
pub mod firefox;
pub mod flame;
pub mod formats;
pub mod otlp;
pub mod perf_script;
pub mod pprof;
mod process_status;
pub mod profile;
pub mod sampling;
pub mod store;
pub mod symbols;
pub mod top;
mod work;

pub use profile::Profile;
pub use work::Excess;

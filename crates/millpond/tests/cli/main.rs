//! The real executable, driven as a person would.

mod bad_input;
mod commands;
mod configuration;
mod faults;
mod main_job;
mod metrics;
mod program;
mod routing;
mod stopping;
mod torture;

//! The real executable, driven as a person would.

mod bad_input;
mod commands;
mod configuration;
mod faults;
mod files;
mod following;
mod main_job;
mod metrics;
mod program;
mod queue_tools;
mod reading_faults;
mod registry_faults;
mod routing;
mod running;
mod stopping;
mod torture;

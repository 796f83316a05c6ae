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
mod queue_disks;
mod queue_limits;
mod queue_outlet;
mod queue_place;
mod queue_restart;
mod queue_tools;
mod queue_torture;
mod reading_faults;
mod registry_faults;
mod routing;
mod running;
mod stopping;
mod torture;

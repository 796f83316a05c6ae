//! The real executable, driven as a person would.

#![allow(
    clippy::disallowed_methods,
    reason = "a channel of a test ends with it"
)]

mod acknowledged_outputs;
mod bad_input;
mod beats_input;
mod bench;
mod broken_outputs;
mod clickhouse_output;
mod codecs;
mod commands;
mod configuration;
mod dead_letters;
mod dead_letters_killed;
mod dead_letters_replay;
mod elasticsearch_input;
mod failures;
mod faults;
mod fed_pipelines;
mod files;
mod following;
mod formats;
mod forward_input;
mod http_crowd;
mod http_input;
mod http_output;
mod journald_input;
mod log;
mod loki_input;
mod loki_output;
mod loops;
mod main_job;
mod metrics;
mod names;
mod notation;
mod notation_table;
mod otlp_input;
mod otlp_output;
mod otlp_pair;
mod output_processors;
mod posting;
mod profile;
mod profile_input;
mod profile_service;
mod program;
mod queue_damage;
mod queue_disks;
mod queue_limits;
mod queue_outlet;
mod queue_place;
mod queue_restart;
mod queue_tools;
mod queue_torture;
mod reading_faults;
mod registry_faults;
mod resending;
mod routing;
mod running;
mod sample;
mod search_servers;
mod shipping;
mod silent_clients;
mod slips;
mod slow_clients;
mod socket_outputs;
mod sockets;
mod splunk_hec_input;
mod splunk_output;
mod stopping;
mod surroundings;
mod tls;
mod torn_archives;
mod torture;
mod unprivileged;

//! From a configuration to a running pipeline.
//!
//! ```text
//! input ──batch──▶ queue ──▶ workers: processors ──▶ lanes: outputs
//!   ▲                │                                  │
//!   └──── receipt ◀──┴────────── acknowledgement ◀──────┘
//! ```
//! | module | holds |
//! | --- | --- |
//! | [`registry`] | the components by name |
//! | [`graph`], `nodes` | the configuration tree read into components that are ready to run |
//! | `dry` | outputs that render and write nothing |
//! | [`settings`] | settings that belong to no component |
//! | `links`, `intake` | which pipelines feed which; where a pipeline takes what others hand over |
//! | [`stage`] | one processor with its condition, failure policy and counters |
//! | [`lane`] | one output: encoded batches in sequence, retry, acknowledgement |
//! | [`run`], `start`, `fleet`, `running` | threads, end and stop of a run, of all its pipelines and of one; `worker`: what the workers do; `account`: what receipts say of it; `queues`: opening what is on disk |
//! | [`reload`] | putting another configuration in the place of the one that runs |
//! | `reading` | fields that are read and that no event had |
//! | `replay` | dead letters that go on where they stopped |
//! | [`view`] | running pipelines as they are seen from outside; [`tap`]: events that pass a point of one |
//! | [`report`], [`usage`], [`verdict`] | what a run did, what the process used, and what limited it; [`windows`]: over the last minutes |

mod account;
mod at_end;
mod dry;
mod findings;
mod fleet;
pub mod graph;
mod intake;
pub mod lane;
mod links;
mod loops;
mod measured;
mod nodes;
mod own_runtime;
mod pool;
mod queues;
mod reading;
pub mod registry;
pub mod reload;
mod remarks;
mod replay;
pub mod report;
mod retry;
pub mod run;
mod running;
mod senders;
pub mod settings;
mod shortage;
pub mod spread;
mod stage;
mod start;
pub mod tap;
pub mod usage;
pub mod verdict;
pub mod view;
pub mod windows;
mod worker;

pub use graph::{BuildOptions, Graph, PipelineGraph};
pub use registry::Registry;
pub use reload::{Changes, ReloadError, Reloader};
pub use report::{OperatorReport, Report};
pub use run::{Handled, Run};
pub use start::{RunOptions, StartError};
pub use view::View;

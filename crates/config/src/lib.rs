//! The configuration tree behind both spellings of a pipeline, YAML and the one-line form.
//!
//! Both parsers give the same [`Node`] tree. Every node knows the text it came from, its place in that text and
//! its path in the tree, so that whoever reads a node (the deserializer here, a component's constructor elsewhere)
//! can raise a [`ConfigError`] that shows the line, points at the fault and names what would have been accepted.
//!
//! Invariants:
//! - The crate knows no component. What it must know to read the one-line form (which settings may be given by
//!   position, which names exist) comes from the caller's [`Catalogue`].
//! - Variables are expanded in the finished tree, in scalar values only, so that a value never adds structure.
//! - A plain scalar keeps its text and has no type of its own: what is asked for decides how it is read, so no digit
//!   is lost on the way.
//!
//! Limits: a tree is at most [`DEPTH_MAX`] deep and YAML aliases may add at most [`NODES_MAX`] nodes, which keeps
//! recursion and "billion laughs" files harmless. Nothing here reads files or writes to the terminal.

mod closest;
mod de;
mod emit;
mod error;
mod home;
mod node;
mod oneline;
mod path;
mod reader;
mod renamed;
mod render;
mod scalar;
mod source;
mod units;
mod variables;
mod yaml;
mod zone;

#[cfg(test)]
mod properties;

pub use closest::closest;
pub use de::{NUMBER_AS_WRITTEN, setting_names};
pub use emit::to_yaml;
pub use error::ConfigError;
pub use home::{HomeError, Paths, expand_home, paths};
pub use node::{Node, NodeKind};
pub use oneline::{Catalogue, Positional, Shape, StageRole, expand_short_forms, parse_oneline};
pub use reader::MapReader;
pub use source::{Source, Span};
pub use units::{Count, Period, Positive, Quantity, Size};
pub use variables::{Environment, Variables, expand_variables};
pub use yaml::parse_yaml;
pub use zone::no_zone;

/// How deep lists and maps may nest.
pub const DEPTH_MAX: usize = 100;

/// How many nodes one YAML document may have once its aliases are resolved.
pub const NODES_MAX: usize = 100_000;

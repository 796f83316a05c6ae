//! Grok: named regular expressions that take a line of text apart into fields.
//!
//! A [`Library`] holds named definitions, [`Pattern::compile`] turns one pattern into a matcher, and a
//! worker runs it with a [`Scratch`] of its own. The result is one [`Span`] for every [`Capture`]; what is
//! done with them (types, empty captures, names that occur twice) is the caller's affair.
//!
//! The engine is a specialised matcher with PCRE2 behind it. Invariants: both give the same spans for
//! every text; where the specialised matcher is not sure, it searches again without trying anything twice,
//! and where that is not enough it hands the text over; and no text takes more than a bounded number of steps
//! ([`Options::match_limit`]). Texts are valid UTF-8 and shorter than 4 GiB.

mod ast;
mod capture;
mod class;
mod error;
mod fast;
mod library;
mod options;
mod parse;
mod pattern;
mod pcre;

pub use capture::{Capture, CaptureType, Outcome, Span};
pub use error::{ErrorPosition, GrokError};
pub use library::{Library, PatternSet};
pub use options::Options;
pub use pattern::{Pattern, Scratch};

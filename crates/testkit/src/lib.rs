//! Placeholder until the crate holds something.

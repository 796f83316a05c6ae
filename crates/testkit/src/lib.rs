//! For tests only: what several crates need to test themselves.
//!
//! | module | holds |
//! | --- | --- |
//! | [`examples`] | a runner of the examples that processors document |
//! | [`mmdb`] | a writer of small MaxMind databases |

pub mod examples;
pub mod mmdb;

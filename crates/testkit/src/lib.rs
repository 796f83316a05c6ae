//! For tests only: what several crates need to test themselves.
//!
//! | module | holds |
//! | --- | --- |
//! | [`conformance`] | what every input and output must do |
//! | [`examples`] | checks of the examples that components document |
//! | [`mmdb`] | a writer of small MaxMind databases |
//! | [`rights`] | what tests need of the machine, and what becomes of them without it |
//! | [`sample`] | the repository's own sample database |

pub mod conformance;
pub mod examples;
pub mod mmdb;
pub mod rights;
pub mod sample;

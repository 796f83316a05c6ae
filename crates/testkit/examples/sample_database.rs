//! Writes the sample geoip database: `sample_database PATH`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        return ExitCode::from(2);
    };
    match std::fs::write(path, testkit::sample::sample_city_database()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

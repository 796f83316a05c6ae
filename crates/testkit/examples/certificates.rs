//! Writes an authority and certificates of it, for examples: `certificates FOLDER FILE=NAME …` writes `ca.pem`, and `FILE.pem` with
//! `FILE.key` for each host name.

use std::path::Path;
use std::process::ExitCode;

use testkit::authority::Authority;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        return ExitCode::from(2);
    };
    let authority = Authority::new();
    let mut files = vec!["ca.pem".to_owned()];
    for argument in arguments {
        let Some((file, name)) = argument.split_once('=') else {
            return ExitCode::from(2);
        };
        authority.issue(file, name);
        files.extend([format!("{file}.pem"), format!("{file}.key")]);
    }
    let copy = |file: &String| std::fs::copy(authority.path(file), Path::new(&folder).join(file));
    match files.iter().try_for_each(|file| copy(file).map(drop)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

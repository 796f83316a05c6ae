//! Millpond's own parts against libraries that do the same: see `../README.md`.
//!
//! `libraries registry [FILES]`, `libraries units`, `libraries agents FILE`. Each measurement of the registry is a process of its own.

mod agents;
mod process;
mod registry;
mod units;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["registry"] => registry::compare(500_000),
        ["registry", files] => registry::compare(files.parse().expect("a number of files")),
        ["measure", "registry", ref step @ ..] => registry::measure(step),
        ["units"] => units::compare(),
        ["agents", file] => agents::print(file),
        _ => {
            eprintln!("usage: libraries registry [FILES] | units | agents FILE");
            std::process::exit(2);
        }
    }
}

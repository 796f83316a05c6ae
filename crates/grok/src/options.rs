//! How patterns are compiled and run.

/// How patterns are compiled and run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether `%{NAME}` without a field takes nothing (the default) instead of capturing under `NAME`.
    pub named_captures_only: bool,
    /// How many steps a search may take, beside a number that grows with the text's length. PCRE2, which searches
    /// with back-references and whatever else the specialised matcher does not know, counts anew from every start
    /// in a text of up to 1 KiB, and never beyond its own limit of 10,000,000.
    pub match_limit: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            named_captures_only: true,
            match_limit: 200_000,
        }
    }
}

//! Names of severities, and their numbers in OpenTelemetry.
//!
//! Source: <https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber>, and the mappings of other formats in its appendix.

/// The number of a severity, from 1 to 24; 0 for a text that is none. Case does not matter.
pub fn number(text: &[u8]) -> u8 {
    let mut name = [0; 16];
    let Some(name) = name.get_mut(..text.len()) else {
        return 0;
    };
    name.copy_from_slice(text);
    name.make_ascii_lowercase();
    match &*name {
        b"trace" | b"finest" => 1,
        b"trace2" => 2,
        b"trace3" => 3,
        b"trace4" => 4,
        b"debug" | b"dbg" | b"d" | b"fine" | b"verbose" => 5,
        b"debug2" => 6,
        b"debug3" => 7,
        b"debug4" => 8,
        b"info" | b"i" | b"information" | b"informational" => 9,
        b"info2" | b"notice" => 10,
        b"info3" => 11,
        b"info4" => 12,
        b"warn" | b"w" | b"warning" => 13,
        b"warn2" => 14,
        b"warn3" => 15,
        b"warn4" => 16,
        b"error" | b"e" | b"err" | b"severe" => 17,
        b"error2" | b"critical" | b"crit" => 18,
        b"error3" | b"alert" => 19,
        b"error4" => 20,
        b"fatal" | b"f" | b"emergency" | b"emerg" | b"panic" => 21,
        b"fatal2" => 22,
        b"fatal3" => 23,
        b"fatal4" => 24,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn names_have_numbers() {
        for (name, expected) in [
            ("INFO", 9),
            ("Warning", 13),
            ("err", 17),
            ("crit", 18),
            ("FATAL4", 24),
            ("trace", 1),
            ("", 0),
            ("a text that is long", 0),
            ("200", 0),
        ] {
            assert_eq!(number(name.as_bytes()), expected, "{name}");
        }
    }
}

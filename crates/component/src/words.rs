//! Numbers in messages and tables.

/// A number with its thousands separated: `12,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun: `1 file`, `12,345 files`.
pub fn plural(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{} {noun}es", grouped(count)),
        _ => format!("{} {noun}s", grouped(count)),
    }
}

/// [`plural`], and the verb: `1 file was`, `12,345 files were`.
pub fn plural_were(count: u64, noun: &str) -> String {
    let were = if count == 1 { "was" } else { "were" };
    format!("{} {were}", plural(count, noun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_agree_with_their_nouns() {
        for (count, noun, expected) in [
            (0, "file", "0 files were"),
            (1, "file", "1 file was"),
            (2, "batch", "2 batches were"),
            (1, "batch", "1 batch was"),
            (999, "dead letter", "999 dead letters were"),
            (12_345, "event", "12,345 events were"),
            (1_000_000, "event", "1,000,000 events were"),
        ] {
            assert_eq!(plural_were(count, noun), expected);
        }
    }
}

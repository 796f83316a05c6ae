//! Words and numbers in messages and tables.

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

/// A message without `(os error 2)`, which the standard library adds to the text of an error: the text says the same.
pub fn without_error_numbers(text: &str) -> String {
    const START: &str = " (os error ";
    let mut parts = text.split(START);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[digits..].strip_prefix(')') {
            Some(rest) if digits > 0 => out.push_str(rest),
            _ => out.extend([START, part]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_no_error_numbers() {
        for (text, expected) in [
            ("x: No such file (os error 2)", "x: No such file"),
            ("a (os error 2): b (os error 13); c", "a: b; c"),
            (
                "a file (os error x) (os error )",
                "a file (os error x) (os error )",
            ),
            ("none", "none"),
        ] {
            assert_eq!(without_error_numbers(text), expected);
        }
    }

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

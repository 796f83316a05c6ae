//! Finding `key=value` pairs in a text.

/// Byte classes.
const FIELD: u8 = 1;
const VALUE: u8 = 2;

/// A pair: where its key and its value stand in the text. Quotes and brackets around the value are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub key: (usize, usize),
    pub value: (usize, usize),
}

/// What may stand around a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quotes {
    /// `(…)`, `[…]` and `<…>`, beside both kinds of quotes.
    pub brackets: bool,
}

impl Quotes {
    /// Where the closing quote or bracket stands of the one at `pos`, if a pair ends after it.
    #[inline]
    pub fn end_of_quoted(
        self,
        text: &[u8],
        pos: usize,
        ends: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let closing = match text.get(pos)? {
            b'"' => b'"',
            b'\'' => b'\'',
            b'(' if self.brackets => b')',
            b'[' if self.brackets => b']',
            b'<' if self.brackets => b'>',
            _ => return None,
        };
        let mut at = pos + 1;
        loop {
            at += memchr::memchr2(closing, b'\\', text.get(at..)?)?;
            if text[at] == closing {
                return ends(at + 1).then_some(at);
            }
            at += 2;
        }
    }
}

/// How a text is split.
#[derive(Debug, Clone)]
pub(super) struct Splitter {
    classes: [u8; 256],
    quotes: Quotes,
    lenient: bool,
}

impl Splitter {
    /// Splits pairs at any byte of `field_split`, keys from values at any byte of `value_split`; both are ASCII.
    pub fn new(field_split: &str, value_split: &str, brackets: bool, lenient: bool) -> Self {
        let mut classes = [0; 256];
        for (text, class) in [(field_split, FIELD), (value_split, VALUE)] {
            text.bytes()
                .for_each(|byte| classes[usize::from(byte)] |= class);
        }
        Self {
            classes,
            quotes: Quotes { brackets },
            lenient,
        }
    }

    /// The first pair at or after `pos`, and where to go on.
    #[inline]
    pub fn next(&self, text: &[u8], mut pos: usize) -> Option<(Pair, usize)> {
        loop {
            while pos < text.len() && self.is(text[pos], FIELD | VALUE) {
                pos += 1;
            }
            let start = pos;
            pos = self.until(text, pos, FIELD | VALUE);
            let mut end = pos;
            if self.lenient {
                while pos < text.len() && text[pos] == b' ' && !self.is(text[pos], VALUE) {
                    pos += 1;
                }
                while end > start && text[end - 1] == b' ' {
                    end -= 1;
                }
            }
            if pos >= text.len() {
                return None;
            }
            if self.is(text[pos], VALUE) {
                let (value, next) = self.value(text, pos + 1, end < pos);
                return Some((
                    Pair {
                        key: (start, end),
                        value,
                    },
                    next,
                ));
            }
        }
    }

    #[inline]
    fn is(&self, byte: u8, class: u8) -> bool {
        self.classes[usize::from(byte)] & class != 0
    }

    /// The first byte of a class at or after `pos`; a byte after a backslash is of no class.
    #[inline]
    fn until(&self, text: &[u8], mut pos: usize, class: u8) -> usize {
        while pos < text.len() && !self.is(text[pos], class) {
            pos += if text[pos] == b'\\' { 2 } else { 1 };
        }
        pos.min(text.len())
    }

    /// The value that begins at `pos`, after its splitter, and where to go on. `spaced` says that there were spaces
    /// before the splitter.
    #[inline]
    fn value(&self, text: &[u8], mut pos: usize, spaced: bool) -> ((usize, usize), usize) {
        if self.lenient && text.get(pos) == Some(&b' ') {
            let mut after = pos;
            while text.get(after) == Some(&b' ') {
                after += 1;
            }
            if !spaced && self.begins_pair(text, after) {
                return ((pos, pos), pos);
            }
            pos = after;
        }
        let ends = |after: usize| text.get(after).is_none_or(|next| self.is(*next, FIELD));
        if let Some(end) = self.quotes.end_of_quoted(text, pos, ends) {
            return ((pos + 1, end), end + 1);
        }
        let end = self.until(text, pos, FIELD);
        ((pos, end), end)
    }

    /// Whether the next word is a pair of its own, so that `a= b=1` has no value for `a`: kernel logs are full of it.
    fn begins_pair(&self, text: &[u8], pos: usize) -> bool {
        let end = self.until(text, pos, FIELD | VALUE);
        self.is(b' ', FIELD) && end > pos && text.get(end).is_some_and(|byte| self.is(*byte, VALUE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(splitter: &Splitter, text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut pos = 0;
        while let Some((pair, next)) = splitter.next(text.as_bytes(), pos) {
            assert!(next > pos, "it moves on");
            pos = next;
            found.push((
                text[pair.key.0..pair.key.1].to_owned(),
                text[pair.value.0..pair.value.1].to_owned(),
            ));
        }
        found
    }

    #[test]
    fn pairs_are_found() {
        let lenient = Splitter::new(" ", "=", true, true);
        let strict = Splitter::new(" ", "=", true, false);
        let query = Splitter::new("&?", "=", true, true);
        let colon = Splitter::new(",", ":=", false, true);
        for (splitter, text, expected) in [
            (&lenient, "a=1 b=2", "a:1|b:2"),
            (&lenient, "  a=1   b=2  ", "a:1|b:2"),
            (&lenient, "nothing here", ""),
            (&lenient, "", ""),
            (&lenient, "word a=1 word", "a:1"),
            (&lenient, "a = 1 b =2 c= 3", "a:1|b:2|c:3"),
            (&lenient, "a= b=1", "a:|b:1"),
            (&lenient, "a = b=1", "a:b=1"),
            (&lenient, "IN=eth0 OUT= MAC=00:1b", "IN:eth0|OUT:|MAC:00:1b"),
            (&strict, "a= b=1", "a:|b:1"),
            (&strict, "a = 1", ""),
            (&lenient, "a=", "a:"),
            (&lenient, "=1 b=2", "b:2"),
            (&lenient, "a==1", "a:=1"),
            (&lenient, r#"a="x y" b='z w' c="#, "a:x y|b:z w|c:"),
            (&lenient, r#"a="x \" y" b=1"#, r#"a:x \" y|b:1"#),
            (&lenient, r#"a="open b=1"#, r#"a:"open|b:1"#),
            (&lenient, r#"a="x"y b=1"#, r#"a:"x"y|b:1"#),
            (
                &lenient,
                "a=(x y) b=[z w] c=<v u> d={t}",
                "a:x y|b:z w|c:v u|d:{t}",
            ),
            (&lenient, r"a=x\ y b=1", r"a:x\ y|b:1"),
            (&lenient, r"a=\", r"a:\"),
            (&query, "/p?x=1&y=a b&z", "x:1|y:a b"),
            (&query, "a =1& b=2", "a:1| b:2"),
            (&colon, "a:1,b=(2,3)", "a:1|b:(2"),
            (&lenient, "é=ü ü=é", "é:ü|ü:é"),
        ] {
            let found: Vec<String> = pairs(splitter, text)
                .iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect();
            assert_eq!(found.join("|"), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_ends_on_any_text(text in "[ab=\" '\\\\(\\[<>\\])é]{0,40}") {
            for lenient in [true, false] {
                pairs(&Splitter::new(" ", "=", true, lenient), &text);
            }
        }

        #[test]
        fn written_pairs_come_back(pairs_in in prop::collection::vec(("[a-z.é]{1,6}", "[a-z =é,]{1,8}"), 0..8)) {
            let text: Vec<String> = pairs_in.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
            prop_assert_eq!(pairs(&Splitter::new(" ", "=", true, true), &text.join(" ")), pairs_in);
        }
    }
}

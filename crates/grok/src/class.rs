//! Sets of code points: what `[...]`, `.`, `\d` and the like mean.
//!
//! While a class is parsed it is a [`SetExpr`]; it is then frozen into a [`Class`], which answers the
//! two questions that the engines ask: which ASCII bytes belong to it, and does every, no, or only some
//! code point beyond ASCII belong to it. In the third case the specialised matcher gives a text with such
//! a code point to PCRE2, which knows Unicode.

/// Highest code point.
const MAX: u32 = 0x10_FFFF;

/// A named set such as `[:alpha:]` or `\p{Lu}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Property {
    /// How PCRE2 writes it inside of a class.
    pub text: String,
    /// Its ASCII members; `None` when this module does not know the property.
    pub ascii: Option<u128>,
}

/// A class as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SetExpr {
    /// Ranges (both ends included) and properties.
    Items(Vec<(u32, u32)>, Vec<Property>),
    /// Everything else.
    Not(Box<SetExpr>),
    /// Members of both (`&&`).
    And(Box<SetExpr>, Box<SetExpr>),
    /// Members of any.
    Or(Vec<SetExpr>),
}

/// What a class says about code points beyond ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {
    /// None belongs to it.
    None,
    /// All belong to it.
    All,
    /// Some do; only PCRE2 knows which.
    Unknown,
}

/// A class, ready for both engines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Class {
    /// One bit for every ASCII member; `None` when unknown.
    pub ascii: Option<u128>,
    /// Its members beyond ASCII.
    pub wide: Wide,
    /// How PCRE2 writes it: a single, repeatable item.
    pub text: String,
}

/// The bit of an ASCII byte.
pub(crate) fn bit(byte: u8) -> u128 {
    1 << (byte & 127)
}

/// The bits of all ASCII bytes that `test` accepts.
pub(crate) fn bits(test: impl Fn(u8) -> bool) -> u128 {
    (0..128).filter(|&b| test(b)).fold(0, |set, b| set | bit(b))
}

impl SetExpr {
    /// A set of ranges.
    pub fn ranges(ranges: &[(char, char)]) -> SetExpr {
        SetExpr::Items(
            ranges.iter().map(|&(a, b)| (a as u32, b as u32)).collect(),
            Vec::new(),
        )
    }

    /// The complement.
    pub fn negate(self) -> SetExpr {
        match self {
            SetExpr::Not(inner) => *inner,
            other => SetExpr::Not(Box::new(other)),
        }
    }

    /// Adds a member set, keeping plain items in one list so that PCRE2 gets one plain class.
    pub fn union(self, other: SetExpr) -> SetExpr {
        match (self, other) {
            (SetExpr::Items(mut ranges, mut props), SetExpr::Items(more, more_props)) => {
                ranges.extend(more);
                props.extend(more_props);
                SetExpr::Items(ranges, props)
            }
            (SetExpr::Or(mut all), other) => {
                all.push(other);
                SetExpr::Or(all)
            }
            (one, other) => SetExpr::Or(vec![one, other]),
        }
    }

    /// Adds the other case of every letter.
    pub fn fold_case(self) -> SetExpr {
        match self {
            SetExpr::Items(ranges, props) => {
                let mut folded = ranges.clone();
                for &(first, last) in &ranges {
                    // A range that covers a large part of Unicode has its partners in it already.
                    for code in first..=last.min(first.saturating_add(2048)) {
                        folded.extend(other_cases(code).map(|c| (c, c)));
                    }
                }
                SetExpr::Items(folded, props)
            }
            SetExpr::Not(inner) => SetExpr::Not(Box::new(inner.fold_case())),
            SetExpr::And(a, b) => SetExpr::And(Box::new(a.fold_case()), Box::new(b.fold_case())),
            SetExpr::Or(all) => SetExpr::Or(all.into_iter().map(SetExpr::fold_case).collect()),
        }
    }

    /// Freezes the set.
    pub fn freeze(self) -> Class {
        let simple = self.simplify();
        Class {
            ascii: simple.ascii(),
            wide: simple.wide(),
            text: simple.text(),
        }
    }

    /// Sorts and joins ranges; works complements out where no property is in the way.
    fn simplify(self) -> SetExpr {
        match self {
            SetExpr::Items(ranges, props) => SetExpr::Items(join(ranges), props),
            SetExpr::Not(inner) => match inner.simplify() {
                SetExpr::Items(ranges, props) if props.is_empty() => {
                    SetExpr::Items(complement(&ranges), props)
                }
                other => other.negate(),
            },
            SetExpr::And(a, b) => match (a.simplify(), b.simplify()) {
                (SetExpr::Items(a, pa), SetExpr::Items(b, pb))
                    if pa.is_empty() && pb.is_empty() =>
                {
                    let mut outside = complement(&a);
                    outside.extend(complement(&b));
                    SetExpr::Items(complement(&join(outside)), pa)
                }
                (a, b) => SetExpr::And(Box::new(a), Box::new(b)),
            },
            SetExpr::Or(all) => {
                let (mut plain, mut rest) = (SetExpr::Items(Vec::new(), Vec::new()), Vec::new());
                for set in all {
                    match set.simplify() {
                        items @ SetExpr::Items(..) => plain = plain.union(items),
                        other => rest.push(other),
                    }
                }
                let plain = plain.simplify();
                if rest.is_empty() {
                    return plain;
                }
                rest.push(plain);
                SetExpr::Or(rest)
            }
        }
    }

    fn ascii(&self) -> Option<u128> {
        match self {
            SetExpr::Items(ranges, props) => {
                let own = bits(|b| ranges.iter().any(|&(a, z)| (a..=z).contains(&u32::from(b))));
                props
                    .iter()
                    .try_fold(own, |set, property| Some(set | property.ascii?))
            }
            SetExpr::Not(inner) => Some(!inner.ascii()?),
            SetExpr::And(a, b) => Some(a.ascii()? & b.ascii()?),
            SetExpr::Or(all) => all.iter().try_fold(0, |set, one| Some(set | one.ascii()?)),
        }
    }

    fn wide(&self) -> Wide {
        match self {
            SetExpr::Items(ranges, props) => {
                if ranges.iter().any(|&(a, z)| a <= 0x80 && z == MAX) {
                    Wide::All
                } else if props.is_empty() && ranges.iter().all(|&(_, z)| z < 0x80) {
                    Wide::None
                } else {
                    Wide::Unknown
                }
            }
            SetExpr::Not(inner) => match inner.wide() {
                Wide::None => Wide::All,
                Wide::All => Wide::None,
                Wide::Unknown => Wide::Unknown,
            },
            SetExpr::And(..) | SetExpr::Or(..) => Wide::Unknown,
        }
    }

    /// `\d` and `\s` are ASCII for PCRE2 too (see `pcre`) and far smaller than a class.
    fn short_text(&self) -> Option<&'static str> {
        let SetExpr::Items(ranges, props) = self else {
            return None;
        };
        let outside = complement(ranges);
        let (digits, space) = ([(0x30, 0x39)], [(0x09, 0x0d), (0x20, 0x20)]);
        match ranges.as_slice() {
            _ if !props.is_empty() => None,
            r if r == digits => Some("\\d"),
            r if r == space => Some("\\s"),
            _ if outside == digits => Some("\\D"),
            _ if outside == space => Some("\\S"),
            _ => None,
        }
    }

    fn text(&self) -> String {
        if let Some(short) = self.short_text() {
            return short.to_owned();
        }
        match self {
            SetExpr::Items(ranges, props) if ranges.is_empty() && props.is_empty() => {
                "(?!)".to_owned()
            }
            SetExpr::Items(ranges, props)
                if props.is_empty() && ranges.last().is_some_and(|r| r.1 == MAX) =>
            {
                // A complement is what the author wrote and what PCRE2 runs fastest.
                match complement(ranges).as_slice() {
                    [] => "[\\x{0}-\\x{10ffff}]".to_owned(),
                    outside => format!("[^{}]", items_text(outside, &[])),
                }
            }
            SetExpr::Items(ranges, props) => format!("[{}]", items_text(ranges, props)),
            SetExpr::Not(inner) => match inner.as_ref() {
                SetExpr::Items(ranges, props) => format!("[^{}]", items_text(ranges, props)),
                other => format!("(?:(?!{})[\\x{{0}}-\\x{{10ffff}}])", other.text()),
            },
            SetExpr::And(a, b) => format!("(?:(?={}){})", a.text(), b.text()),
            SetExpr::Or(all) => {
                let parts: Vec<String> = all.iter().map(SetExpr::text).collect();
                format!("(?:{})", parts.join("|"))
            }
        }
    }
}

fn items_text(ranges: &[(u32, u32)], props: &[Property]) -> String {
    let mut text = String::new();
    for &(first, last) in ranges {
        text += &format!("\\x{{{first:x}}}");
        if last > first {
            text += &format!("-\\x{{{last:x}}}");
        }
    }
    props.iter().for_each(|property| text += &property.text);
    text
}

fn join(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(previous) if first <= previous.1.saturating_add(1) => {
                previous.1 = previous.1.max(last);
            }
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn complement(sorted: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let (mut outside, mut next) = (Vec::new(), 0);
    for &(first, last) in sorted {
        if first > next {
            outside.push((next, first - 1));
        }
        next = last + 1;
    }
    if next <= MAX {
        outside.push((next, MAX));
    }
    outside
}

/// The single code points that differ from `code` in case only.
pub(crate) fn other_cases(code: u32) -> impl Iterator<Item = u32> {
    let found = char::from_u32(code).map(|c| {
        let single = |mut all: Box<dyn Iterator<Item = char>>| {
            let first = all.next();
            if all.next().is_none() { first } else { None }
        };
        [
            single(Box::new(c.to_lowercase())),
            single(Box::new(c.to_uppercase())),
        ]
    });
    let all = found.unwrap_or([None, None]);
    all.into_iter()
        .flatten()
        .map(|c| c as u32)
        .filter(move |&c| c != code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complements_and_intersections_are_worked_out() {
        let digits = SetExpr::ranges(&[('0', '9')]);
        let not_space = SetExpr::ranges(&[(' ', ' ')]).negate();
        let class = SetExpr::And(Box::new(digits.clone().negate()), Box::new(not_space)).freeze();
        assert_eq!(
            class.ascii,
            Some(bits(|b| b != b' ' && !b.is_ascii_digit()))
        );
        assert_eq!(class.wide, Wide::All);
        assert_eq!(class.text, "[^\\x{20}\\x{30}-\\x{39}]");
        assert_eq!(digits.freeze().wide, Wide::None);
    }

    #[test]
    fn properties_leave_unicode_to_pcre2() {
        let alpha = Property {
            text: "[:alpha:]".into(),
            ascii: Some(bits(|b| b.is_ascii_alphabetic())),
        };
        let set = SetExpr::Items(vec![(0x5f, 0x5f)], vec![alpha]);
        let class = set.clone().negate().freeze();
        assert_eq!(class.text, "[^\\x{5f}[:alpha:]]");
        assert_eq!(
            (class.wide, set.freeze().wide),
            (Wide::Unknown, Wide::Unknown)
        );
    }

    #[test]
    fn case_folding_adds_partners() {
        let class = SetExpr::ranges(&[('a', 'c'), ('ä', 'ä')])
            .fold_case()
            .freeze();
        assert_eq!(class.text, "[\\x{41}-\\x{43}\\x{61}-\\x{63}\\x{c4}\\x{e4}]");
    }
}

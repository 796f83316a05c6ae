//! `filter_path`: which parts of a reply a client wants.
//!
//! Paths are separated by commas, their keys by dots; `*` stands for any part of a key, `**` for any keys, and `-` before a
//! path leaves it out. <https://www.elastic.co/docs/reference/elasticsearch/rest-apis/common-options#common-options-response-filtering>

/// Which parts of a reply are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    with: Vec<Vec<Box<str>>>,
    without: Vec<Vec<Box<str>>>,
}

impl Filter {
    /// The filter of a parameter.
    pub(super) fn parse(text: &str) -> Self {
        let mut filter = Self::default();
        for path in text
            .split(',')
            .map(str::trim)
            .filter(|path| !path.is_empty())
        {
            let (list, path) = match path.strip_prefix('-') {
                Some(path) => (&mut filter.without, path),
                None => (&mut filter.with, path),
            };
            let mut keys: Vec<_> = path.split('.').map(simplified).collect();
            keys.dedup_by(|key, before| &**key == "**" && key == before);
            list.push(keys);
        }
        filter
    }

    /// Whether the value at this path is wanted.
    pub(super) fn wants(&self, path: &[&str]) -> bool {
        let covers = |filter: &Vec<Box<str>>| covers(filter, path);
        (self.with.is_empty() || self.with.iter().any(covers)) && !self.without.iter().any(covers)
    }
}

/// A key whose stars stand alone, so that trying them all is soon over.
fn simplified(key: &str) -> Box<str> {
    let mut simple = key.to_owned();
    while key != "**" && simple.contains("**") {
        simple = simple.replace("**", "*");
    }
    simple.into()
}

/// Whether a filter says something of the value at a path, or of one that holds it.
fn covers(filter: &[Box<str>], path: &[&str]) -> bool {
    match (filter, path) {
        ([], _) => true,
        ([any, rest @ ..], _) if &**any == "**" => {
            covers(rest, path)
                || path
                    .split_first()
                    .is_some_and(|(_, path)| covers(filter, path))
        }
        (_, []) => false,
        ([key, rest @ ..], [first, path @ ..]) => is_like(key, first) && covers(rest, path),
    }
}

/// Whether a key has the form of a pattern, in which `*` stands for anything.
fn is_like(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((start, rest)) => key.strip_prefix(start).is_some_and(|key| {
            let mut ends = (0..=key.len()).filter(|end| key.is_char_boundary(*end));
            ends.any(|end| is_like(rest, &key[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_wanted_as_elasticsearch_has_it() {
        for (filter, path, wanted) in [
            ("", "took", true),
            ("errors", "errors", true),
            ("errors", "took", false),
            ("errors, items.*.status", "items.create.status", true),
            (
                "errors,items.*.error,items.*.status",
                "items.index.error.type",
                true,
            ),
            (
                "errors,items.*.error,items.*.status",
                "items.index._id",
                false,
            ),
            ("items.create", "items.create._id", true),
            ("items.create", "items.index._id", false),
            ("items.*.error.type", "items.index.error.reason", false),
            ("**.status", "items.create.status", true),
            ("i*s.**.r*n", "items.create.error.reason", true),
            ("*o*", "took", true),
            ("*o*", "items", false),
            ("-took", "took", false),
            ("-took", "errors", true),
            ("items,-items.*._id", "items.index._id", false),
            ("items,-items.*._id", "items.index.status", true),
        ] {
            let path: Vec<&str> = path.split('.').collect();
            assert_eq!(
                Filter::parse(filter).wants(&path),
                wanted,
                "{filter}: {path:?}"
            );
        }
        // Filters that would take for ever if every star were tried.
        let path = ["items", "create", "error", "type"];
        let deep = |end: &str| Filter::parse(&("**.".repeat(5000) + end)).wants(&path);
        let wide = |end: &str| Filter::parse(&("*".repeat(10_000) + end)).wants(&path);
        assert_eq!((deep("type"), deep("x")), (true, false));
        assert_eq!((wide("s"), wide("x")), (true, false));
    }
}

//! Settings that stand as words among the values of a stage, as in `top id limit 5`.
//!
//! They would be taken as fields, which no event has, and the stage would do something else without saying so.

use batch::FieldPath;
use config::{ConfigError, Node};

/// What a list of the configuration holds, as it is written.
fn texts<'n>(node: &'n Node, list: &str) -> Vec<&'n str> {
    let items = node.get(list).map_or(&[][..], Node::items);
    items.iter().filter_map(Node::as_str).collect()
}

/// Refuses `within 10m` in the place of fields. `is_setting` says whether a name and a value are a setting. Those of `named` take
/// a name, so that they are refused only behind a field and where nothing but blanks is around them: `a, target, b` are fields.
pub(crate) fn refuse_words(
    node: &Node,
    is_setting: impl Fn(&str, &str) -> bool,
    named: &[&str],
) -> Result<(), ConfigError> {
    refuse_words_in(node, "fields", is_setting, named)
}

/// The same for a stage whose list of fields is called `list`.
pub(crate) fn refuse_words_in(
    node: &Node,
    list: &str,
    is_setting: impl Fn(&str, &str) -> bool,
    named: &[&str],
) -> Result<(), ConfigError> {
    let fields = texts(node, list);
    let is_meant = |index: usize| {
        let (name, value) = (fields[index], fields[index + 1]);
        is_setting(name, value)
            || index > 0 && named.contains(&name) && are_words(node, list, index - 1..=index + 1)
    };
    let Some(index) = (0..fields.len().saturating_sub(1)).find(|index| is_meant(*index)) else {
        return Ok(());
    };
    let (name, value) = (fields[index], fields[index + 1]);
    let value = match value.contains(' ') {
        true => format!("\"{value}\""),
        false => value.to_owned(),
    };
    let error = as_field(node, list, index, name, "setting").note(format!("write {name}={value}"));
    Err(in_backticks(error, name))
}

/// The error that the field `index` of a list is the name of something else.
pub(crate) fn as_field(
    node: &Node,
    list: &str,
    index: usize,
    name: &str,
    what: &str,
) -> ConfigError {
    let place = node.nearest(&format!("{list}[{index}]"));
    place.error(format!("`{name}` is a {what}, and stands here as a field"))
}

/// Says how a field with the name of something else is written.
pub(crate) fn in_backticks(error: ConfigError, name: &str) -> ConfigError {
    error.note(format!(
        "a field of that name is written `{name}`, in backticks"
    ))
}

/// Whether only blanks stand between these items of a list.
fn are_words(node: &Node, list: &str, range: std::ops::RangeInclusive<usize>) -> bool {
    let items = node.get(list).map_or(&[][..], Node::items);
    let items = items.get(range).unwrap_or_default();
    items.windows(2).all(|pair| {
        let text = &pair[0].source().text;
        let between = text.get(pair[0].span.end..pair[1].span.start);
        between.is_some_and(|between| !between.is_empty() && between.trim_matches(' ').is_empty())
    })
}

/// Whether a word is not meant as a field: a text such as `_`, or an expression.
pub(crate) fn is_no_field(text: &str) -> bool {
    let has_name = text.contains(|c: char| c.is_alphanumeric() || c == '`');
    !has_name || FieldPath::parse_listed(text).is_err()
}

/// Refuses `by a, b` and `every 1m` among the functions of a stage; `is_setting` is as for [`refuse_words`].
pub(crate) fn refuse_words_of_functions(
    node: &Node,
    is_setting: impl Fn(&str, &str) -> bool,
) -> Result<(), ConfigError> {
    let functions = texts(node, "functions");
    let is_meant = |pair: &[&str]| pair[0] == "by" || is_setting(pair[0], pair[1]);
    let Some(index) = functions.windows(2).position(is_meant) else {
        return Ok(());
    };
    let name = functions[index];
    let values = &functions[index + 1..];
    let place = node.nearest(&format!("functions[{index}]"));
    let error = place.error(format!(
        "`{name}` is a setting, and stands here as a function"
    ));
    Err(match name {
        "by" => {
            let end = values.windows(2).position(is_meant);
            let fields = values[..end.unwrap_or(values.len())].join(", ");
            error.note(format!("write by=[{fields}]"))
        }
        _ => error.note(format!("write {name}={}", values[0])),
    })
}

#[cfg(test)]
mod tests {
    use component::Spec;

    use crate::testing::{build, build_yaml};

    /// The error that a stage causes, with its notes.
    fn error_of(spec: &'static Spec, stage: &str) -> String {
        match build(spec, stage) {
            Ok(_) => panic!("{stage} is accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn settings_in_the_place_of_fields_are_refused() {
        let table: [(&'static Spec, &str, &str); 21] = [
            (&crate::top::SPEC, "top id limit 1", "write limit=1"),
            (&crate::top::SPEC, "top id every 1m", "write every=1m"),
            (
                &crate::reduce::SPEC,
                "reduce id timeout 5s",
                "write timeout=5s",
            ),
            (
                &crate::reduce::SPEC,
                "reduce id collect message",
                "write collect=message",
            ),
            (
                &crate::reduce::SPEC,
                "reduce id end 'a == 1'",
                "write end=\"a == 1\"",
            ),
            (
                &crate::sort::SPEC,
                "sort a desc max_bytes 1MiB",
                "write max_bytes=1MiB",
            ),
            (
                &crate::fingerprint::SPEC,
                "fingerprint a target x",
                "write target=x",
            ),
            (
                &crate::fingerprint::SPEC,
                "fingerprint a, method, md5",
                "write method=md5",
            ),
            (&crate::truncate::SPEC, "truncate a max 10", "write max=10"),
            (
                &crate::truncate::SPEC,
                "truncate a suffix … max=10",
                "write suffix=…",
            ),
            (&crate::flatten::SPEC, "flatten a depth 2", "write depth=2"),
            (
                &crate::flatten::SPEC,
                "flatten a separator _",
                "write separator=_",
            ),
            (
                &crate::nest::SPEC,
                "nest a separator _",
                "write separator=_",
            ),
            (
                &crate::redact::SPEC,
                "redact action hash",
                "write action=hash",
            ),
            (
                &crate::redact::SPEC,
                "redact presets card",
                "write presets=card",
            ),
            (&crate::redact::SPEC, "redact card", "write presets=card"),
            (
                &crate::redact::SPEC,
                "redact card, a, email",
                "write presets=[card, email]",
            ),
            (
                &crate::redact::SPEC,
                "redact a api_key",
                "write presets=api_key",
            ),
            (&crate::redact::SPEC, "redact a keep 4", "write keep=4"),
            (
                &crate::dedupe::SPEC,
                "dedupe a within 5s",
                "write within=5s",
            ),
            (&crate::throttle::SPEC, "throttle a rate 5", "write rate=5"),
        ];
        for (spec, stage, note) in table {
            let error = error_of(spec, stage);
            assert!(error.contains(note), "{stage}: {error}");
            assert!(
                error.contains("and stands here as a field"),
                "{stage}: {error}"
            );
            assert!(error.contains("`, in backticks"), "{stage}: {error}");
        }
    }

    #[test]
    fn fields_that_are_called_like_settings_are_taken() {
        let table: [(&'static Spec, &str); 13] = [
            (&crate::top::SPEC, "top limit, id"),
            (&crate::top::SPEC, "top id `limit` 1"),
            (&crate::reduce::SPEC, "reduce last status"),
            (&crate::reduce::SPEC, "reduce id end status"),
            (&crate::sort::SPEC, "sort max_bytes desc"),
            (&crate::fingerprint::SPEC, "fingerprint a, target, x"),
            (&crate::fingerprint::SPEC, "fingerprint target x"),
            (
                &crate::fingerprint::SPEC,
                "fingerprint fields=[a, target, x]",
            ),
            (&crate::truncate::SPEC, "truncate suffix a max=10"),
            (&crate::flatten::SPEC, "flatten lists depth"),
            (&crate::redact::SPEC, "redact `card`"),
            (&crate::redact::SPEC, "redact fields=[card, email]"),
            (&crate::redact::SPEC, "redact card.number, action"),
        ];
        for (spec, stage) in table {
            if let Err(error) = build(spec, stage) {
                panic!("{stage}: {error}");
            }
        }
        let yaml = build_yaml(&crate::redact::SPEC, "{fields: [card, email]}");
        assert!(yaml.is_ok());
    }

    #[test]
    fn settings_in_the_place_of_functions_are_refused() {
        for (stage, note) in [
            ("summarize count() every 1m", "write every=1m"),
            ("summarize count() by k", "write by=[k]"),
            ("summarize count() by k, j every 1m", "write by=[k, j]"),
        ] {
            let error = error_of(&crate::summarize::SPEC, stage);
            assert!(error.contains(note), "{stage}: {error}");
        }
    }
}

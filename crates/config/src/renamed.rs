//! Settings that were renamed. An old name is refused like any unknown setting, with an error that gives the new name.

use crate::error::ConfigError;
use crate::node::Node;

/// Old and new names. An old name with several new ones is listed once for each: the new name that is accepted where the old
/// one stands is the right one.
const RENAMED: &[(&str, &str)] = &[
    ("time_zone", "timezone"),
    ("tz", "timezone"),
    ("zone", "timezone"),
    ("memory", "max_memory_bytes"),
    ("memory", "cache_bytes"),
    ("disk", "max_disk_bytes"),
    ("max_size", "max_bytes"),
    ("size", "max_bytes"),
    ("group_size", "group_bytes"),
    ("segment_size", "segment_bytes"),
    ("min_free", "min_free_bytes"),
    ("max_request_size", "max_request_bytes"),
    ("cache_size", "cache_entries"),
];

/// The error for a setting that does not exist. `at` is the place, `owner` what the setting was given to; `accepted` are the
/// settings that exist there.
pub(crate) fn unknown_setting<S: Into<String>>(
    at: &Node,
    name: &str,
    owner: Option<&str>,
    accepted: impl IntoIterator<Item = S>,
) -> ConfigError {
    let accepted: Vec<String> = accepted.into_iter().map(Into::into).collect();
    let owner = owner.map(|name| format!(" for {name}")).unwrap_or_default();
    let error = at
        .error(format!("unknown setting `{name}`{owner}"))
        .about_unknown_setting(name);
    match renamed_note(name, &accepted) {
        Some(note) => error.note(note).accepted(accepted),
        None => {
            let takes_fields = accepted.iter().any(|name| name == "fields");
            let takes_values = accepted.iter().any(|name| name == "values");
            let error = error.accepted(accepted).closest_to(name);
            match (error.suggestion(), takes_fields, takes_values) {
                (None, true, true) => error.note(format!(
                    "a constant goes below `values`, {{ values: {{ {name}: … }} }}, an expression below `fields`"
                )),
                (None, true, false) => {
                    error.note("the names of fields go below `fields`: { fields: … }")
                }
                _ => error,
            }
        }
    }
}

impl ConfigError {
    /// For the error of settings that were [divided](Node::divide): where one directly in `rest` is unknown, the keys that were
    /// taken out before are accepted too.
    pub fn accepted_beside(self, rest: &Node, keys: &[&str]) -> Self {
        let at = self.path();
        let stands_in_rest = rest.as_map().is_some_and(|entries| {
            entries
                .iter()
                .any(|(key, _)| key.path().to_string() == at && Some(key.span) == self.span())
        });
        let Some(name) = self.unknown_setting().filter(|_| stands_in_rest) else {
            return self;
        };
        let name = name.to_owned();
        let means_if =
            ["condition", "when", "expression"].contains(&&*name) && keys.contains(&"if");
        let renamed = renamed_note(&name, keys);
        let has_advice = renamed.is_some() || self.suggestion().is_some();
        let error = self.accepted(keys.iter().copied());
        let error = renamed.into_iter().fold(error, Self::note);
        match means_if {
            true => error.suggest("if"),
            false if has_advice => error,
            false => error.closest_to(&name),
        }
    }
}

/// What is to be said of an old name where its new one is accepted.
fn renamed_note(old: &str, accepted: &[impl AsRef<str>]) -> Option<String> {
    let mut new = RENAMED
        .iter()
        .filter(|(name, _)| *name == old)
        .map(|(_, new)| *new);
    let new = new.find(|new| accepted.iter().any(|name| name.as_ref() == *new))?;
    Some(format!("`{old}` has been renamed to `{new}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse_yaml};

    #[test]
    fn an_old_name_is_answered_with_the_new_one_that_is_accepted_there() {
        let at = parse_yaml(&Source::new("t.yaml", "memory: 1")).expect("valid");
        for (name, accepted, expected) in [
            (
                "memory",
                vec!["workers", "max_memory_bytes"],
                "`memory` has been renamed to `max_memory_bytes`",
            ),
            (
                "memory",
                vec!["max_bytes", "cache_bytes"],
                "`memory` has been renamed to `cache_bytes`",
            ),
            (
                "time_zone",
                vec!["timezone"],
                "`time_zone` has been renamed to `timezone`",
            ),
            (
                "size",
                vec!["max_bytes", "keep"],
                "`size` has been renamed to `max_bytes`",
            ),
            // A component without the new setting gets no wrong advice.
            (
                "cache_size",
                vec!["cache_sizes", "field"],
                "did you mean `cache_sizes`?",
            ),
            ("fild", vec!["field"], "did you mean `field`?"),
        ] {
            let error = unknown_setting(&at, name, Some("disk"), accepted).to_string();
            let message = format!("unknown setting `{name}` for disk");
            assert!(error.contains(&message), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }
}

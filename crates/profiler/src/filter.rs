//! Which samples count: those whose labels have certain values, or that have a certain function on their stack.

use crate::profile::{LabelsId, Profile, StackId};

/// What samples have to have. An empty one takes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names of labels with their value; a `*` stands for any text. Of one name one value has to fit, of each name one.
    pub labels: Vec<(String, String)>,
    /// A text that the name of one function of the stack has to hold, in any case.
    pub function: Option<String>,
}

impl Filter {
    /// Reads `name=value`.
    ///
    /// # Errors
    /// There is no `=`.
    pub fn parse_label(text: &str) -> Result<(String, String), FilterError> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(FilterError(text.to_owned())),
        }
    }

    /// Whether everything is taken.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.function.is_none()
    }

    /// Ready to be asked about the samples of a profile.
    pub fn of<'a>(&'a self, profile: &'a Profile) -> Matching<'a> {
        let function = self.function.as_ref().map(|text| text.to_lowercase());
        let is_wanted = |text: &String| {
            let names = profile.frames();
            names
                .map(|(_, frame)| frame.name().to_lowercase().contains(&**text))
                .collect::<Vec<bool>>()
        };
        let frames = function.as_ref().map(is_wanted);
        Matching {
            stacks: frames.map(|frames| stacks_with(profile, &frames)),
            filter: self,
            profile,
        }
    }

    /// The part of a profile that it takes, with the events of its labels.
    pub fn part(&self, profile: &Profile) -> Profile {
        let matching = self.of(profile);
        profile.part(
            |labels| matching.takes_labels(labels),
            |stack, labels| matching.takes(stack, labels),
        )
    }

    fn takes_labels(&self, profile: &Profile, labels: LabelsId) -> bool {
        let fits = |name: &str| {
            let value = profile.label_of(labels, name).unwrap_or_default();
            let mut wanted = self.labels.iter().filter(|(known, _)| known == name);
            wanted.any(|(_, pattern)| matches(pattern, value))
        };
        self.labels.iter().all(|(name, _)| fits(name))
    }
}

/// A text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a filter: write name=value, as in host=web-1 or process=java*")]
pub struct FilterError(String);

/// For each stack, whether one of its frames is wanted.
fn stacks_with(profile: &Profile, frames: &[bool]) -> Vec<bool> {
    let mut stacks = vec![false; profile.stack_count() + 1];
    for (number, stack) in profile.stacks().enumerate() {
        if let Some((frame, caller)) = profile.split(stack) {
            stacks[number + 1] = frames[frame.index()] || stacks[caller.index()];
        }
    }
    stacks
}

/// A filter for the samples of one profile.
#[derive(Debug)]
pub struct Matching<'a> {
    filter: &'a Filter,
    profile: &'a Profile,
    stacks: Option<Vec<bool>>,
}

impl Matching<'_> {
    /// Whether a sample counts.
    pub fn takes(&self, stack: StackId, labels: LabelsId) -> bool {
        self.stacks
            .as_ref()
            .is_none_or(|stacks| stacks[stack.index()])
            && self.takes_labels(labels)
    }

    /// Whether samples with these labels may count.
    pub fn takes_labels(&self, labels: LabelsId) -> bool {
        self.filter.takes_labels(self.profile, labels)
    }
}

/// Whether a text is what a pattern says, in which a `*` stands for any text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Frame, Weight};

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*b", "ab", true),
            ("a*a", "a", false),
            ("*a*c*", "xaybcz", true),
            ("*a*c*", "xcya", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn samples_are_chosen_by_labels_and_functions() {
        let mut profile = Profile::default();
        let mut add = |functions: &[&'static str], labels: &[(&str, &str)], samples| {
            let frames = functions
                .iter()
                .map(|name| Frame::function(*name, "/bin/a"));
            let stack = profile.stack(frames);
            let labels = profile.labels(labels);
            profile.add(stack, labels, Weight { samples, cpu_ns: 0 });
        };
        add(&["main", "Read"], &[("host", "web-1"), ("process", "a")], 1);
        add(
            &["main", "write"],
            &[("host", "web-2"), ("process", "a")],
            2,
        );
        add(&["main"], &[("host", "db"), ("process", "b")], 4);
        let count = |labels: &[&str], function: Option<&str>| {
            let filter = Filter {
                labels: labels
                    .iter()
                    .map(|text| Filter::parse_label(text).unwrap())
                    .collect(),
                function: function.map(str::to_owned),
            };
            let matching = filter.of(&profile);
            let samples = profile
                .samples()
                .filter(|(stack, labels, _)| matching.takes(*stack, *labels));
            samples.map(|(_, _, weight)| weight.samples).sum::<u64>()
        };
        assert_eq!(count(&[], None), 7);
        assert_eq!(count(&["host=web-*"], None), 3);
        assert_eq!(count(&["host=web-1", "host=db"], None), 5);
        assert_eq!(count(&["host=web-*", "process=b"], None), 0);
        assert_eq!(count(&["service="], None), 7);
        assert_eq!(count(&[], Some("READ")), 1);
        assert_eq!(count(&["host=web-2"], Some("main")), 2);
        assert!(Filter::parse_label("web").is_err());
        assert!(Filter::parse_label("=web").is_err());
    }
}

//! Warns of profiles that lack samples.

use component::{grouped, plural_were};
use profiler::filter::Filter;

use crate::console::say;

/// Warns if more than 1 % of the samples that `what` stands for were lost. It is not known how many of those a filter would have taken, so there is no
/// warning for a part.
pub fn warn(what: &str, filter: &Filter, taken: u64, lost: u64) {
    let is_whole = filter.labels.is_empty() && filter.function.is_none();
    if let Some(text) = warning(taken, lost).filter(|_| is_whole) {
        say(&format!("warning: {what}{text}"));
    }
}

fn warning(taken: u64, lost: u64) -> Option<String> {
    let all = taken.saturating_add(lost);
    let share = lost as f64 / all.max(1) as f64;
    let is_much = lost as f64 > taken as f64 / 100.0;
    is_much.then(|| {
        format!(
            "{} of {} lost: times are too low by {:.1} %",
            grouped(lost),
            plural_were(all, "sample"),
            share * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_one_percent_is_a_warning() {
        for (taken, lost, expected) in [
            (1000, 10, None),
            (0, 0, None),
            (
                3750,
                1250,
                Some("1,250 of 5,000 samples were lost: times are too low by 25.0 %"),
            ),
            (
                0,
                1,
                Some("1 of 1 sample was lost: times are too low by 100.0 %"),
            ),
        ] {
            assert_eq!(warning(taken, lost).as_deref(), expected, "{taken} {lost}");
        }
    }
}

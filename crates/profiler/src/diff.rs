//! What has changed from one profile to another, function by function.
//!
//! Profiles are compared for the same amount of something: of processor time, so that shares are compared; of time that went by; or of work, such as
//! events, whose numbers the caller knows. The first profile is multiplied so that it stands for as much as the second. What is saved a year is of the
//! second's window.

use std::collections::HashMap;

use crate::cost::{Cost, Rates};
use crate::profile::{Weight, Window};
use crate::top::{Row, Table};

/// Of what both profiles are taken as the same amount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Normalise {
    /// Of processor time: shares are compared.
    Samples,
    /// Of time that went by.
    Time,
    /// Of work: how much was done while each was recorded.
    Events {
        /// While the first was.
        before: f64,
        /// While the second was.
        after: f64,
    },
}

/// Profiles cannot be compared so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// One has no window.
    #[error(
        "the {0} profile does not say how long it was recorded, so that they cannot be compared by time"
    )]
    NoWindow(&'static str),
    /// One has no samples.
    #[error("the {0} profile has no samples that the filter takes")]
    Empty(&'static str),
    /// A number of events is not above 0.
    #[error("a number of events has to be above 0")]
    Events,
}

/// A function, a label's value.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// The function's binary; empty for labels.
    pub binary: String,
    /// Nanoseconds of its own, before (multiplied) and after.
    pub own_ns: [f64; 2],
    /// Nanoseconds together with what it called.
    pub total_ns: [f64; 2],
}

impl Change {
    /// What its own time has gained; below 0 what it has lost.
    pub fn gained_ns(&self) -> f64 {
        self.own_ns[1] - self.own_ns[0]
    }
}

/// What has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What the first profile is multiplied by.
    pub scale: f64,
    /// Those that have changed most first.
    pub changes: Vec<Change>,
    /// All nanoseconds, before (multiplied) and after.
    pub all_ns: [f64; 2],
    /// What the second's window costs in a year, as it was before and as it is after; none where it has no window.
    pub cost: Option<[Cost; 2]>,
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct Side {
    /// The rows, and what they are parts of.
    pub table: Table,
    /// When that was recorded.
    pub window: Window,
}

/// Compares two tables that have rows of the same.
///
/// # Errors
/// They cannot be compared so.
pub fn compare(
    before: Side,
    after: Side,
    normalise: Normalise,
    rates: &Rates,
) -> Result<Comparison, DiffError> {
    let windows = [before.window, after.window].map(|window| window.duration_ns);
    let tables = [before.table, after.table];
    let all = [tables[0].all.cpu_ns as f64, tables[1].all.cpu_ns as f64];
    let scale = match normalise {
        Normalise::Samples => ratio(all, DiffError::Empty)?,
        Normalise::Time => {
            let windows = windows.map(|window_ns| window_ns as f64);
            ratio(windows, DiffError::NoWindow)?
        }
        Normalise::Events { before, after } => ratio([before, after], |_| DiffError::Events)?,
    };
    let mut changes: HashMap<(String, String), Change> = HashMap::new();
    for (side, table) in tables.into_iter().enumerate() {
        let factor = if side == 0 { scale } else { 1.0 };
        for Row {
            name,
            binary,
            own,
            total,
            ..
        } in table.rows
        {
            let key = (name, binary);
            let change = changes
                .entry(key)
                .or_insert_with_key(|(name, binary)| Change {
                    name: name.clone(),
                    binary: binary.clone(),
                    own_ns: [0.0; 2],
                    total_ns: [0.0; 2],
                });
            let scaled = |weight: Weight| weight.cpu_ns as f64 * factor;
            change.own_ns[side] += scaled(own);
            change.total_ns[side] += scaled(total);
        }
    }
    let mut changes: Vec<Change> = changes.into_values().collect();
    changes.sort_by(|one, other| {
        let size = |change: &Change| change.gained_ns().abs();
        let names = || (&one.name, &one.binary).cmp(&(&other.name, &other.binary));
        size(other).total_cmp(&size(one)).then_with(names)
    });
    let all_ns = [all[0] * scale, all[1]];
    let window_ns = windows[1];
    let a_year = |cpu_ns: f64| {
        let weight = Weight {
            samples: 0,
            cpu_ns: cpu_ns as u64,
        };
        Cost::a_year(weight, window_ns, rates)
    };
    Ok(Comparison {
        scale,
        changes,
        all_ns,
        cost: (window_ns > 0).then(|| all_ns.map(a_year)),
    })
}

/// How often the first goes into the second.
fn ratio(
    [before, after]: [f64; 2],
    error: impl Fn(&'static str) -> DiffError,
) -> Result<f64, DiffError> {
    for (number, name) in [(before, "first"), (after, "second")] {
        if !number.is_finite() || number <= 0.0 {
            return Err(error(name));
        }
    }
    Ok(after / before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::profile::{Frame, Profile, SECOND_NS};
    use crate::top::{Group, table};

    fn side(seconds: u64, rows: &[(&'static str, u64)]) -> Side {
        let window = Window {
            start_ns: 1,
            duration_ns: seconds * SECOND_NS,
        };
        let mut profile = Profile::new(window, 1.0);
        let labels = profile.labels(&[]);
        for (name, samples) in rows {
            let stack = profile.stack([Frame::function("main", ""), Frame::function(*name, "")]);
            let cpu_ns = samples * SECOND_NS;
            profile.add(
                stack,
                labels,
                Weight {
                    samples: *samples,
                    cpu_ns,
                },
            );
        }
        Side {
            table: table(&profile, &Filter::default(), &Group::Function),
            window,
        }
    }

    fn changes(normalise: Normalise) -> (Vec<String>, Comparison) {
        let before = side(100, &[("inflate", 40), ("read", 10), ("gone", 10)]);
        let after = side(200, &[("inflate", 20), ("read", 20), ("new", 5)]);
        let comparison = compare(before, after, normalise, &Rates::X86_64).unwrap();
        let text = |change: &Change| {
            let seconds = |ns: f64| (ns / 1e7).round() / 100.0;
            format!(
                "{} {} {}",
                change.name,
                seconds(change.own_ns[0]),
                seconds(change.own_ns[1])
            )
        };
        (comparison.changes.iter().map(text).collect(), comparison)
    }

    #[test]
    fn profiles_are_compared_for_the_same_amount() {
        let (text, by_time) = changes(Normalise::Time);
        assert_eq!(
            text,
            [
                "inflate 80 20",
                "gone 20 0",
                "new 0 5",
                "main 0 0",
                "read 20 20"
            ]
        );
        assert_eq!(by_time.all_ns, [120e9, 45e9]);
        let [before, after] = by_time.cost.unwrap();
        // 120 of 200 seconds all year long, and 45.
        assert_eq!(((before - after).core_hours * 100.0).round(), 328_500.0);
        let (text, by_work) = changes(Normalise::Events {
            before: 10.0,
            after: 5.0,
        });
        assert_eq!(by_work.scale, 0.5);
        assert_eq!(text[0], "read 5 20");
        let (text, by_share) = changes(Normalise::Samples);
        assert_eq!(by_share.all_ns, [45e9, 45e9]);
        assert_eq!(text[0], "read 7.5 20");
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let compare = |normalise| {
            let (some, none) = (side(0, &[("a", 1)]), side(5, &[]));
            compare(some, none, normalise, &Rates::X86_64).unwrap_err()
        };
        assert_eq!(compare(Normalise::Time), DiffError::NoWindow("first"));
        assert_eq!(compare(Normalise::Samples), DiffError::Empty("second"));
        let events = Normalise::Events {
            before: 1.0,
            after: 0.0,
        };
        assert_eq!(compare(events), DiffError::Events);
    }
}

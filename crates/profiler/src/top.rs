//! The costliest functions, or hosts, services, processes, threads.
//!
//! *Self* is the time in which a function was the innermost on the stack, *total* that in which it was anywhere on it; a function
//! that calls itself counts once. Functions are the same when their names and binaries are.

use std::collections::HashMap;

use crate::filter::Filter;
use crate::profile::{FrameKind, Profile, StackId, Weight};

/// What a table has a row for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// Each function.
    Function,
    /// Each value of a label; samples without it are together.
    Label(String),
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The function, or the label's value; empty where a sample has none.
    pub name: String,
    /// The function's binary; empty for labels.
    pub binary: String,
    /// What kind of code it is; none for labels.
    pub kind: Option<FrameKind>,
    /// The time in which it was the innermost function.
    pub own: Weight,
    /// The time in which it was on the stack.
    pub total: Weight,
}

/// The rows of a table, and what they are parts of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The costliest by their own time first.
    pub rows: Vec<Row>,
    /// All samples that the filter takes.
    pub all: Weight,
}

/// The table of a profile, with the samples that a filter takes.
pub fn table(profile: &Profile, filter: &Filter, group: &Group) -> Table {
    let mut table = match group {
        Group::Function => functions(profile, filter),
        Group::Label(name) => labels(profile, filter, name),
    };
    table.sort();
    table
}

impl Table {
    /// Puts the costliest rows by their own time first.
    pub fn sort(&mut self) {
        let order = |row: &Row| (std::cmp::Reverse(row.own), std::cmp::Reverse(row.total));
        self.rows.sort_by(|one, other| {
            let names = || (&one.name, &one.binary).cmp(&(&other.name, &other.binary));
            order(one).cmp(&order(other)).then_with(names)
        });
    }
}

fn functions(profile: &Profile, filter: &Filter) -> Table {
    let mut table = Table::default();
    // The row of each frame.
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    let mut row_of = Vec::new();
    for (_, frame) in profile.frames() {
        let key = (frame.name().into_owned(), frame.binary.clone().into_owned());
        let row = *known.entry(key).or_insert_with_key(|(name, binary)| {
            table.rows.push(Row {
                name: name.clone(),
                binary: binary.clone(),
                kind: Some(frame.kind()),
                own: Weight::default(),
                total: Weight::default(),
            });
            table.rows.len() - 1
        });
        row_of.push(row);
    }
    // What each stack took, whatever its labels.
    let matching = filter.of(profile);
    let mut weights = vec![Weight::default(); profile.stack_count() + 1];
    for (stack, labels, weight) in profile.samples() {
        if matching.takes(stack, labels) {
            table.all += weight;
            weights[stack.index()] += weight;
        }
    }
    let mut seen_in = vec![0_usize; table.rows.len()];
    for (number, stack) in profile.stacks().enumerate() {
        let weight = weights[stack.index()];
        if weight != Weight::default() {
            count(
                profile,
                stack,
                &row_of,
                &mut seen_in,
                number + 1,
                |row, is_innermost| {
                    let row = &mut table.rows[row];
                    row.total += weight;
                    if is_innermost {
                        row.own += weight;
                    }
                },
            );
        }
    }
    table.rows.retain(|row| row.total != Weight::default());
    table
}

/// Tells each row of a stack once, and whether it is that of the innermost frame. `mark` is another one for each stack.
fn count(
    profile: &Profile,
    stack: StackId,
    row_of: &[usize],
    seen_in: &mut [usize],
    mark: usize,
    mut each: impl FnMut(usize, bool),
) {
    for (depth, frame) in profile.frame_ids(stack).enumerate() {
        let row = row_of[frame.index()];
        if seen_in[row] != mark {
            seen_in[row] = mark;
            each(row, depth == 0);
        }
    }
}

fn labels(profile: &Profile, filter: &Filter, name: &str) -> Table {
    let matching = filter.of(profile);
    let mut table = Table::default();
    let mut weights: HashMap<&str, Weight> = HashMap::new();
    for (stack, labels, weight) in profile.samples() {
        if matching.takes(stack, labels) {
            table.all += weight;
            let value = profile.label_of(labels, name).unwrap_or_default();
            *weights.entry(value).or_default() += weight;
        }
    }
    let row = |(value, weight): (&str, Weight)| Row {
        name: value.to_owned(),
        binary: String::new(),
        kind: None,
        own: weight,
        total: weight,
    };
    table.rows = weights.into_iter().map(row).collect();
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Frame;

    fn profile() -> Profile {
        let mut profile = Profile::default();
        let mut add = |functions: &[&'static str], host: &str, samples| {
            let frames = functions
                .iter()
                .map(|name| Frame::function(*name, "/bin/a"));
            let stack = profile.stack(frames);
            let labels = profile.labels(&[("host", host)]);
            let cpu_ns = samples * 10;
            profile.add(stack, labels, Weight { samples, cpu_ns });
        };
        add(&["main", "fib", "fib", "fib"], "a", 5);
        add(&["main", "fib"], "b", 2);
        add(&["main"], "b", 1);
        add(&["main", "read"], "", 2);
        profile
    }

    fn rows(filter: &Filter, group: &Group) -> Vec<String> {
        let table = table(&profile(), filter, group);
        let row = |row: &Row| format!("{} {}/{}", row.name, row.own.samples, row.total.samples);
        let rows = table.rows.iter().map(row);
        rows.chain([format!("all {}", table.all.samples)]).collect()
    }

    #[test]
    fn functions_count_once_a_stack() {
        assert_eq!(
            rows(&Filter::default(), &Group::Function),
            ["fib 7/7", "read 2/2", "main 1/10", "all 10"]
        );
        let filter = Filter {
            labels: vec![("host".to_owned(), "b".to_owned())],
            function: None,
        };
        assert_eq!(
            rows(&filter, &Group::Function),
            ["fib 2/2", "main 1/3", "all 3"]
        );
    }

    #[test]
    fn labels_have_rows_too() {
        let group = Group::Label("host".to_owned());
        assert_eq!(
            rows(&Filter::default(), &group),
            ["a 5/5", "b 3/3", " 2/2", "all 10"]
        );
    }
}

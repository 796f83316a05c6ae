//! The costliest functions of each process, host or service: a row for each combination of labels and function.
//!
//! *Self* and *total* are those of [`top`](crate::top), within the samples of the row's labels.

use indexmap::{IndexMap, IndexSet};

use crate::profile::{FrameKind, LabelsId, Profile, StackId, Weight};

/// What has a row of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Key {
    /// Labels whose values tell rows apart.
    pub labels: Vec<String>,
    /// Whether functions do.
    pub is_by_function: bool,
}

/// The function of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its binary; empty where it is not known.
    pub binary: String,
    /// What kind of code it is.
    pub kind: FrameKind,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The value of each label, in the order of [`Key::labels`]; empty where samples have none.
    pub labels: Vec<String>,
    /// The function, where they have rows of their own.
    pub function: Option<Function>,
    /// The time in which it was the innermost function.
    pub own: Weight,
    /// The time in which it was on the stack.
    pub total: Weight,
}

/// The rows of a profile, the costliest by their own time first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// The rows.
    pub rows: Vec<Row>,
    /// All samples.
    pub all: Weight,
}

/// The rows of a profile.
pub fn breakdown(profile: &Profile, key: &Key) -> Breakdown {
    let mut sums = Sums::new(profile, key);
    let mut weights: IndexMap<(usize, StackId), Weight> = IndexMap::new();
    let mut all = Weight::default();
    for (stack, labels, weight) in profile.samples() {
        let group = sums.group_of[labels.index()];
        *weights.entry((group, stack)).or_default() += weight;
        all += weight;
    }
    for ((group, stack), weight) in weights {
        if weight != Weight::default() {
            sums.count(profile, group, stack, weight);
        }
    }
    Breakdown {
        rows: sums.rows(),
        all,
    }
}

/// Sums by group of labels and function.
struct Sums {
    /// The values of each group.
    groups: IndexSet<Vec<String>>,
    /// The group of each set of labels.
    group_of: Vec<usize>,
    functions: IndexSet<Function>,
    /// The function of each frame; empty where functions have no rows of their own.
    function_of: Vec<usize>,
    /// Own and total time of each group and function.
    rows: IndexMap<(usize, Option<usize>), (Weight, Weight)>,
    /// For each function, the number of the stack in which it was seen last.
    seen_in: Vec<usize>,
    stacks: usize,
}

impl Sums {
    fn new(profile: &Profile, key: &Key) -> Self {
        let mut groups = IndexSet::new();
        let values = |set: LabelsId| {
            let value = |name: &String| profile.label_of(set, name).unwrap_or_default().to_owned();
            key.labels.iter().map(value).collect()
        };
        let sets = profile.label_sets();
        let group_of = sets.map(|set| groups.insert_full(values(set)).0).collect();
        let mut functions = IndexSet::new();
        let mut function_of = Vec::new();
        if key.is_by_function {
            let function = |frame: crate::profile::Frame<'_>| Function {
                name: frame.name().into_owned(),
                binary: frame.binary.clone().into_owned(),
                kind: frame.kind(),
            };
            let frames = profile.frames();
            function_of.extend(frames.map(|(_, frame)| functions.insert_full(function(frame)).0));
        }
        Self {
            seen_in: vec![0; functions.len()],
            groups,
            group_of,
            functions,
            function_of,
            rows: IndexMap::new(),
            stacks: 0,
        }
    }

    fn count(&mut self, profile: &Profile, group: usize, stack: StackId, weight: Weight) {
        if self.function_of.is_empty() {
            let (own, total) = self.rows.entry((group, None)).or_default();
            *own += weight;
            *total += weight;
            return;
        }
        self.stacks += 1;
        for (depth, frame) in profile.frame_ids(stack).enumerate() {
            let function = self.function_of[frame.index()];
            if std::mem::replace(&mut self.seen_in[function], self.stacks) == self.stacks {
                continue;
            }
            let (own, total) = self.rows.entry((group, Some(function))).or_default();
            *total += weight;
            if depth == 0 {
                *own += weight;
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(&(group, function), &(own, total)): (&(usize, Option<usize>), &(_, _))| Row {
            labels: self.groups[group].clone(),
            function: function.map(|index| self.functions[index].clone()),
            own,
            total,
        };
        let mut rows: Vec<Row> = self.rows.iter().map(row).collect();
        rows.sort_by(|one, other| {
            let names = || (&one.labels, &one.function).cmp(&(&other.labels, &other.function));
            (other.own, other.total)
                .cmp(&(one.own, one.total))
                .then_with(names)
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Frame;

    fn rows(labels: &[&str], is_by_function: bool) -> Vec<String> {
        let mut profile = Profile::default();
        let mut add = |functions: &[&'static str], process: &str, thread: &str, samples| {
            let frames = functions
                .iter()
                .map(|name| Frame::function(*name, "/bin/a"));
            let stack = profile.stack(frames);
            let labels = profile.labels(&[("process", process), ("thread", thread)]);
            let cpu_ns = samples * 10;
            profile.add(stack, labels, Weight { samples, cpu_ns });
        };
        add(&["main", "fib", "fib"], "a", "1", 5);
        add(&["main", "fib"], "a", "2", 2);
        add(&["main", "fib"], "b", "1", 3);
        add(&["main"], "b", "1", 1);
        add(&["main"], "", "1", 0);
        let key = Key {
            labels: labels.iter().map(|name| (*name).to_owned()).collect(),
            is_by_function,
        };
        let found = breakdown(&profile, &key);
        assert_eq!(found.all.samples, 11);
        let own: u64 = found.rows.iter().map(|row| row.own.cpu_ns).sum();
        assert_eq!(own, found.all.cpu_ns, "rows add up");
        let row = |row: &Row| {
            let name = row.function.as_ref().map_or("", |function| &function.name);
            let labels = row.labels.join(",");
            format!("{labels} {name} {}/{}", row.own.samples, row.total.samples)
        };
        found.rows.iter().map(row).collect()
    }

    #[test]
    fn each_combination_has_a_row() {
        assert_eq!(rows(&[], true), [" fib 10/10", " main 1/11"]);
        assert_eq!(rows(&["process"], false), ["a  7/7", "b  4/4"]);
        assert_eq!(
            rows(&["process"], true),
            ["a fib 7/7", "b fib 3/3", "b main 1/4", "a main 0/7"]
        );
        assert_eq!(
            rows(&["thread", "process"], false),
            ["1,a  5/5", "1,b  4/4", "2,a  2/2"]
        );
        assert_eq!(rows(&[], false), ["  11/11"]);
    }
}

//! The calls of profiles as one tree, functions that are the same in one place.

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};
use serde_json::{Value, json};

use crate::filter::Filter;
use crate::profile::{FrameKind, Profile};

/// How many profiles a tree compares at most.
const SIDES: usize = 2;

/// A function: its name, its binary and what it is.
type Function = (String, String, FrameKind);

/// Samples, and microseconds of processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Amount {
    pub samples: f64,
    pub cpu_us: f64,
}

/// The calls of profiles.
#[derive(Debug, Default)]
pub(super) struct CallTree {
    functions: IndexSet<Function>,
    /// The caller, 0 where there is none, and the function. Numbers count from 1; callers come first.
    nodes: IndexSet<(usize, usize)>,
    labels: IndexSet<Vec<(String, String)>>,
    samples: IndexMap<(usize, usize), [Amount; SIDES]>,
    sides: usize,
}

/// A tree as lists of numbers, as the page reads it.
pub(super) struct Lists {
    pub texts: Vec<String>,
    /// Numbers of the name's and the binary's text, and the kind: 0 kernel, 1 native, 2 interpreted.
    pub frames: Vec<[usize; 3]>,
    /// Of each node, how far before it its caller is; 0 where there is none.
    pub parents: Vec<usize>,
    /// Of each node, its frame.
    pub nodes: Vec<usize>,
    /// Sets of labels: numbers of texts in pairs.
    pub labels: Vec<Vec<usize>>,
    /// Node, labels, and for each side samples and microseconds.
    pub samples: Vec<Value>,
}

impl CallTree {
    /// Adds the samples of a profile that a filter takes, to one side, with their amounts multiplied.
    pub fn add(&mut self, profile: &Profile, filter: &Filter, side: usize, scale: f64) {
        self.sides = self.sides.max(side + 1);
        let function = |(_, frame): (_, crate::profile::Frame<'_>)| {
            let function = (
                frame.name().into_owned(),
                frame.binary.to_string(),
                frame.kind(),
            );
            self.functions.insert_full(function).0
        };
        let functions: Vec<usize> = profile.frames().map(function).collect();
        let mut nodes = vec![0; profile.stack_count() + 1];
        for stack in profile.stacks() {
            if let Some((frame, caller)) = profile.split(stack) {
                let node = (nodes[caller.index()], functions[frame.index()]);
                nodes[stack.index()] = self.nodes.insert_full(node).0 + 1;
            }
        }
        let labels: Vec<usize> = profile
            .label_sets()
            .map(|set| {
                let owned = profile
                    .labels_of(set)
                    // Numbers of processes would make the list of values long, and say little.
                    .filter(|(name, _)| *name != crate::profile::label::PID)
                    .map(|(name, value)| (name.to_owned(), value.to_owned()));
                self.labels.insert_full(owned.collect()).0
            })
            .collect();
        let matching = filter.of(profile);
        for (stack, set, weight) in profile.samples() {
            if !matching.takes(stack, set) {
                continue;
            }
            let key = (nodes[stack.index()], labels[set.index()]);
            let amount = &mut self.samples.entry(key).or_default()[side];
            amount.samples += weight.samples as f64 * scale;
            amount.cpu_us += weight.cpu_ns as f64 / 1e3 * scale;
        }
    }

    /// The lists of numbers.
    pub fn lists(&self) -> Lists {
        let mut texts: IndexSet<String> = IndexSet::new();
        let mut number = |text: &String| match texts.get_index_of(text) {
            Some(index) => index,
            None => texts.insert_full(text.clone()).0,
        };
        let kind = |kind: FrameKind| match kind {
            FrameKind::Kernel => 0,
            FrameKind::Native => 1,
            FrameKind::Interpreted => 2,
        };
        let frame = |(name, binary, of): &Function| [number(name), number(binary), kind(*of)];
        let frames = self.functions.iter().map(frame).collect();
        let mut pair = |(name, value): &(String, String)| [number(name), number(value)];
        let labels = self.labels.iter();
        let labels = labels
            .map(|set| set.iter().flat_map(&mut pair).collect())
            .collect();
        let numbered = self.nodes.iter().enumerate();
        let behind = |(index, (caller, _)): (usize, &(usize, usize))| match caller {
            0 => 0,
            caller => index + 1 - caller,
        };
        Lists {
            parents: numbered.map(behind).collect(),
            nodes: self.nodes.iter().map(|(_, function)| *function).collect(),
            samples: self
                .samples
                .iter()
                .map(|entry| self.sample(entry))
                .collect(),
            frames,
            labels,
            texts: texts.into_iter().collect(),
        }
    }

    fn sample(&self, ((node, labels), sides): (&(usize, usize), &[Amount; SIDES])) -> Value {
        let mut numbers = vec![json!(node), json!(labels)];
        for amount in &sides[..self.sides] {
            for number in [amount.samples, amount.cpu_us.round()] {
                numbers.push(if number == 0.0 {
                    json!(0)
                } else {
                    json!(number)
                });
            }
        }
        Value::Array(numbers)
    }

    /// The nodes with what each took together with what it called, on the first side: children by their callers, the largest first.
    pub fn totals(&self) -> (Vec<f64>, HashMap<usize, Vec<usize>>) {
        let mut totals = vec![0.0; self.nodes.len() + 1];
        for ((node, _), sides) in &self.samples {
            totals[*node] += sides[0].cpu_us;
        }
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, (caller, _)) in self.nodes.iter().enumerate().rev() {
            totals[*caller] += totals[index + 1];
            children.entry(*caller).or_default().push(index + 1);
        }
        for list in children.values_mut() {
            list.sort_by(|one, other| totals[*other].total_cmp(&totals[*one]));
        }
        (totals, children)
    }

    /// The function of a node.
    pub fn function(&self, node: usize) -> Option<&Function> {
        let (_, function) = self.nodes.get_index(node.checked_sub(1)?)?;
        self.functions.get_index(*function)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::{Frame, Weight};

    proptest! {
        #[test]
        fn callers_take_what_they_call_takes(
            stacks in proptest::collection::vec((proptest::collection::vec(0..4_usize, 0..6), 0..50_u64), 0..30)
        ) {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let mut profile = Profile::default();
            let labels = profile.labels(&[]);
            for (stack, samples) in &stacks {
                let frames = stack.iter().map(|name| Frame::function(NAMES[*name], ""));
                let stack = profile.stack(frames);
                profile.add(stack, labels, Weight { samples: *samples, cpu_ns: samples * 1000 });
            }
            let mut tree = CallTree::default();
            tree.add(&profile, &Filter::default(), 0, 1.0);
            let (totals, children) = tree.totals();
            prop_assert_eq!(totals[0], stacks.iter().map(|(_, samples)| *samples as f64).sum::<f64>());
            for (caller, list) in children {
                let of_children: f64 = list.iter().map(|child| totals[*child]).sum();
                prop_assert!(of_children <= totals[caller]);
            }
        }
    }
}

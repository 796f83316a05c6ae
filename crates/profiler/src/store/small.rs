//! Profiles of many files that stay small: stacks whose time is too short to be seen are counted at a caller.
//!
//! A stack is small if it took, together with what it called, less than one part in [`PARTS`] of the profile. Its samples are counted in a frame
//! [`SMALL`] of its nearest caller that is not small. So totals of the whole, of sets of labels, and of each stack that is not small stay exact when
//! one profile is pruned once. What is pruned per file and again while files are merged misses, of each stack's total, less than one part in
//! [`PARTS`] of the whole for each time; more where a bound needs coarser pruning ([`bound`]).
//!
//! # Limits
//! A function that is called from many places, and is small in each, loses what it took there to [`SMALL`]: its exact times are in the tables
//! ([`Query::tables`](super::query::Query::tables)), which leave nothing out. [`note`] tells a reader so.

use crate::filter::Filter;
use crate::profile::{Frame, FrameId, LabelsId, Profile, StackId, label};

/// The frame where stacks count that are small.
pub const SMALL: &str = "[small]";

/// A stack that took less than one of so many parts of a profile is small.
pub const PARTS: u64 = 20_000;

/// How many stacks with labels a merged profile has at most.
pub const STACKS_MAX: usize = 500_000;

/// The samples of a profile that a filter takes: without lines, which flame graphs do not show, and without the labels that `keep` refuses.
pub fn taken(profile: &Profile, filter: &Filter, keep: impl Fn(&str) -> bool) -> Profile {
    let mut part = empty_like(profile);
    let frames: Vec<FrameId> = profile
        .frames()
        .map(|(_, frame)| part.frame(&Frame { line: 0, ..frame }))
        .collect();
    let mut stacks = vec![StackId::EMPTY];
    for stack in profile.stacks() {
        if let Some((frame, caller)) = profile.split(stack) {
            stacks.push(part.call(stacks[caller.index()], frames[frame.index()]));
        }
    }
    let labels = copy_labels(profile, &mut part, keep);
    let matching = filter.of(profile);
    for (stack, set, weight) in profile.samples() {
        if matching.takes(stack, set) {
            part.add(stacks[stack.index()], labels[set.index()], weight);
        }
    }
    for (set, events) in profile.events() {
        if matching.takes_labels(set) {
            part.count_events(labels[set.index()], events);
        }
    }
    part
}

/// A profile whose small stacks count at their callers, and without the labels that `keep` refuses. One that took less than one of `parts` is small.
pub fn pruned(profile: &Profile, parts: u64, keep: impl Fn(&str) -> bool) -> Profile {
    let totals = totals(profile);
    // Where nothing was taken, everything is small.
    let min = totals[0].div_ceil(parts).max(1);
    without_small(profile, &totals, min, keep)
}

/// A profile whose stacks that took less than `min`, of `totals`, count at their callers.
fn without_small(
    profile: &Profile,
    totals: &[u64],
    min: u64,
    keep: impl Fn(&str) -> bool,
) -> Profile {
    let mut rest = empty_like(profile);
    let mut frames: Vec<Option<FrameId>> = vec![None; profile.frames().count()];
    // Of each stack the nearest one that is not small.
    let mut nearest = vec![StackId::EMPTY];
    for stack in profile.stacks() {
        if let Some((frame, caller)) = profile.split(stack) {
            let mut near = nearest[caller.index()];
            if totals[stack.index()] >= min {
                let known = &mut frames[frame.index()];
                let frame = *known.get_or_insert_with(|| rest.frame(&profile.frame_of(frame)));
                near = rest.call(near, frame);
            }
            nearest.push(near);
        }
    }
    let labels = copy_labels(profile, &mut rest, keep);
    for (stack, set, weight) in profile.samples() {
        let mut near = nearest[stack.index()];
        if totals[stack.index()] < min {
            let small = rest.frame(&Frame::function(SMALL, ""));
            near = rest.call(near, small);
        }
        rest.add(near, labels[set.index()], weight);
    }
    for (set, events) in profile.events() {
        rest.count_events(labels[set.index()], events);
    }
    rest
}

/// Prunes a profile that has more than `max` stacks with labels until it has half of them, so that there is room for others. Gives whether it did.
///
/// First names of threads go, then small stacks, then containers, of which there may be as many as stacks; then what is small begins at twice as
/// much, and so on; if that is not enough for `max`, because all the time is deep in one stack, everything is small. Labels that `keep` names stay.
pub fn bound(profile: &mut Profile, max: usize, keep: impl Fn(&str) -> bool) -> bool {
    if profile.len() <= max {
        return false;
    }
    let keeps = |name: &str, left_out: &[&str]| keep(name) || !left_out.contains(&name);
    *profile = taken(profile, &Filter::default(), |name| {
        keeps(name, &[label::THREAD])
    });
    if profile.len() > max / 2 {
        *profile = pruned(profile, PARTS, |_| true);
    }
    let mut parts = PARTS;
    while profile.len() > max / 2 && parts > 1 {
        *profile = pruned(profile, parts, |name| keeps(name, &[label::CONTAINER]));
        parts /= 2;
    }
    if profile.len() > max {
        let totals = totals(profile);
        *profile = without_small(profile, &totals, u64::MAX, |_| true);
    }
    true
}

/// What a reader of profiles should know of them: how much of their time is in small stacks; none where nothing is.
pub fn note(profiles: &[&Profile]) -> Option<String> {
    let (mut all, mut small) = (0.0, 0.0);
    for profile in profiles {
        let mut frames = profile.frames();
        let frame = frames.find(|(_, frame)| frame.function == SMALL && frame.binary.is_empty());
        for (stack, _, weight) in profile.samples() {
            all += weight.cpu_ns as f64;
            let innermost = profile.split(stack).map(|(innermost, _)| innermost);
            if innermost.is_some() && innermost == frame.as_ref().map(|(id, _)| *id) {
                small += weight.cpu_ns as f64;
            }
        }
    }
    (small > 0.0).then(|| {
        format!(
            "{:.1} % of the processor time is in functions called {SMALL}: stacks that took too little to be seen are counted there, at their callers. `millpond profile top` counts each function in full.",
            small * 100.0 / all
        )
    })
}

fn empty_like(profile: &Profile) -> Profile {
    let mut empty = Profile::new(profile.window, profile.frequency_hz);
    empty.lost = profile.lost;
    empty
}

fn copy_labels(from: &Profile, to: &mut Profile, keep: impl Fn(&str) -> bool) -> Vec<LabelsId> {
    let sets = from.label_sets();
    sets.map(|set| {
        let labels: Vec<_> = from.labels_of(set).filter(|(name, _)| keep(name)).collect();
        to.labels(&labels)
    })
    .collect()
}

/// Processor time of each stack together with what it called, by its number.
fn totals(profile: &Profile) -> Vec<u64> {
    let mut totals = vec![0_u64; profile.stack_count() + 1];
    for (stack, _, weight) in profile.samples() {
        let total = &mut totals[stack.index()];
        *total = total.saturating_add(weight.cpu_ns);
    }
    let callers: Vec<usize> = profile
        .stacks()
        .filter_map(|stack| Some(profile.split(stack)?.1.index()))
        .collect();
    for (index, caller) in callers.iter().enumerate().rev() {
        totals[*caller] = totals[*caller].saturating_add(totals[index + 1]);
    }
    totals
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::profile::{Weight, Window};
    use crate::top::{Group, table};

    fn profiles() -> impl Strategy<Value = Profile> {
        let frames = proptest::collection::vec((0..4_usize, 0..2_u32), 0..7);
        let sample = (frames, 0..3_usize, 0..3_usize, 0..200_u64);
        proptest::collection::vec(sample, 0..60).prop_map(|samples| {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let window = Window {
                start_ns: 1,
                duration_ns: 2,
            };
            let mut profile = Profile::new(window, 20.0);
            profile.lost = 3;
            for (frames, host, pid, samples) in samples {
                let frames = frames.iter().map(|(name, line)| Frame {
                    line: *line,
                    ..Frame::function(NAMES[*name], "/bin/a")
                });
                let stack = profile.stack(frames);
                let set = [(label::HOST, NAMES[host]), (label::PID, NAMES[pid])];
                let labels = profile.labels(&set);
                let cpu_ns = samples * 1_000;
                profile.add(stack, labels, Weight { samples, cpu_ns });
                profile.count_events(labels, samples);
            }
            profile
        })
    }

    /// What each stack took, alone and with what it called, by the names of its functions.
    fn paths(profile: &Profile) -> BTreeMap<String, (u64, u64)> {
        let mut paths: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (stack, _, weight) in profile.samples() {
            let frames = profile.frame_ids(stack);
            let mut names: Vec<String> = frames
                .map(|frame| profile.frame_of(frame).name().into_owned())
                .collect();
            names.reverse();
            for length in 0..=names.len() {
                let path = paths.entry(names[..length].join(";")).or_default();
                path.1 += weight.cpu_ns;
                if length == names.len() {
                    path.0 += weight.cpu_ns;
                }
            }
        }
        paths
    }

    fn by_host(profile: &Profile, filter: &Filter) -> BTreeMap<String, Weight> {
        let table = table(profile, filter, &Group::Label(label::HOST.to_owned()));
        let rows = table.rows.into_iter();
        rows.filter(|row| row.total != Weight::default())
            .map(|row| (row.name, row.total))
            .collect()
    }

    proptest! {
        #[test]
        fn sums_and_large_stacks_stay_exact(
            profile in profiles(),
            parts in 1..60_u64,
            host in proptest::option::of(proptest::sample::select(vec!["a", "b"])),
        ) {
            let labels = host.map(|host| (label::HOST.to_owned(), host.to_owned()));
            let filter = Filter { labels: labels.into_iter().collect(), function: None };
            let part = taken(&profile, &filter, |name| name != label::PID);
            let rest = pruned(&part, parts, |_| true);
            prop_assert_eq!(rest.total(), table(&profile, &filter, &Group::Function).all);
            prop_assert_eq!(by_host(&rest, &Filter::default()), by_host(&profile, &filter));
            prop_assert_eq!((rest.window, rest.lost), (profile.window, profile.lost));
            let events = |profile: &Profile| profile.events().map(|(_, events)| events).sum::<u64>();
            prop_assert_eq!(events(&rest), events(&part));
            let (before, after) = (paths(&part), paths(&rest));
            let all = part.total().cpu_ns;
            for (path, amounts) in &before {
                if amounts.1 * parts >= all && amounts.1 > 0 {
                    prop_assert_eq!(after.get(path), Some(amounts), "{}", path);
                }
            }
            for (path, amounts) in after {
                if !path.ends_with(SMALL) && amounts.1 > 0 {
                    prop_assert_eq!(before.get(&path), Some(&amounts), "{}", path);
                }
            }
        }

        #[test]
        fn a_bound_holds_and_sums_stay_exact(profile in profiles(), max in 9..40_usize) {
            let mut rest = profile.clone();
            prop_assert_eq!(bound(&mut rest, max, |_| false), profile.len() > max);
            // Each of the nine sets of labels keeps at least one stack.
            prop_assert!(rest.len() <= max, "{}", rest.len());
            prop_assert_eq!(rest.total(), profile.total());
            prop_assert_eq!(
                by_host(&rest, &Filter::default()),
                by_host(&profile, &Filter::default())
            );
        }
    }

    #[test]
    fn a_bound_holds_for_time_that_is_deep_in_one_stack() {
        let mut profile = Profile::default();
        for depth in 0..30 {
            let stack = profile.stack((0..depth).map(|_| Frame::function("nested", "/bin/a")));
            let (samples, cpu_ns) = (1, u64::from(depth == 29) * 1_000_000);
            let labels = profile.labels(&[(label::HOST, "a")]);
            profile.add(stack, labels, Weight { samples, cpu_ns });
        }
        let total = profile.total();
        assert!(bound(&mut profile, 10, |_| false));
        assert_eq!((profile.len(), profile.total()), (1, total));
    }

    #[test]
    fn a_profile_of_which_nothing_is_taken_is_empty() {
        let mut profile = Profile::default();
        let stack = profile.stack([Frame::function("main", "/bin/a")]);
        let labels = profile.labels(&[(label::SERVICE, "a")]);
        profile.add(
            stack,
            labels,
            Weight {
                samples: 1,
                cpu_ns: 5,
            },
        );
        let filter = Filter {
            labels: vec![(label::SERVICE.to_owned(), "b".to_owned())],
            function: None,
        };
        let rest = pruned(&taken(&profile, &filter, |_| true), PARTS, |_| true);
        assert_eq!((rest.len(), rest.stack_count()), (0, 0));
    }
}

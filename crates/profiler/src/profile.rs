//! A profile: stacks with labels, and how much processor time each took.
//!
//! Strings, frames, stacks and label sets are stored once each and named by ids. A stack is a node of a tree: its innermost frame,
//! and the stack that called it. So profiles are merged, and stacks with the same beginning stored, without copying frames.
//!
//! A sample counts twice: how often the stack was seen, and the processor time that stands for, which is what profiles of different
//! frequencies have in common.
//!
//! # Limits
//! Ids have 32 bits: up to four thousand million strings, frames, nodes and label sets in a profile.

use std::borrow::Cow;

use foldhash::fast::RandomState;

type IndexMap<K, V> = indexmap::IndexMap<K, V, RandomState>;
type IndexSet<T> = indexmap::IndexSet<T, RandomState>;

/// Names of labels that the tools know.
pub mod label {
    /// The name of the machine.
    pub const HOST: &str = "host";
    /// The service, where it says so: its systemd unit, or `OTEL_SERVICE_NAME`.
    pub const SERVICE: &str = "service";
    /// The container's id.
    pub const CONTAINER: &str = "container";
    /// The process's name.
    pub const PROCESS: &str = "process";
    /// The process's number.
    pub const PID: &str = "pid";
    /// The thread's name.
    pub const THREAD: &str = "thread";
    /// Millpond's pipeline.
    pub const PIPELINE: &str = "pipeline";
    /// The component of that pipeline.
    pub const OPERATOR: &str = "operator";

    /// All of them.
    pub const ALL: [&str; 8] = [
        HOST, SERVICE, CONTAINER, PROCESS, PID, THREAD, PIPELINE, OPERATOR,
    ];
}

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A frame of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(u32);

/// A stack of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(0);

    /// A number from 1 on, smaller than those of the stacks that it calls; 0 for the stack without frames.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// A number from 0 on.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of labels of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelsId(u32);

impl LabelsId {
    /// A number from 0 on.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A text of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Text(u32);

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// Code of the system's kernel.
    Kernel,
    /// Machine code of a file.
    Native,
    /// Code that an interpreter runs, or that was compiled while the program runs.
    Interpreted,
}

/// One function on a stack, or an address that nobody has a name for yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame<'a> {
    /// The function's name; empty where it is not known.
    pub function: Cow<'a, str>,
    /// The source file; empty where it is not known.
    pub file: Cow<'a, str>,
    /// The line in it; 0 where it is not known.
    pub line: u32,
    /// The file of the code, or a name in brackets: `[kernel]`, `[jvm]`, `[node]`, `[python]`; empty where it is not known.
    pub binary: Cow<'a, str>,
    /// The build id of that file, in hexadecimal; empty where it is not known.
    pub build_id: Cow<'a, str>,
    /// The address in that file, as its symbol table counts them; 0 where the function's name says enough.
    pub address: u64,
    /// Whether the compiler put the function into the next outer frame.
    pub is_inlined: bool,
}

impl<'a> Frame<'a> {
    /// A function of a binary.
    pub fn function(function: impl Into<Cow<'a, str>>, binary: impl Into<Cow<'a, str>>) -> Self {
        Self {
            function: function.into(),
            binary: binary.into(),
            ..Self::default()
        }
    }

    /// What it is, by its binary: a name in brackets other than `[kernel]` and `[vdso]` is an interpreter's.
    pub fn kind(&self) -> FrameKind {
        match &*self.binary {
            "[kernel]" => FrameKind::Kernel,
            "[vdso]" | "[vsyscall]" | "[unknown]" => FrameKind::Native,
            name if name.starts_with('[') => FrameKind::Interpreted,
            _ => FrameKind::Native,
        }
    }

    /// The function's name; for one that is not known the file's name and the address in it.
    pub fn name(&self) -> Cow<'_, str> {
        if !self.function.is_empty() {
            return Cow::Borrowed(&*self.function);
        }
        let binary = self.binary.rsplit('/').next().unwrap_or_default();
        match binary {
            "" => Cow::Owned(format!("[unknown] {:#x}", self.address)),
            binary => Cow::Owned(format!("{binary}+{:#x}", self.address)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FrameTexts {
    function: Text,
    file: Text,
    line: u32,
    binary: Text,
    build_id: Text,
    address: u64,
    is_inlined: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    caller: StackId,
    frame: FrameId,
}

/// How often something was seen, and the processor time that stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight {
    /// How often.
    pub samples: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
    }
}

/// When a profile was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// The beginning, in nanoseconds since 1970.
    pub start_ns: i64,
    /// How long it was recorded, in nanoseconds.
    pub duration_ns: u64,
}

impl Window {
    /// The end, in nanoseconds since 1970.
    pub fn end_ns(&self) -> i64 {
        self.start_ns
            .saturating_add(i64::try_from(self.duration_ns).unwrap_or(i64::MAX))
    }

    /// The window from the earlier beginning to the later end. An empty one says nothing.
    pub fn join(self, other: Self) -> Self {
        match (self.duration_ns, other.duration_ns) {
            (_, 0) => self,
            (0, _) => other,
            _ => {
                let start_ns = self.start_ns.min(other.start_ns);
                let end_ns = self.end_ns().max(other.end_ns());
                Self {
                    start_ns,
                    duration_ns: end_ns.abs_diff(start_ns),
                }
            }
        }
    }
}

/// Stacks with labels, and how much processor time each took.
#[derive(Debug, Clone)]
pub struct Profile {
    texts: IndexSet<Box<str>>,
    frames: IndexSet<FrameTexts>,
    /// The stack with number `n` is the node `n - 1`.
    nodes: IndexSet<Node>,
    labels: IndexSet<Box<[(Text, Text)]>>,
    samples: IndexMap<(StackId, LabelsId), Weight>,
    events: IndexMap<LabelsId, u64>,
    /// When it was taken; of a merged one, from the first beginning to the last end.
    pub window: Window,
    /// How often a second each core was sampled; of a merged one, that of the first. Processor times are right all the same.
    pub frequency_hz: f64,
    /// Samples that were lost while it was recorded.
    pub lost: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            texts: IndexSet::default(),
            frames: IndexSet::default(),
            nodes: IndexSet::default(),
            labels: IndexSet::default(),
            samples: IndexMap::default(),
            events: IndexMap::default(),
            window: Window::default(),
            frequency_hz: 0.0,
            lost: 0,
        }
    }
}

/// The number of an element of a set, which it gets where it is new.
fn number<T: std::hash::Hash + Eq>(set: &mut IndexSet<T>, element: T) -> u32 {
    u32::try_from(set.insert_full(element).0).expect("fewer than 2^32 elements")
}

impl Profile {
    /// An empty one.
    pub fn new(window: Window, frequency_hz: f64) -> Self {
        Self {
            window,
            frequency_hz,
            ..Self::default()
        }
    }

    fn text(&mut self, text: &str) -> Text {
        match self.texts.get_index_of(text) {
            Some(index) => Text(index as u32),
            None => Text(number(&mut self.texts, text.into())),
        }
    }

    fn resolve(&self, Text(index): Text) -> &str {
        &self.texts[index as usize]
    }

    /// The id of a frame.
    pub fn frame(&mut self, frame: &Frame<'_>) -> FrameId {
        let texts = FrameTexts {
            function: self.text(&frame.function),
            file: self.text(&frame.file),
            line: frame.line,
            binary: self.text(&frame.binary),
            build_id: self.text(&frame.build_id),
            address: frame.address,
            is_inlined: frame.is_inlined,
        };
        FrameId(number(&mut self.frames, texts))
    }

    /// The id of the stack with `frame` called from `caller`.
    pub fn call(&mut self, caller: StackId, frame: FrameId) -> StackId {
        StackId(number(&mut self.nodes, Node { caller, frame }) + 1)
    }

    /// The id of a stack, its frames from the outermost to the innermost.
    pub fn stack<'a>(&mut self, frames: impl IntoIterator<Item = Frame<'a>>) -> StackId {
        frames.into_iter().fold(StackId::EMPTY, |caller, frame| {
            let frame = self.frame(&frame);
            self.call(caller, frame)
        })
    }

    /// The id of a set of labels. Of several values of a name the last one counts; an empty value is none.
    pub fn labels(&mut self, labels: &[(&str, &str)]) -> LabelsId {
        let mut set: Vec<(Text, Text)> = Vec::with_capacity(labels.len());
        for (name, value) in labels {
            let name = self.text(name);
            set.retain(|(known, _)| *known != name);
            if !value.is_empty() {
                set.push((name, self.text(value)));
            }
        }
        // By name, not by number: the same set is the same in whatever order it came.
        set.sort_by(|(one, _), (other, _)| self.resolve(*one).cmp(self.resolve(*other)));
        LabelsId(number(&mut self.labels, set.into()))
    }

    /// Counts a stack.
    pub fn add(&mut self, stack: StackId, labels: LabelsId, weight: Weight) {
        *self.samples.entry((stack, labels)).or_default() += weight;
    }

    /// Every stack with every set of labels that it was seen with, in the order in which they came.
    pub fn samples(&self) -> impl Iterator<Item = (StackId, LabelsId, Weight)> {
        let samples = self.samples.iter();
        samples.map(|((stack, labels), weight)| (*stack, *labels, *weight))
    }

    /// The same in an order in which each stack begins like the one before, as far as can be: by labels, then as in the tree of the stacks.
    pub fn in_order(&self) -> Vec<(StackId, LabelsId, Weight)> {
        let places = self.places_in_tree();
        let mut samples: Vec<_> = self.samples().collect();
        samples.sort_unstable_by_key(|(stack, labels, _)| (*labels, places[stack.index()]));
        samples
    }

    /// For each stack its place in the tree: behind that of its caller, and before the next stack of that caller.
    pub(crate) fn places_in_tree(&self) -> Vec<u32> {
        const NONE: u32 = 0;
        let count = self.nodes.len() + 1;
        let (mut first_called, mut next) = (vec![NONE; count], vec![NONE; count]);
        // The last one is put in front first.
        for number in (1..count).rev() {
            let caller = self.nodes[number - 1].caller.index();
            next[number] = first_called[caller];
            first_called[caller] = number as u32;
        }
        let mut places = vec![0; count];
        let (mut place, mut waiting) = (0, vec![first_called[0]]);
        while let Some(stack) = waiting.pop() {
            if stack != NONE {
                place += 1;
                places[stack as usize] = place;
                waiting.extend([next[stack as usize], first_called[stack as usize]]);
            }
        }
        places
    }

    /// Counts log events that passed while the profile was recorded, under the labels of those who handled them.
    pub fn count_events(&mut self, labels: LabelsId, events: u64) {
        let known = self.events.entry(labels).or_default();
        *known = known.saturating_add(events);
    }

    /// How many log events passed, by who handled them.
    pub fn events(&self) -> impl Iterator<Item = (LabelsId, u64)> {
        self.events
            .iter()
            .map(|(labels, events)| (*labels, *events))
    }

    /// A part: the events of sets of labels, and samples.
    pub fn part(
        &self,
        takes_events: impl Fn(LabelsId) -> bool,
        takes: impl Fn(StackId, LabelsId) -> bool,
    ) -> Self {
        self.relabelled(takes_events, takes, |set| self.labels_of(set).collect())
    }

    /// The same with other labels in the place of each set.
    pub(crate) fn relabelled<'p>(
        &'p self,
        takes_events: impl Fn(LabelsId) -> bool,
        takes: impl Fn(StackId, LabelsId) -> bool,
        labels: impl Fn(LabelsId) -> Vec<(&'p str, &'p str)>,
    ) -> Self {
        let mut part = Self::new(self.window, self.frequency_hz);
        part.lost = self.lost;
        let copy = |part: &mut Self, set| part.labels(&labels(set));
        for (stack, labels, weight) in self.samples().filter(|it| takes(it.0, it.1)) {
            let mut frames: Vec<_> = self.frame_ids(stack).collect();
            frames.reverse();
            let frames = frames.into_iter().map(|frame| self.frame_of(frame));
            let stack = part.stack(frames);
            let labels = copy(&mut part, labels);
            part.add(stack, labels, weight);
        }
        for (labels, events) in self.events().filter(|it| takes_events(it.0)) {
            let labels = copy(&mut part, labels);
            part.count_events(labels, events);
        }
        part
    }

    /// How many distinct stacks with labels there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Everything that was seen.
    pub fn total(&self) -> Weight {
        let mut total = Weight::default();
        self.samples.values().for_each(|weight| total += *weight);
        total
    }

    /// A frame.
    pub fn frame_of(&self, FrameId(index): FrameId) -> Frame<'_> {
        let texts = self.frames[index as usize];
        Frame {
            function: self.resolve(texts.function).into(),
            file: self.resolve(texts.file).into(),
            line: texts.line,
            binary: self.resolve(texts.binary).into(),
            build_id: self.resolve(texts.build_id).into(),
            address: texts.address,
            is_inlined: texts.is_inlined,
        }
    }

    /// How many distinct frames there are; their ids count from 0.
    pub fn frames(&self) -> impl Iterator<Item = (FrameId, Frame<'_>)> {
        let ids = (0..self.frames.len()).map(|index| FrameId(index as u32));
        ids.map(|id| (id, self.frame_of(id)))
    }

    /// How many stacks there are, those that only call others included; their numbers count from 1.
    pub fn stack_count(&self) -> usize {
        self.nodes.len()
    }

    /// The stacks, those that only call others included: callers come before what they call.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        (1..=self.nodes.len()).map(|number| StackId(number as u32))
    }

    /// The sets of labels.
    pub fn label_sets(&self) -> impl Iterator<Item = LabelsId> {
        (0..self.labels.len()).map(|index| LabelsId(index as u32))
    }

    /// The innermost frame of a stack, and the stack that called it; none for the empty one.
    pub fn split(&self, StackId(number): StackId) -> Option<(FrameId, StackId)> {
        let node = self.nodes.get_index((number as usize).checked_sub(1)?)?;
        Some((node.frame, node.caller))
    }

    /// The frames of a stack, from the innermost to the outermost.
    pub fn frame_ids(&self, stack: StackId) -> impl Iterator<Item = FrameId> {
        let mut rest = stack;
        std::iter::from_fn(move || {
            let (frame, caller) = self.split(rest)?;
            rest = caller;
            Some(frame)
        })
    }

    /// The labels of a set, by their names in ascending order.
    pub fn labels_of(&self, LabelsId(index): LabelsId) -> impl Iterator<Item = (&str, &str)> {
        let set = self.labels[index as usize].iter();
        set.map(|(name, value)| (self.resolve(*name), self.resolve(*value)))
    }

    /// The value of a label in a set.
    pub fn label_of(&self, labels: LabelsId, name: &str) -> Option<&str> {
        let mut set = self.labels_of(labels);
        set.find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Adds what another profile has. `keep` says which labels it keeps.
    pub fn merge(&mut self, other: &Self, keep: impl Fn(&str) -> bool) {
        let frames: Vec<FrameId> = other
            .frames()
            .map(|(_, frame)| self.frame(&frame))
            .collect();
        let mut stacks = vec![StackId::EMPTY];
        for node in &other.nodes {
            // Callers come before what they call.
            let caller = stacks[node.caller.index()];
            stacks.push(self.call(caller, frames[node.frame.0 as usize]));
        }
        let mut labels = Vec::with_capacity(other.labels.len());
        for index in 0..other.labels.len() {
            let set = other.labels_of(LabelsId(index as u32));
            let set: Vec<_> = set.filter(|(name, _)| keep(name)).collect();
            labels.push(self.labels(&set));
        }
        for (stack, set, weight) in other.samples() {
            self.add(stacks[stack.index()], labels[set.0 as usize], weight);
        }
        for (set, events) in other.events() {
            self.count_events(labels[set.index()], events);
        }
        if self.frequency_hz == 0.0 {
            self.frequency_hz = other.frequency_hz;
        }
        self.window = self.window.join(other.window);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(samples: u64) -> Weight {
        Weight {
            samples,
            cpu_ns: samples * SECOND_NS / 20,
        }
    }

    fn text(profile: &Profile) -> Vec<String> {
        let line = |(stack, labels, weight): (StackId, LabelsId, Weight)| {
            let mut names: Vec<String> = profile
                .frame_ids(stack)
                .map(|frame| profile.frame_of(frame).name().into_owned())
                .collect();
            names.reverse();
            let labels: Vec<String> = profile
                .labels_of(labels)
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let (names, labels) = (names.join(";"), labels.join(","));
            format!("{names} {} {labels}", weight.samples)
        };
        profile.samples().map(line).collect()
    }

    fn example() -> Profile {
        let mut profile = Profile::new(Window::default(), 20.0);
        let main = Frame::function("main", "/bin/a");
        let work = Frame::function("work", "/bin/a");
        let host = profile.labels(&[("thread", "t"), ("host", "h")]);
        let outer = profile.stack([main.clone()]);
        let inner = profile.stack([main, work]);
        profile.add(inner, host, weight(3));
        profile.add(outer, host, weight(1));
        profile.add(inner, host, weight(2));
        profile
    }

    #[test]
    fn equal_stacks_count_together() {
        let profile = example();
        assert_eq!(
            text(&profile),
            ["main;work 5 host=h,thread=t", "main 1 host=h,thread=t"]
        );
        assert_eq!(profile.total().samples, 6);
        assert_eq!(profile.stack_count(), 2);
    }

    #[test]
    fn merging_adds_and_leaves_labels_out() {
        let mut merged = example();
        let mut other = Profile::new(
            Window {
                start_ns: 5,
                duration_ns: 10,
            },
            100.0,
        );
        let stack = other.stack([Frame::function("main", "/bin/a"), Frame::default()]);
        let labels = other.labels(&[("host", "i"), ("pid", "7")]);
        other.add(stack, labels, weight(4));
        other.merge(&example(), |_| true);
        merged.merge(&other, |name| name == "host");
        assert_eq!(
            text(&merged),
            [
                "main;work 5 host=h,thread=t",
                "main 1 host=h,thread=t",
                "main;[unknown] 0x0 4 host=i",
                "main;work 5 host=h",
                "main 1 host=h",
            ]
        );
        assert_eq!(merged.frequency_hz, 20.0);
        assert_eq!(merged.window.start_ns, 5);
        let whole = [
            Window {
                start_ns: 20,
                duration_ns: 5,
            },
            Window {
                start_ns: 3,
                duration_ns: 4,
            },
            Window::default(),
        ];
        let joined = whole.into_iter().fold(Window::default(), Window::join);
        assert_eq!((joined.start_ns, joined.end_ns()), (3, 25));
    }

    #[test]
    fn an_order_has_alike_stacks_together() {
        let mut profile = Profile::default();
        let sets = ["x", "y"].map(|host| profile.labels(&[("host", host)]));
        for (stack, set) in [
            ("ab", 0),
            ("cd", 1),
            ("a", 0),
            ("ae", 0),
            ("cd", 0),
            ("abf", 0),
            ("a", 1),
        ] {
            let frames = stack
                .chars()
                .map(|name| Frame::function(name.to_string(), ""));
            let stack = profile.stack(frames);
            profile.add(stack, sets[set], weight(1));
        }
        let name = |(stack, labels, _): (StackId, LabelsId, Weight)| {
            let frames = profile.frame_ids(stack);
            let mut names: Vec<String> = frames
                .map(|frame| profile.frame_of(frame).name().into_owned())
                .collect();
            names.reverse();
            format!("{}{}", names.concat(), labels.index())
        };
        let names: Vec<String> = profile.in_order().into_iter().map(name).collect();
        assert_eq!(names, ["a0", "ab0", "abf0", "ae0", "cd0", "a1", "cd1"]);
    }

    #[test]
    fn labels_are_sets() {
        let mut profile = Profile::default();
        let one = profile.labels(&[("a", "1"), ("b", "2")]);
        let other = profile.labels(&[("b", "2"), ("a", "0"), ("c", ""), ("a", "1")]);
        assert_eq!(one, other);
        assert_eq!(profile.label_of(one, "b"), Some("2"));
        assert_eq!(profile.label_of(one, "c"), None);
    }

    #[test]
    fn frames_have_names_and_kinds() {
        let frame = |binary: &'static str| Frame {
            binary: binary.into(),
            address: 0x1f,
            ..Frame::default()
        };
        for (binary, name, kind) in [
            ("/usr/lib/libc.so.6", "libc.so.6+0x1f", FrameKind::Native),
            ("", "[unknown] 0x1f", FrameKind::Native),
            ("[kernel]", "[kernel]+0x1f", FrameKind::Kernel),
            ("[vdso]", "[vdso]+0x1f", FrameKind::Native),
            ("[jvm]", "[jvm]+0x1f", FrameKind::Interpreted),
        ] {
            assert_eq!(frame(binary).name(), name);
            assert_eq!(frame(binary).kind(), kind, "{binary}");
        }
    }
}

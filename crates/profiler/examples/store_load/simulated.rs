//! Hosts whose stacks are made up: programs with call graphs, of which each host walks its own paths.

use std::collections::HashSet;

use profiler::profile::{
    Frame, FrameId, LabelsId, Profile, SECOND_NS, StackId, Weight, Window, label,
};

/// Programs that the hosts of a fleet run.
const PROGRAMS: u64 = 60;
/// Of these so many run on one host.
const PROGRAMS_OF_HOST: u64 = 20;
/// Functions of a program that samples can meet.
const FUNCTIONS: u64 = 800;
/// Files of code that all programs share.
const LIBRARIES: u64 = 12;
/// The kernel's functions.
const KERNEL: u64 = u64::MAX;

const WORDS: [&str; 24] = [
    "buffer", "request", "poll", "decode", "insert", "hash", "flush", "index", "merge", "session",
    "parse", "writer", "cache", "lookup", "schedule", "commit", "segment", "compress", "visit",
    "allocate", "token", "router", "filter", "encode",
];

/// Random numbers that are the same for the same seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 until before 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn hash(numbers: [u64; 3]) -> u64 {
    numbers.iter().fold(0x517C_C1B7, |sum, number| {
        mix(sum ^ number.wrapping_mul(0x2127_599B_F432_5C37))
    })
}

/// A function: its program, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Function {
    program: u64,
    number: u64,
}

impl Function {
    /// What it calls at one of its places. Most functions on a stack have one place from which they call on.
    fn call(self, random: &mut Random) -> (Self, u32) {
        let shape = hash([self.program, self.number, 1]);
        let places = if shape % 10 < 8 { 1 } else { 2 + shape % 7 };
        let mut place = 0;
        // Each place is half as likely as the one before.
        while place + 1 < places && random.below(2) == 0 {
            place += 1;
        }
        let number = hash([self.program, self.number, 2 + place]) % FUNCTIONS;
        let callee = Self {
            program: self.program,
            number,
        };
        (callee, (shape % 900) as u32 + 7 * place as u32)
    }

    fn name(self) -> String {
        let of = self.owner();
        let word = |salt| WORDS[(hash([of, self.number, salt]) % WORDS.len() as u64) as usize];
        let (one, two, three) = (word(11), word(12), word(13));
        match (of, of % 3) {
            (KERNEL, _) => format!("__{one}_{two}_{:x}", self.number),
            (_, 0) => format!(
                "service{of}::{one}::{two}::Worker{:x}::{three}",
                self.number
            ),
            (_, 1) => format!(
                "std::__1::{one}_{two}<unsigned char, std::allocator<unsigned char>>::{three}_{:x}",
                self.number
            ),
            _ => format!("{one}_{two}_{three}_{:x}", self.number),
        }
    }

    /// The program or library that it is of: a third of what programs run is of libraries.
    fn owner(self) -> u64 {
        match hash([self.program, self.number, 3]) % 3 {
            0 if self.program != KERNEL => 1_000_000 + self.number % LIBRARIES,
            _ => self.program,
        }
    }

    fn frame(self, line: u32) -> Frame<'static> {
        let owner = self.owner();
        let (binary, build_id) = match owner {
            KERNEL => ("[kernel]".to_owned(), String::new()),
            _ if owner >= 1_000_000 => (
                format!("/usr/lib/x86_64-linux-gnu/libshared{owner}.so.6"),
                format!("{:040x}", mix(owner)),
            ),
            _ => (
                format!("/usr/bin/program-{owner}"),
                format!("{:040x}", mix(owner)),
            ),
        };
        Frame {
            line,
            file: format!(
                "src/{}/{}.c",
                WORDS[(owner % 24) as usize],
                self.number / 20
            )
            .into(),
            build_id: build_id.into(),
            ..Frame::function(self.name(), binary)
        }
    }
}

/// The stacks of a host for a day, and how often each is sampled then.
#[derive(Debug)]
pub struct Host {
    pub name: String,
    /// Stacks and labels, without samples.
    base: Profile,
    samples: Vec<(StackId, LabelsId)>,
    /// How often each is sampled in a second.
    rates: Vec<f64>,
}

impl Host {
    /// A host with so many distinct stacks, and so many samples a second.
    pub fn new(number: u64, stacks: usize, samples_a_second: f64) -> Self {
        let mut host = Self {
            name: format!("host-{number:03}"),
            base: Profile::default(),
            samples: Vec::with_capacity(stacks),
            rates: Vec::new(),
        };
        let mut random = Random(number.wrapping_mul(7919) + 1);
        let labels = host.label_sets(number, &mut random);
        let mut known = HashSet::new();
        while host.samples.len() < stacks {
            let chosen = (random.part() * random.part() * labels.len() as f64) as usize;
            let (program, labels) = labels[chosen];
            let stack = host.walk(program, &mut random);
            if known.insert((stack, labels)) {
                host.samples.push((stack, labels));
            }
        }
        // As often as 1 / (rank + 20): the first thousand of 50,000 have half of the samples.
        let shares: Vec<f64> = (0..stacks).map(|rank| 1.0 / (rank as f64 + 20.0)).collect();
        let sum: f64 = shares.iter().sum();
        host.rates = shares
            .into_iter()
            .map(|share| share / sum * samples_a_second)
            .collect();
        host
    }

    /// Sets of labels with their programs: five to thirteen threads of each process.
    fn label_sets(&mut self, number: u64, random: &mut Random) -> Vec<(u64, LabelsId)> {
        let mut sets = Vec::new();
        for _ in 0..PROGRAMS_OF_HOST {
            let program = random.below(PROGRAMS);
            let container = match program % 2 {
                0 => format!("{:064x}", u128::from(hash([number, program, 5])).pow(2)),
                _ => String::new(),
            };
            for thread in 0..5 + random.below(9) {
                let labels = [
                    (label::HOST, &*self.name),
                    (label::SERVICE, &*format!("service-{program}")),
                    (label::CONTAINER, &*container),
                    (label::PROCESS, &*format!("program-{program}")),
                    (
                        label::THREAD,
                        &*format!("{}-{thread}", WORDS[(program % 24) as usize]),
                    ),
                ];
                sets.push((program, self.base.labels(&labels)));
            }
        }
        sets
    }

    fn walk(&mut self, program: u64, random: &mut Random) -> StackId {
        // 10 to 60 frames, 35 of them on average, of which a third of the stacks have some of the kernel.
        let depth = 10 + random.below(26) + random.below(26);
        let in_kernel = if random.below(3) == 0 {
            3 + random.below(6)
        } else {
            0
        };
        let mut function = Function { program, number: 0 };
        let mut stack = StackId::EMPTY;
        for level in 0..depth {
            if level + in_kernel == depth {
                function = Function {
                    program: KERNEL,
                    number: 0,
                };
            }
            let (callee, line) = function.call(random);
            let frame = self.frame(function, line);
            stack = self.base.call(stack, frame);
            function = callee;
        }
        stack
    }

    fn frame(&mut self, function: Function, line: u32) -> FrameId {
        self.base.frame(&function.frame(line))
    }

    /// What a profile of so many seconds from `start_ns` on holds; `seed` is another one for each.
    pub fn profile(&self, start_ns: i64, seconds: u64, frequency_hz: f64, seed: u64) -> Profile {
        let window = Window {
            start_ns,
            duration_ns: seconds * SECOND_NS,
        };
        let mut random = Random(seed);
        let mut profile = Profile::new(window, frequency_hz);
        let mut frames = vec![None; self.base.frames().count()];
        let mut stacks = vec![None; self.base.stack_count() + 1];
        stacks[0] = Some(StackId::EMPTY);
        let sets = self
            .base
            .label_sets()
            .map(|set| profile.labels(&self.base.labels_of(set).collect::<Vec<_>>()));
        let sets: Vec<LabelsId> = sets.collect();
        // As they come: in no order.
        let first = random.below(self.samples.len() as u64) as usize;
        for step in 0..self.samples.len() {
            let index = (first + step * 7919) % self.samples.len();
            let expected = self.rates[index] * seconds as f64;
            let samples = expected as u64 + u64::from(random.part() < expected.fract());
            if samples == 0 {
                continue;
            }
            let (stack, labels) = self.samples[index];
            let stack = copied(&self.base, stack, &mut profile, &mut frames, &mut stacks);
            let cpu_ns = (samples as f64 * SECOND_NS as f64 / frequency_hz) as u64;
            profile.add(stack, sets[labels.index()], Weight { samples, cpu_ns });
        }
        profile
    }
}

/// A stack of `from` in `to`, with what is known of earlier ones.
fn copied(
    from: &Profile,
    stack: StackId,
    to: &mut Profile,
    frames: &mut [Option<FrameId>],
    stacks: &mut [Option<StackId>],
) -> StackId {
    let mut missing = Vec::new();
    let mut rest = stack;
    let mut copy = loop {
        if let Some(copy) = stacks[rest.index()] {
            break copy;
        }
        let Some((frame, caller)) = from.split(rest) else {
            break StackId::EMPTY;
        };
        missing.push((rest, frame));
        rest = caller;
    };
    for (stack, frame) in missing.into_iter().rev() {
        let frame = *frames[frame.index()].get_or_insert_with(|| to.frame(&from.frame_of(frame)));
        copy = to.call(copy, frame);
        stacks[stack.index()] = Some(copy);
    }
    copy
}

//! What to look at: rules that know functions of certain kinds in real programs, and how much time such functions take.
//!
//! A rule is no proof: it says which kind of work takes time, where that is known to be worth a look, and how to verify it.
//!
//! Names fit a rule as a whole, or by their beginning where the pattern ends with a `*`. What compilers and demanglers put around
//! names plays no role: `<T as serde_json::Read>::next`, `_int_malloc.constprop.0`, `void v8::internal::Heap::f(int)` and
//! `Ljava/util/regex/Pattern;::matcher` are known by their paths. Names within generic arguments do not count.

mod rules;

use std::collections::HashMap;

use crate::filter::Filter;
use crate::profile::{Frame, FrameId, FrameKind, Profile, Weight};

pub use rules::{Kind, Rule, rules};

/// The smallest share of all processor time that is a finding.
pub const SHARE_MIN: f64 = 0.01;

/// The most functions that a finding names.
pub const FUNCTIONS_MAX: usize = 10;

/// A kind of work that takes much time.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What it is, and what to look at.
    pub rule: &'static Rule,
    /// The share of all time, from 0 to 1, in which such a function was the innermost.
    pub own_share: f64,
    /// The share of all time in which such a function was on the stack.
    pub total_share: f64,
    /// The functions, each with the share in which it was the innermost one of its rule; the costliest first.
    pub functions: Vec<(String, f64)>,
}

/// The rule for a function.
pub fn of(frame: &Frame<'_>) -> Option<&'static Rule> {
    of_names(&frame.function, &frame.binary)
}

/// The rule for a function of that name and binary, as rows of a table have them.
pub fn of_names(function: &str, binary: &str) -> Option<&'static Rule> {
    rules().get(number_of(function, binary)?)
}

/// The number of the rule for a function.
fn number_of(function: &str, binary: &str) -> Option<usize> {
    let binary = binary.rsplit('/').next().unwrap_or_default();
    let paths = paths(function).map(|path| (path, plain(path)));
    let is_known = |rule: &Rule| {
        let mut patterns = rule.patterns.iter();
        let mut binaries = rule.binaries.iter();
        let is_path = |pattern: &str| paths.iter().any(|(path, plain)| fits(pattern, path, plain));
        patterns.any(|pattern| is_path(pattern))
            || binaries.any(|pattern| fits(pattern, binary, binary))
    };
    rules().iter().position(is_known)
}

/// Whether a name begins as a pattern says, or is it as a whole.
fn fits(pattern: &str, name: &str, plain: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => plain == pattern,
    }
}

/// A name without what linkers and compilers put behind it, and without arguments.
fn plain(name: &str) -> &str {
    let ends = [
        ".constprop.",
        ".isra.",
        ".part.",
        ".cold",
        "@",
        "(",
        " [clone",
    ];
    let ends = ends.iter().filter_map(|end| name.find(end));
    &name[..ends.min().unwrap_or(name.len())]
}

/// The paths that a name begins with: its own, and that of the trait it belongs to.
fn paths(name: &str) -> [&str; 2] {
    let starts = ["__GI_", "void ", "bool ", "int "];
    let stripped = starts.iter().find_map(|start| name.strip_prefix(start));
    let mut own = stripped.unwrap_or(name);
    if own.contains(";::") {
        // A method of a Java class, as maps of compiled code have it.
        own = own.strip_prefix('L').unwrap_or(own);
    }
    let decoration = ['<', '&', '*', '[', '('];
    let is_qualified = own.starts_with('<');
    let own = own.trim_start_matches(decoration);
    let own = own.strip_prefix("mut ").unwrap_or(own);
    let own = own.strip_prefix("dyn ").unwrap_or(own);
    let of_trait = own.split_once(" as ").filter(|_| is_qualified);
    [own, of_trait.map_or(own, |(_, path)| path)]
}

/// The kinds of work that take at least [`SHARE_MIN`] of the time of the samples that a filter takes, as [`Summary::findings`] gives them.
pub fn summary(profile: &Profile, filter: &Filter) -> Vec<Finding> {
    Summary::of(profile, filter).findings()
}

/// What the kinds of work take in any number of profiles. A sample counts once for each rule, for the innermost of its functions that the rule
/// knows. The rule of the kernel has what no other rule knows of the kernel: a page fault is no system call that could be saved by a larger buffer.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    all: Weight,
    /// Of each rule; none before there is a profile.
    of_rules: Vec<RuleSum<String>>,
}

/// What the functions of a rule took.
#[derive(Debug, Clone)]
struct RuleSum<F> {
    own: Weight,
    total: Weight,
    /// By the innermost function that the rule knows.
    functions: HashMap<F, Weight>,
}

impl<F> Default for RuleSum<F> {
    fn default() -> Self {
        Self {
            own: Weight::default(),
            total: Weight::default(),
            functions: HashMap::new(),
        }
    }
}

impl Summary {
    /// Of the samples of a profile that a filter takes.
    pub fn of(profile: &Profile, filter: &Filter) -> Self {
        let mut sums = Sums::new(profile);
        let matching = filter.of(profile);
        let mut weights = vec![Weight::default(); profile.stack_count() + 1];
        let mut all = Weight::default();
        for (stack, labels, weight) in profile.samples() {
            if matching.takes(stack, labels) {
                weights[stack.index()] += weight;
                all += weight;
            }
        }
        let mut frames = Vec::new();
        for stack in profile.stacks() {
            let weight = weights[stack.index()];
            if weight != Weight::default() {
                frames.clear();
                frames.extend(profile.frame_ids(stack));
                sums.count(&frames, weight);
            }
        }
        let sums = sums.of_rules.into_iter();
        Self {
            all,
            of_rules: sums.map(|sum| named(profile, sum)).collect(),
        }
    }

    /// Adds what was found in other profiles.
    pub fn add(&mut self, other: Self) {
        self.all += other.all;
        self.of_rules.resize_with(rules().len(), RuleSum::default);
        for (sum, other) in self.of_rules.iter_mut().zip(other.of_rules) {
            sum.own += other.own;
            sum.total += other.total;
            for (name, weight) in other.functions {
                *sum.functions.entry(name).or_default() += weight;
            }
        }
    }

    /// The kinds of work that take at least [`SHARE_MIN`] of all time, the costliest first.
    pub fn findings(&self) -> Vec<Finding> {
        let all = self.all;
        let share = |weight: Weight| match all.cpu_ns {
            // Without processor time samples count.
            0 => weight.samples as f64 / all.samples.max(1) as f64,
            cpu_ns => weight.cpu_ns as f64 / cpu_ns as f64,
        };
        let mut findings = Vec::new();
        for (rule, sum) in rules().iter().zip(&self.of_rules) {
            if share(sum.total) >= SHARE_MIN {
                findings.push(Finding {
                    rule,
                    own_share: share(sum.own),
                    total_share: share(sum.total),
                    functions: functions(sum, share),
                });
            }
        }
        findings.sort_by(|one, other| other.total_share.total_cmp(&one.total_share));
        findings
    }
}

fn named(profile: &Profile, sum: RuleSum<FrameId>) -> RuleSum<String> {
    let mut functions: HashMap<String, Weight> = HashMap::new();
    for (frame, weight) in sum.functions {
        let name = profile.frame_of(frame).name().into_owned();
        *functions.entry(name).or_default() += weight;
    }
    RuleSum {
        own: sum.own,
        total: sum.total,
        functions,
    }
}

fn functions(sum: &RuleSum<String>, share: impl Fn(Weight) -> f64) -> Vec<(String, f64)> {
    let functions = sum.functions.iter();
    let mut functions: Vec<_> = functions
        .map(|(name, weight)| (name.clone(), share(*weight)))
        .collect();
    functions.sort_by(|(one, one_share), (other, other_share)| {
        other_share
            .total_cmp(one_share)
            .then_with(|| one.cmp(other))
    });
    functions.truncate(FUNCTIONS_MAX);
    functions
}

/// Whether it is the rule of all that the kernel does.
fn is_kernel(rule: usize) -> bool {
    rules()[rule].kind == Kind::Kernel
}

#[derive(Debug)]
struct Sums {
    /// The rule of each frame.
    rule_of: Vec<Option<usize>>,
    /// Which frames are code of the kernel that a rule other than the kernel's knows.
    is_known_kernel: Vec<bool>,
    of_rules: Vec<RuleSum<FrameId>>,
    /// The number of the stack in which each rule was seen last.
    seen_in: Vec<usize>,
    stacks: usize,
}

impl Sums {
    fn new(profile: &Profile) -> Self {
        let frames = profile.frames();
        let rule_of: Vec<Option<usize>> = frames
            .map(|(_, frame)| number_of(&frame.function, &frame.binary))
            .collect();
        let is_known_kernel = |((_, frame), rule): ((_, Frame<'_>), &Option<usize>)| {
            frame.kind() == FrameKind::Kernel && rule.is_some_and(|rule| !is_kernel(rule))
        };
        Self {
            is_known_kernel: profile
                .frames()
                .zip(&rule_of)
                .map(is_known_kernel)
                .collect(),
            rule_of,
            of_rules: rules().iter().map(|_| RuleSum::default()).collect(),
            seen_in: vec![0; rules().len()],
            stacks: 0,
        }
    }

    /// Counts a stack, its frames from the innermost on.
    fn count(&mut self, frames: &[FrameId], weight: Weight) {
        self.stacks += 1;
        let is_known = frames
            .iter()
            .any(|frame| self.is_known_kernel[frame.index()]);
        for (depth, frame) in frames.iter().enumerate() {
            let Some(rule) = self.rule_of[frame.index()] else {
                continue;
            };
            if self.seen_in[rule] == self.stacks || is_known && is_kernel(rule) {
                continue;
            }
            self.seen_in[rule] = self.stacks;
            let sum = &mut self.of_rules[rule];
            sum.total += weight;
            if depth == 0 {
                sum.own += weight;
            }
            *sum.functions.entry(*frame).or_default() += weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_real_programs_are_known() {
        for (function, binary, expected) in [
            ("deflate_medium", "/lib/libfoo.so", Some("Compression")),
            (
                "zlib_rs::deflate::algorithm::medium::deflate_medium",
                "",
                Some("Compression"),
            ),
            ("ZSTD_compressBlock_fast_extDict", "", Some("Compression")),
            ("HUF_decompress4X1", "", Some("Compression")),
            (
                "lz4_flex::block::compress::compress_internal",
                "",
                Some("Compression"),
            ),
            (
                "",
                "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13",
                Some("Compression"),
            ),
            (
                "compress/flate.(*compressor).deflate",
                "/bin/app",
                Some("Compression"),
            ),
            (
                "Ljava/util/zip/Deflater;::deflate",
                "[jit]",
                Some("Compression"),
            ),
            ("sha256_block_data_order", "", Some("Cryptography")),
            (
                "ring_core_0_17_14__x25519_fe_isnegative",
                "",
                Some("Cryptography"),
            ),
            (
                "<ring::aead::Algorithm as core::fmt::Debug>::fmt",
                "",
                Some("Cryptography"),
            ),
            ("crypto/sha256.block", "", Some("Cryptography")),
            ("", "/usr/lib/libcrypto.so.3", Some("Cryptography")),
            ("alloc::string::String::push", "", None),
            (
                "<core::hash::sip::Hasher<S> as core::hash::Hasher>::write",
                "",
                Some("Hashing"),
            ),
            ("XXH3_64bits_withSeed", "", Some("Hashing")),
            ("runtime.memhash64", "", Some("Hashing")),
            (
                "std::_Hash_bytes(void const*, unsigned long, unsigned long)",
                "",
                Some("Hashing"),
            ),
            (
                "G1ParScanThreadState::trim_queue_to_threshold(unsigned int)",
                "libjvm.so",
                Some("Garbage collection of the JVM"),
            ),
            (
                "ZMark::mark_and_follow(ZMarkContext*, ZMarkStackEntry)",
                "libjvm.so",
                Some("Garbage collection of the JVM"),
            ),
            (
                "PSPromotionManager::drain_stacks_depth(bool)",
                "libjvm.so",
                Some("Garbage collection of the JVM"),
            ),
            (
                "runtime.gcBgMarkWorker",
                "",
                Some("Garbage collection of Go"),
            ),
            (
                "runtime.(*sweepLocked).sweep",
                "",
                Some("Garbage collection of Go"),
            ),
            (
                "void v8::internal::Scavenger::RootScavengeVisitor::f(int)",
                "node",
                Some("Garbage collection of V8"),
            ),
            (
                "gc_collect_main",
                "libpython3.11.so.1.0",
                Some("Garbage collection of Python"),
            ),
            ("malloc", "/usr/lib/libc.so.6", Some("Allocation")),
            ("__libc_malloc@@GLIBC_2.2.5", "", Some("Allocation")),
            ("unlink_chunk.constprop.0", "libc.so.6", Some("Allocation")),
            ("__GI___libc_free", "", Some("Allocation")),
            ("operator new(unsigned long)", "", Some("Allocation")),
            ("mi_heap_malloc_aligned", "", Some("Allocation")),
            ("_rjem_je_tcache_bin_flush_small", "", Some("Allocation")),
            ("_PyObject_Malloc", "", Some("Allocation")),
            ("free_all_things", "/bin/app", None),
            ("runtime.mallocgc", "", Some("Allocation in Go")),
            ("runtime.growslice", "", Some("Allocation in Go")),
            ("asm_exc_page_fault", "[kernel]", Some("Page faults")),
            ("clear_page_erms", "[kernel]", Some("Page faults")),
            (
                "native_queued_spin_lock_slowpath",
                "[kernel]",
                Some("Locks"),
            ),
            ("__x64_sys_futex", "[kernel]", Some("Locks")),
            ("___pthread_mutex_lock", "libc.so.6", Some("Locks")),
            (
                "parking_lot::raw_mutex::RawMutex::lock_slow",
                "",
                Some("Locks"),
            ),
            ("sync.(*Mutex).lockSlow", "", Some("Locks")),
            (
                "<regex_automata::meta::strategy::Core as regex_automata::Strategy>::search",
                "",
                Some("Regular expressions"),
            ),
            ("pcre2_match_8", "", Some("Regular expressions")),
            (
                "match",
                "/usr/lib/libpcre2-8.so.0",
                Some("Regular expressions"),
            ),
            ("match_at", "", Some("Regular expressions")),
            ("sre_ucs1_match", "", Some("Regular expressions")),
            (
                "regexp.(*Regexp).backtrack",
                "",
                Some("Regular expressions"),
            ),
            (
                "<&mut serde_json::de::Deserializer<R> as serde::de::Deserializer>::deserialize_map",
                "",
                Some("Serialization"),
            ),
            (
                "<my::Type as serde_core::ser::Serialize>::serialize",
                "",
                Some("Serialization"),
            ),
            (
                "google::protobuf::internal::TcParser::ParseLoop",
                "",
                Some("Serialization"),
            ),
            (
                "encoding/json.(*decodeState).object",
                "",
                Some("Serialization"),
            ),
            (
                "simdjson::haswell::implementation::minify",
                "",
                Some("Serialization"),
            ),
            (
                "core::ptr::drop_in_place<serde_json::value::Value>",
                "",
                None,
            ),
            ("vfs_read", "[kernel]", Some("Kernel")),
            ("do_syscall_64", "", Some("Kernel")),
            ("", "[kernel]", Some("Kernel")),
            ("main", "/bin/app", None),
            ("", "", None),
        ] {
            let rule = of(&Frame::function(function, binary));
            assert_eq!(rule.map(|rule| rule.title), expected, "{function} {binary}");
        }
    }

    #[test]
    fn names_that_only_look_alike_are_not_known() {
        for (function, binary) in [
            ("build_tree", "/bin/app"),
            ("mi_write", "mariadbd"),
            ("mallory", "/bin/app"),
            ("freeze", "/bin/app"),
            ("matching", "/bin/app"),
            ("Compile::Optimize()", "libjvm.so"),
            ("PhaseIdealLoop::build_and_optimize()", "libjvm.so"),
            ("LinearScan::allocate_registers()", "libjvm.so"),
            ("v8::internal::Runtime_CompileLazy", "node"),
            ("runtime.schedule", "/bin/app"),
            ("std::vector<int>::push_back(int const&)", "/bin/app"),
            ("memcpy", "libc.so.6"),
            ("core::slice::memchr::memchr_aligned::runtime", "/bin/app"),
        ] {
            let rule = of(&Frame::function(function, binary));
            assert_eq!(rule.map(|rule| rule.title), None, "{function}");
        }
    }

    #[test]
    fn names_of_other_libraries_are_known() {
        for (function, expected) in [
            ("chunkmemset_safe_avx2", "Compression"),
            (
                "snappy::RawUncompress(char const*, unsigned long, char*)",
                "Compression",
            ),
            ("LZ4_decompress_safe", "Compression"),
            ("mi_malloc_small", "Allocation"),
            ("je_malloc_default", "Allocation"),
            (
                "ZRelocateWork<ZRelocateSmallAllocator>::do_forwarding",
                "Garbage collection of the JVM",
            ),
            (
                "G1ConcurrentMark::mark_in_bitmap",
                "Garbage collection of the JVM",
            ),
            (
                "v8::internal::Scavenger::Process(v8::JobDelegate*)",
                "Garbage collection of V8",
            ),
            (
                "com.fasterxml.jackson.core.json.UTF8StreamJsonParser::nextToken",
                "Serialization",
            ),
            (
                "Ljava/util/regex/Pattern$Curly;::match",
                "Regular expressions",
            ),
            ("re2::DFA::InlinedSearchLoop", "Regular expressions"),
            ("sljit_generate_code", "Regular expressions"),
        ] {
            let rule = of(&Frame::function(function, ""));
            assert_eq!(rule.map(|rule| rule.title), Some(expected), "{function}");
        }
    }

    #[test]
    fn rules_say_what_to_do() {
        for rule in rules() {
            assert!(rule.source_url.starts_with("https://"), "{}", rule.title);
            assert!(rule.advice.ends_with('.'), "{}", rule.title);
            assert!(!rule.patterns.is_empty(), "{}", rule.title);
            for pattern in rule.patterns.iter().chain(rule.binaries) {
                let stars = pattern.matches('*').count();
                let inner = pattern.trim_end_matches('*').contains('*');
                assert!(pattern.len() > 2 && stars < 4, "{pattern}");
                // Go's methods have a star in their names.
                assert!(!inner || pattern.contains("(*"), "{pattern}");
            }
        }
        let mut titles: Vec<_> = rules().iter().map(|rule| rule.title).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), rules().len());
    }

    fn profile(with_time: bool) -> Profile {
        let mut profile = Profile::default();
        let mut add = |functions: &[(&'static str, &'static str)], host: &str, samples| {
            let frames = functions
                .iter()
                .map(|(name, binary)| Frame::function(*name, *binary));
            let stack = profile.stack(frames);
            let labels = profile.labels(&[("host", host)]);
            let cpu_ns = if with_time { samples * 10 } else { 0 };
            profile.add(stack, labels, Weight { samples, cpu_ns });
        };
        let main = ("main", "/bin/a");
        add(
            &[
                main,
                ("serde_json::to_vec", "/bin/a"),
                ("malloc", "libc.so"),
                ("_int_malloc", "libc.so"),
            ],
            "a",
            300,
        );
        add(
            &[
                main,
                ("malloc", "libc.so"),
                ("asm_exc_page_fault", "[kernel]"),
                ("vfs_x", "[kernel]"),
            ],
            "a",
            100,
        );
        add(
            &[main, ("serde_json::to_vec", "/bin/a"), ("helper", "/bin/a")],
            "b",
            95,
        );
        add(&[main], "b", 450);
        add(&[main, ("vfs_read", "[kernel]")], "a", 50);
        add(&[main, ("regexec", "libc.so")], "b", 5);
        profile
    }

    fn findings(profile: &Profile, filter: &Filter) -> Vec<String> {
        let findings = summary(profile, filter).into_iter();
        let line = |finding: Finding| {
            let functions = finding.functions.iter();
            let functions: Vec<_> = functions
                .map(|(name, share)| format!("{name} {share:.3}"))
                .collect();
            let (own, total) = (finding.own_share, finding.total_share);
            format!(
                "{} {own:.3} {total:.3}: {}",
                finding.rule.title,
                functions.join(", ")
            )
        };
        findings.map(line).collect()
    }

    #[test]
    fn a_sample_counts_once_for_each_rule() {
        let expected = [
            "Allocation 0.300 0.400: _int_malloc 0.300, malloc 0.100",
            "Serialization 0.000 0.395: serde_json::to_vec 0.395",
            "Page faults 0.000 0.100: asm_exc_page_fault 0.100",
            "Kernel 0.050 0.050: vfs_read 0.050",
        ];
        for with_time in [true, false] {
            assert_eq!(findings(&profile(with_time), &Filter::default()), expected);
        }
        let filter = Filter {
            labels: vec![("host".to_owned(), "b".to_owned())],
            function: None,
        };
        assert_eq!(
            findings(&profile(true), &filter),
            ["Serialization 0.000 0.173: serde_json::to_vec 0.173"]
        );
        assert!(summary(&Profile::default(), &Filter::default()).is_empty());
    }

    #[test]
    fn what_is_found_in_parts_adds_up() {
        let (whole, mut sum) = (profile(true), Summary::default());
        assert!(sum.findings().is_empty());
        for host in ["a", "b"] {
            let labels = vec![("host".to_owned(), host.to_owned())];
            let of_host = Filter {
                labels,
                function: None,
            };
            sum.add(Summary::of(&whole, &of_host));
        }
        assert_eq!(sum.findings(), summary(&whole, &Filter::default()));
    }
}

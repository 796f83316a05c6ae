//! The fallback engine: PCRE2 with its just-in-time compiler, under a match limit.
//!
//! The tree is written out as PCRE2 text with every class, flag and quantifier made explicit, so that the
//! meaning does not depend on PCRE2's reading of Oniguruma's spelling. `UCP` is on for `\b` and the bracket
//! classes; `\d`, `\w`, `\s` have already become ASCII classes.
//!
//! PCRE2's own possessification is off: version 10.45 makes `\d+` in `\d+(?>(?:\z)?)\d` possessive and so
//! misses matches. The specialised matcher decides nearly all texts, so the cost does not show.
//!
//! PCRE2 counts its limit anew at every start position, and a run of one class is one step however long it
//! is. Texts of more than [`SHORT_TEXT_BYTES`] therefore run another form of the same expression, compiled
//! when the first such text comes, in which one count bounds the whole search:
//!
//! - The expression is anchored and begins with `(?s:.)*?`, so the starts are choices of one attempt. The
//!   leftmost match stays the first one found, and group 0, which then is longer, is not used.
//! - `X*` becomes `(?:X{n})*X{0,n-1}`, which takes and gives back the same lengths in the same order but is a
//!   step for every [`BLOCK`] characters. Lazy and possessive repetitions are divided in the same way.
//!
//! So no step looks at more than a bounded number of bytes, but for a back-reference, which is one step, and
//! the number of steps is linear in the length class of the text: see [`Fallback::limit_for`].

use std::sync::{Arc, OnceLock};

use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};

use crate::ast::{Assertion, Greed, Node};
use crate::error::GrokError;
use crate::{Outcome, Span};

/// Largest stack of the compiled code; running out of it counts as reaching the limit.
const JIT_STACK_BYTES: usize = 1 << 20;

/// The same for longer texts, where every block taken is a choice.
const LONG_JIT_STACK_BYTES: usize = 16 << 20;

/// Texts up to this length run under PCRE2's own limit, which is that of one start position.
const SHORT_TEXT_BYTES: usize = 1024;

/// Length classes: each is four times longer than the one before. The last one has no end.
const TIERS: usize = 7;

/// Steps that a longer text may take for every byte of its length class.
const STEPS_PER_BYTE: u32 = 6;

/// So many characters of one class are a step in longer texts.
const BLOCK: u32 = 32;

/// PCRE2's code for an expression that does not fit into its 64 KiB.
const PATTERN_TOO_LARGE: i32 = 120;

/// PCRE2 for one pattern.
#[derive(Debug)]
pub(crate) struct Fallback {
    text: String,
    /// The form for longer texts, spelled out and with shared definitions.
    counted: [String; 2],
    match_limit: u32,
    tiers: [OnceLock<Option<Regex>>; TIERS],
}

/// What one worker needs to run [`Fallback`].
#[derive(Clone, Default, Debug)]
pub(crate) struct FallbackScratch {
    locations: [Option<CaptureLocations>; TIERS],
}

impl Fallback {
    /// Compiles the tree. PCRE2 holds at most 64 KiB of compiled expression; where every definition spelled
    /// out is more than that, each is written once and called, which is slower but means the same.
    pub fn new(node: &Node, match_limit: u32) -> Result<Arc<Fallback>, GrokError> {
        let counted = |shared| Form {
            shared,
            blocks: true,
        };
        let mut fallback = Fallback {
            text: Writer::write(node, Form::default()),
            counted: [false, true].map(|shared| Writer::write(node, counted(shared))),
            match_limit,
            tiers: Default::default(),
        };
        let regex = match fallback.compile(0) {
            Err(error) if error.code() == PATTERN_TOO_LARGE => {
                let form = Form {
                    shared: true,
                    blocks: false,
                };
                fallback.text = Writer::write(node, form);
                fallback.compile(0)
            }
            other => other,
        };
        let regex = regex.map_err(|error| GrokError::Engine {
            message: error.to_string(),
        })?;
        fallback.tiers[0]
            .set(Some(regex))
            .expect("the first tier was just made empty");
        Ok(Arc::new(fallback))
    }

    /// The PCRE2 text for short texts, without the limits.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The limit on steps: at one start position for short texts, for the whole search in longer ones.
    fn limit_for(&self, tier: usize) -> u32 {
        match tier {
            0 => self.match_limit,
            _ => {
                let bytes = (SHORT_TEXT_BYTES as u32) << (2 * tier);
                self.match_limit.saturating_add(STEPS_PER_BYTE * bytes)
            }
        }
    }

    fn compile(&self, tier: usize) -> Result<Regex, pcre2::Error> {
        if tier == 0 {
            return self.build(tier, JIT_STACK_BYTES, &self.text);
        }
        let [spelled, shared] = &self.counted;
        let build = |text: &str| {
            let expression = format!("\\A(?s:.)*?(?:{text})");
            self.build(tier, LONG_JIT_STACK_BYTES, &expression)
        };
        match build(spelled) {
            Err(error) if error.code() == PATTERN_TOO_LARGE => build(shared),
            other => other,
        }
    }

    fn build(&self, tier: usize, stack: usize, expression: &str) -> Result<Regex, pcre2::Error> {
        let limit = self.limit_for(tier);
        RegexBuilder::new()
            .utf(true)
            .multi_line(true)
            .jit_if_available(true)
            .max_jit_stack_size(Some(stack))
            .build(&format!(
                "(*UCP)(*NO_AUTO_POSSESS)(*LIMIT_MATCH={limit})(?aD)(?aS){expression}"
            ))
    }

    /// Finds the leftmost match.
    pub fn run(&self, text: &[u8], scratch: &mut FallbackScratch, spans: &mut [Span]) -> Outcome {
        self.run_in(tier_of(text.len()), text, scratch, spans)
    }

    /// The same in the form and under the limit of a length class.
    pub fn run_in(
        &self,
        tier: usize,
        text: &[u8],
        scratch: &mut FallbackScratch,
        spans: &mut [Span],
    ) -> Outcome {
        let Some(regex) = self.tiers[tier].get_or_init(|| self.compile(tier).ok()) else {
            return Outcome::LimitReached;
        };
        let locations = scratch.locations[tier].get_or_insert_with(|| regex.capture_locations());
        match regex.captures_read(locations, text) {
            Ok(Some(_)) => {
                for (index, span) in spans.iter_mut().enumerate() {
                    *span = locations
                        .get(index + 1)
                        .map_or(Span::NONE, |(start, end)| Span::new(start, end));
                }
                Outcome::Match
            }
            Ok(None) => Outcome::NoMatch,
            Err(_) => Outcome::LimitReached,
        }
    }
}

fn tier_of(text_bytes: usize) -> usize {
    let mut tier = 0;
    let mut longest = SHORT_TEXT_BYTES;
    while text_bytes > longest && tier + 1 < TIERS {
        tier += 1;
        longest *= 4;
    }
    tier
}

/// Says of single code points whether they belong to a class.
#[derive(Debug)]
pub(crate) struct ClassTest {
    text: String,
    regex: OnceLock<Option<Regex>>,
}

impl ClassTest {
    /// A class as [`crate::class::Class::text`] has it.
    pub fn new(text: String) -> ClassTest {
        ClassTest {
            text,
            regex: OnceLock::new(),
        }
    }

    /// Whether a code point belongs to the class; `None` when PCRE2 fails.
    pub fn contains(&self, code_point: &[u8]) -> Option<bool> {
        let compile = || {
            RegexBuilder::new()
                .utf(true)
                .jit_if_available(true)
                .build(&format!("(*UCP)(?aD)(?aS)\\A{}", self.text))
                .ok()
        };
        let regex = self.regex.get_or_init(compile).as_ref()?;
        regex.is_match(code_point).ok()
    }
}

/// How the tree is written.
#[derive(Clone, Copy, Default)]
struct Form {
    /// Definitions are written once and called.
    shared: bool,
    /// Endless repetitions of one class are divided into blocks.
    blocks: bool,
}

/// Writes the tree as PCRE2 text.
struct Writer<'n> {
    out: String,
    /// Capture-free definitions that stand in a group of their own and are called from where they are used.
    shared: Option<Vec<&'n Node>>,
    blocks: bool,
}

impl<'n> Writer<'n> {
    fn write(node: &'n Node, form: Form) -> String {
        let mut writer = Writer {
            out: String::new(),
            shared: form.shared.then(Vec::new),
            blocks: form.blocks,
        };
        writer.alternatives(node);
        let mut index = 0;
        // The groups come last, so that the captures keep their numbers.
        while let Some(&node) = writer.shared.as_ref().and_then(|shared| shared.get(index)) {
            writer.out += &format!("{}(?<d{index}>", if index == 0 { "(?(DEFINE)" } else { "" });
            writer.alternatives(node);
            writer.out.push(')');
            index += 1;
        }
        if index > 0 {
            writer.out.insert_str(0, "(?:");
            writer.out = writer.out.replacen("(?(DEFINE)", ")(?(DEFINE)", 1) + ")";
        }
        writer.out
    }

    /// The content of a group.
    fn alternatives(&mut self, node: &'n Node) {
        match node {
            Node::Named(_, inner) => self.alternatives(inner),
            Node::Alt(all) => {
                for (index, branch) in all.iter().enumerate() {
                    if index > 0 {
                        self.out.push('|');
                    }
                    self.node(branch);
                }
            }
            other => self.node(other),
        }
    }

    fn group(&mut self, open: &str, node: &'n Node) {
        self.out.push_str(open);
        self.alternatives(node);
        self.out.push(')');
    }

    /// One item, or several that stand one after the other.
    fn node(&mut self, node: &'n Node) {
        match node {
            Node::Empty => self.out.push_str("(?:)"),
            Node::Char(c) if c.is_ascii_alphanumeric() => self.out.push(*c),
            Node::Char(c) => self.out += &format!("\\x{{{:x}}}", u32::from(*c)),
            Node::Class(class) => self.out.push_str(&class.text),
            Node::Concat(all) => all.iter().for_each(|child| self.node(child)),
            Node::Alt(_) => self.group("(?:", node),
            Node::Repeat {
                node,
                min,
                max,
                greed,
            } => match node.as_ref() {
                Node::Char(_) | Node::Class(_) if self.blocks && max.is_none() => {
                    self.in_blocks(node, *min, *greed);
                }
                Node::Char(_) | Node::Class(_) => {
                    self.node(node);
                    self.quantifier(*min, *max, *greed);
                }
                _ => {
                    self.group("(?:", node);
                    self.quantifier(*min, *max, *greed);
                }
            },
            Node::Capture(_, node) => self.group("(", node),
            Node::Atomic(node) => self.group("(?>", node),
            Node::Look {
                behind,
                negative,
                node,
            } => {
                let open = match (behind, negative) {
                    (false, false) => "(?=",
                    (false, true) => "(?!",
                    (true, false) => "(?<=",
                    (true, true) => "(?<!",
                };
                self.group(open, node);
            }
            Node::Assert(assertion) => self.out.push_str(assertion_text(*assertion)),
            Node::Backref(number) => self.out += &format!("\\g{{{}}}", number + 1),
            Node::Foreign(text) => self.out.push_str(text),
            Node::Named(_, inner) => self.definition(inner),
        }
    }

    fn definition(&mut self, node: &'n Node) {
        let shareable =
            || !node.any(&|n| matches!(n, Node::Capture(..) | Node::Backref(_) | Node::Foreign(_)));
        match &mut self.shared {
            Some(shared) if matches!(node, Node::Concat(_) | Node::Alt(_)) && shareable() => {
                let known = shared.iter().position(|other| *other == node);
                let index = known.unwrap_or_else(|| {
                    shared.push(node);
                    shared.len() - 1
                });
                self.out += &format!("(?&d{index})");
            }
            _ => self.node(node),
        }
    }

    /// An endless repetition of one character, with a step for every block.
    fn in_blocks(&mut self, node: &'n Node, min: u32, greed: Greed) {
        let (open, close, greed) = match greed {
            Greed::Possessive => ("(?>", ")", Greed::Greedy),
            other => ("", "", other),
        };
        self.out.push_str(open);
        if min > 0 {
            self.node(node);
            self.quantifier(min, Some(min), Greed::Greedy);
        }
        self.out.push_str("(?:");
        self.node(node);
        self.quantifier(BLOCK, Some(BLOCK), Greed::Greedy);
        self.out.push(')');
        self.quantifier(0, None, greed);
        self.node(node);
        self.quantifier(0, Some(BLOCK - 1), greed);
        self.out.push_str(close);
    }

    fn quantifier(&mut self, min: u32, max: Option<u32>, greed: Greed) {
        match (min, max) {
            (0, None) => self.out.push('*'),
            (1, None) => self.out.push('+'),
            (0, Some(1)) => self.out.push('?'),
            (min, None) => self.out += &format!("{{{min},}}"),
            (min, Some(max)) => self.out += &format!("{{{min},{max}}}"),
        }
        self.out.push_str(match greed {
            Greed::Greedy => "",
            Greed::Lazy => "?",
            Greed::Possessive => "+",
        });
    }
}

fn assertion_text(assertion: Assertion) -> &'static str {
    match assertion {
        Assertion::LineStart => "^",
        Assertion::LineEnd => "$",
        Assertion::TextStart => "\\A",
        Assertion::TextEnd => "\\z",
        Assertion::TextEndLine => "\\Z",
        Assertion::WordEdge => "\\b",
        Assertion::NoWordEdge => "\\B",
    }
}

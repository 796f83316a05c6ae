//! The public face: compiled patterns and what a worker keeps to run them.
//!
//! The match limit is decided here: [`Options::match_limit`] holds it, and `steps_for` adds the steps for each byte of a text.
//! Steps are counted in `fast/machine` and `fast/search.rs`; where they do not suffice, PCRE2 searches again under the limit of
//! `pcre.rs`, and a search that exceeds that ends as [`Outcome::LimitReached`]. There is no limit on time. The processor `grok` tags such an event with `_groktimeout`, the tag of Logstash.

use std::sync::Arc;

use crate::capture::{Capture, Outcome, Span};
use crate::error::GrokError;
use crate::fast::{Matcher, MatcherScratch, Verdict};
use crate::library::Library;
use crate::options::Options;
use crate::parse::parse;
use crate::pcre::{Fallback, FallbackScratch};

/// Steps that a thorough search may take for every byte of a text, beside the limit.
const STEPS_PER_BYTE: i64 = 6;

/// A compiled pattern: immutable, shared by all workers, cheap to clone.
#[derive(Clone, Debug)]
pub struct Pattern {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    captures: Vec<Capture>,
    /// The specialised matcher, or what the pattern has that it cannot do.
    matcher: Result<Matcher, &'static str>,
    fallback: Arc<Fallback>,
    match_limit: u32,
}

/// The steps that a thorough search of a text may take.
fn steps_for(match_limit: u32, text_bytes: usize) -> i64 {
    i64::from(match_limit) + STEPS_PER_BYTE * text_bytes as i64
}

/// What one worker keeps to run one pattern.
#[derive(Clone, Debug)]
pub struct Scratch {
    pub(crate) spans: Vec<Span>,
    matcher: MatcherScratch,
    fallback: FallbackScratch,
}

impl Scratch {
    /// One span for every capture of the pattern, as the last [`Outcome::Match`] left them.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}

impl Pattern {
    /// Compiles `source` with the definitions of `library`.
    ///
    /// # Errors
    /// [`GrokError`] with the byte in `source`, or in the definition that it led to.
    pub fn compile(
        library: &Library,
        source: &str,
        options: &Options,
    ) -> Result<Pattern, GrokError> {
        let (node, captures) = parse(library, source, options)?;
        let fallback = Fallback::new(&node, options.match_limit)?;
        Ok(Pattern {
            inner: Arc::new(Inner {
                captures,
                matcher: Matcher::new(&node),
                fallback,
                match_limit: options.match_limit,
            }),
        })
    }

    /// The captures in the order of their opening parentheses.
    pub fn captures(&self) -> &[Capture] {
        &self.inner.captures
    }

    /// A scratch for one worker; it may only be used with this pattern.
    pub fn new_scratch(&self) -> Scratch {
        Scratch {
            spans: vec![Span::NONE; self.inner.captures.len()],
            matcher: MatcherScratch::default(),
            fallback: FallbackScratch::default(),
        }
    }

    /// Searches `text`, which is valid UTF-8 and shorter than 4 GiB, for the leftmost match.
    pub fn matches(&self, text: &[u8], scratch: &mut Scratch) -> Outcome {
        if text.len() >= u32::MAX as usize {
            return Outcome::LimitReached;
        }
        if let Ok(matcher) = &self.inner.matcher {
            match matcher.run(text, &mut scratch.matcher, &mut scratch.spans) {
                Verdict::Match => return Outcome::Match,
                Verdict::NoMatch => return Outcome::NoMatch,
                Verdict::Unsure => {}
            }
            if let Some((outcome, _)) = self.matches_thoroughly(text, scratch) {
                return outcome;
            }
        }
        self.matches_with_pcre2(text, scratch)
    }

    /// As [`Pattern::matches`], by the specialised matcher's thorough search alone, with the steps that it took.
    /// `None` where it gives up or the pattern has none.
    #[cold]
    pub fn matches_thoroughly(&self, text: &[u8], scratch: &mut Scratch) -> Option<(Outcome, u64)> {
        let matcher = self.inner.matcher.as_ref().ok()?;
        let budget = steps_for(self.inner.match_limit, text.len());
        let (matcher_scratch, spans) = (&mut scratch.matcher, &mut scratch.spans);
        match matcher.run_thoroughly(text, budget, matcher_scratch, spans) {
            (Verdict::Match, steps) => Some((Outcome::Match, steps as u64)),
            (Verdict::NoMatch, steps) => Some((Outcome::NoMatch, steps as u64)),
            (Verdict::Unsure, _) => None,
        }
    }

    /// As [`Pattern::matches`], by PCRE2 alone: what the specialised matcher is measured against.
    pub fn matches_with_pcre2(&self, text: &[u8], scratch: &mut Scratch) -> Outcome {
        self.inner
            .fallback
            .run(text, &mut scratch.fallback, &mut scratch.spans)
    }

    /// As [`Pattern::matches`], by the specialised matcher alone; `None` where it leaves the text to PCRE2.
    pub fn matches_specialised(&self, text: &[u8], scratch: &mut Scratch) -> Option<Outcome> {
        let matcher = self.inner.matcher.as_ref().ok()?;
        match matcher.run(text, &mut scratch.matcher, &mut scratch.spans) {
            Verdict::Match => Some(Outcome::Match),
            Verdict::NoMatch => Some(Outcome::NoMatch),
            Verdict::Unsure => None,
        }
    }

    /// Whether the pattern has a specialised matcher; otherwise every text goes to PCRE2.
    pub fn is_specialised(&self) -> bool {
        self.inner.matcher.is_ok()
    }

    /// How the pattern is run, for people: the engine and the expanded expression.
    pub fn explain(&self) -> String {
        let engine = match &self.inner.matcher {
            Ok(matcher) => format!(
                "specialised, {} operations, PCRE2 behind it",
                matcher.operations()
            ),
            Err(construct) => format!("PCRE2, because of {construct}"),
        };
        format!(
            "engine: {engine}\nexpression: {}",
            self.inner.fallback.text()
        )
    }
}

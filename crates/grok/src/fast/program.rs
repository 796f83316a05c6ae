//! The operations of a program. Every operation goes on with the one behind it unless it says otherwise.

use super::lanes::{self, AtMost, Either};
use crate::pcre::ClassTest;

/// Where an operation or a position is; patterns and texts are shorter than 4 GiB.
pub(super) type Index = u32;

/// A place in the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    /// What is done.
    pub op: Op,
    /// A literal that has to follow what the operation took: an index into [`Program::shorts`], or
    /// [`NO_LITERAL`]. The program then goes on behind the literal's own operation.
    pub then: u16,
}

/// Stands for no literal.
pub(super) const NO_LITERAL: u16 = u16::MAX;

/// Stands for an operation that does not choose.
pub(super) const NO_CHOICE: u32 = u32::MAX;

/// The number of the class of word characters, which `\b` asks for.
pub(super) const WORD_CLASS: u8 = 0;

/// Stands for no capture.
pub(super) const NO_CAPTURE: u16 = u16::MAX;

/// One operation. A `capture` is filled with what the operation takes, unless it is [`NO_CAPTURE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    /// The search succeeded.
    Match,
    /// One byte.
    Byte(u8),
    /// Two to eight bytes: an index into [`Program::shorts`].
    Short { short: u16 },
    /// A literal: bytes `at..at + len` of [`Program::literals`].
    Literal { at: Index, len: Index },
    /// One code point of a class, by its table.
    Set { table: u16 },
    /// As many code points of a class as there are, at least `min` (0 or 1), giving nothing back.
    Run { scan: u16, min: u16, capture: u16 },
    /// The same, and a word has to begin before and to end after it: `\b\w+\b`.
    Word { scan: u16, capture: u16 },
    /// From `min` to `max` ASCII members of a class, giving nothing back.
    RunCounted { table: u16, min: u16, max: u16 },
    /// As [`Op::Run`], but given back one by one, only where [`Greedy::follow`] allows.
    Greedy { greedy: u16, capture: u16 },
    /// As few members as possible.
    Lazy { lazy: u16, capture: u16 },
    /// Takes the viable branches in order; branch `likely` lies behind the operation.
    Switch { switch: u16, likely: u8 },
    /// The same, without branch `ipv6` where no IPv6 address can be.
    SwitchIpv6 { switch: u16, likely: u8, ipv6: u8 },
    /// Goes on elsewhere.
    Jump(Index),
    /// The capture begins here.
    CaptureStart(u16),
    /// The capture ends here.
    CaptureEnd(u16),
    /// The capture takes no part on this path.
    CaptureClear(u16),
    /// Backtracking to here gives the capture its present value back.
    CaptureGuard(u16),
    /// The code point before this place is (not) in a class.
    BehindSet { table: u16, negative: bool },
    /// The bytes before this place are (not) a literal.
    BehindLiteral { at: Index, len: u16, negative: bool },
    /// The code point at this place is (not) in a class.
    AheadSet { table: u16, negative: bool },
    /// See [`crate::ast::Assertion`].
    LineStart,
    /// `$`.
    LineEnd,
    /// `\A`.
    TextStart,
    /// `\z`.
    TextEnd,
    /// `\Z`.
    TextEndLine,
    /// `\b`, or `\B`.
    WordEdge { negative: bool },
    /// An atomic group begins; its register remembers the choices made so far.
    AtomicStart { register: u16 },
    /// It ends: the choices made in it are final.
    AtomicEnd { register: u16 },
    /// A look-ahead begins; its second register remembers the place.
    LookStart { register: u16 },
    /// It succeeded: its choices are final and its place is taken up again.
    LookEnd { register: u16 },
    /// A negative look-ahead begins; when it fails, `otherwise` goes on.
    NotStart { register: u16, otherwise: Index },
    /// It succeeded, so this path fails.
    NotEnd { register: u16 },
    /// Fails unless an IPv6 address may stand here.
    Ipv6Guard,
    /// An IPv4 address, which has only one choice.
    Ipv4 { capture: u16 },
    /// A decimal number, which has only one choice.
    Number { capture: u16 },
    /// A quoted string, which has only one choice.
    Quoted { capture: u16 },
    /// The first choice of a definition; the others come from the program at `other`.
    Shortcut {
        shortcut: Shortcut,
        register: u16,
        capture: u16,
        other: Index,
    },
    /// The end of that program: the first choice has been tried before.
    ShortcutEnd { register: u16 },
}

impl Op {
    /// Whether the operation leaves no choice at its place, so that the literal after it can be part of it.
    pub fn joins_literal(self) -> bool {
        matches!(
            self,
            Op::Run { .. }
                | Op::Word { .. }
                | Op::Ipv4 { .. }
                | Op::Number { .. }
                | Op::Quoted { .. }
                | Op::CaptureEnd(_)
                | Op::CaptureClear(_)
                | Op::Shortcut { .. }
        )
    }
}

/// Definitions whose first choice is found by code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortcut {
    /// `HTTPDATE`.
    HttpDate,
    /// `TIMESTAMP_ISO8601`.
    Iso8601,
    /// `SYSLOGTIMESTAMP`.
    SyslogTime,
    /// `IPORHOST` and `IP`, when an IPv4 address stands there.
    Ipv4First,
    /// `HTTPDUSER`, when a blank follows.
    HttpdUser,
}

/// How a [`Scan`] looks for its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Seek {
    /// For one, two or three bytes.
    One(u8),
    Two(u8, u8),
    Three(u8, u8, u8),
    /// For a byte up to a limit, and then in the table.
    UpTo(u8),
    /// In the table.
    Table,
    /// For nothing: the run ends with the text.
    Nothing,
}

/// Finds the end of a run: the first byte whose `stop` value is not 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scan {
    pub seek: Seek,
    /// 0: go on; otherwise one of [`stop`].
    pub stop: [u8; 256],
}

/// Why a scan stopped.
pub(super) mod stop {
    /// No member of the class, and nothing that could follow.
    pub const OUTSIDE: u8 = 1;
    /// What follows may begin here.
    pub const CANDIDATE: u8 = 2;
    /// This value and those above: the table does not know; as in [`super::super::lower::member`].
    pub const UNSURE: u8 = 3;
}

impl Scan {
    /// Prepares a table.
    pub fn new(stop: [u8; 256]) -> Scan {
        let stops: Vec<u8> = (0..=255)
            .filter(|&b: &u8| stop[usize::from(b)] != 0)
            .collect();
        let seek = match stops[..] {
            [] => Seek::Nothing,
            [a] => Seek::One(a),
            [a, b] => Seek::Two(a, b),
            [a, b, c] => Seek::Three(a, b, c),
            // Where most bytes up to the limit stop, hardly one is looked up in vain.
            [.., last] if last < 0x30 => Seek::UpTo(last),
            _ => Seek::Table,
        };
        Scan { seek, stop }
    }

    /// Whether the run is one of `\w`.
    pub fn is_word(&self) -> bool {
        (0..=255u8)
            .all(|b| (self.stop[usize::from(b)] == 0) == (b.is_ascii_alphanumeric() || b == b'_'))
    }

    /// The first stopping byte at or after `from`, or the length of the text.
    #[inline(always)]
    pub fn run(&self, text: &[u8], from: usize) -> usize {
        match self.seek {
            Seek::Table => self.in_table(text, from),
            Seek::UpTo(limit) => self.up_to(limit, text, from),
            _ => self.search(text, from),
        }
    }

    #[inline(never)]
    fn search(&self, text: &[u8], from: usize) -> usize {
        let rest = &text[from..];
        let found = match self.seek {
            Seek::One(a) => memchr::memchr(a, rest),
            // Such as a quote or a line feed, which are near.
            Seek::Two(a, b) => lanes::find(rest, 0, Either(a, b)),
            Seek::Three(a, b, c) => memchr::memchr3(a, b, c, rest),
            // Such as `.*`.
            Seek::Nothing => None,
            Seek::Table | Seek::UpTo(_) => {
                rest.iter().position(|&b| self.stop[usize::from(b)] != 0)
            }
        };
        found.map_or(text.len(), |at| from + at)
    }

    /// As [`Scan::run`], byte by byte.
    #[inline(always)]
    pub fn in_table(&self, text: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(&byte) = text.get(at)
            && self.stop[usize::from(byte)] == 0
        {
            at += 1;
        }
        at
    }

    /// Looks for bytes up to a limit, and only those up in the table.
    #[inline(always)]
    fn up_to(&self, limit: u8, text: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(found) = lanes::find(text, at, AtMost(limit)) {
            if self.stop[usize::from(text[found])] != 0 {
                return found;
            }
            at = found + 1;
        }
        text.len()
    }
}

/// A run that gives back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Greedy {
    pub scan: u16,
    /// Members that must be taken, and that may be taken at most; with other values than 0, 1 and no limit,
    /// only ASCII can be counted.
    pub min: u32,
    pub max: u32,
    /// What can follow: an index into [`Program::nexts`].
    pub follow: u16,
}

impl Greedy {
    /// Whether members have to be counted.
    #[inline(always)]
    pub fn is_counted(&self) -> bool {
        self.min > 1 || self.max != u32::MAX
    }
}

/// A run that takes as little as possible.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lazy {
    pub table: u16,
    /// Stops at what can follow and at what is no member.
    pub scan: u16,
    /// Members that must be taken.
    pub min: u32,
    /// Whether what follows can stand at the end of the text.
    pub end: bool,
    /// Whether a member can begin what follows; otherwise the first candidate is the only one.
    pub again: bool,
}

/// The bytes that can come next; index 256 stands for the end of the text.
pub(super) type Next = [bool; 257];

/// The branches of a choice.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    /// For every next byte (256: the end of the text) the branches that it can begin, one bit each.
    pub viable: Box<[u32; 257]>,
    /// Where the branches begin.
    pub targets: Vec<Index>,
}

/// A literal of two to eight bytes, compared as one number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Short {
    value: u64,
    mask: u64,
    /// How many bytes.
    pub len: usize,
}

impl Short {
    /// Prepares a literal; `None` when it is too long.
    pub fn new(text: &[u8]) -> Option<Short> {
        let mut bytes = [0; 8];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let mask = u64::MAX >> (64 - 8 * text.len());
        Some(Short {
            value: u64::from_le_bytes(bytes),
            mask,
            len: text.len(),
        })
    }

    /// Whether the literal stands at `at`.
    #[inline(always)]
    pub fn fits(&self, text: &[u8], at: usize) -> bool {
        let Some(rest) = text.get(at..) else {
            return false;
        };
        match rest.first_chunk::<8>() {
            Some(chunk) => u64::from_le_bytes(*chunk) & self.mask == self.value,
            None => rest.starts_with(&self.value.to_le_bytes()[..self.len]),
        }
    }
}

/// A compiled pattern.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub steps: Vec<Instruction>,
    pub shorts: Vec<Short>,
    pub literals: Vec<u8>,
    pub tables: Vec<[u8; 256]>,
    pub scans: Vec<Scan>,
    pub greedies: Vec<Greedy>,
    pub lazies: Vec<Lazy>,
    pub nexts: Vec<Next>,
    pub switches: Vec<Switch>,
    /// For every operation the number of its choice, or [`NO_CHOICE`].
    pub choices: Vec<u32>,
    /// How many operations choose.
    pub choice_count: usize,
    /// The classes that the tables do not know, by their number.
    pub classes: Vec<ClassTest>,
    /// How many registers the program uses.
    pub registers: usize,
}

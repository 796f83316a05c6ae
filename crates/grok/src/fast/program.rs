//! The operations of a program. Every operation goes on with the next one unless it says otherwise.

/// Where an operation or a position is; patterns and texts are shorter than 4 GiB.
pub(super) type Index = u32;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// The search succeeded.
    Match,
    /// One byte.
    Byte(u8),
    /// A literal: bytes `at..at + len` of [`Program::literals`].
    Literal { at: Index, len: Index },
    /// One code point of a class, by its table.
    Set { table: u16 },
    /// As many code points of a class as there are, at least `min` (0 or 1), giving nothing back.
    Run { scan: u16, min: u16 },
    /// The same, filling a capture.
    CaptureRun { scan: u16, min: u16, capture: u16 },
    /// From `min` to `max` ASCII members of a class, giving nothing back.
    RunCounted { table: u16, min: u16, max: u16 },
    /// As [`Op::Run`], but given back one by one, only where [`Greedy::follow`] allows.
    Greedy { greedy: u16 },
    /// As few members as possible.
    Lazy { lazy: u16 },
    /// Takes the viable branches in order.
    Switch { switch: u16 },
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
    Ipv4,
    /// A decimal number, which has only one choice.
    Number,
    /// A quoted string, which has only one choice.
    Quoted,
    /// The first choice of a definition; the others come from the program up to `end`.
    Shortcut {
        shortcut: Shortcut,
        register: u16,
        end: Index,
    },
    /// The end of that program: the first choice has been tried before.
    ShortcutEnd { register: u16 },
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
}

/// Finds the end of a run: the first byte whose `stop` value is not 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scan {
    /// 0: go on; otherwise one of [`stop`].
    pub stop: [u8; 256],
    /// The only stopping bytes, if they are one, two or three; the last one is repeated.
    pub needles: Option<[u8; 3]>,
    /// How many they are.
    pub count: u8,
}

/// Why a scan stopped.
pub(super) mod stop {
    /// No member of the class, and nothing that could follow.
    pub const OUTSIDE: u8 = 1;
    /// What follows may begin here.
    pub const CANDIDATE: u8 = 2;
    /// Not known here.
    pub const UNSURE: u8 = 3;
}

impl Scan {
    /// Prepares a table.
    pub fn new(stop: [u8; 256]) -> Scan {
        let stops: Vec<u8> = (0..=255)
            .filter(|&b: &u8| stop[usize::from(b)] != 0)
            .collect();
        let needles = match stops[..] {
            [a] => Some([a, a, a]),
            [a, b] => Some([a, b, b]),
            [a, b, c] => Some([a, b, c]),
            _ => None,
        };
        Scan {
            stop,
            needles,
            count: stops.len().min(255) as u8,
        }
    }

    /// The first stopping byte at or after `from`, or the length of the text.
    #[inline(always)]
    pub fn run(&self, text: &[u8], from: usize) -> usize {
        let rest = &text[from..];
        let found = match self.needles {
            None => rest.iter().position(|&b| self.stop[usize::from(b)] != 0),
            Some([a, b, c]) => match self.count {
                1 => memchr::memchr(a, rest),
                2 => memchr::memchr2(a, b, rest),
                _ => memchr::memchr3(a, b, c, rest),
            },
        };
        found.map_or(text.len(), |at| from + at)
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

/// A compiled pattern.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub ops: Vec<Op>,
    pub literals: Vec<u8>,
    pub tables: Vec<[u8; 256]>,
    pub scans: Vec<Scan>,
    pub greedies: Vec<Greedy>,
    pub lazies: Vec<Lazy>,
    pub nexts: Vec<Next>,
    pub switches: Vec<Switch>,
    /// How many registers the program uses.
    pub registers: usize,
}

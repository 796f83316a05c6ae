//! Library definitions with code of their own.
//!
//! A definition is known by what it expands to, not by its name, so a user who redefines `MONTH` gets a
//! `HTTPDATE` that follows. Two kinds exist: those that have at most one choice at any place, whose code
//! replaces the definition, and [`Shortcut`]s, whose code finds the definition's first choice in the usual
//! spelling and otherwise says nothing.

mod date;
mod value;

use date::{http_date, iso8601, syslog_time};
use value::httpd_user;
pub(super) use value::{ipv4, may_be_ipv6, number, quoted};

use super::program::Shortcut;
use crate::Options;
use crate::ast::Node;
use crate::library::{Library, PatternSet};
use crate::parse::parse;

/// A definition with code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// `IPV4`.
    Ipv4,
    /// `IPV6`: the code only tells where none can be.
    Ipv6,
    /// `BASE10NUM`.
    Number,
    /// `QUOTEDSTRING`.
    Quoted,
    /// The first choice of a definition.
    Shortcut(Shortcut),
}

const NAMES: [(&str, Atom); 10] = [
    ("IPV4", Atom::Ipv4),
    ("IPV6", Atom::Ipv6),
    ("BASE10NUM", Atom::Number),
    ("QUOTEDSTRING", Atom::Quoted),
    ("HTTPDATE", Atom::Shortcut(Shortcut::HttpDate)),
    ("TIMESTAMP_ISO8601", Atom::Shortcut(Shortcut::Iso8601)),
    ("SYSLOGTIMESTAMP", Atom::Shortcut(Shortcut::SyslogTime)),
    ("IP", Atom::Shortcut(Shortcut::Ipv4First)),
    ("IPORHOST", Atom::Shortcut(Shortcut::Ipv4First)),
    ("HTTPDUSER", Atom::Shortcut(Shortcut::HttpdUser)),
];

/// The definitions that the code was written for, as far as a pattern uses their names.
pub(super) struct Known {
    nodes: Vec<(&'static str, Node)>,
}

impl Known {
    /// Expands the definitions whose names occur in `node`.
    pub fn new(node: &Node) -> Known {
        let used =
            |wanted: &str| node.any(&|node| matches!(node, Node::Named(name, _) if name == wanted));
        let wanted: Vec<(&'static str, Atom)> =
            NAMES.into_iter().filter(|(name, _)| used(name)).collect();
        if wanted.is_empty() {
            return Known { nodes: Vec::new() };
        }
        let mut nodes = Vec::new();
        for library in [
            Library::new(PatternSet::Legacy),
            Library::new(PatternSet::EcsV1),
        ] {
            for &(name, _) in &wanted {
                if let Ok((Node::Named(_, node), _)) =
                    parse(&library, &format!("%{{{name}}}"), &Options::default())
                {
                    nodes.push((name, *node));
                }
            }
        }
        Known { nodes }
    }

    /// The code for a definition, if its expansion is one that the code was written for.
    pub fn find(&self, name: &str, node: &Node) -> Option<Atom> {
        let (_, atom) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        self.nodes
            .iter()
            .any(|(known, expected)| *known == name && expected == node)
            .then_some(atom)
    }
}

/// The end of a definition's first choice at `start`, in the usual spelling.
#[inline(always)]
pub(super) fn shortcut(kind: Shortcut, text: &[u8], start: usize) -> Option<usize> {
    match kind {
        Shortcut::HttpDate => http_date(text, start),
        Shortcut::Iso8601 => iso8601(text, start),
        Shortcut::SyslogTime => syslog_time(text, start),
        // Where an IPv4 address stands, no IPv6 address can: a point follows its first digits, and no colon.
        Shortcut::Ipv4First => ipv4(text, start),
        Shortcut::HttpdUser => httpd_user(text, start),
    }
}

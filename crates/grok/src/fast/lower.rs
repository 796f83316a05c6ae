//! From the pattern's tree to the matcher's: names dissolve, literals join, nested alternations become one,
//! and what the matcher has no operation for is refused.

use std::cell::RefCell;

use super::atom::{self, Atom};
use super::program::Shortcut;
use crate::ast::{Assertion, Greed, Node};
use crate::class::{Class, Wide};
use crate::pcre::ClassTest;

/// What one byte means to a class: the value of its table.
pub(super) mod member {
    /// Not a member.
    pub const NO: u8 = 0;
    /// An ASCII member.
    pub const YES: u8 = 1;
    /// Part of a code point beyond ASCII that is a member.
    pub const WIDE: u8 = 2;
    /// Part of one of which the table does not know whether it is a member: this value and the number of the
    /// class among [`Program::classes`](super::super::program::Program::classes).
    pub const UNSURE: u8 = 3;
}

/// A class as a table of [`member`] values.
pub(super) type Table = [u8; 256];

/// The matcher's tree.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Empty,
    Literal(Vec<u8>),
    Set(Box<Table>),
    Concat(Vec<Tree>),
    Alt(Vec<Tree>),
    Repeat {
        body: Box<Tree>,
        min: u32,
        max: Option<u32>,
        lazy: bool,
    },
    Capture(usize, Box<Tree>),
    Atomic(Box<Tree>),
    Look {
        behind: bool,
        negative: bool,
        body: Box<Tree>,
    },
    Assert(Assertion),
    /// A definition with code of its own, and the definition.
    Atom(Atom, Box<Tree>),
}

impl Tree {
    /// The trees directly below this one.
    pub fn children(&self) -> &[Tree] {
        match self {
            Tree::Concat(all) | Tree::Alt(all) => all,
            Tree::Repeat { body, .. }
            | Tree::Capture(_, body)
            | Tree::Atomic(body)
            | Tree::Look { body, .. }
            | Tree::Atom(_, body) => std::slice::from_ref(body),
            _ => &[],
        }
    }

    /// The numbers of all captures in the tree.
    pub fn captures(&self) -> Vec<usize> {
        let mut found: Vec<usize> = self.children().iter().flat_map(Tree::captures).collect();
        if let Tree::Capture(number, _) = self {
            found.push(*number);
        }
        found
    }

    /// Whether the tree can match without consuming; says yes when unsure.
    pub fn nullable(&self) -> bool {
        match self {
            Tree::Empty | Tree::Look { .. } | Tree::Assert(_) => true,
            Tree::Literal(_) | Tree::Set(_) => false,
            Tree::Concat(all) => all.iter().all(Tree::nullable),
            Tree::Alt(all) => all.iter().any(Tree::nullable),
            Tree::Repeat { body, min, .. } => *min == 0 || body.nullable(),
            Tree::Capture(_, body) | Tree::Atomic(body) | Tree::Atom(_, body) => body.nullable(),
        }
    }
}

/// Lowers a whole pattern.
pub(super) fn lower(node: &Node) -> Result<(Tree, Vec<ClassTest>), &'static str> {
    let context = Context {
        atoms: atom::Known::new(node),
        classes: RefCell::new(vec![r"\w".to_owned()]),
    };
    let tree = lower_node(node, &context)?;
    let classes = context.classes.into_inner();
    Ok((tree, classes.into_iter().map(ClassTest::new).collect()))
}

/// What all parts of a pattern share.
struct Context {
    atoms: atom::Known,
    /// The classes that tables do not know, as PCRE2 writes them; first the word characters.
    classes: RefCell<Vec<String>>,
}

impl Context {
    /// The value for a class that a table does not know.
    fn unsure(&self, text: &str) -> Result<u8, &'static str> {
        let mut classes = self.classes.borrow_mut();
        let known = classes.iter().position(|other| other == text);
        let number = known.unwrap_or_else(|| {
            classes.push(text.to_owned());
            classes.len() - 1
        });
        u8::try_from(number + usize::from(member::UNSURE)).map_err(|_| "its many classes")
    }
}

fn lower_node(node: &Node, context: &Context) -> Result<Tree, &'static str> {
    Ok(match node {
        Node::Empty => Tree::Empty,
        Node::Char(c) => Tree::Literal(c.to_string().into_bytes()),
        Node::Class(class) => Tree::Set(Box::new(table(class, context)?)),
        Node::Concat(all) => lower_concat(all, context)?,
        Node::Alt(all) => lower_alt(all, context)?,
        Node::Repeat {
            node,
            min,
            max,
            greed,
        } => {
            let body = Box::new(lower_node(node, context)?);
            let repeat = Tree::Repeat {
                body,
                min: *min,
                max: *max,
                lazy: *greed == Greed::Lazy,
            };
            if *greed == Greed::Possessive {
                Tree::Atomic(Box::new(repeat))
            } else {
                repeat
            }
        }
        Node::Capture(number, node) => Tree::Capture(*number, Box::new(lower_node(node, context)?)),
        Node::Atomic(node) => Tree::Atomic(Box::new(lower_node(node, context)?)),
        Node::Look {
            behind,
            negative,
            node,
        } => {
            let body = lower_node(node, context)?;
            if *negative && !body.captures().is_empty() {
                return Err("a capture in a negative look-around");
            }
            Tree::Look {
                behind: *behind,
                negative: *negative,
                body: Box::new(body),
            }
        }
        Node::Assert(assertion) => Tree::Assert(*assertion),
        Node::Backref(_) => return Err("a back-reference"),
        Node::Foreign(_) => return Err("\\R, \\X or \\K"),
        Node::Named(name, node) => match context.atoms.find(name, node) {
            Some(atom) => Tree::Atom(atom, Box::new(lower_node(node, context)?)),
            None => lower_node(node, context)?,
        },
    })
}

fn lower_concat(all: &[Node], context: &Context) -> Result<Tree, &'static str> {
    let mut parts: Vec<Tree> = Vec::new();
    for node in all {
        match lower_node(node, context)? {
            Tree::Concat(inner) => inner.into_iter().for_each(|part| push(&mut parts, part)),
            part => push(&mut parts, part),
        }
    }
    Ok(if parts.len() == 1 {
        parts.remove(0)
    } else {
        Tree::Concat(parts)
    })
}

fn push(parts: &mut Vec<Tree>, part: Tree) {
    match (parts.last_mut(), part) {
        (_, Tree::Empty) => {}
        (Some(Tree::Literal(text)), Tree::Literal(more)) => text.extend(more),
        (_, part) => parts.push(part),
    }
}

/// An alternation in an alternation tries the same branches in the same order as one flat alternation.
fn lower_alt(all: &[Node], context: &Context) -> Result<Tree, &'static str> {
    let mut branches = Vec::new();
    for node in all {
        match lower_node(node, context)? {
            Tree::Alt(inner) => branches.extend(inner),
            // One choice of all branches looks for IPv6 first and is better than a choice within a choice.
            Tree::Atom(Atom::Shortcut(Shortcut::Ipv4First), body) => match *body {
                Tree::Alt(inner) => branches.extend(inner),
                other => branches.push(other),
            },
            branch => branches.push(branch),
        }
    }
    Ok(Tree::Alt(branches))
}

fn table(class: &Class, context: &Context) -> Result<Table, &'static str> {
    let ascii = class.ascii.ok_or("a Unicode property")?;
    let wide = match class.wide {
        Wide::None => member::NO,
        Wide::All => member::WIDE,
        Wide::Unknown => context.unsure(&class.text)?,
    };
    let mut table = [wide; 256];
    for (byte, value) in table.iter_mut().enumerate().take(128) {
        *value = if ascii >> byte & 1 == 1 {
            member::YES
        } else {
            member::NO
        };
    }
    Ok(table)
}

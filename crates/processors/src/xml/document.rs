//! XML documents as JSON objects.
//!
//! A text is read once (`quick-xml`, which checks that tags match and attributes are well-formed) into a list of nodes, which
//! are then written. A node is linked to the one before it that has its name, which a hash table finds, so that the time
//! grows with the length of the text, whatever its names are. The lists are used again for the next text.
//!
//! # Limits
//! Elements nest [`DEPTH_MAX`] deep: with a list around each, their objects are as deep as common readers of JSON accept. Only references to characters and to the five entities of XML itself are resolved:
//! what a document type declaration says is passed over, nothing is fetched, and no text grows but by its escapes.

use std::hash::BuildHasher;
use std::ops::Range;

use batch::json;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

/// How deep elements may nest.
pub(super) const DEPTH_MAX: usize = 64;

/// How elements become members of objects.
#[derive(Debug, Clone)]
pub(super) struct XmlNames {
    /// What stands before the names of attributes.
    pub attribute_prefix: String,
    /// The name of the text of an element that has attributes or elements as well.
    pub text_key: String,
    /// Elements that give a list also where they come once.
    pub lists: Vec<String>,
    /// Whether names lose their namespace prefix, and declarations of namespaces are left out.
    pub removes_namespaces: bool,
}

/// Why a text is not an XML document.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum XmlError {
    #[error("{error} at byte {offset}")]
    Syntax {
        error: quick_xml::Error,
        offset: u64,
    },
    #[error("the entity `&{name};` before byte {offset} is not one of XML itself")]
    Entity { name: String, offset: u64 },
    #[error("`{name}` before byte {offset} is not a name")]
    Name { name: String, offset: u64 },
    #[error("`{text}` before byte {offset} must be written with an entity")]
    Unescaped { text: &'static str, offset: u64 },
    #[error(
        "there is a second document type declaration, or one behind an element, before byte {0}"
    )]
    DocumentType(u64),
    #[error("the element <{0}> is not closed")]
    Open(String),
    #[error("there is no element")]
    Empty,
    #[error("there is text outside of the root element before byte {0}")]
    Outside(u64),
    #[error("elements nest deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("the text has {len} bytes, and `max_bytes` allows {max}")]
    TooLong { len: usize, max: usize },
}

/// An element, an attribute, or the text of an element. Other nodes are given by their places in the list of nodes.
#[derive(Debug)]
struct XmlNode {
    name: Range<usize>,
    text: Range<usize>,
    parent: Option<usize>,
    /// The first and the last of the nodes in it that are the first of their names.
    children: Option<(usize, usize)>,
    /// The next node in its parent that is the first of its name.
    next: Option<usize>,
    /// The next node in its parent that has its name.
    same: Option<usize>,
    /// Of the first of a name: the last one.
    last_same: usize,
}

/// An element whose end has not been read.
#[derive(Debug)]
struct OpenElement {
    node: usize,
    /// Where its text begins in [`XmlDocument::texts`].
    text: usize,
}

/// A document on its way to an object.
#[derive(Debug)]
pub(super) struct XmlDocument<'n> {
    names: &'n XmlNames,
    /// Names and texts of the nodes.
    buffer: String,
    nodes: Vec<XmlNode>,
    /// The nodes that are the first of their names in their parents.
    firsts: HashTable<usize>,
    state: RandomState,
    open: Vec<OpenElement>,
    /// The texts of open elements, one after the other.
    texts: String,
    /// Whether some name holds a dot.
    pub dotted_names: bool,
}

impl<'n> XmlDocument<'n> {
    /// A reader of documents.
    pub fn new(names: &'n XmlNames) -> Self {
        Self {
            names,
            buffer: String::new(),
            nodes: Vec::new(),
            firsts: HashTable::new(),
            state: RandomState::default(),
            open: Vec::new(),
            texts: String::new(),
            dotted_names: false,
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// One that is not a well-formed document, or nests too deep.
    pub fn read(&mut self, text: &str) -> Result<(), XmlError> {
        self.buffer.clear();
        self.nodes.clear();
        self.firsts.clear();
        self.open.clear();
        self.texts.clear();
        let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
        let mut has_type = false;
        loop {
            let event = reader.read_event().map_err(|error| XmlError::Syntax {
                error,
                offset: reader.error_position(),
            })?;
            let offset = reader.buffer_position();
            let syntax = |error| XmlError::Syntax { error, offset };
            match event {
                Event::Start(start) => self.start(&start, offset)?,
                Event::Empty(start) => {
                    self.start(&start, offset)?;
                    self.end();
                }
                Event::End(_) => self.end(),
                Event::Text(text) if text.contains("]]>") => {
                    let text = "]]>";
                    return Err(XmlError::Unescaped { text, offset });
                }
                Event::Text(text) => self.text(&text.xml10_content(), offset)?,
                Event::CData(text) => self.text(&text.xml10_content(), offset)?,
                Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                    Ok(Some(c)) => self.text(c.encode_utf8(&mut [0; 4]), offset)?,
                    Ok(None) => self.text(entity(&reference, offset)?, offset)?,
                    Err(error) => return Err(syntax(error)),
                },
                Event::DocType(_) if has_type || !self.nodes.is_empty() => {
                    return Err(XmlError::DocumentType(offset));
                }
                Event::DocType(_) => has_type = true,
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        match self.open.last() {
            Some(open) => Err(XmlError::Open(self.name(open.node).to_owned())),
            None if self.nodes.is_empty() => Err(XmlError::Empty),
            None => Ok(()),
        }
    }

    fn start(&mut self, start: &BytesStart<'_>, offset: u64) -> Result<(), XmlError> {
        if self.open.is_empty() && !self.nodes.is_empty() {
            return Err(XmlError::Outside(offset));
        }
        if self.open.len() == DEPTH_MAX {
            return Err(XmlError::TooDeep);
        }
        let parent = self.open.last().map(|open| open.node);
        let name = start.name().into_inner();
        check_name(name, offset)?;
        let node = self.add(parent, "", self.without_prefix(name), "");
        let syntax = |error| XmlError::Syntax { error, offset };
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| syntax(error.into()))?;
            let name = attribute.key.into_inner();
            check_name(name, offset)?;
            if attribute.value.contains('<') {
                return Err(XmlError::Unescaped { text: "<", offset });
            }
            let is_declaration = name == "xmlns" || name.starts_with("xmlns:");
            if self.names.removes_namespaces && is_declaration {
                continue;
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(syntax)?;
            let name = self.without_prefix(name);
            self.add(Some(node), &self.names.attribute_prefix, name, &value);
        }
        let text = self.texts.len();
        self.open.push(OpenElement { node, text });
        Ok(())
    }

    fn end(&mut self) {
        // The reader has checked that every end has its start.
        let Some(OpenElement { node, text: start }) = self.open.pop() else {
            return;
        };
        let text = self.texts[start..].trim_matches([' ', '\t', '\r', '\n']);
        if self.nodes[node].children.is_none() {
            self.nodes[node].text = append(&mut self.buffer, text);
        } else if !text.is_empty() {
            let text = text.to_owned();
            self.add(Some(node), "", &self.names.text_key, &text);
        }
        self.texts.truncate(start);
    }

    fn text(&mut self, text: &str, offset: u64) -> Result<(), XmlError> {
        if !self.open.is_empty() {
            self.texts.push_str(text);
        } else if !text.trim().is_empty() {
            return Err(XmlError::Outside(offset));
        }
        Ok(())
    }

    /// The name as it is written.
    fn without_prefix<'t>(&self, name: &'t str) -> &'t str {
        match name.split_once(':') {
            Some((_, local)) if self.names.removes_namespaces => local,
            _ => name,
        }
    }

    /// Adds a node to its parent.
    fn add(&mut self, parent: Option<usize>, prefix: &str, name: &str, text: &str) -> usize {
        self.dotted_names |= name.contains('.');
        let start = self.buffer.len();
        self.buffer.push_str(prefix);
        self.buffer.push_str(name);
        let name = start..self.buffer.len();
        let text = append(&mut self.buffer, text);
        let node = self.nodes.len();
        self.nodes.push(XmlNode {
            name,
            text,
            parent,
            children: None,
            next: None,
            same: None,
            last_same: node,
        });
        if let Some(parent) = parent {
            self.link(parent, node);
        }
        node
    }

    /// Makes a node a child of its parent.
    fn link(&mut self, parent: usize, node: usize) {
        let Self { nodes, buffer, .. } = self;
        let key = |node: usize| (nodes[node].parent, &buffer[nodes[node].name.clone()]);
        let hash = |node: &usize| self.state.hash_one(key(*node));
        let is_same = |other: &usize| key(*other) == key(node);
        if let Some(&first) = self.firsts.find(hash(&node), is_same) {
            let last = std::mem::replace(&mut nodes[first].last_same, node);
            nodes[last].same = Some(node);
            return;
        }
        self.firsts.insert_unique(hash(&node), node, hash);
        let children = match nodes[parent].children {
            None => (node, node),
            Some((first, last)) => {
                nodes[last].next = Some(node);
                (first, node)
            }
        };
        nodes[parent].children = Some(children);
    }

    /// Appends the object of the document that was read, whose member is the root element.
    pub fn write(&self, out: &mut Vec<u8>) {
        if !self.nodes.is_empty() {
            self.write_members(0, out);
        }
    }

    fn name(&self, node: usize) -> &str {
        &self.buffer[self.nodes[node].name.clone()]
    }

    /// Appends an object of a node and of those after it in its parent.
    fn write_members(&self, first: usize, out: &mut Vec<u8>) {
        let mut separator = b'{';
        let mut next = Some(first);
        while let Some(node) = next {
            next = self.nodes[node].next;
            let name = self.name(node);
            out.push(separator);
            separator = b',';
            json::write_string(out, name.as_bytes());
            out.push(b':');
            let is_list = self.names.lists.iter().any(|list| list == name);
            self.write_group(node, is_list, out);
        }
        out.push(b'}');
    }

    /// Appends the value of a node, or a list if there are more of its name.
    fn write_group(&self, first: usize, is_list: bool, out: &mut Vec<u8>) {
        if !is_list && self.nodes[first].same.is_none() {
            return self.write_value(first, out);
        }
        let mut separator = b'[';
        let mut next = Some(first);
        while let Some(node) = next {
            next = self.nodes[node].same;
            out.push(separator);
            separator = b',';
            self.write_value(node, out);
        }
        out.push(b']');
    }

    fn write_value(&self, node: usize, out: &mut Vec<u8>) {
        let node = &self.nodes[node];
        match node.children {
            None => json::write_string(out, self.buffer[node.text.clone()].as_bytes()),
            Some((first, _)) => self.write_members(first, out),
        }
    }
}

/// Refuses what cannot be a name by how it begins.
fn check_name(name: &str, offset: u64) -> Result<(), XmlError> {
    let begins = |c: char| c.is_alphabetic() || matches!(c, '_' | ':') || !c.is_ascii();
    if name.starts_with(begins) {
        return Ok(());
    }
    let name = name.to_owned();
    Err(XmlError::Name { name, offset })
}

/// The text that a reference to an entity stands for.
fn entity(reference: &BytesRef<'_>, offset: u64) -> Result<&'static str, XmlError> {
    let name = reference.xml10_content();
    resolve_xml_entity(&name).ok_or_else(|| XmlError::Entity {
        name: name.into_owned(),
        offset,
    })
}

fn append(buffer: &mut String, text: &str) -> Range<usize> {
    let start = buffer.len();
    buffer.push_str(text);
    start..buffer.len()
}

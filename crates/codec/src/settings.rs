//! How the events of a stream are written, which both halves of reading follow.

use std::sync::Arc;

use batch::{Encoding, MembersWanted};
use regex::bytes::RegexSet;

use crate::charset;
use crate::container::ContainerFormat;
use crate::csv::{Csv, Header, HeaderSlot};
use crate::multiline::Multiline;
use crate::syslog::Syslog;
use crate::terminator::LineEnding;

/// How the events of a stream are written. What is about lines counts for nothing with MessagePack.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lines of text, JSON documents a line each, or MessagePack documents one after the other.
    pub encoding: Encoding,
    /// Bytes of a record at most, as it is read and as UTF-8. A longer line is cut there.
    pub record_max: usize,
    /// Whether JSON and MessagePack events get the fields that lines of text always have.
    pub add_fields: bool,
    /// Messages may have their length before them, as syslog has over TCP: see [`crate::chunk`].
    pub is_counted: bool,
    /// Which lines belong to one record; each is one when not set.
    pub multiline: Option<Arc<Multiline>>,
    /// The lines are those of a container's log.
    pub container: Option<ContainerFormat>,
    /// The encoding of lines, see [`crate::charset()`]; UTF-8 when not set.
    pub charset: Option<&'static encoding_rs::Encoding>,
    /// Only records whose text one of these matches become events. All do when the set is empty or not there.
    pub include_lines: Option<RegexSet>,
    /// Records whose text one of these matches become no events.
    pub exclude_lines: Option<RegexSet>,
    /// What ends a line.
    pub line_ending: LineEnding,
    /// Lines of text are read as syslog messages.
    pub syslog: Option<Syslog>,
    /// Lines of text are rows of CSV.
    pub csv: Option<Csv>,
    /// Whether fields of the documents are read, which decoders learn from their batches.
    pub members: MembersWanted,
}

impl Settings {
    /// Simple records of at most `record_max` bytes: nothing else is set.
    pub fn new(encoding: Encoding, record_max: usize) -> Self {
        Self {
            encoding,
            record_max,
            add_fields: false,
            is_counted: false,
            multiline: None,
            container: None,
            charset: None,
            include_lines: None,
            exclude_lines: None,
            line_ending: LineEnding::Lf,
            syslog: None,
            csv: None,
            members: MembersWanted::default(),
        }
    }

    /// Whether lines have to be looked at one by one to know what a record is.
    pub(crate) fn is_assembled(&self) -> bool {
        self.container.is_some() || self.multiline.is_some() || self.csv.is_some()
    }

    /// Whether JSON documents need not be one per line: their layout is found out by the first bytes of the stream.
    pub fn has_layout(&self) -> bool {
        self.encoding == Encoding::Json
            && self.line_ending == LineEnding::Lf
            && charset::foreign(self.charset).is_none()
            && !self.is_assembled()
    }

    /// Room for the header of a stream, where its rows have one.
    pub(crate) fn header_slot(&self) -> Option<Arc<HeaderSlot>> {
        let csv = self.csv.as_ref().filter(|csv| csv.has_header());
        csv.map(|_| Arc::default())
    }

    /// The header in the first bytes of a stream, decompressed; none where they do not hold all of it.
    pub fn header_of(&self, head: &[u8]) -> Option<Arc<Header>> {
        let csv = self.csv.as_ref()?;
        match charset::foreign(self.charset) {
            // A byte order mark decides what UTF-16 it is.
            Some(charset) => csv.header_of(charset.decode(head).0.as_bytes()),
            None => csv.header_of(head),
        }
    }
}

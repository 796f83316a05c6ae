//! The fields of a message as columns: which there are, and their cells.
//!
//! The names are those of the Elastic Common Schema: <https://www.elastic.co/docs/reference/ecs/ecs-log>, and `event.sequence`
//! of <https://www.elastic.co/docs/reference/ecs/ecs-event>. A column is made
//! when the first row has something for it.
//!
//! `host.name` is the host that the message comes from: the one that it names, or the address that it was received from. The
//! machine on which Millpond runs is `agent.name` then. A message in a file that names no host is one of this machine.

use std::sync::Arc;

use batch::{Batch, Cell, ColumnBuilder, Edit, FieldPath, Origin, Span};
use bytes::Bytes;

use super::data::Scratch;
use super::header::{FieldSpan, Header};

/// A field of a message, by its place in [`PATHS`].
#[derive(Clone, Copy, Debug)]
enum Field {
    Message,
    Timestamp,
    Priority,
    FacilityCode,
    FacilityName,
    SeverityCode,
    SeverityName,
    Version,
    Hostname,
    Host,
    Agent,
    Appname,
    Procid,
    Msgid,
    StructuredData,
    Sequence,
}

const FIELDS: usize = 16;

const PATHS: [&[&str]; FIELDS] = [
    &["message"],
    &["@timestamp"],
    &["log", "syslog", "priority"],
    &["log", "syslog", "facility", "code"],
    &["log", "syslog", "facility", "name"],
    &["log", "syslog", "severity", "code"],
    &["log", "syslog", "severity", "name"],
    &["log", "syslog", "version"],
    &["log", "syslog", "hostname"],
    &["host", "name"],
    &["agent", "name"],
    &["log", "syslog", "appname"],
    &["log", "syslog", "procid"],
    &["log", "syslog", "msgid"],
    &["log", "syslog", "structured_data"],
    &["event", "sequence"],
];

/// The facilities' usual short names; the RFCs only describe them.
const FACILITIES: [&str; 24] = [
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "security",
    "console",
    "solaris-cron",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
];

/// The severities' names in the RFCs.
const SEVERITIES: [&str; 8] = [
    "Emergency",
    "Alert",
    "Critical",
    "Error",
    "Warning",
    "Notice",
    "Informational",
    "Debug",
];

/// The fields' paths and the words that some of them take, made once.
#[derive(Debug)]
pub(super) struct Fields {
    paths: Vec<FieldPath>,
    /// One buffer that holds all the words.
    words: Arc<[Bytes]>,
    facilities: Vec<Cell>,
    severities: Vec<Cell>,
}

impl Fields {
    pub fn new() -> Self {
        let mut text = Vec::new();
        let mut cells = |words: &[&str]| -> Vec<Cell> {
            let mut cell = |word: &&str| {
                let start = text.len() as u32;
                text.extend_from_slice(word.as_bytes());
                Cell::Text(Span {
                    buffer: 0,
                    start,
                    len: word.len() as u32,
                })
            };
            words.iter().map(&mut cell).collect()
        };
        let facilities = cells(&FACILITIES);
        let severities = cells(&SEVERITIES);
        Self {
            paths: PATHS
                .iter()
                .map(|keys| FieldPath::from_keys(keys.iter().copied()))
                .collect(),
            words: [Bytes::from(text)].into(),
            facilities,
            severities,
        }
    }
}

/// The columns of a batch that is being read.
pub(super) struct Columns<'a> {
    fields: &'a Fields,
    len: usize,
    /// What the lines point into.
    lines: &'a Arc<[Bytes]>,
    columns: [Option<ColumnBuilder>; FIELDS],
    /// Some key of some structured data holds a dot.
    dotted_keys: bool,
    hosts: Hosts<'a>,
    /// The cell that holds the name of this machine.
    collector: Option<Cell>,
}

/// Where messages come from.
pub(super) struct Hosts<'a> {
    origin: &'a Origin,
    /// The name of this machine.
    collector: &'a Arc<str>,
}

impl<'a> Hosts<'a> {
    pub fn of(batch: &'a Batch) -> Self {
        Self {
            origin: batch.origin(),
            collector: &batch.host().name,
        }
    }

    /// The address, without its port, that a row was received from.
    fn sender(&self, row: usize) -> Option<&'a str> {
        let peer = self.origin.stream(row).source.peer()?;
        let (host, _) = peer.rsplit_once(':')?;
        // A socket of Unix has a path instead, and its senders are on this machine.
        let is_address = host.starts_with(|first: char| first.is_ascii_digit() || first == '[');
        is_address.then(|| host.trim_matches(['[', ']']))
    }
}

impl<'a> Columns<'a> {
    /// Columns of `len` rows whose lines point into `lines`.
    pub fn new(fields: &'a Fields, len: usize, lines: &'a Arc<[Bytes]>, hosts: Hosts<'a>) -> Self {
        Self {
            hosts,
            collector: None,
            fields,
            len,
            lines,
            columns: Default::default(),
            dotted_keys: false,
        }
    }

    /// Puts what was read of the line at `line` into the columns of `row`. `structured` is what was read with it.
    #[inline]
    pub fn put(&mut self, row: usize, line: Span, header: &Header, structured: &Scratch) {
        self.set(row, Field::Message, Cell::Text(header.text.of(line)));
        if let Some(nanos) = header.time {
            self.set(row, Field::Timestamp, Cell::Time(nanos));
        }
        if let Some(priority) = header.priority {
            let (facility, severity) = (priority / 8, priority % 8);
            self.set(row, Field::Priority, Cell::Int(priority.into()));
            self.set(row, Field::FacilityCode, Cell::Int(facility.into()));
            let name = self.fields.facilities[usize::from(facility)];
            self.set(row, Field::FacilityName, name);
            self.set(row, Field::SeverityCode, Cell::Int(severity.into()));
            let name = self.fields.severities[usize::from(severity)];
            self.set(row, Field::SeverityName, name);
        }
        self.set_part(row, line, Field::Version, header.version);
        self.set_part(row, line, Field::Hostname, header.hostname);
        self.set_host(row, line, header.hostname);
        self.set_part(row, line, Field::Appname, header.appname);
        self.set_part(row, line, Field::Procid, header.procid);
        self.set_part(row, line, Field::Msgid, header.msgid);
        if let Some(sequence) = header.sequence {
            self.set(row, Field::Sequence, Cell::Int(sequence));
        }
        if header.has_data {
            let column = self.column(Field::StructuredData);
            let span = column.append(|out| out.extend_from_slice(&structured.json));
            column.set(row, Cell::Json(span));
            self.dotted_keys |= structured.dotted_keys;
        }
    }

    /// Puts what is known of a line that is no message: where it came from.
    pub fn put_unread(&mut self, row: usize, line: Span) {
        self.set_host(row, line, FieldSpan::default());
    }

    /// Sets the sender as `host.name`, and this machine as `agent.name`.
    fn set_host(&mut self, row: usize, line: Span, hostname: FieldSpan) {
        let sender = if hostname.is_empty() {
            let Some(sender) = self.hosts.sender(row) else {
                return;
            };
            let column = self.column(Field::Host);
            Cell::Text(column.append(|out| out.extend_from_slice(sender.as_bytes())))
        } else {
            Cell::Text(hostname.of(line))
        };
        self.set(row, Field::Host, sender);
        if let Some(collector) = self.collector {
            self.set(row, Field::Agent, collector);
        } else {
            let name = self.hosts.collector;
            let column = self.column(Field::Agent);
            let cell = Cell::Text(column.append(|out| out.extend_from_slice(name.as_bytes())));
            column.set(row, cell);
            self.collector = Some(cell);
        }
    }

    /// The change that sets the fields.
    pub fn finish(self) -> Edit {
        let mut edit = Edit::new();
        for (path, column) in self.fields.paths.iter().zip(self.columns) {
            if let Some(column) = column {
                edit.set(path.clone(), column.finish());
            }
        }
        if self.dotted_keys {
            edit.dotted_keys();
        }
        edit
    }

    #[inline]
    fn set_part(&mut self, row: usize, line: Span, field: Field, part: FieldSpan) {
        if !part.is_empty() {
            self.set(row, field, Cell::Text(part.of(line)));
        }
    }

    #[inline]
    fn set(&mut self, row: usize, field: Field, cell: Cell) {
        self.column(field).set(row, cell);
    }

    #[inline]
    fn column(&mut self, field: Field) -> &mut ColumnBuilder {
        let Self { lines, fields, .. } = *self;
        let len = self.len;
        self.columns[field as usize].get_or_insert_with(|| match field {
            Field::FacilityName | Field::SeverityName => {
                ColumnBuilder::over(len, fields.words.clone())
            }
            Field::Timestamp
            | Field::Priority
            | Field::FacilityCode
            | Field::SeverityCode
            | Field::StructuredData
            | Field::Agent
            | Field::Sequence => ColumnBuilder::new(len),
            _ => ColumnBuilder::over(len, lines.clone()),
        })
    }
}

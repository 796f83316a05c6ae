//! A message: its header, its structured data and its text.
//!
//! ```text
//! RFC 5424   "<" PRI ">1 " TIME SP HOST SP APP SP PROCID SP MSGID SP DATA [SP [BOM] TEXT]
//! RFC 3164   "<" PRI ">" TIME SP HOST SP TAG ["[" PID "]"] ": " TEXT
//! ```

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use component::Encoded;

use super::choice::{BoundChoice, Choice};
use super::data::{BoundData, StructuredData};
use super::header::HeaderLimit;
use super::level::{BoundPriority, Priority};
use super::stamp::{BoundStamp, Stamp};
use crate::codec::Codec;
use crate::socket::framing::Framing;

/// How messages are written.
pub struct Rendering {
    pub priority: Priority,
    pub stamp: Stamp,
    pub hostname: Choice,
    pub appname: Choice,
    pub procid: Choice,
    pub msgid: Choice,
    pub data: StructuredData,
    pub codec: Codec,
    /// Whether the byte order mark is before the text.
    pub has_mark: bool,
    pub framing: Framing,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The header over the columns of one batch.
struct Header<'a> {
    priority: BoundPriority<'a>,
    stamp: BoundStamp<'a>,
    hostname: BoundChoice<'a>,
    appname: BoundChoice<'a>,
    procid: BoundChoice<'a>,
    limits: [HeaderLimit; 2],
    rest: Rest<'a>,
}

/// What only RFC 5424 has.
enum Rest<'a> {
    Rfc3164,
    Rfc5424(BoundChoice<'a>, BoundData<'a>),
}

impl Rendering {
    /// The fields that templates name.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        let choices = [&self.hostname, &self.appname, &self.procid, &self.msgid];
        let mut reads: Vec<_> = choices.into_iter().flat_map(Choice::reads).collect();
        reads.extend(self.priority.reads());
        reads.extend(self.data.reads());
        reads.extend(self.codec.reads());
        reads
    }

    /// Appends rows, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut header = self.bind(batch);
        let mut text = self.codec.bind(batch);
        self.framing.write(rows, encoded, |row, out| {
            header.write(row, out);
            if self.has_mark {
                out.extend_from_slice(BYTE_ORDER_MARK);
            }
            text.write(row, out);
        });
    }

    fn bind<'a>(&'a self, batch: &'a Batch) -> Header<'a> {
        let (limits, rest) = match self.stamp {
            Stamp::Rfc3164(_) => ([HeaderLimit::TAG, HeaderLimit::TAG_PROCID], Rest::Rfc3164),
            Stamp::Rfc5424 => {
                let clean = |out: &mut Vec<u8>, start| HeaderLimit::MSGID.clean(out, start);
                let rest = Rest::Rfc5424(self.msgid.bind(batch, clean), self.data.bind(batch));
                ([HeaderLimit::APPNAME, HeaderLimit::PROCID], rest)
            }
        };
        let bind = |choice: &'a Choice, limit: HeaderLimit| {
            choice.bind(batch, move |out, start| limit.clean(out, start))
        };
        Header {
            priority: self.priority.bind(batch),
            stamp: self.stamp.bind(batch),
            hostname: bind(&self.hostname, HeaderLimit::HOSTNAME),
            appname: bind(&self.appname, limits[0]),
            procid: bind(&self.procid, limits[1]),
            limits,
            rest,
        }
    }
}

impl Header<'_> {
    #[inline]
    fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        let [appname, procid] = self.limits;
        self.priority.write(row, out);
        if matches!(self.rest, Rest::Rfc5424(..)) {
            out.extend_from_slice(b"1 ");
        }
        self.stamp.write(row, out);
        out.push(b' ');
        self.hostname.write(row, out, |out, start| {
            HeaderLimit::HOSTNAME.clean(out, start);
        });
        out.push(b' ');
        self.appname
            .write(row, out, |out, start| appname.clean(out, start));
        match &mut self.rest {
            Rest::Rfc5424(msgid, data) => {
                out.push(b' ');
                self.procid
                    .write(row, out, |out, start| procid.clean(out, start));
                out.push(b' ');
                msgid.write(row, out, |out, start| HeaderLimit::MSGID.clean(out, start));
                out.push(b' ');
                data.write(row, out);
                out.push(b' ');
            }
            Rest::Rfc3164 => {
                out.push(b'[');
                let start = out.len();
                self.procid
                    .write(row, out, |out, start| procid.clean(out, start));
                match out.len() == start {
                    true => out.truncate(start - 1),
                    false => out.push(b']'),
                }
                out.extend_from_slice(b": ");
            }
        }
    }
}

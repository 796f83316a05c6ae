//! An event as a message, and messages in a request.
//!
//! Each row of a request is a message: the lengths of its headers and of its payload, each as 4 bytes, little-endian, and both of them.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use component::Encoded;
use config::{ConfigError, Node};
use expr::{Absent, Template};

use super::Config;
use crate::codec::{Codec, template};

/// The header by which JetStream recognises what it has already.
const ID_HEADER: &str = "Nats-Msg-Id";

/// What an absent field gives.
const NOTHING: Absent = Absent::Text("");

/// How events are rendered.
#[derive(Debug)]
pub struct MessageFormat {
    codec: Codec,
    headers: Vec<(String, Template)>,
    carries_ids: bool,
}

impl MessageFormat {
    /// What the settings of an output say. `node` holds all of them.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn new(codec: Codec, config: &Config, node: &Node) -> Result<Self, ConfigError> {
        let at = node.nearest("headers");
        let header = |(name, text): (&String, &String)| {
            let at = at.get(name).unwrap_or(at);
            let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(at.error(format!("`{name}` cannot be the name of a header")));
            }
            if name == ID_HEADER && config.event_ids {
                let error = format!("`{ID_HEADER}` is set by `event_ids`");
                return Err(at.error(error));
            }
            Ok((name.clone(), template(node, at, text)?))
        };
        Ok(Self {
            codec,
            headers: config
                .headers
                .iter()
                .map(header)
                .collect::<Result<_, _>>()?,
            carries_ids: config.event_ids,
        })
    }

    /// The fields that its templates name.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        let headers = self.headers.iter().flat_map(|(_, text)| text.reads());
        self.codec.reads().into_iter().chain(headers).collect()
    }

    /// Appends rows, all for one subject, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, subject: &str, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        let mut codec = self.codec.bind(batch);
        let headers = self.headers.iter();
        let mut headers: Vec<_> = headers
            .map(|(name, text)| (name, text.bind(batch, NOTHING)))
            .collect();
        for row in rows.iter() {
            let out = &mut encoded.bytes;
            let start = out.len();
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(b"NATS/1.0\r\n");
            if self.carries_ids {
                // A stream compares the ids of all of its subjects, and one event may go to several.
                write_header(out, ID_HEADER, |out| {
                    batch.origin().write_id(row, out);
                    out.push(b' ');
                    out.extend_from_slice(subject.as_bytes());
                });
            }
            for (name, text) in &mut headers {
                write_header(out, name, |out| text.write(row, out));
            }
            out.extend_from_slice(b"\r\n");
            let payload = out.len();
            codec.write(row, out);
            let headers_len = (payload - start - 8) as u32;
            let payload_len = (out.len() - payload) as u32;
            out[start..start + 4].copy_from_slice(&headers_len.to_le_bytes());
            out[start + 4..start + 8].copy_from_slice(&payload_len.to_le_bytes());
            encoded.end_row(row);
        }
    }
}

/// Appends a header, whose text `write` gives; none where that is empty. Line ends in it become blanks.
fn write_header(out: &mut Vec<u8>, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let text = out.len();
    write(out);
    if out.len() == text {
        return out.truncate(start);
    }
    for byte in &mut out[text..] {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The headers and payloads in the body of a request.
pub fn messages(mut body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (lens, rest) = body.split_first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *lens;
        let headers = u32::from_le_bytes([a, b, c, d]) as usize;
        let payload = u32::from_le_bytes([e, f, g, h]) as usize;
        let (headers, rest) = rest.split_at_checked(headers)?;
        let (payload, rest) = rest.split_at_checked(payload)?;
        body = rest;
        Some((headers, payload))
    })
}

//! A quick look at what documents do not have.
//!
//! Before something is written to `a.b`, every event is asked what it has at `a`, also in a key such as `a.b`. Most have nothing there, and
//! then the text `"a` is nowhere in the document. That is looked up once for all of the fields of a change whose paths begin with `a`.

use memchr::memmem;

use crate::bitmap::Bitmap;
use crate::cell::Value;
use crate::json;
use crate::tree::Node;

/// Which documents mention the first keys of fields. One that does not has nothing below them, whatever the field is; the
/// fields of a change often have a first key in common.
#[derive(Default)]
pub(crate) struct Mentions(Vec<Mention>);

struct Mention {
    key: Box<str>,
    /// The beginning of the key as it stands in JSON.
    json: memmem::Finder<'static>,
    msgpack: memmem::Finder<'static>,
    /// Whether something was written to a field that begins with the key.
    is_written: bool,
    looked: Bitmap,
    found: Bitmap,
}

impl Mentions {
    /// Whether an event may have something at these keys or above, in one of the spellings with dots.
    pub fn may_have(&mut self, root: &Node, keys: &[Box<str>], row: usize) -> bool {
        let Some(documents) = &root.own else {
            return true;
        };
        let known = self.0.iter().position(|mention| mention.key == keys[0]);
        let at = known.unwrap_or_else(|| {
            self.0.push(Mention::new(root, &keys[0], documents.len()));
            self.0.len() - 1
        });
        let mention = &mut self.0[at];
        if mention.is_written {
            return true;
        }
        if !mention.looked.contains(row) {
            mention.looked.insert(row);
            let is_mentioned = match documents.value(row) {
                Value::Json(document) => mention.json.find(document).is_some(),
                Value::MsgPack(document) => mention.msgpack.find(document).is_some(),
                _ => true,
            };
            if is_mentioned {
                mention.found.insert(row);
            }
        }
        mention.found.contains(row)
    }
}

impl Mention {
    fn new(root: &Node, key: &str, len: usize) -> Self {
        let mut json = vec![b'"'];
        json::write_string_body(&mut json, key.as_bytes());
        Self {
            key: key.into(),
            json: memmem::Finder::new(&json).into_owned(),
            msgpack: memmem::Finder::new(key).into_owned(),
            is_written: root.children.iter().any(|node| node.key.starts_with(key)),
            looked: Bitmap::none(len),
            found: Bitmap::none(len),
        }
    }
}

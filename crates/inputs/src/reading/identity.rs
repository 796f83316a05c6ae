//! Ids of streams: 128 bits made of what identifies the stream, the same in every run.
//!
//! FNV-1a over 128 bits, because it is defined for ever and is fed a kilobyte a file. Who can choose the content of log
//! files can make two ids collide; such a person can write false events anyway.

use batch::fnv::Fnv128;

/// How many of a file's first bytes, decompressed, count for its id.
pub(crate) const FINGERPRINT_BYTES: usize = 1024;

/// An id that is being made.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    hash: Fnv128,
    /// Bytes that still count.
    fingerprint_left: usize,
}

impl Identity {
    /// An id of these parts, in order, and of the first bytes of the content.
    pub(crate) fn new<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let mut identity = Self {
            hash: Fnv128::new(),
            fingerprint_left: FINGERPRINT_BYTES,
        };
        for part in parts {
            identity.hash.add_part(part);
        }
        identity
    }

    /// Takes the next bytes of the content.
    pub(crate) fn content(&mut self, bytes: &[u8]) {
        let counted = &bytes[..bytes.len().min(self.fingerprint_left)];
        self.fingerprint_left -= counted.len();
        self.hash.add(counted);
    }

    /// The id of what was taken so far.
    pub(crate) fn id(&self) -> u128 {
        self.hash.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_depend_on_every_part() {
        let id = |parts: [&[u8]; 2], content: &[u8]| {
            let mut identity = Identity::new(parts);
            identity.content(content);
            identity.id()
        };
        let base = id([b"host", b"path"], b"first line");
        assert_ne!(base, id([b"hostp", b"ath"], b"first line"));
        assert_ne!(base, id([b"host", b"path"], b"first lime"));
        assert_eq!(
            id([b"", b""], &[b'x'; 1024]),
            id([b"", b""], &[b'x'; 2000]),
            "1,024 bytes count"
        );
        assert_ne!(id([b"", b""], &[b'x'; 1024]), id([b"", b""], &[b'x'; 1023]));
    }
}

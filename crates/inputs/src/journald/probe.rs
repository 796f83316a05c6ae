//! Exported entries from memory, for the crate `fuzzkit`.

use batch::json;

use super::document;
use super::export::Export;
use crate::connections::rendered::Rendered;

/// How much of an entry is kept.
const ENTRY_BYTES_MAX: usize = 2000;

/// The documents of entries that come in pieces of `piece` bytes.
///
/// # Panics
/// One is no JSON object in normal form.
pub fn journal(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut export = Export::new(ENTRY_BYTES_MAX);
    let mut documents = Vec::new();
    for mut piece in bytes.chunks(piece.max(1)) {
        while !piece.is_empty() {
            let (read, is_entry) = export.read(piece);
            piece = &piece[read..];
            if is_entry {
                let mut rendered = Rendered::default();
                document::write(&export, 0, &mut rendered);
                for row in rendered.rows() {
                    let document = &rendered.written()[row.document.clone()];
                    let scan = json::validate_object(document);
                    assert!(scan.is_ok_and(|scan| !scan.rewrite), "a document");
                    documents.push(String::from_utf8_lossy(document).into_owned());
                }
            }
        }
    }
    documents
}

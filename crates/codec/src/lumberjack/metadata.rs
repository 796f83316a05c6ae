//! Taking `@metadata` out of a document, in place.

use std::ops::Range;

use batch::json;

/// The member, with its quotes.
const KEY: &[u8] = b"\"@metadata\"";

/// A document and its metadata, which lie side by side where the document was.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub document: Range<usize>,
    pub metadata: Range<usize>,
}

/// Moves the member `@metadata` of a document behind it or in front of it, whichever moves less; none where the document has
/// no such member that is an object. All other bytes of the document stay as they are. The document is valid and in normal
/// form (see [`json`]).
pub(super) fn split(document: &mut [u8]) -> Option<Split> {
    let value = json::find(document, &KEY[1..KEY.len() - 1])?;
    if document[value.start] != b'{' {
        return None;
    }
    let hole = hole(document, value.clone())?;
    let within = value.start - hole.start..value.end - hole.start;
    let (before, behind) = (hole.start, document.len() - hole.end);
    if before <= behind {
        document[..hole.end].rotate_left(before);
        return Some(Split {
            document: hole.len()..document.len(),
            metadata: within,
        });
    }
    document[before..].rotate_left(hole.len());
    let end = before + behind;
    Some(Split {
        document: 0..end,
        metadata: end + within.start..end + within.end,
    })
}

/// The member of a value, with the comma that goes when it does.
fn hole(document: &[u8], value: Range<usize>) -> Option<Range<usize>> {
    let colon = value.start - trailing_whitespace(&document[..value.start]) - 1;
    let key_end = colon - trailing_whitespace(&document[..colon]);
    let key = key_end.checked_sub(KEY.len())?;
    let behind = document[value.end..].trim_ascii_start();
    if behind.first() == Some(&b',') {
        return Some(key..document.len() - behind.len() + 1);
    }
    let comma = key - trailing_whitespace(&document[..key]) - 1;
    let start = if document[comma] == b',' { comma } else { key };
    Some(start..value.end)
}

fn trailing_whitespace(text: &[u8]) -> usize {
    text.len() - text.trim_ascii_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_document_stays_as_it_is() {
        let long = "x".repeat(300);
        for (document, rest, metadata) in [
            (r#"{"@metadata":{}}"#, "{}", "{}"),
            (r#"{ "@metadata" : {"a":1} }"#, "{  }", r#"{"a":1}"#),
            (r#"{"@metadata":{"a":1},"b":2}"#, r#"{"b":2}"#, r#"{"a":1}"#),
            (
                r#"{"a": 1 , "@metadata" : {"b":{}} , "c" : 2}"#,
                r#"{"a": 1 ,  "c" : 2}"#,
                r#"{"b":{}}"#,
            ),
            (
                r#"{"a":1 , "@metadata":{"b":2} }"#,
                r#"{"a":1  }"#,
                r#"{"b":2}"#,
            ),
            (
                &format!(r#"{{"a":"{long}","@metadata":{{"b":2}},"c":3}}"#),
                &format!(r#"{{"a":"{long}","c":3}}"#),
                r#"{"b":2}"#,
            ),
            (
                &format!(r#"{{"a":3,"@metadata":{{"b":2}},"c":"{long}"}}"#),
                &format!(r#"{{"a":3,"c":"{long}"}}"#),
                r#"{"b":2}"#,
            ),
        ] {
            let mut bytes = document.as_bytes().to_vec();
            let split = split(&mut bytes).expect(document);
            assert_eq!(&bytes[split.document], rest.as_bytes(), "{document}");
            assert_eq!(&bytes[split.metadata], metadata.as_bytes(), "{document}");
        }
    }

    #[test]
    fn what_is_no_metadata_stays() {
        for document in [
            r#"{"a":{"@metadata":{}}}"#,
            r#"{"@metadata":"text"}"#,
            r#"{"a":"@metadata"}"#,
            "{}",
        ] {
            let mut bytes = document.as_bytes().to_vec();
            assert_eq!(split(&mut bytes), None);
            assert_eq!(bytes, document.as_bytes());
        }
    }
}

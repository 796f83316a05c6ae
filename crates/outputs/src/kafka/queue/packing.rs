//! Batches as records.

use std::sync::Arc;

use batch::{Batch, WireError};
use bytes::Bytes;
use component::{DestinationPart, Encoded, RowAnswer};

/// Writes a batch as records of up to `max` bytes, each a part. A row that is larger is refused.
pub fn pack(batch: &Batch, max: usize, encoded: &mut Encoded) {
    let parts = batch
        .size()
        .div_ceil(max.max(1))
        .clamp(1, batch.len().max(1));
    if parts == 1 {
        return pack_rows(batch, 0, max, encoded);
    }
    let step = batch.len().div_ceil(parts);
    let mut from = 0;
    while from < batch.len() {
        let to = (from + step).min(batch.len());
        let rows: Vec<usize> = (from..to).collect();
        pack_rows(&batch.pick(&rows), from, max, encoded);
        from = to;
    }
}

/// The same records, and in place of those that are larger than `max` bytes several; nothing if none is.
///
/// # Errors
/// One of them cannot be read.
pub fn repack(encoded: &Encoded, max: usize) -> Result<Option<Encoded>, WireError> {
    if encoded.parts.iter().all(|part| part.bytes.len() <= max) {
        return Ok(None);
    }
    let mut repacked = Encoded::default();
    for part in &encoded.parts {
        let record = &encoded.bytes[part.bytes.clone()];
        let (parts, refused) = (repacked.parts.len(), repacked.refused.len());
        pack(
            &Batch::thaw(Bytes::copy_from_slice(record))?,
            max,
            &mut repacked,
        );
        let packed = repacked.parts[parts..].iter_mut();
        let packed = packed.flat_map(|new| &mut new.rows);
        let refused = repacked.refused[refused..].iter_mut();
        for row in packed.chain(refused.map(|refused| &mut refused.row)) {
            *row = part.rows[*row];
        }
    }
    Ok(Some(repacked))
}

/// Writes the two halves of a batch as a record each, however large they are.
pub fn pack_halves(batch: &Batch, encoded: &mut Encoded) {
    let middle = batch.len() / 2;
    for rows in [0..middle, middle..batch.len()] {
        let from = rows.start;
        let rows: Vec<usize> = rows.collect();
        pack_rows(&batch.pick(&rows), from, usize::MAX, encoded);
    }
}

/// Writes rows, which begin at `from` in the whole batch, as one record, or where that is too large as several.
fn pack_rows(rows: &Batch, from: usize, max: usize, encoded: &mut Encoded) {
    let frozen = rows.freeze();
    let documents: usize = frozen.documents.iter().map(Bytes::len).sum();
    let size = frozen.head.len() + documents;
    if size <= max {
        let start = encoded.bytes.len();
        encoded.bytes.reserve(size);
        encoded.bytes.extend_from_slice(&frozen.head);
        for part in &frozen.documents {
            encoded.bytes.extend_from_slice(part);
        }
        encoded.rows += rows.len();
        encoded.parts.push(DestinationPart {
            destination: Arc::default(),
            bytes: start..encoded.bytes.len(),
            rows: (from..from + rows.len()).collect(),
        });
        return;
    }
    if rows.len() < 2 {
        let reason = format!(
            "the event takes {size} bytes in the queue, and a record of the topic may have {max}"
        );
        encoded.refused.push(RowAnswer {
            row: from,
            reason: reason.into(),
        });
        return;
    }
    let middle = rows.len() / 2;
    for half in [0..middle, middle..rows.len()] {
        let start = half.start;
        let half: Vec<usize> = half.collect();
        pack_rows(&rows.pick(&half), from + start, max, encoded);
    }
}

#[cfg(test)]
mod tests {
    use batch::{BatchBuilder, Encoding, HostInfo, JsonWriter, Source, Span, Stream};

    use super::*;

    fn of_lines(lines: &[String]) -> Batch {
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(Encoding::Json, &host, 7, false);
        builder.stream(&Arc::new(Stream::new(9, Source::Unnamed)));
        let buffer = builder.buffer(Bytes::from(lines.concat()));
        let mut at = 0;
        for line in lines {
            let document = Span {
                buffer,
                start: at,
                len: line.len() as u32,
            };
            let end = at + document.len;
            builder.push(document, at.into(), end.into());
            at = end;
        }
        builder.finish()
    }

    fn unpacked(encoded: &Encoded) -> (Vec<String>, Vec<String>) {
        let (mut documents, mut ids) = (Vec::new(), Vec::new());
        for part in &encoded.parts {
            let bytes = Bytes::copy_from_slice(&encoded.bytes[part.bytes.clone()]);
            let batch = Batch::thaw(bytes).expect("a batch");
            let writer = JsonWriter::new(&batch);
            for row in 0..batch.len() {
                let (mut document, mut id) = (Vec::new(), Vec::new());
                writer.write(row, &mut document);
                batch.origin().write_id(row, &mut id);
                documents.push(String::from_utf8(document).expect("UTF-8"));
                ids.push(String::from_utf8(id).expect("UTF-8"));
            }
        }
        (documents, ids)
    }

    #[test]
    fn a_batch_becomes_records_that_fit_with_the_same_events() {
        let lines: Vec<String> = (0..500)
            .map(|n| format!(r#"{{"n":{n},"text":"{}"}}"#, "x".repeat(n % 97)))
            .collect();
        let batch = of_lines(&lines);
        let mut whole = Encoded::default();
        pack(&batch, 1 << 20, &mut whole);
        assert_eq!((whole.parts.len(), whole.rows), (1, 500));
        let (documents, ids) = unpacked(&whole);
        assert!(documents == lines);
        let mut halves = Encoded::default();
        pack_halves(&batch, &mut halves);
        assert_eq!(halves.parts.len(), 2);
        assert!(unpacked(&halves) == (documents.clone(), ids.clone()));
        for max in [10_000, 1_000] {
            let mut split = Encoded::default();
            pack(&batch, max, &mut split);
            assert!(split.parts.iter().all(|part| part.bytes.len() <= max));
            assert!(
                unpacked(&split) == (documents.clone(), ids.clone()),
                "{max}"
            );
        }
    }

    #[test]
    fn a_row_that_fits_nowhere_is_refused_alone() {
        let mut lines: Vec<String> = (0..20).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
        lines[7] = format!(r#"{{"text":"{}"}}"#, "x".repeat(5_000));
        let mut encoded = Encoded::default();
        pack(&of_lines(&lines), 2_000, &mut encoded);
        let refused: Vec<usize> = encoded.refused.iter().map(|it| it.row).collect();
        assert_eq!((refused, encoded.rows), (vec![7], 19));
        let rest = [&lines[..7], &lines[8..]].concat();
        assert_eq!(unpacked(&encoded).0, rest);
        // The same where the limit is known later, also for records that have only some of the rows.
        let mut early = Encoded::default();
        pack(&of_lines(&lines), 6_000, &mut early);
        assert_eq!(
            repack(&early, 6_000).expect("records").map(|it| it.rows),
            None
        );
        for part in &mut early.parts {
            part.rows.iter_mut().for_each(|row| *row += 100);
        }
        let late = repack(&early, 2_000)
            .expect("records")
            .expect("one is larger");
        let refused: Vec<usize> = late.refused.iter().map(|it| it.row).collect();
        assert_eq!((refused, late.rows), (vec![107], 19));
        assert_eq!(unpacked(&late).0, rest);
    }
}

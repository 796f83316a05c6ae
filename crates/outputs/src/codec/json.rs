//! Events as JSON, each on one line: newlines that a document holds between its tokens become spaces.

use batch::{Bitmap, JsonWriter};

/// Appends a row without its end.
pub fn write_one(writer: &JsonWriter<'_>, row: usize, out: &mut Vec<u8>) {
    let start = out.len();
    writer.write(row, out);
    if memchr::memchr(b'\n', &out[start..]).is_some() {
        join_lines(&mut out[start..]);
    }
}

/// Appends rows, a line each; `ended` gets each row with the end of its bytes.
pub fn write_rows(
    writer: &JsonWriter<'_>,
    rows: &Bitmap,
    out: &mut Vec<u8>,
    mut ended: impl FnMut(usize, usize),
) {
    let start = out.len();
    for row in rows.iter() {
        writer.write(row, out);
        out.push(b'\n');
        ended(row, out.len());
    }
    // Counting newlines is far cheaper than looking for them in every event, and nearly always the answer is one each.
    if memchr::memchr_iter(b'\n', &out[start..]).count() == rows.count() {
        return;
    }
    out.truncate(start);
    for row in rows.iter() {
        write_one(writer, row, out);
        out.push(b'\n');
    }
}

/// Strings hold their newlines escaped, so that those in `json` stand between tokens.
fn join_lines(json: &mut [u8]) {
    for byte in json {
        if *byte == b'\n' {
            *byte = b' ';
        }
    }
}

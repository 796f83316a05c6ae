//! Bodies of requests, compressed as a whole.

use std::io::{self, Write};

use bytes::Bytes;
use component::Compression;
use flate2::write::GzEncoder;

/// What a text becomes, or nothing where it stays as it is.
///
/// # Errors
/// The library failed, which it does only when memory is short.
pub fn compress(compression: Compression, text: &[u8]) -> io::Result<Option<Bytes>> {
    Ok(match compression {
        Compression::None => None,
        Compression::Gzip(level) => {
            let room = Vec::with_capacity(text.len() / 4);
            let mut encoder = GzEncoder::new(room, flate2::Compression::new(level));
            encoder.write_all(text)?;
            Some(encoder.finish()?.into())
        }
        Compression::Zstd(level) => Some(zstd::bulk::compress(text, level)?.into()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_is_compressed_can_be_read_again() {
        let text = b"the same words again and again, ".repeat(50);
        let gzip = compress(Compression::Gzip(6), &text).expect("memory");
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&*gzip.expect("it is compressed"))
            .read_to_end(&mut read)
            .expect("gzip");
        assert_eq!(read, text);
        let zstd = compress(Compression::Zstd(3), &text).expect("memory");
        let zstd = zstd.expect("it is compressed");
        assert!(zstd.len() < text.len());
        assert_eq!(
            zstd::bulk::decompress(&zstd, text.len()).expect("zstd"),
            text
        );
        assert_eq!(compress(Compression::None, &text).expect("memory"), None);
    }
}

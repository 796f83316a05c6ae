//! What an object consists of: a stream of rows, as the codec writes them, that may be compressed; or a Parquet file.

use std::io;

use component::Compression;

use super::parquet::{ParquetContent, ParquetFormat};
use crate::compressor::Compressor;

/// How objects are made of rows.
#[derive(Debug, Clone)]
pub enum Format {
    /// Rows one after the other.
    Stream {
        /// What stands at the beginning.
        header: Box<[u8]>,
        /// How all of it is compressed.
        compression: Compression,
    },
    /// A Parquet file.
    Parquet(ParquetFormat),
}

/// The content of an object on its way.
pub enum Content {
    /// Rows as they are.
    Plain,
    /// Compressed rows.
    Compressed(Box<Compressor>),
    /// A Parquet file.
    Parquet(Box<ParquetContent>),
}

impl Format {
    /// Begins the content of an object.
    ///
    /// # Errors
    /// The compressor cannot be set up; the same for the functions of [`Content`].
    pub fn begin(&self, out: &mut Vec<u8>) -> io::Result<Content> {
        let (header, mut content) = match self {
            Self::Parquet(format) => return Ok(Content::Parquet(Box::new(format.begin()?))),
            Self::Stream {
                header,
                compression: Compression::None,
            } => (header, Content::Plain),
            Self::Stream {
                header,
                compression,
            } => (
                header,
                Content::Compressed(Box::new(Compressor::new(*compression))),
            ),
        };
        content.write(header, out)?;
        Ok(content)
    }
}

impl Content {
    /// Appends rows; what came of them so far goes to `out`.
    pub fn write(&mut self, rows: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Plain => out.extend_from_slice(rows),
            Self::Compressed(compressor) => compressor.write(rows, out)?,
            Self::Parquet(content) => content.write(rows, out)?,
        }
        Ok(())
    }

    /// Ends the object.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Plain => Ok(()),
            Self::Compressed(compressor) => compressor.end_member(out),
            Self::Parquet(content) => content.finish(out),
        }
    }

    /// Bytes that it holds until later.
    pub fn held(&self) -> usize {
        match self {
            Self::Plain | Self::Compressed(_) => 0,
            Self::Parquet(content) => content.held(),
        }
    }
}

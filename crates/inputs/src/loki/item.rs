//! What push requests consist of, whatever their form is.

/// What a push request consists of: a stream, and then its entries.
pub(super) enum Item<'a> {
    /// The labels of a stream.
    Stream(Pairs<'a>),
    /// An entry of the last stream.
    Entry(Entry<'a>),
}

/// An entry.
pub(super) struct Entry<'a> {
    /// Its time in nanoseconds since 1970.
    pub(super) nanos: i64,
    pub(super) line: Line<'a>,
    pub(super) metadata: Option<Pairs<'a>>,
}

/// A line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line<'a> {
    /// In quotes, with escapes.
    Json(&'a [u8]),
    /// As it is. It may be something else than UTF-8.
    Text(&'a [u8]),
}

/// Names and values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pairs<'a> {
    /// A JSON object in normal form.
    Json(&'a [u8]),
    /// Labels as text.
    Text(&'a [u8]),
    /// The structured metadata of this entry in protobuf.
    Fields(&'a [u8]),
}

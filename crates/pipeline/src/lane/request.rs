//! Rows of many batches on their way to become requests: cutting, joining, and cutting again, by size, events and age. A row that
//! must be sent again is cut out of the text of its request ([`Ready::select`]), so that it is not rendered a second time.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use component::{Encoded, Framing, Request, RequestLimits, RequestOrder, Requests, Rows};
use queue::Ticket;

use super::kept::Kept;
use super::spare::Spare;

/// What requests hold of one batch. The batch is done when all of its rows are.
pub struct Piece {
    pub ticket: Arc<Ticket>,
    rows_left: AtomicUsize,
    /// The output has let it go.
    has_left: AtomicBool,
    /// The batch, where what is refused becomes a dead letter.
    pub kept: Option<Kept>,
    /// What it counts for until it is done, in bytes.
    cost: AtomicUsize,
}

impl Piece {
    /// So many rows of a batch, refused ones included.
    pub fn new(ticket: Arc<Ticket>, rows: usize, kept: Option<Kept>) -> Arc<Self> {
        Arc::new(Self {
            ticket,
            rows_left: rows.into(),
            has_left: AtomicBool::new(false),
            cost: kept.as_ref().map_or(0, Kept::cost).into(),
            kept,
        })
    }

    /// What it counts for, in bytes.
    pub fn cost(&self) -> usize {
        self.cost.load(Ordering::Acquire)
    }

    /// What it counts for, which it does no longer.
    pub fn take_cost(&self) -> usize {
        self.cost.swap(0, Ordering::AcqRel)
    }

    /// So many of its rows are safe or refused; whether these were the last.
    pub fn done(&self, rows: usize) -> bool {
        let is_last = self.rows_left.fetch_sub(rows, Ordering::AcqRel) == rows;
        is_last && !self.has_left.load(Ordering::Acquire)
    }

    /// The output lets the batch go; whether that is news.
    pub fn leave(&self) -> bool {
        !self.has_left.swap(true, Ordering::AcqRel)
    }
}

/// Rows of one batch, one after the other in a request, as they were rendered.
pub struct Share {
    pub piece: Arc<Piece>,
    /// The number of the first of them among all that were rendered of the batch.
    first: usize,
    rows: usize,
}

impl Share {
    /// The row of its batch that the row of that number in the share is; `None` where the batch is not kept.
    pub fn row(&self, number: usize) -> Option<usize> {
        self.piece.kept.as_ref()?.row(self.first + number)
    }
}

/// What a row costs beside its bytes: where it ends, and its part of a share.
const ROW_COST: usize = 16;

/// A request of so many bytes costs little more for each of them than a larger one.
const ENOUGH: usize = 512 << 10;

/// What a request costs beside its rows and its destination, in bytes.
const REQUEST_COST: usize = 512;

/// Requests that still grow, one for each destination.
pub struct Assembly {
    framing: Framing,
    limits: RequestLimits,
    /// How many bytes a batch must have to become requests as it is.
    slice_min: usize,
    spare: Arc<Spare>,
    open: HashMap<Arc<str>, Growing>,
    /// What those cost that were begun by the last call of [`Self::add`].
    begun: usize,
}

/// A request that still grows, or is complete and not sealed yet.
pub struct Growing {
    destination: Arc<str>,
    text: Text,
    ends: Vec<usize>,
    shares: Vec<Share>,
    /// Bytes of its rows, without what stands between them.
    rows_size: usize,
    since: Instant,
}

/// The bytes of a request.
enum Text {
    /// Of its own, which may grow.
    Own(Vec<u8>),
    /// Part of a batch as it was rendered. Nothing is added to it.
    Slice(BytesMut),
}

impl Text {
    fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Slice(bytes) => bytes.len(),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Slice(bytes) => bytes,
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Self::Own(bytes) => bytes.into(),
            Self::Slice(bytes) => bytes.freeze(),
        }
    }

    /// The bytes, to add to them.
    fn own(&mut self) -> &mut Vec<u8> {
        if let Self::Slice(bytes) = self {
            *self = Self::Own(Vec::from(std::mem::take(bytes)));
        }
        match self {
            Self::Own(bytes) => bytes,
            Self::Slice(_) => unreachable!("it was made its own"),
        }
    }
}

impl Assembly {
    pub fn new(requests: &Requests, spare: Arc<Spare>) -> Self {
        let half = requests.limits.size_max / 2;
        Self {
            framing: requests.framing,
            limits: requests.limits,
            slice_min: match requests.order {
                _ if requests.limits.is_filled => requests.limits.size_max,
                RequestOrder::Free | RequestOrder::Begun => ENOUGH.min(half),
                // One after the other, each takes a round trip: they are filled.
                RequestOrder::ByDestination => half,
            },
            spare,
            open: HashMap::new(),
            begun: 0,
        }
    }

    /// Takes the rows of a batch, and may leave other memory in the place of their bytes; gives what is complete, and by how much
    /// the cost of all of them grew. There is at least one row.
    pub fn add(
        &mut self,
        encoded: &mut Encoded,
        piece: &Arc<Piece>,
        now: Instant,
    ) -> (Vec<Growing>, usize) {
        self.begun = 0;
        let rows = encoded.bytes.len() + encoded.ends.len() * ROW_COST;
        let complete = self.take(encoded, piece, now);
        (complete, rows + self.begun)
    }

    fn take(&mut self, encoded: &mut Encoded, piece: &Arc<Piece>, now: Instant) -> Vec<Growing> {
        let mut complete = Vec::new();
        if self.may_slice(encoded) {
            // Full enough, and before the others where order matters.
            complete.extend(self.open.remove(destination(encoded)));
            complete.extend(self.slices(encoded, piece, now));
            return complete;
        }
        let mut row = 0;
        let whole = [(Arc::from(""), usize::MAX)];
        let parts: Vec<(Arc<str>, usize)> = match encoded.parts.as_slice() {
            [] => whole.to_vec(),
            parts => {
                let ends = parts[1..].iter().map(|part| part.bytes.start);
                let ends = ends.chain([usize::MAX]);
                let names = parts.iter().map(|part| part.destination.clone());
                names.zip(ends).collect()
            }
        };
        for (destination, end) in parts {
            let rest = &encoded.ends[row..];
            let until = row + rest.partition_point(|row| row.end <= end);
            self.add_rows(encoded, row..until, &destination, piece, now, &mut complete);
            row = until;
        }
        complete
    }

    /// Whether the bytes of a batch, which has one destination, can be requests as they are. That saves copying them, at the price of
    /// requests that are not full.
    fn may_slice(&self, encoded: &Encoded) -> bool {
        let Framing {
            before,
            between,
            after,
        } = self.framing;
        let is_plain = [before, between, after].iter().all(|text| text.is_empty());
        let enough = self.slice_min;
        let open = self.open.get(destination(encoded));
        is_plain
            && encoded.parts.len() <= 1
            && encoded.bytes.len() >= enough
            && open.is_none_or(|open| open.text.len() >= enough)
    }

    /// The bytes of a batch as requests of about the same size, which share its memory; other memory takes their place.
    fn slices(&mut self, encoded: &mut Encoded, piece: &Arc<Piece>, now: Instant) -> Vec<Growing> {
        // The next batch will be as long. A buffer that doubles as it grows would be half empty.
        let room = encoded.bytes.len() + encoded.bytes.len() / 8;
        let text = std::mem::replace(&mut encoded.bytes, self.spare.take(room));
        let mut text = BytesMut::from(Bytes::from(text));
        let destination: Arc<str> = match encoded.parts.first() {
            Some(part) => part.destination.clone(),
            None => "".into(),
        };
        let mut slices = Vec::new();
        let (mut row, mut start) = (0, 0);
        while row < encoded.ends.len() {
            let rest = &encoded.ends[row..];
            let by_size = text.len().div_ceil(self.limits.size_max);
            let by_rows = rest.len().div_ceil(self.limits.rows_max);
            let requests = by_size.max(by_rows).max(1);
            let share = text.len() / requests;
            let rows = rest.partition_point(|row| row.end - start <= share);
            let rows = rows.clamp(1, self.limits.rows_max);
            let end = rest[rows - 1].end;
            let slice = Growing {
                destination: destination.clone(),
                text: Text::Slice(text.split_to(end - start)),
                ends: rest[..rows].iter().map(|row| row.end - start).collect(),
                shares: vec![Share {
                    piece: piece.clone(),
                    first: row,
                    rows,
                }],
                rows_size: end - start,
                since: now,
            };
            self.begun += slice.own_cost();
            slices.push(slice);
            (row, start) = (row + rows, end);
        }
        slices
    }

    fn add_rows(
        &mut self,
        encoded: &Encoded,
        mut rows: Range<usize>,
        destination: &Arc<str>,
        piece: &Arc<Piece>,
        now: Instant,
        complete: &mut Vec<Growing>,
    ) {
        while !rows.is_empty() {
            let growing = match self.open.get_mut(destination) {
                Some(growing) => growing,
                None => {
                    let new = Growing::new(destination, self.spare.take(0), self.framing, now);
                    self.begun += new.own_cost();
                    self.open.entry(destination.clone()).or_insert(new)
                }
            };
            let taken = growing.take(encoded, rows.clone(), self.framing, &self.limits);
            if taken > 0 {
                growing.shares.push(Share {
                    piece: piece.clone(),
                    first: rows.start,
                    rows: taken,
                });
                rows.start += taken;
            }
            if growing.is_full(&self.limits) || !rows.is_empty() {
                complete.extend(self.open.remove(destination));
            }
        }
    }

    /// What is complete because it has waited long enough, or because `all` is.
    pub fn due(&mut self, now: Instant, all: bool) -> Vec<Growing> {
        let age = self.limits.age_max;
        let is_due = |growing: &Growing| all || now.duration_since(growing.since) >= age;
        let due = self.open.extract_if(|_, growing| is_due(growing));
        due.map(|(_, growing)| growing).collect()
    }

    /// When the first of them will have waited long enough.
    pub fn due_at(&self) -> Option<Instant> {
        let oldest = self.open.values().map(|growing| growing.since).min();
        oldest.map(|since| since + self.limits.age_max)
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// Where the rows of a batch go, if they have one destination.
fn destination(encoded: &Encoded) -> &str {
    encoded.parts.first().map_or("", |part| &part.destination)
}

impl Growing {
    fn new(destination: &Arc<str>, mut text: Vec<u8>, framing: Framing, now: Instant) -> Self {
        text.extend_from_slice(framing.before);
        Self {
            destination: destination.clone(),
            text: Text::Own(text),
            ends: Vec::new(),
            shares: Vec::new(),
            rows_size: 0,
            since: now,
        }
    }

    /// One without rows.
    #[cfg(test)]
    pub fn empty(destination: &Arc<str>, now: Instant) -> Self {
        Self::new(destination, Vec::new(), Framing::default(), now)
    }

    fn is_full(&self, limits: &RequestLimits) -> bool {
        self.ends.len() >= limits.rows_max || self.text.len() >= limits.size_max
    }

    /// What it counts for, in bytes.
    pub fn cost(&self) -> usize {
        self.rows_size + self.ends.len() * ROW_COST + self.own_cost()
    }

    /// What it counts for without its rows.
    fn own_cost(&self) -> usize {
        REQUEST_COST + self.destination.len()
    }

    /// The pieces of its rows.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Takes as many of the rows as there is room for, and at least one where it is empty; how many.
    fn take(
        &mut self,
        encoded: &Encoded,
        rows: Range<usize>,
        framing: Framing,
        limits: &RequestLimits,
    ) -> usize {
        let start = match rows.start {
            0 => 0,
            row => encoded.ends[row - 1].end,
        };
        let wanted = &encoded.ends[rows];
        let room = limits.size_max.saturating_sub(self.text.len());
        let between = framing.between.len();
        let mut count = match between {
            0 => wanted.partition_point(|row| row.end - start <= room),
            _ => {
                let size = |place: usize| wanted[place].end - start + (place + 1) * between;
                (0..wanted.len())
                    .take_while(|&place| size(place) <= room)
                    .count()
            }
        };
        if self.ends.is_empty() {
            count = count.max(1);
        }
        count = count.min(limits.rows_max.saturating_sub(self.ends.len()));
        self.append(&encoded.bytes, start, &wanted[..count], framing);
        count
    }

    fn append(&mut self, bytes: &[u8], start: usize, rows: &[component::RowEnd], framing: Framing) {
        if framing.between.is_empty() {
            let shift = self.text.len();
            let end = rows.last().map_or(start, |row| row.end);
            self.rows_size += end - start;
            self.text.own().extend_from_slice(&bytes[start..end]);
            self.ends
                .extend(rows.iter().map(|row| row.end - start + shift));
            return;
        }
        let mut start = start;
        for row in rows {
            self.push(&bytes[start..row.end], framing);
            start = row.end;
        }
    }

    fn push(&mut self, row: &[u8], framing: Framing) {
        let text = self.text.own();
        if !self.ends.is_empty() {
            text.extend_from_slice(framing.between);
        }
        text.extend_from_slice(row);
        self.rows_size += row.len();
        self.ends.push(text.len());
    }

    /// The request of this id, ready to be sent; `pack` makes what is sent of its rows, where these are not sent as they are.
    ///
    /// # Errors
    /// It cannot be packed.
    pub fn seal(
        mut self,
        id: u128,
        framing: Framing,
        pack: impl FnOnce(&mut Rows<'_>) -> io::Result<Option<Bytes>>,
    ) -> io::Result<Ready> {
        let own_cost = self.own_cost();
        if !framing.after.is_empty() {
            self.text.own().extend_from_slice(framing.after);
        }
        let packed = pack(&mut Rows {
            destination: &self.destination,
            text: self.text.bytes(),
            ends: &self.ends,
        })?;
        let text = self.text.freeze();
        let size = text.len()
            + packed.as_ref().map_or(0, Bytes::len)
            + self.ends.len() * ROW_COST
            + own_cost;
        Ok(Ready {
            request: Request {
                id,
                destination: self.destination,
                body: packed.unwrap_or_else(|| text.clone()),
                rows: self.ends.len(),
                attempt: 0,
            },
            text,
            ends: self.ends,
            shares: self.shares,
            size,
            failing_since: None,
            due: None,
        })
    }
}

/// A request that can be sent.
pub struct Ready {
    pub request: Request,
    /// The body before it was packed.
    text: Bytes,
    /// Where rows end in it.
    ends: Vec<usize>,
    shares: Vec<Share>,
    /// What it counts for, in bytes.
    pub size: usize,
    /// When it failed for the first time.
    pub failing_since: Option<Instant>,
    /// Not to be sent again before this.
    pub due: Option<Instant>,
}

impl Ready {
    /// Bytes of the body before it was packed.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// The pieces of its rows.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// What it was, when it has come to its end.
    pub fn into_text(self) -> Bytes {
        self.text
    }

    /// Those of its rows that are named here, ascending, as a request of their own. The caller seals it.
    pub fn select(&self, rows: &[usize], framing: Framing) -> Growing {
        let mut part = Growing::new(
            &self.request.destination,
            Vec::new(),
            framing,
            Instant::now(),
        );
        let (mut share, mut share_start) = (0, 0);
        for &row in rows {
            let start = match row {
                0 => framing.before.len(),
                row => self.ends[row - 1] + framing.between.len(),
            };
            part.push(&self.text[start..self.ends[row]], framing);
            while row >= share_start + self.shares[share].rows {
                share_start += self.shares[share].rows;
                share += 1;
            }
            let piece = &self.shares[share].piece;
            let first = self.shares[share].first + row - share_start;
            match part.shares.last_mut() {
                Some(last)
                    if Arc::ptr_eq(&last.piece, piece) && last.first + last.rows == first =>
                {
                    last.rows += 1;
                }
                _ => part.shares.push(Share {
                    piece: piece.clone(),
                    first,
                    rows: 1,
                }),
            }
        }
        part
    }

    /// Which of its rows are of which share.
    pub fn places(&self) -> impl Iterator<Item = (Range<usize>, &Share)> {
        let mut end = 0;
        self.shares.iter().map(move |share| {
            end += share.rows;
            (end - share.rows..end, share)
        })
    }
}

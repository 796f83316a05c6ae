//! The bytes of one simulated file: what reads see, what is on disk, and what lies between.

use std::collections::BTreeSet;

use crate::PAGE;
use fastrand::Rng;

/// What a disk writes whole.
const SECTOR: usize = 512;

/// A file's bytes.
#[derive(Debug, Clone)]
pub struct Content {
    /// What reads see.
    live: Vec<u8>,
    /// What is on disk. Its length means nothing; bytes beyond it are zeros.
    durable: Vec<u8>,
    /// Pages written since the last sync, which may or may not be on disk.
    dirty: BTreeSet<usize>,
    /// The length at the last sync and every one since.
    lengths: Vec<usize>,
    /// Pages that have room on the disk.
    allocated: BTreeSet<usize>,
}

/// How likely something that was not synced survives a crash. Drawn once a crash, so that everything, nothing, nearly
/// everything and a mixture all happen.
pub fn survival(random: &mut Rng) -> f64 {
    [0.0, 0.1, 0.5, 0.9, 1.0][random.usize(..5)]
}

pub fn happens(random: &mut Rng, probability: f64) -> bool {
    random.f64() < probability
}

fn page_of(bytes: &[u8], page: usize) -> [u8; PAGE] {
    let mut found = [0; PAGE];
    let from = (page * PAGE).min(bytes.len());
    let part = &bytes[from..(from + PAGE).min(bytes.len())];
    found[..part.len()].copy_from_slice(part);
    found
}

/// Puts as much of a page in place as `bytes` is long.
fn put(into: &mut Vec<u8>, page: usize, bytes: &[u8]) {
    let from = page * PAGE;
    if into.len() < from + PAGE {
        into.resize(from + PAGE, 0);
    }
    into[from..from + bytes.len()].copy_from_slice(bytes);
}

/// Takes away what lay beyond the shortest of the lengths that a file had.
fn cut_off(bytes: &mut Vec<u8>, lengths: &[usize]) {
    let shortest = lengths.iter().min().copied().unwrap_or(0);
    bytes.truncate(shortest);
}

impl Content {
    /// A new file with room for `reserve` bytes, nothing of it on disk yet.
    pub fn new(reserve: usize) -> Self {
        Self {
            live: vec![0; reserve],
            durable: Vec::new(),
            dirty: BTreeSet::new(),
            lengths: vec![0, reserve],
            allocated: (0..reserve.div_ceil(PAGE)).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let from = offset.min(self.live.len());
        let length = buffer.len().min(self.live.len() - from);
        buffer[..length].copy_from_slice(&self.live[from..from + length]);
        length
    }

    pub fn bytes(&self) -> &[u8] {
        &self.live
    }

    pub fn allocated(&self) -> usize {
        self.allocated.len() * PAGE
    }

    /// The pages that writing there would have to find room for.
    pub fn missing(&self, offset: usize, length: usize) -> usize {
        let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
        pages.filter(|page| !self.allocated.contains(page)).count()
    }

    pub fn write(&mut self, bytes: &[u8], offset: usize, random: &mut Rng) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        let pages = offset / PAGE..end.div_ceil(PAGE);
        for page in pages.clone() {
            // What an earlier write put there may have reached the disk in between.
            if self.dirty.contains(&page) && random.bool() {
                self.reach_disk(page);
            }
        }
        if end > self.live.len() {
            self.live.resize(end, 0);
            self.lengths.push(end);
        }
        self.live[offset..end].copy_from_slice(bytes);
        self.allocated.extend(pages.clone());
        self.dirty.extend(pages);
    }

    pub fn cut(&mut self, length: usize) {
        self.live.resize(length, 0);
        self.lengths.push(length);
        let end = length.div_ceil(PAGE);
        self.allocated.retain(|page| *page < end);
        self.dirty.retain(|page| *page < end);
    }

    fn reach_disk(&mut self, page: usize) {
        let bytes = page_of(&self.live, page);
        put(&mut self.durable, page, &bytes);
    }

    pub fn sync(&mut self) {
        cut_off(&mut self.durable, &self.lengths);
        for page in std::mem::take(&mut self.dirty) {
            self.reach_disk(page);
        }
        self.lengths = vec![self.live.len()];
    }

    /// A sync that failed: each page reached the disk, is still to be written, or was dropped, which nobody will hear of;
    /// reads go on seeing it until a crash.
    pub fn fail_to_sync(&mut self, random: &mut Rng) {
        for page in std::mem::take(&mut self.dirty) {
            match random.u8(..3) {
                0 => self.reach_disk(page),
                1 => {
                    self.dirty.insert(page);
                }
                _ => {}
            }
        }
    }

    /// What is left of it after a crash.
    pub fn crash(&self, random: &mut Rng) -> Self {
        let survival = survival(random);
        let moment = random.usize(..self.lengths.len());
        let mut left = self.durable.clone();
        cut_off(&mut left, &self.lengths[..=moment]);
        for page in &self.dirty {
            if !happens(random, survival) {
                continue;
            }
            let is_torn = random.u8(..4) == 0;
            let sectors = PAGE / SECTOR;
            let sectors = if is_torn {
                random.usize(..sectors)
            } else {
                sectors
            };
            let bytes = page_of(&self.live, *page);
            put(&mut left, *page, &bytes[..sectors * SECTOR]);
        }
        left.resize(self.lengths[moment], 0);
        Self::on_disk(left)
    }

    /// A file that has reached the disk whole.
    pub fn on_disk(bytes: Vec<u8>) -> Self {
        Self {
            durable: bytes.clone(),
            dirty: BTreeSet::new(),
            lengths: vec![bytes.len()],
            allocated: (0..bytes.len().div_ceil(PAGE)).collect(),
            live: bytes,
        }
    }

    /// Turns a bit round, on disk and for readers.
    pub fn flip(&mut self, offset: usize, bit: u8) {
        self.live[offset] ^= 1 << (bit % 8);
        let page = offset / PAGE;
        let mut bytes = page_of(&self.durable, page);
        bytes[offset % PAGE] ^= 1 << (bit % 8);
        put(&mut self.durable, page, &bytes);
    }
}

//! A fixed-size set of rows.

/// A set of row numbers below a fixed length, one bit a row.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// A set of `len` rows with none in it.
    pub fn none(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
        }
    }

    /// A set with every one of `len` rows in it.
    pub fn all(len: usize) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(64)];
        if let (Some(last), rest) = (words.last_mut(), len % 64)
            && rest != 0
        {
            *last = (1 << rest) - 1;
        }
        Self { words, len }
    }

    /// A set of the rows of `0..len` for which `holds` is true.
    pub fn from_fn(len: usize, mut holds: impl FnMut(usize) -> bool) -> Self {
        let mut set = Self::none(len);
        for row in 0..len {
            if holds(row) {
                set.insert(row);
            }
        }
        set
    }

    /// The set whose rows are the bits of `words`, lowest first; none where the words do not fit `len` rows.
    pub(crate) fn from_words(words: Vec<u64>, len: usize) -> Option<Self> {
        let fits = words.len() == len.div_ceil(64);
        let spare = len % 64;
        let beyond = |last: &u64| spare != 0 && last >> spare != 0;
        (fits && !words.last().is_some_and(beyond)).then_some(Self { words, len })
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// How many rows the batch has, in the set or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Whether every row is in the set.
    pub fn is_full(&self) -> bool {
        self.count() == self.len
    }

    /// How many rows are in the set.
    pub fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether `row` is in the set.
    #[inline]
    pub fn contains(&self, row: usize) -> bool {
        self.words
            .get(row / 64)
            .is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Puts `row` into the set.
    ///
    /// # Panics
    /// When `row` is not below the length.
    #[inline]
    pub fn insert(&mut self, row: usize) {
        assert!(
            row < self.len,
            "row {row} is outside a batch of {}",
            self.len
        );
        self.words[row / 64] |= 1 << (row % 64);
    }

    /// Takes `row` out of the set.
    #[inline]
    pub fn remove(&mut self, row: usize) {
        if let Some(word) = self.words.get_mut(row / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    /// Keeps only the rows that are in `other` too.
    pub fn and(&mut self, other: &Self) {
        for (word, with) in self.words.iter_mut().zip(&other.words) {
            *word &= with;
        }
    }

    /// Takes out the rows that are in `other`.
    pub fn and_not(&mut self, other: &Self) {
        for (word, with) in self.words.iter_mut().zip(&other.words) {
            *word &= !with;
        }
    }

    /// Adds the rows that are in `other`.
    pub fn or(&mut self, other: &Self) {
        for (word, with) in self.words.iter_mut().zip(&other.words) {
            *word |= with;
        }
    }

    /// The rows in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.blocks().flatten()
    }

    /// The same, up to 64 of them at a time.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.words.iter().enumerate().map(|(index, &word)| Block {
            word,
            base: index * Block::ROWS,
        })
    }
}

/// Those of 64 rows that are in a set, ascending.
#[derive(Clone)]
pub(crate) struct Block {
    word: u64,
    base: usize,
}

impl Block {
    /// How many rows it is about.
    pub const ROWS: usize = 64;
}

impl Iterator for Block {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.word == 0 {
            return None;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.base + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operations_agree_with_a_plain_set() {
        for len in [0, 1, 63, 64, 65, 200] {
            let threes = Bitmap::from_fn(len, |row| row % 3 == 0);
            let twos = Bitmap::from_fn(len, |row| row % 2 == 0);
            let mut both = threes.clone();
            both.and(&twos);
            assert_eq!(
                both.iter().collect::<Vec<_>>(),
                (0..len).filter(|r| r % 6 == 0).collect::<Vec<_>>()
            );
            let mut only = threes.clone();
            only.and_not(&twos);
            assert_eq!(
                only.count(),
                (0..len).filter(|r| r % 3 == 0 && r % 2 == 1).count()
            );
            let mut either = threes;
            either.or(&twos);
            assert_eq!(
                either.count(),
                (0..len).filter(|r| r % 3 == 0 || r % 2 == 0).count()
            );
            assert!(Bitmap::all(len).is_full());
            assert!(Bitmap::none(len).is_empty());
        }
    }

    #[test]
    fn rows_come_and_go() {
        let mut set = Bitmap::none(70);
        set.insert(69);
        assert!(set.contains(69) && !set.contains(68) && !set.contains(700));
        set.remove(69);
        assert!(set.is_empty());
    }
}

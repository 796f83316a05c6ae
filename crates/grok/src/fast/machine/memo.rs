//! What failed before, so that no choice is tried twice at the same place of a text.
//!
//! The whole of what lies ahead depends on the operation and the place alone: there are no back-references, and
//! registers only matter within the group that sets them. So when every choice of an operation at a place has
//! failed once, it will fail again, also from a later start. With this the steps of a search are bounded by the
//! choices of the program times the length of the text, where plain backtracking can need a number that is
//! exponential in it.
//!
//! A marker lies on the stack below the choices of an operation: when backtracking comes to it, all of them have
//! failed. An atomic group or look-around that succeeds takes the markers of its inner choices away with the
//! choices, so that nothing is remembered that succeeded.

/// More bits than this are not kept; such a search runs without a memory, under its budget.
const BITS_MAX: usize = 1 << 27;

/// A larger memory is given back after the search.
const WORDS_KEPT: usize = 1 << 17;

/// The choices that failed, one bit for each place.
#[derive(Clone, Debug, Default)]
pub(in crate::fast) struct Memo {
    bits: Vec<u64>,
    /// Places in the text, its end included; 0 while nothing is kept.
    places: usize,
    begun: bool,
}

impl Memo {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places = 0;
        self.begun = false;
        if self.bits.len() > WORDS_KEPT {
            self.bits = Vec::new();
        }
    }

    /// Begins to remember, if that has not begun and is affordable.
    pub fn begin(&mut self, choices: usize, text_bytes: usize) {
        if self.begun {
            return;
        }
        self.begun = true;
        let places = text_bytes + 1;
        if let Some(bits) = choices.checked_mul(places).filter(|&bits| bits <= BITS_MAX) {
            self.places = places;
            self.bits.clear();
            self.bits.resize(bits.div_ceil(64), 0);
        }
    }

    /// Whether anything is remembered.
    pub fn is_on(&self) -> bool {
        self.places > 0
    }

    /// Whether the choice failed at a place.
    pub fn has(&self, choice: u32, at: usize) -> bool {
        let bit = choice as usize * self.places + at;
        self.bits[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Remembers that the choice failed at a place.
    pub fn add(&mut self, choice: u32, at: usize) {
        let bit = choice as usize * self.places + at;
        self.bits[bit / 64] |= 1 << (bit % 64);
    }
}

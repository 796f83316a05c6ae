//! Random numbers, and things of which some are more popular than others.

use fastrand::Rng;

/// Sixteen random bits at a time.
pub(super) struct Bits {
    rng: Rng,
    bits: u64,
    left: u32,
}

impl Bits {
    /// A sequence that depends on the seed alone.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            bits: 0,
            left: 0,
        }
    }

    /// A number below 65,536.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        if self.left == 0 {
            self.bits = self.rng.u64(..);
            self.left = 4;
        }
        self.left -= 1;
        let bits = self.bits & 0xFFFF;
        self.bits >>= 16;
        bits
    }

    /// A number below `end`, which is at most 65,536.
    #[inline]
    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.next() * end) >> 16
    }

    /// True in so many of a hundred cases.
    #[inline]
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number of so many random bits.
    pub(super) fn wide(&mut self, bits: u32) -> u64 {
        self.rng.u64(..) >> (64 - bits)
    }

    /// Any of the things, all equally likely.
    #[inline]
    pub(super) fn any<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[self.below(things.len() as u64) as usize]
    }

    /// One of the things, the first ones far more often: one in ten of them gets nearly half.
    #[inline]
    pub(super) fn popular<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        let bits = self.next();
        let cube = (bits * bits * bits) >> 32;
        &things[((cube * things.len() as u64) >> 16) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_popular_and_all_occur() {
        let things: Vec<usize> = (0..100).collect();
        let mut bits = Bits::new(1);
        let mut counts = [0; 100];
        for _ in 0..100_000 {
            counts[*bits.popular(&things)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 0));
        let first: usize = counts[..10].iter().sum();
        assert!((40_000..50_000).contains(&first), "{first}");
    }
}

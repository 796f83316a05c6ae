//! Quantiles of numbers with a bounded relative error: DDSketch (Masson, Rim, Lee, PVLDB 12(12), 2019, <https://arxiv.org/abs/1908.10693>).
//!
//! A number counts in the bucket of its magnitude; the borders of buckets grow by the same factor, so that the middle of a bucket is at most 1 % from every number
//! in it. Sketches of the same numbers are the same whatever their order, as long as no more than [`BUCKETS_MAX`] buckets are in use: then the smallest
//! magnitudes are counted together.

/// The largest relative error.
const ERROR: f64 = 0.01;

/// How many buckets of one sign are kept: with an error of 1 %, they span 17 decimal orders of magnitude. Smaller magnitudes are counted with the smallest
/// of these.
const BUCKETS_MAX: usize = 2048;

/// Numbers nearer to zero than this are zero.
const SMALLEST: f64 = 1e-300;

/// How numbers are spread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sketch {
    positive: Buckets,
    negative: Buckets,
    zeros: u64,
    count: u64,
    min: f64,
    max: f64,
}

/// A number to four digits: further ones say nothing.
fn rounded(number: f64) -> f64 {
    let unit = 10_f64.powi(number.abs().log10().floor() as i32 - 3);
    match unit.is_normal() {
        // A division gives the nearest number to the digits where a multiplication may not.
        true if unit < 1.0 => (number / unit).round() / (1.0 / unit).round(),
        true => (number / unit).round() * unit,
        false => number,
    }
}

/// Numbers of one sign, by magnitude.
#[derive(Debug, Clone, Default, PartialEq)]
struct Buckets {
    /// The bucket of the first counter.
    first: i32,
    counts: Vec<u64>,
}

impl Buckets {
    fn add(&mut self, bucket: i32) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let room = BUCKETS_MAX.saturating_sub(self.counts.len());
            let wanted = (self.first - bucket) as usize;
            let more = wanted.min(room);
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first -= more as i32;
        }
        let index = (bucket - self.first).max(0) as usize;
        let beyond = (index + 1).saturating_sub(BUCKETS_MAX);
        if beyond > 0 {
            let lowest: u64 = self.counts.drain(..beyond.min(self.counts.len())).sum();
            self.first += beyond as i32;
            match self.counts.first_mut() {
                Some(first) => *first += lowest,
                None => self.counts.push(lowest),
            }
        }
        let index = index - beyond;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        let index = (bucket - self.first).max(0) as usize;
        self.counts[index] += 1;
    }
}

impl Sketch {
    fn factor() -> f64 {
        (1.0 + ERROR) / (1.0 - ERROR)
    }

    /// Counts a number, which is finite.
    pub fn add(&mut self, number: f64) {
        if self.count == 0 {
            (self.min, self.max) = (number, number);
        }
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        self.count += 1;
        let magnitude = number.abs();
        if magnitude < SMALLEST {
            self.zeros += 1;
            return;
        }
        let bucket = (magnitude.ln() / Self::factor().ln()).ceil() as i32;
        match number > 0.0 {
            true => self.positive.add(bucket),
            false => self.negative.add(bucket),
        }
    }

    /// The smallest number that at least a part of the numbers, from 0 to 1, are not greater than, to four digits; none where there are no numbers.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let last = self.count.checked_sub(1)?;
        let rank = ((part * self.count as f64).ceil() as u64)
            .saturating_sub(1)
            .min(last);
        // These two are known.
        if rank == 0 || rank == last {
            return Some(if rank == 0 { self.min } else { self.max });
        }
        let value = |bucket: i32| {
            let middle = 2.0 * Self::factor().powi(bucket) / (Self::factor() + 1.0);
            rounded(middle)
        };
        let mut seen = 0;
        let mut is_there = |count: u64| {
            seen += count;
            seen > rank
        };
        let negative = self.negative.counts.iter().enumerate().rev();
        for (index, count) in negative {
            if is_there(*count) {
                let found = -value(self.negative.first + index as i32);
                return Some(found.clamp(self.min, self.max));
            }
        }
        if is_there(self.zeros) {
            return Some(0.0);
        }
        for (index, count) in self.positive.counts.iter().enumerate() {
            if is_there(*count) {
                let found = value(self.positive.first + index as i32);
                return Some(found.clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// Appends all of it.
    pub fn save(&self, out: &mut Vec<u8>) {
        for number in [
            self.zeros,
            self.count,
            self.min.to_bits(),
            self.max.to_bits(),
        ] {
            out.extend(number.to_le_bytes());
        }
        for buckets in [&self.positive, &self.negative] {
            out.extend(i64::from(buckets.first).to_le_bytes());
            out.extend((buckets.counts.len() as u64).to_le_bytes());
            for count in &buckets.counts {
                out.extend(count.to_le_bytes());
            }
        }
    }

    /// Takes what [`Sketch::save`] wrote; none where it makes no sense.
    pub fn restore(saved: &mut crate::remembered::SavedBytes<'_>) -> Option<Self> {
        let [zeros, count, min, max] = [(); 4].map(|()| saved.number());
        let mut buckets = || {
            let first = saved.number()?.cast_signed().try_into().ok()?;
            let len = saved.number()?;
            let in_bounds = len as usize <= BUCKETS_MAX;
            let counts = (0..len).filter(|_| in_bounds).map(|_| saved.number());
            Some(Buckets {
                first,
                counts: counts.collect::<Option<_>>()?,
            })
        };
        Some(Self {
            positive: buckets()?,
            negative: buckets()?,
            zeros: zeros?,
            count: count?,
            min: f64::from_bits(min?),
            max: f64::from_bits(max?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut number = crate::testing::numbers(3);
        let mut all: Vec<f64> = (0..20_000)
            .map(|_| {
                let size = 10_f64.powi(number(12) as i32 - 4);
                (number(2_000) as f64 - 500.0) * size
            })
            .collect();
        let mut sketch = Sketch::default();
        all.iter().for_each(|number| sketch.add(*number));
        all.sort_by(f64::total_cmp);
        for part in [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
            let exact = all[((part * 20_000.0_f64).ceil() as usize).saturating_sub(1)];
            let found = sketch.quantile(part).expect("there are numbers");
            let error = (found - exact).abs();
            assert!(
                error <= exact.abs() * 0.010_6,
                "{part}: {found} for {exact}"
            );
        }
        assert_eq!(Sketch::default().quantile(0.5), None);
    }

    #[test]
    fn the_order_of_numbers_does_not_matter_and_memory_is_bounded() {
        let numbers: Vec<f64> = (0..400).map(|n| 10_f64.powi(n - 200)).collect();
        let (mut one, mut other) = (Sketch::default(), Sketch::default());
        numbers.iter().for_each(|number| one.add(*number));
        numbers.iter().rev().for_each(|number| other.add(*number));
        assert!(one.positive.counts.len() <= BUCKETS_MAX);
        assert!(other.positive.counts.len() <= BUCKETS_MAX);
        assert_eq!(one.positive.counts.iter().sum::<u64>(), 400);
        assert_eq!(one.quantile(0.99), other.quantile(0.99));
        let mut saved = Vec::new();
        one.save(&mut saved);
        assert_eq!(
            Sketch::restore(&mut crate::remembered::SavedBytes(&saved)),
            Some(one)
        );
    }
}

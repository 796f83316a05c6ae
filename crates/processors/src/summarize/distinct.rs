//! How many different values there are: exact up to [`EXACT_MAX`], then HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007, <https://algo.inria.fr/flajolet/Publications/FlFuGaMe07.pdf>)
//! with 4,096 registers, whose standard error is 1.04 / √4096 = 1.6 %.

use xxhash_rust::xxh3::xxh3_64;

/// Up to so many values are counted one by one; they take as much memory as the registers.
const EXACT_MAX: usize = 512;

const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

/// The different values so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Distinct {
    /// Their hashes, in order.
    Exact(Vec<u64>),
    /// The longest runs of zeros, plus one.
    Registers(Box<[u8]>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

impl Distinct {
    /// Counts a value, given by bytes that no other value has.
    pub fn add(&mut self, value: &[u8]) {
        self.add_hash(xxh3_64(value));
    }

    fn add_hash(&mut self, hash: u64) {
        match self {
            Self::Registers(registers) => note(registers, hash),
            Self::Exact(hashes) => {
                let Err(place) = hashes.binary_search(&hash) else {
                    return;
                };
                if hashes.len() < EXACT_MAX {
                    return hashes.insert(place, hash);
                }
                let mut registers = vec![0; REGISTERS].into_boxed_slice();
                hashes.iter().for_each(|hash| note(&mut registers, *hash));
                note(&mut registers, hash);
                *self = Self::Registers(registers);
            }
        }
    }

    /// About how many values there are.
    pub fn count(&self) -> u64 {
        let registers = match self {
            Self::Exact(hashes) => return hashes.len() as u64,
            Self::Registers(registers) => registers,
        };
        let size = REGISTERS as f64;
        let sum: f64 = registers.iter().map(|run| (-f64::from(*run)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / size) * size * size / sum;
        let empty = registers.iter().filter(|run| **run == 0).count();
        // Few values are counted better by how many registers are empty.
        let best = match empty > 0 && estimate <= 2.5 * size {
            true => size * (size / empty as f64).ln(),
            false => estimate,
        };
        best.round() as u64
    }

    /// Appends all of it.
    pub fn save(&self, out: &mut Vec<u8>) {
        match self {
            Self::Exact(hashes) => {
                out.extend((hashes.len() as u64).to_le_bytes());
                hashes
                    .iter()
                    .for_each(|hash| out.extend(hash.to_le_bytes()));
            }
            Self::Registers(registers) => {
                out.extend(u64::MAX.to_le_bytes());
                out.extend_from_slice(registers);
            }
        }
    }

    /// Takes what [`Distinct::save`] wrote; none where it makes no sense.
    pub fn restore(saved: &mut crate::remembered::SavedBytes<'_>) -> Option<Self> {
        match saved.number()? {
            u64::MAX => Some(Self::Registers(saved.bytes(REGISTERS)?.into())),
            len if len as usize <= EXACT_MAX => {
                let hashes = (0..len).map(|_| saved.number());
                Some(Self::Exact(hashes.collect::<Option<_>>()?))
            }
            _ => None,
        }
    }
}

fn note(registers: &mut [u8], hash: u64) {
    let index = (hash >> (64 - BITS)) as usize;
    let run = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() as u8 + 1;
    registers[index] = registers[index].max(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_exact_and_many_are_near() {
        let mut distinct = Distinct::default();
        for number in 0..200_000_u32 {
            distinct.add(&number.to_le_bytes());
            distinct.add(&(number / 2).to_le_bytes());
            let count = u64::from(number + 1);
            if number < 512 {
                assert_eq!(distinct.count(), count);
            } else if number % 10_000 == 0 {
                let error = (distinct.count() as f64 / count as f64 - 1.0).abs();
                assert!(error < 0.05, "{} for {count}", distinct.count());
                let mut saved = Vec::new();
                distinct.save(&mut saved);
                let restored = Distinct::restore(&mut crate::remembered::SavedBytes(&saved));
                assert_eq!(restored.as_ref(), Some(&distinct));
            }
        }
    }
}

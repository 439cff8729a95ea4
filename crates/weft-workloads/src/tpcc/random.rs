//! The random quantities of the specification (clauses 2.1.6, 4.3.2 and 4.3.3).
//!
//! This module extends the uniform and non-uniform numbers of [`Random`] by customers and items, some of them more
//! popular than others, and by random text. [`Constants`] holds the constants `C` of `NURand`. They are drawn once
//! for a database. For customers' last names there is a second constant for the runs on it. Nothing here allocates
//! memory.

use std::ops::RangeInclusive;

use super::schema::{FixedText, NAME_BYTES_MAX};
pub use crate::random::Random;
use arrayvec::ArrayString;

/// The letters and digits of random text (clause 4.3.2.2).
const ALPHANUMERIC: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// The syllables of customers' last names, by decimal digit (clause 4.3.2.3).
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The number of different last names.
pub const LAST_NAMES: u32 = 1000;

/// Returns the last name for the three digits of `number`, which is below [`LAST_NAMES`] (clause 4.3.2.3).
#[inline]
pub fn last_name(number: u32) -> ArrayString<NAME_BYTES_MAX> {
    debug_assert!(number < LAST_NAMES);
    let mut name = ArrayString::new();
    name.push_str(SYLLABLES[number as usize / 100]);
    name.push_str(SYLLABLES[number as usize / 10 % 10]);
    name.push_str(SYLLABLES[number as usize % 10]);
    name
}

/// The constants `C` of `NURand` (clause 2.1.6.1), one for each of its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For last names, during the load.
    pub last_name_load: u32,
    /// For last names, during a run. Clause 2.1.6.1 prescribes its distance from the load's constant, so that the
    /// names that most customers have are not the names that clients ask for most.
    pub last_name_run: u32,
    /// For customer numbers.
    pub customer: u32,
    /// For item numbers.
    pub item: u32,
}

impl Constants {
    /// Draws constants that satisfy clause 2.1.6.1.
    pub fn draw(random: &mut Random) -> Constants {
        let last_name_load = random.within(0, 255);
        let last_name_run = loop {
            let candidate = random.within(0, 255);
            if Self::may_run_with(last_name_load, candidate) {
                break candidate;
            }
        };
        Constants {
            last_name_load,
            last_name_run,
            customer: random.within(0, 1023),
            item: random.within(0, 8191),
        }
    }

    /// Decides whether a database that was loaded with `load` may be run with `run`: their distance is from 65 to
    /// 119, and neither 96 nor 112. (Every `load` in 0..=255 has such a `run`.)
    fn may_run_with(load: u32, run: u32) -> bool {
        let distance = load.abs_diff(run);
        (65..=119).contains(&distance) && distance != 96 && distance != 112
    }
}

impl Random {
    /// Returns a number from `low` to `high` other than `except`, or `except` if there is no other.
    #[inline]
    pub fn other_than(&mut self, except: u16, low: u16, high: u16) -> u16 {
        if low == high {
            return except;
        }
        let drawn = self.within(low.into(), u32::from(high) - 1) as u16;
        if drawn >= except { drawn + 1 } else { drawn }
    }

    /// Returns a customer number up to `customers`: `NURand(1023, 1, 3000)`.
    #[inline]
    pub fn customer(&mut self, constants: &Constants, customers: u32) -> u32 {
        self.nurand(1023, constants.customer, 1, customers)
    }

    /// Returns an item number up to `items`: `NURand(8191, 1, 100000)`.
    #[inline]
    pub fn item(&mut self, constants: &Constants, items: u32) -> u32 {
        self.nurand(8191, constants.item, 1, items)
    }

    /// Returns the number of one of the first `names` last names: `NURand(255, 0, 999)` with the constant `c`, one
    /// of the two in [`Constants`].
    #[inline]
    pub fn last_name_number(&mut self, c: u32, names: u32) -> u32 {
        self.nurand(255, c, 0, names - 1)
    }

    /// Returns a random a-string with a length in `lengths` (clause 4.3.2.2).
    pub fn text<const N: usize>(&mut self, lengths: RangeInclusive<u32>) -> ArrayString<N> {
        let length = self.within(*lengths.start(), *lengths.end()) as usize;
        let mut bytes = [0; N];
        self.fill(&mut bytes[..length]);
        let mut text = ArrayString::new();
        text.push_str(ascii(&bytes[..length]));
        text
    }

    /// Returns a random a-string of exactly `N` characters.
    pub fn fixed_text<const N: usize>(&mut self) -> FixedText<N> {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        FixedText::new(bytes)
    }

    /// Returns a random n-string of exactly `N` digits (clause 4.3.2.2).
    pub fn digits<const N: usize>(&mut self) -> FixedText<N> {
        FixedText::new(std::array::from_fn(|_| b'0' + self.within_u8(0, 9)))
    }

    /// Returns a random zip code: four digits and `11111` (clause 4.3.2.7).
    pub fn zip(&mut self) -> FixedText<9> {
        let mut bytes = *b"000011111";
        bytes[..4].copy_from_slice(self.digits::<4>().as_bytes());
        FixedText::new(bytes)
    }

    /// Returns the data of an item or of stock: an a-string of 26 to 50 characters. A tenth of them contain
    /// `ORIGINAL` at a random position (clause 4.3.3.1).
    pub fn data(&mut self) -> ArrayString<50> {
        let length = self.within(26, 50) as usize;
        let mut bytes = [0; 50];
        self.fill(&mut bytes[..length]);
        if self.chance(10) {
            let at = self.within(0, (length - ORIGINAL.len()) as u32) as usize;
            bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
        let mut text = ArrayString::new();
        text.push_str(ascii(&bytes[..length]));
        text
    }

    /// Shuffles `numbers`. Every permutation is equally likely (clause 4.3.3.1).
    pub fn shuffle(&mut self, numbers: &mut [u32]) {
        self.0.shuffle(numbers);
    }

    /// Fills `bytes` with letters and digits. Each random word gives ten values of six bits each. Two of the 64
    /// values have no character and are skipped.
    fn fill(&mut self, bytes: &mut [u8]) {
        let (mut bits, mut left) = (0, 0);
        for byte in bytes {
            *byte = loop {
                if left == 0 {
                    (bits, left) = (self.0.u64(..), 10);
                }
                let value = bits as usize & 63;
                bits >>= 6;
                left -= 1;
                if let Some(character) = ALPHANUMERIC.get(value) {
                    break *character;
                }
            };
        }
    }
}

/// The text that the data of a tenth of all items and stock contain.
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Returns whether `data` contains [`ORIGINAL`]. Eight bytes are compared at once, as one word, and without
/// branches. For strings of this length, this takes a fraction of the time of a general substring search.
#[inline]
pub fn is_original(data: &str) -> bool {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("a window of eight"));
    let original = word(ORIGINAL);
    data.as_bytes()
        .windows(ORIGINAL.len())
        .fold(false, |found, window| found | (word(window) == original))
}

/// Returns the text in `bytes`, which are all ASCII.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("random text is made of ASCII characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 17;

    #[test]
    fn last_names_spell_their_digits() {
        assert_eq!(last_name(371).as_str(), "PRICALLYOUGHT");
        assert_eq!(last_name(40).as_str(), "BARPRESBAR");
        assert_eq!(last_name(0).as_str(), "BARBARBAR");
        assert_eq!(last_name(999).as_str(), "EINGEINGEING");
        let mut names: Vec<_> = (0..LAST_NAMES).map(last_name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1000, "two numbers share a name");
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn nurand_covers_its_range_unevenly() {
        let mut random = Random::new(SEED, 0);
        let constants = Constants::draw(&mut random);
        let mut drawn = vec![0_u32; 3001];
        for _ in 0..600_000 {
            drawn[random.customer(&constants, 3000) as usize] += 1;
        }
        assert_eq!(drawn[0], 0, "seed {SEED}");
        // A uniform draw would return each customer about 200 times. But each bit within A is set in three quarters
        // of the draws, so a few customers are drawn far more often than others.
        assert!(drawn[1..].iter().filter(|&&times| times > 0).count() > 2_700, "seed {SEED}");
        let most = drawn.iter().max().unwrap();
        assert!(*most > 1_000, "seed {SEED}: no customer is popular: at most {most} draws");

        for _ in 0..100_000 {
            let item = random.item(&constants, 100_000);
            assert!((1..=100_000).contains(&item), "seed {SEED}: item {item}");
            let name = random.last_name_number(constants.last_name_run, LAST_NAMES);
            assert!(name < LAST_NAMES, "seed {SEED}: name {name}");
        }
    }

    #[test]
    fn constants_keep_the_distance_between_load_and_run() {
        for seed in 0..2_000 {
            let constants = Constants::draw(&mut Random::new(seed, 0));
            let distance = constants.last_name_load.abs_diff(constants.last_name_run);
            assert!((65..=119).contains(&distance), "seed {seed}: {constants:?}");
            assert!(distance != 96 && distance != 112, "seed {seed}: {constants:?}");
            assert!(constants.last_name_run <= 255 && constants.last_name_load <= 255);
            assert!(constants.customer <= 1023 && constants.item <= 8191);
        }
        for load in 0..=255 {
            assert!((0..=255).any(|run| Constants::may_run_with(load, run)), "load with {load}");
        }
    }

    #[test]
    fn text_has_the_lengths_and_characters_of_the_specification() {
        let mut random = Random::new(SEED, 2);
        let mut lengths = [0_u32; 17];
        let mut characters = [0_u32; 256];
        for _ in 0..20_000 {
            let text = random.text::<16>(8..=16);
            lengths[text.len()] += 1;
            text.bytes().for_each(|byte| characters[usize::from(byte)] += 1);
        }
        assert!(lengths[..8].iter().all(|&count| count == 0), "seed {SEED}");
        assert!(lengths[8..].iter().all(|&count| count > 1_800), "seed {SEED}: {lengths:?}");
        for byte in 0..=255_u8 {
            let count = characters[usize::from(byte)];
            let expected = if byte.is_ascii_alphanumeric() { 3_400..4_350 } else { 0..1 };
            assert!(expected.contains(&count), "seed {SEED}: byte {byte} {count} times");
        }
        let zip = random.zip();
        assert!(zip.as_bytes()[..4].iter().all(u8::is_ascii_digit));
        assert_eq!(&zip.as_bytes()[4..], b"11111");
        assert!(random.digits::<16>().as_bytes().iter().all(u8::is_ascii_digit));
    }

    #[test]
    fn a_tenth_of_the_data_is_original() {
        let mut random = Random::new(SEED, 3);
        let data: Vec<_> = (0..20_000).map(|_| random.data()).collect();
        let original = data.iter().filter(|data| is_original(data)).count();
        assert!((1_800..2_200).contains(&original), "seed {SEED}: {original} of 20,000");
        for data in &data {
            assert!((26..=50).contains(&data.len()));
            assert_eq!(is_original(data), data.contains("ORIGINAL"), "{data}");
        }
    }

    #[test]
    fn other_than_draws_every_other_number() {
        let mut random = Random::new(SEED, 4);
        let mut drawn = [0_u32; 6];
        for _ in 0..4_000 {
            drawn[usize::from(random.other_than(3, 1, 5))] += 1;
        }
        assert_eq!((drawn[0], drawn[3]), (0, 0), "seed {SEED}");
        assert!([1, 2, 4, 5].iter().all(|&i| drawn[i] > 850), "seed {SEED}: {drawn:?}");
        assert_eq!(random.other_than(1, 1, 1), 1);
    }
}

//! Pages of 8 KiB with slots, in which rows and the entries of indexes lie.
//!
//! ```text
//!  0       8                                                       words up to 1023
//!  +-------+---------+---------+-----------------+------+-- .. -+--------+
//!  | header| record 0| record 1| ...             | free | slots | footer |
//!  +-------+---------+---------+-----------------+------+-- .. -+--------+
//!                                                  slot 1, slot 0: 4 bytes each
//! ```
//!
//! This is Shore-MT's page (`page_s`): a header of 64 bytes, a footer with a second position in the log, and a slot
//! for each record with its offset and length.

use weft::htm::word::Word;

use super::thread::{get, set};
use crate::locks::pattern;

/// The words of a page: 8 KiB.
pub(super) const PAGE_WORDS: usize = 1024;

/// The words of a page's header.
const HEADER_WORDS: usize = 8;

/// The word behind the slots: the footer.
const SLOTS_END: usize = PAGE_WORDS - 2;

/// The words of a record's tag (`rectag_t`), in front of a row.
const TAG_WORDS: usize = 2;

/// The words of a subscriber's row. Its 34 columns take 100 bytes.
pub(super) const ROW_WORDS_MAX: usize = 14;

/// The words of the rows in the other tables, which take 20 to 40 bytes.
pub(super) const SHORT_ROW_WORDS: usize = 6;

/// The position of a page's last change in the log, in its header.
const LOG_POSITION: usize = 0;
/// The page's own number, in its header.
const NUMBER: usize = 1;
/// The number of slots, in the header.
const SLOTS: usize = 6;

/// A page.
#[derive(Debug)]
#[repr(align(8192))]
pub(super) struct Page([Word; PAGE_WORDS]);

const _: () = assert!(size_of::<Page>() == 8192, "Shore-MT's page size");

impl Page {
    /// Creates an empty page.
    pub(super) fn new(number: u64) -> Page {
        let page = Page(std::array::from_fn(|_| Word::new(0)));
        set(&page.0[NUMBER], number);
        page
    }

    /// Returns how many records of `words` words fit behind a first one of `first` words.
    pub(super) const fn capacity(first: usize, words: usize) -> usize {
        // Two slots take a word, and a word may be left.
        2 * (SLOTS_END - HEADER_WORDS - first - 1) / (2 * words + 1)
    }

    /// Adds a record of these words in the next slot.
    pub(super) fn add(&self, words: &[u64]) {
        let slots = self.slots();
        let start = match slots {
            0 => HEADER_WORDS,
            _ => {
                let (start, length) = self.place(slots - 1);
                start + length
            }
        };
        assert!(start + words.len() < SLOTS_END - slots / 2, "page {} is full", self.number());
        self.0[start..].iter().zip(words).for_each(|(word, &value)| set(word, value));
        let (slot, shift) = Self::slot(slots);
        let place = (start as u64) << 16 | words.len() as u64;
        set(&self.0[slot], get(&self.0[slot]) | place << shift);
        set(&self.0[SLOTS], slots as u64 + 1);
    }

    /// Returns the number of the page.
    pub(super) fn number(&self) -> u64 {
        get(&self.0[NUMBER])
    }

    /// Returns how many slots there are.
    #[inline]
    pub(super) fn slots(&self) -> usize {
        get(&self.0[SLOTS]) as usize
    }

    /// Returns the position of the last change in the log.
    #[inline]
    pub(super) fn log_position(&self) -> u64 {
        get(&self.0[LOG_POSITION])
    }

    /// Notes the position of the last change in the log.
    #[inline]
    pub(super) fn set_log_position(&self, position: u64) {
        set(&self.0[LOG_POSITION], position);
    }

    /// Returns the word that holds a slot, and the position of its lowest bit there.
    #[inline(always)]
    fn slot(slot: usize) -> (usize, usize) {
        (SLOTS_END - 1 - slot / 2, slot % 2 * 32)
    }

    /// Returns where a record begins, and how many words it has.
    #[inline(always)]
    fn place(&self, slot: usize) -> (usize, usize) {
        let (word, shift) = Self::slot(slot);
        let place = get(&self.0[word]) >> shift;
        ((place >> 16 & 0xFFFF) as usize, (place & 0xFFFF) as usize)
    }

    /// Returns the words of a record.
    #[inline]
    pub(super) fn record(&self, slot: usize) -> &[Word] {
        let (start, length) = self.place(slot);
        &self.0[start..start + length]
    }

    /// Returns the row in a slot.
    #[inline]
    pub(super) fn row(&self, slot: usize) -> Row<'_> {
        let record = self.record(slot);
        Row { tag: &record[0], words: &record[TAG_WORDS..] }
    }
}

/// Returns the words of the record of a new row of `words` words.
pub(super) fn new_row(words: usize, number: u64, updates: u64) -> Vec<u64> {
    let tag = [words as u64 * 8, 0];
    let fields = [number, updates].into_iter().chain(pattern(number, updates, words));
    tag.into_iter().chain(fields).collect()
}

/// A row in a page: its number, the count of its updates, and words that match the two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    tag: &'a Word,
    words: &'a [Word],
}

impl Row<'_> {
    /// Returns how many words it has.
    pub(super) fn size(&self) -> usize {
        self.words.len()
    }

    /// Returns one of its words.
    #[inline(always)]
    pub(super) fn word(&self, position: usize) -> u64 {
        get(&self.words[position])
    }

    /// Returns the number of the row; 0 if this place is empty.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.word(0)
    }

    /// Returns how often it was updated.
    #[inline]
    pub(super) fn updates(&self) -> u64 {
        self.word(1)
    }

    /// Reads the whole row.
    #[inline]
    pub(super) fn digest(&self) -> u64 {
        self.words.iter().fold(get(self.tag), |sum, word| sum ^ get(word))
    }

    /// Returns the words after the next update.
    #[inline]
    pub(super) fn after_update(&self) -> impl Fn(usize) -> u64 + use<> {
        let (number, updates, size) = (self.number(), self.updates() + 1, self.size());
        move |position| match position {
            0 => number,
            1 => updates,
            _ => pattern(number, updates, size).nth(position - 2).expect("a word of the row"),
        }
    }

    /// Updates all words.
    #[inline]
    pub(super) fn update(&self) {
        let (number, updates) = (self.number(), self.updates() + 1);
        set(&self.words[1], updates);
        let after = pattern(number, updates, self.size());
        self.words[2..].iter().zip(after).for_each(|(word, value)| set(word, value));
    }

    /// Returns whether all words match.
    pub(super) fn is_whole(&self) -> bool {
        let words = self.words[2..].iter().map(get);
        pattern(self.number(), self.updates(), self.size()).eq(words)
    }
}

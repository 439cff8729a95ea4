//! Lists whose members are numbered, with links both ways: the requests for a lock, and the transactions.
//!
//! A list does not know where its members are. Each operation is told how to find the links of a member.

use weft::htm::word::Word;

use super::thread::{get, set};

/// The neighbours of a member: their numbers, plus 1.
#[derive(Debug, Default)]
pub(super) struct Links {
    next: Word,
    previous: Word,
}

/// The ends of a list: the numbers of its members, plus 1.
#[derive(Debug, Default)]
pub(super) struct Ends {
    first: Word,
    last: Word,
}

impl Links {
    /// Returns the number of the next member.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<u64> {
        get(&self.next).checked_sub(1)
    }
}

impl Ends {
    /// Returns the number of the first member.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u64> {
        get(&self.first).checked_sub(1)
    }

    /// Returns the number of the last member.
    #[inline(always)]
    pub(super) fn last(&self) -> Option<u64> {
        get(&self.last).checked_sub(1)
    }

    /// Empties the list, without a look at its members.
    #[inline(always)]
    pub(super) fn clear(&self) {
        set(&self.first, 0);
        set(&self.last, 0);
    }

    /// Adds a member at the end.
    #[inline]
    pub(super) fn append<'a>(&self, number: u64, links: impl Fn(u64) -> &'a Links) {
        let last = get(&self.last);
        let added = links(number);
        set(&added.next, 0);
        set(&added.previous, last);
        match last.checked_sub(1) {
            None => set(&self.first, number + 1),
            Some(last) => set(&links(last).next, number + 1),
        }
        set(&self.last, number + 1);
    }

    /// Takes a member out.
    #[inline]
    pub(super) fn remove<'a>(&self, number: u64, links: impl Fn(u64) -> &'a Links) {
        let removed = links(number);
        let (next, previous) = (get(&removed.next), get(&removed.previous));
        match previous.checked_sub(1) {
            None => set(&self.first, next),
            Some(previous) => set(&links(previous).next, next),
        }
        match next.checked_sub(1) {
            None => set(&self.last, previous),
            Some(next) => set(&links(next).previous, previous),
        }
    }
}

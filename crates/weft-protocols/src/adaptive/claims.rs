//! Claims: which records transactions will delete, so that others may pass over them.
//!
//! A claim is advice. It can be lost, if too many fall together, and it can be wrong, if its transaction aborts.

use weft_htm::word::{Ordering, Word};

use super::queue::Ticket;

/// How many lines the table has, and how many claims are in a line.
const LINES: usize = 256;
const CLAIMS_PER_LINE: usize = 4;

/// The value of [`Claim::address`] while a claim is being written.
const UNDER_WAY: u64 = 1;

/// The claim of a transaction to a record.
#[derive(Default)]
struct Claim {
    /// The record's address; 0 if there is no claim.
    address: Word,
    /// The ticket with which the transaction has had its turn.
    by: Word,
}

/// The claims that fall together.
#[derive(Default)]
#[repr(align(64))]
struct Line([Claim; CLAIMS_PER_LINE]);

/// The claims of all transactions of a database.
pub struct Claims(Box<[Line]>);

impl Default for Claims {
    fn default() -> Self {
        Claims((0..LINES).map(|_| Line::default()).collect())
    }
}

impl Claims {
    fn line(&self, address: u64) -> &[Claim] {
        let hash = address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        &self.0[hash as usize % LINES].0
    }

    /// Claims the record at this address, unless there are too many claims.
    pub fn claim(&self, address: u64, by: Ticket) {
        for claim in self.line(address) {
            // Relaxed: the store of the address below publishes the claim. Nothing else relies on it.
            let take = |word: &Word| {
                word.compare_exchange(0, UNDER_WAY, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            };
            if claim.address.load(Ordering::Relaxed) == 0 && take(&claim.address) {
                claim.by.store(by.into(), Ordering::Relaxed);
                // Release: pairs with the acquire in `has_earlier`.
                claim.address.store(address, Ordering::Release);
                return;
            }
        }
    }

    /// Takes back all claims to this record that were made by this ticket, or by ones before it.
    pub fn give_up(&self, address: u64, until: Ticket) {
        for claim in self.line(address) {
            if claim.address.load(Ordering::Acquire) == address && !is_later(&claim.by, until) {
                // Relaxed: a claim is advice. (If it has become another one by now, that one is lost.)
                claim.address.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether a transaction with a ticket before this one claims the record.
    pub fn has_earlier(&self, address: u64, ticket: Ticket) -> bool {
        // Acquire: pairs with the release in `claim`.
        let is_of = |claim: &&Claim| claim.address.load(Ordering::Acquire) == address;
        let mut claims = self.line(address).iter().filter(is_of);
        claims.any(|claim| {
            claim.by.load(Ordering::Relaxed) != u64::from(ticket) && !is_later(&claim.by, ticket)
        })
    }
}

/// Returns whether the ticket of a claim is later than another one. (Tickets wrap around.)
fn is_later(by: &Word, ticket: Ticket) -> bool {
    (by.load(Ordering::Relaxed) as Ticket).wrapping_sub(ticket).cast_signed() > 0
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_claims_are_seen() {
        let claims = Claims::default();
        claims.claim(64, 7);
        assert!(claims.has_earlier(64, 8));
        assert!(!claims.has_earlier(64, 7) && !claims.has_earlier(64, 6));
        assert!(!claims.has_earlier(128, 8));
        claims.claim(128, u32::MAX);
        assert!(claims.has_earlier(128, 3), "tickets wrap around");
    }

    #[test]
    fn claims_that_are_given_up_are_gone_and_later_ones_stay() {
        let claims = Claims::default();
        claims.claim(64, 7);
        claims.claim(64, 9);
        claims.give_up(64, 7);
        assert!(!claims.has_earlier(64, 9) && claims.has_earlier(64, 10));
        claims.give_up(64, 9);
        assert!(!claims.has_earlier(64, 10));
    }

    #[test]
    fn too_many_claims_in_a_line_are_lost() {
        let claims = Claims::default();
        (0..=CLAIMS_PER_LINE as u32).for_each(|ticket| claims.claim(64, ticket));
        (0..CLAIMS_PER_LINE as u32).for_each(|ticket| claims.give_up(64, ticket));
        assert!(!claims.has_earlier(64, 100));
        claims.claim(64, 1);
        assert!(claims.has_earlier(64, 100), "there is room again");
    }
}

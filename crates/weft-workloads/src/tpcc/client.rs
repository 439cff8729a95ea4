//! One client: a terminal and its user in the specification, but without their delays.
//!
//! ## Home warehouses
//!
//! As in the papers, each thread has home warehouses of its own if there are enough warehouses:
//!
//! ```text
//!   8 warehouses, 2 threads       2 warehouses, 8 threads
//!   thread 0: warehouses 1 to 4   threads 0, 2, 4, 6: warehouse 1
//!   thread 1: warehouses 5 to 8   threads 1, 3, 5, 7: warehouse 2
//! ```
//!
//! A client with several home warehouses draws one of them for each transaction. Only remote
//! payments and remote order lines leave home.
//!
//! A client also owns the buffers that its transactions need, so that running a transaction allocates no memory.

use super::mix::{Mix, TransactionType};
use super::random::{Constants, Random};
use super::schema::{DISTRICTS, History};
use super::{DeliverySearch, Parameters, Scale, delivery, new_order};

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    pub(super) random: Random,
    pub(super) constants: Constants,
    pub(super) scale: Scale,
    pub(super) warehouses: u16,
    mix: Mix,
    /// The first and the last home warehouse.
    home: (u16, u16),
    /// The key of this client's next row of history: its origin, and the number of its rows so far.
    history: (u32, u32),
    /// The numbers of the customers, or items, that a transaction has found.
    pub(super) found: Vec<u32>,
    pub(super) new_order: new_order::Output,
    /// The key of the order that this client entered last.
    pub(super) entered: Option<(u16, u8, u32)>,
    /// For each home warehouse, and each of its districts, the number behind the last order that this client has
    /// delivered. Empty if [Delivery searches from the start](super::DeliverySearch::FromStart).
    undelivered: Vec<[u32; DISTRICTS as usize]>,
}

impl Client {
    /// Creates the `number`-th client of a database, for the `thread`-th of `threads` threads.
    pub(super) fn new(
        parameters: &Parameters,
        constants: Constants,
        seed: u64,
        number: u32,
        thread: usize,
        threads: usize,
    ) -> Client {
        let home = home(parameters.warehouses, thread, threads);
        let undelivered = match parameters.delivery_search {
            DeliverySearch::FromStart => Vec::new(),
            DeliverySearch::BehindLast => vec![[0; _]; usize::from(home.1 - home.0) + 1],
        };
        Client {
            random: Random::new(seed, thread as u64),
            constants,
            scale: parameters.scale,
            warehouses: parameters.warehouses,
            mix: parameters.mix,
            home,
            history: (History::origin_of_client(number), 0),
            found: Vec::with_capacity(20 * super::schema::LINES_MAX),
            new_order: new_order::Output::default(),
            entered: None,
            undelivered,
        }
    }

    /// Returns the key of the order that this client entered last: warehouse, district and number.
    pub fn last_order(&self) -> Option<(u16, u8, u32)> {
        self.entered
    }

    /// Chooses the next transaction's type.
    #[inline]
    pub(super) fn draw_transaction(&mut self) -> TransactionType {
        self.mix.draw(&mut self.random)
    }

    /// Chooses the next transaction's warehouse, W_ID.
    #[inline]
    pub(super) fn draw_home(&mut self) -> u16 {
        let (first, last) = self.home;
        if first == last { first } else { self.random.within(first.into(), last.into()) as u16 }
    }

    /// Returns, for each district of a home warehouse, an order number below which there is no new order.
    #[inline]
    pub(super) fn first_new_orders(&self, w_id: u16) -> [u32; DISTRICTS as usize] {
        self.undelivered.get(usize::from(w_id - self.home.0)).copied().unwrap_or_default()
    }

    /// Notes which orders this client has delivered. They were the oldest ones, and order numbers are counted up. So
    /// there will never be a new order with a smaller number.
    #[inline]
    pub(super) fn note_delivered(&mut self, w_id: u16, delivered: &delivery::Output) {
        let Some(districts) = self.undelivered.get_mut(usize::from(w_id - self.home.0)) else {
            return;
        };
        for (first, o_id) in districts.iter_mut().zip(delivered) {
            *first = o_id.map_or(*first, |o_id| o_id + 1);
        }
    }

    /// Chooses a district.
    #[inline]
    pub(super) fn draw_district(&mut self) -> u8 {
        self.random.within_u8(1, DISTRICTS)
    }

    /// Chooses a warehouse other than `w_id`, if there is one.
    #[inline]
    pub(super) fn draw_remote(&mut self, w_id: u16) -> u16 {
        self.random.other_than(w_id, 1, self.warehouses)
    }

    /// Chooses a customer number.
    #[inline]
    pub(super) fn draw_customer(&mut self) -> u32 {
        self.random.customer(&self.constants, self.scale.customers_per_district)
    }

    /// Returns a key for a row of history that no other row has.
    #[inline]
    pub(super) fn next_history_key(&mut self) -> (u32, u32) {
        let key = self.history;
        self.history.1 += 1;
        key
    }
}

/// Returns the first and the last home warehouse of a thread.
fn home(warehouses: u16, thread: usize, threads: usize) -> (u16, u16) {
    let count = usize::from(warehouses);
    if threads >= count {
        let w_id = (thread % count) as u16 + 1;
        return (w_id, w_id);
    }
    // There are fewer threads than warehouses: each thread has a whole number of them, and the first threads have
    // one more.
    let first = |thread: usize| thread * (count / threads) + thread.min(count % threads);
    (first(thread) as u16 + 1, first(thread + 1) as u16)
}

#[cfg(test)]
mod tests {
    use super::home;

    #[test]
    fn every_warehouse_is_the_home_of_some_thread() {
        assert_eq!((0..2).map(|t| home(8, t, 2)).collect::<Vec<_>>(), [(1, 4), (5, 8)]);
        assert_eq!((0..8).map(|t| home(2, t, 8).0).collect::<Vec<_>>(), [1, 2, 1, 2, 1, 2, 1, 2]);
        for warehouses in 1..40 {
            for threads in 1..40 {
                let homes: Vec<_> = (0..threads).map(|t| home(warehouses, t, threads)).collect();
                let mut residents = vec![0; usize::from(warehouses) + 1];
                for &(first, last) in &homes {
                    assert!(first <= last, "{warehouses} warehouses, {threads} threads: {homes:?}");
                    (first..=last).for_each(|w_id| residents[usize::from(w_id)] += 1);
                }
                let (fewest, most) = residents[1..]
                    .iter()
                    .fold((usize::MAX, 0), |(fewest, most), &r| (fewest.min(r), most.max(r)));
                assert!(fewest > 0 && most - fewest <= 1, "{warehouses}, {threads}: {homes:?}");
            }
        }
    }
}

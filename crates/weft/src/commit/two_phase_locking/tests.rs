//! Tests of the lock word's rules, on one thread.

use super::*;

/// What a transaction of the model is doing with the only lock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Activity {
    Nothing,
    Reading,
    Writing,
    /// Waiting for the lock; a writer with this many shares of it.
    WaitingToRead,
    WaitingToWrite(u64),
}

fn holds(doing: Activity) -> bool {
    matches!(doing, Activity::Reading | Activity::Writing | Activity::WaitingToWrite(SHARED_ONE))
}

/// A lock word, and all the state that has no room in the word.
struct Model<const WAITS: bool> {
    word: u64,
    transactions: Vec<(u64, Activity)>,
    timestamp_next: u64,
}

impl<const WAITS: bool> Model<WAITS> {
    fn new(transactions: usize) -> Self {
        let fresh = |timestamp| (timestamp as u64, Activity::Nothing);
        Model {
            word: 0,
            transactions: (0..transactions).map(fresh).collect(),
            timestamp_next: transactions as u64,
        }
    }

    /// Makes one step of one transaction. `choice` is what it does if it can choose.
    fn step(&mut self, me: usize, choice: u8) {
        let (timestamp, doing) = self.transactions[me];
        match (doing, choice) {
            (Activity::Nothing, 0..3) => self.ask(me, Activity::WaitingToRead),
            (Activity::Nothing, _) => self.ask(me, Activity::WaitingToWrite(0)),
            (Activity::WaitingToRead | Activity::WaitingToWrite(_), _) => self.ask(me, doing),
            (Activity::Reading, 0) => self.ask(me, Activity::WaitingToWrite(SHARED_ONE)),
            (Activity::Reading, _) => {
                self.word -= SHARED_ONE;
                self.commit(me);
            }
            (Activity::Writing, _) => {
                assert_eq!(self.word, exclusive(timestamp));
                self.word = 0;
                self.commit(me);
            }
        }
        self.check();
    }

    fn ask(&mut self, me: usize, wanted: Activity) {
        let (timestamp, _) = self.transactions[me];
        let (rule, granted) = match wanted {
            Activity::WaitingToRead => (share::<WAITS>(self.word, timestamp), Activity::Reading),
            Activity::WaitingToWrite(own) => {
                (seize::<WAITS>(self.word, timestamp, own), Activity::Writing)
            }
            _ => unreachable!(),
        };
        let doing = match rule {
            LockStep::Take(word) => {
                self.word = word;
                granted
            }
            LockStep::Announce(word) => {
                self.word = word;
                wanted
            }
            LockStep::Wait => wanted,
            LockStep::Die => {
                if wanted == Activity::WaitingToWrite(SHARED_ONE) {
                    self.word -= SHARED_ONE;
                }
                Activity::Nothing
            }
        };
        self.transactions[me].1 = doing;
        if matches!(rule, LockStep::Wait | LockStep::Announce(_)) {
            assert!(WAITS, "one waits that must not");
            for (position, &(other, doing)) in self.transactions.iter().enumerate() {
                let holds = holds(doing);
                assert!(position == me || !holds || timestamp < other, "waits for an older");
            }
        }
    }

    fn commit(&mut self, me: usize) {
        self.transactions[me] = (self.timestamp_next, Activity::Nothing);
        self.timestamp_next += 1;
    }

    fn check(&self) {
        let count = |is: fn(Activity) -> bool| {
            self.transactions.iter().filter(|(_, doing)| is(*doing)).count() as u64
        };
        let writers = count(|doing| doing == Activity::Writing);
        let readers = count(|doing| {
            matches!(doing, Activity::Reading | Activity::WaitingToWrite(SHARED_ONE))
        });
        assert!(writers == 0 || (writers == 1 && readers == 0), "{writers}, {readers}");
        assert_eq!(self.word & EXCLUSIVE != 0, writers == 1);
        assert_eq!(self.word & SHARED, readers);
        for &(timestamp, doing) in &self.transactions {
            assert!(!holds(doing) || timestamp_of(self.word) <= timestamp);
        }
        let is_announced = |&(timestamp, doing): &(u64, Activity)| {
            matches!(doing, Activity::WaitingToWrite(_)) && timestamp == timestamp_of(self.word)
        };
        assert!(
            self.word & PENDING == 0 || self.transactions.iter().any(is_announced),
            "a pending bit was left behind"
        );
    }
}

fn walk<const WAITS: bool>() {
    let seed = std::env::var("WEFT_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("WEFT_SEED is a number"));
    println!("WEFT_SEED={seed} repeats this");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..200 {
        let mut model = Model::<WAITS>::new(random.usize(2..6));
        for _ in 0..2_000 {
            model.step(random.usize(..model.transactions.len()), random.u8(..6));
        }
        // Without new requests all transactions end: each step ends a transaction, or waits for one that another
        // step will end.
        let committed = model.timestamp_next;
        for me in (0..model.transactions.len()).cycle().take(1_000) {
            model.step(me, 5);
        }
        assert!(model.timestamp_next > committed + 100, "stuck at {:x}", model.word);
    }
}

/// Compares the word with a model that knows which transactions hold the lock and which wait. No transaction waits
/// for an older one, no two hold locks that exclude each other, and no pending bit is left behind.
#[test]
fn lock_word_follows_the_model_under_wait_die() {
    walk::<true>();
}

#[test]
fn lock_word_follows_the_model_without_waiting() {
    walk::<false>();
}

#[test]
fn of_two_upgrading_transactions_the_younger_dies() {
    let lock = LockWord::default();
    lock.lock_shared::<true>(7).unwrap();
    lock.lock_shared::<true>(4).unwrap();
    assert_eq!(lock.lock_exclusive::<true>(7, SHARED_ONE), Err(LockDenied));
    let word = lock.0.load(Ordering::Relaxed);
    assert_eq!(seize::<true>(word, 4, SHARED_ONE), LockStep::Announce(pending(4, 2)));
    assert_eq!(seize::<false>(word, 4, SHARED_ONE), LockStep::Die);
    lock.unlock_shared();
    lock.lock_exclusive::<true>(4, SHARED_ONE).unwrap();
    assert!(lock.is_exclusive_of(4) && !lock.is_exclusive_of(7));
}

#[test]
fn a_pending_writer_keeps_readers_out() {
    let word = pending(5, 1);
    assert_eq!(share::<true>(word, 9), LockStep::Die, "a younger one");
    assert_eq!(share::<true>(word, 2), LockStep::Wait, "an older one");
    assert_eq!(seize::<true>(word, 9, 0), LockStep::Die, "a younger writer");
    assert_eq!(seize::<true>(word, 2, 0), LockStep::Announce(pending(2, 1)), "an older writer");
    assert_eq!(seize::<true>(word, 5, 0), LockStep::Wait, "the writer itself");
    assert_eq!(seize::<true>(word, 9, 1), LockStep::Take(exclusive(9)), "the last holder");
    assert_eq!(seize::<true>(pending(5, 0), 5, 0), LockStep::Take(exclusive(5)));
    assert_eq!(seize::<true>(pending(5, 0), 2, 0), LockStep::Take(exclusive(2)));
}

#[test]
fn a_full_lock_takes_no_more_holders() {
    let full = 5 << TIMESTAMP_SHIFT | SHARED;
    assert_eq!(share::<true>(full, 9), LockStep::Die);
    assert_eq!(share::<true>(full, 2), LockStep::Wait);
    assert_eq!(share::<false>(full, 2), LockStep::Die);
}

#[test]
fn a_retried_transaction_keeps_its_timestamp() {
    let shared = Arc::new(Timestamps::default());
    let mut executors = [0, 1].map(|slot| LockingExecutor::<true>::new(&shared, slot));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 * TIMESTAMPS_PER_BLOCK {
        for executor in &mut executors {
            executor.grow_older(0);
            let first = executor.timestamp;
            assert!(seen.insert(first), "{first} was somebody else's");
            for attempt in 1..4 {
                executor.grow_older(attempt);
                assert_eq!(executor.timestamp, first);
            }
        }
    }
}

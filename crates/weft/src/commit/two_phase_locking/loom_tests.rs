//! The lock word under every interleaving.

use loom::thread;

use super::*;

/// A lock, and two words that only its exclusive holder changes, together.
#[derive(Default)]
struct Kernel {
    lock: LockWord,
    row: [Word; 2],
}

impl Kernel {
    fn increment(&self) {
        for word in &self.row {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn look(&self) -> u64 {
        let [first, second] = [0, 1].map(|word| self.row[word].load(Ordering::Relaxed));
        assert_eq!(first, second, "half a write");
        first
    }

    fn read<const WAITS: bool>(&self, timestamp: u64) -> bool {
        let granted = self.lock.lock_shared::<WAITS>(timestamp).is_ok();
        if granted {
            self.look();
            self.lock.unlock_shared();
        }
        granted
    }

    fn write<const WAITS: bool>(&self, timestamp: u64) -> bool {
        let granted = self.lock.lock_exclusive::<WAITS>(timestamp, 0).is_ok();
        if granted {
            self.increment();
            self.lock.unlock_exclusive();
        }
        granted
    }

    /// Reads, and then writes what follows from it.
    fn upgrade<const WAITS: bool>(&self, timestamp: u64) -> bool {
        if self.lock.lock_shared::<WAITS>(timestamp).is_err() {
            return false;
        }
        let seen = self.look();
        let granted = self.lock.lock_exclusive::<WAITS>(timestamp, SHARED_ONE).is_ok();
        if granted {
            assert_eq!(self.look(), seen, "changed under a shared lock");
            self.increment();
            self.lock.unlock_exclusive();
        } else {
            self.lock.unlock_shared();
        }
        granted
    }
}

type Body = fn(&Kernel, u64) -> bool;

/// Runs the bodies at the same time, the first one with the smallest timestamp. Returns whether each got its locks,
/// and how many writes there were.
fn at_once(bodies: &[Body]) -> (Vec<bool>, u64) {
    let kernel = Arc::new(Kernel::default());
    let threads: Vec<_> = (2..)
        .zip(&bodies[1..])
        .map(|(timestamp, &body)| {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || body(&kernel, timestamp))
        })
        .collect();
    let mut granted = vec![bodies[0](&kernel, 1)];
    granted.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    (granted, kernel.look())
}

/// A reader sees all of a write or nothing of it, no matter which of the two is older. The older one gets the lock.
#[test]
fn loom_locking_reader_and_writer() {
    loom::model(|| {
        let (granted, _) = at_once(&[Kernel::read::<true>, Kernel::write::<true>]);
        assert!(granted[0], "the oldest never dies");
    });
    loom::model(|| {
        let (granted, _) = at_once(&[Kernel::write::<true>, Kernel::read::<true>]);
        assert!(granted[0], "the oldest never dies");
    });
    loom::model(|| {
        at_once(&[Kernel::write::<false>, Kernel::read::<false>]);
    });
}

/// No write is lost, and no transaction waits for ever.
#[test]
fn loom_locking_two_upgrades() {
    loom::model(|| {
        let (granted, writes) = at_once(&[Kernel::upgrade::<true>, Kernel::upgrade::<true>]);
        assert!(granted[0], "the oldest never dies");
        assert_eq!(writes, granted.iter().filter(|granted| **granted).count() as u64);
    });
    loom::model(|| {
        let (granted, writes) = at_once(&[Kernel::upgrade::<false>, Kernel::upgrade::<false>]);
        assert_eq!(writes, granted.iter().filter(|granted| **granted).count() as u64);
    });
}

fn of_three(bodies: [Body; 3]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let (granted, _) = at_once(&bodies);
        assert!(granted[0], "the oldest never dies");
    });
}

/// A writer waits for readers, and gets through.
#[test]
fn loom_locking_pending_writer() {
    of_three([Kernel::write::<true>, Kernel::read::<true>, Kernel::read::<true>]);
}

/// If a pending writer dies, the older writer that caused this takes over the pending bit.
#[test]
fn loom_locking_two_pending_writers() {
    of_three([Kernel::write::<true>, Kernel::write::<true>, Kernel::read::<true>]);
}

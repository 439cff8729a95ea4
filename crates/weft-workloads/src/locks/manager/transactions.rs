//! The objects of transactions, and their list.
//!
//! A transaction begins and ends in sections of reader-writer locks that a checkpoint, or the mount of a volume,
//! would take exclusively. Inside, it joins and leaves the list of all transactions, which is sorted by their
//! numbers.

use weft::htm::lock::{Elidable, Mcs, Mode, OccRwLock};
use weft::htm::word::Word;

use super::Kinds;
use super::list::{Ends, Links};
use super::parts::Part;
use super::protected::Protected;
use super::thread::{Counter, Session, get, increment, set};

/// The words of a transaction's object that its beginning sets: positions in the log, space in the log, limits for
/// lock escalation, the timeout, the caches that it takes from its thread, and flags (`xct_t` and `xct_core`).
const FIELDS: usize = 24;

/// The states of a transaction.
const ACTIVE: u64 = 1;
const COMMITTING: u64 = 2;
const ENDED: u64 = 3;

/// The object of a transaction. Each thread has one, which all its transactions use.
#[derive(Debug)]
pub(super) struct Transaction {
    fields: [Word; FIELDS],
    /// The state, and the lock that serializes the threads of one transaction.
    state: Elidable<Protected<Mcs, State>>,
    link: Link,
}

#[derive(Debug, Default)]
struct State {
    state: Word,
    threads: Word,
    /// What a thread gets when it is attached: the lock hierarchy, the cache of stores, and the log.
    attached: [Word; 3],
}

/// A transaction's place in the list, on a line of its own: another object of the heap.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Link {
    number: Word,
    /// The threads of the neighbours.
    links: Links,
    owner: Word,
}

impl Transaction {
    pub(super) fn new(has_fences: bool, kinds: Kinds) -> Transaction {
        Transaction {
            fields: std::array::from_fn(|_| Word::new(0)),
            state: Protected::new(has_fences, kinds.mcs),
            link: Link::default(),
        }
    }

    /// Returns the number of the thread's last transaction.
    pub(super) fn number(&self) -> u64 {
        get(&self.link.number)
    }
}

/// The list of transactions, and the locks for its readers.
#[derive(Debug)]
pub(super) struct Transactions {
    /// Excludes the mount of a volume.
    begin: Elidable<Protected<OccRwLock>>,
    /// Excludes a checkpoint.
    checkpoint: Elidable<Protected<OccRwLock>>,
    list: Elidable<Protected<Mcs, List>>,
}

#[derive(Debug, Default)]
struct List {
    /// The threads of the first and the last transaction.
    ends: Ends,
    members: Word,
    numbers: Word,
}

impl Transactions {
    pub(super) fn new(has_fences: bool, kinds: Kinds) -> Transactions {
        Transactions {
            begin: Protected::new(has_fences, kinds.occ_rwlock),
            checkpoint: Protected::new(has_fences, kinds.occ_rwlock),
            list: Protected::new(has_fences, kinds.mcs),
        }
    }

    /// Returns how many transactions are in the list.
    pub(super) fn members(&self) -> u64 {
        get(&self.list.lock().data.members)
    }

    /// Begins a transaction of this thread.
    #[inline]
    pub(super) fn begin(&self, session: Session<'_>) {
        session.enter();
        self.begin.section(Mode::Shared, session.regions, || {
            session.count(Counter::TransactionsBegun);
            set(&session.thread.updates, 0);
            if session.has(Part::Transactions) {
                session.thread.transaction.fields.iter().for_each(|field| set(field, 0));
                self.join(session);
            }
            self.change(session, ACTIVE, 1);
        });
    }

    /// Begins to commit the transaction of this thread.
    #[inline]
    pub(super) fn prepare(&self, session: Session<'_>) {
        session.enter();
        self.change(session, COMMITTING, 0);
    }

    /// Ends the transaction of this thread. `log` appends what it has to append to the log.
    #[inline]
    pub(super) fn end(&self, session: Session<'_>, log: impl Fn()) {
        self.checkpoint.section(Mode::Shared, session.regions, || {
            self.change(session, ENDED, 0);
            log();
            if session.has(Part::Transactions) {
                self.leave(session);
            }
        });
    }

    /// Detaches this thread from its transaction, which has ended and has released its locks.
    #[inline]
    pub(super) fn detach(&self, session: Session<'_>) {
        self.change(session, ENDED, u64::MAX);
        session.count(Counter::TransactionsCommitted);
        // The object is reset for its next use.
        session.thread.locks.reset();
        self.change(session, ENDED, 0);
    }

    /// Changes the state, and attaches or detaches a thread if `threads` is 1 or -1.
    #[inline]
    fn change(&self, session: Session<'_>, state: u64, threads: u64) {
        let lock = &session.thread.transaction.state;
        session.alone(lock, || {
            let data = &lock.lock().data;
            set(&data.state, state);
            if threads != 0 {
                increment(&data.threads, threads);
                data.attached.iter().for_each(|cache| _ = increment(cache, 1));
            }
        });
    }

    /// Gives the transaction the next number, and adds it at the end of the list.
    #[inline]
    fn join(&self, session: Session<'_>) {
        session.alone(&self.list, || {
            let list = &self.list.lock().data;
            let link = &session.thread.transaction.link;
            set(&link.number, increment(&list.numbers, 1));
            set(&link.owner, session.number as u64 + 1);
            list.ends.append(session.number as u64, |thread| session.links_of(thread));
            increment(&list.members, 1);
        });
    }

    /// Takes the transaction out of the list.
    #[inline]
    fn leave(&self, session: Session<'_>) {
        session.alone(&self.list, || {
            let list = &self.list.lock().data;
            list.ends.remove(session.number as u64, |thread| session.links_of(thread));
            set(&session.thread.transaction.link.owner, 0);
            increment(&list.members, u64::MAX);
        });
    }
}

impl<'a> Session<'a> {
    fn links_of(&self, thread: u64) -> &'a Links {
        &self.manager.threads[thread as usize].transaction.link.links
    }
}

//! The lock table: buckets of lock heads, each with a queue of requests.
//!
//! ```text
//!  bucket (mcs)        lock head (mcs)        requests, each in two lists:
//!  +-------+           +---------------+      +---------+     +---------+
//!  | chain ┼──────────>| name, mode    |      | queue  ─┼────>| queue   |   of the head: who holds it
//!  +-------+           | queue ────────┼─────>| mine   ─┼─┐   | mine   ─┼─┐ of its transaction: to release it
//!                      +---------------+      +---------+ v   +---------+ v
//! ```
//!
//! A transaction locks the volume, the store and the page of a row with an intent, and then the row. It looks for
//! the first three in its cache of locks. After its end, its thread inherits the locks of the volume and of stores
//! (Johnson, Pandis, Ailamaki: *Improving OLTP Scalability using Speculative Lock Inheritance*, VLDB 2009), so that
//! only the page and the row go to the table. A thread finds a head under the lock of its bucket, and pins it there,
//! so that it remains until the thread has the lock of the head.
//!
//! Requests are granted at once, also if modes exclude each other: no transaction waits for a row.

use weft::htm::lock::{Elidable, Mcs};
use weft::htm::word::{Ordering, Word};

use super::Kinds;
use super::list::{Ends, Links};
use super::parts::Part;
use super::protected::Protected;
use super::thread::{Counter, REQUESTS, Session, get, increment, set};

/// The number of buckets: the largest prime below the power of two that is not smaller than 64,000, Shore-MT's
/// default (`sm_locktablesize`).
const BUCKETS: usize = 65_521;

/// The number of lock heads in the block of a thread: the most that a block of Shore-MT's allocator has.
const HEADS: usize = 64;

/// The number of buckets, for each level, of a transaction's cache of locks.
const CACHE_BUCKETS: usize = 25;
/// The levels that the cache has: volume, store, page.
const CACHE_LEVELS: usize = 3;

/// The name of a lock: its level, and what is locked. It identifies a row, or is cut to its ancestor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockName(u64);

/// The levels of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Volume,
    Store,
    Page,
    Row,
}

impl LockName {
    /// Returns the name of a row's lock.
    pub(super) fn row(store: usize, page: u64, slot: usize) -> LockName {
        LockName(3 << 62 | (store as u64) << 48 | page << 16 | slot as u64)
    }

    /// Returns the name of a store's lock.
    pub(super) fn store(store: usize) -> LockName {
        LockName(1 << 62 | (store as u64) << 48)
    }

    fn level(self) -> Level {
        [Level::Volume, Level::Store, Level::Page, Level::Row][(self.0 >> 62) as usize]
    }

    /// Returns the name of the parent; `None` for the volume.
    fn parent(self) -> Option<LockName> {
        let without_level = self.0 << 2 >> 2;
        match self.level() {
            Level::Row => Some(LockName(2 << 62 | without_level >> 16 << 16)),
            Level::Page => Some(LockName(1 << 62 | without_level >> 48 << 48)),
            Level::Store => Some(LockName(0)),
            Level::Volume => None,
        }
    }

    fn hash(self) -> usize {
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
    }
}

/// The mode of a lock. A greater one includes a smaller one, except that nothing but [`LockMode::Exclusive`] includes
/// [`LockMode::Shared`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LockMode {
    IntentShared = 1,
    IntentExclusive = 2,
    Shared = 3,
    Exclusive = 6,
}

impl LockMode {
    /// Returns the mode that the ancestors of a lock need.
    fn of_parent(self) -> LockMode {
        match self {
            LockMode::IntentShared | LockMode::Shared => LockMode::IntentShared,
            LockMode::IntentExclusive | LockMode::Exclusive => LockMode::IntentExclusive,
        }
    }
}

/// A request for a lock.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Request {
    is_used: Word,
    mode: Word,
    status: Word,
    /// The number of its lock head.
    head: Word,
    /// The thread of its transaction.
    owner: Word,
    references: Word,
    duration: Word,
    children: Word,
    /// Its place in the queue of its lock head.
    queue: Links,
    /// Its place among the requests of its transaction, or among those that its thread has inherited.
    mine: Links,
    inheritance: Word,
}

/// A request was granted.
const GRANTED: u64 = 1;
/// Locks are held to the end of the transaction.
const LONG: u64 = 3;
/// The thread has inherited the request from its last transaction.
const INHERITED: u64 = 0x10;
/// The transaction uses an inherited request.
const ACTIVE: u64 = 1;

#[derive(Debug, Default)]
struct Head {
    chain: Word,
    name: Word,
    mode: Word,
    pins: Word,
    queue: Ends,
    acquired: Word,
    is_used: Word,
}

type LockHead = Elidable<Protected<Mcs, Head>>;

/// The first lock head of a bucket: its number, plus 1.
#[derive(Debug, Default)]
struct Chain(Word);

/// What a bucket counts if there are no requests.
#[derive(Debug, Default)]
struct Bucket {
    chain: Chain,
    requests: Word,
}

/// The locks of a transaction, and of its thread between two transactions.
#[derive(Debug)]
pub(super) struct LockInfo {
    lock: Elidable<Protected<Mcs, Mine>>,
    cache: [Cached; CACHE_BUCKETS * CACHE_LEVELS],
}

#[derive(Debug, Default)]
struct Mine {
    requests: Ends,
    inherited: Ends,
}

/// A lock in the cache. The name takes 16 bytes in Shore-MT.
#[derive(Debug, Default)]
struct Cached {
    name: Word,
    _rest_of_name: Word,
    /// The mode; 0 if there is no lock here.
    mode: Word,
    request: Word,
}

impl LockInfo {
    pub(super) fn new(has_fences: bool, kinds: Kinds) -> LockInfo {
        LockInfo {
            lock: Protected::new(has_fences, kinds.mcs),
            cache: std::array::from_fn(|_| Cached::default()),
        }
    }

    fn cached(&self, name: LockName) -> &Cached {
        &self.cache[name.hash() % CACHE_BUCKETS * CACHE_LEVELS + name.level() as usize]
    }

    /// Empties the cache.
    pub(super) fn reset(&self) {
        self.cache.iter().for_each(|cached| set(&cached.mode, 0));
    }
}

/// The lock table.
#[derive(Debug)]
pub(super) struct LockTable {
    buckets: Box<[Elidable<Protected<Mcs, Bucket>>]>,
    heads: Box<[LockHead]>,
}

impl LockTable {
    /// Creates an empty table for `threads` threads.
    pub(super) fn new(has_fences: bool, kinds: Kinds, threads: usize) -> LockTable {
        LockTable {
            buckets: (0..BUCKETS).map(|_| Protected::new(has_fences, kinds.mcs)).collect(),
            heads: (0..threads * HEADS).map(|_| Protected::new(has_fences, kinds.mcs)).collect(),
        }
    }

    fn bucket(&self, name: LockName) -> &Elidable<Protected<Mcs, Bucket>> {
        &self.buckets[name.hash() % BUCKETS]
    }

    fn head(&self, number: u64) -> &Head {
        &self.heads[number as usize].lock().data
    }

    /// Returns the names of the locks, and the numbers of requests, that are still in the table, and are not
    /// inherited. No thread may be running.
    pub(super) fn left(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(position, bucket)| {
            let data = &bucket.lock().data;
            let mut left = get(&data.requests);
            let mut number = get(&data.chain.0);
            while let Some(at) = number.checked_sub(1) {
                let head = self.head(at);
                left += u64::from(LockName(get(&head.name)).level() >= Level::Page);
                number = get(&head.chain);
            }
            (position, left)
        })
    }
}

impl<'a> Session<'a> {
    fn lock_table(&self) -> &'a LockTable {
        &self.manager.lock_table
    }

    fn request(&self, number: u64) -> &'a Request {
        let (thread, position) = (number as usize / REQUESTS, number as usize % REQUESTS);
        &self.manager.threads[thread].requests[position]
    }

    /// Locks a row or a store, and its ancestors, until the end of the transaction.
    #[inline]
    pub(super) fn lock(&self, name: LockName, mode: LockMode) {
        self.enter();
        self.count(Counter::LocksRequested);
        if !self.has(Part::Requests) {
            let bucket = self.lock_table().bucket(name);
            return self.alone(bucket, || _ = increment(&bucket.lock().data.requests, 1));
        }
        let info = &self.thread.locks;
        self.alone(&info.lock, || self.lock_with_ancestors(name, mode));
    }

    /// Returns whether a store is locked already, by looking into the cache.
    #[inline]
    pub(super) fn is_locked(&self, name: LockName) -> bool {
        self.enter();
        let info = &self.thread.locks;
        self.has(Part::Requests)
            && self.alone(&info.lock, || self.is_cached(name, LockMode::IntentShared))
    }

    /// Returns whether the transaction, or its thread, holds the lock in this mode, according to the cache.
    fn is_cached(&self, name: LockName, mode: LockMode) -> bool {
        let cached = self.thread.locks.cached(name);
        get(&cached.name) == name.0 && get(&cached.mode) >= mode as u64
    }

    fn lock_with_ancestors(&self, name: LockName, mode: LockMode) {
        if name.level() <= Level::Page {
            return self.lock_by_cache(name, mode);
        }
        if let Some(parent) = name.parent() {
            self.lock_by_cache(parent, mode.of_parent());
        }
        self.acquire(name, mode);
    }

    /// Locks a page, a store or the volume, and its ancestors, unless the cache has the lock.
    fn lock_by_cache(&self, name: LockName, mode: LockMode) {
        if self.is_cached(name, mode) {
            return self.count(Counter::LocksInCache);
        }
        self.reclaim_or_acquire(name, mode);
    }

    /// Uses the request that the thread has inherited, or makes one, after those of the ancestors.
    fn reclaim_or_acquire(&self, name: LockName, mode: LockMode) {
        if let Some(parent) = name.parent() {
            self.lock_by_cache(parent, mode.of_parent());
        }
        if name.level() <= Level::Store && self.reclaim(name, mode) {
            return;
        }
        let request = self.acquire(name, mode);
        self.put_into_cache(name, mode, request);
    }

    fn put_into_cache(&self, name: LockName, mode: LockMode, request: u64) {
        let cached = self.thread.locks.cached(name);
        set(&cached.name, name.0);
        set(&cached.mode, mode as u64);
        set(&cached.request, request);
    }

    /// Looks among the inherited requests. Returns whether there is one of this name that is strong enough.
    fn reclaim(&self, name: LockName, mode: LockMode) -> bool {
        let mine = &self.thread.locks.lock.lock().data;
        let mut at = mine.inherited.first();
        while let Some(number) = at {
            let request = self.request(number);
            let is_it = get(&self.lock_table().head(get(&request.head)).name) == name.0;
            if is_it && get(&request.mode) >= mode as u64 {
                // Another thread might be about to end the inheritance, so Shore-MT needs an exchange here.
                let reclaimed = request.inheritance.compare_exchange(
                    INHERITED,
                    ACTIVE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                debug_assert_eq!(reclaimed, Ok(INHERITED), "no thread ends the inheritance");
                mine.inherited.remove(number, |number| &self.request(number).mine);
                mine.requests.append(number, |number| &self.request(number).mine);
                self.put_into_cache(name, mode, number);
                return true;
            }
            at = request.mine.next();
        }
        false
    }

    /// Finds or creates the head of a lock, and returns its number. The head is pinned.
    fn find_head(&self, name: LockName) -> u64 {
        let table = self.lock_table();
        let bucket = table.bucket(name);
        self.alone(bucket, || {
            let chain = &bucket.lock().data.chain.0;
            let mut at = get(chain);
            while let Some(number) = at.checked_sub(1) {
                let head = table.head(number);
                if get(&head.name) == name.0 {
                    // Acquire, release: others take pins without this bucket's lock, under the lock of the head.
                    head.pins.fetch_add(1, Ordering::AcqRel);
                    return number;
                }
                at = get(&head.chain);
            }
            let number = self.allocate_head();
            let head = table.head(number);
            set(&head.mode, 0);
            head.queue.clear();
            set(&head.acquired, 0);
            set(&head.name, name.0);
            set(&head.pins, 1);
            set(&head.chain, get(chain));
            set(chain, number + 1);
            number
        })
    }

    /// Allocates a lock head: from the thread's own block, round and round, or from another one if all heads of its
    /// own are in use.
    fn allocate_head(&self) -> u64 {
        let table = self.lock_table();
        let own = self.number * HEADS;
        let next = get(&self.thread.next_head) as usize;
        let candidates = (0..HEADS).map(|step| own + (next + step) % HEADS);
        let take = |number: &usize| {
            let is_used = &table.heads[*number].lock().data.is_used;
            // Acquire: pairs with the release in `release_request`, after which the head belongs to no chain.
            is_used.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let number = candidates.chain(0..table.heads.len()).find(take);
        let number = number.expect("there are more lock heads than transactions can lock");
        set(&self.thread.next_head, (number % HEADS + 1) as u64);
        number as u64
    }

    /// Requests one lock in the table. Returns the number of the request.
    fn acquire(&self, name: LockName, mode: LockMode) -> u64 {
        self.count(Counter::LocksAcquired);
        self.count(match name.level() {
            Level::Page => Counter::PageLocksAcquired,
            _ => Counter::RowLocksAcquired,
        });
        let table = self.lock_table();
        let number = self.find_head(name);
        let lock = &table.heads[number as usize];
        self.alone(lock, || {
            let head = &lock.lock().data;
            // Acquire, release: pairs with `free_head`, which runs under the lock of the head as well.
            head.pins.fetch_add(u64::MAX, Ordering::AcqRel);
            increment(&head.acquired, 1);
            if let Some(held) = self.find_request(head) {
                let request = self.request(held);
                increment(&request.references, 1);
                if get(&request.mode) < mode as u64 {
                    set(&request.mode, mode as u64);
                    set(&head.mode, get(&head.mode).max(mode as u64));
                } else {
                    self.count(Counter::LocksHeldAlready);
                }
                return held;
            }
            let held = self.allocate_request();
            let request = self.request(held);
            set(&request.mode, mode as u64);
            set(&request.status, GRANTED);
            set(&request.head, number);
            set(&request.owner, self.number as u64);
            set(&request.references, 1);
            set(&request.duration, LONG);
            set(&request.children, 0);
            set(&request.inheritance, 0);
            head.queue.append(held, |number| &self.request(number).queue);
            let mine = &self.thread.locks.lock.lock().data;
            mine.requests.append(held, |number| &self.request(number).mine);
            set(&head.mode, get(&head.mode).max(mode as u64));
            held
        })
    }

    /// Finds the request of this thread in the queue of a head.
    fn find_request(&self, head: &Head) -> Option<u64> {
        let mut at = head.queue.first();
        while let Some(number) = at {
            let request = self.request(number);
            if get(&request.owner) == self.number as u64 {
                return Some(number);
            }
            at = request.queue.next();
        }
        None
    }

    fn allocate_request(&self) -> u64 {
        let next = get(&self.thread.next_request) as usize;
        let mut candidates = (0..REQUESTS).map(|step| (next + step) % REQUESTS);
        let free = candidates.find(|&at| get(&self.thread.requests[at].is_used) == 0);
        let position = free.expect("a transaction has few locks");
        set(&self.thread.next_request, (position + 1) as u64);
        set(&self.thread.requests[position].is_used, 1);
        (self.number * REQUESTS + position) as u64
    }

    /// Releases the locks of the transaction, except those that the thread inherits.
    #[inline]
    pub(super) fn unlock_all(&self, rows: &[LockName]) {
        self.enter();
        self.count(Counter::LocksReleased);
        if !self.has(Part::Requests) {
            for &name in rows {
                let bucket = self.lock_table().bucket(name);
                self.alone(bucket, || _ = increment(&bucket.lock().data.requests, u64::MAX));
            }
            return;
        }
        let lock = &self.thread.locks.lock;
        self.alone(lock, || {
            let mine = &lock.lock().data;
            while let Some(number) = mine.requests.last() {
                let request = self.request(number);
                let head = self.lock_table().head(get(&request.head));
                mine.requests.remove(number, |number| &self.request(number).mine);
                if LockName(get(&head.name)).level() <= Level::Store {
                    set(&request.references, 0);
                    set(&request.children, 0);
                    set(&request.inheritance, INHERITED);
                    mine.inherited.append(number, |number| &self.request(number).mine);
                } else {
                    self.release_request(number);
                }
            }
        });
    }

    /// Takes a request out of the queue of its lock head. Frees the head if the queue is then empty.
    fn release_request(&self, number: u64) {
        let table = self.lock_table();
        let request = self.request(number);
        let head_number = get(&request.head);
        let lock = &table.heads[head_number as usize];
        self.alone(lock, || {
            let head = &lock.lock().data;
            head.queue.remove(number, |number| &self.request(number).queue);
            set(&request.is_used, 0);
            let name = LockName(get(&head.name));
            if name.level() == Level::Page {
                set(&self.thread.locks.cached(name).mode, 0);
            }
            self.grant(head);
            if head.queue.first().is_none() {
                self.free_head(head_number, name);
            }
        });
    }

    /// Computes the mode of all requests in the queue together.
    fn grant(&self, head: &Head) {
        let (mut at, mut mode) = (head.queue.first(), 0);
        while let Some(number) = at {
            let request = self.request(number);
            mode = mode.max(get(&request.mode));
            at = request.queue.next();
        }
        set(&head.mode, mode);
    }

    /// Frees a head, unless a thread is about to request its lock.
    fn free_head(&self, number: u64, name: LockName) {
        let table = self.lock_table();
        let bucket = table.bucket(name);
        self.alone(bucket, || {
            let head = table.head(number);
            // Acquire: pairs with the release of the thread that unpinned it.
            if head.pins.load(Ordering::Acquire) != 0 {
                return;
            }
            let mut at = &bucket.lock().data.chain.0;
            while get(at) != number + 1 {
                at = &table.head(get(at) - 1).chain;
            }
            set(at, get(&head.chain));
            // Release: pairs with the acquire in `allocate_head`.
            head.is_used.store(0, Ordering::Release);
        });
    }
}

//! Shared words, and hardware-transactional-memory regions with software twins, for the Weft
//! database.
//!
//! # Regions
//!
//! A *region* is a short stretch of code that the processor runs as one hardware transaction
//! (Intel's RTM: XBEGIN … XEND). Either everything that it wrote appears at once, or nothing does:
//! then memory and registers are again what they were at XBEGIN, and the processor says why. What
//! a region reads and writes is tracked by cache line, and any access of another thread that
//! collides with it, inside a region or not, aborts it. So a sequential algorithm in a region is a
//! correct concurrent one, as long as it is small: written lines must fit the first-level cache,
//! and no interrupt may arrive on the way.
//!
//! # Twins
//!
//! No region is ever sure to commit, and most processors have none. Every region of Weft therefore
//! has a *software twin*: code that does the same with locks and validation. The two may run side
//! by side, on one rule. **A region tests the lock of every record and node that it touches**
//! ([`Region::abort_locked`] if one is held). If the lock is taken later, while the region still
//! runs, the line that holds it is in the region's read set and the region aborts. So a region
//! never sees, nor overwrites, the half-done work of a twin; and a twin never sees that of a
//! region, since nobody can. There is no global fallback lock, and threads that fell back delay
//! only those that need the very same records. ([`ElidedLock`] is the deliberate exception: one
//! lock for everything, elided by one region for everything, to compare with. And [`lock`] has the
//! locks of *No Free Lunch*, any of which may be elided, each for what it protects.)
//!
//! [`Regions::run`] returns `None` when the caller should run the twin: at once where there is no
//! hardware, else when the [`RetryPolicy`] has given up.
//!
//! ```
//! use weft_htm::{Choice, Htm, Regions, RetryPolicy, word::{Ordering, Word}};
//!
//! let htm = Htm::open(Choice::Auto, RetryPolicy::default()).unwrap();
//! let regions = Regions::new(&htm); // one per worker thread
//! let (lock, counter) = (Word::new(0), Word::new(41));
//!
//! let in_hardware = regions.run(
//!     |region| {
//!         if lock.load(Ordering::Acquire) != 0 {
//!             region.abort_locked();
//!         }
//!         counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
//!     },
//!     || lock.load(Ordering::Relaxed) != 0,
//! );
//! if in_hardware.is_none() {
//!     // The twin: the same work under the lock that the region tests.
//!     while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
//!     counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
//!     lock.store(0, Ordering::Release);
//! }
//! assert_eq!(counter.load(Ordering::Acquire), 42);
//! ```
//!
//! # What a region must not do
//!
//! Each of these aborts the region, mostly as a system event; the twin would then do all the work:
//!
//! - a system call, and so: allocate or free, print, lock a mutex that another thread may hold,
//!   read a clock that is not in user space;
//! - a panic. It unwinds inside the region until some instruction aborts it, is undone with the
//!   rest, and happens again in the twin, where it is real. Overflow and bounds checks that never
//!   fire cost nothing;
//! - [`word::spin_loop`] (PAUSE): a region never waits, it aborts and waits outside;
//! - the first touch of a page, and any other fault. (Pages of code are touched outside of regions,
//!   on Linux only: else one that nothing but regions executes would never come in);
//! - more written lines than the first-level cache holds, or than one of its sets does: 8 or 12
//!   lines at the same address modulo 4 KiB are the limit.
//!
//! Whatever must be seen fresh inside a region is a [`word::Word`] or a [`word::WordPointer`], as
//! for any other shared word. Use the orderings that the twin would use: Acquire loads and Release
//! stores are plain moves, in a region as outside, and pair with the twins of other threads.
//! `compare_exchange` and its kind are needless in a region, where nothing can come between a load
//! and a store.
//!
//! Nothing here claims RTM where there is none. [`Htm::open`] asks the processor, then tries a
//! region that must commit and one that must roll back, and [`Htm::backend`] tells what it found.
//!
//! # The simulated machine
//!
//! Built with `--cfg weft_sim`, words and regions are those of `weft-sim`: threads of its runs are
//! virtual cores, and a region is one of its model. An abort then cannot take the thread back to
//! where it was: the words are put back, and the thread unwinds ([`Regions::restarting`] says how far).
//! What a region changes that is no word stays changed, so a body changes nothing else that matters.
//! Outside of runs there is no hardware.
//!
//! # Tests
//!
//! With the cargo feature `interleave`, each access to a shared word is a point where a test may
//! let another thread go on, as a seed decides: see the module of that name, which is there with
//! the feature only.
pub mod blocking;
pub mod lock;
#[cfg(weft_sim)]
pub mod planted;
pub mod prefetch;
pub mod region;
#[cfg(weft_sanitize)]
mod sanitize;
mod status;
pub mod word;

// The hardware is one module with one face, chosen here and nowhere else. Where a region of
// hardware cannot exist, the token that stands for it is a type without values, so that the
// compiler drops the hardware path by itself.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, weft_sim))))]
mod rtm;
#[cfg(weft_sim)]
#[path = "rtm_simulated.rs"]
mod rtm;
#[cfg(not(any(all(target_arch = "x86_64", not(any(loom, shuttle))), weft_sim)))]
#[path = "rtm_absent.rs"]
mod rtm;

// Likewise what keeps the code of regions in memory: where it cannot be done, it is nothing.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(weft_sim)))]
mod code_pages;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(weft_sim))))]
#[path = "code_pages_absent.rs"]
mod code_pages;

// Likewise the points of the shared words: where they are not built in, they are nothing.
#[cfg(all(feature = "interleave", not(any(loom, shuttle, weft_sim))))]
pub mod interleave;
#[cfg(not(all(feature = "interleave", not(any(loom, shuttle, weft_sim)))))]
#[path = "interleave_absent.rs"]
mod interleave;
#[cfg(feature = "interleave")]
pub mod seeds;

/// The simulated machine that the words and regions of this build belong to.
#[cfg(weft_sim)]
pub use weft_sim as simulation;

pub use region::{
    Backend, Choice, ElidedLock, Htm, InvalidChoice, Opened, Region, Regions, RetryPolicy,
    Statistics, StatisticsReader, Unavailable,
};

//! The words that threads share: one set of names for every machine that the code may run on.
//!
//! The engine never names an atomic of the standard library: it uses [`Word`] and [`WordPointer`] of this
//! module. In a normal build they are the processor's atomics and compile to plain moves and `lock`-prefixed
//! instructions. Built with `--cfg loom` or `--cfg shuttle`, the same engine code runs on the words of a model
//! checker, which then chooses the interleavings. A clippy rule (`disallowed-types` in `clippy.toml`) keeps
//! this file the only place that names the atomics.
//!
//! With `--cfg weft_sim` the engine runs on the simulated machine of `weft-sim`. The words of that machine
//! charge their accesses to virtual time, and its regions track them. The root of this crate chooses the
//! hardware of regions in the same way.
//!
//! On the real machine, the cargo feature `interleave` makes each access a point at which a test may let
//! another thread run (see the module `interleave`). Without it, `Access` does nothing.
#![allow(clippy::disallowed_types, reason = "this is the one file that names them")]

#[cfg(loom)]
use loom::sync::atomic as machine;
#[cfg(shuttle)]
use shuttle::sync::atomic as machine;
#[cfg(not(any(loom, shuttle, weft_sim)))]
use std::sync::atomic as machine;
#[cfg(weft_sim)]
use weft_sim::sync as machine;

pub use std::sync::atomic::Ordering;

#[cfg(loom)]
pub use loom::{hint::spin_loop, sync::Mutex, thread::yield_now};
#[cfg(shuttle)]
pub use shuttle::{hint::spin_loop, sync::Mutex, thread::yield_now};
#[cfg(not(any(loom, shuttle, weft_sim, weft_sanitize, feature = "interleave")))]
pub use std::sync::Mutex;
#[cfg(not(any(loom, shuttle, weft_sim, feature = "interleave")))]
pub use std::{hint::spin_loop, thread::yield_now};
#[cfg(weft_sim)]
pub use weft_sim::sync::{Mutex, spin_loop, yield_now};

#[cfg(all(feature = "interleave", not(any(loom, shuttle, weft_sim))))]
pub use crate::interleave::{Mutex, spin_loop, yield_now};

#[cfg(all(weft_sanitize, not(any(loom, shuttle, weft_sim, feature = "interleave"))))]
pub use crate::sanitize::Mutex;

use crate::interleave::Access;

/// The number of runs and counters of `interleave` in existence. It is not a [`Word`], because `interleave`
/// watches those.
#[cfg(all(feature = "interleave", not(any(loom, shuttle, weft_sim))))]
pub(crate) static WATCHES: machine::AtomicU64 = machine::AtomicU64::new(0);

/// Orders the accesses before it with those after it, as [`std::sync::atomic::fence`] does.
// A fence is not a point of `interleave`. Only one thread runs at a time, so it makes no difference whether
// others run before the fence or before the access behind it.
///
/// ThreadSanitizer does not understand fences. In a build with `--cfg weft_sanitize` an exchange of one word
/// stands for every fence. The exchange orders at least as much, so ThreadSanitizer reports no false races. (In
/// return it misses a race that only a missing or misplaced fence causes. The model checkers are there for
/// those.)
#[inline(always)]
pub fn fence(order: Ordering) {
    #[cfg(weft_sanitize)]
    FENCES.fetch_add(0, Ordering::AcqRel);
    machine::fence(order);
}

/// As `fence(SeqCst)`, for a caller that has just exchanged a word ([`Word::swap`], [`Word::compare_exchange`] and
/// the like). On x86-64 such an instruction already orders all accesses before it with all after it. A fence would
/// be another one, and cost as much, so there only the compiler is kept from moving accesses over this line.
#[inline(always)]
pub fn fence_after_exchange() {
    if cfg!(all(target_arch = "x86_64", not(any(loom, shuttle, weft_sim, weft_sanitize, miri)))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The word that all fences exchange in sanitizer builds.
#[cfg(weft_sanitize)]
static FENCES: machine::AtomicU64 = machine::AtomicU64::new(0);

/// A 64-bit word that threads share.
#[repr(transparent)]
#[derive(Debug)]
pub struct Word(machine::AtomicU64);

impl Word {
    /// Makes a word that holds `value`.
    #[cfg(not(any(loom, shuttle)))]
    #[inline(always)]
    pub const fn new(value: u64) -> Self {
        Word(machine::AtomicU64::new(value))
    }

    /// Makes a word that holds `value`.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: u64) -> Self {
        Word(machine::AtomicU64::new(value))
    }

    /// Returns the current value.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn load(&self, order: Ordering) -> u64 {
        let _ = Access::begin();
        self.0.load(order)
    }

    /// Replaces the value.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn store(&self, value: u64, order: Ordering) {
        let access = Access::begin();
        self.0.store(value, order);
        access.wrote();
    }

    /// Replaces the value and returns the one before.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        let access = Access::begin();
        let before = self.0.swap(value, order);
        if before != value {
            access.wrote();
        }
        before
    }

    /// Replaces `current` by `new`. `Err` holds the value that was there instead.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let access = Access::begin();
        let result = self.0.compare_exchange(current, new, success, failure);
        if result.is_ok() {
            access.wrote();
        }
        result
    }

    /// Adds `value`, wrapping, and returns the value before.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let access = Access::begin();
        let before = self.0.fetch_add(value, order);
        if value != 0 {
            access.wrote();
        }
        before
    }

    /// Sets the bits of `value` and returns the value before.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        let access = Access::begin();
        let before = self.0.fetch_or(value, order);
        if before != (before | value) {
            access.wrote();
        }
        before
    }

    /// Keeps only the bits of `value` and returns the value before.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        let access = Access::begin();
        let before = self.0.fetch_and(value, order);
        if before != (before & value) {
            access.wrote();
        }
        before
    }
}

impl Default for Word {
    fn default() -> Self {
        Word::new(0)
    }
}

/// A pointer that threads share.
#[repr(transparent)]
#[derive(Debug)]
pub struct WordPointer<T>(machine::AtomicPtr<T>);

impl<T> WordPointer<T> {
    /// Makes a pointer word that holds `pointer`.
    #[cfg(not(any(loom, shuttle)))]
    #[inline(always)]
    pub const fn new(pointer: *mut T) -> Self {
        WordPointer(machine::AtomicPtr::new(pointer))
    }

    /// Makes a pointer word that holds `pointer`.
    #[cfg(any(loom, shuttle))]
    pub fn new(pointer: *mut T) -> Self {
        WordPointer(machine::AtomicPtr::new(pointer))
    }

    /// Returns the current pointer.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn load(&self, order: Ordering) -> *mut T {
        let _ = Access::begin();
        self.0.load(order)
    }

    /// Replaces the pointer.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn store(&self, pointer: *mut T, order: Ordering) {
        let access = Access::begin();
        self.0.store(pointer, order);
        access.wrote();
    }

    /// Replaces the pointer and returns the one before.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
        let access = Access::begin();
        let before = self.0.swap(pointer, order);
        if before != pointer {
            access.wrote();
        }
        before
    }

    /// Replaces `current` by `new`. `Err` holds the pointer that was there instead.
    #[inline(always)]
    #[cfg_attr(feature = "interleave", track_caller)]
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        let access = Access::begin();
        let result = self.0.compare_exchange(current, new, success, failure);
        if result.is_ok() {
            access.wrote();
        }
        result
    }
}

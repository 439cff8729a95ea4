//! Shared words, fences, waits and mutexes of the simulated machine, with the interface that `weft-htm` needs.
//!
//! In a run each access is a point of the schedule and costs virtual time. Outside of runs these are the
//! processor's atomics. A run is one thread of the host, so orderings have no effect here: all accesses of a
//! run are in one order.
//!
//! A word that was written in a region must not be freed before the region has ended.
#![allow(clippy::disallowed_types, reason = "these are the words that others use instead")]

use std::ops::{Deref, DerefMut};
use std::sync::atomic;
pub use std::sync::atomic::Ordering;
use std::sync::{LockResult, PoisonError, TryLockError};

use crate::machine::{Abort, Access, Machine};
use crate::profile::LINE_BYTES;
use crate::region::settle;
use crate::run::{self, Reason, Run};

/// How an access takes place.
enum Step {
    /// Outside of any run.
    Outside,
    /// The access takes place, as part of this run.
    Inside(&'static Run),
    /// It is part of a region that was rolled back, and must have no effect.
    Undone,
}

/// Passes a point of the schedule, and charges an access.
#[inline]
fn step(address: *const (), access: Access) -> Step {
    let Some(run) = run::current() else { return Step::Outside };
    if run.unwinds[run.core()].get() {
        return Step::Undone;
    }
    if access == Access::Exchange {
        // Other cores run until its time has come.
        run.machine.borrow_mut().wait_for_accesses(run.core());
    }
    run.point(Reason::Access);
    let core = run.core();
    let outcome = {
        let mut machine = run.machine.borrow_mut();
        let computed = machine.compute(core, run.cycles_per_access);
        computed.and_then(|()| machine.access(core, address.addr() as u64, access))
    };
    settle(run, outcome);
    Step::Inside(run)
}

/// Notes that a word that held `before` now holds `after`.
#[inline]
fn changed(run: &Run, address: *const (), before: u64, after: u64) {
    let mut machine = run.machine.borrow_mut();
    let core = run.core();
    if machine.is_inside(core) {
        // A word in a stack frame that is gone when the region ends, by return or by unwinding, is not
        // restored: something else may then lie there. Stacks grow downwards.
        let frame = 0u8;
        let younger = (&raw const frame).addr()..run.catchers[core].get();
        if younger.contains(&address.addr()) {
            return;
        }
        machine.note_overwritten(core, address.expose_provenance() as u64, before);
    } else if before != after {
        drop(machine);
        run.progress();
    }
}

/// Restores the value of a word that a region has overwritten.
///
/// # Safety
/// There is an [`AtomicU64`] or an [`AtomicPtr`] at `address`.
pub(crate) unsafe fn put_back(address: u64, value: u64) {
    let word = std::ptr::with_exposed_provenance::<atomic::AtomicU64>(address as usize);
    // SAFETY: by this function's contract. The provenance was exposed in `changed`.
    unsafe { (*word).store(value, Ordering::Relaxed) };
}

/// A 64-bit word.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    /// Makes a word that holds `value`.
    pub const fn new(value: u64) -> AtomicU64 {
        AtomicU64(atomic::AtomicU64::new(value))
    }

    #[inline(always)]
    fn address(&self) -> *const () {
        self.0.as_ptr().cast_const().cast()
    }

    /// Returns the current value.
    #[inline]
    pub fn load(&self, order: Ordering) -> u64 {
        step(self.address(), Access::Load);
        self.0.load(order)
    }

    /// Replaces the value.
    #[inline]
    pub fn store(&self, value: u64, order: Ordering) {
        match step(self.address(), Access::Store) {
            Step::Outside => self.0.store(value, order),
            Step::Inside(run) => {
                let before = self.0.swap(value, Ordering::Relaxed);
                changed(run, self.address(), before, value);
            }
            Step::Undone => {}
        }
    }

    /// Replaces the value by what `change` returns, if it returns one. Returns the value before.
    #[inline]
    fn exchange(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        let step = step(self.address(), Access::Exchange);
        let relaxed = Ordering::Relaxed;
        match step {
            Step::Outside => self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change),
            Step::Inside(run) => {
                let before = self.0.load(relaxed);
                let after = change(before).ok_or(before)?;
                self.0.store(after, relaxed);
                changed(run, self.address(), before, after);
                Ok(before)
            }
            Step::Undone => {
                let before = self.0.load(relaxed);
                change(before).map(|_| before).ok_or(before)
            }
        }
    }

    /// Replaces the value, and returns the one before.
    pub fn swap(&self, value: u64, _: Ordering) -> u64 {
        self.exchange(|_| Some(value)).unwrap_or_else(|before| before)
    }

    /// Replaces `current` by `new`.
    ///
    /// # Errors
    /// The value that was there instead.
    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        self.exchange(|before| (before == current).then_some(new))
    }

    /// Adds, wrapping, and returns the value before.
    pub fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.exchange(|before| Some(before.wrapping_add(value))).unwrap_or_else(|before| before)
    }

    /// Sets bits, and returns the value before.
    pub fn fetch_or(&self, value: u64, _: Ordering) -> u64 {
        self.exchange(|before| Some(before | value)).unwrap_or_else(|before| before)
    }

    /// Keeps only the given bits, and returns the value before.
    pub fn fetch_and(&self, value: u64, _: Ordering) -> u64 {
        self.exchange(|before| Some(before & value)).unwrap_or_else(|before| before)
    }
}

/// A pointer.
#[repr(transparent)]
#[derive(Debug)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

const _: () = assert!(size_of::<*mut ()>() == 8, "pointers are put back as 64-bit words");

impl<T> AtomicPtr<T> {
    /// Makes a word that holds `pointer`.
    pub const fn new(pointer: *mut T) -> AtomicPtr<T> {
        AtomicPtr(atomic::AtomicPtr::new(pointer))
    }

    #[inline(always)]
    fn address(&self) -> *const () {
        self.0.as_ptr().cast_const().cast()
    }

    /// Returns the current pointer.
    #[inline]
    pub fn load(&self, order: Ordering) -> *mut T {
        step(self.address(), Access::LoadPointer);
        self.0.load(order)
    }

    /// Replaces the pointer.
    #[inline]
    pub fn store(&self, pointer: *mut T, order: Ordering) {
        match step(self.address(), Access::Store) {
            Step::Outside => self.0.store(pointer, order),
            Step::Inside(run) => {
                let before = self.0.swap(pointer, Ordering::Relaxed);
                self.changed(run, before, pointer);
            }
            Step::Undone => {}
        }
    }

    /// Replaces the pointer, and returns the one before.
    pub fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
        match step(self.address(), Access::Exchange) {
            Step::Outside => self.0.swap(pointer, order),
            Step::Inside(run) => {
                let before = self.0.swap(pointer, order);
                self.changed(run, before, pointer);
                before
            }
            Step::Undone => self.0.load(Ordering::Relaxed),
        }
    }

    /// Replaces `current` by `new`.
    ///
    /// # Errors
    /// The pointer that was there instead.
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        match step(self.address(), Access::Exchange) {
            Step::Outside => self.0.compare_exchange(current, new, success, failure),
            Step::Inside(run) => {
                let result = self.0.compare_exchange(current, new, success, failure);
                if result.is_ok() {
                    self.changed(run, current, new);
                }
                result
            }
            Step::Undone => {
                let before = self.0.load(Ordering::Relaxed);
                if before == current { Ok(before) } else { Err(before) }
            }
        }
    }

    fn changed(&self, run: &Run, before: *mut T, after: *mut T) {
        let [before, after] = [before, after].map(|pointer| pointer.expose_provenance() as u64);
        changed(run, self.address(), before, after);
    }
}

/// Charges an access to plain memory that other threads may see, such as the contents of a row, line by line,
/// in order. If the access is part of a region that is rolled back, the program must undo it: the machine
/// restores only words.
pub fn touch(address: *const u8, bytes: usize, is_write: bool) {
    let access = if is_write { Access::Store } else { Access::Load };
    let mut offset = 0;
    while offset < bytes {
        let address = address.wrapping_add(offset);
        step(address.cast(), access);
        offset += LINE_BYTES as usize - address.addr() % LINE_BYTES as usize;
    }
}

/// Charges what an operation of the program does in [private memory](crate::PrivateMemory): its stack frames,
/// buffers and lists. Does nothing outside of runs.
pub fn operate() {
    if let Some(run) = run::current()
        && !run.unwinds[run.core()].get()
    {
        settle(run, run.use_private_memory());
    }
}

/// Executes a fence. Accesses of a run are in one order anyway. A `SeqCst` fence costs as much as a full fence.
pub fn fence(order: Ordering) {
    match run::current() {
        None => atomic::fence(order),
        Some(run) if order == Ordering::SeqCst && !run.unwinds[run.core()].get() => {
            let fenced = run.machine.borrow_mut().fence(run.core());
            settle(run, fenced);
        }
        Some(_) => {}
    }
}

/// Pauses for a moment, in a loop that waits.
pub fn spin_loop() {
    match run::current() {
        None => std::hint::spin_loop(),
        Some(run) => wait(run, |machine, core| machine.pause(core)),
    }
}

/// Yields the processor.
pub fn yield_now() {
    match run::current() {
        None => std::thread::yield_now(),
        Some(run) => wait(run, |machine, core| {
            let cycles = machine.profile().latencies.yielding;
            machine.system_call(core, cycles)
        }),
    }
}

fn wait(run: &Run, pass: impl Fn(&mut Machine, usize) -> Result<(), Abort>) {
    if run.unwinds[run.core()].get() {
        return;
    }
    let waited = pass(&mut run.machine.borrow_mut(), run.core());
    settle(run, waited);
    run.point(Reason::Wait);
}

/// A mutex like [`std::sync::Mutex`], for which virtual cores wait in virtual time. Locking costs as much as an
/// exchange of a word, unlocking as much as a store that hits the first level.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    /// Represents the mutex in the caches.
    word: AtomicU64,
    mutex: std::sync::Mutex<T>,
}

/// The guard of a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    /// `None` only while the guard is being dropped.
    guard: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("it is held")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("it is held")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        if let Some(run) = run::current() {
            run.progress();
            // This charges no access, because an access could unwind out of a region, and holders of mutexes do
            // not expect that here. The line is the core's own anyway.
            let mut machine = run.machine.borrow_mut();
            let cycles = machine.profile().latencies.first_level;
            let (core, clock) = (run.core(), machine.clock(run.core()));
            machine.sleep_until(core, clock + cycles);
        }
    }
}

impl<T> Mutex<T> {
    /// Makes a mutex that guards `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { word: AtomicU64::new(0), mutex: std::sync::Mutex::new(value) }
    }

    /// Consumes the mutex and returns the value.
    ///
    /// # Errors
    /// As for [`std::sync::Mutex::into_inner`].
    pub fn into_inner(self) -> LockResult<T> {
        self.mutex.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free, and takes it.
    ///
    /// # Errors
    /// As for [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let guarded = |guard| MutexGuard { guard: Some(guard) };
        let poisoned = |poisoned: PoisonError<_>| PoisonError::new(guarded(poisoned.into_inner()));
        let Some(run) = run::current() else {
            return self.mutex.lock().map(guarded).map_err(poisoned);
        };
        loop {
            step(self.word.address(), Access::Exchange);
            match self.mutex.try_lock() {
                Ok(guard) => return Ok(guarded(guard)),
                Err(TryLockError::Poisoned(error)) => return Err(poisoned(error)),
                Err(TryLockError::WouldBlock) if run.unwinds[run.core()].get() => run.give_way(),
                Err(TryLockError::WouldBlock) => wait(run, |machine, core| machine.pause(core)),
            }
        }
    }

    /// Returns a mutable reference to the value. No lock is needed, since `&mut self` proves exclusive access.
    ///
    /// # Errors
    /// As for [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.mutex.get_mut()
    }
}

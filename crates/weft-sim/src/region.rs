//! Hardware regions for the programs of a run.
//!
//! On a processor an abort takes the thread back to XBEGIN, with all registers and all memory as they were.
//! Here the machine restores the shared words, and the thread *unwinds*. The abort is a special panic, from the
//! access at which the thread learns of it up to the function that began the region. So the code of a region
//! may own values, which are dropped on the way. But what it has changed outside of shared words stays changed.
//! A body of [`attempt`] that changes only shared words can be run again, and behaves as on a processor.
//!
//! While a thread unwinds out of a region, its drops run outside of the region: their loads see the current
//! values, and their stores are not made.
//!
//! A region may outlive the function in which it was begun ([`begin`]). It then unwinds to a function that
//! encloses both its beginning and its end. That function calls [`catch_undone`], and then runs the same code
//! again. The next [`begin`] returns the status, as XBEGIN would have.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::machine::Aborted;
use crate::run::{self, Run};

/// The payload of the panic that unwinds out of a region that was rolled back.
struct Undone {
    status: u32,
}

/// Returns whether this code is part of a run on a machine with RTM.
pub fn is_available() -> bool {
    run::current().is_some_and(|run| run.machine.borrow().profile().read_set.is_some())
}

/// Begins a region.
///
/// # Errors
/// The status of a region that was begun here before, was rolled back, and has unwound to [`catch_undone`].
///
/// # Panics
/// Outside of a run.
pub fn begin() -> Result<(), u32> {
    let run = run();
    let core = run.core();
    if run.unwinds[core].get() {
        return Ok(());
    }
    if let Some(status) = run.pending[core].take() {
        return Err(status);
    }
    let begun = run.machine.borrow_mut().begin(core);
    settle(run, begun);
    Ok(())
}

/// Ends the region that was begun last.
///
/// # Panics
/// If this code is not in a region.
pub fn commit() {
    let run = run();
    if !run.unwinds[run.core()].get() {
        let committed = run.machine.borrow_mut().commit(run.core());
        settle(run, committed);
        if !run.machine.borrow().is_inside(run.core()) {
            // Other cores see from now on what the region has written.
            run.progress();
        }
    }
}

/// Rolls the region back with XABORT.
///
/// # Panics
/// If this code is not in a region.
pub fn abort(operand: u8) -> ! {
    let run = run();
    let aborted = run.machine.borrow_mut().abort(run.core(), operand);
    settle(run, Err(aborted));
    unreachable!("a region that was rolled back unwinds");
}

/// Returns whether this code is in a region.
pub fn is_inside() -> bool {
    run::current().is_some_and(|run| run.machine.borrow().is_inside(run.core()))
}

/// Returns whether this code is dropping values on its way out of a region that was rolled back.
pub fn is_undone() -> bool {
    run::current().is_some_and(|run| run.unwinds[run.core()].get())
}

/// Runs `body` as a region, once.
///
/// # Errors
/// The status with which the region was rolled back. A body that panics is rolled back with status 0, as on a
/// processor by the system call that prints the message.
///
/// # Panics
/// Outside of a run.
pub fn attempt<R>(body: impl FnOnce() -> R) -> Result<R, u32> {
    let run = run();
    let core = run.core();
    if run.unwinds[core].get() {
        return Ok(body());
    }
    if run.machine.borrow().is_inside(core) {
        // This is part of the outer region. An abort unwinds to that one.
        begin()?;
        let result = body();
        commit();
        return Ok(result);
    }
    let result = catch(|| {
        begin().expect("no region that unwinds is followed by another one");
        let result = body();
        commit();
        result
    });
    result.map_err(|panic| match status_of(panic) {
        Ok(status) => status,
        Err(_) => {
            // Whatever the body panicked about happens again in the twin, outside of a region.
            let rolled_back = run.machine.borrow_mut().system_call(core, 0);
            put_back(run);
            rolled_back.map_or_else(|aborted| aborted.status, |()| 0)
        }
    })
}

/// Runs `body`, which may begin a region without ending it. Returns [`None`] if the region was rolled back. The
/// caller must then run the same code again.
pub fn catch_undone<R>(body: impl FnOnce() -> R) -> Option<R> {
    match catch(body) {
        Ok(result) => Some(result),
        Err(panic) => match status_of(panic) {
            Ok(status) => {
                let run = run();
                run.pending[run.core()].set(Some(status));
                None
            }
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Like [`catch_unwind`]. Words that a region writes in stack frames below this one are not restored.
#[inline(never)]
fn catch<R>(body: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    let here = 0u8;
    let catcher = run::current().map(|run| {
        let catcher = &run.catchers[run.core()];
        (catcher, catcher.replace((&raw const here).addr()))
    });
    let result = catch_unwind(AssertUnwindSafe(body));
    if let Some((catcher, before)) = catcher {
        catcher.set(before);
    }
    result
}

fn run() -> &'static Run {
    run::current().expect("regions are part of a run")
}

/// Returns the status if the panic is that of a region that was rolled back. The unwinding is then over.
fn status_of(panic: Box<dyn Any + Send>) -> Result<u32, Box<dyn Any + Send>> {
    let undone = panic.downcast::<Undone>()?;
    let run = run();
    run.unwinds[run.core()].set(false);
    Ok(undone.status)
}

/// Restores the words that rolled-back regions have overwritten. Unwinds if this core's own region was rolled
/// back.
#[inline]
pub(crate) fn settle(run: &Run, outcome: Result<(), Aborted>) {
    if run.machine.borrow().has_rolled_back() {
        put_back(run);
    }
    if let Err(aborted) = outcome {
        unwind(run, aborted.status);
    }
}

#[cold]
fn unwind(run: &Run, status: u32) -> ! {
    run.unwinds[run.core()].set(true);
    resume_unwind(Box::new(Undone { status }))
}

#[cold]
fn put_back(run: &Run) {
    for overwritten in run.machine.borrow_mut().take_rolled_back() {
        // SAFETY: the address is that of a word of `sync` that a region has written. It still is one: the users
        // of regions promise not to free what their regions write.
        unsafe { crate::sync::put_back(overwritten.address, overwritten.value) };
    }
}

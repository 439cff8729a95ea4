//! Regions of the programs of a run.
//!
//! On a processor an abort takes the thread back to XBEGIN, with all registers and all of memory as
//! they were. Here shared words are put back as they were, by the machine, and the thread *unwinds*:
//! the abort is a panic of its own kind, from the access at which the thread learns of it up to
//! whoever began the region. So the code of a region may own things, which are dropped on the way;
//! but what it has changed that is no shared word stays changed. A body of [`attempt`] that could be
//! run again as it is, since it changes nothing else, is as good as on a processor.
//!
//! While a thread unwinds out of a region, its drops run in a world that knows nothing of the region:
//! their loads see what is there, and their stores are not done.
//!
//! A region that outlives the function in which it was begun ([`begin`]) unwinds to a function that
//! encloses both, which calls [`catch_undone`] and then runs the same code again; the next [`begin`]
//! answers with the status, as XBEGIN would have.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::machine::Aborted;
use crate::run::{self, Run};

/// What unwinds out of a region that was rolled back.
struct Undone {
    status: u32,
}

/// Whether this code is part of a run on a machine with RTM.
pub fn is_available() -> bool {
    run::current().is_some_and(|run| run.machine.borrow().profile().read_set.is_some())
}

/// Begins a region. `Err` holds the status of the region that was begun here before, and has unwound to
/// [`catch_undone`].
///
/// # Errors
/// That status.
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
/// In no region.
pub fn commit() {
    let run = run();
    if !run.unwinds[run.core()].get() {
        let committed = run.machine.borrow_mut().commit(run.core());
        settle(run, committed);
        if !run.machine.borrow().is_inside(run.core()) {
            // What it has written is there for others from now on.
            run.progress();
        }
    }
}

/// Rolls the region back with XABORT.
///
/// # Panics
/// In no region.
pub fn abort(operand: u8) -> ! {
    let run = run();
    let aborted = run.machine.borrow_mut().abort(run.core(), operand);
    settle(run, Err(aborted));
    unreachable!("a region that was rolled back unwinds");
}

/// Whether this code is in a region.
pub fn is_inside() -> bool {
    run::current().is_some_and(|run| run.machine.borrow().is_inside(run.core()))
}

/// Whether this code is dropping things on its way out of a region that was rolled back.
pub fn is_undone() -> bool {
    run::current().is_some_and(|run| run.unwinds[run.core()].get())
}

/// Runs `body` as a region, once.
///
/// # Errors
/// The status with which it was rolled back. A body that panics is rolled back with status 0, as by the
/// system call that would print the message.
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
        // Part of the outer region: an abort unwinds to that.
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
            // Whatever the body panicked about, it will again where it is no region.
            let rolled_back = run.machine.borrow_mut().system_call(core, 0);
            put_back(run);
            rolled_back.map_or_else(|aborted| aborted.status, |()| 0)
        }
    })
}

/// Runs `body`, in which a region may begin that `body` does not end by its own return; [`None`] if it was
/// rolled back. Then run the same again.
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

/// As [`catch_unwind`]; the words that a region writes in frames below this one are not put back.
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

/// The status, if it is a region that has unwound, and has done so now.
fn status_of(panic: Box<dyn Any + Send>) -> Result<u32, Box<dyn Any + Send>> {
    let undone = panic.downcast::<Undone>()?;
    let run = run();
    run.unwinds[run.core()].set(false);
    Ok(undone.status)
}

/// Puts back what regions have overwritten that were rolled back, and unwinds if the own one was.
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
        // SAFETY: the address is that of a word of `sync` which a region has written. It still is
        // one: what regions write they do not free, as their users have promised.
        unsafe { crate::sync::put_back(overwritten.address, overwritten.value) };
    }
}

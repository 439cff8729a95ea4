//! Core-local values: one value for each virtual core, in place of thread-locals.
//!
//! All virtual cores of a run are one thread of the host, and so have one set of its thread-locals. A [`Local`]
//! replaces them. Outside of runs it is a thread-local.

use std::any::Any;
use std::cell::RefCell;
use std::ptr::NonNull;
use std::thread::AccessError;

use crate::run;

/// The values of one virtual core, or of one thread of the host, in the order of their first use. They are few,
/// so a list is enough.
#[derive(Default)]
pub(crate) struct Locals(RefCell<Vec<(*const (), Box<dyn Any>)>>);

impl Locals {
    /// Returns the value of a `Local`, and makes it if it does not exist.
    fn find<T: 'static>(&self, local: &'static Local<T>) -> NonNull<T> {
        let key = std::ptr::from_ref(local).cast::<()>();
        let found = |values: &[(*const (), Box<dyn Any>)]| {
            let found = values.iter().find(|(of, _)| *of == key);
            found.map(|(_, value)| NonNull::from(value.downcast_ref::<T>().expect("its type")))
        };
        if let Some(value) = found(&self.0.borrow()) {
            return value;
        }
        // The list is not borrowed while the value is made: `make` may use other values.
        let value = Box::new((local.make)());
        self.0.borrow_mut().push((key, value));
        found(&self.0.borrow()).expect("it was just added")
    }

    /// Gives up the values without dropping them.
    pub(crate) fn forget(&self) {
        std::mem::forget(self.0.take());
    }

    /// Drops the values, as the end of a thread does, the newest first.
    pub(crate) fn end(&self) {
        loop {
            let last = self.0.borrow_mut().pop();
            if last.is_none() {
                return;
            }
        }
    }
}

thread_local! {
    static OF_HOST: Locals = Locals::default();
}

impl Drop for Locals {
    fn drop(&mut self) {
        self.end();
    }
}

/// A value for each virtual core of a run, and for each thread outside of runs. It is made at its first use,
/// and dropped at the end of the core's program or of the thread.
pub struct Local<T: 'static> {
    make: fn() -> T,
}

impl<T> std::fmt::Debug for Local<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Local").finish_non_exhaustive()
    }
}

impl<T: 'static> Local<T> {
    /// Makes a `Local` whose values are made by `make`.
    pub const fn new(make: fn() -> T) -> Local<T> {
        Local { make }
    }

    /// Calls `body` with the value, like [`std::thread::LocalKey::try_with`].
    ///
    /// # Errors
    /// If the thread is ending, and its values are gone. On a virtual core this does not happen: a value that
    /// is used while the core ends is made again.
    pub fn try_with<R>(&'static self, body: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let value = match run::current() {
            Some(run) => run.locals[run.core()].find(self),
            None => OF_HOST.try_with(|locals| locals.find(self))?,
        };
        // SAFETY: the value is boxed, and is dropped only when the core's program, or the thread, has ended.
        // `body` is part of that program, or runs while it ends and the value is not yet dropped.
        Ok(body(unsafe { value.as_ref() }))
    }

    /// Calls `body` with the value, like [`std::thread::LocalKey::with`].
    ///
    /// # Panics
    /// If the thread is ending.
    pub fn with<R>(&'static self, body: impl FnOnce(&T) -> R) -> R {
        self.try_with(body).expect("the thread is not ending")
    }
}

//! Acknowledgements: what is done when an epoch is durable, by a thread that waits in place of all others.
//!
//! The thread is started when it is needed for the first time. It is not the log's own thread, because what is done runs
//! code of the user's, such as a waker: that may block, or use the database, and the log goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::log::Log;
use crate::error::Failure;

/// Is called with the result of waiting for an epoch.
type Acknowledgement = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// Acknowledges the commits of one log, in the order in which they are reported.
#[derive(Debug, Default)]
pub struct Acknowledger {
    /// Epochs, each with what is to be done when it is durable. The thread ends when this is dropped, after all that it
    /// was sent before.
    thread: OnceLock<Sender<(u64, Acknowledgement)>>,
}

impl Acknowledger {
    /// Starts the thread, unless it runs already.
    ///
    /// # Errors
    /// [`Failure::Thread`] if the operating system cannot start a thread.
    pub fn start(&self, log: &Arc<Log>) -> Result<(), Failure> {
        if self.thread.get().is_some() {
            return Ok(());
        }
        let (sender, reported) = mpsc::channel::<(u64, Acknowledgement)>();
        let log = Arc::clone(log);
        let work = move || {
            for (epoch, acknowledge) in reported {
                let durable = log.wait_durable(epoch).map_err(Failure::from);
                // The user's code has panicked, and the panic was reported. Others are acknowledged all the same.
                let _ = catch_unwind(AssertUnwindSafe(|| acknowledge(durable)));
            }
        };
        let thread = thread::Builder::new().name("weft-acknowledge".to_owned()).spawn(work);
        thread.map_err(|error| Failure::Thread { message: error.to_string() })?;
        // If another thread was faster, its thread is used, and this one ends.
        let _ = self.thread.set(sender);
        Ok(())
    }

    /// Calls `acknowledge` when an epoch is durable, or cannot become durable: at once, on the calling thread, if that
    /// is known already. The result is that of [`Log::wait_durable`], or [`Failure::Thread`].
    pub fn when_durable(
        &self,
        log: &Arc<Log>,
        epoch: u64,
        acknowledge: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) {
        if log.durable_epoch() >= epoch {
            return acknowledge(Ok(()));
        }
        if let Err(failure) = self.start(log) {
            return acknowledge(Err(failure));
        }
        // The thread waits later, perhaps together with others for which the epoch is still open.
        log.expect_caller();
        let thread = self.thread.get().expect("the thread was started");
        if thread.send((epoch, Box::new(acknowledge))).is_err() {
            unreachable!("the thread listens as long as the sender exists");
        }
    }
}

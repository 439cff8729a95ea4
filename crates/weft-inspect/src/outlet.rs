//! A thread that passes reports on.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Report;
use crate::source::Source;

/// A thread that makes a report after each interval, and does something with it, until this is dropped. It then makes one
/// more report. It keeps the database open, like a handle.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Outlet {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Outlet {
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        source: Source,
        mut each: impl FnMut(Report) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            loop {
                let is_last = stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
                // The database may be closed before this ends.
                if let Ok(report) = source.report() {
                    each(report);
                }
                if is_last {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Outlet { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

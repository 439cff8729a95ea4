//! Progress for a user who waits at a terminal. It shows nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};

/// One line on standard error that counts steps, and vanishes at the end.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    is_first: std::cell::Cell<bool>,
}

impl Progress {
    /// Starts a line for `steps` steps.
    pub fn new(steps: usize) -> Progress {
        let style = ProgressStyle::with_template("simulating {msg} {wide_bar} {pos} of {len}")
            .expect("the template is a constant");
        // If standard error is not a terminal, the library draws nothing.
        let bar = ProgressBar::new(steps as u64).with_style(style);
        Progress { bar, is_first: std::cell::Cell::new(true) }
    }

    /// Marks the previous step, if there was one, as done, and begins this one.
    pub fn next(&self, step: &str) {
        if !self.is_first.replace(false) {
            self.bar.inc(1);
        }
        self.bar.set_message(step.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

//! What is going on, for a person who waits at a terminal; nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};

/// One line on standard error that counts steps, and vanishes in the end.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    is_first: std::cell::Cell<bool>,
}

impl Progress {
    /// A line for so many steps.
    pub fn new(steps: usize) -> Progress {
        let style = ProgressStyle::with_template("simulating {msg} {wide_bar} {pos} of {len}")
            .expect("the template is a constant");
        // Where standard error is no terminal, the library draws nothing.
        let bar = ProgressBar::new(steps as u64).with_style(style);
        Progress { bar, is_first: std::cell::Cell::new(true) }
    }

    /// The step before, if there was one, is done, and this one begins.
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

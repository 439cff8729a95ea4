//! What is going on, for a person who waits at a terminal; nothing anywhere else.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two redraws: rarely enough to cost the measured threads nothing (one redraw takes
/// tens of microseconds of one core), often enough to look alive.
pub const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// One line on standard error that is redrawn in place and vanishes in the end.
///
/// It is drawn by the calls of the thread that owns it, and has no thread of its own that would
/// compete with the measured ones.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line that begins with `label`; silent where standard error is not a terminal.
    pub fn new(label: &str) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %")
            .expect("the template is a constant");
        let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style);
        bar.set_message(label.to_owned());
        Progress { bar }
    }

    /// Whether anybody sees it, so that needless wake-ups can be saved.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Gives the line another label.
    pub fn set_label(&self, label: &str) {
        if self.bar.message() != label {
            self.bar.set_message(label.to_owned());
        }
    }

    /// `done` of `total` units are done.
    pub fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

//! The progress line at a terminal. If standard error is not a terminal, nothing is shown.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time between two redraws. A redraw takes tens of microseconds of one core, so this is rare enough not to
/// affect the measured threads.
pub const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// A line on standard error that is redrawn in place and removed at the end.
///
/// The thread that owns it draws it. There is no additional thread that would compete with the measured ones.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a line that begins with `label`. If standard error is not a terminal, the line is not shown.
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

    /// Returns whether the line is shown. If not, its owner need not wake up for it.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Changes the label.
    pub fn set_label(&self, label: &str) {
        if self.bar.message() != label {
            self.bar.set_message(label.to_owned());
        }
    }

    /// Shows that `done` of `total` units are done.
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

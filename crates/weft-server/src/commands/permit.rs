//! Permits: the only way to run a command.
//!
//! The function of a command is a private field of its row in the table, and a [`Permit`] is the only thing that gives it
//! away. So no path to a command, be it a connection, `EXEC` or a script, can leave the check out.

use super::{Command, Run};
use crate::users::{Denial, User};

/// Stands for a command that a user may run with certain arguments.
#[derive(Clone, Copy, Debug)]
pub struct Permit {
    command: &'static Command,
}

impl Permit {
    /// Checks that a user may run a command with these arguments.
    ///
    /// # Errors
    /// What the user may not do.
    #[inline]
    pub fn new(
        user: &User,
        command: &'static Command,
        arguments: &[&[u8]],
    ) -> Result<Self, Denial> {
        if !user.is_unlimited() {
            user.check(command, arguments)?;
        }
        Ok(Permit { command })
    }

    /// Returns how the command is run.
    #[inline]
    pub fn run(self) -> Run {
        self.command.run
    }
}

//! The snapshots on which a workload's read-only transactions run.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use weft::protocol::Protocol;
use weft::{Database, Error, Snapshot};

/// The choice of snapshots for read-only transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshots {
    /// No snapshots: they run as other transactions do.
    #[default]
    Off,
    /// A snapshot for each transaction, of the present state.
    On,
    /// One snapshot for all, renewed once in an epoch of 40 ms: [`Database::open_recent_snapshot`].
    Recent,
}

impl Snapshots {
    /// All choices.
    pub const ALL: [Snapshots; 3] = [Snapshots::Off, Snapshots::On, Snapshots::Recent];

    /// Returns the name: `off`, `on` or `recent`.
    pub const fn name(self) -> &'static str {
        match self {
            Snapshots::Off => "off",
            Snapshots::On => "on",
            Snapshots::Recent => "recent",
        }
    }

    /// Returns whether snapshots are used.
    pub fn are_used(self) -> bool {
        self != Snapshots::Off
    }

    /// Returns the text for a heading, which is empty without snapshots.
    pub const fn in_title(self) -> &'static str {
        match self {
            Snapshots::Off => "",
            Snapshots::On => ", with snapshots",
            Snapshots::Recent => ", with recent snapshots",
        }
    }

    /// Runs `body` on a snapshot; returns `None` without running it if snapshots are off.
    ///
    /// # Errors
    /// The errors of [`Database::snapshot`].
    #[inline]
    pub fn read<P: Protocol, R, E: From<Error>>(
        self,
        database: &Database<P>,
        body: impl FnOnce(&Snapshot) -> Result<R, E>,
    ) -> Option<Result<R, E>> {
        match self {
            Snapshots::Off => None,
            Snapshots::On => Some(database.snapshot(body)),
            Snapshots::Recent => Some(database.recent_snapshot(body)),
        }
    }
}

impl fmt::Display for Snapshots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Snapshots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Snapshots::ALL.into_iter().find(|snapshots| snapshots.name() == text);
        named.ok_or_else(|| "expected `off`, `on` or `recent`".into())
    }
}

impl Serialize for Snapshots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

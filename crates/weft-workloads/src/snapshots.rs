//! On which snapshots the transactions of a workload that only read are run, if on any.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use weft::protocol::Protocol;
use weft::{Database, Error, Snapshot};

/// On which snapshots transactions that only read are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshots {
    /// On none: they are transactions like any other.
    #[default]
    Off,
    /// Each on one of its own, of the present state.
    On,
    /// On one that all share, and that is renewed once in an epoch of 40 ms:
    /// [`Database::open_recent_snapshot`].
    Recent,
}

impl Snapshots {
    /// All of them.
    pub const ALL: [Snapshots; 3] = [Snapshots::Off, Snapshots::On, Snapshots::Recent];

    /// Its name: `off`, `on` or `recent`.
    pub const fn name(self) -> &'static str {
        match self {
            Snapshots::Off => "off",
            Snapshots::On => "on",
            Snapshots::Recent => "recent",
        }
    }

    /// Whether there are any.
    pub fn are_used(self) -> bool {
        self != Snapshots::Off
    }

    /// What a heading says of them: nothing, if there are none.
    pub const fn in_title(self) -> &'static str {
        match self {
            Snapshots::Off => "",
            Snapshots::On => ", with snapshots",
            Snapshots::Recent => ", with recent snapshots",
        }
    }

    /// Runs `body` on a snapshot, if it is to be run on one.
    ///
    /// # Errors
    /// Those of [`Database::snapshot`].
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
        named.ok_or_else(|| "it is `off`, `on` or `recent`".into())
    }
}

impl Serialize for Snapshots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

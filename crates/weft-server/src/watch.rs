//! `WATCH`: keys whose changes make `EXEC` do nothing.
//!
//! The row of a watched key in the table `watched` has a version, which each transaction that changes the key increases
//! in the same commit. `EXEC` compares the version with the one that `WATCH` has found, in the transaction that runs the
//! commands. So the answer is as exact as any other read. While no client watches a key it has no row, and its writers
//! pay for the look-up of an absent row.
//!
//! The row is removed when the last client forgets the key. If another client begins to watch it in that moment, it may
//! find its row gone. Its `EXEC` then does nothing, as after a change.
//!
//! Clients that [wait](crate::waiting) for a key keep its row, too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use weft::TransactionOptions;

use crate::effects::Effects;
use crate::server::Server;
use crate::stop::Done;
use crate::store::{Key, Keys};
use crate::tables::{Text, Watched};

/// A key as its client has found it.
#[derive(Clone, Debug)]
pub struct WatchedKey {
    space: u8,
    key: Text,
    version: u64,
    existed: bool,
}

/// How many clients watch a key.
#[derive(Debug, Default)]
pub struct Watches {
    clients: Mutex<HashMap<(u8, Text), usize>>,
}

impl WatchedKey {
    /// Returns the key.
    pub fn key(&self) -> Key<'_> {
        Key::new(self.space, &self.key)
    }

    /// Returns whether the key has changed since it was watched, or has expired.
    pub fn has_changed(&self, keys: &Keys<'_>) -> Done<bool> {
        let at = keys.store.watched_row(self.space, &self.key);
        let row = keys.tx.get(&keys.store.tables.watched, &at)?;
        if row.is_none_or(|row| row.version != self.version) {
            return Ok(true);
        }
        Ok(self.existed && keys.head(&self.key())?.is_none())
    }
}

impl Watches {
    /// Begins to watch a key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn watch(&self, server: &Server, space: u8, key: &[u8]) -> Done<WatchedKey> {
        let key: Text = key.into();
        self.add((space, key.clone()));
        let effects = Effects::default();
        let found = server.transact(&effects, &TransactionOptions::new(), |keys| {
            let existed = keys.head(&Key::new(space, &key))?.is_some();
            Ok((observe(keys, space, &key)?, existed))
        });
        match found {
            Ok(((version, existed), _)) => Ok(WatchedKey { space, key, version, existed }),
            Err(stop) => {
                self.remove(server, &(space, key));
                Err(stop)
            }
        }
    }

    /// Forgets keys.
    pub fn forget(&self, server: &Server, keys: Vec<WatchedKey>) {
        for watched in keys {
            self.remove(server, &(watched.space, watched.key));
        }
    }

    /// Counts a client that watches a key or waits for it.
    pub fn add(&self, key: (u8, Text)) {
        *self.clients.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(0) += 1;
    }

    /// Forgets a client that was counted. The last one removes the row.
    pub fn remove(&self, server: &Server, key: &(u8, Text)) {
        {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let Entry::Occupied(mut entry) = clients.entry(key.clone()) else { return };
            *entry.get_mut() -= 1;
            if *entry.get() > 0 {
                return;
            }
            entry.remove();
        }
        let row = server.store.watched_row(key.0, &key.1);
        let watched = &server.store.tables.watched;
        let options = TransactionOptions::new();
        // The table is volatile, so there is nothing to wait for.
        let deleted: Result<_, weft::Error> =
            server.database.transact_with_token(&options, |tx| tx.delete(watched, &row));
        // A row that stays only makes its writers count changes.
        drop(deleted);
        // Clients that have begun to wait need a row again.
        server.waiters.wake(key.0, &key.1);
    }
}

/// Returns the version of a key. From here on, transactions that change the key change the version.
pub fn observe(keys: &Keys<'_>, space: u8, key: &Text) -> Done<u64> {
    let watched = &keys.store.tables.watched;
    let (space, hash) = keys.store.watched_row(space, key);
    match keys.tx.get(watched, &(space, hash))? {
        Some(row) => Ok(row.version),
        None => {
            // A number that no row has had since the start of the server, with room for changes.
            let version = keys.store.number() << 24;
            keys.tx.insert(watched, Watched { space, hash, version })?;
            Ok(version)
        }
    }
}

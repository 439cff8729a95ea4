//! `WATCH`: keys whose changes make `EXEC` do nothing.
//!
//! The row of a watched key in the table `watched` has a version, which each transaction that changes the key increases
//! in the same commit. `EXEC` compares the version with the one that `WATCH` has found, in the transaction that runs the
//! commands. So the answer is as exact as any other read. While no client watches a key it has no row, and its writers
//! pay for the look-up of an absent row.
//!
//! The row is removed when the last client forgets the key. If another client begins to watch it in that moment, it may
//! find its row gone. Its `EXEC` then does nothing, as after a change.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use weft::Database;

use crate::stop::Done;
use crate::store::{Key, Keys, Store};
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
    /// Returns whether the key has changed since it was watched, or has expired.
    pub fn has_changed(&self, keys: &Keys<'_>) -> Done<bool> {
        let row = keys.tx.get(&keys.store.tables.watched, (self.space, &self.key[..]))?;
        if row.is_none_or(|row| row.version != self.version) {
            return Ok(true);
        }
        Ok(self.existed && keys.head(&Key::new(self.space, &self.key))?.is_none())
    }
}

impl Watches {
    /// Begins to watch a key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn watch(
        &self,
        database: &Database,
        store: &Store,
        space: u8,
        key: &[u8],
    ) -> Done<WatchedKey> {
        let key: Text = key.into();
        self.add((space, key.clone()));
        let found = database.transact(|tx| {
            let keys = Keys { tx, store };
            let watched = &store.tables.watched;
            let existed = keys.head(&Key::new(space, &key))?.is_some();
            let version = match tx.get(watched, (space, &key[..]))? {
                Some(row) => row.version,
                None => {
                    // A number that no row has had since the start of the server, with room for changes.
                    let version = store.number() << 24;
                    tx.insert(watched, Watched { space, key: key.clone(), version })?;
                    version
                }
            };
            Ok((version, existed))
        });
        match found {
            Ok((version, existed)) => Ok(WatchedKey { space, key, version, existed }),
            Err(stop) => {
                self.remove(database, store, &(space, key));
                Err(stop)
            }
        }
    }

    /// Forgets keys.
    pub fn forget(&self, database: &Database, store: &Store, keys: Vec<WatchedKey>) {
        for watched in keys {
            self.remove(database, store, &(watched.space, watched.key));
        }
    }

    fn add(&self, key: (u8, Text)) {
        *self.clients.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(0) += 1;
    }

    fn remove(&self, database: &Database, store: &Store, key: &(u8, Text)) {
        {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let Entry::Occupied(mut entry) = clients.entry(key.clone()) else { return };
            *entry.get_mut() -= 1;
            if *entry.get() > 0 {
                return;
            }
            entry.remove();
        }
        let row = (key.0, &key.1[..]);
        let deleted = database.transact(|tx| tx.delete(&store.tables.watched, row));
        // A row that stays only makes its writers count changes.
        drop(deleted);
    }
}

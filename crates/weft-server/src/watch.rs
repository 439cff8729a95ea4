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

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
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

/// What a watched key needs besides its name: here, among the keys of all clients, and as a row. An estimate.
const KEY_BYTES: usize = 256;

/// The keys that a client watches, each once.
#[derive(Debug, Default)]
pub struct WatchedKeys {
    keys: BTreeMap<(u8, Text), WatchedKey>,
    bytes: usize,
}

impl WatchedKeys {
    /// Adds a key.
    pub fn insert(&mut self, key: WatchedKey) {
        self.bytes += KEY_BYTES + key.key.len();
        self.keys.insert((key.space, key.key.clone()), key);
    }

    /// Returns whether the client watches a key.
    pub fn contains(&self, space: u8, key: &[u8]) -> bool {
        self.keys.contains_key(&(space, key.into()))
    }

    /// Returns whether the client watches no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns how many bytes of memory the keys need, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the keys.
    pub fn iter(&self) -> impl Iterator<Item = &WatchedKey> {
        self.keys.values()
    }
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
    pub fn forget(&self, server: &Server, keys: WatchedKeys) {
        for key in keys.keys.into_keys() {
            self.remove(server, &key);
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

#[cfg(test)]
mod tests {
    use crate::server::{Options, Server};
    use crate::session::Session;

    #[test]
    fn a_client_watches_a_key_once() {
        let server = Server::open(Options::default()).unwrap();
        let (mut session, mut other) = (Session::of_a_test(&server), Session::of_a_test(&server));
        let mut bytes = None;
        for _ in 0..3 {
            assert_eq!(session.say("WATCH k k other"), "+OK\r\n");
            assert_eq!(session.watched.iter().count(), 2);
            assert_eq!(*bytes.get_or_insert(session.held_bytes()), session.held_bytes());
            assert!(session.held_bytes() > 2 * super::KEY_BYTES);
        }
        // The key of another database is another one.
        session.say("SELECT 1");
        session.say("WATCH k");
        assert_eq!(session.watched.iter().count(), 3);
        // A key that is watched again counts as changed since the first time.
        other.say("SET k v");
        session.say("SELECT 0");
        session.say("WATCH k");
        session.say("MULTI");
        assert_eq!(session.say("EXEC"), "*-1\r\n");
        assert_eq!(session.held_bytes(), 0);
        assert!(server.watches.clients.lock().unwrap().is_empty());
    }
}

//! The background: removes keys that have expired, and the elements of collections whose keys are gone.
//!
//! No command depends on it: readers see by the time of their transaction that a key has expired, and elements without a
//! key cannot be found. It works in small transactions, and pauses after each for as long as it took, so it needs half of
//! one processor at most.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use weft::htm::word::Ordering;
use weft::{Error, Failure, TransactionOptions};

use crate::effects::Effects;
use crate::log::{Level, log};
use crate::server::Server;
use crate::stop::{Done, Stop};
use crate::store::{Key, Keys};
use crate::tables::{Kind, expiring};

/// How many rows are removed in one transaction.
const ROWS_PER_TRANSACTION: usize = 128;
/// How long the background sleeps if there is nothing to do.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread of the background.
#[derive(Debug)]
pub struct Collector {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Collector {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start it.
    pub fn start(server: Arc<Server>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread =
            std::thread::Builder::new().name("weft-collector".to_owned()).spawn(move || {
                let mut pause = PAUSE;
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    let begun = Instant::now();
                    pause = match collect(&server) {
                        Ok(0) => PAUSE,
                        Ok(_) => begun.elapsed(),
                        // The server is no longer the primary.
                        Err(Stop::Database(Error::Failure(Failure::Closed))) => return,
                        Err(_) if !server.writes() => return,
                        Err(stop) => {
                            log(
                                Level::Error,
                                "cannot remove expired keys",
                                json!({ "error": stop.text() }),
                            );
                            Duration::from_secs(1)
                        }
                    };
                }
            })?;
        Ok(Collector { stop, thread })
    }

    /// Ends the thread, and waits for it.
    pub fn stop(self) {
        // If the thread has ended already, that is what was wanted.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Removes some rows. Returns how many.
pub fn collect(server: &Server) -> Done<usize> {
    // Nothing waits for the disk here: what a crash undoes is removed again after it.
    let options = TransactionOptions::new().label("collect");
    let effects = Effects::default();
    let (expired, _) = server.transact(&effects, &options, remove_expired)?;
    server.counters.expired.fetch_add(expired as u64, Ordering::Relaxed);
    let (removed, _) = server.transact(&effects, &options, remove_garbage)?;
    Ok(expired + removed)
}

fn remove_expired(keys: &Keys<'_>) -> Done<usize> {
    let deadlines = &keys.store.tables.deadlines;
    let Some(first) = keys.tx.range(deadlines, ..).first_row()? else { return Ok(0) };
    let now = keys.now();
    if first.at > now {
        return Ok(0);
    }
    let due = keys.tx.range(deadlines, ..(now + 1, 0, [].into()));
    let due = due.take(ROWS_PER_TRANSACTION).collect::<Result<Vec<_>, Error>>()?;
    for deadline in &due {
        let key = Key::new(deadline.space, &deadline.key);
        match keys.head_or_expired(&key)? {
            Some(head) if head.expires_at == deadline.at => keys.remove(&key, head)?,
            _ => {
                let row = (deadline.at, deadline.space, &deadline.key[..]);
                keys.tx.delete(deadlines, row)?;
                keys.grow(expiring(deadline.space), -1)?;
            }
        }
    }
    Ok(due.len())
}

fn remove_garbage(keys: &Keys<'_>) -> Done<usize> {
    let (tx, tables) = (keys.tx, &keys.store.tables);
    let Some(garbage) = tx.range(&tables.garbage, ..).first_row()? else { return Ok(0) };
    let collection = garbage.collection;
    // Removes the elements of one table up to the limit.
    macro_rules! remove {
        ($table:expr, $key:expr) => {{
            let rows = tx.prefix(&$table, &collection).take(ROWS_PER_TRANSACTION);
            let rows = rows.collect::<Result<Vec<_>, Error>>()?;
            for row in &rows {
                let key = $key(row);
                tx.delete(&$table, &key)?;
            }
            rows.len()
        }};
    }
    use crate::stream_tables::{Consumer, Entry, Group, Pending};
    use crate::tables::{Field, Member, Scored, Section};
    let removed = match garbage.kind {
        Kind::Text => 0,
        Kind::Hash => {
            remove!(tables.fields, |row: &Field| (collection, row.slot))
        }
        Kind::Set => {
            remove!(tables.members, |row: &Member| (collection, row.slot))
        }
        Kind::SortedSet => {
            remove!(tables.scores, |row: &Scored| (collection, row.slot))
        }
        Kind::List => remove!(tables.items, |row: &Section| (collection, row.number)),
        Kind::Stream => {
            let of = &tables.of_streams;
            let mut removed =
                remove!(of.entries, |row: &Entry| (collection, row.millis, row.number));
            if removed < ROWS_PER_TRANSACTION {
                removed = remove!(of.pending, |row: &Pending| {
                    (collection, row.group, row.millis, row.number)
                });
            }
            if removed < ROWS_PER_TRANSACTION {
                removed = remove!(of.consumers, |row: &Consumer| {
                    (collection, row.group, row.name.clone())
                });
            }
            if removed < ROWS_PER_TRANSACTION {
                removed = remove!(of.groups, |row: &Group| (collection, row.name.clone()));
            }
            removed
        }
    };
    if removed == ROWS_PER_TRANSACTION {
        return Ok(removed);
    }
    tx.delete_range(&tables.sizes, (collection, 0)..=(collection, u8::MAX))?;
    tx.delete(&tables.ends, &collection)?;
    tx.delete(&tables.of_streams.streams, &collection)?;
    tx.delete(&tables.of_streams.deletions, &collection)?;
    tx.delete(&tables.garbage, &collection)?;
    Ok::<_, Stop>(removed + 1)
}

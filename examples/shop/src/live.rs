//! What happens in the shop, live in the browsers.
//!
//! One task follows the change feed, and tells all browsers the keys of what has changed. The stream of each browser then
//! reads how that is now. A browser that is slow delays nothing: it misses keys, is told so, and gets everything again.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures_util::stream::{self, FusedStream, Stream};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::task::AbortHandle;
use weft::{Database, Transaction};
use weft_changes::{ChangeFeed, Changes, ChangesError};

use crate::auctions::{self, Auction, Leaderboard};
use crate::refused::Refused;
use crate::shop::{Shop, Tables};
use crate::stock::{self, Item};

/// How many keys wait for a browser. One that is slower misses the oldest.
const KEYS_MAX: usize = 256;

/// How many transactions of the feed are read before the browsers are told.
const TRANSACTIONS_MAX: usize = 1_000;

/// The time between two updates of a browser.
const PAUSE: Duration = Duration::from_millis(100);

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    /// Perhaps everything: the browser is new, or keys were missed.
    Anything,
    Item(u64),
    Auction(u64),
}

/// How what has changed is now.
#[derive(Clone, Debug, Serialize)]
pub struct Update {
    /// How many changes the browser has missed, because it was too slow. The update then has everything, like the first
    /// one.
    pub missed: u64,
    /// The items.
    pub items: Vec<Item>,
    /// The leaderboard of the auction that the browser shows.
    pub auction: Option<Leaderboard>,
}

/// The task that follows the change feed.
#[derive(Clone, Debug)]
pub struct Live {
    /// From which the receivers of the browsers are made. Nothing is received here.
    changed: Arc<Receiver<Changed>>,
    task: AbortHandle,
}

impl Live {
    /// Starts to follow the shop's changes.
    ///
    /// # Errors
    /// Those of [`ChangeFeed::changes_from_now`].
    pub fn start(shop: &Shop) -> Result<Live, ChangesError> {
        let (sender, changed) = broadcast::channel(KEYS_MAX);
        let changes = shop.database.changes_from_now()?;
        let followed = follow(shop.database.clone(), changes, sender);
        let task = tokio::spawn(async {
            if let Err(error) = followed.await {
                eprintln!("the pages do not show changes any more: {error}");
            }
        });
        Ok(Live { changed: Arc::new(changed), task: task.abort_handle() })
    }

    /// Ends the streams of all browsers.
    pub fn stop(&self) {
        self.task.abort();
    }

    /// Returns the stream of a browser that shows an auction, if there is one with this number.
    pub fn stream(
        &self,
        shop: Shop,
        auction: u64,
    ) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
        let changed = self.changed.resubscribe();
        let browser = Browser { shop, auction, changed, is_new: true };
        stream::unfold(browser, |mut browser| async move {
            // The browser connects again if the stream ends by an error.
            let update = browser.next().await?;
            let event = Event::default().json_data(update).ok()?;
            Some((Ok(event), browser))
        })
    }
}

/// Tells the browsers what changes, until the task is aborted or the database is closed.
async fn follow(
    database: Database,
    mut changes: Changes,
    browsers: Sender<Changed>,
) -> Result<(), ChangesError> {
    while !changes.is_terminated() {
        let changed = match next_changed(&mut changes).await {
            Err(ChangesError::FellBehind { .. }) => {
                changes = database.changes_from_now()?;
                BTreeSet::from([Changed::Anything])
            }
            changed => changed?,
        };
        for changed in changed {
            // It fails if there is no browser.
            let _ = browsers.send(changed);
        }
    }
    Ok(())
}

/// Waits for a transaction, and returns what it and those behind it have changed.
async fn next_changed(changes: &mut Changes) -> Result<BTreeSet<Changed>, ChangesError> {
    let mut changed = BTreeSet::new();
    for count in 0..TRANSACTIONS_MAX {
        let next = if count == 0 { changes.next_async().await? } else { changes.try_next()? };
        let Some(transaction) = next else { break };
        for change in transaction.changes() {
            if change.is::<Item>() {
                changed.insert(Changed::Item(change.key::<Item>()?));
            } else if change.is::<Auction>() {
                changed.insert(Changed::Auction(change.key::<Auction>()?));
            }
        }
    }
    Ok(changed)
}

/// A browser that follows the shop.
struct Browser {
    shop: Shop,
    /// The auction that it shows.
    auction: u64,
    changed: Receiver<Changed>,
    is_new: bool,
}

impl Browser {
    /// Waits for a change, and returns the next update. Returns `None` if the shop closes or has too much to do.
    async fn next(&mut self) -> Option<Update> {
        let (mut changed, mut missed) = (BTreeSet::new(), 0);
        if self.is_new {
            self.is_new = false;
            changed.insert(Changed::Anything);
        } else {
            tokio::time::sleep(PAUSE).await;
        }
        while changed.is_empty() || !self.changed.is_empty() {
            match self.changed.recv().await {
                Ok(Changed::Auction(auction)) if auction != self.auction => {}
                Ok(key) => _ = changed.insert(key),
                Err(RecvError::Lagged(keys)) => {
                    missed += keys;
                    changed.insert(Changed::Anything);
                }
                Err(RecvError::Closed) => return None,
            }
        }
        let auction = self.auction;
        let update =
            self.shop.run("live", move |tx, tables| read(tx, tables, &changed, auction)).await;
        Some(Update { missed, ..update.ok()? })
    }
}

/// Reads how what has changed is now.
fn read(
    tx: &Transaction<'_>,
    tables: &Tables,
    changed: &BTreeSet<Changed>,
    auction: u64,
) -> Result<Update, Refused> {
    let mut update = Update { missed: 0, items: Vec::new(), auction: None };
    for changed in changed {
        match *changed {
            Changed::Anything => {
                update.items = stock::list(tx, tables)?;
                update.auction = auctions::find(tx, tables, auction)?;
                // What follows is in it.
                break;
            }
            Changed::Item(item) => update.items.extend(stock::find(tx, tables, item)?),
            Changed::Auction(auction) => update.auction = auctions::find(tx, tables, auction)?,
        }
    }
    Ok(update)
}

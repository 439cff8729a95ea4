//! The outlets: the server, `tracing`, the facade `metrics`, the dashboard and the flight recorder.

mod dashboard;
mod events;
mod facade;
mod flight;
mod hostile;
mod serve;

use weft::{Database, Error, Record, Table};

/// A page and how often it was seen.
#[derive(Clone, Record)]
#[record(table = "pages")]
struct Page {
    #[record(key)]
    id: u32,
    views: u64,
}

fn open() -> (Database, Table<Page>) {
    let database = Database::builder().table::<Page>().open().unwrap();
    let pages = database.table::<Page>().unwrap();
    (database, pages)
}

/// Commits a transaction that adds a page, or a view.
fn view(database: &Database, pages: &Table<Page>, id: u32) {
    let viewed = database.transact(|tx| {
        if tx.update(pages, &id, |page| page.views += 1)?.is_none() {
            tx.insert(pages, Page { id, views: 1 })?;
        }
        Ok::<_, Error>(())
    });
    viewed.unwrap();
}

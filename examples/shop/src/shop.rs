//! The open shop: its database, its pool of threads, and its tables.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft::{
    Builder, ColumnValue, Database, Failure, OnceOptions, Pool, PoolOptions, SubmitOptions, Table,
    Transaction,
};

use crate::accounts::Account;
use crate::auctions::Auction;
use crate::carts::{self, CartLine};
use crate::limits::Calls;
use crate::orders::{Order, Sales, count_sales};
use crate::refused::Refused;
use crate::stock::Item;

/// What every request gets. A clone is a handle of the same shop.
#[derive(Clone, Debug)]
pub struct Shop {
    /// The database, for snapshots and metrics.
    pub database: Database,
    /// The threads that run the transactions.
    pub pool: Arc<Pool>,
    /// The tables.
    pub tables: Tables,
}

/// The tables of the shop.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The customers' accounts.
    pub accounts: Table<Account>,
    /// The items for sale.
    pub items: Table<Item>,
    /// The contents of the customers' carts.
    pub carts: Table<CartLine>,
    /// What was sold.
    pub orders: Table<Order>,
    /// How much of each item was sold.
    pub sales: Table<Sales>,
    /// What customers bid for.
    pub auctions: Table<Auction>,
    /// The requests of each account in the last second.
    pub calls: Table<Calls>,
}

/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(2);

impl Shop {
    /// Opens the shop in a directory, which is made if it does not exist.
    ///
    /// # Errors
    /// Those of [`Builder::open`].
    pub fn open(directory: &Path) -> Result<Shop, Failure> {
        let builder = Database::builder().directory(directory);
        // The carts of version 1 reserved nothing.
        Shop::open_with(builder.drop_table("carts"))
    }

    /// Opens the shop with options of the database, such as a clock for tests.
    ///
    /// # Errors
    /// Those of [`Builder::open`].
    pub fn open_with(builder: Builder) -> Result<Shop, Failure> {
        let database = builder
            .table::<Account>()
            .table::<Item>()
            .table::<CartLine>()
            .table::<Order>()
            .table::<Sales>()
            .table::<Auction>()
            .table::<Calls>()
            .once(OnceOptions::new())
            // Version 2 has the table of sales.
            .version(2)
            .migrate(1, count_sales)
            .open()?;
        let tables = Tables {
            accounts: database.table()?,
            items: database.table()?,
            carts: database.table()?,
            orders: database.table()?,
            sales: database.table()?,
            auctions: database.table()?,
            calls: database.table()?,
        };
        let items = tables.items.clone();
        database.on_expiry(&tables.carts, move |tx, line| carts::give_back(tx, &items, line))?;
        let pool = Arc::new(database.pool(&PoolOptions::new())?);
        Ok(Shop { database, pool, tables })
    }

    /// Runs a transaction in the pool. The label names it in metrics and messages.
    ///
    /// # Errors
    /// Those of the transaction.
    pub async fn run<R: Send + 'static>(
        &self,
        label: &'static str,
        transaction: impl Fn(&Transaction<'_>, &Tables) -> Result<R, Refused> + Send + 'static,
    ) -> Result<R, Refused> {
        let (options, tables) = (options(label), self.tables.clone());
        self.pool.submit_with(&options, move |tx| transaction(tx, &tables)).await
    }

    /// As [`Shop::run`], once for a key: if a request with the key has been carried out, returns its result again.
    ///
    /// # Errors
    /// Those of the transaction.
    pub async fn run_once<R: ColumnValue + Send + 'static>(
        &self,
        label: &'static str,
        key: &str,
        transaction: impl Fn(&Transaction<'_>, &Tables) -> Result<R, Refused> + Send + 'static,
    ) -> Result<R, Refused> {
        let (options, tables) = (options(label).once(key), self.tables.clone());
        self.pool.submit_with(&options, move |tx| transaction(tx, &tables)).await
    }

    /// Closes the shop: requests that have begun end, and their changes are durable.
    ///
    /// # Errors
    /// If a transaction is still running after ten seconds, or the disk has failed.
    pub async fn close(self) -> Result<(), Failure> {
        self.pool.shutdown(Duration::from_secs(10)).await?;
        self.database.close_within(Duration::from_secs(10))
    }
}

fn options(label: &'static str) -> SubmitOptions {
    SubmitOptions::new().deadline(DEADLINE).label(label)
}

//! A bank whose changes are followed, and a copy of it that is made of the feed alone.

use std::collections::BTreeMap;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Snapshot, Table};
use weft_changes::{Position, Transaction};

#[derive(Clone, Debug, PartialEq, Record)]
pub struct Account {
    #[record(key)]
    pub id: u32,
    pub cents: i64,
    pub note: String,
}

/// The record of a transfer. The key is not at the beginning of the row, and in another order.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(key(writer, number))]
pub struct Receipt {
    pub cents: i64,
    pub number: u64,
    pub writer: u32,
}

/// How many transfers a writer has made.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(storage = "hash")]
pub struct Writer {
    #[record(key)]
    pub number: u32,
    pub transfers: u64,
}

pub const ACCOUNTS: u32 = 6;

/// A receipt is deleted after so many more transfers.
const RECEIPTS: u64 = 3;

pub struct Bank<P: Protocol> {
    pub database: Database<P>,
    pub accounts: Table<Account>,
    pub receipts: Table<Receipt>,
    pub writers: Table<Writer>,
}

impl<P: Protocol> Bank<P> {
    pub fn open(builder: Builder<P>) -> Result<Bank<P>, Failure> {
        let builder = builder.table::<Account>().table::<Receipt>().table::<Writer>();
        let database = builder.workers_max(8.min(P::WORKERS_MAX)).open()?;
        Ok(Bank {
            accounts: database.table()?,
            receipts: database.table()?,
            writers: database.table()?,
            database,
        })
    }

    /// Makes a transfer of a writer: changes two accounts, whose sum stays the same, and the writer's own row,
    /// inserts a receipt, and deletes an old one.
    pub fn transfer(&self, writer: u32, random: &mut fastrand::Rng) -> Result<(), Error> {
        let from = random.u32(..ACCOUNTS);
        let to = (from + random.u32(1..ACCOUNTS)) % ACCOUNTS;
        let cents = random.i64(1..100);
        self.database.transact(|tx| {
            let mut number = 1;
            let counted = tx.update(&self.writers, &writer, |row| {
                row.transfers += 1;
                number = row.transfers;
            })?;
            if counted.is_none() {
                tx.insert(&self.writers, Writer { number: writer, transfers: 1 })?;
            }
            for (account, cents) in [(from, -cents), (to, cents)] {
                let changed = tx.update(&self.accounts, &account, |row| row.cents += cents)?;
                if changed.is_none() {
                    let note = format!("account {account}");
                    tx.insert(&self.accounts, Account { id: account, cents, note })?;
                }
            }
            tx.insert(&self.receipts, Receipt { writer, number, cents })?;
            if let Some(old) = number.checked_sub(RECEIPTS).filter(|old| *old > 0) {
                tx.delete(&self.receipts, &(writer, old))?;
            }
            Ok(())
        })
    }

    /// Returns the rows in a snapshot.
    pub fn rows(&self, snapshot: &Snapshot) -> Copied {
        let mut copied = Copied::default();
        for account in snapshot.range(&self.accounts, ..) {
            let account = account.expect("the database is open").clone();
            copied.accounts.insert(account.id, account);
        }
        for receipt in snapshot.range(&self.receipts, ..) {
            let receipt = receipt.expect("the database is open").clone();
            copied.receipts.insert((receipt.writer, receipt.number), receipt);
        }
        for number in 0..8 {
            if let Some(writer) = snapshot.get(&self.writers, &number).expect("the table is open") {
                copied.writers.insert(number, writer.transfers);
            }
        }
        copied
    }

    /// Returns the present rows.
    pub fn state(&self) -> Copied {
        self.rows(&self.database.open_snapshot().expect("the database is open"))
    }
}

/// A copy of the bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Copied {
    pub accounts: BTreeMap<u32, Account>,
    pub receipts: BTreeMap<(u32, u64), Receipt>,
    /// How many transfers each writer has made.
    pub writers: BTreeMap<u32, u64>,
}

fn apply<T: Record>(rows: &mut BTreeMap<T::Key, T>, change: &weft_changes::Change<'_>)
where
    T::Key: Ord,
{
    let key = change.key::<T>().unwrap();
    let before = rows.remove(&key);
    if let Some(after) = change.apply(before).unwrap() {
        rows.insert(key, after);
    }
}

impl Copied {
    /// Applies a transaction of the feed. Checks that it is a whole transfer, and its writer's next one.
    pub fn follow(&mut self, transaction: &Transaction) {
        let mut transfers = 0;
        let mut accounts = 0;
        for change in transaction.changes() {
            if change.is::<Account>() {
                apply(&mut self.accounts, &change);
                accounts += 1;
            } else if change.is::<Receipt>() {
                apply(&mut self.receipts, &change);
            } else {
                let writer = change.key::<Writer>().unwrap();
                let before = self.writers.get(&writer).copied();
                let before_row = before.map(|transfers| Writer { number: writer, transfers });
                let after = change.apply(before_row).unwrap().expect("writers are not deleted");
                assert_eq!(
                    after.transfers,
                    before.unwrap_or(0) + 1,
                    "writer {writer}, at {}",
                    transaction.position()
                );
                self.writers.insert(writer, after.transfers);
                transfers += 1;
            }
        }
        assert_eq!((transfers, accounts), (1, 2), "{transaction:?}");
        let sum: i64 = self.accounts.values().map(|account| account.cents).sum();
        assert_eq!(sum, 0, "after {transaction:?}");
    }
}

/// A reader that stores its position with its copy.
#[derive(Clone, Debug)]
pub struct Follower {
    pub position: Position,
    pub copied: Copied,
}

impl Follower {
    pub fn new() -> Follower {
        Follower { position: Position::START, copied: Copied::default() }
    }

    pub fn follow(&mut self, transaction: &Transaction) {
        assert!(self.position < transaction.position() || self.position == Position::START);
        self.copied.follow(transaction);
        self.position = transaction.position();
    }
}

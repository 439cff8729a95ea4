//! Orders of the web shop in `examples/shop`, on Weft and on stores that a shop could use instead.
//!
//! An order is two transactions, as in the shop:
//!
//! 1. *Two items are put into a cart.* For each, a piece is taken from the stock, which never goes below zero, and the
//!    cart line is written, with the time until which it is reserved, by which it is indexed.
//! 2. *The cart is ordered*, once for a key: the stored result of the key is looked for, the cart and the prices are
//!    read, the cart is emptied, sales are counted for each item, the money is taken from the account, which never goes
//!    below zero, and the order with its lines, and the result for the key are written.
//!
//! Weft runs the shop's own functions. The others do the same in their own interfaces.

mod client;
mod redb;
mod sqlite;
mod weft;

use std::fmt::Write;
use std::path::Path;

use crate::Progress;
use crate::machine::{Machine, package_version};
use crate::options::Options;
use crate::report::{counted, rate};
use crate::round::{Contender, Plan};
use crate::store::Result;
use crate::turns::{self, Entrant, Speed};
use client::ShopAndClients;

/// The number of items.
pub const ITEMS: u64 = 1_000;

/// The number of accounts of each thread.
pub const ACCOUNTS: u64 = 1_000;

/// The price of each item, in cents.
pub const PRICE: i64 = 250;

/// How much money each account has, and how many pieces of each item there are: enough for every run.
pub const PLENTY: i64 = 1_000_000_000_000;

/// For how many milliseconds a cart line is reserved.
pub const RESERVED_MS: u64 = 15 * 60 * 1_000;

/// Which orders survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: nothing is written to a disk.
    Memory,
    /// All but the last ones: a transaction is acknowledged before it is on the disk.
    Logged,
    /// All: a transaction is acknowledged when it is on the disk.
    Durable,
}

impl Durability {
    const ALL: [Self; 3] = [Self::Memory, Self::Logged, Self::Durable];

    /// Returns the name in the table.
    fn title(self) -> &'static str {
        match self {
            Durability::Memory => "in memory",
            Durability::Logged => "logged",
            Durability::Durable => "durable",
        }
    }
}

/// A shop on one of the stores. Each function is one transaction.
pub trait Shop: Sized + Sync {
    /// Opens the shop in an empty directory, with [`ITEMS`] items and `accounts` accounts, whose numbers begin with 0.
    fn open(directory: &Path, durability: Durability, accounts: u64) -> Result<Self>;

    /// Puts one piece of each of two items into a cart, which has none of them.
    fn put_in_cart(&self, account: u64, items: [u64; 2]) -> Result<()>;

    /// Orders the cart, once for the key. Returns the number of the order among those of the account.
    fn order(&self, account: u64, key: &str) -> Result<u64>;

    /// Returns what the shop has.
    fn totals(&self) -> Result<Totals>;
}

/// Sums over all rows of a shop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Pieces that are left.
    pub left: i64,
    /// Pieces in carts.
    pub reserved: i64,
    /// Pieces that were sold, by the table of sales.
    pub sold: i64,
    /// Pieces in orders.
    pub ordered: i64,
    /// The number of orders.
    pub orders: u64,
    /// Cents in all accounts.
    pub cents: i64,
    /// Stored results.
    pub results: u64,
}

type OpenShop = fn(&Path, Durability, bool, usize) -> Result<Box<dyn Contender>>;

const STORES: [(&str, OpenShop); 3] = [
    ("**Weft**", open::<weft::WeftShop>),
    ("redb", open::<redb::RedbShop>),
    ("SQLite", open::<sqlite::SqliteShop>),
];

fn open<S: Shop + 'static>(
    directory: &Path,
    durability: Durability,
    is_hot: bool,
    threads: usize,
) -> Result<Box<dyn Contender>> {
    Ok(Box::new(ShopAndClients::<S>::open(directory, durability, is_hot, threads)?))
}

/// Measures orders, and returns a table in Markdown.
///
/// # Errors
/// Those of the stores; a shop whose rows are not what its clients have done.
pub fn measure(options: &Options, plan: &Plan, progress: &Progress) -> Result<String> {
    let threads = options.threads(plan.processors);
    let columns =
        [false, true].into_iter().flat_map(|is_hot| threads.iter().map(move |it| (is_hot, *it)));
    let mut header = "| orders per second |".to_owned();
    let mut lines: Vec<String> = entries()
        .map(|(store, _, durability)| format!("| {store}, {} |", durability.title()))
        .collect();
    let mut is_disturbed = false;
    for (is_hot, threads) in columns.clone() {
        let items = if is_hot { "the same two items" } else { "any items" };
        let column = format!("{items}, {}", counted(threads, "thread"));
        let _ = write!(header, " {column} |");
        let speeds = measure_column(options, plan, is_hot, threads, |turn, store| {
            progress.show(&format!("{column}, {store}: round {turn} of {}", options.rounds));
        })?;
        for (line, speed) in lines.iter_mut().zip(speeds) {
            let mark = if speed.is_disturbed { "\\*" } else { "" };
            let _ = write!(line, " {}{mark} |", rate(speed.per_second.median));
            is_disturbed |= speed.is_disturbed;
        }
    }
    let rule = format!("| --- |{}", " ---: |".repeat(columns.count()));
    let Machine { processor, processors, system, rustc } = Machine::this();
    let mut caption = format!(
        "k: thousand. {} of {processor}, {system}, rustc {rustc}, redb {}, SQLite {}. Medians of {} of {} s.",
        counted(processors, "core"),
        package_version("redb").unwrap_or_default(),
        rusqlite::version(),
        counted(options.rounds.into(), "round"),
        options.seconds.as_secs_f64(),
    );
    if is_disturbed {
        caption += " \\*: other processes computed at the same time.";
    }
    Ok(format!("{header}\n{rule}\n{}\n\n{caption}\n", lines.join("\n")))
}

/// Returns the lines of the table: each store in each way.
fn entries() -> impl Iterator<Item = (&'static str, OpenShop, Durability)> {
    let ways = Durability::ALL.into_iter();
    ways.flat_map(|durability| STORES.map(|(store, open)| (store, open, durability)))
}

/// Measures one column of the table. Its shops exist at the same time, and take turns.
fn measure_column(
    options: &Options,
    plan: &Plan,
    is_hot: bool,
    threads: usize,
    progress: impl Fn(usize, &str),
) -> Result<Vec<Speed>> {
    let directory = tempfile::tempdir_in(&options.directory)?;
    let mut entrants = Vec::new();
    for (number, (store, open, durability)) in entries().enumerate() {
        let name = format!("{store}, {}", durability.title());
        let place = directory.path().join(number.to_string());
        std::fs::create_dir(&place)?;
        let contender = open(&place, durability, is_hot, threads);
        let contender = contender.map_err(|error| format!("{name}: {error}"))?;
        entrants.push(Entrant { name, contender, rounds: Vec::new() });
    }
    let rounds = usize::from(options.rounds);
    turns::take_turns(&mut entrants, plan, rounds, &progress)?;
    let speeds = entrants.into_iter().map(|entrant| {
        entrant.contender.verify().map_err(|error| format!("{}: {error}", entrant.name))?;
        Speed::of(&entrant.rounds, rounds).ok_or_else(|| "there is at least one round".into())
    });
    speeds.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check<S: Shop>(durability: Durability) {
        let directory = tempfile::tempdir().expect("a directory");
        let shop = S::open(directory.path(), durability, 2).expect("it opens");
        let before = shop.totals().expect("sums");
        assert_eq!((before.left, before.cents), (PLENTY * ITEMS as i64, 2 * PLENTY));
        shop.put_in_cart(0, [3, 4]).expect("it reserves");
        let totals = shop.totals().expect("sums");
        assert_eq!((totals.left, totals.reserved), (before.left - 2, 2));
        for _ in 0..2 {
            assert_eq!(shop.order(0, "first").expect("it orders"), 1);
        }
        assert!(shop.order(0, "second").is_err(), "the cart is empty");
        shop.put_in_cart(0, [3, 5]).expect("it reserves");
        assert_eq!(shop.order(0, "second").expect("it orders"), 2);
        let expected = Totals {
            left: before.left - 4,
            reserved: 0,
            sold: 4,
            ordered: 4,
            orders: 2,
            cents: before.cents - 4 * PRICE,
            results: 2,
        };
        assert_eq!(shop.totals().expect("sums"), expected);
    }

    #[test]
    fn stores_do_the_same() {
        for durability in Durability::ALL {
            check::<weft::WeftShop>(durability);
            check::<redb::RedbShop>(durability);
            check::<sqlite::SqliteShop>(durability);
        }
    }

    #[test]
    fn clients_know_what_the_shop_must_have() {
        let milliseconds = Duration::from_millis;
        let plan = Plan { processors: 2, warmup: milliseconds(1), measured: milliseconds(10) };
        for (name, open) in STORES {
            for is_hot in [false, true] {
                let directory = tempfile::tempdir().expect("a directory");
                let mut contender =
                    open(directory.path(), Durability::Logged, is_hot, 2).expect(name);
                contender.round(&plan).expect(name);
                contender.verify().expect(name);
            }
        }
    }
}

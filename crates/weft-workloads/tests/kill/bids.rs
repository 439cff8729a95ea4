//! Clients bid through a pool on one auction, which is split nearly all the time. So processes are killed in split
//! phases, in joined phases, and between them. Each bid also takes a ticket, as long as there are some, and some bids
//! bring tickets back: no ticket is taken twice, and none is lost.

use std::collections::VecDeque;
use std::path::Path;
use std::thread::scope;
use std::time::Duration;

use weft::operation::{Add, Max, Take};
use weft::protocol::Protocol;
use weft::{
    Acknowledge, Database, Error, Failure, PoolOptions, Record, Submission, Table, Transaction,
    column_of,
};
use weft_protocols::doppel::{JoinedProtocol, PhaseReconciliation};
use weft_protocols::{BuilderExt, LabelledDatabase};
use weft_protocols::{Merging, PhaseOptions};

use crate::process::{self, KilledRun, say, say_open};

/// The name of the workload for the process.
pub const NAME: &str = "bids";

/// The number of threads that submit bids.
const CLIENTS: u64 = 2;

/// The number of bids that each client has in progress.
const UNDER_WAY: usize = 50;

#[derive(Clone, Copy, Record)]
#[record(table = "auctions")]
struct Auction {
    #[record(key)]
    item: u32,
    bids: u64,
    highest: u64,
    #[record(min = 0)]
    tickets: u64,
}

/// The number of tickets in the beginning.
const TICKETS: u64 = 300;

/// A bid. The identifier contains the client and the bid's number.
#[derive(Clone, Copy, Record)]
#[record(table = "bids")]
struct Bid {
    #[record(key)]
    id: u64,
    amount: u64,
    /// Whether it has taken a ticket.
    has_ticket: bool,
    /// The number of tickets that it has brought back.
    brought: u64,
}

const ITEM: u32 = 1;

struct Auctions<J: JoinedProtocol> {
    database: Database<PhaseReconciliation<J>>,
    auctions: Table<Auction>,
    bids: Table<Bid>,
}

impl<J: JoinedProtocol> Auctions<J> {
    /// Opens the database. With an odd seed, workers merge their own slices, and operations are applied at the commit.
    fn open(directory: &Path, acknowledge: Acknowledge, seed: u64) -> Self {
        let builder = process::builder::<PhaseReconciliation<J>>(directory, acknowledge);
        let phases = PhaseOptions::new().length(Duration::from_millis(3));
        let phases = match seed % 2 {
            1 => phases.merging(Merging::OwnSlices).applies_at_commit(true),
            _ => phases,
        };
        let builder = builder.table::<Auction>().table::<Bid>().phases(phases);
        let database = builder.open().unwrap_or_else(|error| panic!("{error}"));
        let (auctions, bids) = (database.table().unwrap(), database.table().unwrap());
        Auctions { database, auctions, bids }
    }

    /// Submits a bid, a transaction that inserts a row and also changes a split record.
    fn bid(&self, pool: &weft::Pool<PhaseReconciliation<J>>, bid: Bid) -> Submission<(), Error> {
        let (auctions, bids) = (self.auctions.clone(), self.bids.clone());
        pool.submit(move |tx: &Transaction<'_, PhaseReconciliation<J>>| {
            tx.add(&auctions, &ITEM, column_of!(Auction.bids), 1)?;
            tx.max(&auctions, &ITEM, column_of!(Auction.highest), bid.amount)?;
            let tickets = column_of!(Auction.tickets);
            tx.give(&auctions, &ITEM, tickets, bid.brought)?;
            let has_ticket = match tx.take(&auctions, &ITEM, tickets, 1) {
                Err(Error::Failure(Failure::NotEnough { .. })) => false,
                taken => taken.map(|()| true)?,
            };
            tx.insert(&bids, Bid { has_ticket, ..bid })
        })
    }

    /// Returns the auction and all bids.
    fn rows(&self) -> (Auction, Vec<Bid>) {
        let snapshot = self.database.open_snapshot().unwrap();
        let auction = *snapshot.get(&self.auctions, &ITEM).unwrap().expect("it was loaded");
        let bids = snapshot.rows(&self.bids).map(|bid| bid.copied());
        (auction, bids.collect::<Result<_, _>>().unwrap())
    }
}

/// Bids until the process is killed.
pub fn run<P: Protocol + BidProtocol>(directory: &Path, seed: u64) {
    P::run(directory, seed);
}

/// A protocol whose joined protocol is known.
pub trait BidProtocol: Protocol {
    fn run(directory: &Path, seed: u64);
    fn kill_again_and_again(rounds: u32);
}

impl<J: JoinedProtocol> BidProtocol for PhaseReconciliation<J> {
    fn run(directory: &Path, seed: u64) {
        bid_until_the_end::<J>(directory, seed);
    }

    fn kill_again_and_again(rounds: u32) {
        kill::<J>(rounds);
    }
}

fn bid_until_the_end<J: JoinedProtocol>(directory: &Path, seed: u64) {
    let auctions = &Auctions::<J>::open(directory, Acknowledge::Durable, seed);
    let (of_bids, of_highest) = (column_of!(Auction.bids), column_of!(Auction.highest));
    let (database, table) = (&auctions.database, &auctions.auctions);
    database.label_split::<_, _, Add<_>>(table, &ITEM, of_bids).unwrap();
    database.label_split::<_, _, Max<_>>(table, &ITEM, of_highest).unwrap();
    database.label_split::<_, _, Take<_>>(table, &ITEM, column_of!(Auction.tickets)).unwrap();
    let pool = &database.pool(&PoolOptions::new().threads(2)).unwrap();
    let (_, before) = auctions.rows();
    say_open();
    scope(|scope| {
        for client in 0..CLIENTS {
            let of_client = before.iter().map(|bid| bid.id).filter(|id| id % CLIENTS == client);
            let first = of_client.max().map_or(client, |last| last + CLIENTS);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(client));
                let mut under_way = VecDeque::new();
                for number in 0.. {
                    let id = first + number * CLIENTS;
                    let brought = if random.u8(..64) == 0 { random.u64(1..100) } else { 0 };
                    let amount = random.u64(1..1_000_000);
                    let bid = Bid { id, amount, has_ticket: false, brought };
                    under_way.push_back((id, auctions.bid(pool, bid)));
                    if random.u8(..50) == 0 {
                        // A read, which has to wait for a joined phase.
                        let table = auctions.auctions.clone();
                        let read = pool.submit(move |tx: &Transaction<'_, _>| {
                            Ok::<_, Error>(tx.get(&table, &ITEM)?.map(|auction| auction.bids))
                        });
                        read.wait().expect("it runs to its end");
                    }
                    if under_way.len() == UNDER_WAY {
                        let (id, bid) = under_way.pop_front().expect("it is not empty");
                        bid.wait().expect("it runs to its end");
                        say(&format!("bid {id}"));
                    }
                }
            });
        }
    });
}

/// Kills `rounds` processes that bid.
pub fn kill_again_and_again<P: Protocol + BidProtocol>(rounds: u32) {
    P::kill_again_and_again(rounds);
}

fn kill<J: JoinedProtocol>(rounds: u32) {
    let load = |directory: &Path| {
        let auctions = Auctions::<J>::open(directory, Acknowledge::Durable, 0);
        let auction = Auction { item: ITEM, bids: 0, highest: 0, tickets: TICKETS };
        let inserted: Result<(), Error> =
            auctions.database.transact(|tx| tx.insert(&auctions.auctions, auction));
        inserted.unwrap();
    };
    let mut acknowledged = Vec::new();
    let check = |killed: KilledRun<'_>| {
        let said = killed.said.iter().filter_map(|line| line.strip_prefix("bid "));
        acknowledged.extend(said.map(|id| id.parse::<u64>().unwrap()));
        let (auction, bids) = Auctions::<J>::open(killed.directory, Acknowledge::Durable, 0).rows();
        let circumstances = killed.circumstances;
        let lost =
            acknowledged.iter().filter(|id| bids.binary_search_by_key(*id, |bid| bid.id).is_err());
        let lost: Vec<_> = lost.collect();
        assert!(lost.is_empty(), "lost although acknowledged: {lost:?}: {circumstances}");
        assert_eq!(auction.bids, bids.len() as u64, "each is counted once: {circumstances}");
        let highest = bids.iter().map(|bid| bid.amount).max().unwrap_or(0);
        assert_eq!(auction.highest, highest, "{circumstances}");
        let taken = bids.iter().filter(|bid| bid.has_ticket).count() as u64;
        let brought: u64 = bids.iter().map(|bid| bid.brought).sum();
        assert_eq!(
            auction.tickets + taken,
            TICKETS + brought,
            "each has one owner: {circumstances}"
        );
    };
    process::kill_again_and_again::<PhaseReconciliation<J>>(NAME, rounds, load, check);
    println!("{} bids were acknowledged", acknowledged.len());
    assert!(acknowledged.len() > 100, "too few transactions: {}", acknowledged.len());
}

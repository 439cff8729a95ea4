//! An auction: many bidders and one item, the hottest row there can be. Every accepted bid raises
//! the highest bid and is written to a log of bids, in one transaction. At the end the two agree.
//!
//! `cargo run --release --example auction`

use weft::{Database, Error, Record};

#[derive(Clone, Record)]
#[record(table = "items", storage = "hash")]
struct Item {
    #[record(key)]
    id: u32,
    title: String,
    highest_bid: u64,
    highest_bidder: Option<u32>,
    bids: u64,
}

#[derive(Clone, Copy, Record)]
#[record(table = "bids", key(item, number))]
#[record(index(name = "by_bidder", columns(bidder)))]
struct Bid {
    item: u32,
    number: u64,
    bidder: u32,
    amount: u64,
}

const ITEM: u32 = 1;
const BIDDERS: u32 = 8;
const BIDS_EACH: u32 = 5_000;

fn main() -> Result<(), Error> {
    let database = Database::builder().table::<Item>().table::<Bid>().open()?;
    let (items, bids) = (database.table::<Item>()?, database.table::<Bid>()?);
    database.transact(|tx| {
        let title = "A loom, well kept".to_owned();
        tx.insert(&items, Item { id: ITEM, title, highest_bid: 0, highest_bidder: None, bids: 0 })
    })?;

    let accepted: u64 = std::thread::scope(|scope| {
        let bidders: Vec<_> = (0..BIDDERS)
            .map(|bidder| {
                let (database, items, bids) = (&database, &items, &bids);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(u64::from(bidder));
                    (0..BIDS_EACH)
                        .map(|_| {
                            let raise = random.u64(1..10);
                            // Sometimes a bidder goes by a price that is outdated, and is too late.
                            let stale = random.u8(..4) == 0;
                            bid(database, items, bids, bidder, raise, stale).map(u64::from)
                        })
                        .sum::<Result<u64, Error>>()
                })
            })
            .collect();
        bidders
            .into_iter()
            .map(|bidder| bidder.join().expect("a bidder does not panic"))
            .sum::<Result<u64, Error>>()
    })?;

    database.transact(|tx| {
        let item = tx.get(&items, &ITEM)?.expect("the item is there");
        let last = tx.prefix(&bids, &ITEM).descending().next().transpose()?;
        let last = last.expect("there is at least one bid");
        assert_eq!((item.bids, item.highest_bid), (accepted, last.amount));
        assert_eq!(item.highest_bidder, Some(last.bidder));
        let winners_bids = tx.prefix_by(&bids, Bid::BY_BIDDER, &last.bidder).count();
        println!(
            "\"{}\" goes to bidder {} for {}, who bid {winners_bids} times; {accepted} of {} bids \
             were accepted",
            item.title,
            last.bidder,
            item.highest_bid,
            BIDDERS * BIDS_EACH
        );
        Ok::<(), Error>(())
    })?;
    println!("{} attempts aborted and were run again", database.metrics().aborted_total());
    Ok(())
}

/// Bids `raise` more than the highest bid or, if `stale`, more than an earlier bid. Returns whether
/// the bid was accepted.
fn bid(
    database: &Database,
    items: &weft::Table<Item>,
    bids: &weft::Table<Bid>,
    bidder: u32,
    raise: u64,
    stale: bool,
) -> Result<bool, Error> {
    database.transact(|tx| {
        let item = tx.get(items, &ITEM)?.expect("the item is there");
        let seen = if stale { item.highest_bid.saturating_sub(10) } else { item.highest_bid };
        let amount = seen + raise;
        if amount <= item.highest_bid {
            return Ok(false);
        }
        let number = item.bids + 1;
        tx.update(items, &ITEM, |item| {
            item.highest_bid = amount;
            item.highest_bidder = Some(bidder);
            item.bids = number;
        })?;
        tx.insert(bids, Bid { item: ITEM, number, bidder, amount })?;
        Ok(true)
    })
}

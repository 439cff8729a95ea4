//! Crashes at random moments under phase reconciliation, in split phases, in joined phases and between them. The
//! log holds operations on a split row one by one, and no version of the row. The operations survive as whole
//! transactions, and each is applied exactly once.

use weft::durability::SimulatedDisk;
use weft::operation::{Add, Max, OrderedPut, Take, TopK, TopKInsert};
use weft::protocol::{Silo, TwoPhaseLocking};
use weft::{Acknowledge, Database, DurabilityOptions, Error, Record, Table, column_of};
use weft_protocols::PhaseOptions;
use weft_protocols::doppel::{JoinedProtocol, PhaseReconciliation};
use weft_protocols::{BuilderExt, LabelledDatabase};

use super::concurrent::{Workplace, rounds};
use super::place;
use weft_tests::{Seed, stress};

/// The row to which all writers add.
#[derive(Clone, Debug, Record)]
struct Tally {
    #[record(key)]
    id: u32,
    /// The number of transactions.
    sum: i64,
    /// The greatest stamp of all transactions.
    highest: i64,
    /// The writer of the greatest stamp.
    leader: weft::operation::Ordered<i64, u32>,
    /// The greatest stamps and their writers.
    top: TopK<i64, u32, 4>,
    /// The number of updates of the whole row.
    rewritten: i64,
    /// Each transaction takes one piece.
    #[record(min = 0)]
    stock: u64,
}

/// The stock in the beginning. It is empty after a few transactions, and filled up again by the next.
const STOCK: u64 = 7;

/// What a writer has done so far.
#[derive(Clone, Copy, Debug, Record)]
#[record(storage = "hash")]
struct Writer {
    #[record(key)]
    number: u32,
    transactions: i64,
    /// How many of the transactions have updated the whole tally.
    rewrites: i64,
    /// The pieces that the transactions have taken, without those that they have given.
    pieces: i64,
}

const WRITERS: u32 = 3;

/// Returns the stamp of a writer's transaction, which is unique.
fn stamp(writer: u32, transaction: i64) -> i64 {
    transaction * i64::from(WRITERS) + i64::from(writer)
}

struct Tallies<J: JoinedProtocol> {
    database: Database<PhaseReconciliation<J>>,
    tallies: Table<Tally>,
    writers: Table<Writer>,
}

impl<J: JoinedProtocol> Tallies<J> {
    fn label(&self) {
        let labelled = [
            self.database.label_split::<_, _, Add<_>>(&self.tallies, &0, column_of!(Tally.sum)),
            self.database.label_split::<_, _, Max<_>>(&self.tallies, &0, column_of!(Tally.highest)),
            self.database.label_split::<_, _, OrderedPut<_, _>>(
                &self.tallies,
                &0,
                column_of!(Tally.leader),
            ),
            self.database.label_split::<_, _, TopKInsert<_, _>>(
                &self.tallies,
                &0,
                column_of!(Tally.top),
            ),
            self.database.label_split::<_, _, Take<_>>(&self.tallies, &0, column_of!(Tally.stock)),
        ];
        labelled.into_iter().for_each(|labelled| labelled.expect("the row exists"));
    }
}

impl<J: JoinedProtocol> Workplace for Tallies<J> {
    type Protocol = PhaseReconciliation<J>;

    fn open(disk: &SimulatedDisk, options: DurabilityOptions, manual: bool) -> Self {
        let builder = Database::builder()
            .protocol::<PhaseReconciliation<J>>()
            .table::<Tally>()
            .table::<Writer>();
        let builder =
            builder.phases(PhaseOptions::new().length(std::time::Duration::from_millis(1)));
        let database = place(builder, disk, options, manual).open().unwrap();
        let (tallies, writers) = (database.table().unwrap(), database.table().unwrap());
        let tallies = Tallies { database, tallies, writers };
        if tallies.database.recovered().is_some_and(|recovered| !recovered.is_new) && !manual {
            tallies.label();
        }
        tallies
    }

    fn database(&self) -> &Database<Self::Protocol> {
        &self.database
    }

    fn fill(&self) {
        let filled = self.database.transact(|tx| {
            let tally = Tally {
                id: 0,
                sum: 0,
                highest: 0,
                leader: Default::default(),
                top: Default::default(),
                rewritten: 0,
                stock: STOCK,
            };
            tx.insert(&self.tallies, tally)?;
            (0..WRITERS).try_for_each(|number| {
                tx.insert(&self.writers, Writer { number, transactions: 0, rewrites: 0, pieces: 0 })
            })
        });
        filled.map_err(|error: Error| error).unwrap();
        self.label();
    }

    fn step(
        &self,
        writer: usize,
        acknowledge: Acknowledge,
        random: &mut fastrand::Rng,
    ) -> Option<u64> {
        let number = writer as u32;
        let rewrites = random.u8(..24) == 0;
        let rolls_back = random.u8(..16) == 0;
        let done = self.database.transact(|tx| {
            let row = tx.get(&self.writers, &number)?.expect("the writer exists");
            let transactions = row.transactions + 1;
            let stamp = stamp(number, transactions);
            tx.add(&self.tallies, &0, column_of!(Tally.sum), 1)?;
            tx.max(&self.tallies, &0, column_of!(Tally.highest), stamp)?;
            tx.ordered_put(&self.tallies, &0, column_of!(Tally.leader), stamp, number)?;
            tx.top_k_insert(&self.tallies, &0, column_of!(Tally.top), stamp, number)?;
            let stock = column_of!(Tally.stock);
            let pieces = match tx.take(&self.tallies, &0, stock, 2) {
                Err(Error::Failure(weft::Failure::NotEnough { .. })) => {
                    tx.give(&self.tallies, &0, stock, 9)?;
                    -9
                }
                taken => taken.map(|()| 2)?,
            };
            if rewrites {
                tx.update(&self.tallies, &0, |tally| tally.rewritten += 1)?;
            }
            tx.update(&self.writers, &number, |row| {
                row.transactions = transactions;
                row.rewrites += i64::from(rewrites);
                row.pieces += pieces;
            })?;
            match rolls_back {
                true => Err(weft::Failure::Closed.into()),
                false => Ok(transactions),
            }
        });
        let transactions = done.map_err(|error: Error| error).ok()?;
        match acknowledge {
            Acknowledge::Durable => Some(transactions as u64),
            _ if random.u8(..8) == 0 => {
                self.database.flush().unwrap();
                Some(transactions as u64)
            }
            _ => None,
        }
    }

    fn check(&self, circumstances: &str) -> Vec<u64> {
        let seen: Result<_, Error> = self.database.transact(|tx| {
            let tally = tx.get(&self.tallies, &0)?.expect("the tally exists").clone();
            let writers =
                (0..WRITERS).map(|number| Ok(*tx.get(&self.writers, &number)?.expect("a writer")));
            Ok((tally, writers.collect::<Result<Vec<_>, Error>>()?))
        });
        let (tally, writers) = seen.unwrap();
        let sum: i64 = writers.iter().map(|writer| writer.transactions).sum();
        assert_eq!(tally.sum, sum, "{tally:?} of {writers:?}: {circumstances}");
        let rewrites: i64 = writers.iter().map(|writer| writer.rewrites).sum();
        assert_eq!(tally.rewritten, rewrites, "{tally:?} of {writers:?}: {circumstances}");
        let pieces: i64 = writers.iter().map(|writer| writer.pieces).sum();
        let left = tally.stock as i64 + pieces;
        assert_eq!(left, STOCK as i64, "{tally:?} of {writers:?}: {circumstances}");
        let mut stamps: Vec<(i64, u32)> = writers
            .iter()
            .flat_map(|writer| {
                let last = writer.transactions;
                let of_writer = (1..=last).rev().take(4);
                of_writer.map(|number| (stamp(writer.number, number), writer.number))
            })
            .collect();
        stamps.sort_unstable_by(|one, other| other.cmp(one));
        stamps.truncate(4);
        let top: Vec<_> = tally.top.tuples().map(|tuple| (tuple.order, tuple.value)).collect();
        assert_eq!(top, stamps, "{tally:?} of {writers:?}: {circumstances}");
        let highest = stamps.first().copied();
        assert_eq!(tally.highest, highest.map_or(0, |(stamp, _)| stamp), "{circumstances}");
        let leader = tally.leader.tuple().map(|tuple| (tuple.order, tuple.value));
        assert_eq!(leader, highest, "{circumstances}");
        writers.iter().map(|writer| writer.transactions as u64).collect()
    }
}

#[test]
fn operations_on_split_rows_survive_crashes_as_whole_transactions() {
    let seed = Seed::draw();
    rounds::<Tallies<Silo>>(&seed, 18 * stress());
    rounds::<Tallies<TwoPhaseLocking>>(&seed, 9 * stress());
}

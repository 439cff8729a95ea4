//! Tests of Doppel's phases in virtual time, and of reading after a run that ends in a split phase.

use std::time::Duration;

use fastrand::Rng;
use weft::protocol::PhaseMetrics;
use weft::{Database, Error, Record, Table, column_of};
use weft_protocols::{BuilderExt, Doppel, PhaseOptions};
use weft_sim::{Options, Profile, Program, cycles, run};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "counters", storage = "hash")]
struct Counter {
    #[record(key)]
    number: u32,
    count: i64,
}

const CORES: u64 = 8;
const COUNTERS: u32 = 64;
const LENGTH: Duration = Duration::from_micros(200);
const RUN: Duration = Duration::from_millis(3);

struct Counting {
    database: Database<Doppel>,
    counters: Table<Counter>,
    phases: PhaseMetrics,
    increments: i64,
}

fn phases_of(database: &Database<Doppel>) -> PhaseMetrics {
    database.metrics().phases.expect("the protocol has phases")
}

/// Increments counters on eight virtual cores, the first counter nine times out of ten, until the run ends in a
/// split phase.
fn count(seed: u64) -> Counting {
    let phases = PhaseOptions::new().length(LENGTH);
    let builder = Database::builder().protocol::<Doppel>().table::<Counter>().phases(phases);
    let database = builder.open().unwrap();
    let counters = database.table().unwrap();
    let loaded = database.transact(|tx| -> Result<(), Error> {
        (0..COUNTERS).try_for_each(|number| tx.insert(&counters, Counter { number, count: 0 }))
    });
    loaded.unwrap();
    let profile = Profile::named("xeon-8x10").unwrap();
    let end = RUN.as_micros() as u64 * profile.megahertz;
    let program = |core: u64| {
        let (database, counters) = (&database, &counters);
        move || {
            let mut random = Rng::with_seed(seed << 8 | core);
            while cycles().expect("this is a virtual core") < end || !phases_of(database).is_split {
                let is_hot = random.u8(..10) > 0;
                let number = if is_hot { 0 } else { random.u32(1..COUNTERS) };
                let added: Result<(), Error> =
                    database.transact(|tx| tx.add(counters, &number, column_of!(Counter.count), 1));
                added.unwrap();
            }
        }
    };
    let programs = (0..CORES).map(|core| Box::new(program(core)) as Program<'_>).collect();
    let before = database.metrics().committed;
    run(&Options::new(profile, seed), programs).unwrap();
    let phases = phases_of(&database);
    println!("seed {seed}: {phases:?}");
    let increments = (database.metrics().committed - before) as i64;
    Counting { database, counters, phases, increments }
}

/// After a run virtual time stands still. A reader can still end the last split phase, and no increment is lost.
#[test]
fn rows_split_at_the_end_of_a_run_can_be_read() {
    for seed in 1..3 {
        let Counting { database, counters, phases, increments } = count(seed);
        assert!(phases.is_split && phases.split_phases > 2, "seed {seed}: {phases:?}");
        let sum = database.transact(|tx| {
            (0..COUNTERS).try_fold(0, |sum, number| -> Result<i64, Error> {
                Ok(sum + tx.get(&counters, &number)?.expect("the counter exists").count)
            })
        });
        assert_eq!(sum.unwrap(), increments, "seed {seed}");
    }
}

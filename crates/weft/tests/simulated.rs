//! Tests of the engine on the simulated machine: `cargo test-simulated`.
//!
//! Eight virtual cores of the papers' Haswell transfer money between accounts, record postings, and check the
//! total. They do so under every protocol that allows several workers, with regions in the machine's RTM where the
//! protocol uses regions. Further tests cover elided locks and phases.
#![cfg(weft_sim)]

#[path = "simulated/phases.rs"]
mod phases;

use std::process::Command;

use fastrand::Rng;
use weft::htm::lock::{Elidable, Lock, Mcs, Mode, OccRwLock, SrwLock, Tatas};
use weft::htm::word::{Ordering, Word};
use weft::htm::{Backend, Choice, Htm, Regions, RetryPolicy, Statistics, StatisticsReader};
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table};
use weft_protocols::with_protocol;
use weft_sim::{Options, Profile, Program, Report, Schedule, run};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "accounts", storage = "hash")]
struct Account {
    #[record(key)]
    number: u32,
    cents: i64,
}

/// The last posting of each core. It moves through the tree, because each transaction deletes it and inserts the
/// next.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "postings", key(core, sequence))]
#[record(index(name = by_text, columns(text)))]
struct Posting {
    core: u32,
    sequence: u32,
    cents: i64,
    text: String,
}

const ACCOUNTS: u32 = 24;
const OPENING_CENTS: i64 = 1_000;
const CORES: u32 = 8;
const PROTOCOLS: [&str; 8] =
    ["dbx", "htm-naive", "2pl", "silo", "occ", "tso", "dbx-spin", "2pl-nowait"];

struct Bank<P: Protocol> {
    database: Database<P>,
    accounts: Table<Account>,
    postings: Table<Posting>,
}

impl<P: Protocol> Bank<P> {
    fn open(choice: Choice) -> Self {
        let builder =
            Database::builder().protocol::<P>().htm(choice).table::<Account>().table::<Posting>();
        let database = builder.open().unwrap();
        let bank = Bank {
            accounts: database.table().unwrap(),
            postings: database.table().unwrap(),
            database,
        };
        let load = bank.database.transact(|tx| {
            (0..ACCOUNTS).try_for_each(|number| {
                tx.insert(&bank.accounts, Account { number, cents: OPENING_CENTS })
            })
        });
        load.unwrap_or_else(|error: Error| panic!("{error}"));
        bank
    }

    /// Moves money between two random accounts, and replaces the core's posting.
    fn transfer(&self, core: u32, sequence: u32, random: &mut Rng) -> Result<(), Error> {
        let from = random.u32(0..ACCOUNTS);
        let to = (from + random.u32(1..ACCOUNTS)) % ACCOUNTS;
        let cents = random.i64(1..100);
        self.database.transact(|tx| {
            tx.update(&self.accounts, &from, |account| account.cents -= cents)?.expect("it exists");
            tx.update(&self.accounts, &to, |account| account.cents += cents)?.expect("it exists");
            if sequence > 0 {
                assert!(tx.delete(&self.postings, &(core, sequence - 1))?);
            }
            let text = format!("{from} to {to}");
            tx.insert(&self.postings, Posting { core, sequence, cents, text })
        })
    }

    /// Takes money, and then fails because it inserts an existing posting. So the money must be restored.
    fn refused(&self, core: u32, sequence: u32, random: &mut Rng) {
        let from = random.u32(0..ACCOUNTS);
        let result: Result<(), Error> = self.database.transact(|tx| {
            tx.update(&self.accounts, &from, |account| account.cents -= 1)?.expect("it exists");
            tx.insert(&self.postings, Posting { core, sequence, cents: 1, text: String::new() })
        });
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Failure(Failure::DuplicateKey { .. })), "{error}");
    }

    fn total(&self) -> Result<i64, Error> {
        self.database.transact(|tx| {
            (0..ACCOUNTS).map(|number| Ok(tx.get(&self.accounts, &number)?.unwrap().cents)).sum()
        })
    }

    /// Runs transfers on all cores, and at random refused transactions and checks of the total.
    fn work(&self, options: &Options, transfers: u32) -> Report {
        let program = |core: u32| {
            move || {
                let mut random = Rng::with_seed(options.seed << 8 | u64::from(core));
                for sequence in 0..transfers {
                    self.transfer(core, sequence, &mut random).unwrap();
                    if random.u8(..) < 60 {
                        self.refused(core, sequence, &mut random);
                    }
                    if random.u8(..) < 20 {
                        assert_eq!(self.total().unwrap(), OPENING_CENTS * i64::from(ACCOUNTS));
                    }
                }
            }
        };
        let programs = (0..CORES).map(|core| Box::new(program(core)) as Program<'_>).collect();
        run(options, programs).unwrap_or_else(|failure| panic!("{}: {failure}", P::NAME))
    }

    /// Checks the total and the postings after all cores have finished.
    fn check(&self, transfers: u32) {
        assert_eq!(self.total().unwrap(), OPENING_CENTS * i64::from(ACCOUNTS), "{}", P::NAME);
        let postings = self.database.transact(|tx| {
            let all: Result<Vec<_>, Error> = tx.range(&self.postings, ..).collect();
            all.map(|all| all.iter().map(|posting| (posting.core, posting.sequence)).collect())
        });
        let postings: Vec<(u32, u32)> = postings.unwrap_or_else(|error: Error| panic!("{error}"));
        let expected: Vec<_> = (0..CORES).map(|core| (core, transfers - 1)).collect();
        assert_eq!(postings, expected, "{}", P::NAME);
        let committed = self.database.metrics().committed;
        assert!(committed >= u64::from(transfers * CORES), "{}: {committed}", P::NAME);
    }
}

fn haswell(seed: u64) -> Options {
    Options::new(Profile::named("haswell-4c8t").unwrap(), seed)
}

/// In virtual time every protocol isolates its transactions. Regions run in the simulated hardware, where most
/// commit and some conflict.
#[test]
fn money_is_kept_in_virtual_time() {
    const TRANSFERS: u32 = 200;
    for name in PROTOCOLS {
        let regions = with_protocol!(name, |P| {
            let bank = Bank::<P>::open(Choice::Auto);
            bank.work(&haswell(1), TRANSFERS);
            bank.check(TRANSFERS);
            assert_eq!(bank.database.htm_backend(), Backend::Simulated);
            (P::USES_HTM, bank.database.metrics().htm)
        });
        let (uses_htm, htm) = regions.expect("the protocol exists");
        println!("{name}: {htm:?}");
        assert!(htm.committed > 0, "{name}: the indexes use regions");
        if uses_htm {
            assert!(htm.aborted_conflict > 0, "{name}: eight cores on {ACCOUNTS} accounts");
        }
    }
}

/// Every protocol isolates its transactions under random interleavings that virtual time would not produce.
#[test]
fn money_is_kept_at_random() {
    const TRANSFERS: u32 = 12;
    for seed in 0..20 {
        for schedule in [
            Schedule::Random { switch_one_in: 1 + seed as u32 % 8 },
            Schedule::Priorities { depth: 4, points: 100_000 },
        ] {
            for name in PROTOCOLS {
                for choice in [Choice::Auto, Choice::Software] {
                    let kept = with_protocol!(name, |P| {
                        let bank = Bank::<P>::open(choice);
                        let options = haswell(seed).schedule(schedule.clone());
                        bank.work(&options, TRANSFERS);
                        bank.check(TRANSFERS);
                    });
                    kept.expect("the protocol exists");
                }
            }
        }
    }
}

/// The environment variable for the child processes that [`seed_repeats_its_run_in_every_process`] compares.
const CHILD: &str = "WEFT_SIMULATED_CHILD";

/// The same seed gives the same virtual times, accesses and aborts in another process, whose memory is at other
/// addresses. Another seed gives others.
#[test]
fn seed_repeats_its_run_in_every_process() {
    let summary = |seed: u64| {
        let of = |name: &str| {
            let summary = with_protocol!(name, |P| {
                let bank = Bank::<P>::open(Choice::Auto);
                let Report { cycles, clocks, points, .. } = bank.work(&haswell(seed), 60);
                let (htm, aborted) = (bank.database.metrics().htm, bank.database.metrics().aborted);
                format!("run {name} {cycles} {clocks:?} {points} {htm:?} {aborted:?}\n")
            });
            summary.expect("the protocol exists")
        };
        PROTOCOLS.map(of).concat()
    };
    if let Ok(seed) = std::env::var(CHILD) {
        println!("{}", summary(seed.parse().unwrap()));
        return;
    }
    let child = |seed: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["seed_repeats_its_run_in_every_process", "--exact", "--nocapture"]);
        let output = child.env(CHILD, seed).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let runs: Vec<String> =
            text.lines().filter(|line| line.contains("run ")).map(str::to_owned).collect();
        assert!(output.status.success() && runs.len() >= PROTOCOLS.len(), "{text}");
        runs
    };
    let first = child("1");
    for (one, other) in first.iter().zip(&child("1")) {
        assert_eq!(one, other);
    }
    for (one, other) in first.iter().zip(&child("2")) {
        assert_ne!(one, other);
    }
}

/// Regions elide the sections of a lock, conflict, and take the lock in the end. In every case no section sees
/// another half done, and no increment is lost.
fn sections_exclude_each_other<L: Lock>(schedule: Schedule, seed: u64) {
    const ROUNDS: u64 = 60;
    let context = format!("{}, {schedule:?}, seed {seed}", L::NAME);
    let htm = Htm::open(Choice::Rtm, RetryPolicy::default()).expect("the machine has RTM");
    let lock = Elidable::<L>::new(true);
    let counters = [Word::new(0), Word::new(0)];
    let each: Vec<Regions> = (0..CORES).map(|_| Regions::new(&htm)).collect();
    let readers: Vec<_> = each.iter().map(Regions::reader).collect();
    let program = |regions: Regions| -> Program<'_> {
        let (lock, counters, context) = (&lock, &counters, &context);
        Box::new(move || {
            for _ in 0..ROUNDS {
                // All Relaxed: the lock orders them, or the region that elides it.
                let both = || counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
                lock.section(Mode::Exclusive, &regions, || {
                    let [first, second] = both();
                    counters[0].store(first + 1, Ordering::Relaxed);
                    counters[1].store(second + 1, Ordering::Relaxed);
                });
                let [first, second] = lock.section(Mode::Shared, &regions, both);
                assert_eq!(first, second, "{context}");
            }
        })
    };
    let options = Options::new(Profile::named("haswell-4c8t").unwrap(), seed).schedule(schedule);
    let ran = run(&options, each.into_iter().map(program).collect());
    ran.unwrap_or_else(|failure| panic!("{context}: {failure}"));
    let expected = u64::from(CORES) * ROUNDS;
    let counted = counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
    assert_eq!(counted, [expected; 2], "{context}");
    let statistics: Statistics = readers.iter().map(StatisticsReader::statistics).sum();
    let ended = statistics.committed + statistics.fallbacks;
    assert_eq!(ended, 2 * expected, "{context}: {statistics:?}");
    assert!(statistics.committed > 0 && statistics.fallbacks > 0, "{context}: {statistics:?}");
    assert!(statistics.aborted_conflict > 0, "{context}: {statistics:?}");
}

#[test]
fn elided_sections_exclude_each_other() {
    for seed in 1..=5 {
        for schedule in [Schedule::Time, Schedule::Random { switch_one_in: 3 }] {
            sections_exclude_each_other::<Tatas>(schedule.clone(), seed);
            sections_exclude_each_other::<Mcs>(schedule.clone(), seed);
            sections_exclude_each_other::<OccRwLock>(schedule.clone(), seed);
            sections_exclude_each_other::<SrwLock>(schedule, seed);
        }
    }
}

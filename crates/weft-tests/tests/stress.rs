//! Random transactions on many threads, with invariants that hold only if transactions are serializable.
//!
//! The inputs come from a seed that is printed if a test fails. (The seed does not fix the interleaving, so repeat
//! the run a few times.) Threads yield at random between operations, because most machines that run these tests
//! have fewer cores than the tests have threads. A transaction that sees a broken invariant ends with an error or
//! a panic of its own. The engine validates before it returns these, so each one that a test gets reports a state
//! that the database really had.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::schema::Violation;
use weft::{Database, Error, Failure, Record, Table, Transaction};

use weft_tests::{Seed, chaos, for_each_protocol, on_a_thread, panic_quietly, stress, threads};

/// The error of a transaction that has seen a broken invariant.
#[derive(Debug)]
#[allow(dead_code, reason = "read by who reads the failure")]
enum Broken {
    Invariant(String),
    Engine(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Broken::Engine(error)
    }
}

/// Runs `work` on as many threads as the protocol allows, each with a random generator of its own.
fn on_threads<P: Protocol>(seed: &Seed, work: impl Fn(usize, &mut fastrand::Rng) + Sync) {
    weft_tests::on_threads(threads::<P>(), |thread| work(thread, &mut seed.random(thread)));
}

// ---- a bank -----------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, Record)]
#[record(check = Account::check_balance)]
struct Account {
    #[record(key)]
    id: u64,
    balance: i64,
    /// Copies of the balance. They expose a read that mixes two versions.
    copy: [i64; 40],
}

#[derive(Clone, Copy, Debug, Record)]
#[record(storage = "hash")]
struct Vault {
    #[record(key)]
    id: u64,
    balance: i64,
}

impl Account {
    fn check_balance(&self) -> Result<(), Violation> {
        if self.balance < 0 { Err("overdrawn".into()) } else { Ok(()) }
    }
}

const ACCOUNTS: u64 = 12;
const TOTAL: i64 = 100 * 2 * ACCOUNTS as i64;

struct Bank<P: Protocol> {
    database: Database<P>,
    accounts: Table<Account>,
    vaults: Table<Vault>,
}

impl<P: Protocol> Bank<P> {
    fn new() -> Self {
        let builder = Database::builder().protocol::<P>().table::<Account>().table::<Vault>();
        let database = builder.open().unwrap();
        let (accounts, vaults) = (database.table().unwrap(), database.table().unwrap());
        database
            .transact(|tx| {
                (0..ACCOUNTS).try_for_each(|id| {
                    tx.insert(&accounts, Account { id, balance: 100, copy: [100; 40] })?;
                    tx.insert(&vaults, Vault { id, balance: 100 })
                })
            })
            .unwrap();
        Bank { database, accounts, vaults }
    }

    fn add(&self, tx: &Transaction<'_, P>, id: u64, amount: i64) -> Result<(), Error> {
        let changed = if id < ACCOUNTS {
            tx.update(&self.accounts, &id, |account| {
                account.balance += amount;
                account.copy.fill(account.balance);
            })?
        } else {
            tx.update(&self.vaults, &(id - ACCOUNTS), |vault| vault.balance += amount)?
        };
        assert!(changed.is_some());
        Ok(())
    }

    fn transfer(&self, random: &mut fastrand::Rng) -> Result<bool, Broken> {
        let (from, to) = (random.u64(..2 * ACCOUNTS), random.u64(..2 * ACCOUNTS));
        let amount = random.i64(1..150);
        let gives_up = random.u8(..10) == 0;
        self.database.transact(|tx| {
            match self.add(tx, from, -amount) {
                // The failed update has no effect, and the transaction may go on.
                Err(Error::Failure(Failure::Constraint { .. })) => return Ok(false),
                other => other?,
            }
            chaos(random);
            self.add(tx, to, amount)?;
            if gives_up {
                // The total holds in the middle of a transaction, too, with its own writes.
                self.check_total(tx, random)?;
            }
            Ok(true)
        })
    }

    /// Returns the sum of all balances, as this transaction sees it.
    fn total(&self, tx: &Transaction<'_, P>, random: &mut fastrand::Rng) -> Result<i64, Error> {
        let mut total = 0;
        if random.bool() {
            for account in tx.range(&self.accounts, ..) {
                total += account?.balance;
                chaos(random);
            }
        } else {
            for id in 0..ACCOUNTS {
                total += tx.get(&self.accounts, &id)?.expect("accounts stay").balance;
                chaos(random);
            }
        }
        for id in 0..ACCOUNTS {
            total += tx.get(&self.vaults, &id)?.expect("vaults stay").balance;
        }
        Ok(total)
    }

    fn check_total(
        &self,
        tx: &Transaction<'_, P>,
        random: &mut fastrand::Rng,
    ) -> Result<(), Broken> {
        for account in tx.range(&self.accounts, ..) {
            let account = account?;
            // No reader ever sees half a row, not even in a transaction that cannot commit.
            assert_eq!(account.copy, [account.balance; 40]);
        }
        match self.total(tx, random)? {
            TOTAL => Ok(()),
            total if random.bool() => Err(Broken::Invariant(format!("{total} in all"))),
            _ => panic_quietly("the total has changed"),
        }
    }

    fn audit(&self, random: &mut fastrand::Rng) {
        let audited = catch_unwind(AssertUnwindSafe(|| {
            self.database.transact(|tx| self.check_total(tx, random))
        }));
        audited.expect("the engine returns a panic only if it was justified").unwrap();
    }

    /// Checks the total inside an update's closure, together with reads of other rows.
    fn audit_in_an_update(&self, random: &mut fastrand::Rng) {
        let id = random.u64(..ACCOUNTS);
        let result = self.database.transact(|tx| -> Result<(), Broken> {
            tx.update(&self.accounts, &id, |account| {
                chaos(random);
                let mut total = account.balance;
                for other in (0..ACCOUNTS).filter(|other| *other != id) {
                    total += tx.get(&self.accounts, &other)?.expect("accounts stay").balance;
                }
                for vault in 0..ACCOUNTS {
                    total += tx.get(&self.vaults, &vault)?.expect("vaults stay").balance;
                }
                match total {
                    TOTAL => Ok(()),
                    _ => panic_quietly("the total has changed inside an update"),
                }
            })?
            .expect("accounts stay")
        });
        result.unwrap();
    }
}

#[test]
fn a_bank_keeps_its_money() {
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let bank = Bank::<P>::new();
        on_threads::<P>(&seed, |thread, random| {
            for _ in 0..400 * stress() {
                match random.u8(..8) {
                    0 => bank.audit(random),
                    1 if thread % 2 == 0 => bank.audit_in_an_update(random),
                    _ => drop(bank.transfer(random).unwrap()),
                }
            }
        });
        bank.audit(&mut seed.random(99));
    });
}

// ---- counters ---------------------------------------------------------------------------------

#[test]
fn exactly_the_committed_increments_are_counted() {
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let database = Database::builder().protocol::<P>().table::<Vault>().open().unwrap();
        let counters = database.table::<Vault>().unwrap();
        let acknowledged = [const { Word::new(0) }; 3];
        on_threads::<P>(&seed, |_, random| {
            for _ in 0..3000 * stress() {
                let id = random.u64(..3);
                let rolls_back = random.u8(..8) == 0;
                let result = database.transact(|tx| -> Result<(), Error> {
                    // The first transaction creates the counter.
                    if tx.update(&counters, &id, |counter| counter.balance += 1)?.is_none() {
                        chaos(random);
                        tx.insert(&counters, Vault { id, balance: 1 })?;
                    }
                    chaos(random);
                    if rolls_back { Err(Failure::Closed.into()) } else { Ok(()) }
                });
                assert_eq!(result.is_err(), rolls_back, "{result:?}");
                if result.is_ok() {
                    acknowledged[id as usize].fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        for (id, acknowledged) in (0..).zip(&acknowledged) {
            let counted = database.transact(|tx| {
                Ok::<_, Error>(tx.get(&counters, &id)?.map_or(0, |counter| counter.balance))
            });
            assert_eq!(counted.unwrap() as u64, acknowledged.load(Ordering::SeqCst));
        }
    });
}

// ---- phantoms ---------------------------------------------------------------------------------

#[derive(Clone, Debug, Record)]
struct Half {
    #[record(key)]
    id: String,
    #[record(index)]
    side: u8,
    number: u64,
}

#[derive(Clone, Debug, Record)]
#[record(storage = "hash")]
struct HashedHalf {
    #[record(key)]
    id: String,
    number: u64,
}

fn halves(number: u64) -> [Half; 2] {
    // The halves are far apart in the tree, with other keys in between.
    [0, 1].map(|side| Half { id: format!("{side}/{:0>30}/{number}", number % 7), side, number })
}

#[test]
fn both_halves_of_a_pair_are_visible_together() {
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let builder = Database::builder().protocol::<P>().table::<Half>().table::<HashedHalf>();
        let database = builder.open().unwrap();
        let ordered = database.table::<Half>().unwrap();
        let hashed = database.table::<HashedHalf>().unwrap();

        let toggle = |random: &mut fastrand::Rng| {
            let number = random.u64(..60);
            let order = random.bool();
            database.transact(|tx| -> Result<(), Error> {
                let mut pair = halves(number);
                if order {
                    pair.reverse();
                }
                for half in pair {
                    if tx.delete(&ordered, &half.id)? {
                        assert!(tx.delete(&hashed, &half.id)?);
                    } else {
                        let (id, number) = (half.id.clone(), half.number);
                        tx.insert(&ordered, half)?;
                        tx.insert(&hashed, HashedHalf { id, number })?;
                    }
                    chaos(random);
                }
                Ok(())
            })
        };
        let check = |random: &mut fastrand::Rng| {
            let (way, descending) = (random.u8(..4), random.bool());
            database.transact(|tx| -> Result<(), Broken> {
                let scan = |side: &str, number: u8| {
                    let scan = match way {
                        0 | 1 => tx.range(&ordered, format!("{side}/")..format!("{side}0")),
                        _ => tx.prefix_by(&ordered, Half::SIDE, &number),
                    };
                    if descending { scan.descending() } else { scan }
                };
                let read = |side: &str, number| -> Result<Vec<u64>, Error> {
                    scan(side, number).map(|half| Ok(half?.number)).collect()
                };
                let left = read("0", 0)?;
                chaos(random);
                let right = if way == 1 {
                    let mut found = Vec::new();
                    for number in 0..60 {
                        let [_, half] = halves(number);
                        found.extend(tx.get(&hashed, &half.id)?.map(|half| half.number));
                    }
                    found
                } else {
                    read("1", 1)?
                };
                let (mut left_sorted, mut right_sorted) = (left.clone(), right.clone());
                left_sorted.sort_unstable();
                right_sorted.sort_unstable();
                if left_sorted == right_sorted {
                    Ok(())
                } else {
                    Err(Broken::Invariant(format!("{left:?} and {right:?}")))
                }
            })
        };
        on_threads::<P>(&seed, |_, random| {
            for _ in 0..700 * stress() {
                match random.u8(..3) {
                    0 => check(random).unwrap(),
                    _ => toggle(random).unwrap(),
                }
            }
        });
        check(&mut seed.random(99)).unwrap();
    });
}

// ---- write skew -------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, Record)]
#[record(key(shift, name))]
struct Doctor {
    shift: u8,
    name: u8,
    #[record(index)]
    on_call: bool,
}

#[test]
fn some_doctor_is_always_on_call() {
    const DOCTORS: u8 = 3;
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let database = Database::builder().protocol::<P>().table::<Doctor>().open().unwrap();
        let doctors = database.table::<Doctor>().unwrap();
        database
            .transact(|tx| {
                (0..2 * DOCTORS).try_for_each(|number| {
                    let (shift, name) = (number / DOCTORS, number % DOCTORS);
                    tx.insert(&doctors, Doctor { shift, name, on_call: true })
                })
            })
            .unwrap();
        // Counts in one of three ways, each with another kind of read.
        let on_call = |tx: &Transaction<'_, P>, shift: u8, way: u8| -> Result<usize, Error> {
            let mut count = 0;
            match way {
                0 => {
                    for name in 0..DOCTORS {
                        let doctor = tx.get(&doctors, &(shift, name))?;
                        count += usize::from(doctor.expect("doctors always exist").on_call);
                    }
                }
                1 => {
                    for doctor in tx.prefix(&doctors, &shift) {
                        count += usize::from(doctor?.on_call);
                    }
                }
                _ => {
                    for doctor in tx.prefix_by(&doctors, Doctor::ON_CALL, &true) {
                        count += usize::from(doctor?.shift == shift);
                    }
                }
            }
            Ok(count)
        };
        on_threads::<P>(&seed, |_, random| {
            for _ in 0..600 * stress() {
                let (shift, name) = (random.u8(..2), random.u8(..DOCTORS));
                let way = random.u8(..3);
                let leaves = random.u8(..3) > 0;
                let result = database.transact(|tx| -> Result<(), Broken> {
                    let count = on_call(tx, shift, way)?;
                    chaos(random);
                    if count == 0 {
                        return Err(Broken::Invariant(format!("shift {shift} is empty")));
                    }
                    if !leaves || count > 1 {
                        tx.update(&doctors, &(shift, name), |doctor| doctor.on_call = !leaves)?;
                    }
                    chaos(random);
                    // If this doctor was the last one on call, the transaction has not let them leave.
                    match on_call(tx, shift, (way + 1) % 3)? {
                        0 => Err(Broken::Invariant("the last doctor left".into())),
                        _ => Ok(()),
                    }
                });
                result.unwrap();
            }
        });
    });
}

// ---- secondary indexes ------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Record)]
struct User {
    #[record(key)]
    id: u64,
    #[record(unique)]
    email: String,
    #[record(index)]
    group: u8,
}

#[test]
fn one_of_racing_unique_inserts_wins() {
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let database = Database::builder().protocol::<P>().table::<User>().open().unwrap();
        let users = database.table::<User>().unwrap();
        let rounds = 120 * stress() as u64;
        let winners: Vec<Word> = (0..rounds).map(|_| Word::new(0)).collect();
        on_threads::<P>(&seed, |thread, random| {
            for round in 0..rounds {
                let id = round * 100 + thread as u64;
                let email = format!("{round}@example.org");
                let result = database.transact(|tx| -> Result<(), Error> {
                    chaos(random);
                    tx.insert(&users, User { id, email: email.clone(), group: 0 })?;
                    chaos(random);
                    Ok(())
                });
                match result {
                    Ok(()) => {
                        winners[round as usize].fetch_add(1, Ordering::SeqCst);
                    }
                    Err(Error::Failure(Failure::DuplicateKey { index, .. })) => {
                        assert_eq!(index, Some("email"));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
        assert!(winners.iter().all(|winners| winners.load(Ordering::SeqCst) == 1));
        let count = database.transact(|tx| Ok::<_, Error>(tx.range(&users, ..).count() as u64));
        assert_eq!(count.unwrap(), rounds);
    });
}

#[test]
fn all_indexes_show_the_same_rows() {
    const USERS: u64 = 40;
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let database = Database::builder().protocol::<P>().table::<User>().open().unwrap();
        let users = database.table::<User>().unwrap();
        let email = |number: u64| format!("{}{number}", "long enough for the heap ".repeat(2));

        let change = |random: &mut fastrand::Rng| {
            let (id, number, group) = (random.u64(..USERS), random.u64(..USERS), random.u8(..4));
            let what = random.u8(..4);
            let result = database.transact(|tx| -> Result<(), Error> {
                match what {
                    0 => drop(tx.delete(&users, &id)?),
                    1 => drop(tx.upsert(&users, User { id, email: email(number), group })?),
                    2 => tx.insert(&users, User { id, email: email(number), group })?,
                    _ => drop(tx.update(&users, &id, |user| {
                        (user.email, user.group) = (email(number), group);
                    })?),
                }
                chaos(random);
                Ok(())
            });
            match result {
                Ok(()) | Err(Error::Failure(Failure::DuplicateKey { .. })) => {}
                Err(other) => panic!("{other}"),
            }
        };
        let check = |random: &mut fastrand::Rng| {
            database.transact(|tx| -> Result<(), Broken> {
                let all: Vec<&User> = tx.range(&users, ..).collect::<Result<_, _>>()?;
                chaos(random);
                let mut by_group: Vec<&User> =
                    tx.range_by(&users, User::GROUP, ..).collect::<Result<_, _>>()?;
                chaos(random);
                let mut by_email: Vec<&User> =
                    tx.range_by(&users, User::EMAIL, ..).descending().collect::<Result<_, _>>()?;
                let is_sorted = by_group.is_sorted_by_key(|user| (user.group, user.id))
                    && by_email.is_sorted_by(|a, b| a.email > b.email);
                by_group.sort_unstable_by_key(|user| user.id);
                by_email.sort_unstable_by_key(|user| user.id);
                let mut found = true;
                for user in &all {
                    found &= tx.get_by(&users, User::EMAIL, &user.email)? == Some(user);
                }
                if is_sorted && found && all == by_group && all == by_email {
                    Ok(())
                } else {
                    Err(Broken::Invariant(format!("{all:?}, {by_group:?}, {by_email:?}")))
                }
            })
        };
        on_threads::<P>(&seed, |_, random| {
            for _ in 0..1200 * stress() {
                match random.u8(..4) {
                    0 => check(random).unwrap(),
                    _ => change(random),
                }
            }
        });
        check(&mut seed.random(99)).unwrap();
    });
}

// ---- the lives of rows ------------------------------------------------------------------------

/// A row that counts its creation and its drop, and detects reads after its drop.
#[derive(Debug, Record)]
#[record(volatile)]
struct Mortal {
    #[record(key)]
    id: u64,
    #[record(index)]
    group: u8,
    contents: [u64; 6],
    checksum: u64,
    text: String,
    register: &'static Register,
}

#[derive(Debug)]
struct Register {
    born: Word,
    died: Word,
}

impl Mortal {
    fn new(id: u64, contents: [u64; 6], register: &'static Register) -> Self {
        register.born.fetch_add(1, Ordering::Relaxed);
        let checksum = Self::checksum(id, &contents);
        let text = format!("a text of {checksum}, long enough for the heap");
        Mortal { id, group: (contents[0] % 3) as u8, contents, checksum, text, register }
    }

    fn checksum(id: u64, contents: &[u64; 6]) -> u64 {
        contents.iter().fold(id ^ 0x5EED, |sum, word| {
            sum.rotate_left(7) ^ word.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        })
    }

    fn check(&self) {
        let checksum = Self::checksum(self.id, &self.contents);
        assert_eq!(self.checksum, checksum, "row {} was torn, or dropped in use", self.id);
        assert!(self.text.contains(&checksum.to_string()), "row {}: {}", self.id, self.text);
    }
}

impl Clone for Mortal {
    fn clone(&self) -> Self {
        self.check();
        Mortal::new(self.id, self.contents, self.register)
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.check();
        self.checksum = !self.checksum;
        self.contents = [u64::MAX; 6];
        self.register.died.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn every_row_is_dropped_once_and_never_in_use() {
    const ROWS: u64 = 24;
    for_each_protocol!(|P| {
        let seed = Seed::draw();
        let register: &'static Register =
            Box::leak(Box::new(Register { born: Word::new(0), died: Word::new(0) }));
        let database = Database::builder().protocol::<P>().table::<Mortal>().open().unwrap();
        let mortals = database.table::<Mortal>().unwrap();

        let transaction = |random: &mut fastrand::Rng| {
            let rolls_back = random.u8(..5) == 0;
            let input = random.fork();
            let result = database.transact(|tx| -> Result<(), Error> {
                let mut random = input.clone();
                let mut held: Vec<&Mortal> = Vec::new();
                for _ in 0..random.u8(1..8) {
                    let id = random.u64(..ROWS);
                    let contents = [(); 6].map(|()| random.u64(..1 << 40));
                    match random.u8(..8) {
                        0 => drop(tx.delete(&mortals, &id)?),
                        1 => drop(tx.upsert(&mortals, Mortal::new(id, contents, register))?),
                        2 => match tx.insert(&mortals, Mortal::new(id, contents, register)) {
                            Err(Error::Failure(Failure::DuplicateKey { .. })) => {}
                            other => other?,
                        },
                        3 | 4 => {
                            tx.update(&mortals, &id, |mortal| {
                                *mortal = Mortal::new(id, contents, register);
                            })?;
                        }
                        5 => {
                            for mortal in tx.range(&mortals, id..).take(6) {
                                held.push(mortal?);
                            }
                        }
                        6 => {
                            for mortal in tx.prefix_by(&mortals, Mortal::GROUP, &1) {
                                held.push(mortal?);
                            }
                        }
                        _ => held.extend(tx.get(&mortals, &id)?),
                    }
                    chaos(&mut random);
                }
                chaos(&mut random);
                held.iter().for_each(|mortal| mortal.check());
                if rolls_back { Err(Failure::Closed.into()) } else { Ok(()) }
            });
            assert_eq!(result.is_err(), rolls_back, "{result:?}");
        };
        on_threads::<P>(&seed, |_, random| {
            // Each half runs on another thread, so workers end with garbage while others go on.
            for _ in 0..2 {
                on_a_thread(|| (0..300 * stress()).for_each(|_| transaction(random)));
            }
        });
        drop((database, mortals));
        let (born, died) =
            (register.born.load(Ordering::SeqCst), register.died.load(Ordering::SeqCst));
        assert!(born > 1000);
        assert_eq!(born, died, "rows were dropped twice, or never");
    });
}

/// A thread that has replaced a row may drop it long after another thread has deleted the record and reused its
/// memory.
#[test]
fn a_replaced_row_may_outlive_its_record() {
    for_each_protocol!(|P| {
        let register: &'static Register =
            Box::leak(Box::new(Register { born: Word::new(0), died: Word::new(0) }));
        let database = Database::builder().protocol::<P>().table::<Mortal>().open().unwrap();
        let mortals = database.table::<Mortal>().unwrap();
        let insert = |id| {
            let mortal = Mortal::new(id, [id; 6], register);
            database.transact(|tx| tx.insert(&mortals, mortal.clone())).unwrap();
        };
        let update = |id| {
            let updated = database.transact(|tx| tx.update(&mortals, &id, |mortal| mortal.check()));
            assert!(updated.unwrap().is_some());
        };
        let delete = |id| {
            assert!(database.transact(|tx| tx.delete(&mortals, &id)).unwrap());
        };
        (0..100).for_each(insert);
        // Too few updates for this thread to collect garbage.
        (0..100).for_each(update);
        on_a_thread(|| {
            (0..100).for_each(delete);
            for round in 1..20 {
                (round * 1000..round * 1000 + 200).for_each(insert);
                (round * 1000..round * 1000 + 200).for_each(delete);
            }
            (50..150).for_each(insert);
        });
        // These updates make it collect garbage.
        (0..10).for_each(|_| (50..150).for_each(update));
        drop((database, mortals));
        let (born, died) =
            (register.born.load(Ordering::SeqCst), register.died.load(Ordering::SeqCst));
        assert_eq!(born, died, "rows were dropped twice, or never");
    });
}

/// Fault: if several rows of a load had the same key, two threads could replace the same row, and both dropped it.
#[test]
fn parts_of_a_load_that_share_a_key_drop_each_row_once() {
    let register: &'static Register =
        Box::leak(Box::new(Register { born: Word::new(0), died: Word::new(0) }));
    for _ in 0..1000 * stress() {
        let database = Database::builder().table::<Mortal>().open().unwrap();
        let mortals = database.table::<Mortal>().unwrap();
        let ready = Word::new(0);
        // The first part fills in a row. Then each part has one more with the same key, at the same time.
        let part = |rows: u64| {
            let ready = &ready;
            (1..=rows).map(move |row| {
                let mortal = Mortal::new(7, [row; 6], register);
                if row == rows {
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < 2 {
                        std::hint::spin_loop();
                    }
                }
                Ok(mortal)
            })
        };
        let loaded: Result<u64, Failure> = database.load(&mortals, [part(2), part(1)], |_| {});
        assert!(matches!(loaded, Err(Failure::DuplicateKey { .. })), "{loaded:?}");
        drop((database, mortals));
        let (born, died) =
            (register.born.load(Ordering::SeqCst), register.died.load(Ordering::SeqCst));
        assert_eq!(born, died, "rows were dropped twice, or never");
    }
}

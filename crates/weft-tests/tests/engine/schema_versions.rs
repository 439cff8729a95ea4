//! Hooks between versions of a program's schema: their order, what a crash at every operation of the disk leaves, hooks
//! that fail, and programs that are older than the directory.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weft::durability::{Manifest, SimulatedDisk, StorageError};
use weft::protocol::Protocol;
use weft::{
    Builder, Database, DurabilityOptions, Error, Failure, ManualClock, Migration, Record,
    Timestamp, Violation,
};
use weft_tests::for_each_kind;

const DIRECTORY: &str = "/db";

type HookResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts", check = is_covered)]
struct Account {
    #[record(key)]
    id: u32,
    #[record(unique)]
    owner: String,
    cents: i64,
}

fn is_covered(account: &Account) -> Result<(), Violation> {
    if account.cents >= -100 { Ok(()) } else { Err("it is overdrawn".into()) }
}

/// A table that the hooks make.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "totals")]
struct Total {
    #[record(key)]
    id: u32,
    cents: i64,
}

/// The accounts of a program that has one column more, and otherwise no version.
mod wide {
    use weft::Record;

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "accounts", check = is_covered)]
    pub struct Account {
        #[record(key)]
        pub id: u32,
        #[record(unique)]
        pub owner: String,
        pub cents: i64,
        #[record(default = 7)]
        pub rank: u16,
    }

    fn is_covered(_: &Account) -> Result<(), weft::Violation> {
        Ok(())
    }
}

fn on<P: Protocol>(builder: Builder<P>, disk: &SimulatedDisk) -> Builder<P> {
    let options = DurabilityOptions::new().threads(2).checkpoint_log_bytes(None);
    builder.directory(DIRECTORY).durability(options).backend(Arc::new(disk.clone()), true)
}

fn builder<P: Protocol>(disk: &SimulatedDisk) -> Builder<P> {
    let builder = Database::builder().protocol::<P>();
    on(builder.table::<Account>().table::<Total>(), disk)
}

/// From 0 to 1: everybody gets a cent, account 5 goes, and account 100 comes.
fn give<P: Protocol>(tx: &Migration<'_, P>) -> HookResult {
    let accounts = tx.table::<Account>()?;
    let ids = tx.range(&accounts, ..).map(|row| Ok(row?.id)).collect::<Result<Vec<_>, Error>>()?;
    for id in ids {
        tx.update(&accounts, &id, |account| account.cents += 1)?;
    }
    tx.delete(&accounts, &5)?;
    tx.insert(&accounts, Account { id: 100, owner: "new".into(), cents: 0 })?;
    Ok(())
}

/// From 1 to 2: there is a total.
fn sum<P: Protocol>(tx: &Migration<'_, P>) -> HookResult {
    let mut cents = 0;
    for account in tx.range(&tx.table::<Account>()?, ..) {
        cents += account?.cents;
    }
    tx.insert(&tx.table()?, Total { id: 0, cents })?;
    Ok(())
}

/// The program with version 2.
fn second<P: Protocol>(disk: &SimulatedDisk) -> Builder<P> {
    builder(disk).version(2).migrate(0, give).migrate(1, sum)
}

fn account(id: u32) -> Account {
    Account { id, owner: format!("owner {id}"), cents: i64::from(id) * 10 }
}

fn rows<T: Record, P: Protocol>(database: &Database<P>) -> Vec<T> {
    let table = database.table::<T>().unwrap();
    let read = database.snapshot(|snapshot| {
        snapshot.rows(&table).map(|row| Ok(row?.clone())).collect::<Result<Vec<T>, Error>>()
    });
    read.unwrap()
}

fn put<T: Record, P: Protocol>(database: &Database<P>, rows: impl IntoIterator<Item = T>) {
    let table = database.table::<T>().unwrap();
    for row in rows {
        database.transact(|tx| tx.upsert(&table, row.clone()).map(drop)).unwrap();
    }
}

/// The accounts and totals of a database.
type State = (Vec<Account>, Vec<Total>);

fn state<P: Protocol>(database: &Database<P>) -> State {
    (rows(database), rows(database))
}

fn version(disk: &SimulatedDisk) -> (u32, u32) {
    let manifest = Manifest::read(disk, DIRECTORY.as_ref()).unwrap().unwrap();
    (manifest.schema, manifest.oldest_schema)
}

/// Returns a directory that a program without a version has written, some of it in a checkpoint, and its state.
fn directory<P: Protocol>() -> (SimulatedDisk, State) {
    let disk = SimulatedDisk::new(3);
    let database = builder::<P>(&disk).open().unwrap();
    put(&database, (0..6).map(account));
    database.checkpoint().unwrap();
    put(&database, (6..9).map(account));
    let state = state(&database);
    (disk, state)
}

/// What the hooks make of a state.
fn after_hooks(state: &State) -> State {
    let mut accounts: Vec<Account> =
        state.0.iter().filter(|account| account.id != 5).cloned().collect();
    accounts.iter_mut().for_each(|account| account.cents += 1);
    accounts.push(Account { id: 100, owner: "new".into(), cents: 0 });
    let cents = accounts.iter().map(|account| account.cents).sum();
    (accounts, vec![Total { id: 0, cents }])
}

fn contents(disk: &SimulatedDisk) -> Vec<Vec<u8>> {
    let files = disk.files();
    let files = files.iter().filter(|path| path.starts_with(DIRECTORY));
    files.map(|path| disk.contents(path)).collect()
}

/// Asserts that a directory is refused and unchanged, and returns the message.
#[track_caller]
fn refusal<P: Protocol>(builder: Builder<P>, disk: &SimulatedDisk) -> String {
    let before = contents(disk);
    let refused = builder.open().map(drop).expect_err("it is refused").to_string();
    assert_eq!(before, contents(disk), "a refused directory is unchanged: {refused}");
    refused
}

#[test]
fn hooks_run_once_and_in_order_under_every_protocol() {
    for_each_kind!(|P| {
        let (disk, before) = directory::<P>();
        let expected = after_hooks(&before);
        for round in 0..3 {
            let database = second::<P>(&disk).open().unwrap();
            assert_eq!(state(&database), expected, "round {round}");
            assert_eq!(version(&disk), (2, 2));
            if round == 1 {
                database.checkpoint().unwrap();
            }
        }
        // The indexes have what the hooks have written, and the log goes on.
        let database = second::<P>(&disk).open().unwrap();
        let accounts = database.table::<Account>().unwrap();
        let twice = Account { id: 101, owner: "new".into(), cents: 0 };
        database.transact(|tx| tx.insert(&accounts, twice.clone())).unwrap_err();
        let again = Account { id: 5, ..account(5) };
        put(&database, [again.clone()]);
        drop((database, accounts));
        let database = second::<P>(&disk).open().unwrap();
        assert!(rows::<Account, P>(&database).contains(&again));
    });
}

#[test]
fn only_the_hooks_of_the_missing_steps_run() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = |from: u32| {
        let seen = Rc::clone(&seen);
        move |_: &Migration<'_, _>| {
            seen.borrow_mut().push(from);
            Ok(())
        }
    };
    let program = |version: u32| {
        (0..version).fold(builder(&disk).version(version), |builder, from| {
            builder.migrate(from, note(from))
        })
    };
    for (version, expected) in [(2, &[0, 1][..]), (2, &[]), (5, &[2, 3, 4]), (5, &[])] {
        let database = program(version).open().unwrap();
        assert_eq!(seen.take(), expected);
        assert_eq!(state(&database), before);
    }
    // A directory that does not exist yet has the program's version, and so has a database in memory.
    let disk = SimulatedDisk::new(1);
    drop(builder(&disk).version(2).migrate(0, note(0)).migrate(1, note(1)).open().unwrap());
    assert_eq!(version(&disk), (2, 2));
    drop(Database::builder().version(1).migrate(0, note(0)).open().unwrap());
    assert!(seen.take().is_empty());
}

#[test]
fn crash_at_any_operation_leaves_all_hooks_done_or_none() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    let expected = after_hooks(&before);
    let whole = disk.snapshot();
    let operations_before = whole.operations();
    drop(second::<weft::protocol::Dbx>(&whole).open().unwrap());
    let operations = whole.operations() - operations_before;
    let (mut undone, mut done) = (0, 0);
    for stop in 0..=operations {
        let disk = disk.snapshot();
        disk.stop_at(operations_before + stop);
        // Nothing is written when a database is dropped after its disk has stopped.
        drop(second::<weft::protocol::Dbx>(&disk).open());
        for seed in 0..4 {
            let disk = disk.crash(seed);
            let older = builder::<weft::protocol::Dbx>(&disk);
            match version(&disk) {
                (0, 0) => {
                    assert_eq!(state(&older.open().unwrap()), before, "operation {stop}, {seed}");
                    undone += 1;
                }
                (2, 2) => {
                    refusal(older, &disk);
                    done += 1;
                }
                other => panic!("operation {stop}, {seed}: version {other:?}"),
            }
            for _ in 0..2 {
                let database = second::<weft::protocol::Dbx>(&disk).open().unwrap();
                assert_eq!(state(&database), expected, "operation {stop}, {seed}");
            }
        }
    }
    assert!(undone > 10 && done > 4, "{undone} undone, {done} done");
}

#[test]
fn hook_that_fails_leaves_the_directory_as_it_was() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    let program = || builder::<weft::protocol::Dbx>(&disk).version(2).migrate(0, give);
    let refused = refusal(program().migrate(1, |_| Err("no reason".into())), &disk);
    assert!(
        refused.contains(
            "the migration from version 1 to 2 failed: no reason; the directory is unchanged"
        ),
        "{refused}"
    );
    // What the transaction refuses, as for every other transaction.
    let overdraw = |tx: &Migration<'_, _>| {
        tx.update(&tx.table::<Account>()?, &3, |account| account.cents = -500)?;
        Ok(())
    };
    let refused = refusal(program().migrate(1, overdraw), &disk);
    assert!(refused.contains("is_covered: it is overdrawn"), "{refused}");
    let refused = refusal(program().migrate(1, |_| panic!("in a hook")), &disk);
    assert!(refused.contains("code of the program panicked"), "{refused}");
    let unknown = |tx: &Migration<'_, _>| tx.table::<wide::Account>().map(drop).map_err(Into::into);
    assert!(refusal(program().migrate(1, unknown), &disk).contains("accounts"));
    assert_eq!(state(&builder::<weft::protocol::Dbx>(&disk).open().unwrap()), before);
}

#[test]
fn versions_without_a_hook_are_refused() {
    let (disk, _) = directory::<weft::protocol::Dbx>();
    let program = || builder::<weft::protocol::Dbx>(&disk);
    let refused = refusal(program().version(2).migrate(0, give), &disk);
    assert!(refused.contains("no hook leads from version 1 to the next one"), "{refused}");
    let refused = refusal(program().version(1).migrate(0, give).migrate(1, sum), &disk);
    assert!(refused.contains("its version is 1: raise it"), "{refused}");
    // A program in between brings it to version 1; then the first hook is not needed any more.
    drop(program().version(1).migrate(0, give).open().unwrap());
    drop(program().version(2).migrate(1, sum).open().unwrap());
    assert_eq!(version(&disk), (2, 2));
}

#[test]
fn older_program_is_refused_unless_the_newer_one_allows_it() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    drop(second::<weft::protocol::Dbx>(&disk).open().unwrap());
    let older = || builder::<weft::protocol::Dbx>(&disk).version(1).migrate(0, give);
    let refused = refusal(older(), &disk);
    assert!(
        refused.contains("version 2, which opens with programs of version 2 and newer"),
        "{refused}"
    );
    // The same version of the program may allow it later.
    drop(second::<weft::protocol::Dbx>(&disk).rolls_back_to(1).open().unwrap());
    refusal(builder::<weft::protocol::Dbx>(&disk), &disk);
    let database = older().open().unwrap();
    put(&database, [account(50)]);
    assert_eq!(version(&disk), (2, 1), "an older program does not take back the version");
    drop(database);
    let database = second::<weft::protocol::Dbx>(&disk).open().unwrap();
    let mut expected = after_hooks(&before);
    expected.0.insert(expected.0.len() - 1, account(50));
    assert_eq!(state(&database), expected, "no hook has run again");
}

#[test]
fn kept_columns_and_tables_stay_with_the_rows_that_hooks_change() {
    let disk = SimulatedDisk::new(1);
    let newer = || on(Database::builder().table::<wide::Account>().table::<Total>(), &disk);
    let database = newer().open().unwrap();
    put(&database, [Total { id: 9, cents: 90 }]);
    put(
        &database,
        (0..8).map(|id| {
            let Account { id, owner, cents } = account(id);
            wide::Account { id, owner, cents, rank: 40 + id as u16 }
        }),
    );
    drop(database);
    // This program knows neither the column nor the table.
    let program = || on(Database::builder().table::<Account>(), &disk).version(1).migrate(0, give);
    // A trial cannot be copied, because the kept columns are those of the rows before the hooks.
    let manifest = Manifest::read(&disk, DIRECTORY.as_ref()).unwrap().unwrap();
    let trial = program().at_epoch(manifest.recovered_epoch).open().unwrap();
    assert!(trial.backup("/copy").unwrap_err().to_string().contains("hooks were tried"));
    drop(trial);
    let database = program().open().unwrap();
    assert_eq!(database.recovered().unwrap().migrated_from, Some(0));
    drop(database);
    let database = newer().version(1).open().unwrap();
    let found = rows::<wide::Account, _>(&database);
    let found: Vec<_> = found.iter().map(|row| (row.id, row.cents, row.rank)).collect();
    let kept = [0, 1, 2, 3, 4, 6, 7].map(|id: u32| (id, i64::from(id) * 10 + 1, 40 + id as u16));
    assert_eq!(found, [&kept[..], &[(100, 0, 7)]].concat());
    assert_eq!(rows::<Total, _>(&database), [Total { id: 9, cents: 90 }]);
}

#[test]
fn opening_at_an_epoch_tries_the_hooks() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    let epoch = builder::<weft::protocol::Dbx>(&disk).open().unwrap().recovered().unwrap().epoch;
    let files = contents(&disk);
    let database = second::<weft::protocol::Dbx>(&disk).at_epoch(epoch).open().unwrap();
    assert_eq!(state(&database), after_hooks(&before));
    let accounts = database.table::<Account>().unwrap();
    let refused = database.transact(|tx| tx.delete(&accounts, &1).map(drop));
    assert!(matches!(refused, Err(Error::Failure(Failure::ReadOnly { .. }))), "{refused:?}");
    let totals = database
        .transact(|tx| tx.get(&database.table::<Total>()?, &0).map(|row| row.map(|row| row.cents)));
    assert_eq!(totals.unwrap(), Some(after_hooks(&before).1[0].cents));
    // A copy goes on from there.
    database.backup("/copy").unwrap();
    drop((database, accounts));
    assert_eq!(files, contents(&disk));
    let copy = second::<weft::protocol::Dbx>(&disk).directory("/copy").open().unwrap();
    assert_eq!(state(&copy), after_hooks(&before));
}

/// A row of a hash table, which a transaction cannot scan.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "words", storage = "hash")]
struct Word {
    #[record(key)]
    text: String,
    length: u64,
}

#[test]
fn hook_visits_the_rows_of_a_hash_table() {
    let disk = SimulatedDisk::new(1);
    let program = || on(Database::builder().table::<Word>(), &disk);
    let word = |text: &str, length| Word { text: text.to_owned(), length };
    put(&program().open().unwrap(), ["a", "bcd", "ef"].map(|text| word(text, 0)));
    let measure = |tx: &Migration<'_, _>| {
        let words = tx.table::<Word>()?;
        tx.delete(&words, &"a".to_owned())?;
        for row in tx.before()?.rows(&words) {
            let text = row?.text.clone();
            tx.update(&words, &text, |word| word.length = text.len() as u64)?;
        }
        Ok(())
    };
    let database = program().version(1).migrate(0, measure).open().unwrap();
    let mut words = rows::<Word, _>(&database);
    words.sort_by_key(|word| word.length);
    assert_eq!(words, [word("ef", 2), word("bcd", 3)]);
}

/// A row that expires, and the time at which it was written.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "sessions", expires = until)]
struct Session {
    #[record(key)]
    id: u32,
    created: Timestamp,
    until: Timestamp,
}

/// Fault: the database got its time after the hooks had run, so that they ran in 1970. Rows that they inserted with an
/// hour to live had expired at once.
#[test]
fn hooks_have_the_time_of_the_database() {
    const SECOND: Duration = Duration::from_secs(1);
    let start = Timestamp::from_millis(1_800_000_000_000);
    let session = |id, now: Timestamp| Session { id, created: now, until: now + 60 * SECOND };
    let add = move |tx: &Migration<'_, _>| {
        // Sessions 1 and 2 have expired. The new one takes the place of session 2.
        assert_eq!(tx.range(&tx.table::<Session>()?, ..).count(), 0);
        [2, 3].into_iter().try_for_each(|id| tx.insert(&tx.table()?, session(id, tx.now())))?;
        Ok(())
    };
    let disk = SimulatedDisk::new(1);
    let clock = ManualClock::new(start);
    let program =
        |clock: &ManualClock| on(Database::builder().table::<Session>(), &disk).clock(clock);
    put(&program(&clock).open().unwrap(), [session(1, start), session(2, start)]);
    clock.advance(60 * SECOND);
    let added = |now| [session(2, now), session(3, now)];
    let database = program(&clock).version(1).migrate(0, add).open().unwrap();
    assert_eq!(rows::<Session, _>(&database), added(clock.time()));
    // A change of an expired row, which is logged now, needs the row that the hooks have left.
    put(&database, [session(1, clock.time())]);
    drop(database);
    // The directory has the time of the hooks, even if the clock is set back.
    let earlier = ManualClock::new(start);
    let database = program(&earlier).version(1).open().unwrap();
    assert_eq!(database.transact(|tx| Ok::<_, Error>(tx.now())).unwrap(), clock.time());
    assert_eq!(rows::<Session, _>(&database)[1..], added(clock.time()));
    drop(database);

    // Without any transaction after the hooks, too.
    let disk = disk.crash(1);
    let program =
        |clock: &ManualClock| on(Database::builder().table::<Session>(), &disk).clock(clock);
    let later = ManualClock::new(clock.time() + 3600 * SECOND);
    let add = move |tx: &Migration<'_, _>| Ok(tx.insert(&tx.table()?, session(4, tx.now()))?);
    drop(program(&later).version(2).migrate(1, add).open().unwrap());
    let database = program(&earlier).version(2).open().unwrap();
    assert_eq!(rows::<Session, _>(&database), [session(4, later.time())]);
    // A clock that is behind does not set the hooks back.
    let disk = disk.crash(1);
    let program = on(Database::builder().table::<Session>(), &disk).clock(&earlier);
    let add = move |tx: &Migration<'_, _>| Ok(tx.insert(&tx.table()?, session(5, tx.now()))?);
    let database = program.version(3).migrate(2, add).open().unwrap();
    assert_eq!(rows::<Session, _>(&database)[1], session(5, later.time()));
}

#[test]
fn one_worker_is_enough() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    let database = second::<weft::protocol::Dbx>(&disk).workers_max(1).open().unwrap();
    assert_eq!(state(&database), after_hooks(&before));
    let table = database.table::<Account>().unwrap();
    database.transact(|tx| tx.delete(&table, &1).map(drop)).unwrap();
    database.checkpoint().unwrap();
}

#[test]
fn backup_has_the_version() {
    let (disk, before) = directory::<weft::protocol::Dbx>();
    let database = second::<weft::protocol::Dbx>(&disk).rolls_back_to(1).open().unwrap();
    database.backup("/copy").unwrap();
    let manifest = Manifest::read(&disk, "/copy".as_ref()).unwrap().unwrap();
    assert_eq!((manifest.schema, manifest.oldest_schema), (2, 1));
    let copy = second::<weft::protocol::Dbx>(&disk).directory("/copy").open().unwrap();
    assert_eq!(state(&copy), after_hooks(&before));
}

#[test]
#[should_panic(expected = "two hooks from version 0")]
fn two_hooks_of_one_step_are_a_mistake() {
    let _ = Database::builder().migrate(0, give).migrate(0, sum);
}

#[test]
#[should_panic(expected = "choose the protocol before")]
fn protocol_is_chosen_before_the_hooks() {
    let _ = Database::builder().migrate(0, give).protocol::<weft::protocol::Silo>();
}

/// The error can be told apart.
#[test]
fn failed_hook_is_named_in_the_error() {
    let (disk, _) = directory::<weft::protocol::Dbx>();
    let program = builder::<weft::protocol::Dbx>(&disk).version(1);
    let failed = program.migrate(0, |_| Err("no".into())).open().map(drop);
    let expected = StorageError::Migration { from: 0, message: "no".into() };
    assert_eq!(failed, Err(Failure::Storage(expected)));
}

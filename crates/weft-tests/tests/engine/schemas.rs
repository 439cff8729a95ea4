//! Databases whose directory another version of the program has written: newer programs, older ones, and crashes at
//! every operation of the disk while the new program opens it.
//!
//! The programs are modules with row types of the same tables. `v1` is the first, and each of the others changes it in
//! its own way.

mod renames;

use std::path::Path;
use std::sync::Arc;

use weft::durability::{SimulatedDisk, StorageError};
use weft::{Builder, Database, DurabilityOptions, Error, Failure, Record};

const DIRECTORY: &str = "/db";

fn on(builder: Builder, disk: &SimulatedDisk) -> Builder {
    let options = DurabilityOptions::new().threads(2).checkpoint_log_bytes(None);
    builder.directory(DIRECTORY).durability(options).backend(Arc::new(disk.clone()), true)
}

fn open<T: Record>(disk: &SimulatedDisk) -> Result<Database, Failure> {
    on(Database::builder().table::<T>(), disk).open()
}

/// Returns all rows of a table, in the order of their keys.
fn rows<T: Record>(database: &Database) -> Vec<T> {
    let table = database.table::<T>().unwrap();
    let read = database.snapshot(|snapshot| {
        snapshot.rows(&table).map(|row| Ok(row?.clone())).collect::<Result<Vec<T>, Error>>()
    });
    read.unwrap()
}

fn put<T: Record>(database: &Database, rows: impl IntoIterator<Item = T>) {
    let table = database.table::<T>().unwrap();
    for row in rows {
        database.transact(|tx| tx.upsert(&table, row.clone()).map(drop)).unwrap();
    }
}

fn refusal<T: Record>(disk: &SimulatedDisk) -> String {
    let before: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    let refused = open::<T>(disk).map(drop).expect_err("it does not fit").to_string();
    let after: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    assert_eq!(before, after, "a refused directory is unchanged: {refused}");
    refused
}

mod v1 {
    use weft::{ColumnValue, Record};

    #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
    pub enum Status {
        Open,
        Closed,
    }

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "account")]
    pub struct Account {
        #[record(key)]
        pub id: u32,
        pub owner: String,
        pub cents: i32,
        pub status: Status,
        pub note: String,
    }

    pub fn account(id: u32) -> Account {
        Account {
            id,
            owner: format!("owner {id}"),
            cents: id as i32 * 10 - 50,
            status: if id.is_multiple_of(2) { Status::Open } else { Status::Closed },
            note: format!("note {id}"),
        }
    }
}

/// Columns are added, renamed, widened, put in another order; the enum has one variant more.
mod v2 {
    use weft::{ColumnValue, Record};

    #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
    pub enum Status {
        Open,
        Closed,
        Frozen,
    }

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "account")]
    pub struct Account {
        #[record(default = "EUR".to_owned())]
        pub currency: String,
        #[record(key)]
        pub id: u64,
        pub status: Status,
        #[record(was = "owner")]
        pub holder: String,
        pub cents: i64,
        pub note: Option<String>,
    }

    pub fn account(old: &super::v1::Account) -> Account {
        Account {
            currency: "EUR".to_owned(),
            id: old.id.into(),
            status: match old.status {
                super::v1::Status::Open => Status::Open,
                super::v1::Status::Closed => Status::Closed,
            },
            holder: old.owner.clone(),
            cents: old.cents.into(),
            note: Some(old.note.clone()),
        }
    }
}

/// A column is computed, and others are dropped.
mod computed {
    use weft::Record;
    use weft::description::StoredRow;
    use weft::schema::Violation;

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "account", dropped(owner, note))]
    pub struct Account {
        #[record(key)]
        pub id: u32,
        pub cents: i32,
        pub status: super::v1::Status,
        #[record(computed = label)]
        pub label: String,
    }

    fn label(row: &StoredRow<'_>) -> Result<String, Violation> {
        Ok(format!("{}: {}", row.get::<String>("owner")?, row.get::<i64>("cents")?))
    }
}

/// The primary key is another one.
mod migrated {
    use weft::Record;
    use weft::description::StoredRow;
    use weft::schema::Violation;

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "account", migrate = Account::from_stored)]
    pub struct Account {
        #[record(key)]
        pub owner: String,
        pub cents: i32,
    }

    impl Account {
        fn from_stored(row: &StoredRow<'_>) -> Result<Option<Self>, Violation> {
            let cents = row.get("cents")?;
            Ok((cents >= 0).then_some(Account { owner: row.get("owner")?, cents }))
        }
    }
}

fn of<T>(accounts: &[v1::Account], convert: impl Fn(&v1::Account) -> T) -> Vec<T> {
    accounts.iter().map(convert).collect()
}

fn computed_of(old: &v1::Account) -> computed::Account {
    let v1::Account { id, cents, status, .. } = *old;
    computed::Account { id, cents, status, label: format!("{}: {cents}", old.owner) }
}

fn migrated_of(accounts: &[v1::Account]) -> Vec<migrated::Account> {
    let kept = accounts.iter().filter(|old| old.cents >= 0);
    let mut rows: Vec<_> =
        kept.map(|old| migrated::Account { owner: old.owner.clone(), cents: old.cents }).collect();
    rows.sort_by(|one, other| one.owner.cmp(&other.owner));
    rows
}

/// Returns a disk with the accounts of the first program: in the checkpoint, changed in the log, and deleted there.
fn disk_of_v1(has_checkpoint: bool) -> (SimulatedDisk, Vec<v1::Account>) {
    let disk = SimulatedDisk::new(7);
    let database = open::<v1::Account>(&disk).unwrap();
    put(&database, (0..20).map(v1::account));
    if has_checkpoint {
        database.checkpoint().unwrap();
    }
    put(&database, (20..30).map(v1::account));
    let table = database.table::<v1::Account>().unwrap();
    database.transact(|tx| tx.update(&table, &3, |row| row.cents = 77).map(drop)).unwrap();
    database
        .transact(|tx| tx.update(&table, &4, |row| row.owner = "Ada".into()).map(drop))
        .unwrap();
    database.transact(|tx| tx.delete(&table, &5).map(drop)).unwrap();
    let accounts = rows::<v1::Account>(&database);
    database.close().unwrap();
    (disk, accounts)
}

/// Opens the directory with each of the programs, once and again, without and with a checkpoint in between.
#[test]
fn directory_opens_with_every_newer_program() {
    fn check<T: Record + PartialEq + std::fmt::Debug>(disk: &SimulatedDisk, expected: &[T]) {
        let disk = disk.crash(1);
        for round in 0..3 {
            let database = open::<T>(&disk).unwrap();
            assert_eq!(rows::<T>(&database), expected, "round {round}");
            if round == 1 {
                database.checkpoint().unwrap();
            }
        }
    }
    for has_checkpoint in [false, true] {
        let (disk, accounts) = disk_of_v1(has_checkpoint);
        check(&disk, &accounts);
        check(&disk, &of(&accounts, v2::account));
        check(&disk, &of(&accounts, computed_of));
        check(&disk, &migrated_of(&accounts));
    }
}

/// A crash at any operation of the disk leaves the old rows or the new ones.
#[test]
fn crash_while_a_directory_is_opened_leaves_it_old_or_new() {
    let (disk, accounts) = disk_of_v1(true);
    check_crashes(&disk, &of(&accounts, v2::account));
    check_crashes(&disk, &of(&accounts, computed_of));
    check_crashes(&disk, &migrated_of(&accounts));
}

/// Opens a directory with a newer program, with a crash at each operation of the disk.
fn check_crashes<T: Record + PartialEq + std::fmt::Debug>(disk: &SimulatedDisk, expected: &[T]) {
    let whole = disk.snapshot();
    let before = whole.operations();
    drop(open::<T>(&whole).unwrap());
    let operations = whole.operations() - before;
    assert!(operations > 3, "{operations}");
    for stop in 0..=operations {
        let disk = disk.snapshot();
        disk.stop_at(before + stop);
        // The log is not written when a database is dropped after its disk has stopped.
        drop(open::<T>(&disk));
        for seed in 0..3 {
            let disk = disk.crash(seed);
            let database = open::<T>(&disk).unwrap();
            assert_eq!(rows::<T>(&database), expected, "operation {stop}, {seed}");
            database.close().unwrap();
            drop(database);
            assert_eq!(rows::<T>(&open::<T>(&disk).unwrap()), expected);
        }
    }
}

/// Orders with a struct in a column, and structs in a list; and the next version, in which the structs' fields are
/// added, renamed, widened, dropped and in another order, an enum within them has a variant more, and so on for the
/// table's indexes and checks.
mod orders {
    use weft::{ColumnValue, Record, Violation};

    #[derive(Clone, Debug, PartialEq, ColumnValue)]
    pub struct Address {
        pub street: String,
        pub number: u16,
        pub kind: Kind,
        pub floor: u8,
    }

    #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
    pub enum Kind {
        Home,
        Work,
    }

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "orders")]
    pub struct Order {
        #[record(key)]
        pub id: u32,
        #[record(unique)]
        pub code: u32,
        #[record(index)]
        pub customer: u32,
        pub to: Address,
        pub stops: Vec<(u8, Address)>,
        pub weight: Option<f32>,
    }

    #[derive(Clone, Debug, PartialEq, ColumnValue)]
    pub struct NextAddress {
        #[column(default = "DE".to_owned())]
        pub country: String,
        pub kind: NextKind,
        pub number: Option<u32>,
        #[column(was = "street")]
        pub road: String,
    }

    #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
    pub enum NextKind {
        Home,
        Work,
        Locker,
    }

    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "orders", check = is_light, dropped(code, to.floor, stops.floor))]
    pub struct NextOrder {
        #[record(key)]
        pub id: u32,
        #[record(index)]
        pub code: u32,
        #[record(unique)]
        pub customer: u64,
        pub stops: Vec<(u16, NextAddress)>,
        pub to: NextAddress,
        pub weight: Option<f64>,
    }

    fn is_light(order: &NextOrder) -> Result<(), Violation> {
        if order.weight.is_none_or(|weight| weight < 100.0) {
            Ok(())
        } else {
            Err("it is heavy".into())
        }
    }

    fn address(number: u16) -> Address {
        let kind = if number.is_multiple_of(2) { Kind::Home } else { Kind::Work };
        Address { street: format!("street {number}"), number, kind, floor: 3 }
    }

    fn next_address(old: &Address) -> NextAddress {
        NextAddress {
            country: "DE".to_owned(),
            kind: match old.kind {
                Kind::Home => NextKind::Home,
                Kind::Work => NextKind::Work,
            },
            number: Some(old.number.into()),
            road: old.street.clone(),
        }
    }

    pub fn order(id: u32) -> Order {
        let stops = (0..id as u8 % 3).map(|stop| (stop, address(u16::from(stop)))).collect();
        let weight = id.is_multiple_of(2).then_some(id as f32 / 4.0);
        Order { id, code: 1000 - id, customer: id * 3, to: address(id as u16), stops, weight }
    }

    pub fn next_order(old: &Order) -> NextOrder {
        NextOrder {
            id: old.id,
            code: old.code,
            customer: old.customer.into(),
            stops: old.stops.iter().map(|(at, stop)| ((*at).into(), next_address(stop))).collect(),
            to: next_address(&old.to),
            weight: old.weight.map(Into::into),
        }
    }
}

#[test]
fn nested_structs_indexes_and_checks_change() {
    for has_checkpoint in [false, true] {
        let disk = SimulatedDisk::new(7);
        let database = open::<orders::Order>(&disk).unwrap();
        put(&database, (0..9).map(orders::order));
        if has_checkpoint {
            database.checkpoint().unwrap();
        }
        let table = database.table::<orders::Order>().unwrap();
        let street = |row: &mut orders::Order| row.to.street = "changed".into();
        database.transact(|tx| tx.update(&table, &4, street).map(drop)).unwrap();
        put(&database, (9..12).map(orders::order));
        let old = rows::<orders::Order>(&database);
        drop((database, table));
        let expected: Vec<_> = old.iter().map(orders::next_order).collect();
        check_crashes(&disk, &expected);
        // The indexes are those of the new program.
        let database = open::<orders::NextOrder>(&disk).unwrap();
        let twice = orders::NextOrder { id: 50, ..expected[2].clone() };
        let table = database.table::<orders::NextOrder>().unwrap();
        let refused = database.transact(|tx| tx.insert(&table, twice.clone()));
        assert!(refused.unwrap_err().to_string().contains("customer"));
        let code =
            orders::NextOrder { code: expected[2].code, ..orders::next_order(&orders::order(51)) };
        put(&database, [code]);
    }
}

/// All rows that break a new check or a new unique index are listed, by table, before anything changes.
#[test]
fn every_row_that_does_not_fit_is_listed() {
    let disk = SimulatedDisk::new(7);
    let database = open::<orders::Order>(&disk).unwrap();
    put(
        &database,
        (0..9).map(|id| match id {
            2 | 5 => orders::Order { weight: Some(500.0), ..orders::order(id) },
            3 | 7 => orders::Order { customer: 1, ..orders::order(id) },
            _ => orders::order(id),
        }),
    );
    drop(database);
    let message = refusal::<orders::NextOrder>(&disk);
    for part in [
        "4 stored rows do not fit",
        "row 2: is_light: it is heavy",
        "row 5: is_light: it is heavy",
        "row 3: it has the same values as row 7 in the unique index `customer`",
        "row 7: it has the same values as row 3 in the unique index `customer`",
    ] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
}

/// The older program opens what the newer one has written, as long as its rows fit, and the newer one finds its columns
/// again.
#[test]
fn older_program_keeps_the_columns_of_the_newer_one() {
    for (checkpoint_of_newer, checkpoint_of_older) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let (disk, accounts) = disk_of_v1(false);
        let mut expected = of(&accounts, v2::account);
        {
            let database = open::<v2::Account>(&disk).unwrap();
            for account in &mut expected {
                account.currency = format!("C{}", account.id);
            }
            put(&database, expected.iter().cloned());
            if checkpoint_of_newer {
                database.checkpoint().unwrap();
            }
            database.close().unwrap();
        }
        for round in 0..2 {
            let database = open::<v1::Account>(&disk).unwrap();
            let table = database.table::<v1::Account>().unwrap();
            let id = 8 + round;
            // Changed, overwritten, new, deleted and new again.
            database.transact(|tx| tx.update(&table, &id, |row| row.cents = 1).map(drop)).unwrap();
            let overwritten = v1::Account { note: "x".into(), ..v1::account(12 + round) };
            put(&database, [overwritten, v1::account(100 + round)]);
            database.transact(|tx| tx.delete(&table, &(16 + round)).map(drop)).unwrap();
            put(&database, [v1::account(16 + round)]);
            if checkpoint_of_older {
                database.checkpoint().unwrap();
                database
                    .transact(|tx| tx.update(&table, &id, |row| row.cents = 2).map(drop))
                    .unwrap();
            }
            let at = |expected: &mut Vec<v2::Account>, id: u32| {
                expected.iter().position(|account| account.id == u64::from(id)).unwrap()
            };
            let position = at(&mut expected, id);
            expected[position].cents = if checkpoint_of_older { 2 } else { 1 };
            let position = at(&mut expected, 12 + round);
            expected[position].note = Some("x".into());
            let position = at(&mut expected, 16 + round);
            expected[position] = v2::account(&v1::account(16 + round));
            expected.push(v2::account(&v1::account(100 + round)));
            if round == 0 {
                database.backup("/backup").unwrap();
                let opened = Database::builder().table::<v2::Account>().directory("/backup");
                let backup = opened.backend(Arc::new(disk.clone()), true).open().unwrap();
                assert_eq!(rows::<v2::Account>(&backup), expected);
            }
            database.close().unwrap();
        }
        let database = open::<v2::Account>(&disk).unwrap();
        assert_eq!(rows::<v2::Account>(&database), expected);
        // A row that the older program does not have stands in its way.
        let mut frozen = expected[7].clone();
        frozen.status = v2::Status::Frozen;
        let absent = v2::Account { note: None, ..expected[8].clone() };
        put(&database, [frozen, absent]);
        database.close().unwrap();
        drop(database);
        let message = refusal::<v1::Account>(&disk);
        for words in ["2 stored rows", "the variant `Frozen` is not known", "row 9", "it is `None`"]
        {
            assert!(message.contains(words), "{message} does not say {words}");
        }
    }
}

/// Tables are renamed, kept and dropped.
#[test]
fn tables_are_renamed_kept_and_dropped() {
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(was = "account")]
    struct Client {
        #[record(key)]
        id: u32,
        owner: String,
        cents: i32,
        status: v1::Status,
        note: String,
    }
    #[derive(Clone, Debug, PartialEq, Record)]
    struct Other {
        #[record(key)]
        id: u8,
    }
    let (disk, accounts) = disk_of_v1(true);
    {
        let database = open::<Client>(&disk).unwrap();
        let table = database.table::<Client>().unwrap();
        database.transact(|tx| tx.update(&table, &0, |row| row.cents = 5).map(drop)).unwrap();
    }
    // A program that does not have the table keeps it, through its own checkpoints.
    {
        let database = open::<Other>(&disk).unwrap();
        put(&database, [Other { id: 1 }]);
        database.checkpoint().unwrap();
        put(&database, [Other { id: 2 }]);
        database.checkpoint().unwrap();
    }
    let mut expected = accounts;
    expected[0].cents = 5;
    let database = open::<v1::Account>(&disk).expect("an older program finds the table");
    assert_eq!(rows::<v1::Account>(&database), expected);
    drop(database);
    assert_eq!(rows::<Client>(&open::<Client>(&disk).unwrap()).len(), expected.len());
    for _ in 0..2 {
        let dropping = on(Database::builder().table::<Other>(), &disk).drop_table("client");
        assert_eq!(rows::<Other>(&dropping.open().unwrap()), [Other { id: 1 }, Other { id: 2 }]);
        let database = open::<Client>(&disk).unwrap();
        assert_eq!(rows::<Client>(&database), [], "the dropped rows do not come back");
        put(
            &database,
            [Client {
                id: 1,
                owner: "a".into(),
                cents: 1,
                status: v1::Status::Open,
                note: String::new(),
            }],
        );
    }
    let refused = on(Database::builder().table::<Client>(), &disk).drop_table("client").open();
    assert!(refused.unwrap_err().to_string().contains("leave out one of the two"));
}

#[test]
fn rows_that_share_the_values_of_a_unique_index_are_listed() {
    #[derive(Clone, Debug, Record)]
    #[record(table = "account", dropped(owner, cents, note))]
    struct Unique {
        #[record(key)]
        id: u32,
        #[record(unique, computed = group)]
        group: u32,
        status: v1::Status,
    }
    fn group(row: &weft::description::StoredRow<'_>) -> Result<u32, weft::schema::Violation> {
        let id: u32 = row.get("id")?;
        Ok(if id == 7 || id == 12 || id == 28 { 7 } else { id })
    }
    let (disk, _) = disk_of_v1(true);
    let error = open::<Unique>(&disk).map(drop).unwrap_err();
    let Failure::Storage(StorageError::Constraint { rows, .. }) = &error else { panic!("{error}") };
    let keys: Vec<_> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["7", "12", "28"], "{error}");
    assert!(error.to_string().contains("in the unique index `group`"), "{error}");
}

/// Code of the program that refuses a row, or panics, leaves the directory as it was.
#[test]
fn code_of_the_program_may_refuse_rows_and_panic() {
    #[derive(Clone, Debug, Record)]
    #[record(table = "account", dropped(owner, cents, note))]
    struct Refusing {
        #[record(key)]
        id: u32,
        status: v1::Status,
        #[record(computed = refuse)]
        depth: i8,
    }
    fn refuse(row: &weft::description::StoredRow<'_>) -> Result<i8, weft::schema::Violation> {
        let id: u32 = row.get("id")?;
        if id < 27 { Ok(1) } else { row.get("cents") }
    }
    #[derive(Clone, Debug, Record)]
    #[record(table = "account", dropped(owner, cents, note))]
    struct Panicking {
        #[record(key)]
        id: u32,
        status: v1::Status,
        #[record(computed = panicking)]
        depth: u8,
    }
    fn panicking(row: &weft::description::StoredRow<'_>) -> Result<u8, weft::schema::Violation> {
        assert!(row.get::<u32>("id")? != 9, "no nines");
        Ok(0)
    }
    #[derive(Clone, Debug, Record)]
    #[record(table = "account")]
    struct PanickingDefault {
        #[record(key)]
        id: u32,
        owner: String,
        cents: i32,
        status: v1::Status,
        note: String,
        #[record(default = no_default())]
        depth: u8,
    }
    fn no_default() -> u8 {
        panic!("no default")
    }
    #[derive(Clone, Debug, Record)]
    #[record(table = "account", migrate = colliding)]
    struct Colliding {
        #[record(key)]
        parity: u32,
    }
    fn colliding(
        row: &weft::description::StoredRow<'_>,
    ) -> Result<Option<Colliding>, weft::schema::Violation> {
        Ok(Some(Colliding { parity: row.get::<u32>("id")? % 2 }))
    }
    let (disk, accounts) = disk_of_v1(true);
    let message = refusal::<Refusing>(&disk);
    assert!(message.contains("row 27: ") || message.contains("3 stored rows"), "{message}");
    assert!(refusal::<Panicking>(&disk).contains("no nines"));
    assert!(refusal::<PanickingDefault>(&disk).contains("no default"));
    let message = refusal::<Colliding>(&disk);
    assert!(message.contains("27 stored rows") && message.contains("exists already"), "{message}");
    assert_eq!(rows::<v1::Account>(&open::<v1::Account>(&disk).unwrap()), accounts);
}

/// Opening at an epoch does everything that opening would do, and changes nothing.
#[test]
fn opening_at_an_epoch_tries_a_migration() {
    let (disk, accounts) = disk_of_v1(true);
    let epoch = open::<v1::Account>(&disk).unwrap().recovered().unwrap().epoch;
    let before: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    let database =
        on(Database::builder().table::<migrated::Account>(), &disk).at_epoch(epoch).open().unwrap();
    assert_eq!(rows::<migrated::Account>(&database), migrated_of(&accounts));
    drop(database);
    let after: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    assert_eq!(before, after);
    assert!(disk.files().iter().all(|path| path.starts_with(Path::new(DIRECTORY))));
}

/// Bounds are checked when they are added, may become tighter, follow their column to another name, and are given up
/// only on purpose.
#[test]
fn bounds_of_columns_are_known_to_the_directory() {
    mod bounded {
        use weft::Record;

        #[derive(Clone, Debug, PartialEq, Record)]
        #[record(table = "account")]
        pub struct Account {
            #[record(key)]
            pub id: u32,
            pub owner: String,
            #[record(min = 0)]
            pub cents: i32,
            pub status: super::v1::Status,
            pub note: String,
        }
    }
    mod renamed {
        use weft::Record;

        #[derive(Clone, Debug, PartialEq, Record)]
        #[record(table = "account")]
        pub struct Account {
            #[record(key)]
            pub id: u32,
            pub owner: String,
            #[record(was = "cents", min = 10, max = 1000)]
            pub balance: i64,
            pub status: super::v1::Status,
            pub note: String,
        }
    }
    #[derive(Clone, Debug, PartialEq, Record)]
    #[record(table = "account", dropped("balance >= 10"))]
    struct Unbounded {
        #[record(key)]
        id: u32,
        owner: String,
        #[record(max = 1000)]
        balance: i64,
        status: v1::Status,
        note: String,
    }

    let (disk, accounts) = disk_of_v1(true);
    let error = open::<bounded::Account>(&disk).map(drop).unwrap_err();
    let Failure::Storage(StorageError::Constraint { rows: found, .. }) = &error else {
        panic!("{error}")
    };
    let negative: Vec<_> =
        accounts.iter().filter(|row| row.cents < 0).map(|row| row.id.to_string()).collect();
    assert!(!negative.is_empty());
    assert_eq!(found.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), negative);
    assert!(error.to_string().contains("is less than the minimum 0"), "{error}");
    {
        let database = open::<v1::Account>(&disk).unwrap();
        put(&database, accounts.iter().map(|row| v1::Account { cents: 10, ..row.clone() }));
    }
    assert_eq!(
        rows::<bounded::Account>(&open::<bounded::Account>(&disk).unwrap()).len(),
        accounts.len()
    );
    let message = refusal::<v1::Account>(&disk);
    assert!(message.contains(r#"the check `cents >= 0` holds for the stored rows"#), "{message}");
    assert!(message.contains(r#"`#[record(dropped("cents >= 0"))]`"#), "{message}");
    assert_eq!(
        rows::<renamed::Account>(&open::<renamed::Account>(&disk).unwrap()).len(),
        accounts.len()
    );
    let message = refusal::<bounded::Account>(&disk);
    assert!(message.contains("the check `balance >= 10`"), "{message}");
    assert_eq!(rows::<Unbounded>(&open::<Unbounded>(&disk).unwrap()).len(), accounts.len());
}

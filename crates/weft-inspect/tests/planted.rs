//! Ten programs with one planted mistake each. Table, key and label are drawn by a seed. The report has to name them
//! first, and its advice has to say what to change.
//!
//! Conflicts are made, not waited for: a transaction stops before it commits, another thread commits one that is in its
//! way, and the first goes on. The report's clock counts how often it is looked at, so that nothing depends on the
//! machine's load.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table, Transaction, TransactionOptions};
use weft_inspect::{InspectDatabase, Report, observer};

#[derive(Clone, Record)]
#[record(index(name = by_state, columns(state)))]
struct Row {
    #[record(key)]
    id: u64,
    count: i64,
    stock: i64,
    year: i64,
    tax: i64,
    state: u64,
    text: String,
}

type Body<'b> = &'b (dyn Fn(&Transaction<'_>) -> Result<(), Error> + Sync);

/// Returns a time that goes on by four microseconds whenever it is asked for.
fn clock() -> u64 {
    static TIME: Mutex<u64> = Mutex::new(0);
    let mut time = TIME.lock().unwrap();
    *time += 4_000;
    *time
}

/// A program: its database, and what was planted in it.
struct Program {
    database: Database,
    tables: Vec<Table<Row>>,
    names: Vec<String>,
    random: fastrand::Rng,
    /// The position of the table with the mistake.
    table: usize,
    key: u64,
    label: &'static str,
}

const ROWS: u64 = 80;

impl Program {
    fn new(seed: u64) -> Program {
        let mut random = fastrand::Rng::with_seed(seed);
        let names: Vec<_> =
            (0..4).map(|number| format!("table_{number}_{}", random.u32(..))).collect();
        let builder = Database::builder().protocol::<weft::protocol::Dbx>();
        let builder = builder.protocol_options(observer(Some(clock)));
        let builder = names.iter().fold(builder, |builder, name| builder.table_named::<Row>(name));
        let database = builder.open().unwrap();
        let tables: Vec<Table<Row>> =
            names.iter().map(|name| database.table_named(name).unwrap()).collect();
        for table in &tables {
            let load = |tx: &Transaction<'_>| -> Result<(), Error> {
                (0..ROWS).try_for_each(|id| {
                    let text = String::new();
                    let (stock, state) = (1_000_000, id + 1_000);
                    tx.insert(table, Row { id, count: 0, stock, year: 0, tax: 0, state, text })
                })
            };
            database.transact(load).unwrap();
        }
        let label = format!("label {}", random.u32(..));
        let (table, key) = (random.usize(..4), random.u64(..ROWS));
        Program { database, tables, names, random, table, key, label: Box::leak(label.into()) }
    }

    fn table(&self) -> &Table<Row> {
        &self.tables[self.table]
    }

    /// Lets transactions lose `times` times: each runs `loser`, and before it commits, another thread commits `winner`.
    fn lose(&self, times: u32, label: &'static str, loser: Body<'_>, winner: Body<'_>) {
        let options = TransactionOptions::new().label(label);
        let (go, gone): (Sender<()>, Receiver<()>) = channel();
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let options = TransactionOptions::new().label("winner");
                while gone.recv().is_ok() {
                    self.database.transact_with(&options, |tx| winner(tx)).unwrap();
                    done.send(()).unwrap();
                }
            });
            for _ in 0..times {
                let mut is_first = true;
                let lost = self.database.transact_with(&options, |tx| {
                    let done = loser(tx);
                    if std::mem::take(&mut is_first) {
                        go.send(()).unwrap();
                        is_done.recv().unwrap();
                    }
                    done
                });
                lost.unwrap();
            }
            drop(go);
        });
    }

    /// Makes some conflicts elsewhere, fewer than the mistake makes.
    fn distract(&mut self) {
        for _ in 0..4 {
            let table = (self.table + self.random.usize(1..4)) % 4;
            let (table, key) = (&self.tables[table].clone(), self.random.u64(..ROWS));
            let update: Body<'_> = &|tx| tx.update(table, &key, |row| row.text.push('x')).map(drop);
            self.lose(2, "elsewhere", update, update);
        }
    }

    /// Checks that the report names the mistake first, and what it advises.
    fn check(&self, name: &str, key: Option<u64>, advice: &str) {
        let report: Report = self.database.contention().unwrap();
        let point = &report.points[0];
        let planted = (&self.names[self.table], key.map(|key| key.to_string()), self.label);
        let found = (&point.table, point.key.clone(), point.labels[0].label.as_str());
        assert_eq!(found, planted, "{name}:\n{report}");
        let headline = report.to_string().lines().next().unwrap_or_default().to_owned();
        assert!(headline.contains(&self.names[self.table]), "{name}:\n{report}");
        assert!(headline.contains(self.label), "{name}:\n{report}");
        assert!(headline.contains(advice), "{name}: no {advice:?} in\n{report}");
    }
}

/// A program's mistake, the key that the report has to name, and a part of the advice.
type Mistake = (&'static str, fn(&Program) -> Option<u64>, &'static str);

const MISTAKES: [Mistake; 10] = [
    ("a counter", counter, "`add`"),
    ("a stock that is checked and taken from", stock, "`take`"),
    ("a row with columns that are read and others that are written", columns, "`get_columns`"),
    ("a queue", queue, "head of a queue"),
    ("a report that reads all rows", report, "snapshot"),
    ("keys made by looking for the greatest", greatest, "generate them"),
    ("a text to which all append", text, "change `text`"),
    ("a row of statistics", statistics, "change `year` and `tax`"),
    ("states in an index", states, "scans of"),
    ("a parent whose children are counted", parent, "`count`"),
];

fn counter(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let body: Body<'_> = &|tx| tx.update(table, &key, |row| row.count += 1).map(drop);
    program.lose(30, program.label, body, body);
    Some(key)
}

fn stock(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let body: Body<'_> = &|tx| {
        let take = |row: &mut Row| {
            if row.stock >= 2 {
                row.stock -= 2;
            }
        };
        tx.update(table, &key, take).map(drop)
    };
    program.lose(30, program.label, body, body);
    Some(key)
}

fn columns(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let other = (key + 1) % ROWS;
    let reader: Body<'_> = &|tx| {
        let tax = tx.get(table, &key)?.map_or(0, |row| row.tax);
        tx.update(table, &other, |row| row.year += tax).map(drop)
    };
    let writer: Body<'_> = &|tx| tx.update(table, &key, |row| row.year += 10).map(drop);
    program.lose(30, program.label, reader, writer);
    Some(key)
}

fn queue(program: &Program) -> Option<u64> {
    let table = program.table();
    let take: Body<'_> = &|tx| {
        let first = tx.range(table, ..).first_row()?.map(|row| row.id);
        first.map_or(Ok(()), |id| tx.delete(table, &id).map(drop))
    };
    program.lose(30, program.label, take, take);
    None
}

fn report(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let reader: Body<'_> = &|tx| {
        let mut sum = 0;
        for row in tx.range(table, ..) {
            sum += row?.count;
        }
        assert!(sum >= 0);
        Ok(())
    };
    let writer: Body<'_> = &|tx| tx.update(table, &key, |row| row.count += 1).map(drop);
    program.lose(30, program.label, reader, writer);
    Some(key)
}

fn greatest(program: &Program) -> Option<u64> {
    let table = program.table();
    let insert: Body<'_> = &|tx| {
        let last = tx.range(table, ..).last_row()?.cloned();
        last.map_or(Ok(()), |last| tx.insert(table, Row { id: last.id + 1, state: 0, ..last }))
    };
    program.lose(30, program.label, insert, insert);
    None
}

fn text(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let body: Body<'_> = &|tx| tx.update(table, &key, |row| row.text.push('x')).map(drop);
    program.lose(30, program.label, body, body);
    Some(key)
}

fn statistics(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let body: Body<'_> = &|tx| {
        let change = |row: &mut Row| (row.year, row.tax) = (row.year + 1, 3 - row.tax);
        tx.update(table, &key, change).map(drop)
    };
    program.lose(30, program.label, body, body);
    Some(key)
}

fn states(program: &Program) -> Option<u64> {
    let table = program.table();
    let next = Mutex::new(0);
    let scan: Body<'_> = &|tx| {
        let found = tx.range_by(table, Row::BY_STATE, 0..500).count_rows()?;
        tx.update(table, &0, |row| row.count += found as i64).map(drop)
    };
    let enter: Body<'_> = &|tx| {
        let mut next = next.lock().unwrap();
        *next += 1;
        tx.update(table, &(1 + *next), |row| row.state = *next).map(drop)
    };
    program.lose(30, program.label, scan, enter);
    None
}

fn parent(program: &Program) -> Option<u64> {
    let (table, key) = (program.table(), program.key);
    let add_child = |tx: &Transaction<'_>, child: u64| -> Result<(), Error> {
        if !tx.contains(table, &key)? {
            return Ok(());
        }
        tx.update(table, &child, |row| row.state += 1).map(drop)
    };
    let child: Body<'_> = &|tx| add_child(tx, (key + 1) % ROWS);
    let count: Body<'_> = &|tx| tx.update(table, &key, |row| row.count += 1).map(drop);
    program.lose(30, program.label, child, count);
    Some(key)
}

#[test]
fn report_names_ten_planted_mistakes() {
    let seed = match std::env::var("WEFT_SEED") {
        Ok(seed) => seed.parse().expect("WEFT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("WEFT_SEED={seed}");
    for (number, (name, make, advice)) in (0..).zip(MISTAKES) {
        let mut program = Program::new(seed.wrapping_add(number));
        program.distract();
        let key = make(&program);
        program.check(name, key, advice);
    }
    // The protocol is the default one.
    assert_eq!(weft::protocol::Dbx::NAME, "dbx");
}

//! Each operation of transactions does in a procedure what it does in a closure: in one pass, in several, in pieces, and
//! repaired by its dependencies.

use std::cell::{Cell, RefCell};

use weft::operation::Add;
use weft::protocol::{Dbx, Protocol};
use weft::{Database, Error, ManualClock, Record, Table, Timestamp, Transaction, column_of};
use weft_procedures::{
    Access, Direct, Driver, Execute, Instance, Next, Procedure, Selection, StepAccess, procedure,
};
use weft_tests::for_each_kind;

/// A word, with its length.
#[derive(Clone, Debug, PartialEq, Record)]
struct Word {
    #[record(key)]
    text: String,
    #[record(index)]
    length: u32,
    uses: i64,
}

/// A row with a generated key.
#[derive(Clone, Debug, PartialEq, Record)]
struct Note {
    #[record(key, generated)]
    id: u64,
    text: String,
}

/// A row with a key of two columns.
#[derive(Clone, Debug, PartialEq, Record)]
struct Grade {
    #[record(key)]
    pupil: String,
    #[record(key)]
    year: u16,
    grade: u8,
}

struct Tables {
    words: Table<Word>,
    notes: Table<Note>,
    grades: Table<Grade>,
}

const WORDS: [&str; 7] = ["apple", "apply", "bean", "bee", "beetle", "cat", "catch"];

fn open<P: Protocol>(clock: &ManualClock) -> (Database<P>, Tables) {
    let builder = Database::builder().protocol::<P>().clock(clock);
    let database = builder.table::<Word>().table::<Note>().table::<Grade>().open().expect("opens");
    let tables = Tables {
        words: database.table().expect("it was added"),
        notes: database.table().expect("it was added"),
        grades: database.table().expect("it was added"),
    };
    let words = WORDS.map(|text| Word { text: text.into(), length: text.len() as u32, uses: 0 });
    let filled = database.transact(|tx| {
        tx.insert_many(&tables.words, words.clone())?;
        tx.insert(&tables.grades, Grade { pupil: "Ada".into(), year: 3, grade: 1 })
    });
    filled.expect("no other transaction is running");
    (database, tables)
}

fn texts<'t>(rows: impl Iterator<Item = Result<&'t Word, Error>>) -> Result<String, Error> {
    Ok(rows.map(|row| row.map(|word| word.text.as_str())).collect::<Result<Vec<_>, _>>()?.join(" "))
}

/// Makes each operation. All that it reads and writes depends on the word `lead`, whose number of uses is a number of
/// letters. Returns what it finds.
#[procedure(Everything)]
fn everything<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    lead: &str,
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let lead = tx.get(&tables.words, lead)?.map_or(2, |word| word.uses);
    let start = &"beetle"[..lead as usize];
    let now = tx.now();
    found.push(format!("at {now:?}"));
    let is_there = tx.contains(&tables.words, start)?;
    found.push(format!("{start}: {is_there}"));
    let grade = tx.get(&tables.grades, ("Ada", lead as u16))?.map(|row| row.grade);
    found.push(format!("grade {grade:?}"));
    let rows = tx.starts_with(&tables.words, start);
    found.push(texts(rows)?);
    let rows = tx.range(&tables.words, ..).after(start).take(2);
    found.push(texts(rows)?);
    let rows = tx.range(&tables.words, ..).descending().after(start).take(2);
    found.push(texts(rows)?);
    let (length, text) = (lead as u32, start.to_owned());
    let rows = tx.range_by(&tables.words, Word::LENGTH, ..).after_by(Word::LENGTH, &length, &text);
    found.push(texts(rows)?);
    let first = tx.prefix_by(&tables.words, Word::LENGTH, &(lead as u32)).first_row()?;
    let last = tx.starts_with(&tables.words, start).last_row()?;
    let least = tx.starts_with(&tables.words, start).descending().last_row()?;
    found.push(format!("{first:?} {last:?} {least:?}"));
    let count = tx.starts_with(&tables.words, start).count_rows()?;
    let updated = tx.update_many(&tables.words, ["bee", start, "cow"], |position, word| {
        word.uses += 1 + position as i64;
    })?;
    let ids = ["first", "second"].map(|text| format!("{text} {lead}"));
    let id = tx.insert_generated(&tables.notes, |id| Note { id, text: ids[0].clone() })?;
    let text = tx.get(&tables.notes, &id)?.map(|note| note.text.clone());
    let new = (lead..lead + 3).map(|number| Word {
        text: format!("new {number}"),
        length: 10 + number as u32,
        uses: number,
    });
    tx.insert_many(&tables.words, new)?;
    let removed = tx.delete_range(&tables.words, String::from("cat")..)?;
    tx.insert(&tables.words, Word { text: "end".into(), length: 3, uses: removed as i64 })?;
    let total = tx.len(&tables.words)?;
    let uses = tx.get_columns(&tables.words, "bee", column_of!(Word.uses))?.copied();
    tx.apply(&tables.words, &"bee".to_owned(), column_of!(Word.uses), Add(lead))?;
    tx.update(&tables.grades, ("Ada", 3), |row| row.grade += 1)?;
    tx.update_columns(&tables.words, start, column_of!(Word.uses), |uses| *uses += 1)?;
    let is_deleted = tx.delete(&tables.words, "apply")?;
    let mut each = Vec::new();
    for word in tx.get_many(&tables.words, ["bean", "bee", "apply"])? {
        each.push(word?.map(|word| word.uses));
    }
    found.push(format!(
        "{count} {updated} {text:?} {removed} {total} {uses:?} {is_deleted} {each:?}"
    ));
    Ok(found)
}

/// Returns all rows, without the generated keys.
fn left<P: Protocol>(tx: &Transaction<'_, P>, tables: &Tables) -> Result<String, Error> {
    let words =
        tx.range(&tables.words, ..).map(|row| row.cloned()).collect::<Result<Vec<_>, _>>()?;
    let grades =
        tx.range(&tables.grades, ..).map(|row| row.cloned()).collect::<Result<Vec<_>, _>>()?;
    let notes = tx.range(&tables.notes, ..).map(|row| Ok(row?.text.clone()));
    let notes = notes.collect::<Result<Vec<_>, Error>>()?;
    Ok(format!("{words:?} {grades:?} {notes:?}"))
}

/// Returns what the function finds and leaves behind, if the lead has this number of uses.
fn by_function(uses: i64) -> (Vec<String>, String) {
    let clock = ManualClock::new(Timestamp::from_millis(5_000));
    let (database, tables) = open::<Dbx>(&clock);
    let ran = database.transact(|tx| {
        tx.update(&tables.words, "apple", |word| word.uses = uses)?;
        let found = everything(&tables, tx, "apple")?;
        Ok::<_, Error>((found, left(tx, &tables)?))
    });
    ran.expect("no other transaction is running")
}

#[test]
fn procedures_of_all_operations_do_what_their_functions_do() {
    for_each_kind!(|P| {
        for uses in 1..6 {
            let clock = ManualClock::new(Timestamp::from_millis(5_000));
            let (database, tables) = open::<P>(&clock);
            let set =
                database.transact(|tx| tx.update(&tables.words, "apple", |word| word.uses = uses));
            set.expect("no other transaction is running");
            let found = database.execute(&mut Everything::new(&tables, "apple")).expect("commits");
            let left = database.transact(|tx| left(tx, &tables)).expect("reads");
            assert_eq!((found, left), by_function(uses), "{}, {uses}", P::NAME);
        }
    });
}

/// A driver that changes the lead after the first pass, and then runs again what the shape reaches from it.
struct Repair<'t> {
    tx: &'t Transaction<'t, Dbx>,
    change: &'t dyn Fn(),
    passes: Cell<u32>,
    ran: RefCell<Vec<usize>>,
    kept: RefCell<Vec<usize>>,
}

impl Driver<Dbx> for Repair<'_> {
    fn transaction(&self) -> &Transaction<'_, Dbx> {
        self.tx
    }

    fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        self.ran.borrow_mut().push(accessed.instance.step);
        Ok(())
    }

    fn keep<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        self.kept.borrow_mut().push(accessed.instance.step);
        Ok(())
    }

    fn end_pass(&self, _is_ok: bool) -> Next {
        self.passes.set(self.passes.get() + 1);
        match self.passes.get() {
            1 => {
                (self.change)();
                self.ran.borrow_mut().clear();
                let lead = Instance { step: 0, iteration: Default::default() };
                Next::Pass(Selection::Stale(vec![lead]))
            }
            _ => Next::Return,
        }
    }
}

/// Reads by each operation that only reads, depending on the lead.
#[procedure(Looks)]
fn looks<P: Protocol>(tables: &Tables, tx: &Transaction<'_, P>) -> Result<Vec<String>, Error> {
    let lead = tx.get(&tables.words, "apple")?.map_or(2, |word| word.uses);
    let start = &"beetle"[..lead as usize];
    let mut found = Vec::new();
    // The start of the scan, and its direction, depend on the lead, and its range does not.
    let rows = tx.range(&tables.words, String::from("b")..);
    let rows = if lead > 3 { rows.descending() } else { rows };
    found.push(texts(rows.after(start).take(2))?);
    let rows = tx.range(&tables.words, String::from("b")..);
    let rows = if lead > 4 { rows.descending() } else { rows };
    found.push(texts(rows)?);
    let rows = tx.range(&tables.words, String::from("b")..);
    found.push(match lead {
        2 => texts(rows)?,
        3 => rows.count_rows()?.to_string(),
        4 => format!("{:?}", rows.last_row()?),
        _ => format!("{:?}", rows.first_row()?),
    });
    let all = tx.range(&tables.words, ..).count_rows()?;
    let last = tx.range(&tables.words, ..).last_row()?.map(|word| word.text.clone());
    let is_there = tx.contains(&tables.words, start)?;
    found.push(format!("{all} {last:?} {is_there}"));
    Ok(found)
}

/// The range of a scan can be the same as before although it is read differently: it starts after another key, goes in
/// another direction, or is counted. Then the kept rows are not used.
#[test]
fn scans_that_are_read_differently_run_again() {
    let clock = ManualClock::new(Timestamp::from_millis(5_000));
    let (database, tables) = open::<Dbx>(&clock);
    for before in 2..6 {
        for after in 2..6 {
            let tx = database.begin().expect("begins");
            let set = |uses| {
                tx.update(&tables.words, "apple", |word| word.uses = uses).expect("there is a row");
            };
            set(before);
            let change = || set(after);
            let driver = Repair {
                tx: &tx,
                change: &change,
                passes: Cell::new(0),
                ran: RefCell::default(),
                kept: RefCell::default(),
            };
            let found = Looks::new(&tables).execute(&driver).expect("reads");
            assert_eq!(found, looks(&tables, &tx).expect("reads"), "{before}, then {after}");
            let (ran, kept) = (driver.ran.take(), driver.kept.take());
            assert!(kept.contains(&4) && kept.contains(&5), "{ran:?} {kept:?}");
            // The first scan starts after the lead's word, so it runs again whenever the lead changes.
            assert_eq!(ran.contains(&1), before != after, "{ran:?} {kept:?}");
        }
    }
}

#[test]
fn shapes_know_the_operations() {
    let shape = Everything::<Dbx>::shape();
    assert!(shape.uses_time && !Looks::<Dbx>::shape().uses_time);
    let access = |method: &str| {
        let step = shape.steps.iter().find(|step| step.method == method);
        let step = step.expect("there is such a step");
        (step.access, step.key_dependencies().map(|on| on.on).collect::<Vec<_>>())
    };
    assert_eq!(access("contains"), (Access::Read, vec![0]));
    assert_eq!(access("range"), (Access::Scan, vec![0]), "it starts after a key that depends");
    assert_eq!(access("update_many"), (Access::ReadWrite, vec![0]));
    assert_eq!(access("delete_range"), (Access::Delete, vec![]));
    assert_eq!(access("insert_generated"), (Access::Insert, vec![]));
    let counting = shape.steps.iter().find(|step| step.method == "update_many");
    assert_eq!(counting.expect("there is such a step").adds, ["uses"]);
}

#[test]
fn one_pass_does_what_the_function_does() {
    let clock = ManualClock::new(Timestamp::from_millis(5_000));
    for uses in 1..6 {
        let (database, tables) = open::<Dbx>(&clock);
        let ran = database.transact(|tx| {
            tx.update(&tables.words, "apple", |word| word.uses = uses)?;
            let found = Everything::new(&tables, "apple").execute(&Direct::new(tx))?;
            Ok::<_, Error>((found, left(tx, &tables)?))
        });
        assert_eq!(ran.expect("commits"), by_function(uses));
    }
}

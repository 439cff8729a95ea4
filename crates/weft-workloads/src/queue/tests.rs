//! Tests of the queue: under every protocol each entry is consumed once, and in order.

use std::cell::RefCell;

use crate::trials::with_protocol;
use weft::Error;
use weft::protocol::{Dbx, Protocol};

use super::{Consume, END, End, Entry, Parameters, Participant, Produce, Queue, Request};
use crate::procedures::rehearsal::{AccessedRow, Change, Tally, subject};
use crate::stashing::RequestClient;
use crate::trials::{broken, load, run, runnable_protocols};
use crate::workload::{LoadOptions, Workload};

#[test]
fn entries_are_consumed_once_and_in_order() {
    fn check<P: Protocol>() {
        for (seed, backlog) in [(51, 0), (52, 40)] {
            let queue: Queue<P> = load(&Parameters { backlog }, seed);
            let counts = run(&queue, 2_000, seed);
            let [produced, consumed] = counts[..] else { panic!("two types: {counts:?}") };
            assert!(produced[0] > 500 && consumed[0] > 500, "{}: {counts:?}", P::NAME);
            assert_eq!(produced[1], 0, "{}: producing always succeeds", P::NAME);
        }
    }
    for name in runnable_protocols() {
        with_protocol!(name, |P| check::<P>()).expect("a name of the list");
    }
}

#[test]
fn empty_queue_has_nothing_to_consume() {
    let queue: Queue<Dbx> = load(&Parameters { backlog: 1 }, 53);
    let consume = || {
        let request = Request::Consume { client: 0 };
        queue.database.transact(|tx| queue.run(tx, &request)).expect("it runs to its end")
    };
    assert!(consume() && !consume());
}

/// Damages a database, and checks what verification reports.
#[test]
fn verification_finds_what_is_wrong() {
    type Damage = fn(&Queue<Dbx>) -> Result<(), Error>;
    fn first(queue: &Queue<Dbx>) -> Result<Entry, Error> {
        queue.database.transact(|tx| {
            let first = tx.range(&queue.tables.entries, ..).next().expect("there are entries");
            first.copied()
        })
    }
    fn change(queue: &Queue<Dbx>, change: fn(&mut Participant)) -> Result<(), Error> {
        queue.database.transact(|tx| tx.update(&queue.tables.clients, &0, change).map(drop))
    }
    let cases: [(Damage, &[&str]); 7] = [
        (
            |queue| {
                let number = first(queue)?.number;
                queue.database.transact(|tx| tx.delete(&queue.tables.entries, &number).map(drop))
            },
            &["without gaps"],
        ),
        (
            |queue| {
                let Entry { number, .. } = first(queue)?;
                let entry = Entry { number: number - 1, producer: 7, sequence: 1 };
                queue.database.transact(|tx| tx.insert(&queue.tables.entries, entry))
            },
            &["without gaps", "each producer's entries"],
        ),
        (
            |queue| {
                let end = |end: &mut End| end.next += 1;
                queue.database.transact(|tx| tx.update(&queue.tables.end, &END, end).map(drop))
            },
            &["the end has"],
        ),
        (|queue| change(queue, |row| row.consumed += 1), &["the clients' counts"]),
        (|queue| change(queue, |row| row.sum += 1), &["once each"]),
        (|queue| change(queue, |row| row.disordered += 1), &["each client consumed"]),
        (
            |queue| {
                let Entry { number, .. } = first(queue)?;
                queue.database.transact(|tx| {
                    let swap = |entry: &mut Entry| entry.sequence += 1_000_000;
                    tx.update(&queue.tables.entries, &number, swap).map(drop)
                })
            },
            &["each producer's entries"],
        ),
    ];
    for (damage, expected) in cases {
        const SEED: u64 = 54;
        let queue: Queue<Dbx> = load(&Parameters { backlog: 200 }, SEED);
        let mut client = queue.client(SEED, 0, 1);
        for _ in 0..500 {
            queue.execute(&mut client).expect("it runs to its end");
        }
        assert_eq!(broken(&queue), [""; 0]);
        damage(&queue).expect("it is done");
        let found = broken(&queue);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found:?}");
        }
    }
}

#[test]
fn repair_equals_a_run_from_the_start() {
    let parameters = Parameters { backlog: 3 };
    let queue: Queue<Dbx> = Queue::load(&parameters, &LoadOptions::default()).expect("loads");
    let mut client = queue.client(1, 0, 1);
    let mut tally = Tally::default();
    for seed in 0..300 {
        let random = RefCell::new(fastrand::Rng::with_seed(seed));
        let choose = |_: &[AccessedRow]| {
            let random = &mut random.borrow_mut();
            let number = random.u64(0..3);
            vec![match random.u32(0..3) {
                0 => Change::put(&queue.tables.entries, number, None),
                1 => Change::update(&queue.tables.end, END, move |end: &mut End| {
                    end.next += 10 + number;
                }),
                _ => Change::update(&queue.tables.clients, 0, move |row: &mut Participant| {
                    row.after_last = number;
                    row.produced += number;
                }),
            }]
        };
        let mut own = fastrand::Rng::with_seed(!seed);
        let tables = &queue.tables;
        let request = client.draw();
        let subject = match &request {
            Request::Produce { client } => subject!(|| Produce::new(tables, *client)),
            Request::Consume { client } => subject!(|| Consume::new(tables, *client)),
        };
        let context = format!("seed {seed}");
        tally.trial(queue.database(), &subject, subject.shape, &mut own, &choose, &context);
    }
    assert!(tally.kept > 0 && tally.ran_again > 0, "{tally:?}");
}

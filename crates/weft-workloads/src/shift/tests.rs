//! Tests of the shifting hot spot: it moves and changes its kind, and under every protocol no change is lost.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::trials::with_protocol;
use weft::Error;
use weft::protocol::{Dbx, Protocol};

use super::{Add, Change, HOT_ROWS, Modify, Parameters, Plain, Request, Shift, Spot, Take, Ticket};
use crate::procedures::rehearsal::{AccessedRow, Change as RowChange, Tally, subject};
use crate::trials::{broken, load, run, runnable_protocols};
use crate::workload::{LoadOptions, Workload};

fn few(every: Duration) -> Parameters {
    let change = Change { since: Instant::now(), every };
    Parameters { records: HOT_ROWS + 10, hot_percent: 80, change }
}

#[test]
fn no_change_is_lost_while_the_spot_moves() {
    fn check<P: Protocol>() {
        const SEED: u64 = 61;
        let shift: Shift<P> = load(&few(Duration::from_millis(1)), SEED);
        let counts = run(&shift, 3_000, SEED);
        assert!(counts.iter().all(|of_type| of_type[1] == 0), "{}: {counts:?}", P::NAME);
        assert!(counts[0][0] > 100, "{}: {counts:?}", P::NAME);
    }
    for name in runnable_protocols() {
        with_protocol!(name, |P| check::<P>()).expect("a name of the list");
    }
}

#[test]
fn hot_spot_moves_and_changes_its_kind() {
    const SEED: u64 = 62;
    let shift: Shift<Dbx> = load(&few(Duration::from_secs(1)), SEED);
    let mut client = shift.source.client(SEED, 0);
    let mut spots = Vec::new();
    for turn in 0..3 * HOT_ROWS {
        let hot = (0..100).map(|_| client.draw_in(turn));
        let mut hot: Vec<_> = hot
            .filter_map(|request| match request {
                Request::Plain { other } => {
                    assert!(other >= HOT_ROWS);
                    None
                }
                Request::Add { hot, .. } => Some((0, hot.key())),
                Request::Modify { hot, .. } => Some((1, hot.key())),
                Request::Take { .. } => Some((2, turn % HOT_ROWS)),
            })
            .collect();
        assert!(hot.len() > 50, "seed {SEED}, turn {turn}: {} of 100", hot.len());
        hot.dedup();
        let [spot] = hot[..] else { panic!("seed {SEED}: one spot in a turn: {hot:?}") };
        assert!(spots.last().is_none_or(|&(kind, _)| kind != spot.0), "{spots:?}");
        spots.push(spot);
    }
    spots.sort_unstable();
    spots.dedup();
    assert_eq!(spots.len() as u64, 3 * HOT_ROWS, "each row gets each kind");
}

/// Damages a database, and checks what verification reports.
#[test]
fn verification_finds_what_is_wrong() {
    fn add(shift: &Shift<Dbx>, id: u64, amount: i64) -> Result<(), Error> {
        let add = |row: &mut Spot| row.value += amount;
        shift.database.transact(|tx| tx.update(&shift.tables.spots, &id, add).map(drop))
    }
    type Damage = fn(&Shift<Dbx>) -> Result<(), Error>;
    let cases: [(Damage, &[&str]); 4] = [
        (|shift| add(shift, 0, 1), &["each hot row's"]),
        (|shift| add(shift, HOT_ROWS, 1), &["the sum of the other rows'"]),
        (
            |shift| {
                add(shift, HOT_ROWS, -1_000_000)?;
                add(shift, HOT_ROWS + 1, 1_000_000)
            },
            &["other rows: each"],
        ),
        (
            |shift| {
                shift.database.transact(|tx| {
                    let first = tx.range(&shift.tables.line, ..).next().expect("it has rows")?;
                    tx.delete(&shift.tables.line, &first.number).map(drop)
                })
            },
            &["the line has"],
        ),
    ];
    for (damage, expected) in cases {
        const SEED: u64 = 63;
        let shift: Shift<Dbx> = load(&few(Duration::from_millis(1)), SEED);
        let mut client = shift.client(SEED, 0, 1);
        for _ in 0..1_000 {
            shift.execute(&mut client).expect("it runs to its end");
        }
        assert_eq!(broken(&shift), [""; 0]);
        damage(&shift).expect("it is done");
        let found = broken(&shift);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found:?}");
        }
    }
}

#[test]
fn repair_equals_a_run_from_the_start() {
    let parameters = few(Duration::from_secs(1));
    let shift: Shift<Dbx> = Shift::load(&parameters, &LoadOptions::default()).expect("loads");
    let mut client = shift.source.client(1, 0);
    let mut tally = Tally::default();
    for seed in 0..300 {
        let random = RefCell::new(fastrand::Rng::with_seed(seed));
        let choose = |met: &[AccessedRow]| {
            let random = &mut random.borrow_mut();
            let (met, number) = (&met[random.usize(..met.len())], random.u64(0..3));
            vec![match (met.key::<Spot>(), met.key::<Ticket>()) {
                (Some(&key), _) => {
                    RowChange::update(&shift.tables.spots, key, move |row: &mut Spot| {
                        row.value += number as i64;
                    })
                }
                (_, Some(_)) => RowChange::put(&shift.tables.line, number, None),
                _ => unreachable!("only two tables"),
            }]
        };
        let mut own = fastrand::Rng::with_seed(!seed);
        let tables = &shift.tables;
        let request = client.draw_in(seed);
        let subject = match &request {
            Request::Plain { other } => subject!(|| Plain::new(tables, *other)),
            Request::Add { hot, other } => subject!(|| Add::new(tables, hot.key(), *other)),
            Request::Modify { hot, other } => subject!(|| Modify::new(tables, hot.key(), *other)),
            Request::Take { other } => subject!(|| Take::new(tables, *other)),
        };
        let context = format!("seed {seed}");
        tally.trial(shift.database(), &subject, subject.shape, &mut own, &choose, &context);
    }
    assert!(tally.kept > 0 && tally.ran_again > 0, "{tally:?}");
}

//! The load, how often transactions succeed on the loaded rows, and that verification finds damage.

use weft::protocol::Dbx;
use weft::{Error, Transaction};

use super::{assert_consistent, conditions, load};
use crate::tatp::load::Family;
use crate::tatp::schema::{CallForwarding, START_TIMES, number_of};
use crate::tatp::{Parameters, Tables, Tatp, TransactionType};
use crate::workload::Workload;

#[test]
fn the_load_is_the_same_on_any_number_of_threads() {
    const SEED: u64 = 31;
    let parameters = Parameters { subscribers: 25_000, ..Parameters::default() };
    for threads in [1, 3] {
        let tatp: Tatp<Dbx> = load(&parameters, SEED, threads);
        assert_consistent(&tatp, &format!("{threads} threads, seed {SEED}"));
    }
}

#[test]
fn the_population_has_the_proportions_of_the_specification() {
    const SEED: u64 = 32;
    const SUBSCRIBERS: u32 = 20_000;
    let (mut access, mut facilities, mut active) = ([0_u32; 5], [0_u32; 5], 0_u32);
    let mut forwardings = [0_u32; 4];
    let mut durations = [0_u32; 9];
    for s_id in 1..=SUBSCRIBERS {
        let family = Family::draw(SEED, s_id);
        assert_eq!(family, Family::draw(SEED, s_id));
        assert_ne!(family, Family::draw(SEED + 1, s_id));
        access[family.access.len()] += 1;
        facilities[family.facilities.len()] += 1;
        for facility in &family.facilities {
            active += u32::from(facility.is_active);
            let of_it = family.forwardings.iter().filter(|row| row.sf_type == facility.sf_type);
            forwardings[of_it.clone().count()] += 1;
            of_it.for_each(|row| durations[usize::from(row.end_time - row.start_time)] += 1);
        }
        assert!(family.forwardings.iter().all(|row| START_TIMES.contains(&row.start_time)));
        assert!(family.subscriber.hex.iter().all(|&hex| hex < 16), "seed {SEED}");
    }
    let near = |counts: &[u32]| {
        let expected = counts.iter().sum::<u32>() / counts.len() as u32;
        counts.iter().all(|&count| count.abs_diff(expected) < expected / 20)
    };
    assert!(access[0] == 0 && near(&access[1..]), "seed {SEED}: {access:?}");
    assert!(facilities[0] == 0 && near(&facilities[1..]), "seed {SEED}: {facilities:?}");
    assert!(near(&forwardings), "seed {SEED}: {forwardings:?}");
    assert!(durations[0] == 0 && near(&durations[1..]), "seed {SEED}: {durations:?}");
    let share = f64::from(active) / f64::from(forwardings.iter().sum::<u32>());
    assert!((share - 0.85).abs() < 0.01, "seed {SEED}: {share}");
}

/// The specification's rates, and for `GET_NEW_DESTINATION` the rate that follows from its population.
#[test]
fn transactions_succeed_as_often_as_they_should() {
    const SEED: u64 = 33;
    let parameters = Parameters { subscribers: 20_000, ..Parameters::default() };
    let tatp: Tatp<Dbx> = load(&parameters, SEED, 1);
    let mut client = tatp.client(SEED, 0, 1);
    let (mut succeeded, mut ended) = ([0_u32; 7], [0_u32; 7]);
    for _ in 0..200_000 {
        let outcome = tatp.execute(&mut client).expect("it runs to its end");
        ended[outcome.transaction] += 1;
        succeeded[outcome.transaction] += u32::from(!outcome.rolled_back);
    }
    let mut expected = TransactionType::SUCCESS_RATES;
    expected[TransactionType::GetNewDestination as usize] = 0.148;
    for (position, expected) in expected.into_iter().enumerate() {
        let rate = f64::from(succeeded[position]) / f64::from(ended[position]);
        let name = TransactionType::NAMES[position];
        // Some subscribers are drawn far more often than others, so the rate depends on the rows of these.
        let tolerance = if expected == 1.0 { 0.0 } else { 0.035 };
        assert!((rate - expected).abs() <= tolerance, "seed {SEED}, {name}: {rate}, {expected}");
    }
    let standard = crate::tatp::Mix::STANDARD.weights();
    for (count, weight) in ended.into_iter().zip(standard) {
        assert!(count.abs_diff(weight * 2_000) < weight * 2_000 / 10, "seed {SEED}: {ended:?}");
    }
    assert_consistent(&tatp, &format!("seed {SEED}"));
}

/// Damages a database, and checks which conditions report it.
#[test]
fn verification_finds_what_is_wrong() {
    type Damage = fn(&Tables, &Transaction<'_, Dbx>, &Family) -> Result<(), Error>;
    let cases: [(&str, Damage, &[usize]); 8] = [
        ("a lost subscriber", |tables, tx, _| tx.delete(&tables.subscriber, &7).map(drop), &[0, 1]),
        (
            "a changed number",
            |tables, tx, _| {
                tx.update(&tables.subscriber, &7, |row| row.sub_nbr = number_of(1_000)).map(drop)
            },
            &[0, 1],
        ),
        (
            "a changed column",
            |tables, tx, _| tx.update(&tables.subscriber, &7, |row| row.hex[3] ^= 1).map(drop),
            &[0],
        ),
        (
            "one subscriber too many",
            |tables, tx, family| {
                let mut row = family.subscriber;
                (row.s_id, row.sub_nbr) = (101, number_of(101));
                tx.insert(&tables.subscriber, row)
            },
            &[0, 1],
        ),
        (
            "a lost row of access",
            |tables, tx, family| {
                let key = (7, family.access[0].ai_type);
                tx.delete(&tables.access_info, &key).map(drop)
            },
            &[2],
        ),
        (
            "a lost facility",
            |tables, tx, family| {
                let sf_type = family.forwardings[0].sf_type;
                tx.delete(&tables.special_facility, &(7, sf_type)).map(drop)
            },
            &[3],
        ),
        (
            "a forwarding without a subscriber",
            |tables, tx, family| {
                let row = CallForwarding { s_id: 101, ..family.forwardings[0] };
                tx.insert(&tables.call_forwarding, row)
            },
            &[4, 5],
        ),
        (
            "a lost forwarding",
            |tables, tx, family| {
                let row = &family.forwardings[0];
                let key = (row.s_id, row.sf_type, row.start_time);
                tx.delete(&tables.call_forwarding, &key).map(drop)
            },
            &[5],
        ),
    ];
    for (name, damage, expected) in cases {
        // A seed with which the seventh subscriber has a forwarding.
        let seed = (0..).find(|&seed| !Family::draw(seed, 7).forwardings.is_empty()).expect("one");
        let parameters = Parameters { subscribers: 100, ..Parameters::default() };
        let tatp: Tatp<Dbx> = load(&parameters, seed, 1);
        let family = Family::draw(seed, 7);
        let damaged = tatp.database.transact(|tx| damage(&tatp.tables, tx, &family));
        damaged.expect("it is done");
        let conditions = conditions(&tatp);
        let broken: Vec<usize> = (0..6).filter(|&position| !conditions[position].holds).collect();
        assert_eq!(broken, expected, "{name}: {conditions:?}");
    }
}

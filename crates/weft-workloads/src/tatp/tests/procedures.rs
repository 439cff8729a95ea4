//! The seven transactions as procedures.

use std::cell::RefCell;

use weft::protocol::Dbx;

use super::load;
use crate::procedures::rehearsal::{Change, Met, Subject, Tally, subject};
use crate::tatp::changes::{self, Change as Request};
use crate::tatp::queries::{self, Query};
use crate::tatp::schema::{
    AccessInfo, CallForwarding, START_TIMES, SpecialFacility, Subscriber, number_of,
};
use crate::tatp::{Parameters, Tatp};
use crate::workload::Workload;

/// Returns some changes to the rows of a subscriber.
fn changes(tatp: &Tatp<Dbx>, random: &mut fastrand::Rng, met: &[Met], s_id: u32) -> Vec<Change> {
    (0..random.usize(1..=3)).flat_map(|_| change(tatp, random, met, s_id)).collect()
}

fn change(tatp: &Tatp<Dbx>, random: &mut fastrand::Rng, met: &[Met], s_id: u32) -> Vec<Change> {
    let tables = &tatp.tables;
    let number = random.u8(..);
    let facility = (s_id, random.u8(1..=4));
    let start_time = START_TIMES[random.usize(..3)];
    match random.u32(..6) {
        0 => {
            let row = random.bool().then(|| SpecialFacility {
                s_id,
                sf_type: facility.1,
                is_active: true,
                error_cntrl: 0,
                data_a: number,
                data_b: Default::default(),
            });
            vec![Change::put(&tables.special_facility, facility, row)]
        }
        1 => {
            vec![Change::update(&tables.special_facility, facility, |row: &mut SpecialFacility| {
                row.is_active ^= true;
            })]
        }
        2 => {
            let key = (s_id, facility.1, start_time);
            let row = random.bool().then(|| CallForwarding {
                s_id,
                sf_type: key.1,
                start_time,
                end_time: number % 24,
                numberx: number_of(number.into()),
            });
            vec![Change::put(&tables.call_forwarding, key, row)]
        }
        _ => {
            let access = met.iter().find_map(|met| met.key::<AccessInfo>());
            if let Some(&key) = access {
                return vec![Change::update(
                    &tables.access_info,
                    key,
                    move |row: &mut AccessInfo| {
                        row.data1 = number;
                    },
                )];
            }
            let of_subscriber = |s_id: u32, change: fn(&mut Subscriber, u32), number: u32| {
                Change::update(&tables.subscriber, s_id, move |row| change(row, number))
            };
            let renumber = |row: &mut Subscriber, number| row.sub_nbr = number_of(number);
            match random.bool() {
                // Another subscriber gets the number.
                true => vec![
                    of_subscriber(s_id, renumber, 1_000 + s_id),
                    of_subscriber(s_id % 50 + 1, renumber, s_id),
                ],
                false => {
                    vec![of_subscriber(
                        s_id,
                        |row, number| row.msc_location = number,
                        number.into(),
                    )]
                }
            }
        }
    }
}

/// Tries the transaction with this number.
fn try_one(tatp: &Tatp<Dbx>, number: usize, seed: u64, tally: &mut Tally) {
    let mut client = tatp.client(seed, 0, 1);
    let random = RefCell::new(fastrand::Rng::with_seed(seed));
    let tables = &tatp.tables;
    let mut attempt = |subject: &Subject<'_>, s_id: u32| {
        let choose = |met: &[Met]| changes(tatp, &mut random.borrow_mut(), met, s_id);
        let mut own = fastrand::Rng::with_seed(!seed);
        let context = format!("seed {seed}");
        tally.trial(tatp.database(), subject, subject.shape, &mut own, &choose, &context);
    };
    let s_id_of = |number: crate::tatp::schema::Number| number.parse().expect("digits");
    if number < 3 {
        let query = match number {
            0 => Query::draw_subscriber_data(&mut client),
            1 => Query::draw_new_destination(&mut client),
            _ => Query::draw_access_data(&mut client),
        };
        return match query {
            Query::SubscriberData { s_id } => {
                attempt(&subject!(|| queries::GetSubscriberData::new(tables, s_id)), s_id);
            }
            Query::NewDestination { s_id, sf_type, start_time, end_time } => attempt(
                &subject!(|| {
                    queries::GetNewDestination::new(tables, s_id, sf_type, start_time, end_time)
                }),
                s_id,
            ),
            Query::AccessData { s_id, ai_type } => {
                attempt(&subject!(|| queries::GetAccessData::new(tables, s_id, ai_type)), s_id);
            }
        };
    }
    let request = match number {
        3 => Request::draw_subscriber_data(&mut client),
        4 => Request::draw_location(&mut client),
        5 => Request::draw_insert(&mut client),
        _ => Request::draw_delete(&mut client),
    };
    match request {
        Request::SubscriberData { s_id, bit_1, sf_type, data_a } => attempt(
            &subject!(|| {
                changes::UpdateSubscriberData::new(tables, s_id, bit_1, sf_type, data_a)
            }),
            s_id,
        ),
        Request::Location { sub_nbr, vlr_location } => attempt(
            &subject!(|| changes::UpdateLocation::new(tables, sub_nbr, vlr_location)),
            s_id_of(sub_nbr),
        ),
        Request::Insert { sub_nbr, sf_type, start_time, end_time, numberx } => attempt(
            &subject!(|| changes::InsertCallForwarding::new(
                tables, sub_nbr, sf_type, start_time, end_time, numberx
            )),
            s_id_of(sub_nbr),
        ),
        Request::Delete { sub_nbr, sf_type, start_time } => attempt(
            &subject!(|| {
                changes::DeleteCallForwarding::new(tables, sub_nbr, sf_type, start_time)
            }),
            s_id_of(sub_nbr),
        ),
    }
}

#[test]
fn a_repair_comes_to_the_same_as_a_run_from_the_start() {
    let parameters = Parameters { subscribers: 50, ..Parameters::default() };
    let tatp: Tatp<Dbx> = load(&parameters, 3, 1);
    for number in 0..7 {
        let mut tally = Tally::default();
        for seed in 0..300 {
            try_one(&tatp, number, seed, &mut tally);
        }
        println!("{number}: {tally:?}");
        assert!(tally.kept > 0 && tally.ran_again > 0, "{number}: {tally:?}");
    }
}

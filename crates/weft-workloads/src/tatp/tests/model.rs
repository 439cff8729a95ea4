//! The seven transactions against a plain model: maps of rows, changed by one transaction at a time.

use std::collections::BTreeMap;

use crate::trials::with_protocol;
use weft::protocol::{Dbx, Protocol};

use super::{assert_consistent, load, runnable_protocols};
use crate::tatp::changes::{self, Change, ChangeError};
use crate::tatp::load::Family;
use crate::tatp::mix::TransactionType;
use crate::tatp::queries::{self, Answer, Query};
use crate::tatp::schema::{AccessInfo, CallForwarding, SpecialFacility, Subscriber};
use crate::tatp::{Client, Parameters, Tatp};
use crate::walk;
use crate::workload::Workload;

/// The four tables.
#[derive(Debug, PartialEq)]
struct Model {
    subscriber: BTreeMap<u32, Subscriber>,
    access_info: BTreeMap<(u32, u8), AccessInfo>,
    special_facility: BTreeMap<(u32, u8), SpecialFacility>,
    call_forwarding: BTreeMap<(u32, u8, u8), CallForwarding>,
}

impl Model {
    fn loaded(seed: u64, subscribers: u32) -> Model {
        let mut model = Model {
            subscriber: BTreeMap::new(),
            access_info: BTreeMap::new(),
            special_facility: BTreeMap::new(),
            call_forwarding: BTreeMap::new(),
        };
        for s_id in 1..=subscribers {
            let Family { subscriber, access, facilities, forwardings } = Family::draw(seed, s_id);
            model.subscriber.insert(s_id, subscriber);
            model.access_info.extend(access.into_iter().map(|row| ((s_id, row.ai_type), row)));
            let facilities = facilities.into_iter().map(|row| ((s_id, row.sf_type), row));
            model.special_facility.extend(facilities);
            let forwardings =
                forwardings.into_iter().map(|row| ((s_id, row.sf_type, row.start_time), row));
            model.call_forwarding.extend(forwardings);
        }
        model
    }

    fn answer(&self, query: &Query) -> Answer {
        match *query {
            Query::SubscriberData { s_id } => {
                Answer::SubscriberData(self.subscriber.get(&s_id).cloned())
            }
            Query::NewDestination { s_id, sf_type, start_time, end_time } => {
                let is_active = |row: &CallForwarding| {
                    self.special_facility[&(row.s_id, row.sf_type)].is_active
                };
                let rows = self.call_forwarding.values().filter(|row| {
                    (row.s_id, row.sf_type) == (s_id, sf_type)
                        && is_active(row)
                        && row.start_time <= start_time
                        && end_time < row.end_time
                });
                Answer::NewDestination(rows.map(|row| row.numberx).collect())
            }
            Query::AccessData { s_id, ai_type } => {
                Answer::AccessData(self.access_info.get(&(s_id, ai_type)).cloned())
            }
        }
    }

    /// Changes the model. Returns whether the transaction succeeded.
    fn change(&mut self, change: &Change) -> bool {
        let find = |number| {
            let subscriber = self.subscriber.values().find(|row| row.sub_nbr == number);
            subscriber.expect("a subscriber has every number").s_id
        };
        match *change {
            Change::SubscriberData { s_id, bit_1, sf_type, data_a } => {
                let Some(facility) = self.special_facility.get_mut(&(s_id, sf_type)) else {
                    return false;
                };
                facility.data_a = data_a;
                self.subscriber.get_mut(&s_id).expect("a subscriber").bit[0] = bit_1;
                true
            }
            Change::Location { sub_nbr, vlr_location } => {
                let s_id = find(sub_nbr);
                self.subscriber.get_mut(&s_id).expect("a subscriber").vlr_location = vlr_location;
                true
            }
            Change::Insert { sub_nbr, sf_type, start_time, end_time, numberx } => {
                let s_id = find(sub_nbr);
                let key = (s_id, sf_type, start_time);
                if !self.special_facility.contains_key(&(s_id, sf_type))
                    || self.call_forwarding.contains_key(&key)
                {
                    return false;
                }
                let row = CallForwarding { s_id, sf_type, start_time, end_time, numberx };
                self.call_forwarding.insert(key, row);
                true
            }
            Change::Delete { sub_nbr, sf_type, start_time } => {
                self.call_forwarding.remove(&(find(sub_nbr), sf_type, start_time)).is_some()
            }
        }
    }

    /// Reads all rows of a database.
    fn read<P: Protocol>(tatp: &Tatp<P>) -> Model {
        let subscribers = 1..=tatp.parameters.subscribers;
        let mut model = Model::loaded(0, 0);
        let (snapshot, tables) = (tatp.database.open_snapshot().expect("a snapshot"), &tatp.tables);
        walk::keys(&snapshot, &tables.subscriber, subscribers.clone(), |key, row| {
            model.subscriber.extend(row.map(|row| (key, *row)));
        })
        .expect("reads");
        let types = subscribers.flat_map(|s_id| (1..=4).map(move |ai_type| (s_id, ai_type)));
        walk::keys(&snapshot, &tables.access_info, types, |key, row| {
            model.access_info.extend(row.map(|row| (key, *row)));
        })
        .expect("reads");
        for row in snapshot.rows(&tables.special_facility) {
            let row = row.expect("reads");
            model.special_facility.insert((row.s_id, row.sf_type), *row);
        }
        for row in snapshot.rows(&tables.call_forwarding) {
            let row = row.expect("reads");
            model.call_forwarding.insert((row.s_id, row.sf_type, row.start_time), *row);
        }
        model
    }
}

/// One transaction.
enum Step {
    Query(Query),
    Change(Change),
}

fn draw(client: &mut Client) -> Step {
    match client.draw_transaction() {
        TransactionType::GetSubscriberData => Step::Query(Query::draw_subscriber_data(client)),
        TransactionType::GetNewDestination => Step::Query(Query::draw_new_destination(client)),
        TransactionType::GetAccessData => Step::Query(Query::draw_access_data(client)),
        TransactionType::UpdateSubscriberData => Step::Change(Change::draw_subscriber_data(client)),
        TransactionType::UpdateLocation => Step::Change(Change::draw_location(client)),
        TransactionType::InsertCallForwarding => Step::Change(Change::draw_insert(client)),
        TransactionType::DeleteCallForwarding => Step::Change(Change::draw_delete(client)),
    }
}

/// Runs the transactions by their inner functions, so that their results can be compared.
fn agrees<P: Protocol>(seed: u64) {
    let context = format!("{}, seed {seed}", P::NAME);
    let mix = "2,2,2,1,1,2,2".parse().expect("a mix");
    let parameters = Parameters { subscribers: 60, mix, ..Parameters::default() };
    let tatp: Tatp<P> = load(&parameters, seed, 1);
    let mut model = Model::loaded(seed, parameters.subscribers);
    let mut client = tatp.client(seed, 0, 1);
    let mut succeeded = [0_u32; 2];
    for number in 0..4_000 {
        match draw(&mut client) {
            Step::Query(query) => {
                let answer = if number % 2 == 0 {
                    queries::execute_as_transaction(&tatp, &query)
                } else {
                    tatp.database.snapshot(|view| queries::run::<P>(&tatp.tables, view, &query))
                };
                let answer = answer.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(answer, model.answer(&query), "{context}: {query:?}");
                succeeded[usize::from(answer.is_success())] += 1;
            }
            Step::Change(change) => {
                let made = changes::make(&tatp, &change);
                let made = match made {
                    Ok(()) => true,
                    Err(ChangeError::Unsuccessful) => false,
                    Err(ChangeError::Engine(error)) => panic!("{context}: {error}"),
                };
                assert_eq!(made, model.change(&change), "{context}: {change:?}");
                succeeded[usize::from(made)] += 1;
            }
        }
    }
    assert_eq!(Model::read(&tatp), model, "{context}");
    assert!(succeeded.iter().all(|&count| count > 500), "{context}: {succeeded:?}");
}

#[test]
fn every_protocol_agrees_with_the_model() {
    for name in runnable_protocols() {
        with_protocol!(name, |P| agrees::<P>(41)).expect("a name of the list");
    }
}

/// Runs the clients' whole transactions, with the ledgers that verification reads.
#[test]
fn clients_count_their_changes() {
    const SEED: u64 = 42;
    let mix = "0,0,0,1,1,1,1".parse().expect("a mix");
    let parameters = Parameters { subscribers: 60, mix, ..Parameters::default() };
    let tatp: Tatp<Dbx> = load(&parameters, SEED, 1);
    let mut client = tatp.client(SEED, 0, 1);
    let mut succeeded = [0_u64; 7];
    for _ in 0..4_000 {
        let outcome = tatp.execute(&mut client).expect("it runs to its end");
        succeeded[outcome.transaction] += u64::from(!outcome.rolled_back);
    }
    let (inserted, deleted) = tatp.ledgers.inserted_and_deleted();
    assert_eq!([inserted, deleted], succeeded[5..], "seed {SEED}");
    assert!(inserted > 100 && deleted > 100, "seed {SEED}: {succeeded:?}");
    assert_consistent(&tatp, &format!("seed {SEED}"));
}

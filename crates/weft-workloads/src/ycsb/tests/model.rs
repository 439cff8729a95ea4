//! One client, against a `BTreeMap`: after each transaction both have the same rows.

use std::collections::BTreeMap;

use crate::trials::with_protocol;

use super::{
    HashRow, Kind, Mix, Parameters, Protocol, RawYcsb, Row, TreeRow, Ycsb, assert_invariants,
    broken, for_each_protocol, load, mix, options,
};
use crate::workload::Workload;
use crate::ycsb::client::{Client, TransactionChanges};

const TRANSACTIONS: u32 = 3_000;

/// The expected rows.
struct Model<R>(BTreeMap<u64, R>);

impl<R: Row> Model<R> {
    fn new(records: u64) -> Self {
        Model((0..records).map(|key| (key, R::new(key))).collect())
    }

    /// Executes the client's next transaction on the model.
    fn step(&mut self, client: &mut Client) {
        let range = client.advance();
        let mut done = TransactionChanges::default();
        for &operation in client.operations(range) {
            match operation.kind() {
                Kind::Read | Kind::Scan => {}
                Kind::ReadModifyWrite => {
                    self.0.get_mut(&client.key(operation)).expect("a row").modify();
                }
                Kind::Insert => {
                    let key = client.fresh_key(done.inserted);
                    assert!(self.0.insert(key, R::new(key)).is_none());
                    done.inserted += 1;
                }
            }
        }
        client.note(done);
    }

    fn same(a: &R, b: &R) -> bool {
        (a.key(), a.counter(), a.digest()) == (b.key(), b.counter(), b.digest())
    }
}

fn agrees<P: Protocol, R: Row>(parameters: &Parameters, seed: u64) {
    let context = format!("{}, {parameters:?}, seed {seed}", P::NAME);
    let ycsb: Ycsb<P, R> = load(parameters, 1);
    // The model has a client of its own, with the same seed, of another database.
    let other: Ycsb<P, R> = load(parameters, 1);
    let (mut client, mut followed) = (ycsb.client(seed, 0, 1), other.client(seed, 0, 1));
    let mut model = Model::<R>::new(parameters.records);
    for _ in 0..TRANSACTIONS {
        ycsb.execute(&mut client).expect(&context);
        model.step(&mut followed);
    }
    for (key, expected) in &model.0 {
        let found = ycsb.database.transact(|tx| tx.get(&ycsb.table, key).map(|row| row.copied()));
        let found: Result<_, weft::Error> = found;
        let found = found.expect(&context).unwrap_or_else(|| panic!("{context}: no row {key}"));
        assert!(Model::same(&found, expected), "{context}: {found:?}, not {expected:?}");
    }
    assert_invariants(&ycsb, &context);
}

#[test]
fn every_protocol_agrees_with_the_model() {
    for_each_protocol(|protocol| {
        let single =
            Parameters { records: 200, mix: Mix::DBX, theta: 0.9, ..Parameters::default() };
        with_protocol!(protocol.name, |P| {
            agrees::<P, TreeRow>(&single, 1);
            agrees::<P, HashRow>(&single, 2);
        });
        if protocol.single_key {
            return;
        }
        let several = Parameters { operations: 5, mix: mix([20, 60, 20, 0]), ..single };
        let scans = Parameters { operations: 3, mix: mix([10, 40, 20, 30]), ..single };
        with_protocol!(protocol.name, |P| {
            agrees::<P, TreeRow>(&scans, 3);
            agrees::<P, HashRow>(&several, 4);
        });
    });
}

#[test]
fn the_raw_tree_agrees_with_the_model() {
    let parameters = Parameters {
        records: 200,
        operations: 3,
        mix: mix([10, 40, 20, 30]),
        ..Parameters::default()
    };
    let raw = RawYcsb::<TreeRow>::load(&parameters, &options(1)).expect("loads");
    let other: Ycsb<weft::protocol::Dbx, TreeRow> = load(&parameters, 1);
    let (mut client, mut followed) = (raw.client(5, 0), other.client(5, 0, 1));
    let mut model = Model::<TreeRow>::new(parameters.records);
    for _ in 0..TRANSACTIONS {
        raw.execute(&mut client);
        model.step(&mut followed);
    }
    let mut expected = model.0.values();
    raw.tree.worker().expect("a worker").scan(0, usize::MAX, |row| {
        let expected = expected.next().expect("no more rows than in the model");
        assert!(Model::same(row, expected), "{row:?}, not {expected:?}");
    });
    assert!(expected.next().is_none());
    assert_eq!(broken(&raw.verify(&|_, _| {}).expect("it reads every row")), [""; 0]);
}

//! Tests of the workload as a whole: the load, the operations against a plain model, and that
//! every protocol keeps the invariants on any number of threads.

mod concurrency;
mod model;

use crate::trials::PROTOCOLS;
use weft::htm::Choice;
use weft::protocol::{Protocol, ProtocolDescription};

use super::row::{FixedRow, HashIndex, TreeIndex};
use super::{Distribution, Kind, Mix, Parameters, RawYcsb, Row, Ycsb};
use crate::workload::{Condition, LoadOptions, Workload};

/// Rows of the DBX paper's size, in both kinds of index.
type TreeRow = FixedRow<92, TreeIndex>;
type HashRow = FixedRow<92, HashIndex>;

/// Returns the options of a load for a test, with the HTM backend that the environment names.
fn options(threads: usize) -> LoadOptions<'static> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    LoadOptions { threads, htm: Some(htm), ..LoadOptions::default() }
}

fn load<P: Protocol, R: Row>(parameters: &Parameters, threads: usize) -> Ycsb<P, R> {
    Ycsb::load(parameters, &options(threads)).expect("loads")
}

fn broken(conditions: &[Condition]) -> Vec<String> {
    assert_eq!(conditions.len(), 3);
    assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect()
}

/// Panics with every condition that does not hold.
fn assert_invariants<P: Protocol, R: Row>(ycsb: &Ycsb<P, R>, context: &str) {
    let conditions = ycsb.verify(&|_, _| {}).expect("verification reads every row");
    assert_eq!(broken(&conditions), [""; 0], "{context}");
}

/// Runs a test for every protocol.
fn for_each_protocol(test: impl Fn(&ProtocolDescription)) {
    assert!(!PROTOCOLS.is_empty());
    PROTOCOLS.iter().for_each(test);
}

/// Returns a mix of reads, read-modify-writes, insertions and scans, in percent.
fn mix(shares: [u8; 4]) -> Mix {
    Mix::new(shares).expect("100 in all")
}

#[test]
fn the_load_is_the_same_on_any_number_of_threads() {
    let parameters = Parameters { records: 25_000, ..Parameters::default() };
    for threads in [1, 3] {
        let told = weft::htm::word::Mutex::new(Vec::new());
        let progress = |done, total| told.lock().expect("no panic").push((done, total));
        let options = LoadOptions { progress: &progress, ..options(threads) };
        let tree = Ycsb::<weft::protocol::Dbx, TreeRow>::load(&parameters, &options);
        assert_invariants(&tree.expect("loads"), "tree");
        let mut told = std::mem::take(&mut *told.lock().expect("no panic"));
        told.sort_unstable();
        assert!(told.len() > 1, "{told:?}");
        assert_eq!(told.last(), Some(&(25_000, 25_000)));
        let hash = load::<weft::protocol::Dbx, HashRow>(&parameters, threads);
        assert_invariants(&hash, "hash table");
        let raw = RawYcsb::<TreeRow>::load(&parameters, &options).expect("loads");
        let conditions = raw.verify(&|_, _| {}).expect("verification reads every row");
        assert_eq!(broken(&conditions), [""; 0]);
    }
}

/// Damages a database, and checks which condition reports it.
#[test]
fn verification_finds_what_is_wrong() {
    use weft::Error;
    use weft::protocol::Dbx;

    type Damage = fn(&Ycsb<Dbx, TreeRow>) -> Result<(), Error>;
    let insert: Damage =
        |ycsb| ycsb.database.transact(|tx| tx.insert(&ycsb.table, TreeRow::new(1 << 60)));
    let delete: Damage = |ycsb| ycsb.database.transact(|tx| tx.delete(&ycsb.table, &7).map(drop));
    let modify: Damage =
        |ycsb| ycsb.database.transact(|tx| tx.update(&ycsb.table, &7, TreeRow::modify).map(drop));
    let cases: [(Damage, &str); 3] =
        [(insert, "101 rows of 100"), (delete, "99 rows of 100"), (modify, "1 and 0")];
    for (damage, expected) in cases {
        let parameters = Parameters { records: 100, ..Parameters::default() };
        let ycsb = load::<Dbx, TreeRow>(&parameters, 1);
        damage(&ycsb).expect("it is done");
        let conditions = ycsb.verify(&|_, _| {}).expect("verification reads every row");
        let broken = broken(&conditions);
        assert!(broken.len() == 1 && broken[0].contains(expected), "{expected}: {broken:?}");
    }
}

#[test]
fn transactions_are_typed_by_their_operation() {
    let parameters =
        Parameters { records: 500, mix: mix([40, 30, 20, 10]), ..Parameters::default() };
    let ycsb = load::<weft::protocol::Dbx, TreeRow>(&parameters, 1);
    let mut client = ycsb.client(1, 0, 1);
    let mut ended = [0_u32; 5];
    for _ in 0..5_000 {
        ended[ycsb.execute(&mut client).expect("it runs to its end").transaction] += 1;
    }
    for (kind, share) in Kind::ALL.into_iter().zip([40, 30, 20, 10]) {
        assert!(ended[kind as usize].abs_diff(share * 50) < share * 10, "{ended:?}");
    }
    assert_eq!(ended[super::MIXED], 0);
    let parameters = Parameters { operations: 4, ..parameters };
    let ycsb = load::<weft::protocol::Dbx, TreeRow>(&parameters, 1);
    let outcome = ycsb.execute(&mut ycsb.client(1, 0, 1)).expect("it runs to its end");
    assert_eq!(outcome.transaction, super::MIXED);
    assert!(parameters.is_single_key() != Parameters::default().is_single_key());
}

#[test]
#[should_panic(expected = "cannot be scanned")]
fn a_hash_table_is_not_scanned() {
    let parameters =
        Parameters { records: 10, mix: Mix::only(Kind::Scan), ..Parameters::default() };
    load::<weft::protocol::Dbx, HashRow>(&parameters, 1);
}

#[test]
fn the_latest_rows_are_read_where_they_were_inserted() {
    let parameters = Parameters {
        records: 1_000,
        mix: mix([50, 0, 50, 0]),
        distribution: Distribution::Latest,
        theta: 0.99,
        ..Parameters::default()
    };
    let ycsb = load::<weft::protocol::Dbx, TreeRow>(&parameters, 1);
    let mut client = ycsb.client(1, 0, 1);
    for _ in 0..5_000 {
        ycsb.execute(&mut client).expect("every row that is read exists");
    }
    assert_invariants(&ycsb, "latest");
}

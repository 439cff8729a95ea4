use weft::Record;
use weft::description::TableDescription;
use weft::durability::format::{WriteKind, push_transaction, push_write};

use super::*;

#[derive(Clone, Record)]
struct Pair {
    value: u32,
    #[record(key)]
    id: u32,
}

fn schema() -> Arc<Schema> {
    let tables = vec![TableDescription::of::<Pair>().unwrap()];
    Arc::new(Schema::of(tables, Vec::new()))
}

/// Returns the entries of transactions, each of which puts rows: (id, version).
fn entries(transactions: &[&[(u32, u64)]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, transaction) in transactions.iter().enumerate() {
        push_transaction(&mut bytes);
        for &(id, version) in *transaction {
            let pair = Pair { value: number as u32, id };
            push_write(&mut bytes, WriteKind::Put, 0, version, |bytes| pair.encode_row(bytes));
        }
    }
    bytes
}

/// Returns, for each transaction of the feed, the numbers that the transactions of its rows have in the log.
fn order(transactions: &[&[(u32, u64)]]) -> Vec<Vec<u32>> {
    let epoch = Epoch::read(1, entries(transactions), schema()).unwrap();
    let ordered = epoch.transactions().unwrap();
    let number = |write: usize| {
        let mut row = epoch.bytes_of(&ordered.writes[write]);
        Pair::decode_row(&mut row).unwrap().value
    };
    (0..ordered.len()).map(|at| ordered.get(at).unwrap().map(number).collect()).collect()
}

#[test]
fn order_of_the_log_is_kept_if_it_is_that_of_the_keys() {
    assert_eq!(order(&[&[(1, 1)], &[(2, 9)], &[(1, 2), (2, 10)]]), [vec![0], vec![1], vec![2, 2]]);
}

#[test]
fn transaction_comes_after_those_whose_rows_it_replaced() {
    // The second worker's transactions come after the first worker's in the log.
    assert_eq!(order(&[&[(1, 2)], &[(3, 1)], &[(1, 1)]]), [vec![2], vec![0], vec![1]]);
    let chain = order(&[&[(1, 3)], &[(2, 2), (1, 2)], &[(3, 2), (2, 1)], &[(3, 1)]]);
    assert_eq!(chain, [vec![3], vec![2, 2], vec![1, 1], vec![0]]);
}

#[test]
fn transactions_without_writes_do_not_count() {
    assert_eq!(order(&[&[], &[(1, 1)], &[], &[(2, 1)], &[]]), [vec![1], vec![3]]);
}

#[test]
fn same_version_has_no_order() {
    // Operations of many transactions, between two rows.
    let transactions: &[&[(u32, u64)]] =
        &[&[(1, 7)], &[(1, 5)], &[(1, 5), (2, 1)], &[(1, 5)], &[(1, 4), (2, 2)]];
    // The last one comes after the third on key 2, and before it on key 1.
    assert_eq!(order(transactions).concat().len(), 7);
    let transactions: &[&[(u32, u64)]] = &[&[(1, 7)], &[(1, 5)], &[(1, 5)], &[(1, 4)]];
    assert_eq!(order(transactions), [vec![3], vec![1], vec![2], vec![0]]);
}

#[test]
fn transactions_that_each_come_first_on_a_key_are_one() {
    // Each replaced a row of the other. The last one comes after them.
    let interleaved =
        order(&[&[(5, 1)], &[(1, 3)], &[(1, 1), (2, 2)], &[(2, 1), (1, 2)], &[(4, 1)]]);
    assert_eq!(interleaved, [vec![0], vec![2, 3, 3, 2], vec![1], vec![4]]);
}

/// Every order that is found agrees with every key, and no write is lost.
#[test]
fn random_histories_are_in_the_order_of_their_keys() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        // A serial history, whose transactions are then shuffled.
        let mut versions = [0_u64; 6];
        let mut history: Vec<Vec<(u32, u64)>> = (0..random.usize(2..40))
            .map(|_| {
                let mut keys: Vec<u32> = (0..6).collect();
                random.shuffle(&mut keys);
                keys.truncate(random.usize(1..4));
                let write = |key: &u32| {
                    versions[*key as usize] += 1;
                    (*key, versions[*key as usize])
                };
                keys.iter().map(write).collect()
            })
            .collect();
        random.shuffle(&mut history);
        let slices: Vec<&[(u32, u64)]> = history.iter().map(Vec::as_slice).collect();
        let epoch = Epoch::read(1, entries(&slices), schema()).unwrap();
        let ordered = epoch.transactions().unwrap();
        assert_eq!(ordered.len(), history.len(), "seed {seed}");
        let mut newest = [0; 6];
        for write in (0..ordered.len()).flat_map(|at| ordered.get(at).unwrap()) {
            let write = &ordered.writes[write];
            let row = Pair::decode_row(&mut epoch.bytes_of(write)).unwrap();
            let newest = &mut newest[row.id as usize];
            assert_eq!(write.version, *newest + 1, "seed {seed}");
            *newest = write.version;
        }
        assert_eq!(newest, versions, "seed {seed}");
    }
}

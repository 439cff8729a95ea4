use weft::Record;
use weft::column::ColumnValue;
use weft::description::TableDescription;
use weft::durability::format::{WriteKind, push_transaction, push_write};

use super::*;
use crate::change::Change;

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

/// What is written: a row is put, or a number is added to its value, or taken from it.
#[derive(Clone, Copy)]
enum Made {
    Put,
    Add(u32),
    Take(u32),
    Max(u32),
}

use Made::{Add, Max, Put, Take};

/// Returns the epoch of transactions, each of which writes rows: (id, version, what is written).
fn epoch_of(transactions: &[&[(u32, u64, Made)]]) -> Epoch {
    let mut bytes = Vec::new();
    for transaction in transactions {
        push_transaction(&mut bytes);
        for &(id, version, made) in *transaction {
            let (kind, number) = match made {
                Put => {
                    let pair = Pair { value: 0, id };
                    let encode = |bytes: &mut Vec<u8>| pair.encode_row(bytes);
                    push_write(&mut bytes, WriteKind::Put, 0, version, encode);
                    continue;
                }
                Add(number) => (OperationKind::Add, number),
                Take(number) => (OperationKind::Take, number),
                Max(number) => (OperationKind::Max, number),
            };
            push_write(&mut bytes, WriteKind::Operation, 0, version, |bytes| {
                Pair::encode_key(&id, bytes);
                // The column's position is 0.
                bytes.extend_from_slice(&[0, kind as u8]);
                number.write(bytes);
            });
        }
    }
    Epoch::read(1, bytes, schema()).unwrap()
}

/// Returns, for each transaction of the feed, the numbers of its transactions in the log.
fn order_of(epoch: &Epoch) -> Vec<Vec<usize>> {
    let ordered = epoch.transactions().unwrap();
    let number = |write: usize| {
        let start = ordered.writes[write].start;
        let is_there = |at: &usize| {
            let range = epoch.logged.get(*at).unwrap();
            epoch.logged.writes[range].iter().any(|write| write.start == start)
        };
        (0..epoch.logged.len()).find(is_there).unwrap()
    };
    let numbers = |at: usize| {
        let mut numbers: Vec<usize> = ordered.get(at).unwrap().map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    (0..ordered.len()).map(numbers).collect()
}

/// Applies writes to row 1, whose value is 0 before. Returns its value behind them.
fn apply_all(epoch: &Epoch, writes: &[Write]) -> u32 {
    let mut row = Some(Pair { value: 0, id: 1 });
    for write in writes {
        let change = Change::new(epoch, write);
        if change.key::<Pair>().unwrap() == 1 {
            row = change.apply(row).unwrap();
        }
    }
    row.unwrap().value
}

/// Fault: a worker gave a piece and took it. The feed and the standbys took it first.
#[test]
fn worker_takes_what_it_has_given_before() {
    // The first worker's transaction comes after both of the second worker's.
    let transactions: &[&[_]] =
        &[&[(2, 2, Put)], &[(1, 5, Add(1))], &[(1, 5, Take(1)), (2, 1, Put)]];
    let epoch = epoch_of(transactions);
    assert_eq!(order_of(&epoch), [[1], [2], [0]]);
    assert_eq!(apply_all(&epoch, &epoch.transactions().unwrap().writes), 0);
    assert_eq!(apply_all(&epoch, &epoch.sort_rows().unwrap().unwrap()), 0);
}

/// Each of two workers gives and takes, and the second one's rows are older. It is unknown where the second one begins.
#[test]
fn operations_that_contradict_the_order_of_rows_are_one_transaction() {
    let transactions: &[&[_]] = &[
        &[(3, 1, Put)],
        &[(1, 5, Add(2)), (2, 2, Put)],
        &[(1, 5, Add(1))],
        &[(1, 5, Take(1)), (2, 1, Put)],
        &[(1, 5, Take(1))],
    ];
    let epoch = epoch_of(transactions);
    assert_eq!(order_of(&epoch), [vec![0], vec![1, 2, 3], vec![4]]);
    assert_eq!(apply_all(&epoch, &epoch.transactions().unwrap().writes), 1);
    assert_eq!(apply_all(&epoch, &epoch.sort_rows().unwrap().unwrap()), 1);
}

/// The second transaction is the first one of the second worker, since the versions of row 2 descend there.
#[test]
fn operations_of_different_workers_need_no_order() {
    let transactions: &[&[_]] =
        &[&[(1, 5, Add(2)), (2, 2, Put)], &[(1, 5, Add(1)), (2, 1, Put)], &[(1, 5, Take(1))]];
    let epoch = epoch_of(transactions);
    assert_eq!(order_of(&epoch), [[1], [0], [2]]);
    assert_eq!(apply_all(&epoch, &epoch.transactions().unwrap().writes), 2);
}

#[test]
fn operations_in_one_direction_do_not_join_transactions() {
    for made in [Add(1), Take(1), Max(1)] {
        let transactions: &[&[_]] = &[
            &[(1, 5, made), (2, 2, Put)],
            &[(1, 5, made)],
            &[(1, 5, made), (2, 1, Put)],
            &[(1, 7, Put)],
            &[(1, 4, Put)],
        ];
        let order = order_of(&epoch_of(transactions));
        let place = |number: usize| order.iter().position(|it| *it == [number]);
        assert_eq!(order.len(), 5, "{order:?}");
        assert!(place(2) < place(0), "{order:?}");
        assert_eq!((order.first(), order.last()), (Some(&vec![4]), Some(&vec![3])), "{order:?}");
    }
}

#[test]
fn operations_lie_between_the_rows_before_and_after_them() {
    let transactions: &[&[_]] =
        &[&[(1, 7, Put)], &[(1, 5, Add(1))], &[(1, 5, Take(1))], &[(1, 4, Put)]];
    assert_eq!(order_of(&epoch_of(transactions)), [[3], [1], [2], [0]]);
    // The last one comes after the third on key 2, and before it on key 1.
    let transactions: &[&[_]] = &[
        &[(1, 7, Put)],
        &[(1, 5, Add(1))],
        &[(1, 5, Add(1)), (2, 1, Put)],
        &[(1, 5, Add(1))],
        &[(1, 4, Put), (2, 2, Put)],
    ];
    let order = order_of(&epoch_of(transactions));
    assert!(order.contains(&vec![2, 4]), "{order:?}");
    assert_eq!(order.concat().len(), 5, "{order:?}");
}

#[test]
fn many_operations_on_a_key_are_in_order() {
    let take_or_add =
        |number: u32| [(1, 5, if number.is_multiple_of(2) { Add(1) } else { Take(1) })];
    let mut transactions: Vec<_> = (0..20_000).map(|number| take_or_add(number).to_vec()).collect();
    transactions.push(vec![(1, 4, Put)]);
    let transactions: Vec<_> = transactions.iter().map(Vec::as_slice).collect();
    let epoch = epoch_of(&transactions);
    let writes = &epoch.transactions().unwrap().writes;
    assert_eq!(apply_all(&epoch, writes), 0);
    assert_eq!(writes.len(), epoch.transactions().unwrap().len());
    let starts: Vec<usize> = writes[1..].iter().map(|write| write.start).collect();
    assert!(starts.is_sorted());
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

//! Tests of the properties of all operations: they commute, merged slices equal direct application,
//! and the logged form does what the operation does.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;

use weft::column::ColumnType;
use weft::column::*;
use weft::description::{ColumnDescription, TableDescription};
use weft::operation::*;
use weft::schema::{Bounds, Storage};

/// Operations of several cores, each with its number.
type Script<O> = Vec<(u32, O)>;

const CORES: u32 = 4;

/// Returns the operations of a script in another order, which keeps the order within each core.
fn interleave<O: Clone>(script: &Script<O>, order: &[usize]) -> Script<O> {
    let of_core = |core| script.iter().filter(move |(of, _)| *of == core).cloned();
    let mut cores: Vec<Vec<(u32, O)>> = (0..CORES).map(|core| of_core(core).collect()).collect();
    let mut interleaved = Vec::new();
    for pick in order.iter().copied().chain(std::iter::repeat(0)) {
        let with_some: Vec<usize> =
            (0..cores.len()).filter(|core| !cores[*core].is_empty()).collect();
        let Some(&core) = with_some.get(pick % with_some.len().max(1)) else { break };
        interleaved.push(cores[core].remove(0));
    }
    interleaved
}

/// Applies a script, and returns the result; `None` if one of the operations fails.
fn run<V: Clone, O: Operation<V>>(value: &V, script: &Script<O>) -> Option<V> {
    let mut value = value.clone();
    script.iter().try_for_each(|(_, operation)| operation.apply(&mut value)).ok()?;
    Some(value)
}

/// Checks all properties for a column with the value `value`.
fn check<V, O>(value: &V, script: &Script<O>, order: &[usize], undone: &[bool])
where
    V: ColumnValue + Clone + PartialEq + Debug,
    O: Operation<V> + Clone,
{
    // Operations commute if none of them fails. (Of those with stamps, the order matters by which they commit.)
    let interleaved = interleave(script, order);
    assert_eq!(interleaved.len(), script.len());
    if !O::IS_STAMPED
        && let (Some(one), Some(other)) = (run(value, script), run(value, &interleaved))
    {
        assert_eq!(one, other, "{script:?} and {interleaved:?}");
    }

    // Gather operations in slices, and merge these. Undone operations leave no trace. The others commit one after the
    // other.
    let mut slices: Vec<O::Slice> = (0..CORES).map(|_| O::slice(value, CORES)).collect();
    let reserve = Reserve::new(O::room(value, None));
    let (mut gathered, mut stamped) = (Vec::new(), Vec::new());
    for (position, (core, operation)) in script.iter().enumerate() {
        let slice = &mut slices[*core as usize];
        let mut undo = operation.accumulate(slice);
        if undo.is_err() && operation.draw(slice, &reserve) {
            undo = operation.accumulate(slice);
        }
        let Ok(undo) = undo else { continue };
        if undone.get(position).copied().unwrap_or_default() {
            O::undo(slice, undo);
        } else {
            let stamp = position as u64 + 1;
            O::settle(slice, stamp);
            gathered.push((*core, operation.clone()));
            stamped.push((*core, (operation.clone(), stamp)));
        }
    }
    let mut merged = value.clone();
    slices.into_iter().for_each(|slice| O::merge(slice, &mut merged));
    O::finish(&mut merged);
    // Operations that were gathered never fail when they are applied directly, in any order, and
    // they have the same outcome.
    let direct = run(value, &gathered).unwrap_or_else(|| panic!("{gathered:?} fails on {value:?}"));
    assert_eq!(direct, merged, "{gathered:?}, directly and by slices");
    if !O::IS_STAMPED {
        assert_eq!(run(value, &interleave(&gathered, order)).as_ref(), Some(&merged));
    }

    // The logged form, on a stored row of a key and this column.
    let column =
        |name: &str, type_of: ColumnType| ColumnDescription::new(name.to_owned(), type_of.into());
    let table = TableDescription {
        name: "rows".to_owned(),
        columns: vec![column("id", ColumnType::U8), column("value", V::TYPE)],
        storage: Storage::Hash,
        key: vec![0],
        indexes: Vec::new(),
        ..TableDescription::default()
    };
    let logged_form = |operation: &O, stamp: u64| {
        let mut logged = vec![7, 1, O::KIND as u8];
        operation.write(&mut logged);
        if O::IS_STAMPED {
            let end = logged.len();
            logged[end - 8..].copy_from_slice(&stamp.to_le_bytes());
        }
        logged
    };
    let stored_row = |value: &V| {
        let mut row = vec![7];
        value.write(&mut row);
        row
    };
    let replay = |row: &[u8], logged: &[u8]| {
        let (key, change) = table.read_operation(logged).expect("it is one");
        assert_eq!(key, [7]);
        let mut changed = Vec::new();
        change.apply(&table, row, &mut changed).map(|()| changed)
    };
    let value_of = |row: &[u8]| {
        let mut stored = V::read(&mut &row[1..]).expect("it is still a value");
        O::finish(&mut stored);
        stored
    };
    // What was gathered is replayed in any order that keeps the order of each worker.
    let mut row = stored_row(value);
    for (_, (operation, stamp)) in interleave(&stamped, order) {
        row = replay(&row, &logged_form(&operation, stamp)).expect("it was gathered");
    }
    assert_eq!(value_of(&row), merged, "{stamped:?} from the log");

    let mut row = stored_row(value);
    let mut direct = value.clone();
    for (position, (_, operation)) in script.iter().enumerate() {
        let logged = logged_form(operation, position as u64 + 1);
        let outcome = replay(&row, &logged);
        assert_eq!(outcome.is_ok(), operation.apply(&mut direct).is_ok());
        if let Ok(changed) = outcome {
            row = changed;
        }
        assert_eq!(value_of(&row), direct, "{operation:?}, from the log");
        for length in 0..logged.len() {
            let cut = table.read_operation(&logged[..length]);
            assert!(cut.is_err(), "{operation:?} was read from {length} bytes");
        }
        let longer = [&logged[..], &[0]].concat();
        assert!(table.read_operation(&longer).is_err(), "there is more");
        for kind in OperationKind::ALL {
            let mut other = logged.clone();
            other[2] = kind as u8;
            // This is another operation, or one that the column does not have. It must not panic.
            if let Ok((_, change)) = table.read_operation(&other) {
                let _ = change.apply(&table, &row, &mut Vec::new());
            }
        }
    }
}

fn script<O: Debug>(operation: impl Strategy<Value = O>) -> impl Strategy<Value = Script<O>> {
    vec((0..CORES, operation), 0..24)
}

fn order() -> impl Strategy<Value = Vec<usize>> {
    vec(0..CORES as usize, 0..24)
}

fn undone() -> impl Strategy<Value = Vec<bool>> {
    vec(any::<bool>(), 0..24)
}

/// Generates an order and a value. There are few different orders, so that equal ones are frequent.
fn tuple() -> impl Strategy<Value = ((i32, u8), u16)> {
    ((0..6, 0..2_u8), any::<u16>())
}

macro_rules! integer_properties {
    ($($name:ident: $integer:ident)*) => {$(
        mod $name {
            use super::*;

            fn small() -> impl Strategy<Value = $integer> {
                prop_oneof![any::<$integer>(), 0..10 as $integer, Just($integer::MIN)]
            }

            proptest! {
                #[test]
                fn add(value in small(), script in script(small().prop_map(Add)), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                #[test]
                fn take(value in small(), script in script(small().prop_map(|it| Take(it.max(0)))), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                #[test]
                fn give(value in small(), script in script(small().prop_map(|it| Give(it.max(0)))), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                /// However workers take from a bounded column and give back, and whatever of it they undo, what
                /// they have gathered can be applied in any order that keeps the order of each worker, and the
                /// column is never out of its bounds.
                #[test]
                fn shares_keep_a_column_within_its_bounds(
                    value in small(),
                    below in 0..20_i128,
                    above in 0..20_i128,
                    script in script((any::<bool>(), 0..9 as $integer)),
                    order in order(),
                    undone in undone(),
                ) {
                    let wide = i128::from(value);
                    let bounds = Bounds { min: Some(wide.saturating_sub(below)), max: Some(wide.saturating_add(above)) };
                    check_shares(value, &bounds, &script, &order, &undone);
                }

                #[test]
                fn mul(value in small(), script in script(small().prop_map(Mul)), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                #[test]
                fn max(value in small(), script in script(small().prop_map(Max)), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                #[test]
                fn min(value in small(), script in script(small().prop_map(Min)), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                #[test]
                fn or(value in small(), script in script(small().prop_map(Or)), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                #[test]
                fn and(value in small(), script in script(small().prop_map(And)), order in order(), undone in undone()) {
                    check(&value, &script, &order, &undone);
                }

                /// For any number of workers, all of them at their bounds still fit in the type.
                #[test]
                fn factors_of_the_bound_fit_together(value in small(), cores in 1..200_u32) {
                    let (low, high) = value.product_bounds(cores);
                    assert!(low <= 0 && high >= 1);
                    for bound in [low, high] {
                        let mut product = value;
                        let factors = if value == 0 { 0 } else { cores };
                        (0..factors).for_each(|_| {
                            product = product.checked_mul(bound).expect("it fits");
                        });
                    }
                }
            }
        }
    )*};
}

integer_properties!(i8_columns: i8 u8_columns: u8 i32_columns: i32 u64_columns: u64 i64_columns: i64 i128_columns: i128);

/// Takes (`true`) and gives back what a script says, in shares of one column within its bounds. Then applies what
/// was gathered in another order.
fn check_shares<V: Integer>(
    value: V,
    bounds: &Bounds,
    script: &Script<(bool, V)>,
    order: &[usize],
    undone: &[bool],
) {
    let (min, max) = bounds.range::<V>();
    let mut slices: Vec<_> = (0..CORES).map(|_| Add::<V>::slice(&value, CORES)).collect();
    let reserve = Reserve::new(Add::<V>::room(&value, Some(bounds)));
    let mut gathered = Vec::new();
    for (position, &(core, (is_taken, number))) in script.iter().enumerate() {
        let slice = &mut slices[core as usize];
        let accumulate = |slice: &mut _| match is_taken {
            true => Take(number).accumulate(slice),
            false => Give(number).accumulate(slice),
        };
        let mut done = accumulate(slice);
        let is_drawn = done.is_err()
            && match is_taken {
                true => Take(number).draw(slice, &reserve),
                false => Give(number).draw(slice, &reserve),
            };
        if is_drawn {
            done = accumulate(slice);
        }
        match done {
            Ok(undo) if undone.get(position) == Some(&true) => Add::<V>::undo(slice, undo),
            Ok(_) => gathered.push((core, (is_taken, number))),
            Err(_) => {}
        }
    }
    let mut merged = value;
    slices.into_iter().for_each(|slice| Add::<V>::merge(slice, &mut merged));
    assert!(min <= merged && merged <= max);
    let mut applied = value;
    for (_, (is_taken, number)) in interleave(&gathered, order) {
        let shortage = match is_taken {
            true => Take(number).shortage(&applied, Some(bounds)),
            false => Give(number).shortage(&applied, Some(bounds)),
        };
        assert_eq!(shortage, None, "{gathered:?} from {value:?}");
        let outcome = match is_taken {
            true => Take(number).apply(&mut applied),
            false => Give(number).apply(&mut applied),
        };
        assert_eq!(outcome, Ok(()));
    }
    assert_eq!(applied, merged);
}

proptest! {
    #[test]
    fn or_of_bools(value: bool, script in script(any::<bool>().prop_map(Or)), order in order(), undone in undone()) {
        check(&value, &script, &order, &undone);
    }

    #[test]
    fn and_of_bools(value: bool, script in script(any::<bool>().prop_map(And)), order in order(), undone in undone()) {
        check(&value, &script, &order, &undone);
    }

    #[test]
    fn ordered_put(
        before in vec(tuple(), 0..5),
        script in script(tuple().prop_map(|(order, value)| OrderedPut(order, value))),
        order in order(),
        undone in undone(),
    ) {
        let mut value = Ordered::default();
        for (order, put) in &before {
            OrderedPut(*order, *put).apply(&mut value).unwrap();
        }
        let first = before.iter().rev().max_by_key(|(order, _)| *order);
        prop_assert_eq!(value.tuple().map(|it| (it.order, it.value)), first.copied());
        check(&value, &script, &order, &undone);
    }

    #[test]
    fn top_k_insert(
        before in vec(tuple(), 0..9),
        script in script(tuple().prop_map(|(order, value)| TopKInsert(order, value))),
        order in order(),
        undone in undone(),
    ) {
        let mut value = TopK::<_, _, 5>::default();
        for (order, inserted) in &before {
            TopKInsert(*order, *inserted).apply(&mut value).unwrap();
        }
        // A stable sort: of equal orders the first come first.
        let mut expected = before;
        expected.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        expected.truncate(5);
        let tuples = value.tuples().map(|tuple| (tuple.order, tuple.value));
        prop_assert_eq!(tuples.collect::<Vec<_>>(), expected);
        check(&value, &script, &order, &undone);
    }

    #[test]
    fn top_k_insert_of_one_per_value(
        before in vec((0..6_i32, 0..7_u8), 0..12),
        script in script((0..6_i32, 0..7_u8).prop_map(|(order, value)| TopKInsert(order, value))),
        order in order(),
        undone in undone(),
    ) {
        let mut value = TopK::<_, _, 4, OnePerValue>::default();
        for (order, inserted) in &before {
            TopKInsert(*order, *inserted).apply(&mut value).unwrap();
        }
        let mut expected = before;
        expected.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        let mut seen = std::collections::BTreeSet::new();
        expected.retain(|(_, value)| seen.insert(*value));
        expected.truncate(4);
        let tuples = value.tuples().map(|tuple| (tuple.order, tuple.value));
        prop_assert_eq!(tuples.collect::<Vec<_>>(), expected);
        check(&value, &script, &order, &undone);
    }

    #[test]
    fn union(
        value in vec(0..40_u32, 0..10),
        script in script(vec(0..40_u32, 0..4)),
        order in order(),
        undone in undone(),
    ) {
        let set = |elements: Vec<u32>| BoundedSet::<u32, 24>::of(elements).unwrap();
        let script = script.into_iter().map(|(core, elements)| (core, Union(set(elements)))).collect();
        check(&set(value), &script, &order, &undone);
    }
}

#[test]
fn an_overflow_is_an_error_and_changes_nothing() {
    let mut value = i64::MAX - 1;
    assert_eq!(Add(1).apply(&mut value), Ok(()));
    let error = Add(1).apply(&mut value).unwrap_err();
    assert_eq!(error.message, "9223372036854775807 + 1 is no i64");
    assert_eq!(value, i64::MAX);
    let error = Mul(2).apply(&mut value).unwrap_err();
    assert_eq!(error.message, "9223372036854775807 * 2 is no i64");

    let mut set = BoundedSet::<u8, 3>::of([1, 2]).unwrap();
    let more = BoundedSet::of([2, 3, 4]).unwrap();
    let error = Union(more).apply(&mut set).unwrap_err();
    assert_eq!(error.message, "2 new elements beside 2 are more than 3");
    assert!(set.elements().eq(&[1, 2]));
    assert_eq!(BoundedSet::<u8, 2>::of([1, 2, 3]), None);
}

#[test]
fn one_worker_may_use_all_the_room_if_no_other_does() {
    let room = Add::<u8>::room(&205, Some(&Bounds { min: Some(200), max: None }));
    assert_eq!(room, (5, 50));
    let (mut slice, reserve) = (Add::<u8>::slice(&205, 2), Reserve::new(room));
    let mut add = |operation: Add<u8>| {
        let mut done = operation.accumulate(&mut slice);
        if done.is_err() && operation.draw(&mut slice, &reserve) {
            done = operation.accumulate(&mut slice);
        }
        done.is_ok()
    };
    assert_eq!((0..).take_while(|_| add(Add(1))).count(), 50);
    assert!(!add(Add(1)));
    assert_eq!(Take(-5).apply(&mut 7).unwrap_err().message, "-5 is negative");
    assert_eq!(Give(-5).apply(&mut 7).unwrap_err().message, "-5 is negative");
}

#[test]
fn of_equal_orders_the_first_stays() {
    let mut winner = Ordered::default();
    let (mut bids, mut bidders) =
        (TopK::<_, _, 3>::default(), TopK::<_, _, 3, OnePerValue>::default());
    for (order, bidder) in [(5, 'a'), (5, 'b'), (4, 'c'), (5, 'a'), (4, 'd'), (3, 'b')] {
        let bidder = bidder as u32;
        OrderedPut(order, bidder).apply(&mut winner).unwrap();
        TopKInsert(order, bidder).apply(&mut bids).unwrap();
        TopKInsert(order, bidder).apply(&mut bidders).unwrap();
    }
    let letters = |values: Vec<&u32>| -> String {
        values.into_iter().filter_map(|it| char::from_u32(*it)).collect()
    };
    assert_eq!(letters(winner.value().into_iter().collect()), "a");
    assert_eq!(letters(bids.values().collect()), "aba");
    assert_eq!(letters(bidders.values().collect()), "abc");
}

#[test]
fn sets_out_of_order_are_refused() {
    let stored = |value: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        value(&mut bytes);
        bytes
    };
    let ascending = stored(&|bytes| vec![1_u8, 2].write(bytes));
    assert!(BoundedSet::<u8, 4>::read(&mut &ascending[..]).is_ok());
    let twice = stored(&|bytes| vec![2_u8, 2].write(bytes));
    assert!(BoundedSet::<u8, 4>::read(&mut &twice[..]).is_err());
    let tuple = |order| OrderedTuple::new(order, 0_u8);
    let ascending = stored(&|bytes| vec![tuple(1_u8), tuple(2)].write(bytes));
    assert!(TopK::<u8, u8, 4>::read(&mut &ascending[..]).is_err());
    let descending = stored(&|bytes| vec![tuple(2_u8), tuple(1)].write(bytes));
    assert!(TopK::<u8, u8, 4>::read(&mut &descending[..]).is_ok());
    assert!(TopK::<u8, u8, 1>::read(&mut &descending[..]).is_err(), "two are more than one");
}

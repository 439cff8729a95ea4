//! Tests of [`Record::rebase`], which carries a change over to another version of a row, column by column. For
//! random versions, the derived code must agree with a plain implementation of the documented rules.

use proptest::prelude::*;
use weft::column::{ColumnSet, ColumnValue};
use weft::schema::Record;

/// A row whose key is between other columns.
#[derive(Clone, Debug, PartialEq, weft::Record)]
struct Row {
    signed: i16,
    #[record(key)]
    id: u32,
    unsigned: u16,
    text: String,
    number: f64,
    wide: Option<i64>,
    byte: u8,
}

const SIGNED: usize = 0;
const UNSIGNED: usize = 2;
const TEXT: usize = 3;
const NUMBER: usize = 4;
const WIDE: usize = 5;
const BYTE: usize = 6;

/// Returns rows with few distinct values, so that columns are often equal, and with some extreme values.
fn rows() -> impl Strategy<Value = Row> {
    let signed = prop_oneof![4 => -3..3_i16, 1 => Just(i16::MAX), 1 => Just(i16::MIN)];
    let unsigned = prop_oneof![4 => 0..4_u16, 1 => Just(u16::MAX)];
    let text = prop::sample::select(vec!["", "a", "b"]);
    let number = prop::sample::select(vec![0.0, -0.0, 1.5]);
    let wide = prop::option::of(0..2_i64);
    let byte = prop_oneof![4 => 0..4_u8, 1 => Just(u8::MAX)];
    (signed, unsigned, text, number, wide, byte).prop_map(
        |(signed, unsigned, text, number, wide, byte)| Row {
            signed,
            id: 7,
            unsigned,
            text: text.to_owned(),
            number,
            wide,
            byte,
        },
    )
}

/// Computes an integer column's rebased value, or `None` if the sum does not fit its type.
fn integer<T: ColumnValue + Copy + TryFrom<i64> + Into<i64>>(
    [after, before, onto]: [T; 3],
    is_sum: bool,
) -> Option<T> {
    let [from, to, new] = [before, after, onto].map(Into::into);
    match (from == to, is_sum) {
        (true, _) => Some(onto),
        (false, false) => Some(after),
        (false, true) => T::try_from(new + (to - from)).ok(),
    }
}

/// Computes the rebased value of a column without sums.
fn other<T: ColumnValue + Clone>([after, before, onto]: [&T; 3], is_sum: bool) -> Option<T> {
    match (before.is_same(after), is_sum) {
        (true, _) => Some(onto.clone()),
        (false, false) => Some(after.clone()),
        (false, true) => None,
    }
}

fn expected(after: &Row, before: &Row, onto: &Row, adds: ColumnSet) -> Option<Row> {
    let all = [after, before, onto];
    Some(Row {
        signed: integer(all.map(|row| row.signed), adds.contains(SIGNED))?,
        id: 7,
        unsigned: integer(all.map(|row| row.unsigned), adds.contains(UNSIGNED))?,
        text: other(all.map(|row| &row.text), adds.contains(TEXT))?,
        number: other(all.map(|row| &row.number), adds.contains(NUMBER))?,
        wide: other(all.map(|row| &row.wide), adds.contains(WIDE))?,
        byte: integer(all.map(|row| row.byte), adds.contains(BYTE))?,
    })
}

proptest! {
    #[test]
    fn rebase_agrees_with_its_definition(
        after in rows(),
        before in rows(),
        onto in rows(),
        adds in prop::collection::vec(0..7_usize, 0..4),
    ) {
        let adds = ColumnSet::of(adds);
        let rebased = after.rebase(&before, &onto, adds);
        prop_assert_eq!(&rebased, &expected(&after, &before, &onto, adds));
        if let Some(rebased) = rebased {
            prop_assert_eq!(rebased.number.to_bits(), match before.number.is_same(&after.number) {
                true => onto.number.to_bits(),
                false => after.number.to_bits(),
            });
        }
        prop_assert_eq!(after.rebase(&before, &before, adds).is_none(), {
            let others = [TEXT, NUMBER, WIDE].map(|column| {
                adds.contains(column) && !after.same_columns(&before, ColumnSet::of([column]))
            });
            others.contains(&true)
        }, "rebasing onto `before` succeeds, except for sums of columns without sums");
    }

    #[test]
    fn columns_are_compared_one_by_one(
        one in rows(),
        other in rows(),
        columns in prop::collection::vec(0..7_usize, 0..7),
    ) {
        let same = [
            one.signed == other.signed,
            true,
            one.unsigned == other.unsigned,
            one.text == other.text,
            one.number.to_bits() == other.number.to_bits(),
            one.wide == other.wide,
            one.byte == other.byte,
        ];
        prop_assert_eq!(
            one.same_columns(&other, ColumnSet::of(columns.iter().copied())),
            columns.iter().all(|&column| same[column])
        );
        prop_assert_eq!(one.same_columns(&other, ColumnSet::ALL), same.iter().all(|same| *same));
        prop_assert!(one.same_columns(&other, ColumnSet::NONE));
    }
}

#[test]
fn two_changes_of_one_column_add_up_in_either_order() {
    let row = |unsigned| Row { unsigned, ..row() };
    let (start, one, other) = (row(10), row(3), row(14));
    let sums = ColumnSet::of([UNSIGNED]);
    assert_eq!(one.rebase(&start, &other, sums), Some(row(7)));
    assert_eq!(other.rebase(&start, &one, sums), Some(row(7)));
    assert_eq!(row(0).rebase(&start, &row(9), sums), None, "the sum is below 0");
    assert_eq!(one.rebase(&start, &other, ColumnSet::NONE), Some(row(3)), "the last change wins");
}

fn row() -> Row {
    Row { signed: 0, id: 7, unsigned: 0, text: "a".into(), number: 0.0, wide: None, byte: 0 }
}

/// The row is `Clone`, but one of its columns is not.
#[test]
fn columns_need_not_be_clone() {
    #[derive(weft::ColumnValue)]
    struct Label(String);
    #[derive(weft::Record)]
    struct Labelled {
        #[record(key)]
        id: u32,
        label: Label,
        count: i64,
    }
    impl Clone for Labelled {
        fn clone(&self) -> Self {
            Labelled { label: Label(self.label.0.clone()), ..*self }
        }
    }
    let labelled = |label: &str, count| Labelled { id: 1, label: Label(label.into()), count };
    let (before, after, onto) = (labelled("a", 1), labelled("b", 3), labelled("c", 10));
    let rebased = after.rebase(&before, &onto, ColumnSet::of([2])).unwrap();
    assert_eq!((&*rebased.label.0, rebased.count), ("b", 12));
}

#[test]
fn volatile_tables_cannot_be_rebased() {
    #[derive(Clone, Copy, weft::Record)]
    #[record(volatile)]
    struct Volatile {
        #[record(key)]
        id: u32,
        count: usize,
    }
    let row = Volatile { id: 1, count: 2 };
    assert_eq!((row.id, row.count), (1, 2));
    assert!(!row.same_columns(&row, ColumnSet::ALL) && row.same_columns(&row, ColumnSet::NONE));
    assert!(row.rebase(&row, &row, ColumnSet::NONE).is_none());
}

#[test]
fn row_of_key_columns_never_changes() {
    #[derive(Clone, Copy, weft::Record)]
    struct Key {
        #[record(key)]
        id: u32,
    }
    let row = Key { id: 1 };
    assert!(row.same_columns(&row, ColumnSet::ALL));
    assert_eq!(row.rebase(&row, &row, ColumnSet::NONE).unwrap().id, 1);
}

#[test]
fn columns_beyond_the_last_single_one_count_as_one() {
    let last = ColumnSet::SINGLE - 1;
    let (single, many) = (ColumnSet::of([last]), ColumnSet::of([last + 1]));
    assert!(!single.meets(many) && single.contains(last) && !single.contains(last + 1));
    assert!(many.contains(last + 1) && many.contains(last + 1000) && !many.contains(last));
    assert!(single.and(many).without(many) == single && single.common(many).is_empty());
    assert!(ColumnSet::ALL.contains(0) && ColumnSet::ALL.contains(1 << 20));
    assert!(!ColumnSet::NONE.contains(0) && ColumnSet::NONE == ColumnSet::default());
}

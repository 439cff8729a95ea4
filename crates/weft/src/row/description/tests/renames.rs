//! Former names of tables and columns, and logged operations on columns whose types have changed.

use super::*;
use crate::operation::{Ordered, TopK};
use crate::row::operation::OperationKind;

fn table(name: &str, was: &[&str]) -> TableDescription {
    let was = was.iter().map(|&name| name.to_owned()).collect();
    TableDescription { name: name.to_owned(), was, ..description_of::<Account>() }
}

/// Returns the position of the program's table that each stored table becomes.
fn positions(stored: &[TableDescription], current: &[TableDescription]) -> Vec<Option<usize>> {
    let matches = compare(stored, current, &[]).unwrap();
    let position = |matched: &TableMatch| match matched {
        TableMatch::Opened(opened) => Some(opened.current),
        TableMatch::Kept | TableMatch::Dropped => None,
    };
    matches.iter().map(position).collect()
}

/// Fault: the former name of a table counted only if no stored table had its present name. So a table
/// that took over a name which another table gave up in the same program was new and empty.
#[test]
fn table_takes_over_a_name_that_another_one_gives_up() {
    let stored = [table("orders", &[]), table("orders_v2", &[])];
    let current = [table("orders", &["orders_v2"]), table("orders_archive", &["orders"])];
    assert_eq!(positions(&stored, &current), [Some(1), Some(0)]);
    // The same program again, and the older one.
    assert_eq!(positions(&current, &current), [Some(0), Some(1)]);
    assert_eq!(positions(&current, &stored), [Some(1), Some(0)]);
    // A longer chain.
    let stored = [table("a", &[]), table("b", &[]), table("c", &[])];
    let current = [table("b", &["c"]), table("a", &["b"]), table("x", &["a"])];
    assert_eq!(positions(&stored, &current), [Some(2), Some(1), Some(0)]);
    assert_eq!(positions(&current, &stored), [Some(2), Some(1), Some(0)]);
    // Two names cannot be exchanged: the program would exchange them at each opening.
    let current = [table("a", &["b"]), table("b", &["a"])];
    assert_eq!(positions(&stored, &current), [Some(0), Some(1), None]);
}

/// Fault: as for tables. Every price became the default.
#[test]
fn column_takes_over_a_name_that_another_one_gives_up() {
    let stored = other_accounts! {
        #[record(key)] number: u32, price: u8, #[record(default = 0)] price_v2: u8,
    };
    let current = other_accounts! {
        #[record(key)] number: u32,
        #[record(default = 0, was = "price_v2")] price: u8,
        #[record(was = "price")] price_old: u8,
    };
    let renamed = adaptation(&stored, &current);
    assert_eq!(renamed.row(&[1, 0, 0, 0, 5, 6]).unwrap(), &[1, 0, 0, 0, 6, 5][..]);
    assert!(adaptation(&current, &current).is_identity());
    let back = adaptation(&current, &stored);
    assert_eq!(back.row(&[1, 0, 0, 0, 6, 5]).unwrap(), &[1, 0, 0, 0, 5, 6][..]);
}

/// Fault: the older program opened the renamed table under its old name, and kept the newer table of
/// the same name. The two could not be told apart afterwards.
#[test]
fn older_program_is_refused_if_a_table_name_was_used_again() {
    let stored = [table("clients", &["accounts"]), table("accounts", &[])];
    let current = [table("accounts", &[])];
    let message = compare(&stored, &current, &[]).unwrap_err().to_string();
    assert!(message.contains("renamed the program's table of this name to `clients`"), "{message}");
    assert_eq!(positions(&stored, &stored), [Some(0), Some(1)]);
    // A newer name counts only if no current table has taken the stored one.
    let current = [table("people", &["clients"]), table("accounts", &[])];
    assert_eq!(positions(&stored, &current), [Some(0), Some(1)]);
    assert_eq!(positions(&stored[..1], &current), [Some(0)]);
}

/// Fault: two columns with the same former name were accepted. Stored rows gave both their value, but
/// logged changes reached only the first.
#[test]
fn two_columns_with_the_same_former_name_are_refused() {
    let stored = other_accounts! { #[record(key)] number: u32, a: u8, };
    let current = other_accounts! {
        #[record(key)] number: u32,
        #[record(was = "a")] b: u8,
        #[record(was = "a")] c: u8,
    };
    let message = refusal(&stored, &current);
    assert!(message.contains("`b` and `c` both were the stored column `a`"), "{message}");
    let current = [table("b", &["a"]), table("c", &["a"])];
    let message = compare(&[table("a", &[])], &current, &[]).unwrap_err().to_string();
    assert!(
        message.contains("the tables `b` and `c` of the program both had this name"),
        "{message}"
    );
}

/// Fault: a struct with one field was not widened in a key, because no conversion of a struct counted
/// as one that keeps different values different.
#[test]
fn struct_in_a_key_is_widened_if_no_field_is_dropped() {
    mod narrow {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, crate::ColumnValue)]
        pub struct Id(pub u32);
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, crate::ColumnValue)]
        pub struct Place {
            pub row: u8,
            pub column: u8,
        }
    }
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, crate::ColumnValue)]
    struct Id(u64);
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, crate::ColumnValue)]
    struct Place {
        row: u8,
    }
    let description = |type_of: TypeDescription| TableDescription {
        name: "accounts".to_owned(),
        columns: vec![ColumnDescription::new("id".to_owned(), type_of)],
        key: vec![0],
        ..TableDescription::default()
    };
    let widened = adaptation(
        &description(narrow::Id::TYPE.into()),
        &description(<Id as ColumnValue>::TYPE.into()),
    );
    assert_eq!(widened.key(&[7, 0, 0, 0]).unwrap(), &[7, 0, 0, 0, 0, 0, 0, 0][..]);
    let lossy = stored_with(&description(<Place as ColumnValue>::TYPE.into()), &["id.column"]);
    let message = refusal(&description(narrow::Place::TYPE.into()), &lossy);
    assert!(message.contains("the primary key"), "{message}");
}

#[derive(Clone, Copy, Debug, PartialEq, crate::ColumnValue)]
struct Bid {
    bidder: u32,
    note: u8,
}

/// The same bid without the note, and the bidder as `holder`.
#[derive(Clone, Copy, Debug, PartialEq, crate::ColumnValue)]
struct NextBid {
    #[column(was = "bidder")]
    holder: u64,
}

/// The same again, and the bidder as `owner`.
#[derive(Clone, Copy, Debug, PartialEq, crate::ColumnValue)]
struct LastBid {
    #[column(was = "holder")]
    owner: u64,
}

/// A description of a table with a key, and columns of ordered bids.
macro_rules! bids {
    ($bid:ty) => {
        other_accounts! {
            #[record(key)] number: u8,
            best: Ordered<i64, $bid>,
            highest: TopK<i64, $bid, 2>,
        }
    };
}

/// Fault: an operation on a column of another type converted the column back to the logged type. The
/// way back does not exist if a field of the value was dropped, or renamed twice, and recovery reported
/// damage.
#[test]
fn ordered_operation_is_applied_to_a_column_whose_values_have_changed() {
    let first = bids!(Bid);
    let next = stored_with(&bids!(NextBid), &["best.value.note", "highest.value.note"]);
    let last = bids!(LastBid);
    let to_next = matched(&first, &next).unwrap();
    let to_last = matched(&next, &last).unwrap();
    let once = Adaptation::new(&[&first], to_next.step.as_ref()).unwrap();
    let twice = Adaptation::new(&[&first, &next], to_last.step.as_ref()).unwrap();

    let tuple = |order: i64, bidder: u32| {
        [&order.to_le_bytes()[..], &bidder.to_le_bytes(), &[9], &0_u64.to_le_bytes()].concat()
    };
    let put = |order, bidder| {
        [&[1, 1, OperationKind::OrderedPut as u8][..], &tuple(order, bidder)].concat()
    };
    let insert = |order, bidder| {
        // At most two tuples, and several of the same value.
        [&[1, 2, OperationKind::TopKInsert as u8, 2, 0][..], &tuple(order, bidder)].concat()
    };
    let operations =
        [put(5, 50), put(4, 40), put(8, 80), insert(5, 50), insert(8, 80), insert(6, 60)];
    // Key 1, no best bid, and two of the highest bids. The operations are applied to the row as it was
    // logged, and to the converted row.
    let stored = [&[1, 0, 2][..], &tuple(7, 70), &tuple(3, 30)].concat();
    for (adaptation, current) in [(&once, &next), (&twice, &last)] {
        let mut logged = stored.clone();
        let mut adapted = adaptation.row(&stored).unwrap().into_owned();
        for operation in &operations {
            let (_, mut change) = first.read_operation(operation).unwrap();
            let mut changed = Vec::new();
            change.apply(&first, &logged, &mut changed).unwrap();
            logged = changed;
            adaptation.change(&mut change).unwrap();
            let mut changed = Vec::new();
            change.apply(current, &adapted, &mut changed).unwrap();
            adapted = changed;
            assert_eq!(adapted, *adaptation.row(&logged).unwrap());
        }
        let best = tuple(8, 80);
        assert_eq!(
            logged[..2 + best.len()],
            [&[1, 1][..], &best].concat(),
            "the greatest order stays"
        );
    }
}

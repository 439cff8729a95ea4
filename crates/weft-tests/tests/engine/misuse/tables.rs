//! Tables and ranges that do not exist, or that do not support the operation.

use weft_protocols::NoControl;

use super::*;

#[test]
fn unregistered_table_is_named() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let failed = it.database.table::<Stranger>().unwrap_err();
        let Failure::UnknownTable { table, row_type, .. } = &failed else { panic!("{failed}") };
        assert_eq!(table, "strangers");
        assert!(row_type.ends_with("Stranger"));
        let text = failed.to_string();
        assert!(text.contains("strangers") && text.contains("Stranger>()"), "{text}");
    });
}

#[test]
fn table_registered_twice_is_named() {
    #[derive(Clone, Copy, Debug, Record)]
    #[record(table = "hits")]
    struct Namesake {
        #[record(key)]
        id: u8,
    }
    for_each_executor!(|P| {
        let twice = Database::builder().protocol::<P>().table::<Hit>().table::<Hit>().open();
        assert_eq!(twice.unwrap_err(), Failure::DuplicateTable { table: "hits" });
        let namesakes =
            Database::builder().protocol::<P>().table::<Hit>().table::<Namesake>().open();
        assert_eq!(namesakes.unwrap_err(), Failure::DuplicateTable { table: "hits" });
    });
}

#[test]
fn a_handle_of_another_database_is_refused() {
    for_each_executor!(|P| {
        let (it, other) = (Fixture::<P>::new(), Fixture::<P>::new());
        let dropped = {
            let third = Fixture::<P>::new();
            third.hits.clone()
        };
        // The records of this table have no header.
        let uncontrolled = Fixture::<NoControl>::new();
        let foreign = Failure::ForeignTable { table: "hits" };
        let people = Failure::ForeignTable { table: "people" };
        let result = it.database.transact(|tx| -> Result<(), Error> {
            for hits in [&other.hits, &dropped, &uncontrolled.hits] {
                assert_eq!(failure(tx.get(hits, &1)), foreign);
                assert_eq!(failure(tx.insert(hits, Hit { id: 2, count: 0 })), foreign);
                assert_eq!(failure(tx.upsert(hits, Hit { id: 1, count: 0 })), foreign);
                assert_eq!(failure(tx.update(hits, &1, |_| ())), foreign);
                assert_eq!(failure(tx.delete(hits, &1)), foreign);
            }
            let mut scan = tx.range(&other.people, ..);
            assert!(matches!(scan.next(), Some(Err(Error::Failure(Failure::ForeignTable { .. })))));
            assert!(scan.next().is_none(), "a scan ends after its error");
            let by_phone = tx.get_by(&other.people, Person::PHONE, &1);
            assert_eq!(failure(by_phone), people);
            Ok(())
        });
        assert_eq!(failure(result), people, "the failure of a scan fails the transaction");
        it.check_unchanged();
        other.check_unchanged();
    });
}

#[test]
fn ranges_without_keys_are_empty() {
    use std::ops::Bound::{Excluded, Included};
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let reversed = tx.range(&it.people, "b".to_owned().."a".to_owned());
                assert_eq!(reversed.count(), 0);
                #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
                let by_phone = tx.range_by(&it.people, Person::PHONE, 5..=4);
                assert_eq!(by_phone.descending().count(), 0);
                let (ada, bob) = ("Ada".to_owned(), "Bob".to_owned());
                for empty in [
                    (Excluded(ada.clone()), Excluded(ada.clone())),
                    (Included(ada.clone()), Excluded(ada.clone())),
                    (Excluded(ada.clone()), Included(ada.clone())),
                    (Excluded(ada.clone()), Excluded(bob.clone())),
                ] {
                    assert_eq!(tx.range(&it.people, empty.clone()).count(), 0, "{empty:?}");
                }
                for same in [
                    (Excluded(1), Excluded(1)),
                    (Included(1), Excluded(1)),
                    (Excluded(1), Included(1)),
                    (Excluded(1), Excluded(2)),
                ] {
                    assert_eq!(tx.range_by(&it.people, Person::PHONE, same).count(), 0, "{same:?}");
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
#[should_panic(expected = "the scan has begun")]
fn the_direction_of_a_scan_cannot_change_half_way() {
    let it = Fixture::<Dbx>::new();
    let tx = it.database.begin().unwrap();
    let mut scan = tx.range(&it.people, ..);
    assert!(scan.next().is_some());
    let _ = scan.descending();
}

#[test]
fn overlooked_failure_of_a_scan_fails_the_transaction() {
    for_each_executor!(|P| {
        let (it, other) = (Fixture::<P>::new(), Fixture::<P>::new());
        let foreign = Failure::ForeignTable { table: "people" };
        let result = it.database.transact(|tx| {
            it.add_one(tx)?;
            Ok::<_, Error>(tx.range(&other.people, ..).count())
        });
        assert_eq!(failure(result), foreign);
        let tx = it.database.begin().unwrap();
        it.add_one(&tx).unwrap();
        assert_eq!(tx.prefix_by(&other.people, Person::CITY, &"Oslo".to_owned()).count(), 1);
        assert_eq!(failure(tx.commit()), foreign);
        it.check_unchanged();
    });
}

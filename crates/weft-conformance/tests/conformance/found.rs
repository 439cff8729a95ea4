//! Seeds at which the simulated machine has found bugs, so that they stay fixed: see `docs/planted-bugs.md`.
//! (Bugs that nearly every seed finds are not listed here.)

use weft_conformance::invariants::{self, RowCount};
use weft_conformance::subject::Subject;
use weft_conformance::threads::Mode;

use crate::expect_nothing;

/// Under `htm-naive`, a deleted record came on the list of deleted records a moment after its transaction had
/// ended. If it was filled and deleted again in that moment, it came on the list twice, and its memory was
/// freed twice.
#[test]
fn deleted_record_is_listed_once() {
    for regions in ["regions", "impatient", "twins"] {
        let subject = Subject::named("htm-naive", regions);
        let mode = Mode::Interleaved(4_174_274_583_209_156_312);
        expect_nothing(&subject, invariants::check(&RowCount, &subject, mode, 3, 8, 0));
    }
}

/// Under `dbx:paper`, a region numbers the rows that it installs, and the transaction numbered them once more when it
/// had committed. If another transaction had deleted such a row in between, the row was no longer marked as deleted:
/// snapshots saw it, and the transaction that inserted the key again waited for ever for the mark.
#[test]
fn number_of_a_deleted_row_stays() {
    let subject = Subject::named("dbx:paper", "regions");
    let mode = Mode::Interleaved(5_364_713_991_871_889_748);
    expect_nothing(&subject, invariants::check(&RowCount, &subject, mode, 2, 8, 1));
}

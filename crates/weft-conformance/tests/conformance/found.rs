//! Seeds at which the simulated machine has found bugs, so that they stay fixed: see `docs/planted-bugs.md`.
//! (Bugs that nearly every seed finds are not listed here.)

use weft_conformance::invariants::{self, Counted};
use weft_conformance::subject::Subject;
use weft_conformance::threads::Mode;

use crate::expect_nothing;

/// Under `htm-naive`, a deleted record came on the list of deleted records a moment after its transaction had
/// ended. If it was filled and deleted again in that moment, it came on the list twice, and its memory was
/// freed twice.
#[test]
fn a_record_is_on_the_list_of_the_deleted_once() {
    for regions in ["regions", "impatient", "twins"] {
        let subject = Subject::named("htm-naive", regions);
        let mode = Mode::Interleaved(4_174_274_583_209_156_312);
        expect_nothing(&subject, invariants::check(&Counted, &subject, mode, 3, 8, 0));
    }
}

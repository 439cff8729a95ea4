//! Seeds by which the simulated machine has found something, that it be found again: see
//! `docs/planted-bugs.md`. (What was found by nearly every seed needs no place here.)

use weft_conformance::invariants::{self, Counted};
use weft_conformance::subject::Subject;
use weft_conformance::threads::Mode;

use crate::expect_nothing;

/// Under `htm-naive` a record that was deleted came on the list of the deleted ones a moment after its
/// transaction had ended, and so twice if it was filled and deleted again in that moment. Its memory was
/// then freed twice.
#[test]
fn a_record_is_on_the_list_of_the_deleted_once() {
    for regions in ["regions", "impatient", "twins"] {
        let subject = Subject::named("htm-naive", regions);
        let mode = Mode::Interleaved(4_174_274_583_209_156_312);
        expect_nothing(&subject, invariants::check(&Counted, &subject, mode, 3, 8, 0));
    }
}

//! Tests of pieces that run as hardware regions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::{Database, Error, Failure};
use weft_procedures::Execute;
use weft_protocols::BuilderExt;

use super::many_threads::lose_no_cent;
use super::{BEGINNING, Bank, NOTHING, Refused, at, open_by, options};
use weft_tests::hardware::{hardware, is_native, on_thread};
use weft_tests::{panic_quietly, stress};

/// Opens a bank whose pieces are regions, which give up after `conflict` conflicts. Returns `None` if the machine
/// has no RTM and cannot emulate it.
fn open(conflict: u32) -> Option<Bank> {
    let htm = hardware(conflict)?;
    let _here = on_thread(0, 0);
    let builder = Database::builder()
        .protocol::<weft_protocols::DbxTc>()
        .custom_htm(htm)
        .dbx_tc(options().in_regions(true));
    Some(open_by(builder))
}

#[test]
fn each_piece_is_one_region() {
    let native = is_native();
    let Some(bank) = open(100) else { return };
    let _here = on_thread(0, 1);
    bank.pay(1, 1, 1);
    let before = bank.database.metrics().htm;
    for number in 2..=11 {
        assert_eq!(bank.pay(1, 1, number), BEGINNING + number as i64);
    }
    assert_eq!(bank.state(1), (BEGINNING + 11, 11));
    let htm = bank.database.metrics().htm;
    let regions = htm.committed - before.committed;
    // A processor aborts some regions by chance. The smaller regions of the fallback then count as well.
    assert!(native || regions == 31, "expected three per payment and one for `state`: {regions}");
    let metrics = bank.database.metrics();
    assert_eq!((metrics.pieces_redone, metrics.aborted_total()), (0, 0));
}

/// An error or panic that no conflict has caused ends the region, and is returned.
#[test]
fn errors_and_panics_end_regions() {
    let Some(bank) = open(100) else { return };
    let _here = on_thread(0, 1);
    let overdrawn = bank.database.execute(&mut bank.paying(1, -BEGINNING - 1, 1, NOTHING));
    assert!(matches!(overdrawn, Err(Refused::Overdrawn)), "{overdrawn:?}");
    assert_eq!(bank.state(1), (BEGINNING, 0));
    bank.pay(2, 7, 1);
    // The insertion fails, because this slip number exists.
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, NOTHING));
    let Err(Refused::Engine(Error::Failure(failure))) = paid else { panic!("{paid:?}") };
    assert_eq!(failure, Failure::Halfway { procedure: "pay", step: 5 });
    assert_eq!(bank.state(1), (BEGINNING + 10, 10), "the committed pieces stay");
    // The panic comes after the slip was linked into the index, so the slip must be unlinked.
    let panics = at(4, 2, || panic_quietly("the printer is on fire"));
    let paid = catch_unwind(AssertUnwindSafe(|| {
        bank.database.execute(&mut bank.paying(1, 10, 2, &panics))
    }));
    paid.expect_err("the payment panics");
    assert_eq!(bank.state(1), (BEGINNING + 20, 20));
    let slips: Result<_, Error> = bank.database.transact(|tx| {
        let numbers = tx.range(&bank.slips, ..).map(|slip| Ok(slip?.number));
        numbers.collect::<Result<Vec<u64>, Error>>()
    });
    assert_eq!(slips.expect("is read"), [1]);
    assert_eq!(bank.pay(1, 1, 3), BEGINNING + 21, "the worker can be used again");
}

/// Regions, their software fallbacks and non-procedure transactions run side by side.
#[test]
fn regions_and_their_fallbacks_lose_no_cent() {
    let native = is_native();
    let Some(bank) = open(2) else { return };
    let _here = on_thread(0, 0);
    let before = bank.database.metrics().htm;
    lose_no_cent(&bank, 25 * stress() as u64, |seed| on_thread(1_000, seed));
    let htm = bank.database.metrics().htm;
    assert!(htm.committed > before.committed, "{htm:?}");
    assert!(native || htm.fallbacks > before.fallbacks, "no region gave up: {htm:?}");
}

//! Pieces as hardware regions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::{Database, Error, Failure};
use weft_procedures::Execute;
use weft_protocols::BuilderExt;

use super::many_threads::lose_no_cent;
use super::{BEGINNING, Bank, NOTHING, Refused, at, open_by, options};
use weft_tests::hardware::{hardware, is_native, on_thread};
use weft_tests::{panic_quietly, stress};

/// A bank whose pieces are regions, that are given up after so many conflicts. `None`: there is no hardware, and none
/// can be emulated.
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
    // A processor gives some up by chance, and then small regions are counted.
    assert!(native || regions == 31, "three for each payment, and one of who looks: {regions}");
    let metrics = bank.database.metrics();
    assert_eq!((metrics.pieces_redone, metrics.aborted_total()), (0, 0));
}

/// Errors and panics that are no conflicts end the region, and count.
#[test]
fn errors_and_panics_end_regions() {
    let Some(bank) = open(100) else { return };
    let _here = on_thread(0, 1);
    let overdrawn = bank.database.execute(&mut bank.paying(1, -BEGINNING - 1, 1, NOTHING));
    assert!(matches!(overdrawn, Err(Refused::Overdrawn)), "{overdrawn:?}");
    assert_eq!(bank.state(1), (BEGINNING, 0));
    bank.pay(2, 7, 1);
    // There is a slip of this number.
    let paid = bank.database.execute(&mut bank.paying(1, 10, 1, NOTHING));
    let Err(Refused::Engine(Error::Failure(failure))) = paid else { panic!("{paid:?}") };
    assert_eq!(failure, Failure::Halfway { procedure: "pay", step: 5 });
    assert_eq!(bank.state(1), (BEGINNING + 10, 10), "what was committed stays");
    // The slip is in the index already, and leaves it again.
    let panics = at(4, 2, || panic_quietly("the printer is on fire"));
    let paid = catch_unwind(AssertUnwindSafe(|| {
        bank.database.execute(&mut bank.paying(1, 10, 2, &panics))
    }));
    paid.expect_err("it panics");
    assert_eq!(bank.state(1), (BEGINNING + 20, 20));
    let slips: Result<_, Error> = bank.database.transact(|tx| {
        let numbers = tx.range(&bank.slips, ..).map(|slip| Ok(slip?.number));
        numbers.collect::<Result<Vec<u64>, Error>>()
    });
    assert_eq!(slips.expect("is read"), [1]);
    assert_eq!(bank.pay(1, 1, 3), BEGINNING + 21, "the worker is as good as before");
}

/// Regions, the small transactions that are done where they give up, and outsiders.
#[test]
fn regions_and_their_fallbacks_lose_no_cent() {
    let native = is_native();
    let Some(bank) = open(2) else { return };
    let _here = on_thread(0, 0);
    let before = bank.database.metrics().htm;
    lose_no_cent(&bank, 25 * stress() as u64, |seed| on_thread(1_000, seed));
    let htm = bank.database.metrics().htm;
    assert!(htm.committed > before.committed, "{htm:?}");
    assert!(native || htm.fallbacks > before.fallbacks, "conflicts were injected: {htm:?}");
}

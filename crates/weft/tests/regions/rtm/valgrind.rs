//! Tests of RTM machine code where every region aborts at once. Valgrind executes XBEGIN as an abort for lack of
//! capacity, so each commit and each index change begins a region, and ends in its software twin. Valgrind also
//! checks every memory access on the way.
//!
//! Where valgrind is not installed, the test is skipped, and says so (Debian: `apt-get install valgrind`).

use std::process::Command;

use weft::htm::{Htm, RetryPolicy};
use weft::protocol::{Dbx, Protocol, Silo};
use weft::{Database, Error, Record};
use weft_protocols::{DbxSpin, HtmNaive, TimestampOrdering};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "postings", key(account, sequence))]
#[record(index(name = by_text, columns(text)))]
struct Posting {
    account: u32,
    sequence: u32,
    text: String,
}

/// The environment variable of the process that runs under valgrind.
const CHILD: &str = "WEFT_UNDER_VALGRIND";

/// Covers the path from an aborted region to its software twin, for every kind of region of the engine.
#[test]
fn regions_that_always_abort_end_in_their_twins() {
    if std::env::var_os(CHILD).is_some() {
        return under_valgrind();
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let output = Command::new("valgrind")
        .args(["--error-exitcode=99", "--undef-value-errors=no"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "rtm::valgrind::regions_that_always_abort_end_in_their_twins",
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("5 protocols"), "{out}\n{errors}");
}

fn under_valgrind() {
    run::<Dbx>().unwrap();
    run::<DbxSpin>().unwrap();
    run::<Silo>().unwrap();
    run::<TimestampOrdering>().unwrap();
    run::<HtmNaive>().unwrap();
    println!("5 protocols");
}

fn run<P: Protocol>() -> Result<(), Error> {
    // SAFETY: valgrind executes RTM's instructions, whether or not the processor has them.
    let htm = unsafe { Htm::assume_rtm(RetryPolicy::default()) };
    let database = Database::builder().protocol::<P>().table::<Posting>().custom_htm(htm).open()?;
    let postings = database.table::<Posting>()?;
    const ACCOUNTS: u32 = 4;
    const SEQUENCES: u32 = 60;
    for sequence in 0..SEQUENCES {
        database.transact(|tx| {
            for account in 0..ACCOUNTS {
                let text = format!("{} of {account}", SEQUENCES - sequence);
                tx.insert(&postings, Posting { account, sequence, text })?;
            }
            Ok::<(), Error>(())
        })?;
        database.transact(|tx| {
            tx.update(&postings, &(0, sequence), |posting| posting.text.push('!'))?;
            tx.delete(&postings, &(1, sequence))
        })?;
    }
    database.transact(|tx| {
        let of = |account| tx.prefix(&postings, &account).count() as u32;
        assert_eq!([0, 1, 2, 3].map(of), [SEQUENCES, 0, SEQUENCES, SEQUENCES]);
        let updated: Result<Vec<_>, Error> = tx.prefix(&postings, &0).collect();
        assert!(updated?.iter().all(|posting| posting.text.ends_with('!')));
        assert_eq!(tx.range_by(&postings, Posting::BY_TEXT, ..).count() as u32, 3 * SEQUENCES);
        Ok::<(), Error>(())
    })?;
    let htm = database.metrics().htm;
    assert_eq!(htm.committed, 0, "{}: valgrind aborts every region: {htm:?}", P::NAME);
    assert!(htm.started > 100 && htm.fallbacks > 100, "{}: {htm:?}", P::NAME);
    Ok(())
}

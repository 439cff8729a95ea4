//! How many edges the checker's graph has.

use weft_checker::{HistoryBuilder, Key, Options, Status, check};

/// Fault: for a transaction without times, a scan visited every key of its range, because the empty interval of a node
/// without quiet keys seemed to overlap the transaction. So the edges were scans times keys.
#[test]
fn scans_without_times_have_few_edges() {
    const SCANS: u64 = 100;
    let mut builder = HistoryBuilder::new();
    let table = builder.table("t");
    for id in 0..SCANS {
        let mut transaction = builder.transaction(id, 0, 0);
        transaction.scan(table, .., std::iter::empty::<(Key, u64)>());
        transaction.end(Status::Committed, None);
    }
    for id in SCANS..SCANS + 1000 {
        let mut transaction = builder.transaction(id, 0, 0);
        transaction.write(table, id, 1);
        transaction.end(Status::Committed, None);
    }
    let report = check(&builder.build(), &Options::default());
    assert!(report.is_ok(), "{report:?}");
    let edges = report.edges.predicate_read_write;
    assert!((1..=SCANS * 25).contains(&edges), "{edges} edges");
}

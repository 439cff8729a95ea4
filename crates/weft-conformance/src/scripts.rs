//! The schedules of the suite, by the phenomenon that each would show. They cover every line of the test plan's
//! table, Adya's phenomena, and the cases of Hermitage (M. Kleppmann's collection, whose names are in
//! brackets). Each runs on the ordered table, the hash table or both, by keys, scans and index look-ups.
//!
//! `x` and `y` are rows, `0` is the first transaction, `1` the second, and so on. At first both rows have the
//! value 0.

use crate::schedule::{ExpectedOutcome, Script};
use crate::step::{Column, HASHED, Step};
use Step::{
    Add, AddIfNotNegative, AddToColumn, Commit, Delete, Insert, Move, Read, ReadByBadge,
    ReadColumn, Scan, ScanBack, ScanGroup, Snapshot, Upsert, Write,
};

/// A row of the ordered table.
pub const X: u64 = 10;
/// Another row of the ordered table.
pub const Y: u64 = 20;
/// A row of the hash table.
pub const HX: u64 = HASHED;
/// Another row of the hash table.
pub const HY: u64 = HASHED + 1;
/// A key of the ordered table with no row at first, in group 1.
pub const NEW: u64 = 31;
/// Another such key.
pub const NEWER: u64 = 41;

/// Pairs of rows in every combination of tables.
const PAIRS: [(u64, u64); 3] = [(X, Y), (HX, HY), (X, HY)];

fn zeros() -> Vec<(u64, i64)> {
    vec![(X, 0), (Y, 0), (HX, 0), (HY, 0)]
}

fn anomaly(name: &'static str, schedule: &[(usize, Step)]) -> Script {
    let (expected, schedule) = (ExpectedOutcome::Anomaly, schedule.to_vec());
    Script { name, expected, initial: zeros(), schedule }
}

fn harmless(name: &'static str, schedule: &[(usize, Step)]) -> Script {
    Script { expected: ExpectedOutcome::Harmless, ..anomaly(name, schedule) }
}

fn serial(name: &'static str, schedule: &[(usize, Step)]) -> Script {
    Script { expected: ExpectedOutcome::Serial, ..anomaly(name, schedule) }
}

/// Returns all scripts.
pub fn all() -> Vec<Script> {
    let by_rows = [
        writes(),
        skews(),
        phantoms(),
        absences(),
        real_time(),
        refusals(),
        operations(),
        snapshots(),
    ];
    [by_rows.concat(), column_anomalies(), separate_columns()].concat()
}

/// Returns the anomalies between writers: G0, G1a, G1b, G1c, OTV, P4.
pub fn writes() -> Vec<Script> {
    let mut scripts = Vec::new();
    for (x, y) in PAIRS {
        scripts.push(anomaly(
            "G0 dirty write [g0]",
            &[
                (0, Write(x, 1)),
                (1, Write(x, 2)),
                (1, Write(y, 2)),
                (0, Write(y, 1)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        // The writer's session ends with the schedule, without a commit.
        scripts.push(harmless(
            "G1a aborted read [g1a]",
            &[(0, Write(x, 1)), (1, Read(x)), (1, Read(y)), (1, Commit)],
        ));
        scripts.push(harmless(
            "G1b intermediate read [g1b]",
            &[(0, Write(x, 1)), (1, Read(x)), (1, Commit), (0, Write(x, 2)), (0, Commit)],
        ));
        scripts.push(anomaly(
            "G1b intermediate read, read twice",
            &[
                (0, Write(x, 1)),
                (1, Read(x)),
                (0, Write(x, 2)),
                (0, Commit),
                (1, Read(x)),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "G1c circular information flow [g1c]",
            &[
                (0, Write(x, 1)),
                (1, Write(y, 1)),
                (0, Read(y)),
                (1, Read(x)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "OTV observed transaction vanishes [otv]",
            &[
                (0, Write(x, 1)),
                (0, Write(y, 1)),
                (1, Write(x, 2)),
                (0, Commit),
                (2, Read(x)),
                (1, Write(y, 2)),
                (2, Read(y)),
                (1, Commit),
                (2, Commit),
            ],
        ));
        scripts.push(anomaly(
            "P4 lost update [p4]",
            &[
                (0, Read(x)),
                (1, Read(x)),
                (0, Write(x, 1)),
                (1, Write(x, 2)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "P4 lost update, one after the other",
            &[
                (0, Read(x)),
                (1, Read(x)),
                (1, Write(x, 2)),
                (1, Commit),
                (0, Write(x, 1)),
                (0, Commit),
            ],
        ));
    }
    scripts.push(anomaly(
        "P4 lost update by replacing rows",
        &[
            (0, Read(X)),
            (1, Read(X)),
            (0, Upsert(X, 1)),
            (1, Upsert(X, 2)),
            (0, Commit),
            (1, Commit),
        ],
    ));
    scripts.push(anomaly(
        "P4 lost update of an indexed column",
        &[
            (0, ScanGroup(0)),
            (1, ScanGroup(0)),
            (0, Move(X, 1)),
            (1, Move(X, 2)),
            (0, Commit),
            (1, Commit),
        ],
    ));
    scripts
}

/// Returns the anomalies between readers and writers of single rows: G-single, G2-item and similar ones.
pub fn skews() -> Vec<Script> {
    let mut scripts = Vec::new();
    for (x, y) in PAIRS {
        scripts.push(anomaly(
            "G-single read skew [g-single]",
            &[
                (0, Read(x)),
                (1, Write(x, 1)),
                (1, Write(y, 1)),
                (1, Commit),
                (0, Read(y)),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "G-single read skew, and a write [g-single-write]",
            &[
                (0, Read(x)),
                (1, Read(x)),
                (1, Read(y)),
                (1, Write(x, 1)),
                (1, Write(y, 1)),
                (1, Commit),
                (0, Write(y, 2)),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "G2-item write skew [g2-item]",
            &[
                (0, Read(x)),
                (0, Read(y)),
                (1, Read(x)),
                (1, Read(y)),
                (0, Write(x, 1)),
                (1, Write(y, 1)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "G2-item read-only anomaly",
            &[
                (0, Read(x)),
                (0, Read(y)),
                (1, Read(y)),
                (1, Write(y, 1)),
                (1, Commit),
                (2, Read(x)),
                (2, Read(y)),
                (2, Commit),
                (0, Write(x, 1)),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "G2-item read-only anomaly in three steps [g2-two-edges]",
            &[
                (0, Read(x)),
                (0, Read(y)),
                (1, Write(y, 1)),
                (1, Commit),
                (2, Read(x)),
                (2, Read(y)),
                (2, Commit),
                (0, Write(x, 1)),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "G2-item long fork",
            &[
                (0, Write(x, 1)),
                (1, Write(y, 1)),
                (3, Read(x)),
                (0, Commit),
                (2, Read(x)),
                (2, Read(y)),
                (1, Commit),
                (3, Read(y)),
                (2, Commit),
                (3, Commit),
            ],
        ));
    }
    scripts.push(anomaly(
        "G-single read skew by a scan",
        &[
            (0, Read(Y)),
            (1, Write(X, 1)),
            (1, Write(Y, 1)),
            (1, Commit),
            (0, Scan(0, 15)),
            (0, Commit),
        ],
    ));
    scripts
}

/// Returns the anomalies between scans and transactions that insert, delete and move: PMP, G2.
pub fn phantoms() -> Vec<Script> {
    let mut scripts = Vec::new();
    for scan in [Scan(0, 99), ScanBack(0, 99), ScanGroup(1), Scan(30, 50)] {
        scripts.push(anomaly(
            "PMP predicate with many preceders [pmp]",
            &[(0, scan), (1, Insert(NEW, 1)), (1, Commit), (0, scan), (0, Commit)],
        ));
        scripts.push(Script {
            initial: vec![(NEW, 0)],
            ..anomaly(
                "PMP of a row that is deleted [pmp-write]",
                &[(0, scan), (1, Delete(NEW)), (1, Commit), (0, scan), (0, Commit)],
            )
        });
        scripts.push(anomaly(
            "G2 phantom write skew [g2]",
            &[
                (0, scan),
                (1, scan),
                (0, Insert(NEW, 1)),
                (1, Insert(NEWER, 1)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        // The second transaction inserts between the first one's scan and its own insertion.
        scripts.push(anomaly(
            "G2 phantom write skew, one after the other",
            &[
                (0, scan),
                (1, scan),
                (1, Insert(NEWER, 1)),
                (1, Commit),
                (0, Insert(NEW, 1)),
                (0, Commit),
            ],
        ));
    }
    scripts.push(anomaly(
        "PMP of a row that changes groups",
        &[(0, ScanGroup(1)), (1, Move(X, 1)), (1, Commit), (0, ScanGroup(1)), (0, Commit)],
    ));
    scripts.push(anomaly(
        "PMP of a row that leaves its group",
        &[(0, ScanGroup(0)), (1, Move(X, 1)), (1, Commit), (0, ScanGroup(0)), (0, Commit)],
    ));
    scripts.push(anomaly(
        "G2 write skew by deletion",
        &[
            (0, Scan(0, 99)),
            (1, Scan(0, 99)),
            (0, Delete(X)),
            (1, Delete(Y)),
            (0, Commit),
            (1, Commit),
        ],
    ));
    scripts.push(split());
    scripts
}

/// The scanner fills the scanned leaf until it splits, and goes on in the right half. Then another transaction
/// inserts there.
fn split() -> Script {
    // Ascending keys, and more of them than a leaf holds.
    let mut schedule = vec![(0, Scan(100, 500)), (1, Read(Y))];
    schedule.extend((100..250).map(|key| (0, Insert(key, 1))));
    schedule.extend([(1, Insert(499, 1)), (1, Commit), (0, Write(Y, 1)), (0, Commit)]);
    anomaly("G2 phantom write skew in the right half of a split", &schedule)
}

/// Returns the anomalies with absent keys.
pub fn absences() -> Vec<Script> {
    let mut scripts = Vec::new();
    for (key, read) in [(NEW, Read(NEW)), (NEW, ReadByBadge(NEW)), (HX + 5, Read(HX + 5))] {
        scripts.push(anomaly(
            "a key found absent appears",
            &[(0, read), (1, Insert(key, 1)), (1, Commit), (0, read), (0, Commit)],
        ));
    }
    for (x, y) in [(NEW, NEWER), (HX + 5, HX + 6), (NEW, HX + 5)] {
        scripts.push(anomaly(
            "G2 write skew by absence",
            &[
                (0, Read(x)),
                (1, Read(y)),
                (0, Insert(y, 1)),
                (1, Insert(x, 1)),
                (0, Commit),
                (1, Commit),
            ],
        ));
    }
    for x in [X, HX] {
        scripts.push(anomaly(
            "a row deleted under an update",
            &[(0, Read(x)), (1, Delete(x)), (1, Commit), (0, Write(x, 1)), (0, Commit)],
        ));
        scripts.push(anomaly(
            "deleted and inserted again between two reads",
            &[
                (0, Read(x)),
                (1, Delete(x)),
                (1, Commit),
                (2, Insert(x, 5)),
                (2, Commit),
                (0, Read(x)),
                (0, Commit),
            ],
        ));
        // The key is absent, but its record still exists.
        scripts.push(anomaly(
            "a deleted key appears again",
            &[
                (0, Delete(x)),
                (0, Commit),
                (1, Read(x)),
                (2, Insert(x, 5)),
                (2, Commit),
                (1, Read(x)),
                (1, Commit),
            ],
        ));
    }
    for key in [NEW, HX + 5] {
        scripts.push(anomaly(
            "two insert a key and one wins",
            &[(0, Insert(key, 1)), (1, Insert(key, 2)), (0, Commit), (1, Read(key)), (1, Commit)],
        ));
        // The first transaction gives up: its session ends without a commit.
        scripts.push(harmless(
            "two insert a key and the first gives up",
            &[(0, Insert(key, 1)), (1, Insert(key, 2)), (1, Commit)],
        ));
    }
    scripts
}

/// Returns the anomalies in real time: stale reads.
pub fn real_time() -> Vec<Script> {
    let mut scripts = Vec::new();
    for x in [X, HX] {
        scripts.push(serial(
            "stale: a transaction that completed is seen",
            &[(0, Write(x, 1)), (0, Commit), (1, Read(x)), (1, Commit)],
        ));
        scripts.push(serial(
            "stale: several transactions, one after the other",
            &[
                (0, Write(x, 1)),
                (0, Commit),
                (1, Read(x)),
                (1, Write(x, 2)),
                (1, Commit),
                (2, Write(x, 3)),
                (2, Commit),
                (3, Read(x)),
                (3, Commit),
            ],
        ));
    }
    scripts.push(serial(
        "stale: an insertion that completed is seen",
        &[(0, Insert(NEW, 1)), (0, Commit), (1, Scan(0, 99)), (1, ScanGroup(1)), (1, Commit)],
    ));
    scripts.push(serial(
        "stale: a deletion that completed is seen",
        &[(0, Delete(X)), (0, Commit), (1, Scan(0, 99)), (1, ScanGroup(0)), (1, Commit)],
    ));
    scripts.push(serial(
        "stale: an index shows a row where it is now",
        &[(0, Move(X, 1)), (0, Commit), (1, ScanGroup(0)), (1, ScanGroup(1)), (1, Commit)],
    ));
    scripts.push(harmless(
        "readers do not disturb each other",
        &[
            (0, Scan(0, 99)),
            (1, Read(X)),
            (1, Read(HX)),
            (2, ScanGroup(0)),
            (1, Commit),
            (0, Read(Y)),
            (0, Commit),
            (2, Commit),
        ],
    ));
    scripts
}

/// Returns the schedules of commutative operations, which a protocol may apply again at the commit.
pub fn operations() -> Vec<Script> {
    let mut scripts = Vec::new();
    for (x, y) in PAIRS {
        scripts.push(harmless(
            "two additions",
            &[(0, Add(x, 1)), (1, Add(x, 2)), (0, Commit), (1, Commit)],
        ));
        scripts.push(harmless(
            "additions to two rows, in both orders",
            &[
                (0, Add(x, 1)),
                (1, Add(y, 2)),
                (0, Add(y, 3)),
                (1, Add(x, 4)),
                (1, Commit),
                (0, Add(x, 5)),
                (0, Commit),
            ],
        ));
        scripts.push(harmless(
            "addition to a row that is replaced, and then deleted",
            &[
                (0, Add(x, 1)),
                (1, Write(x, 7)),
                (1, Commit),
                (2, Add(x, 2)),
                (3, Delete(x)),
                (3, Commit),
                (2, Commit),
                (0, Commit),
            ],
        ));
        scripts.push(harmless(
            "addition to a row, and a read of what was replaced with it",
            &[
                (0, Add(x, 1)),
                (0, Read(y)),
                (1, Write(x, 5)),
                (1, Write(y, 5)),
                (1, Commit),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "lost update by additions after reads",
            &[(0, Read(x)), (1, Read(x)), (0, Add(x, 1)), (1, Add(x, 2)), (0, Commit), (1, Commit)],
        ));
        scripts.push(anomaly(
            "two transactions read their own additions",
            &[(0, Add(x, 1)), (1, Add(x, 2)), (0, Read(x)), (1, Read(x)), (0, Commit), (1, Commit)],
        ));
        scripts.push(anomaly(
            "write skew by additions",
            &[(0, Read(y)), (1, Read(x)), (0, Add(x, 1)), (1, Add(y, 1)), (0, Commit), (1, Commit)],
        ));
    }
    scripts
}

/// Returns the anomalies with refused operations. An operation that changes nothing has still read, and what
/// the transaction does next depends on it.
pub fn refusals() -> Vec<Script> {
    vec![
        anomaly(
            "write skew by an update that was refused",
            &[
                (0, AddIfNotNegative(X, -1)),
                (1, Read(Y)),
                (1, AddIfNotNegative(X, 5)),
                (0, Write(Y, 1)),
                (1, Commit),
                (0, Commit),
            ],
        ),
        anomaly(
            "write skew by an insertion that was refused",
            &[
                (0, Insert(X, 7)),
                (1, Read(Y)),
                (1, Delete(X)),
                (0, Write(Y, 1)),
                (1, Commit),
                (0, Commit),
            ],
        ),
        anomaly(
            "write skew by an update that found nothing",
            &[
                (0, Write(NEW, 7)),
                (1, Read(Y)),
                (1, Insert(NEW, 1)),
                (0, Write(Y, 1)),
                (1, Commit),
                (0, Commit),
            ],
        ),
    ]
}

/// Returns scripts of what snapshots must show and must not show. Each snapshot is a session of its own, which
/// never waits.
pub fn snapshots() -> Vec<Script> {
    let mut scripts = Vec::new();
    for (x, y) in PAIRS {
        // A. Fekete, E. O'Neil and P. O'Neil, SIGMOD Record 2004: the two writers alone would be serializable.
        scripts.push(anomaly(
            "read-only anomaly of a snapshot",
            &[
                (0, Read(x)),
                (0, Read(y)),
                (1, Read(y)),
                (1, Write(y, 1)),
                (1, Commit),
                (2, Snapshot),
                (2, Read(x)),
                (2, Read(y)),
                (2, Commit),
                (0, Write(x, 1)),
                (0, Commit),
            ],
        ));
        scripts.push(serial(
            "a snapshot between two commits that depend on each other",
            &[
                (0, Write(x, 1)),
                (0, Commit),
                (2, Snapshot),
                (1, Read(x)),
                (1, Write(y, 1)),
                (1, Commit),
                (3, Snapshot),
                (2, Read(y)),
                (2, Read(x)),
                (3, Read(y)),
                (3, Read(x)),
                (3, Commit),
                (2, Commit),
            ],
        ));
        // Under some protocols the writer must give way to the snapshot.
        scripts.push(harmless(
            "a snapshot in the middle of a transaction",
            &[
                (0, Write(x, 1)),
                (1, Snapshot),
                (1, Read(x)),
                (0, Write(y, 1)),
                (1, Read(y)),
                (0, Commit),
                (2, Snapshot),
                (1, Read(x)),
                (1, Read(y)),
                (2, Read(x)),
                (2, Read(y)),
                (1, Commit),
                (2, Commit),
            ],
        ));
        // The writer's session ends with the schedule, without a commit.
        scripts.push(harmless(
            "a writer that gives up under an open snapshot",
            &[
                (1, Snapshot),
                (0, Write(x, 1)),
                (0, Delete(y)),
                (0, Insert(NEW, 1)),
                (2, Snapshot),
                (1, Read(x)),
                (2, Scan(0, 99)),
                (1, Read(y)),
                (2, Read(y)),
                (2, Read(x)),
                (1, Scan(0, 99)),
                (1, Commit),
                (2, Commit),
            ],
        ));
        scripts.push(serial(
            "rows that are overwritten again and again under open snapshots",
            &[
                (0, Snapshot),
                (1, Write(x, 1)),
                (1, Write(y, 1)),
                (1, Commit),
                (2, Write(x, 2)),
                (2, Commit),
                (3, Snapshot),
                (4, Write(x, 3)),
                (4, Write(y, 3)),
                (4, Commit),
                (5, Write(x, 4)),
                (5, Commit),
                (3, Read(x)),
                (3, Read(y)),
                (0, Read(y)),
                (0, Read(x)),
                (3, Commit),
                (0, Read(x)),
                (0, Commit),
            ],
        ));
    }
    for (key, looks) in [
        (NEW, &[Read(NEW), ReadByBadge(NEW), Scan(0, 99), ScanBack(0, 99), ScanGroup(1)][..]),
        (HX + 5, &[Read(HX + 5)]),
    ] {
        let mut schedule = vec![
            (0, Snapshot),
            (1, Insert(key, 1)),
            (1, Commit),
            (2, Snapshot),
            (3, Delete(key)),
            (3, Commit),
            (4, Snapshot),
            (5, Insert(key, 2)),
            (5, Commit),
            (6, Snapshot),
            (7, Delete(key)),
            (7, Commit),
        ];
        for &look in looks {
            schedule.extend([0, 2, 4, 6].map(|snapshot| (snapshot, look)));
        }
        // Closing one snapshot must not affect the others.
        schedule.push((2, Commit));
        schedule.extend([0, 4, 6].map(|snapshot| (snapshot, looks[0])));
        schedule.push((0, Commit));
        schedule.extend([4, 6].map(|snapshot| (snapshot, looks[0])));
        schedule.extend([(4, Commit), (6, Commit)]);
        scripts.push(serial("inserted, deleted and inserted again under snapshots", &schedule));
    }
    scripts.push(serial(
        "a row that moves in an index under a snapshot",
        &[
            (0, Snapshot),
            (1, Move(X, 1)),
            (1, Commit),
            (2, Snapshot),
            (3, Move(X, 0)),
            (3, Commit),
            (0, ScanGroup(0)),
            (0, ScanGroup(1)),
            (2, ScanGroup(0)),
            (2, ScanGroup(1)),
            (0, Commit),
            (2, Commit),
        ],
    ));
    scripts
}

/// Returns the anomalies between transactions that name columns: those of the same column, and those of different
/// columns of the same row or of two rows.
pub fn column_anomalies() -> Vec<Script> {
    use Column::{Mark, Value};
    let mut scripts = Vec::new();
    for (x, y) in PAIRS {
        scripts.push(anomaly(
            "P4 lost update of a column",
            &[
                (0, AddToColumn(x, Value, 1)),
                (1, AddToColumn(x, Value, 2)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "A5B write skew between two columns of a row",
            &[
                (0, ReadColumn(x, Mark)),
                (1, ReadColumn(x, Value)),
                (0, AddToColumn(x, Value, 1)),
                (1, AddToColumn(x, Mark, 1)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "A5B write skew between columns of two rows",
            &[
                (0, ReadColumn(x, Mark)),
                (1, ReadColumn(y, Mark)),
                (0, AddToColumn(y, Mark, 1)),
                (1, AddToColumn(x, Mark, 1)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(anomaly(
            "A5A read skew between columns of two rows",
            &[
                (0, ReadColumn(x, Value)),
                (1, AddToColumn(x, Value, 1)),
                (1, AddToColumn(y, Mark, 1)),
                (1, Commit),
                (0, ReadColumn(y, Mark)),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "a whole row is read beside a column that is written",
            &[
                (0, AddToColumn(x, Value, 1)),
                (0, Read(x)),
                (1, AddToColumn(x, Mark, 1)),
                (1, ReadColumn(y, Mark)),
                (1, Commit),
                (0, AddToColumn(y, Mark, 1)),
                (0, Commit),
            ],
        ));
        scripts.push(anomaly(
            "a row is deleted whose column was read",
            &[
                (0, ReadColumn(x, Value)),
                (1, Delete(x)),
                (1, AddToColumn(y, Mark, 1)),
                (1, Commit),
                (0, ReadColumn(y, Mark)),
                (0, Commit),
            ],
        ));
    }
    scripts
}

/// Returns schedules that go through under protocols that commit by columns.
pub fn separate_columns() -> Vec<Script> {
    use Column::{Mark, Value};
    let mut scripts = Vec::new();
    for (x, y) in PAIRS {
        scripts.push(harmless(
            "updates of two columns",
            &[
                (0, AddToColumn(x, Value, 1)),
                (1, AddToColumn(x, Mark, 2)),
                (1, ReadColumn(y, Value)),
                (0, Commit),
                (1, Commit),
            ],
        ));
        scripts.push(harmless(
            "a column is read while another is written",
            &[
                (0, ReadColumn(x, Value)),
                (0, AddToColumn(y, Value, 1)),
                (1, AddToColumn(x, Mark, 2)),
                (1, Commit),
                (0, ReadColumn(x, Value)),
                (0, Commit),
            ],
        ));
        scripts.push(harmless(
            "a column is read while the row is updated",
            &[
                (0, ReadColumn(x, Mark)),
                (0, AddToColumn(y, Mark, 1)),
                (1, Write(x, 3)),
                (1, Commit),
                (0, Commit),
            ],
        ));
        scripts.push(harmless(
            "a column is written and read while another is written",
            &[
                (0, ReadColumn(x, Value)),
                (0, AddToColumn(x, Value, 1)),
                (0, ReadColumn(x, Value)),
                (1, AddToColumn(x, Mark, 1)),
                (1, Commit),
                (0, Commit),
            ],
        ));
        scripts.push(harmless(
            "a column has its old value again",
            &[
                (0, AddToColumn(x, Value, 1)),
                (0, ReadColumn(y, Mark)),
                (1, AddToColumn(x, Value, 5)),
                (1, Commit),
                (2, AddToColumn(x, Value, -5)),
                (2, Commit),
                (0, Commit),
            ],
        ));
    }
    scripts
}

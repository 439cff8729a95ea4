//! DBX-TC: the figures of §6, on the simulated Haswell.

use super::*;
use crate::definition::*;

/// The papers' machine.
pub(super) const MACHINE: Simulated = Simulated {
    machine: "haswell-4c8t",
    cores: 8,
    quick: span(2.0, 6.0),
    full: span(5.0, 20.0),
    arguments: &[],
};

const TPCC: &[Series] = &[series("TPC-C", &[])];

const PIECES: &[Metric] = &[
    of_procedure("pieces of New-Order", "procedures/name=new_order/pieces/#"),
    of_procedure("pieces of Payment", "procedures/name=payment/pieces/#"),
    of_procedure("pieces of Delivery", "procedures/name=delivery/pieces/#"),
];

/// Returns an experiment that counts the pieces of TPC-C's transactions.
const fn pieces(expectations: &'static [Expectation]) -> Experiment {
    Experiment {
        workload: &["chop", "tpcc", "--json"],
        subject: Subject::Analysis,
        real: Ok(Real { threads: 1, needs_rtm: false, arguments: &[] }),
        simulated: Err("an analysis runs on no machine"),
        axis: Axis {
            label: "optimizations",
            by: AxisVariable::Choices(&[
                AxisChoice { label: "default", arguments: &["--default"] },
                AxisChoice { label: "DBX-TC", arguments: &["--all-optimizations"] },
            ]),
            scale: Scale::Linear,
            quick: &[],
            full: &[],
        },
        series: TPCC,
        metrics: PIECES,
        expectations,
        published: &[],
        differs: &[
            "The paper draws the graphs; this figure counts their pieces. `cargo lab chop tpcc \
             --svg FILE` draws them.",
        ],
    }
}

const fn of_procedure(name: &'static str, path: &'static str) -> Metric {
    let reading = Reading::of(path);
    Metric { name, unit: "", scale: Scale::Linear, real: reading, simulated: reading }
}

const fn of_pieces(says: &'static str, metric: usize, at: f64, bounds: Bounds) -> Expectation {
    let shape = Shape::Value { of: "TPC-C", at: AxisPosition::Value(at) };
    Expectation { says, paper: "(§6.2)", metric, shape, bounds }
}

/// DBX with the mechanisms of its paper. Its readers open snapshots of the most recent state (DBX, §5.4).
const DBX: Series = protocol!("DBX", "dbx:paper", "--snapshots", "on");

const ONE_WAREHOUSE: &[&str] = &["tpcc", "--warehouses", "1", "--delivery-search", "behind-last"];

const PROTOCOLS: &[Series] = &[
    protocol!("DBX-TC", "dbx-tc:paper", "--snapshots", "recent"),
    protocol!("DBX-TC(ROEP)", "dbx-tc:paper", "--snapshots", "on"),
    NOTHING_DEFERRED,
    DBX,
    protocol!("Silo", "silo", "--by-rows", "--snapshots", "recent"),
    protocol!("2PL", "2pl", "--snapshots", "recent"),
    protocol!("HTM", "htm-naive", "--snapshots", "off"),
    WEFTS_DBX_TC,
    protocol!("Weft's dbx", "dbx", "--snapshots", "on").ours(),
];

/// The paper's DBX-TC without deferred execution, whose readers share a snapshot.
const NOTHING_DEFERRED: Series = protocol!(
    "nothing deferred",
    "dbx-tc:paper",
    "--paper",
    "no-deferred-execution",
    "--snapshots",
    "recent"
);

/// The same without snapshots: procedures that only read are chopped together with the others.
const WITHOUT_SNAPSHOTS: Series = protocol!(
    "without snapshots",
    "dbx-tc:paper",
    "--paper",
    "no-deferred-execution,no-readers-on-snapshots",
    "--snapshots",
    "off"
);

/// The same without the database cache, too.
const CHOPPED: Series = protocol!(
    "+chopping",
    "dbx-tc:paper",
    "--paper",
    "no-deferred-execution,no-database-cache,no-readers-on-snapshots",
    "--snapshots",
    "off"
);

/// The first of both without the database cache, which the paper adds next.
const WITH_SNAPSHOTS: Series = protocol!(
    "+snapshots",
    "dbx-tc:paper",
    "--paper",
    "no-deferred-execution,no-database-cache",
    "--snapshots",
    "recent"
);

const WEFTS_DBX_TC: Series = protocol!("Weft's dbx-tc", "dbx-tc", "--snapshots", "recent").ours();

const THREADS: Axis = Axis {
    label: "threads",
    by: AxisVariable::Threads,
    scale: Scale::Linear,
    quick: &[1.0, 4.0, 8.0],
    full: &[1.0, 2.0, 4.0, 6.0, 8.0],
};

const PIECES_AS_REGIONS: &str = "DBX-TC is dbx-tc:paper, with all mechanisms that --paper lists: each piece is a region. A region falls back to a \
     small transaction, which also locks the records that it writes. New records are in a cache until the region has ended. \
     Weft's dbx-tc has none of these mechanisms.";
const EVENTUAL: &str = "Readers of an epoch share one eventual snapshot (--snapshots recent). ROEP is a snapshot of the present state for each \
     reader (--snapshots on), which waits for the procedures in progress. Where deferred changes wait, a snapshot is opened \
     when no procedure is between two pieces.";
const DELIVERY: &str = "Each client's Delivery searches for the oldest order behind the last one that it has delivered, as in Silo's program, from \
     which DBX's derives (DBX, §7.1).";
const SHORT: &str = "Simulated runs are shorter than an epoch of 40 ms, so that all readers of a run share a snapshot.";

const PAPERS_DBX: &str = "DBX is dbx:paper, with all mechanisms of its own paper. Its readers open a snapshot of the most recent \
     state each. Weft's dbx, beside it, has none of these mechanisms, and the same snapshots. Silo commits by \
     rows (--by-rows), as its paper does.";

/// Regions that abort by a conflict, per transaction.
const CONFLICTS: Metric = Metric {
    name: "regions aborted by conflict per transaction",
    unit: "",
    scale: Scale::Linear,
    real: Reading::ratio("htm/aborted_conflict", "committed"),
    simulated: Reading::ratio("regions_aborted_conflict", "transactions"),
};

/// Returns an experiment that measures the throughput of a workload.
const fn contest(
    workload: &'static [&'static str],
    expectations: &'static [Expectation],
    published: &'static [PaperNumber],
) -> Experiment {
    Experiment {
        workload,
        subject: Subject::Transactions,
        real: Ok(Real { threads: 8, needs_rtm: true, arguments: &["--reserve-mib", "1000"] }),
        simulated: Ok(MACHINE),
        axis: THREADS,
        series: PROTOCOLS,
        metrics: &[THROUGHPUT, ABORTS],
        expectations,
        published,
        differs: &[PIECES_AS_REGIONS, EVENTUAL, PAPERS_DBX, SHORT, DELIVERY],
    }
}

/// Returns an experiment that needs a disk, which the simulated machine does not have.
const fn durable(series: &'static [Series]) -> Experiment {
    Experiment {
        workload: &["tpcc", "--delivery-search", "behind-last"],
        subject: Subject::Transactions,
        real: Ok(Real {
            threads: 8,
            needs_rtm: false,
            arguments: &["--directory", DIRECTORY, "--loggers", "2", "--epoch-interval-ms", "20"],
        }),
        simulated: Err("the simulated machine has no disk"),
        axis: Axis { quick: &[1.0, 2.0], full: &[1.0, 2.0, 4.0, 6.0, 8.0], ..THREADS },
        series,
        metrics: &[THROUGHPUT],
        expectations: &[],
        published: &[],
        differs: &[
            PIECES_AS_REGIONS,
            EVENTUAL,
            PAPERS_DBX,
            DELIVERY,
            "Without RTM, a piece is a small transaction, without caches and locks of partitions.",
            "Without RTM, DBX runs all commits under one spinlock. Weft's dbx takes the locks of records.",
            "The log goes to the disk of --out, by two threads, in epochs of 20 ms. ROEP's readers take a number within \
             the epoch, which does not end it. As in the paper, no client waits for a commit to be durable: every two \
             milliseconds the program looks at the current epoch, and later at when it is durable.",
        ],
    }
}

/// Returns an expectation about the cost of the log for a series.
const fn of_durable(
    says: &'static str,
    paper: &'static str,
    (of, to): (&'static str, &'static str),
    bounds: Bounds,
) -> Expectation {
    Expectation {
        says,
        paper,
        metric: 0,
        shape: Shape::Ratio { of, to, at: AxisPosition::Last },
        bounds,
    }
}

const fn ratio(
    says: &'static str,
    paper: &'static str,
    to: &'static str,
    bounds: Bounds,
) -> Expectation {
    let shape = Shape::Ratio { of: "DBX-TC", to, at: AxisPosition::Value(8.0) };
    Expectation { says, paper, metric: 0, shape, bounds }
}

/// The paper's figures and tables.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: Paper::DbxTc,
        number: Number::Figure(10),
        section: "§6.2",
        title: "TPC-C in pieces, by default chopping",
        claim: "The traditional algorithm can chop very few transactions.",
        content: Content::Experiment(pieces(&[
            of_pieces("New-Order is hardly chopped", 0, 0.0, at_most(2.0)),
            of_pieces("Payment is hardly chopped", 1, 0.0, at_most(2.0)),
            of_pieces("Delivery is not chopped", 2, 0.0, at_most(1.0)),
        ])),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Figure(11),
        section: "§6.2",
        title: "TPC-C in pieces, with all optimizations",
        claim: "With its optimizations all read-write transactions come in small pieces.",
        content: Content::Experiment(pieces(&[
            of_pieces("New-Order is chopped", 0, 1.0, at_least(3.0)),
            of_pieces("Payment is chopped", 1, 1.0, at_least(3.0)),
            of_pieces("Delivery is chopped", 2, 1.0, at_least(3.0)),
        ])),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(12, "a"),
        section: "§6.3",
        title: "throughput under low contention, TPC-C",
        claim: "DBX-TC is 36 to 43 % ahead of DBX, and 5.8 times as fast as whole transactions in regions.",
        content: Content::Experiment(contest(
            &["tpcc", "--delivery-search", "behind-last"],
            &[
                ratio(
                    "DBX-TC is ahead of DBX at 8 threads",
                    "1.36 × (§6.3)",
                    "DBX",
                    at_least(1.15),
                ),
                ratio(
                    "and of whole transactions in regions",
                    "5.77 × (§6.3)",
                    "HTM",
                    at_least(2.4),
                ),
                ratio("and of 2PL", "(§6.3)", "2PL", at_least(1.05)),
            ],
            &[published("DBX-TC", 8.0, 604_220.0)],
        )),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(12, "b"),
        section: "§6.3",
        title: "throughput under medium contention, TPC-C",
        claim: "DBX-TC is 36 to 43 % ahead of DBX.",
        content: Content::Experiment(contest(
            &["tpcc", "--threads-per-warehouse", "2", "--delivery-search", "behind-last"],
            &[
                ratio(
                    "DBX-TC is ahead of DBX at 8 threads",
                    "1.36 to 1.43 × (§6.3)",
                    "DBX",
                    at_least(1.15),
                ),
                ratio("and of 2PL", "(§6.3)", "2PL", at_least(1.05)),
            ],
            &[],
        )),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(12, "c"),
        section: "§6.3",
        title: "throughput under high contention, TPC-C",
        claim: "DBX-TC is twice as fast as DBX, which stops scaling at four threads.",
        content: Content::Experiment(contest(
            ONE_WAREHOUSE,
            &[
                ratio("DBX-TC is ahead of DBX at 8 threads", "2.02 × (§6.3)", "DBX", at_least(1.4)),
                ratio("and of 2PL", "(§6.3)", "2PL", at_least(1.05)),
            ],
            &[],
        )),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(13, "a"),
        section: "§6.4",
        title: "snapshots, TPC-C at one warehouse",
        claim: "Without snapshots DBX-TC stops scaling at four threads, and three times as many regions \
                abort by conflicts at eight.",
        content: Content::Experiment(Experiment {
            series: &[
                Series { name: "DBX-TC", ..NOTHING_DEFERRED },
                protocol!(
                    "DBX-TC(ROEP)",
                    "dbx-tc:paper",
                    "--paper",
                    "no-deferred-execution",
                    "--snapshots",
                    "on"
                ),
                WITHOUT_SNAPSHOTS,
                WEFTS_DBX_TC,
            ],
            metrics: &[THROUGHPUT, CONFLICTS],
            expectations: &[
                Expectation {
                    says: "snapshots gain throughput",
                    paper: "up to 1.67 × (§1)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "DBX-TC",
                        to: "without snapshots",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: at_least(1.29),
                },
                Expectation {
                    says: "without them nothing is gained from 4 threads to 8",
                    paper: "\"stops scaling\" (§6.4)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "without snapshots",
                        from: AxisPosition::Value(4.0),
                        until: AxisPosition::Value(8.0),
                    },
                    bounds: at_most(1.1),
                },
                Expectation {
                    says: "and more regions abort by conflicts",
                    paper: "3.3 × (§6.4)",
                    metric: 1,
                    shape: Shape::Ratio {
                        of: "without snapshots",
                        to: "DBX-TC",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: at_least(1.8),
                },
                Expectation {
                    says: "a number for each reader costs little",
                    paper: "2.02 and 1.90 × DBX (§6.3)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "DBX-TC(ROEP)",
                        to: "DBX-TC",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: between(0.75, 1.15),
                },
            ],
            differs: &[
                PIECES_AS_REGIONS,
                EVENTUAL,
                SHORT,
                DELIVERY,
                "No series defers anything.",
                "Without snapshots, read-only procedures are chopped together with the others.",
            ],
            ..contest(ONE_WAREHOUSE, &[], &[])
        }),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(13, "b"),
        section: "§6.5",
        title: "throughput with a log, TPC-C",
        claim: "The log costs DBX-TC 11 to 16 %, and DBX 9 to 18 %.",
        content: Content::Experiment(Experiment {
            expectations: &[
                of_durable(
                    "the log costs little",
                    "0.84 to 0.89 × (§6.5)",
                    ("DBX-TC, durable", "DBX-TC"),
                    at_least(0.7),
                ),
                of_durable(
                    "nor with a number for each reader",
                    "0.76 to 0.89 × (§6.5)",
                    ("DBX-TC(ROEP), durable", "DBX-TC(ROEP)"),
                    at_least(0.6),
                ),
                of_durable(
                    "DBX-TC is ahead of DBX",
                    "1.39 × at 8 threads (§6.5)",
                    ("DBX-TC, durable", "DBX, durable"),
                    at_least(1.15),
                ),
                of_durable(
                    "and of Weft's dbx, which is no spinlock without RTM",
                    "1.39 × at 8 threads (§6.5)",
                    ("DBX-TC, durable", "Weft's dbx, durable"),
                    at_least(1.15),
                ),
            ],
            ..durable(&[
                protocol!(
                    "DBX-TC",
                    "dbx-tc:paper",
                    "--snapshots",
                    "recent",
                    "--acknowledge",
                    "memory"
                ),
                protocol!(
                    "DBX-TC, durable",
                    "dbx-tc:paper",
                    "--snapshots",
                    "recent",
                    "--acknowledge",
                    "committed"
                ),
                protocol!(
                    "DBX-TC(ROEP)",
                    "dbx-tc:paper",
                    "--snapshots",
                    "on",
                    "--acknowledge",
                    "memory"
                ),
                protocol!(
                    "DBX-TC(ROEP), durable",
                    "dbx-tc:paper",
                    "--snapshots",
                    "on",
                    "--acknowledge",
                    "committed"
                ),
                protocol!(
                    "DBX, durable",
                    "dbx:paper",
                    "--snapshots",
                    "on",
                    "--acknowledge",
                    "committed"
                ),
                protocol!(
                    "Weft's dbx, durable",
                    "dbx",
                    "--snapshots",
                    "on",
                    "--acknowledge",
                    "committed"
                )
                .ours(),
            ])
        }),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(13, "c"),
        section: "§6.5",
        title: "latency until durable, TPC-C",
        claim: "Transactions wait for the end of an epoch: 114 ms under DBX-TC, and half of that where readers \
                advance the epoch.",
        content: Content::Experiment(Experiment {
            metrics: &[UNTIL_DURABLE],
            expectations: &[
                Expectation {
                    says: "it is some epochs",
                    paper: "114 ms at 8 threads, epochs of 20 ms (§6.5)",
                    metric: 0,
                    shape: Shape::Value { of: "DBX-TC", at: AxisPosition::Last },
                    bounds: between(20.0, 200.0),
                },
                Expectation {
                    says: "and less where readers advance the epoch",
                    paper: "54 and 114 ms (§6.5)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "DBX-TC(ROEP)",
                        to: "DBX-TC",
                        at: AxisPosition::Last,
                    },
                    bounds: at_most(0.7),
                },
            ],
            published: &[
                published("DBX-TC", 8.0, 114.0),
                published("DBX-TC(ROEP)", 8.0, 54.0),
                published("DBX", 8.0, 58.0),
            ],
            ..durable(&[
                protocol!(
                    "DBX-TC",
                    "dbx-tc:paper",
                    "--snapshots",
                    "recent",
                    "--acknowledge",
                    "committed"
                ),
                protocol!(
                    "DBX-TC(ROEP)",
                    "dbx-tc:paper",
                    "--snapshots",
                    "on",
                    "--acknowledge",
                    "committed"
                ),
                protocol!("DBX", "dbx:paper", "--snapshots", "on", "--acknowledge", "committed"),
                protocol!("Weft's dbx", "dbx", "--snapshots", "on", "--acknowledge", "committed")
                    .ours(),
            ])
        }),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Figure(14),
        section: "§6.6",
        title: "what each optimization gains, TPC-C at one warehouse",
        claim: "Chopping, snapshots, the database cache and deferred execution each gain.",
        content: Content::Experiment(Experiment {
            series: &[
                protocol!("baseline", "htm-naive"),
                protocol!("small regions", "dbx-tc:unchopped"),
                CHOPPED,
                WITH_SNAPSHOTS,
                Series { name: "+DB cache", ..NOTHING_DEFERRED },
                protocol!("+deferred", "dbx-tc:paper", "--snapshots", "recent"),
                WEFTS_DBX_TC,
            ],
            expectations: &[
                Expectation {
                    says: "chopping gains",
                    paper: "(Figure 14)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "+chopping",
                        to: "small regions",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: at_least(1.05),
                },
                Expectation {
                    says: "so do snapshots",
                    paper: "up to 1.67 × (§1)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "+snapshots",
                        to: "+chopping",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: at_least(1.29),
                },
                Expectation {
                    says: "so does the database cache",
                    paper: "(Figure 14)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "+DB cache",
                        to: "+snapshots",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: at_least(1.02),
                },
                Expectation {
                    says: "and deferred execution",
                    paper: "(Figure 14)",
                    metric: 0,
                    shape: Shape::Ratio {
                        of: "+deferred",
                        to: "+DB cache",
                        at: AxisPosition::Value(8.0),
                    },
                    bounds: at_least(1.02),
                },
            ],
            differs: &[PIECES_AS_REGIONS, EVENTUAL, SHORT, DELIVERY],
            ..contest(ONE_WAREHOUSE, &[], &[])
        }),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Figure(15),
        section: "§6.7",
        title: "throughput of Articles",
        claim: "All but the naive scale; DBX-TC is 10 % ahead of DBX and 30 % of 2PL.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "DBX-TC is ahead of DBX at 8 threads",
                    "1.10 × (§6.7)",
                    "DBX",
                    at_least(1.05),
                ),
                ratio("and of 2PL", "1.30 × (§6.7)", "2PL", at_least(1.14)),
            ],
            differs: &[PIECES_AS_REGIONS, EVENTUAL, PAPERS_DBX, SHORT],
            real: Ok(Real { threads: 8, needs_rtm: true, arguments: &[] }),
            ..contest(&["articles"], &[], &[published("DBX-TC", 8.0, 475_875.0)])
        }),
    },
];

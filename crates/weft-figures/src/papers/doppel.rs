//! Doppel: the figures and tables of §8, on the simulated eight sockets of ten cores.
//!
//! *Doppel* is `doppel:paper`, with all mechanisms of the paper, and is what the expectations are about. *Weft's doppel* is
//! drawn beside it.

use super::*;
use crate::definition::*;

const DOPPEL: Series = protocol!("Doppel", "doppel:paper");
const PLAIN_OCC: Series = protocol!("OCC", "silo");
const ATOMIC: Series = protocol!("Atomic", "atomic");

/// The paper's phases take 20 ms. Here they are shorter, so that several fit into a simulated run.
const MACHINE: Simulated = Simulated {
    machine: "xeon-8x10",
    cores: 20,
    quick: span(2.5, 5.0).with(&["--phase-length", "2"]),
    full: span(6.0, 15.0).with(&["--phase-length", "5"]),
    arguments: &[],
};

/// INCR; a quick run has fewer keys.
const COUNTERS: Simulated = Simulated {
    quick: span(2.5, 3.0).with(&["--phase-length", "2", "--records", "100000"]),
    ..MACHINE
};

/// LIKE: the paper has a million users and pages.
const PAGES: Simulated = Simulated {
    quick: span(2.5, 5.0).with(&["--phase-length", "2", "--users", "20000", "--pages", "20000"]),
    full: span(6.0, 15.0).with(&["--phase-length", "5", "--users", "100000", "--pages", "100000"]),
    ..MACHINE
};

/// RUBiS: the paper has a million users.
const AUCTIONS: Simulated = Simulated {
    quick: span(2.5, 5.0).with(&["--phase-length", "2", "--users", "20000", "--items", "8000"]),
    full: span(6.0, 15.0).with(&["--phase-length", "5", "--users", "20000", "--items", "33000"]),
    ..MACHINE
};

const REAL: Real = Real { threads: 20, needs_rtm: false, arguments: &[] };

const SMALLER: &str = "Phases are shorter than the paper's 20 ms (2 ms in quick runs, 5 ms in full ones), and \
     there are fewer keys, users, pages and items: simulated runs last milliseconds.";
const CLIENT: &str = "Weft's clients draw their keys before the clock runs; the paper's clients are part of a server \
     in Go. So protocols that run in parallel are faster here, and the ratios at high contention are larger.";
const SILO: &str = "OCC is silo, which has its commit protocol, and applies operations again to rows that others have \
     changed. Weft's transactions that have lost often wait for their turn; the paper's back off. Atomic swaps a pointer to \
     a new row, and does not increment a word in place.";

const fn point(
    says: &'static str,
    paper: &'static str,
    metric: usize,
    shape: Shape,
    bounds: Bounds,
) -> Expectation {
    Expectation { says, paper, metric, shape, bounds }
}

const fn ratio(of: &'static str, to: &'static str, at: AxisPosition) -> Shape {
    Shape::Ratio { of, to, at }
}

const fn experiment(
    workload: &'static [&'static str],
    simulated: Simulated,
    axis: Axis,
    series: &'static [Series],
) -> Experiment {
    Experiment {
        workload,
        subject: Subject::Transactions,
        real: Ok(REAL),
        simulated: Ok(simulated),
        axis,
        series,
        metrics: &[THROUGHPUT],
        expectations: &[],
        published: &[],
        differs: &[],
    }
}

const ALPHA: Axis = Axis {
    label: "alpha of the Zipf distribution",
    by: AxisVariable::Option("--alpha", ""),
    scale: Scale::Linear,
    quick: &[0.0, 0.8, 1.4, 2.0],
    full: &[0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0],
};

/// The ends of the milliseconds that Figure 10 shows.
const MILLISECONDS: &[f64] = &[
    1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0,
    18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0,
];

/// Returns the metric of a rank's share of all draws.
const fn rank(name: &'static str, path: &'static str) -> Metric {
    Metric {
        name,
        unit: "% of writes",
        scale: Scale::Linear,
        real: Reading::of(""),
        simulated: Reading::of(path),
    }
}

const SPLIT: Metric = Metric {
    name: "records that are split",
    unit: "",
    scale: Scale::Linear,
    real: Reading::of("phases/split_records"),
    simulated: Reading::of("phases/split_records"),
};

const PHASE_LENGTH: Axis = Axis {
    label: "length of a phase, ms",
    by: AxisVariable::Option("--phase-length", ""),
    scale: Scale::Linear,
    quick: &[1.0, 2.0, 4.0],
    full: &[1.0, 2.0, 5.0, 10.0, 20.0],
};

/// A machine whose runs are long enough for the longest phase in the figures.
const PHASES: Simulated = Simulated {
    quick: span(4.5, 12.0).with(&["--users", "20000", "--pages", "20000"]),
    full: span(22.0, 60.0).with(&["--users", "100000", "--pages", "100000"]),
    ..MACHINE
};

const LIKES: &[Series] = &[
    protocol!("Uniform", "doppel:paper", "--alpha", "0", "--write", "50"),
    protocol!("Skewed", "doppel:paper", "--alpha", "1.4", "--write", "50"),
    protocol!("Skewed Write Heavy", "doppel:paper", "--alpha", "1.4", "--write", "90"),
    protocol!("Weft's, Skewed", "doppel", "--alpha", "1.4", "--write", "50").ours(),
    protocol!("Weft's, Skewed Write Heavy", "doppel", "--alpha", "1.4", "--write", "90").ours(),
];

const fn of_type(name: &'static str, real: &'static str, simulated: &'static str) -> Metric {
    latency(name, real, simulated)
}

const READ_MEAN: Metric = of_type(
    "reads, mean latency (on this machine: median)",
    "latency_us/read/p50",
    "transactions_by_type/type=read/latency_us_mean",
);
const WRITE_MEAN: Metric = of_type(
    "writes, mean latency (on this machine: median)",
    "latency_us/like/p50",
    "transactions_by_type/type=like/latency_us_mean",
);
const READ_99: Metric = of_type(
    "reads, 99th percentile of latency",
    "latency_us/read/p99",
    "transactions_by_type/type=read/latency_us_p99",
);
const WRITE_99: Metric = of_type(
    "writes, 99th percentile of latency",
    "latency_us/like/p99",
    "transactions_by_type/type=like/latency_us_p99",
);

/// The paper's figures and tables.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(8),
        section: "§8.2",
        title: "INCR1 by the share of the hot key, 20 cores",
        claim: "When many increment one key, the others lose a factor of 20, and Doppel gains.",
        content: Content::Experiment(Experiment {
            metrics: &[THROUGHPUT.logarithmic()],
            expectations: &[
                point(
                    "Doppel is ahead of Atomic at 100 %",
                    "6.2 × (§8.2)",
                    0,
                    ratio("Doppel", "Atomic", AxisPosition::Value(100.0)),
                    at_least(2.5),
                ),
                point(
                    "Doppel is ahead of 2PL at 100 %",
                    "19 × (§8.2)",
                    0,
                    ratio("Doppel", "2PL", AxisPosition::Value(100.0)),
                    at_least(4.4),
                ),
                point(
                    "Doppel is ahead of OCC at 100 %",
                    "38 × (§8.2)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(100.0)),
                    at_least(6.2),
                ),
                point(
                    "nothing is lost where nothing is hot",
                    "\"similarly to OCC\" (§8.2)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(0.0)),
                    ALIKE,
                ),
                point(
                    "OCC falls",
                    "\"roughly a factor of 20\" (§8.2)",
                    0,
                    Shape::Change {
                        of: "OCC",
                        from: AxisPosition::Value(0.0),
                        until: AxisPosition::Value(100.0),
                    },
                    at_most(0.22),
                ),
                point(
                    "Doppel rises",
                    "\"gradually increases\" (§8.2)",
                    0,
                    Shape::Change {
                        of: "Doppel",
                        from: AxisPosition::Value(0.0),
                        until: AxisPosition::Value(100.0),
                    },
                    at_least(1.1),
                ),
            ],
            differs: &[SMALLER, CLIENT, SILO],
            ..experiment(
                &["incr"],
                COUNTERS,
                Axis {
                    label: "transactions that increment the hot key, %",
                    by: AxisVariable::Option("--hot", ""),
                    scale: Scale::Linear,
                    quick: &[0.0, 10.0, 50.0, 100.0],
                    full: &[0.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0],
                },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, ATOMIC, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(9),
        section: "§8.2",
        title: "INCR1, all for one key, by cores",
        claim: "Doppel's throughput per core falls slowly with the cores, the others' like 1/x.",
        content: Content::Experiment(Experiment {
            metrics: &[THROUGHPUT_PER_CORE.logarithmic()],
            expectations: &[
                point(
                    "Doppel keeps most from 10 cores to 80",
                    "\"falls short of perfect\" (§8.2)",
                    0,
                    Shape::Change {
                        of: "Doppel",
                        from: AxisPosition::Value(10.0),
                        until: AxisPosition::Value(80.0),
                    },
                    at_least(0.5),
                ),
                point(
                    "OCC is near 1/x from 10 cores to 80",
                    "\"close to 1/x\" (§8.2)",
                    0,
                    Shape::Change {
                        of: "OCC",
                        from: AxisPosition::Value(10.0),
                        until: AxisPosition::Value(80.0),
                    },
                    at_most(0.25),
                ),
                point(
                    "Atomic is, too",
                    "\"close to 1/x\" (§8.2)",
                    0,
                    Shape::Change {
                        of: "Atomic",
                        from: AxisPosition::Value(10.0),
                        until: AxisPosition::Value(80.0),
                    },
                    at_most(0.25),
                ),
            ],
            differs: &[SMALLER, CLIENT, SILO],
            ..experiment(
                &["incr", "--hot", "100"],
                COUNTERS,
                Axis {
                    label: "cores",
                    by: AxisVariable::Threads,
                    scale: Scale::Linear,
                    quick: &[1.0, 10.0, 80.0],
                    full: &[1.0, 10.0, 20.0, 40.0, 80.0],
                },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, ATOMIC, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(10),
        section: "§8.3",
        title: "INCR1 over time, as the hot key changes",
        claim: "When the hot key changes, Doppel finds the new one soon, and loses little.",
        content: Content::Experiment(Experiment {
            real: Err("the timeline of `cargo lab bench` is a separate file (`--timeline FILE`)"),
            metrics: &[Metric {
                real: Reading::of(""),
                simulated: Reading::of("timeline/until_ms={at}/transactions_per_second"),
                ..THROUGHPUT
            }],
            expectations: &[
                point(
                    "Doppel is ahead of OCC before a change",
                    "(Figure 10)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(11.0)),
                    at_least(1.1),
                ),
                point(
                    "three phases after it Doppel is where it was",
                    "\"quickly\" (§8.3)",
                    0,
                    Shape::Change {
                        of: "Doppel",
                        from: AxisPosition::Value(11.0),
                        until: AxisPosition::Value(16.0),
                    },
                    ALIKE,
                ),
                point(
                    "and at no time far behind the others",
                    "(Figure 10)",
                    0,
                    Shape::Ahead { of: "Doppel", from: AxisPosition::First },
                    at_least(0.8),
                ),
            ],
            differs: &[
                "The hot key changes every 8 ms (the paper: 5 s), at 4, 12 and 20 ms of the time shown, \
                 and phases take 1 ms.",
                CLIENT,
                SILO,
            ],
            ..experiment(
                &["incr", "--hot", "10", "--change", "8", "--timeline", "1"],
                Simulated {
                    quick: span(4.0, 24.0).with(&["--phase-length", "1", "--records", "100000"]),
                    full: span(4.0, 24.0).with(&["--phase-length", "1"]),
                    ..MACHINE
                },
                Axis {
                    label: "time, ms",
                    by: AxisVariable::Time,
                    scale: Scale::Linear,
                    quick: MILLISECONDS,
                    full: MILLISECONDS,
                },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(11),
        section: "§8.4",
        title: "INCRZ by alpha, 20 cores",
        claim: "With popularity that falls off smoothly, Doppel is alike up to 0.8, and ahead \
                from there on.",
        content: Content::Experiment(Experiment {
            metrics: &[THROUGHPUT.logarithmic()],
            expectations: &[
                point(
                    "all are alike at 0",
                    "(§8.4)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(0.0)),
                    ALIKE,
                ),
                point(
                    "and at 0.8",
                    "\"similar\" (§8.4)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(0.8)),
                    ALIKE,
                ),
                point(
                    "Doppel is ahead from 1.4 on",
                    "from 0.8 on (§8.4)",
                    0,
                    Shape::Ahead { of: "Doppel", from: AxisPosition::Value(1.4) },
                    at_least(1.5),
                ),
            ],
            differs: &[SMALLER, CLIENT, SILO],
            ..experiment(
                &["incr"],
                COUNTERS,
                ALPHA,
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, ATOMIC, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Table(1),
        section: "§8.4",
        title: "popularity of keys, by alpha",
        claim: "The most popular of a million keys gets 7 % of all writes at alpha 1, and 61 % \
                at 2.",
        content: Content::Experiment(Experiment {
            real: Err("only `cargo simulate incr` reports what the clients draw"),
            metrics: &[
                rank("most popular key", "percent_of_ranks/1"),
                rank("second key", "percent_of_ranks/2"),
                rank("10th key", "percent_of_ranks/10"),
                rank("100th key", "percent_of_ranks/100"),
            ],
            expectations: &[
                point(
                    "7 % for the most popular at alpha 1",
                    "7 % (Table 1)",
                    0,
                    Shape::Value { of: "drawn", at: AxisPosition::Value(1.0) },
                    between(6.0, 8.0),
                ),
                point(
                    "61 % for the most popular at alpha 2",
                    "61 % (Table 1)",
                    0,
                    Shape::Value { of: "drawn", at: AxisPosition::Value(2.0) },
                    between(58.0, 64.0),
                ),
            ],
            published: &[published("drawn", 1.0, 7.0), published("drawn", 2.0, 61.0)],
            differs: &[
                "The draws of the clients are counted, four million keys; the paper's numbers are computed.",
            ],
            ..experiment(
                &["incr"],
                Simulated { cores: 1, quick: span(0.1, 0.2), full: span(0.1, 0.2), ..MACHINE },
                Axis { quick: &[0.0, 0.8, 1.0, 1.4, 2.0], ..ALPHA },
                &[protocol!("drawn", "atomic")],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Table(2),
        section: "§8.4",
        title: "how many keys are split, INCRZ",
        claim: "Doppel splits nothing below alpha 1, and two to four keys from there on.",
        content: Content::Experiment(Experiment {
            metrics: &[SPLIT],
            expectations: &[
                point(
                    "none at 0.8",
                    "0 (Table 2)",
                    0,
                    Shape::Value { of: "Doppel", at: AxisPosition::Value(0.8) },
                    at_most(0.0),
                ),
                point(
                    "some at 1.4",
                    "4 (Table 2)",
                    0,
                    Shape::Value { of: "Doppel", at: AxisPosition::Value(1.4) },
                    between(2.0, 8.0),
                ),
                point(
                    "some at 2",
                    "3 (Table 2)",
                    0,
                    Shape::Value { of: "Doppel", at: AxisPosition::Value(2.0) },
                    between(1.0, 8.0),
                ),
            ],
            published: &[
                published("Doppel", 0.0, 0.0),
                published("Doppel", 0.8, 0.0),
                published("Doppel", 1.0, 2.0),
                published("Doppel", 1.2, 4.0),
                published("Doppel", 1.4, 4.0),
                published("Doppel", 1.6, 4.0),
                published("Doppel", 1.8, 4.0),
                published("Doppel", 2.0, 3.0),
            ],
            differs: &[
                SMALLER,
                "Records that are marked to be split at the end are counted. Weft's doppel splits more: the conflicts of a \
                 split phase count as if they were of the short joined phase after it. That gains throughput \
                 (docs/decisions/0074).",
            ],
            ..experiment(&["incr"], COUNTERS, ALPHA, &[DOPPEL, WEFTS_DOPPEL])
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(12),
        section: "§8.5",
        title: "LIKE by the share of writes, 20 cores",
        claim: "OCC is best where most only read; Doppel splits from 30 % writes on, and is \
                ahead from there on.",
        content: Content::Experiment(Experiment {
            expectations: &[
                point(
                    "Doppel is like OCC at 10 %",
                    "\"about the same\" (§8.5)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(10.0)),
                    ALIKE,
                ),
                point(
                    "ahead of OCC at 50 %",
                    "10.3 and 5.6 M (Table 3)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(50.0)),
                    at_least(1.35),
                ),
                point(
                    "ahead of OCC at 70 %",
                    "(§8.5)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(70.0)),
                    at_least(1.2),
                ),
                point(
                    "ahead of 2PL at 70 %",
                    "(§8.5)",
                    0,
                    ratio("Doppel", "2PL", AxisPosition::Value(70.0)),
                    at_least(1.2),
                ),
                point(
                    "ahead of OCC at 90 %",
                    "(§8.5)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(90.0)),
                    at_least(1.2),
                ),
                point(
                    "ahead of 2PL at 90 %",
                    "(§8.5)",
                    0,
                    ratio("Doppel", "2PL", AxisPosition::Value(90.0)),
                    at_least(1.2),
                ),
                point(
                    "ahead of OCC at 100 %",
                    "(§8.5)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(100.0)),
                    at_least(1.2),
                ),
                point(
                    "ahead of 2PL at 100 %",
                    "(§8.5)",
                    0,
                    ratio("Doppel", "2PL", AxisPosition::Value(100.0)),
                    at_least(1.2),
                ),
            ],
            published: &[
                published("Doppel", 50.0, 10.3e6),
                published("OCC", 50.0, 5.6e6),
                published("2PL", 50.0, 3.7e6),
            ],
            differs: &[SMALLER, CLIENT, SILO],
            ..experiment(
                &["like", "--alpha", "1.4"],
                PAGES,
                Axis {
                    label: "transactions that write, %",
                    by: AxisVariable::Option("--write", ""),
                    scale: Scale::Linear,
                    quick: &[10.0, 50.0, 70.0, 90.0, 100.0],
                    full: &[0.0, 10.0, 30.0, 50.0, 70.0, 90.0, 100.0],
                },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Table(3),
        section: "§8.6",
        title: "latencies of LIKE, half reads, half writes",
        claim: "With skew Doppel's reads wait for the next joined phase, its writes do not wait, \
                and throughput is nearly twice OCC's.",
        content: Content::Experiment(Experiment {
            metrics: &[READ_MEAN, WRITE_MEAN, READ_99, WRITE_99, THROUGHPUT],
            expectations: &[
                point(
                    "Doppel's reads wait when skewed",
                    "1262 and 26 µs (Table 3)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(1.0)),
                    at_least(7.0),
                ),
                point(
                    "its writes are the fastest when skewed",
                    "4, 1069 and 8 µs (Table 3)",
                    1,
                    ratio("Doppel", "2PL", AxisPosition::Value(1.0)),
                    at_most(0.7),
                ),
                point(
                    "its writes are faster than OCC's",
                    "4 and 1069 µs (Table 3)",
                    1,
                    ratio("Doppel", "OCC", AxisPosition::Value(1.0)),
                    at_most(0.7),
                ),
                point(
                    "throughput is ahead of OCC's when skewed",
                    "10.3 and 5.6 M (Table 3)",
                    4,
                    ratio("Doppel", "OCC", AxisPosition::Value(1.0)),
                    at_least(1.35),
                ),
                point(
                    "reads do not wait when uniform",
                    "1 and 1 µs (Table 3)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(0.0)),
                    ALIKE,
                ),
            ],
            published: &[
                PaperNumber { series: "Doppel", metric: 0, at: 1.0, value: 1262.0 },
                PaperNumber { series: "OCC", metric: 0, at: 1.0, value: 26.0 },
                PaperNumber { series: "2PL", metric: 0, at: 1.0, value: 1.0 },
                PaperNumber { series: "Doppel", metric: 1, at: 1.0, value: 4.0 },
                PaperNumber { series: "OCC", metric: 1, at: 1.0, value: 1069.0 },
                PaperNumber { series: "2PL", metric: 1, at: 1.0, value: 8.0 },
                PaperNumber { series: "Doppel", metric: 4, at: 0.0, value: 11.8e6 },
                PaperNumber { series: "OCC", metric: 4, at: 0.0, value: 11.9e6 },
                PaperNumber { series: "2PL", metric: 4, at: 0.0, value: 9.5e6 },
                PaperNumber { series: "Doppel", metric: 4, at: 1.0, value: 10.3e6 },
                PaperNumber { series: "OCC", metric: 4, at: 1.0, value: 5.6e6 },
                PaperNumber { series: "2PL", metric: 4, at: 1.0, value: 3.7e6 },
            ],
            differs: &[
                SMALLER,
                SILO,
                "The waits of reads depend on the length of a phase, which is shorter here.",
            ],
            ..experiment(
                &["like", "--write", "50"],
                PAGES,
                Axis {
                    label: "popularity of pages",
                    by: AxisVariable::Choices(&[
                        AxisChoice { label: "uniform", arguments: &["--alpha", "0"] },
                        AxisChoice { label: "skewed, alpha 1.4", arguments: &["--alpha", "1.4"] },
                    ]),
                    scale: Scale::Linear,
                    quick: &[],
                    full: &[],
                },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(13),
        section: "§8.7",
        title: "latency of reads by the length of a phase, LIKE",
        claim: "The length of a phase decides how long reads of split records wait.",
        content: Content::Experiment(Experiment {
            metrics: &[READ_MEAN],
            expectations: &[
                point(
                    "skewed reads wait longer in longer phases",
                    "(§8.7)",
                    0,
                    Shape::Change {
                        of: "Skewed",
                        from: AxisPosition::First,
                        until: AxisPosition::Last,
                    },
                    at_least(1.7),
                ),
                point(
                    "uniform reads do not wait",
                    "(§8.7)",
                    0,
                    ratio("Uniform", "Skewed", AxisPosition::Last),
                    at_most(0.1),
                ),
            ],
            differs: &[SMALLER],
            ..experiment(&["like"], PHASES, PHASE_LENGTH, LIKES)
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(14),
        section: "§8.7",
        title: "throughput by the length of a phase, LIKE",
        claim: "Very short phases cost throughput; from 5 ms on it is good.",
        content: Content::Experiment(Experiment {
            expectations: &[
                point(
                    "skewed writes gain from longer phases",
                    "(§8.7)",
                    0,
                    Shape::Change {
                        of: "Skewed Write Heavy",
                        from: AxisPosition::First,
                        until: AxisPosition::Last,
                    },
                    at_least(1.1),
                ),
                point(
                    "uniform ones do not care",
                    "(§8.7)",
                    0,
                    Shape::Change {
                        of: "Uniform",
                        from: AxisPosition::First,
                        until: AxisPosition::Last,
                    },
                    ALIKE,
                ),
            ],
            differs: &[
                SMALLER,
                "A change of phases takes half a millisecond in the paper, and a tenth of that here. So short \
                 phases cost less.",
            ],
            ..experiment(&["like"], PHASES, PHASE_LENGTH, LIKES)
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Table(4),
        section: "§8.8",
        title: "RUBiS: the bidding mix, and the contended one",
        claim: "Doppel is like OCC in RUBiS-B, and three times OCC and six times 2PL in RUBiS-C.",
        content: Content::Experiment(Experiment {
            expectations: &[
                point(
                    "Doppel is like OCC in RUBiS-B",
                    "3.4 and 3.5 M (Table 4)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(0.0)),
                    ALIKE,
                ),
                point(
                    "ahead of OCC in RUBiS-C",
                    "3.3 and 1.1 M, 3 × (Table 4)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(1.0)),
                    at_least(1.7),
                ),
                point(
                    "ahead of 2PL in RUBiS-C",
                    "3.3 and 0.5 M, 6 × (Table 4)",
                    0,
                    ratio("Doppel", "2PL", AxisPosition::Value(1.0)),
                    at_least(2.4),
                ),
            ],
            published: &[
                published("Doppel", 0.0, 3.4e6),
                published("OCC", 0.0, 3.5e6),
                published("2PL", 0.0, 2.2e6),
                published("Doppel", 1.0, 3.3e6),
                published("OCC", 1.0, 1.1e6),
                published("2PL", 1.0, 0.5e6),
            ],
            differs: &[SMALLER, SILO],
            ..experiment(
                &["rubis"],
                AUCTIONS,
                Axis {
                    label: "mix",
                    by: AxisVariable::Choices(&[
                        AxisChoice { label: "RUBiS-B", arguments: &["--mix", "bidding"] },
                        AxisChoice {
                            label: "RUBiS-C, alpha 1.8",
                            arguments: &["--mix", "contended", "--alpha", "1.8"],
                        },
                    ]),
                    scale: Scale::Linear,
                    quick: &[],
                    full: &[],
                },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, WEFTS_DOPPEL],
            )
        }),
    },
    Figure {
        paper: Paper::Doppel,
        number: Number::Figure(15),
        section: "§8.8",
        title: "RUBiS-C by alpha, 20 cores",
        claim: "Up to alpha 1 Doppel is like the others; at 1.8 it has three times OCC's \
                throughput and six times 2PL's.",
        content: Content::Experiment(Experiment {
            expectations: &[
                point(
                    "all are alike at 0",
                    "\"close to the same\" (§8.8)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(0.0)),
                    ALIKE,
                ),
                point(
                    "Doppel is ahead of OCC at 1.8",
                    "3 × (§8.8)",
                    0,
                    ratio("Doppel", "OCC", AxisPosition::Value(1.8)),
                    at_least(1.7),
                ),
                point(
                    "ahead of 2PL at 1.8",
                    "6 × (§8.8)",
                    0,
                    ratio("Doppel", "2PL", AxisPosition::Value(1.8)),
                    at_least(2.4),
                ),
            ],
            published: &[
                published("Doppel", 1.8, 3.3e6),
                published("OCC", 1.8, 1.1e6),
                published("2PL", 1.8, 0.5e6),
            ],
            differs: &[SMALLER, SILO],
            ..experiment(
                &["rubis", "--mix", "contended"],
                AUCTIONS,
                Axis { quick: &[0.0, 1.0, 1.8], full: &[0.0, 1.0, 1.4, 1.8, 2.0], ..ALPHA },
                &[DOPPEL, PLAIN_OCC, TWO_PHASE_LOCKING, WEFTS_DOPPEL],
            )
        }),
    },
];

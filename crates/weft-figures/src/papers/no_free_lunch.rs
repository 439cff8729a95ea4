//! No Free Lunch: the figures and tables of §3 to §5, on the simulated Haswell, with a small
//! storage manager that has the structures and the locks of Shore-MT.

use super::*;
use crate::definition::*;

const THREADS: Axis = Axis {
    label: "threads",
    by: AxisVariable::Threads,
    scale: Scale::Linear,
    quick: &[1.0, 2.0, 4.0, 8.0],
    full: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
};

/// The metrics of the tables, which use the same runs as the figures.
const ABORTS_BY_CAUSE: &[Metric] = &[ABORTED_BY_CONFLICT, ABORTED_BY_CAPACITY];

const MINIATURE: &str = "A small storage manager replaces Shore-MT. It has Shore-MT's pages, buffer pool, lock table, transactions and \
     log, with their locks and fences, and takes some 40 locks for GetSubData. What Shore-MT computes beside these \
     structures is missing, so that a transaction takes about 4 µs.";
const SMALL_SECTIONS: &str = "The largest regions write some 60 lines, so that nearly none is too large for the model's first level, which \
     replaces the least recently used line exactly. Shore-MT's stacks and heap are one stand-in of 16 lines for \
     each call.";

const fn manager(workload: &'static [&'static str], metrics: &'static [Metric]) -> Experiment {
    Experiment {
        workload,
        subject: Subject::Transactions,
        real: Ok(Real { threads: 8, needs_rtm: true, arguments: &[] }),
        simulated: Ok(Simulated {
            machine: "haswell-4c8t",
            cores: 8,
            quick: span(1.0, 3.0),
            full: span(1.0, 10.0),
            arguments: &[],
        }),
        axis: THREADS,
        series: BOTH,
        metrics,
        expectations: &[],
        published: &[],
        differs: &[MINIATURE],
    }
}

const BOTH: &[Series] =
    &[series("baseline", &["--elide", "off"]), series("with elision", &["--elide", "on"])];

const ELIDED: &[Series] = &[series("with elision", &["--elide", "on"])];

const SELECTED: &[&str] = &["locks", "--workload", "manager", "--lock", "occ_rwlock,tatas,mcs"];
const MIX: &[&str] =
    &["locks", "--workload", "manager", "--mix", "standard", "--lock", "occ_rwlock,tatas,mcs"];
const ALL: &[&str] = &["locks", "--workload", "manager"];
const COARSE: &[&str] = &["locks", "--workload", "manager", "--coarse"];

const fn gain(says: &'static str, paper: &'static str, at: f64, bounds: Bounds) -> Expectation {
    let shape = Shape::Ratio { of: "with elision", to: "baseline", at: AxisPosition::Value(at) };
    Expectation { says, paper, metric: 0, shape, bounds }
}

const fn aborted(
    says: &'static str,
    paper: &'static str,
    metric: usize,
    at: f64,
    bounds: Bounds,
) -> Expectation {
    let shape = Shape::Value { of: "with elision", at: AxisPosition::Value(at) };
    Expectation { says, paper, metric, shape, bounds }
}

const fn share(metric: usize, at: f64, value: f64) -> PaperNumber {
    PaperNumber { series: "with elision", metric, at, value }
}

/// The paper's figures and tables.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Figure(1),
        section: "§3.2",
        title: "elision by the pthread library",
        claim: "Elision that the pthread library does automatically changes nothing.",
        content: Content::NotMeasured(
            "it is about glibc's elision of mutexes, of which Weft uses none, and which glibc \
             has given up since",
        ),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Figure(2),
        section: "§4.1",
        title: "selected locks elided, GetSubData",
        claim: "Eliding three kinds of locks gains 13 to 17 % up to a thread per core, and less \
                beyond.",
        content: Content::Experiment(Experiment {
            expectations: &[
                gain("it gains at 1 thread", "1.13 × at least (§4.1)", 1.0, at_least(1.06)),
                gain("it gains at 4 threads", "1.13 to 1.17 × (§4.1)", 4.0, at_least(1.04)),
                gain("it gains less at 8", "(§4.1)", 8.0, at_most(1.1)),
            ],
            ..manager(SELECTED, &[THROUGHPUT])
        }),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Table(1),
        section: "§4.1",
        title: "aborts by cause, selected locks elided",
        claim: "Few regions abort: by capacity at one thread, by conflicts at two to four, by \
                both with hyper-threads.",
        content: Content::Experiment(Experiment {
            series: ELIDED,
            expectations: &[
                aborted("conflicts at 4 threads", "6.8 % (Table 1)", 0, 4.0, between(1.0, 15.0)),
                aborted("capacity at 1 thread", "2.7 % (Table 1)", 1, 1.0, between(0.5, 8.0)),
            ],
            published: &[
                share(0, 1.0, 0.7),
                share(0, 2.0, 1.7),
                share(0, 4.0, 6.8),
                share(0, 8.0, 5.0),
                share(1, 1.0, 2.7),
                share(1, 2.0, 1.5),
                share(1, 4.0, 0.6),
                share(1, 8.0, 6.0),
            ],
            differs: &[MINIATURE, SMALL_SECTIONS],
            ..manager(SELECTED, ABORTS_BY_CAUSE)
        }),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Figure(3),
        section: "§4.1",
        title: "selected locks elided, TATP's mix",
        claim: "In the whole mix the gain is smaller.",
        content: Content::Experiment(Experiment {
            expectations: &[
                gain("it gains at 1 thread", "(Figure 3)", 1.0, at_least(1.0)),
                gain("it gains at 4 threads", "(Figure 3)", 4.0, at_least(1.0)),
                gain("less than GetSubData's 13 to 17 %", "\"smaller\" (§4.1)", 4.0, at_most(1.13)),
            ],
            differs: &[
                MINIATURE,
                "All seven transactions, as often as in TATP. Trees do not grow: a forwarding has a fixed place, and \
                 exists or not. No transaction waits for a row.",
            ],
            metrics: &[THROUGHPUT, ABORTED_BY_CONFLICT],
            ..manager(MIX, &[])
        }),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Figure(4),
        section: "§4.2",
        title: "all locks elided, GetSubData",
        claim: "Eliding the latches of pages, too, loses 16 % at two to five threads.",
        content: Content::Experiment(Experiment {
            expectations: &[
                gain("it loses at 2 threads", "0.84 × on average (§4.2)", 2.0, at_most(0.97)),
                gain("it loses at 4 threads", "0.84 × on average (§4.2)", 4.0, at_most(0.92)),
            ],
            ..manager(ALL, &[THROUGHPUT])
        }),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Table(2),
        section: "§4.2",
        title: "aborts by cause, all locks elided",
        claim: "A fifth of the regions abort, by conflicts on statistics that every visit of a \
                page counts.",
        content: Content::Experiment(Experiment {
            series: ELIDED,
            expectations: &[
                aborted("conflicts at 4 threads", "22.1 % (Table 2)", 0, 4.0, between(10.0, 40.0)),
                aborted("capacity at 1 thread", "13.8 % (Table 2)", 1, 1.0, at_least(5.0)),
            ],
            published: &[
                share(0, 1.0, 1.3),
                share(0, 2.0, 17.9),
                share(0, 4.0, 22.1),
                share(0, 8.0, 12.1),
                share(1, 1.0, 13.8),
                share(1, 2.0, 2.2),
                share(1, 4.0, 2.8),
                share(1, 8.0, 6.1),
            ],
            differs: &[MINIATURE, SMALL_SECTIONS],
            ..manager(ALL, ABORTS_BY_CAUSE)
        }),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Figure(5),
        section: "§5",
        title: "one latch for the whole tree, elided, GetSubData",
        claim: "One latch around each probe of the tree, elided, loses 73 % at eight threads.",
        content: Content::Experiment(Experiment {
            expectations: &[
                gain("it loses most at 8 threads", "0.27 × (§5)", 8.0, at_most(0.5)),
                gain("it loses little at 1", "0.9 × (§5)", 1.0, between(0.8, 1.05)),
            ],
            ..manager(COARSE, &[THROUGHPUT])
        }),
    },
    Figure {
        paper: Paper::NoFreeLunch,
        number: Number::Table(3),
        section: "§5",
        title: "aborts by cause, one latch for the tree",
        claim: "No more regions abort than elsewhere; but each loses more.",
        content: Content::Experiment(Experiment {
            series: ELIDED,
            expectations: &[
                aborted("conflicts at 4 threads", "4.2 % (Table 3)", 0, 4.0, between(2.0, 20.0)),
                aborted("capacity at 1 thread", "5.1 % (Table 3)", 1, 1.0, at_least(2.0)),
            ],
            published: &[
                share(0, 1.0, 0.9),
                share(0, 2.0, 2.3),
                share(0, 4.0, 4.2),
                share(0, 8.0, 4.3),
                share(1, 1.0, 5.1),
                share(1, 2.0, 1.4),
                share(1, 4.0, 0.7),
                share(1, 8.0, 2.1),
            ],
            differs: &[
                MINIATURE,
                SMALL_SECTIONS,
                "Regions that found the lock held, as many again from four threads on, are not \
                 counted here.",
            ],
            ..manager(COARSE, ABORTS_BY_CAUSE)
        }),
    },
];

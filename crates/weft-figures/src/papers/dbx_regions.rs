//! DBX: the parts of Figure 1 of §2.2, how large hardware regions can be, on the simulated Haswell.

use super::*;
use crate::definition::*;

const MACHINE: Simulated = Simulated {
    machine: "haswell-4c8t",
    cores: 8,
    // Runs of regions have a number of tries instead of a length.
    quick: span(0.0, 0.0),
    full: span(0.0, 0.0),
    arguments: &[],
};

/// Returns an experiment with regions of growing size.
const fn regions(
    axis: Axis,
    series: &'static [Series],
    threads: (u32, &'static [&'static str], &'static [&'static str]),
) -> Experiment {
    Experiment {
        workload: &["rtm"],
        subject: Subject::Regions,
        real: Ok(Real { threads: threads.0, needs_rtm: true, arguments: threads.1 }),
        simulated: Ok(Simulated { arguments: threads.2, ..MACHINE }),
        axis,
        series,
        metrics: &[REGIONS_ABORTED],
        expectations: &[],
        published: &[],
        differs: &[],
    }
}

const SIZES: Axis = Axis {
    label: "bytes that a region accesses, KiB",
    by: By::Option("--sizes", "K"),
    scale: Scale::Logarithmic,
    quick: &[8.0, 16.0, 22.0, 31.0, 36.0, 1024.0, 2048.0, 3072.0, 4096.0, 5120.0],
    full: &[
        4.0, 8.0, 12.0, 16.0, 20.0, 22.0, 24.0, 28.0, 31.0, 33.0, 36.0, 64.0, 256.0, 1024.0,
        2048.0, 3072.0, 3584.0, 4096.0, 4608.0, 5120.0,
    ],
};

const READS_AND_WRITES: &[Series] =
    &[series("read set", &["--kind", "reads"]), series("write set", &["--kind", "writes"])];

const fn value(
    says: &'static str,
    paper: &'static str,
    of: &'static str,
    at: f64,
    bounds: Bounds,
) -> Expectation {
    Expectation { says, paper, metric: 0, shape: Shape::Value { of, at: At::Value(at) }, bounds }
}

/// The parts of the paper's first figure.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: Paper::Dbx,
        number: Number::Part(1, "a"),
        section: "§2.2",
        title: "regions by their size, four threads on four cores",
        claim: "A region can read up to 4 MB, but write only up to 31 KB: what it writes has to \
                stay in the first-level cache.",
        content: Content::Experiment(Experiment {
            expectations: &[
                value("writes fit up to 22 KiB", "(Figure 1a)", "write set", 22.0, at_most(20.0)),
                value(
                    "they do not at 36 KiB",
                    "90 % abort from 31 KB (§2.2)",
                    "write set",
                    36.0,
                    at_least(90.0),
                ),
                value("reads fit up to 2 MiB", "(Figure 1a)", "read set", 2048.0, at_most(40.0)),
                value(
                    "they do not at 5 MiB",
                    "47 % abort at 4 MB (§2.2)",
                    "read set",
                    5120.0,
                    at_least(47.0),
                ),
            ],
            published: &[published("write set", 31.0, 90.0), published("read set", 4096.0, 47.0)],
            differs: &[
                "The size of the structure that tracks reads is the only number of the simulated machine that was \
                 fitted to this figure.",
            ],
            ..regions(SIZES, READS_AND_WRITES, (4, &["--threads", "4"], &["--cores", "4"]))
        }),
    },
    Figure {
        paper: Paper::Dbx,
        number: Number::Part(1, "b"),
        section: "§2.2",
        title: "regions by their size, eight threads on four cores",
        claim: "Two threads on a core share its cache: a region can read only 2 MB and write 22 \
                KB.",
        content: Content::Experiment(Experiment {
            expectations: &[
                value(
                    "writes do not fit at 22 KiB",
                    "99 % (§2.2)",
                    "write set",
                    22.0,
                    at_least(80.0),
                ),
                value("reads fit at 1 MiB", "(Figure 1b)", "read set", 1024.0, at_most(30.0)),
                value(
                    "they do not at 3 MiB",
                    "58 % abort at 2 MB (§2.2)",
                    "read set",
                    3072.0,
                    at_least(58.0),
                ),
            ],
            published: &[published("write set", 22.0, 99.0), published("read set", 2048.0, 58.0)],
            ..regions(SIZES, READS_AND_WRITES, (8, &["--threads", "4x2"], &["--cores", "4x2"]))
        }),
    },
    Figure {
        paper: Paper::Dbx,
        number: Number::Part(1, "c"),
        section: "§2.2",
        title: "reads before writes, and writes before reads",
        claim: "A region that reads first can hold 3 MB read and 28 KB written; one that writes \
                first far less.",
        content: Content::Experiment(Experiment {
            expectations: &[
                value(
                    "3 MiB read, then 28 KiB written, fit",
                    "(§2.2)",
                    "read before write",
                    3.0,
                    at_most(50.0),
                ),
                value(
                    "written first, they do not",
                    "(§2.2)",
                    "write before read",
                    3.0,
                    at_least(90.0),
                ),
                value(
                    "16 KiB and 16 KiB fit in any order",
                    "(Figure 1c)",
                    "write before read",
                    0.0,
                    at_most(20.0),
                ),
            ],
            differs: &[
                "Some pairs of sizes are shown, instead of the line between those that fit and those that do not.",
            ],
            ..regions(
                Axis {
                    label: "read + written",
                    by: By::Choices(&[
                        Choice { label: "16K + 16K", arguments: &["--sizes", "16K+16K"] },
                        Choice { label: "32K + 16K", arguments: &["--sizes", "32K+16K"] },
                        Choice { label: "1M + 16K", arguments: &["--sizes", "1M+16K"] },
                        Choice { label: "3M + 28K", arguments: &["--sizes", "3M+28K"] },
                    ]),
                    ..SIZES
                },
                &[
                    series("read before write", &["--kind", "reads-first"]),
                    series("write before read", &["--kind", "writes-first"]),
                ],
                (1, &["--threads", "1"], &["--cores", "1"]),
            )
        }),
    },
    Figure {
        paper: Paper::Dbx,
        number: Number::Part(1, "d"),
        section: "§2.2",
        title: "regions by their duration",
        claim: "The timer aborts the more regions the longer they last, and all of them from its \
                period of 4 ms on.",
        content: Content::Experiment(Experiment {
            expectations: &[
                value("4 ms are too long", "with certainty (§2.2)", "DBX", 4000.0, at_least(95.0)),
                value("100 µs are not", "(Figure 1d)", "DBX", 100.0, at_most(10.0)),
                Expectation {
                    says: "aborts grow with the duration",
                    paper: "(§2.2)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "DBX",
                        from: At::Value(100.0),
                        until: At::Value(2000.0),
                    },
                    bounds: at_least(5.0),
                },
            ],
            published: &[published("DBX", 4000.0, 100.0)],
            ..regions(
                Axis {
                    label: "duration of a region, µs",
                    by: By::Option("--sizes", "us"),
                    scale: Scale::Linear,
                    quick: &[100.0, 500.0, 1000.0, 2000.0, 4000.0],
                    full: &[
                        10.0, 30.0, 100.0, 300.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0,
                        4000.0,
                    ],
                },
                &[series("DBX", &["--kind", "duration"])],
                (1, &["--threads", "1"], &["--cores", "1"]),
            )
        }),
    },
];

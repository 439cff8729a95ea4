//! DBX-TC: the figures and the table of §2, what hardware regions can hold, on the simulated Haswell.

use super::dbx_tc::MACHINE;
use super::*;
use crate::definition::*;

const fn regions(
    axis: Axis,
    series: &'static [Series],
    expectations: &'static [Expectation],
    published: &'static [PaperNumber],
    differs: &'static [&'static str],
) -> Experiment {
    Experiment {
        workload: &["rtm"],
        subject: Subject::Regions,
        real: Ok(Real { threads: 1, needs_rtm: true, arguments: &["--threads", "1"] }),
        simulated: Ok(Simulated { arguments: &["--cores", "1"], ..MACHINE }),
        axis,
        series,
        metrics: &[REGIONS_ABORTED],
        expectations,
        published,
        differs,
    }
}

/// Returns a metric that converts a number of cache lines of regions to KiB of a transaction.
const fn of_lines(name: &'static str, lines: &'static str) -> Metric {
    Metric {
        name,
        unit: "KiB",
        scale: Scale::Linear,
        real: Reading::of(""),
        simulated: Reading::ratio(lines, "regions_committed").times(64.0 / 1024.0),
    }
}

const fn of_transaction(
    says: &'static str,
    paper: &'static str,
    metric: usize,
    at: f64,
    bounds: Bounds,
) -> Expectation {
    let shape = Shape::Value { of: "mean of a transaction", at: AxisPosition::Value(at) };
    Expectation { says, paper, metric, shape, bounds }
}

const fn at_size(says: &'static str, paper: &'static str, at: f64, bounds: Bounds) -> Expectation {
    let shape = Shape::Value { of: "writes", at: AxisPosition::Value(at) };
    Expectation { says, paper, metric: 0, shape, bounds }
}

/// The paper's figures and its table.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(1, "a"),
        section: "§2.1",
        title: "regions by the bytes they write in a row",
        claim: "The more a region writes the more often it aborts, above all beyond 16 KB.",
        content: Content::Experiment(regions(
            Axis {
                label: "bytes written, KiB",
                by: AxisVariable::Option("--sizes", "K"),
                scale: Scale::Linear,
                quick: &[4.0, 8.0, 16.0, 24.0, 32.0, 36.0],
                full: &[2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 31.0, 32.0, 33.0, 36.0],
            },
            &[series("writes", &["--kind", "writes"])],
            &[
                at_size("8 KiB fit", "(Figure 1a)", 8.0, at_most(20.0)),
                at_size("36 KiB do not", "31 KB is the most (§2.1)", 36.0, at_least(90.0)),
            ],
            &[],
            &[
                "The rise from 16 KB on occurs with two threads on a core (DBX, Figure 1b); a thread alone has \
                 the whole cache.",
            ],
        )),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(1, "b"),
        section: "§2.1",
        title: "regions by the bytes they write at random",
        claim: "Random writes abort far earlier: more than 90 % of the regions from 448 bytes on.",
        content: Content::Experiment(regions(
            Axis {
                label: "bytes written in random lines",
                by: AxisVariable::Option("--sizes", ""),
                scale: Scale::Logarithmic,
                quick: &[448.0, 2048.0, 4096.0, 8192.0, 16384.0, 20480.0],
                full: &[
                    128.0, 256.0, 448.0, 1024.0, 2048.0, 4096.0, 6144.0, 8192.0, 12288.0, 16384.0,
                    20480.0,
                ],
            },
            &[series("writes", &["--kind", "random-writes"])],
            &[
                at_size("448 bytes do not fit", "over 90 % (§2.1)", 448.0, at_least(80.0)),
                at_size(
                    "20 KiB do not fit, which in a row would",
                    "(§2.1)",
                    20480.0,
                    at_least(80.0),
                ),
            ],
            &[published("writes", 448.0, 90.0)],
            &[
                "448 bytes are seven lines, which fit into any sets of eight ways. Experiment: if no page of the array was \
                 touched before (cargo simulate rtm --pages cold), each region faults, and aborts. The paper does not say how its array was \
                 prepared.",
            ],
        )),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Part(1, "c"),
        section: "§2.2",
        title: "whole transactions in regions, TPC-C",
        claim: "Whole transactions in regions do not scale, even under low contention.",
        content: Content::Experiment(Experiment {
            workload: &[
                "tpcc",
                "--delivery-search",
                "behind-last",
                "--protocol",
                "htm-naive",
                "--capacity-retries",
                "1",
            ],
            subject: Subject::Transactions,
            real: Ok(Real { threads: 8, needs_rtm: true, arguments: &["--reserve-mib", "1000"] }),
            simulated: Ok(MACHINE),
            axis: Axis {
                label: "threads",
                by: AxisVariable::Threads,
                scale: Scale::Linear,
                quick: &[1.0, 4.0, 8.0],
                full: &[1.0, 2.0, 4.0, 6.0, 8.0],
            },
            series: &[
                series("1T1W", &[]),
                series("2T1W", &["--threads-per-warehouse", "2"]),
                series("NT1W", &["--warehouses", "1"]),
            ],
            metrics: &[THROUGHPUT, FALLBACKS, ABORTED_BY_CONFLICT],
            expectations: &[
                Expectation {
                    says: "low contention does not scale",
                    paper: "\"poor even under low contention\" (§2.2)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "1T1W",
                        from: AxisPosition::Value(1.0),
                        until: AxisPosition::Value(8.0),
                    },
                    bounds: at_most(3.0),
                },
                Expectation {
                    says: "most take the lock at one thread",
                    paper: "0.88 (§2.2)",
                    metric: 1,
                    shape: Shape::Value { of: "1T1W", at: AxisPosition::Value(1.0) },
                    bounds: between(0.6, 1.0),
                },
                Expectation {
                    says: "high contention is no slower",
                    paper: "\"slightly better\" (§2.2)",
                    metric: 0,
                    shape: Shape::Ratio { of: "NT1W", to: "1T1W", at: AxisPosition::Value(8.0) },
                    bounds: at_least(0.9),
                },
            ],
            published: &[PaperNumber { series: "1T1W", metric: 1, at: 1.0, value: 0.88 }],
            differs: &[
                "As in the paper, a region that does not fit takes the lock at the first such abort. Conflicts are retried \
                 up to 8 times; the paper does not say how often it retries them.",
            ],
        }),
    },
    Figure {
        paper: Paper::DbxTc,
        number: Number::Table(1),
        section: "§2.2",
        title: "what TPC-C's transactions read and write",
        claim: "The sets would fit: 2 to 14 KB read, but for Stock-Level, and at most 4 KB \
                written.",
        content: Content::Experiment(Experiment {
            workload: &[
                "tpcc",
                "--delivery-search",
                "behind-last",
                "--protocol",
                "htm-naive",
                "--warehouses",
                "1",
            ],
            subject: Subject::Transactions,
            real: Err("a processor does not report what a region has read and written"),
            simulated: Ok(Simulated {
                cores: 1,
                arguments: &["--private-memory", "off"],
                ..MACHINE
            }),
            axis: Axis {
                label: "transaction",
                by: AxisVariable::Choices(&[
                    AxisChoice { label: "New-Order", arguments: &["--mix", "neworder"] },
                    AxisChoice { label: "Payment", arguments: &["--mix", "payment"] },
                    AxisChoice { label: "Order-Status", arguments: &["--mix", "orderstatus"] },
                    AxisChoice { label: "Delivery", arguments: &["--mix", "delivery"] },
                    AxisChoice { label: "Stock-Level", arguments: &["--mix", "stocklevel"] },
                ]),
                scale: Scale::Linear,
                quick: &[],
                full: &[],
            },
            series: &[series("mean of a transaction", &[])],
            metrics: &[
                of_lines("read", "region_lines_read"),
                of_lines("written", "region_lines_written"),
                Metric {
                    name: "regions that do not fit",
                    unit: "%",
                    scale: Scale::Linear,
                    real: Reading::of(""),
                    simulated: Reading::ratio("regions_aborted_capacity", "regions_begun")
                        .times(100.0),
                },
            ],
            expectations: &[
                of_transaction(
                    "New-Order reads little",
                    "2 to 14 KB (Table 1)",
                    0,
                    0.0,
                    at_most(28.0),
                ),
                of_transaction(
                    "Payment reads little",
                    "2 to 14 KB (Table 1)",
                    0,
                    1.0,
                    at_most(28.0),
                ),
                of_transaction("Stock-Level reads more", "(Table 1)", 0, 4.0, at_least(14.0)),
                of_transaction(
                    "New-Order writes little",
                    "4 KB at most (Table 1)",
                    1,
                    0.0,
                    at_most(8.0),
                ),
                of_transaction(
                    "Payment writes little",
                    "4 KB at most (Table 1)",
                    1,
                    1.0,
                    at_most(8.0),
                ),
                of_transaction("Delivery fits", "(§2.2)", 2, 3.0, at_most(10.0)),
            ],
            published: &[],
            differs: &[
                "Whole cache lines are counted, of rows, indexes and everything that is shared, in the regions that \
                 committed. Stacks and heaps are left out here (--private-memory off); otherwise they need room.",
                "Here a version of a row has at least a line of its own. Delivery, which changes 130 records, does not fit, so \
                 its reads and writes are not known. For New-Order, only the regions that fit are counted.",
            ],
        }),
    },
];

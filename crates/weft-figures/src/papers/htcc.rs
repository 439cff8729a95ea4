//! HTCC: the figures of §2.1 and of §5, on the simulated four sockets of ten cores.

use super::*;
use crate::definition::*;

/// The paper's machine, for TPC-C with four warehouses.
const MACHINE: Simulated = Simulated {
    machine: "xeon-e7-4x10",
    cores: 40,
    quick: span(2.0, 6.0),
    full: span(4.0, 12.0),
    arguments: &[],
};

/// Forty warehouses take 6 GB of memory, and minutes to load. So in quick runs they have few rows.
const MANY_WAREHOUSES: Simulated = Simulated {
    quick: span(1.0, 3.0).with(&["--scale", "tiny"]),
    full: span(4.0, 12.0).loading(60.0),
    ..MACHINE
};

const REAL: Result<Real, &str> =
    Ok(Real { threads: 40, needs_rtm: true, arguments: &["--reserve-mib", "1000"] });

const FEW: &[&str] = &["tpcc", "--warehouses", "4"];
const MANY: &[&str] = &["tpcc", "--warehouses", "40"];

const THREADS: Axis = Axis {
    label: "threads",
    by: AxisVariable::Threads,
    scale: Scale::Linear,
    quick: &[10.0, 40.0, 80.0],
    full: &[1.0, 10.0, 20.0, 30.0, 40.0, 56.0, 80.0],
};

const WAREHOUSES: Axis = Axis {
    label: "warehouses",
    by: AxisVariable::Option("--warehouses", ""),
    scale: Scale::Linear,
    quick: &[4.0, 12.0, 40.0],
    full: &[4.0, 8.0, 12.0, 20.0, 40.0],
};

const PROTOCOLS: &[Series] = &[HTCC, OCC, SOCC, HOCC, TWO_PHASE_LOCKING, HTO];

const THRESHOLDS: &[Series] = &[
    protocol!("HOCC(1)", "dbx", "--conflict-retries", "1"),
    protocol!("HOCC(4)", "dbx", "--conflict-retries", "4"),
    protocol!("HOCC(16)", "dbx", "--conflict-retries", "16"),
    protocol!("HOCC(64)", "dbx", "--conflict-retries", "64"),
    OCC,
];

const NEW_ORDER_MEDIAN: Metric = latency(
    "New-Order, median latency",
    "latency_us/neworder/p50",
    "transactions_by_type/type=neworder/latency_us_p50",
);
const NEW_ORDER_99: Metric = latency(
    "New-Order, 99th percentile of latency",
    "latency_us/neworder/p99",
    "transactions_by_type/type=neworder/latency_us_p99",
);

const NO_GLOBAL_LOCK: &str = "When a region gives up, Weft's software twin takes the locks of its \
     own records. The paper's HOCC takes one lock for all, which aborts all other regions (the \
     lemming effect). So it collapses further than here.";
const THRESHOLD: &str = "A threshold n is --conflict-retries n: after this number of conflicts, the software twin of a region \
     runs. The other thresholds of the paper lie between those shown.";
const ROWS_ONLY: &str = "Quick runs of many warehouses have few rows in each (--scale tiny), because those of the \
     specification take minutes to load; full runs have all rows.";
const DELIVERY: &str = "Ten threads of a warehouse deliver from one nearly empty index. Neither locks \
     on records nor repairs help much against this contention. The longer a run, the more of its time goes into \
     it, so quick runs of few milliseconds have more throughput than full ones.";
const ACCOUNT: &str = "HTCC is the variant htcc:dependencies. Weft's default is HTCC(-S), because on a real \
     processor tracking the dependencies costs a quarter of the throughput (docs/results.md). The \
     simulation does not charge for accesses to private memory.";

/// Returns an experiment with TPC-C.
const fn tpcc(
    workload: &'static [&'static str],
    simulated: Simulated,
    axis: Axis,
    series: &'static [Series],
) -> Experiment {
    Experiment {
        workload,
        subject: Subject::Transactions,
        real: REAL,
        simulated: Ok(simulated),
        axis,
        series,
        metrics: &[THROUGHPUT],
        expectations: &[],
        published: &[],
        differs: &[],
    }
}

const fn ratio(
    says: &'static str,
    paper: &'static str,
    (of, to): (&'static str, &'static str),
    at: f64,
    bounds: Bounds,
) -> Expectation {
    let shape = Shape::Ratio { of, to, at: AxisPosition::Value(at) };
    Expectation { says, paper, metric: 0, shape, bounds }
}

const fn share_of_aborts(name: &'static str, path: &'static str) -> Metric {
    let reading = Reading::of(path).times(100.0);
    Metric { name, unit: "%", scale: Scale::Linear, real: reading, simulated: reading }
}

const fn aborts_about(
    says: &'static str,
    paper: &'static str,
    (metric, of): (usize, &'static str),
    bounds: Bounds,
) -> Expectation {
    let shape = Shape::Value { of, at: AxisPosition::Value(40.0) };
    Expectation { says, paper, metric, shape, bounds }
}

const TEN_UPDATES: &[Series] = &[
    series("HTM(1)", &["--elide", "on", "--conflict-retries", "1"]),
    series("HTM(4)", &["--elide", "on", "--conflict-retries", "4"]),
    series("HTM(64)", &["--elide", "on", "--conflict-retries", "64"]),
    series("fine-grained locking", &["--elide", "off"]),
];

/// Returns an experiment with ten updates of records of a map, locked or in a region.
const fn ten_updates(
    workload: &'static [&'static str],
    expectations: &'static [Expectation],
    published: &'static [PaperNumber],
) -> Experiment {
    let simulated = Simulated {
        quick: span(0.3, 0.7),
        full: span(1.0, 4.0),
        // The time to read ten keys drawn in advance, and to compute the place of each.
        arguments: &["--compute", "200"],
        ..MACHINE
    };
    Experiment {
        real: Ok(Real { threads: 40, needs_rtm: true, arguments: &[] }),
        axis: Axis { quick: &[10.0, 40.0], full: &[1.0, 10.0, 20.0, 40.0], ..THREADS },
        metrics: &[THROUGHPUT, FALLBACKS],
        expectations,
        published,
        differs: &[
            "There are no transactions of the engine, which behave differently in a region. YCSB's ten updates under \
             htm-naive search a B+-tree and write a new version of each row. In simulation, one such region in eight does \
             not fit, and three in five with the stack and the heap that a client writes. A region that does not fit takes the \
             lock, which on 40 cores is never free again: 98 % of the transactions end under it.",
            "A record's lock is in the record's line, so that taking it costs no additional line. The paper does not say \
             where its locks are.",
            "A threshold n is --conflict-retries n; after that, a region takes the lock of the whole map.",
        ],
        ..tpcc(workload, simulated, THREADS, TEN_UPDATES)
    }
}

/// The paper's figures and tables.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: Paper::Htcc,
        number: Number::Part(1, "a"),
        section: "§2.1",
        title: "regions and fine-grained locks, low contention",
        claim: "Where transactions seldom meet, hardware regions are twice as fast as \
                fine-grained locks.",
        content: Content::Experiment(ten_updates(
            &["locks", "--workload", "map", "--subscribers", "1000000", "--theta", "0"],
            &[ratio(
                "HTM(64) is ahead of locking on 40 threads",
                "31 and 16 M tps, 2 × (§2.1)",
                ("HTM(64)", "fine-grained locking"),
                40.0,
                at_least(1.4),
            )],
            &[published("HTM(64)", 40.0, 31e6), published("fine-grained locking", 40.0, 16e6)],
        )),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Part(1, "b"),
        section: "§2.1",
        title: "regions and fine-grained locks, high contention",
        claim: "Where transactions often meet, hardware regions fall far behind fine-grained \
                locks.",
        content: Content::Experiment(ten_updates(
            &["locks", "--workload", "map", "--subscribers", "1000000", "--theta", "0.8"],
            &[ratio(
                "HTM(64) is behind locking on 40 threads",
                "1.1 and 3.7 M tps, 0.3 × (§2.1)",
                ("HTM(64)", "fine-grained locking"),
                40.0,
                at_most(0.55),
            )],
            &[published("HTM(64)", 40.0, 1.1e6), published("fine-grained locking", 40.0, 3.7e6)],
        )),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(10),
        section: "§5",
        title: "HOCC by the restart threshold, 40 warehouses",
        claim: "Under low contention HOCC scales to 80 threads, and is 15 % faster than OCC.",
        content: Content::Experiment(Experiment {
            axis: Axis { quick: &[40.0, 80.0], ..THREADS },
            expectations: &[
                ratio(
                    "HOCC(64) is ahead of OCC on 80 threads",
                    "1.15 × (§5)",
                    ("HOCC(64)", "OCC"),
                    80.0,
                    at_least(1.07),
                ),
                ratio(
                    "a high threshold is no worse than a low one",
                    "",
                    ("HOCC(64)", "HOCC(1)"),
                    80.0,
                    at_least(0.95),
                ),
            ],
            published: &[published("HOCC(64)", 80.0, 2.1e6)],
            differs: &[NO_GLOBAL_LOCK, THRESHOLD, ROWS_ONLY],
            ..tpcc(MANY, MANY_WAREHOUSES, THREADS, THRESHOLDS)
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(11),
        section: "§5",
        title: "HOCC by the restart threshold, 4 warehouses",
        claim: "Under high contention HOCC collapses, whatever the restart threshold, and OCC \
                does not.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "HOCC(64) is far behind OCC on 80 threads",
                    "200 and 550 K tps, 0.36 × (§5)",
                    ("HOCC(64)", "OCC"),
                    80.0,
                    at_most(0.6),
                ),
                Expectation {
                    says: "HOCC(64) loses from 40 threads to 80",
                    paper: "",
                    metric: 0,
                    shape: Shape::Change {
                        of: "HOCC(64)",
                        from: AxisPosition::Value(40.0),
                        until: AxisPosition::Value(80.0),
                    },
                    bounds: at_most(0.9),
                },
            ],
            published: &[published("HOCC(64)", 80.0, 200e3), published("OCC", 80.0, 550e3)],
            differs: &[NO_GLOBAL_LOCK, THRESHOLD, DELIVERY],
            ..tpcc(FEW, MACHINE, THREADS, THRESHOLDS)
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(12),
        section: "§5",
        title: "HOCC's abort rate, 4 warehouses",
        claim: "HOCC's aborts become fewer with more threads, since it runs one transaction \
                after another.",
        content: Content::Experiment(Experiment {
            metrics: &[ABORTS],
            expectations: &[
                Expectation {
                    says: "HOCC(64) aborts less on 80 threads than on 40",
                    paper: "1.18 at 56 threads, 0.45 at 80 (§5)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "HOCC(64)",
                        from: AxisPosition::Value(40.0),
                        until: AxisPosition::Value(80.0),
                    },
                    bounds: at_most(0.9),
                },
                Expectation {
                    says: "OCC aborts more",
                    paper: "(§5)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "OCC",
                        from: AxisPosition::Value(10.0),
                        until: AxisPosition::Value(80.0),
                    },
                    bounds: at_least(1.2),
                },
            ],
            published: &[published("HOCC(64)", 80.0, 0.45), published("HOCC(64)", 56.0, 1.18)],
            differs: &[NO_GLOBAL_LOCK, THRESHOLD],
            ..tpcc(FEW, MACHINE, THREADS, THRESHOLDS)
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(13),
        section: "§5",
        title: "throughput, 40 warehouses",
        claim: "Under low contention the optimistic protocols scale alike, HTCC 10 % ahead of \
                OCC, 2PL and HTO behind.",
        content: Content::Experiment(Experiment {
            axis: Axis { quick: &[10.0, 40.0], ..THREADS },
            expectations: &[
                Expectation {
                    says: "HTCC scales nearly linearly from 10 to 40 threads",
                    paper: "\"near-linearly\" (§5)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "HTCC",
                        from: AxisPosition::Value(10.0),
                        until: AxisPosition::Value(40.0),
                    },
                    bounds: at_least(3.0),
                },
                ratio(
                    "HTCC is ahead of OCC",
                    "over 1.10 × (§5)",
                    ("HTCC", "OCC"),
                    40.0,
                    at_least(1.05),
                ),
                ratio("HOCC is like SOCC", "(§5)", ("HOCC", "SOCC"), 40.0, ALIKE),
                ratio("2PL is behind HTCC", "(§5)", ("2PL", "HTCC"), 40.0, at_most(0.95)),
                ratio("HTO is behind HTCC", "(§5)", ("HTO", "HTCC"), 40.0, at_most(0.9)),
            ],
            differs: &[ACCOUNT, ROWS_ONLY],
            ..tpcc(MANY, MANY_WAREHOUSES, THREADS, PROTOCOLS)
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(14),
        section: "§5",
        title: "throughput, 4 warehouses",
        claim: "Under high contention HTCC is twice as fast as SOCC and six times as fast as HOCC.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "HTCC is ahead of SOCC on 80 threads",
                    "2 × (§5)",
                    ("HTCC", "SOCC"),
                    80.0,
                    at_least(1.4),
                ),
                ratio(
                    "HTCC is ahead of HOCC on 80 threads",
                    "6 × (§5)",
                    ("HTCC", "HOCC"),
                    80.0,
                    at_least(2.4),
                ),
                ratio("OCC is behind SOCC", "0.9 × (§5)", ("OCC", "SOCC"), 80.0, at_most(0.95)),
                ratio("OCC is like 2PL", "\"similar\" (§5)", ("OCC", "2PL"), 80.0, ALIKE),
                Expectation {
                    says: "HTCC is ahead of all on 40 threads and more",
                    paper: "(§5)",
                    metric: 0,
                    shape: Shape::Ahead { of: "HTCC", from: AxisPosition::Value(40.0) },
                    bounds: at_least(1.05),
                },
            ],
            published: &[
                published("HTCC", 80.0, 1e6),
                published("OCC", 80.0, 550e3),
                published("HOCC", 80.0, 200e3),
            ],
            differs: &[NO_GLOBAL_LOCK, DELIVERY, ACCOUNT],
            ..tpcc(FEW, MACHINE, THREADS, PROTOCOLS)
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(15),
        section: "§5",
        title: "throughput by the number of warehouses, 40 threads",
        claim: "The more contention, the further HTCC is ahead; HOCC is good only where there is \
                little.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "HTCC is ahead of SOCC at 4 warehouses",
                    "1.2 to 2 × (§5)",
                    ("HTCC", "SOCC"),
                    4.0,
                    at_least(1.1),
                ),
                ratio(
                    "HTCC is ahead of SOCC at 40 warehouses",
                    "1.2 to 2 × (§5)",
                    ("HTCC", "SOCC"),
                    40.0,
                    at_least(1.1),
                ),
                ratio(
                    "HOCC is good at 40 warehouses",
                    "(§5)",
                    ("HOCC", "SOCC"),
                    40.0,
                    at_least(0.9),
                ),
                ratio("HOCC is poor at 4 warehouses", "(§5)", ("HOCC", "SOCC"), 4.0, at_most(0.8)),
            ],
            differs: &[NO_GLOBAL_LOCK, DELIVERY, ACCOUNT, ROWS_ONLY],
            ..tpcc(&["tpcc"], MANY_WAREHOUSES, WAREHOUSES, PROTOCOLS)
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(16),
        section: "§5",
        title: "latency of New-Order, 4 warehouses",
        claim: "More of HTCC's New-Orders commit soon than of the others', and HOCC's take far \
                longest.",
        content: Content::Experiment(Experiment {
            axis: Axis { quick: &[10.0, 40.0], full: &[10.0, 20.0, 40.0], ..THREADS },
            metrics: &[NEW_ORDER_MEDIAN, NEW_ORDER_99],
            expectations: &[
                Expectation {
                    says: "the slowest of HTCC are faster than those of OCC",
                    paper: "89 % against 78 % within 160 µs (§5)",
                    metric: 1,
                    shape: Shape::Ratio { of: "HTCC", to: "OCC", at: AxisPosition::Value(40.0) },
                    bounds: at_most(0.9),
                },
                Expectation {
                    says: "and than those of SOCC",
                    paper: "89 % against 73 % within 160 µs (§5)",
                    metric: 1,
                    shape: Shape::Ratio { of: "HTCC", to: "SOCC", at: AxisPosition::Value(40.0) },
                    bounds: at_most(0.9),
                },
                Expectation {
                    says: "HOCC takes far longer than HTCC",
                    paper: "37 % within 640 µs (§5)",
                    metric: 0,
                    shape: Shape::Ratio { of: "HOCC", to: "HTCC", at: AxisPosition::Value(40.0) },
                    bounds: at_least(3.0),
                },
            ],
            differs: &[
                "The paper shows the whole distribution on 40 threads; the reports have the median and the 99th \
                 percentile.",
                NO_GLOBAL_LOCK,
            ],
            ..tpcc(FEW, MACHINE, THREADS, &[HTCC, OCC, SOCC, HOCC])
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Table(1),
        section: "§5",
        title: "aborts by table, OCC, 4 warehouses",
        claim: "63 % of OCC's aborts are about warehouses, and 31 % about districts.",
        content: Content::Experiment(Experiment {
            axis: Axis { quick: &[40.0], full: &[40.0, 80.0], ..THREADS },
            metrics: &[
                share_of_aborts("aborts about warehouses", "aborts_by_table/warehouse/share"),
                share_of_aborts("aborts about districts", "aborts_by_table/district/share"),
                share_of_aborts("aborts about new orders", "aborts_by_table/new_order/share"),
            ],
            expectations: &[
                aborts_about(
                    "most are about warehouses",
                    "62.9 % (Table 1)",
                    (0, "OCC"),
                    between(45.0, 90.0),
                ),
                aborts_about(
                    "then come districts",
                    "31.0 % (Table 1)",
                    (1, "OCC"),
                    between(15.0, 60.0),
                ),
                aborts_about(
                    "the same without Delivery, warehouses",
                    "62.9 % (Table 1)",
                    (0, "OCC, without Delivery"),
                    between(45.0, 90.0),
                ),
                aborts_about(
                    "and districts",
                    "31.0 % (Table 1)",
                    (1, "OCC, without Delivery"),
                    between(15.0, 60.0),
                ),
            ],
            published: &[
                published("OCC", 40.0, 62.9),
                PaperNumber { series: "OCC", metric: 1, at: 40.0, value: 31.0 },
            ],
            differs: &[
                "An abort counts for the table of the first record, or range of keys, that is found to have changed; \
                 others may have changed, too.",
                "Here the deliveries of a warehouse access the same oldest orders, and nearly all that run at the same time are \
                 retried. The paper does not say what its deliveries do. So the mix without them is shown, too.",
                "The paper does not state the number of threads.",
            ],
            ..tpcc(
                FEW,
                MACHINE,
                THREADS,
                &[OCC, protocol!("OCC, without Delivery", "occ", "--mix", "45,43,4,0,4")],
            )
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(17),
        section: "§5",
        title: "which records are hot, 4 warehouses",
        claim: "Locks on warehouses and districts keep HTCC fast; without any it collapses at 32 \
                threads, and with locks on all records it is like 2PL.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "W+D is ahead of None",
                    "(§5)",
                    ("HTCC(W+D)", "HTCC(None)"),
                    80.0,
                    at_least(1.2),
                ),
                ratio(
                    "W+D is ahead of All",
                    "\"much lower\" (§5)",
                    ("HTCC(W+D)", "HTCC(All)"),
                    80.0,
                    at_least(1.2),
                ),
                ratio("All is like 2PL", "\"equivalent\" (§5)", ("HTCC(All)", "2PL"), 80.0, ALIKE),
                Expectation {
                    says: "None loses from 10 threads to 80",
                    paper: "\"drops drastically\" at 32 threads (§5)",
                    metric: 0,
                    shape: Shape::Change {
                        of: "HTCC(None)",
                        from: AxisPosition::Value(10.0),
                        until: AxisPosition::Value(80.0),
                    },
                    bounds: at_most(1.0),
                },
            ],
            differs: &[
                DELIVERY,
                NO_GLOBAL_LOCK,
                "Here all variants repair by replay, without static dependencies.",
            ],
            ..tpcc(
                FEW,
                MACHINE,
                THREADS,
                &[
                    protocol!("HTCC(W+D)", "htcc:tables-hot", "--hot-tables", "warehouse,district"),
                    protocol!("HTCC(W)", "htcc:tables-hot", "--hot-tables", "warehouse"),
                    protocol!("HTCC(None)", "htcc:none-hot"),
                    protocol!("HTCC(All)", "htcc:all-hot"),
                    TWO_PHASE_LOCKING,
                ],
            )
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(18),
        section: "§5",
        title: "what each part of HTCC gains, 4 warehouses",
        claim: "Static dependencies gain 10 %, the workset cache with them 40 %, and the hybrid \
                alone is 20 % ahead of OCC.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "HTCC is ahead of HTCC(-S)",
                    "over 1.10 × (§5)",
                    ("HTCC", "HTCC(-S)"),
                    40.0,
                    at_least(1.05),
                ),
                ratio(
                    "HTCC is ahead of HTCC(-SC)",
                    "1.40 × (§5)",
                    ("HTCC", "HTCC(-SC)"),
                    40.0,
                    at_least(1.18),
                ),
                ratio(
                    "HTCC(-SC) is ahead of OCC",
                    "1.20 × (§5)",
                    ("HTCC(-SC)", "OCC"),
                    40.0,
                    at_least(1.1),
                ),
            ],
            published: &[published("HTCC", 40.0, 1.2e6)],
            differs: &[DELIVERY, ACCOUNT],
            ..tpcc(
                FEW,
                MACHINE,
                THREADS,
                &[HTCC, protocol!("HTCC(-S)", "htcc"), protocol!("HTCC(-SC)", "htcc:restart"), OCC],
            )
        }),
    },
    Figure {
        paper: Paper::Htcc,
        number: Number::Figure(19),
        section: "§5",
        title: "what validation costs, 40 threads",
        claim: "Without validation, and so without repairs, HTCC would be 40 % faster at 4 \
                warehouses, and hardly so at 40.",
        content: Content::Experiment(Experiment {
            expectations: &[
                ratio(
                    "NV is ahead at 4 warehouses",
                    "over 1.40 × (§5)",
                    ("HTCC(NV)", "HTCC"),
                    4.0,
                    at_least(1.18),
                ),
                ratio(
                    "NV is close at 40 warehouses",
                    "\"closer\" (§5)",
                    ("HTCC(NV)", "HTCC"),
                    40.0,
                    between(0.9, 1.25),
                ),
            ],
            differs: &["HTCC(NV) is deliberately not serializable.", DELIVERY, ROWS_ONLY],
            ..tpcc(
                &["tpcc"],
                MANY_WAREHOUSES,
                WAREHOUSES,
                &[HTCC, protocol!("HTCC(NV)", "htcc:unvalidated")],
            )
        }),
    },
];

//! `cargo lab bench` with invalid arguments.

use weft_protocols::PROTOCOLS;

use crate::bench::SHORT_YCSB;
use crate::support::{refused, run, text};

#[test]
fn wrong_arguments_exit_with_2_and_a_hint() {
    let seconds = "number of seconds above 0";
    let cases: &[(&[&str], &[&str])] = &[
        (&["--protocol", "optimism"], &["optimism", "none", "dbx"]),
        (&["--protocol", ""], &["none", "dbx"]),
        (&["--protocol", "dbx,,none"], &["none", "dbx"]),
        (&["--protocol", "none", "--threads", "2"], &["'none'", "--threads 1"]),
        (&["--threads", "0"], &["--threads", "from 1 to"]),
        (&["--threads", "-1"], &["--threads", "from 1 to"]),
        (&["--threads", "65536"], &["--threads", "from 1 to"]),
        (&["--seconds", "0"], &["--seconds", seconds]),
        (&["--seconds", "-1"], &["--seconds", seconds]),
        (&["--seconds", "NaN"], &["--seconds", seconds]),
        (&["--seconds", "inf"], &["--seconds", seconds]),
        (&["--warmup", "-0.1"], &["--warmup", "from 0 to 86400"]),
        (&["--rounds", "0"], &["--rounds", "from 1 to 1000"]),
        (&["--warehouses", "0"], &["--warehouses", "from 1 to 65535"]),
        (&["--warehouses", "65536"], &["--warehouses", "from 1 to 65535"]),
        (&["--threads-per-warehouse", "0"], &["--threads-per-warehouse", "from 1 to 65535"]),
        (&["--warehouses", "1", "--threads-per-warehouse", "2"], &["cannot be used with"]),
        (&["--mix", "neworders"], &["standard", "neworder", "stocklevel"]),
        (&["--mix", "0,0,0,0,0"], &["not all 0"]),
        (&["--htm", "hardware"], &["auto", "rtm", "software"]),
        (&["--seed", "-1"], &["--seed", "from 0 to 18446744073709551615"]),
        (&["--scale", "huge"], &["specification", "tiny"]),
        (&["--json", env!("CARGO_MANIFEST_DIR")], &["--json", "directory"]),
        (&["--json", "/nowhere/at/all.json"], &["/nowhere/at/all.json", "--json"]),
        (&["--thread", "2"], &["--threads"]),
        (&["--snapshots", "maybe"], &["--snapshots", "off", "on", "recent"]),
        (&["--acknowledge", "committed"], &["--directory"]),
        (&["--directory", "/tmp", "--acknowledge", "soon"], &["durable", "committed", "memory"]),
        (&["--directory", "/nowhere/at/all"], &["/nowhere/at/all", "--directory"]),
        (&["--directory", "/tmp", "--loggers", "0"], &["--loggers", "from 1 to 64"]),
        (&["--directory", "/tmp", "--epoch-interval-ms", "0"], &["from 1 to 10000"]),
    ];
    refused("tpcc", cases);
}

#[test]
fn wrong_ycsb_arguments_exit_with_2_and_a_hint() {
    let theta = "a number from 0 to 5";
    let percent = "from 0 to 100";
    let cases: &[(&[&str], &[&str])] = &[
        (&["--read", "80", "--rmw", "19"], &["add up to 100, not 99", "--read 80 --rmw 19"]),
        (&["--read", "101"], &["--read", percent]),
        (&["--rmw", "-1"], &["--rmw", percent]),
        (&["--insert", "0.5"], &["--insert", percent]),
        (&["--scan", "NaN"], &["--scan", percent]),
        (&["--preset", "c", "--insert", "5"], &["add up to 100, not 5"]),
        (&["--preset", "g"], &["--preset", "dbx", "a, b, c, d, e, f"]),
        (&["--records", "0"], &["--records", "from 1 to 4294967296"]),
        (&["--records", "18446744073709551616"], &["--records", "from 1 to 4294967296"]),
        (&["--value-bytes", "0"], &["--value-bytes", "8, 100, 1000"]),
        (&["--value-bytes", "99"], &["--value-bytes", "fixed sizes", "100"]),
        (&["--scan-rows", "0"], &["--scan-rows", "from 1 to 65535"]),
        (&["--operations", "0"], &["--operations", "from 1 to 10000"]),
        (&["--operations", "-1"], &["--operations", "from 1 to 10000"]),
        (&["--theta", "-0.1"], &["--theta", theta]),
        (&["--theta", "NaN"], &["--theta", theta]),
        (&["--theta", "inf"], &["--theta", theta]),
        (&["--theta", "1e9"], &["--theta", theta]),
        (&["--storage", "heap"], &["tree", "hash"]),
        (&["--storage", "hash", "--preset", "e"], &["cannot be scanned", "--storage tree"]),
        (&["--storage", "hash", "-p", "raw"], &["raw", "--storage tree"]),
        (&["--distribution", "normal"], &["zipf", "latest"]),
        (&["--protocol", "cooked"], &["cooked", "raw", "dbx"]),
        (&["--snapshots", "on"], &["--snapshots"]),
        (&["-p", "raw", "--directory", "/tmp"], &["raw", "--directory"]),
        (&["--protocol", "none", "--threads", "2"], &["'none'", "--threads 1"]),
    ];
    refused("ycsb", cases);
    refused("tpcc", &[(&["--protocol", "raw"], &["raw", "possible values"])]);
}

#[test]
fn wrong_tatp_arguments_exit_with_2_and_a_hint() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--subscribers", "0"], &["--subscribers", "from 1 to 100000000"]),
        (&["--subscribers", "-1"], &["--subscribers", "from 1 to 100000000"]),
        (&["--mix", "neworder"], &["TATP", "standard", "getsubdata", "deletecallfwd"]),
        (&["--mix", "1,2,3,4,5"], &["7 weights", "not all 0"]),
        (&["--snapshots", "maybe"], &["--snapshots", "off", "on", "recent"]),
        (&["--protocol", "raw"], &["raw", "possible values"]),
        (&["--protocol", "none", "--threads", "2"], &["'none'", "--threads 1"]),
        (&["--warehouses", "1"], &["--warehouses"]),
    ];
    refused("tatp", cases);
}

#[test]
fn wrong_articles_arguments_exit_with_2_and_a_hint() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--articles", "0"], &["--articles", "from 1 to 268435456"]),
        (&["--users", "-1"], &["--users", "from 1 to 268435456"]),
        (&["--mix", "getarticles"], &["Articles", "standard", "getarticle", "updateuser"]),
        (&["--mix", "1,2,3"], &["4 weights", "not all 0"]),
        (&["--alpha", "NaN"], &["--alpha", "from 0 to 5"]),
        (&["--alpha", "-1"], &["--alpha", "from 0 to 5"]),
        (&["--operations", "maybe"], &["--operations", "off", "on"]),
        (&["--snapshots", "maybe"], &["--snapshots", "off", "on", "recent"]),
        (&["--protocol", "none", "--threads", "2"], &["'none'", "--threads 1"]),
    ];
    refused("articles", cases);
}

#[test]
fn wrong_arguments_of_other_workloads_exit_with_2_and_a_hint() {
    refused(
        "flash-sale",
        &[
            (&["--items", "1"], &["--items", "from 2 to 268435456"]),
            (&["--buyers", "0"], &["--buyers", "from 1 to 268435456"]),
            (&["--hot", "0"], &["--hot", "from 1 to 268435456"]),
            (&["--hot", "10", "--items", "10"], &["--hot 10", "--items"]),
            (&["--share", "101"], &["--share", "from 0 to 100"]),
            (&["--protocol", "atomic"], &["'atomic'", "single"]),
        ],
    );
    refused("queue", &[(&["--backlog", "-1"], &["--backlog", "from 0 to 268435456"])]);
    refused(
        "bank",
        &[
            (&["--accounts", "2"], &["--accounts", "from 3 to 268435456"]),
            (&["--hot", "101"], &["--hot", "from 0 to 100"]),
            (&["--audits", "half"], &["--audits", "from 0 to 100"]),
        ],
    );
    refused(
        "shift",
        &[
            (&["--records", "64"], &["--records", "from 65 to 268435456"]),
            (&["--change", "0"], &["--change", "above 0"]),
            (&["--change", "1e-12"], &["--change", "nanosecond"]),
        ],
    );
    refused("mixture", &[(&["--scale", "huge"], &["--scale", "full", "tiny"])]);
}

#[test]
fn wrong_rubis_arguments_exit_with_2_and_a_hint() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--users", "0"], &["--users", "from 1 to 100000000"]),
        (&["--items", "-1"], &["--items", "from 1 to 100000000"]),
        (&["--mix", "standard"], &["--mix", "bidding", "contended"]),
        (&["--alpha", "1.8"], &["--alpha", "--mix contended"]),
        (&["--mix", "contended", "--alpha", "NaN"], &["--alpha", "from 0 to 5"]),
        (&["--mix", "contended", "--alpha", "-1"], &["--alpha", "from 0 to 5"]),
        (&["--operations", "maybe"], &["--operations", "off", "on"]),
        (&["--snapshots"], &["--snapshots"]),
        (&["--protocol", "none", "--threads", "2"], &["'none'", "--threads 1"]),
    ];
    refused("rubis", cases);
}

#[test]
fn wrong_locks_arguments_exit_with_2_and_a_hint() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--lock", "dbx"], &["dbx", "occ_rwlock", "tatas", "mcs", "srwlock", "none"]),
        (&["--lock", "tatas+elided"], &["possible values"]),
        (&["--elide", "perhaps"], &["--elide", "off", "on"]),
        (&["--workload", "tpcc"], &["getsubdata", "probe", "manager"]),
        (&["--updates", "101"], &["--updates", "from 0 to 100"]),
        (&["--updates", "1", "--lock", "none"], &["--updates", "none"]),
        (&["--updates", "1", "--workload", "probe"], &["--updates", "getsubdata"]),
        (&["--coarse"], &["--coarse", "manager"]),
        (&["--without", "pins"], &["--without", "manager"]),
        (&["--without", "pages", "--workload", "manager"], &["--without", "fences", "pins"]),
        (&["--workload", "manager", "--lock", "none"], &["--lock", "name the locks to elide"]),
        (&["--mix", "standard"], &["--mix", "manager"]),
        (&["--mix", "neworder", "--workload", "manager"], &["--mix", "getsubdata"]),
        (&["--theta", "0.5"], &["--theta", "map"]),
        (&["--theta", "6", "--workload", "map"], &["--theta", "from 0 to"]),
        (&["--subscribers", "0"], &["--subscribers", "from 1 to 100000000"]),
        (&["--directory", "/tmp"], &["--directory"]),
    ];
    refused("locks", cases);
}

/// Variants that are not serializable can be measured, but not verified.
#[test]
fn variants_are_refused_where_they_prove_nothing() {
    let arguments: &[&str] = &["-p", "htcc:unvalidated", "--verify"];
    refused("tpcc", &[(arguments, &["htcc:unvalidated", "not serializable"])]);
    refused("tpcc", &[(&["-p", "htcc:nothing"], &["htcc:nothing", "htcc:dependencies"])]);
}

/// Protocols that only make single accesses atomic are rejected for other workloads.
#[test]
fn protocols_of_single_keys_run_single_accesses_only() {
    let single = PROTOCOLS.iter().filter(|protocol| protocol.single_key);
    for name in single.map(|protocol| protocol.name) {
        let expected: &[&str] = &[name, "--operations 1"];
        refused("tpcc", &[(&["-p", name], expected)]);
        refused("tatp", &[(&["-p", name], expected)]);
        refused("rubis", &[(&["-p", name], expected)]);
        refused("articles", &[(&["-p", name], expected)]);
        refused(
            "ycsb",
            &[
                (&["-p", name, "--operations", "2"], expected),
                (&["-p", name, "--insert", "100"], expected),
                (&["-p", name, "--preset", "e"], expected),
            ],
        );
        let output = run(&[&SHORT_YCSB[..], &["-p", name, "--verify"]].concat());
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    }
}

//! `cargo lab bench` as a process, and checks that hold for all commands.

use std::process::Stdio;

use serde_json::Value;
use weft_protocols::PROTOCOLS;

use crate::support::{check_share, number, run, scratch, text, weft};

/// A short run of TATP with few subscribers.
const SHORT_TATP: [&str; 10] =
    ["bench", "tatp", "-s", "500", "--seconds", "0.1", "--warmup", "0.01", "--rounds", "2"];

/// A short run of Articles with few articles and users.
const SHORT_ARTICLES: [&str; 12] = [
    "bench",
    "articles",
    "--articles",
    "200",
    "--users",
    "20",
    "--seconds",
    "0.1",
    "--warmup",
    "0.01",
    "--rounds",
    "2",
];

/// A short run of RUBiS with few users and items.
const SHORT_RUBIS: [&str; 12] = [
    "bench",
    "rubis",
    "--users",
    "500",
    "--items",
    "50",
    "--seconds",
    "0.1",
    "--warmup",
    "0.01",
    "--rounds",
    "2",
];

/// A short run of TPC-C: it takes about a second.
const SHORT: [&str; 10] =
    ["bench", "tpcc", "--scale", "tiny", "--seconds", "0.1", "--warmup", "0.01", "--rounds", "2"];

/// A short run of locks.
const SHORT_LOCKS: [&str; 10] = [
    "bench",
    "locks",
    "--subscribers",
    "500",
    "--seconds",
    "0.05",
    "--warmup",
    "0.01",
    "--rounds",
    "2",
];

/// A short run of YCSB.
pub const SHORT_YCSB: [&str; 10] =
    ["bench", "ycsb", "--records", "500", "--seconds", "0.05", "--warmup", "0.01", "--rounds", "2"];

#[test]
fn a_wrong_environment_variable_is_an_argument_error() {
    let output = weft().args(SHORT).env("WEFT_HTM", "maybe").output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("WEFT_HTM"), "{}", text(&output.stderr));
    // The option overrides the variable, which is not even parsed.
    let output = weft().args(SHORT).args(["--htm", "software"]).env("WEFT_HTM", "maybe").output();
    assert_eq!(output.expect("the binary starts").status.code(), Some(0));
}

#[test]
fn help_covers_the_essentials() {
    let output = run(&["bench", "tpcc", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["--directory", "--snapshots", "- committed:"] {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    for word in ["What is measured", "Examples:", "- none:", "- dbx:", "orderstatus", "Exit code"] {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    let output = run(&["bench", "ycsb", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["What is measured", "Presets", "YCSB F", "- raw:", "- dbx:", "swaps the record's"]
    {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    let output = run(&["bench", "locks", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["What is measured", "--lock", "- srwlock:", "--elide", "Figure 4", "Exit code"] {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    assert!(!help.contains("--acknowledge") && !help.contains("--protocol"), "{help}");
    let output = run(&["bench", "tatp", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["What is measured", "getnewdest", "35 %", "--snapshots", "Exit code"] {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    let output = run(&["bench", "articles", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in
        ["What is measured", "getcomments", "35 %", "--operations", "Figure 15", "Exit code"]
    {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    let output = run(&["bench", "rubis", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for word in ["What is measured", "storebid", "--alpha", "RUBiS-C", "--operations", "Exit code"]
    {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
    let output = run(&["protocols"]);
    assert_eq!(output.status.code(), Some(0));
    let list = text(&output.stdout);
    for protocol in PROTOCOLS {
        assert!(list.contains(&format!("| {} ", protocol.name)), "{list}");
        assert!(protocol.twin.is_none_or(|twin| list.contains(twin)), "{list}");
    }
    assert!(!list.contains("| raw "), "`raw` is not a protocol: {list}");
    for command in ["bench", "protocols"] {
        assert!(text(&run(&["--help"]).stdout).contains(command), "{command}");
    }
}

#[test]
fn pipe_gets_only_the_report() {
    let output = run(&[&SHORT[..], &["--protocol", "dbx,none", "--verify"]].concat());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress without a terminal");
    assert!(!report.contains(['\x1b', '\r']), "no colours and no redrawing:\n{report}");
    for word in ["seed 1", "| dbx ", "| none ", "neworder", "resident", "dbx: verified"] {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
}

#[test]
fn closed_output_is_not_an_error() {
    let mut child = weft()
        .args(SHORT)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_on_standard_output_is_alone_and_adds_up() {
    let output = run(&[&SHORT[..], &["-p", "dbx,none", "--verify", "--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let reports = json.as_array().expect("an array");
    assert_eq!(reports.len(), 2);
    for (report, protocol) in reports.iter().zip(["dbx", "none"]) {
        assert_eq!(report["workload"], "tpcc");
        assert_eq!(report["protocol"], protocol);
        assert_eq!(report["verified"], true);
        assert_eq!(
            (&report["threads"], &report["warehouses"], &report["mix"], &report["seed"]),
            (&1.into(), &1.into(), &"standard".into(), &1.into())
        );
        assert_eq!(report["rounds"].as_array().map(Vec::len), Some(2));
        check_sums(report);
        check_latencies(report);
        for key in ["read_changed", "write_changed", "write_locked", "range_changed"] {
            assert!(report["aborts"][key].is_u64(), "{key}: {report}");
        }
        for key in ["resident_before_load_bytes", "resident_after_load_bytes"] {
            let bytes = &report["memory"][key];
            assert!(bytes.is_u64() || cfg!(not(target_os = "linux")), "{key}: {report}");
        }
        assert!(report["version"].is_string() && report["command_line"].is_array(), "{report}");
    }
    assert_eq!(reports[0]["ratio_to_first"], 1.0);
    assert!(reports[1]["ratio_to_first"].as_f64() > Some(0.0));
}

fn check_sums(report: &Value) {
    let rounds = report["rounds"].as_array().expect("an array");
    let types = report["transactions"].as_object().expect("an object");
    for key in ["committed", "user_rollbacks"] {
        let total = number(&report[key]);
        assert_eq!(total, rounds.iter().map(|round| number(&round[key])).sum::<f64>(), "{key}");
        assert_eq!(total, types.values().map(|counts| number(&counts[key])).sum::<f64>(), "{key}");
    }
    assert!(number(&report["committed"]) > 0.0, "{report}");
    let rates: Vec<f64> = rounds
        .iter()
        .map(|round| number(&round["committed"]) / number(&round["seconds"]))
        .collect();
    let spread = &report["throughput_per_second"];
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b;
    assert!(close(number(&spread["median"]), (rates[0] + rates[1]) / 2.0), "{spread} {rates:?}");
    assert!(close(number(&spread["min"]), rates[0].min(rates[1])), "{spread} {rates:?}");
    assert!(close(number(&spread["max"]), rates[0].max(rates[1])), "{spread} {rates:?}");
}

fn check_latencies(report: &Value) {
    let latencies = report["latency_us"].as_object().expect("an object");
    assert!(latencies.contains_key("neworder") && latencies.contains_key("payment"), "{report}");
    for (name, latency) in latencies {
        let quantiles = ["p50", "p99", "p999", "max"].map(|key| number(&latency[key]));
        assert!(quantiles[0] > 0.0 && quantiles.is_sorted(), "{name}: {latency}");
    }
}

#[test]
fn all_tables_can_be_trees() {
    let ordered = ["--storage", "ordered", "--snapshots", "off,on", "--verify", "--json", "-"];
    let output = run(&[&SHORT[..], &ordered].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    for report in json.as_array().expect("an array") {
        assert_eq!((&report["storage"], &report["verified"]), (&"ordered".into(), &true.into()));
    }
}

#[test]
fn json_keys_have_one_order() {
    let output = run(&[&SHORT[..], &["--json", "-"]].concat());
    let json = text(&output.stdout);
    // The keys of a report are indented by two levels, four columns.
    let keys: Vec<&str> = json
        .lines()
        .filter_map(|line| line.strip_prefix("    \"")?.split_once('"'))
        .map(|(key, _)| key)
        .collect();
    let expected = [
        "workload",
        "protocol",
        "htm_backend",
        "twin",
        "snapshots",
        "acknowledge",
        "threads",
        "seed",
        "warehouses",
        "mix",
        "scale",
        "storage",
        "delivery_search",
        "conflict_retries",
        "capacity_retries",
        "by_rows",
        "phase_length_ms",
        "seconds",
        "warmup_seconds",
        "rounds",
        "committed",
        "user_rollbacks",
        "throughput_per_second",
        "operations_per_second",
        "ratio_to_first",
        "aborts",
        "aborts_per_commit",
        "aborts_by_table",
        "transactions",
        "success_rates",
        "latency_us",
        "latency_all_us",
        "fairness",
        "transactions_per_sample",
        "htm",
        "memory",
        "log",
        "phases",
        "repairs",
        "pieces",
        "versions_held",
        "verified",
        "conditions",
        "contention",
        "pinned",
        "logical_cores",
        "version",
        "command_line",
    ];
    assert_eq!(keys, expected);
    let report: Value = serde_json::from_str(json).expect("nothing but JSON");
    assert!(report[0]["verified"].is_null(), "--verify was not given");
    assert!(report[0]["success_rates"].is_null(), "TPC-C specifies none");
}

/// An observed database takes turns with one that is not, and only it has a report of contention.
#[test]
fn contention_is_reported_where_it_is_observed() {
    let output = run(&[&SHORT[..], &["--contention=off,on", "--json", "-"]].concat());
    let report: Value = serde_json::from_str(text(&output.stdout)).expect("nothing but JSON");
    assert!(report[0]["contention"].is_null());
    let contention = &report[1]["contention"];
    assert_eq!(contention["is_observed"], true);
    let labels = contention["labels"].as_array().expect("an array");
    assert!(labels.iter().any(|label| label["label"] == "new_order"), "{contention}");
    assert!(contention["totals"]["committed"].as_u64() >= report[1]["committed"].as_u64());
}

/// Each contender logs into a directory of its own, and nothing is left of it.
#[test]
fn log_in_a_directory_is_removed_afterwards() {
    let directory = scratch("log");
    std::fs::create_dir(&directory).expect("the directory can be made");
    let file = directory.to_str().expect("the path is UTF-8");
    let all = ["--directory", file, "--acknowledge", "memory,committed,durable", "--json", "-"];
    let more = ["-p", "dbx,2pl", "--loggers", "2", "--epoch-interval-ms", "5", "--verify"];
    for short in [&SHORT[..], &SHORT_YCSB[..]] {
        let output = run(&[short, &all, &more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        let reports = json.as_array().expect("an array");
        assert_eq!(reports.len(), 6);
        let ways = ["memory", "committed", "durable"];
        for (report, way) in reports.iter().zip(ways.into_iter().cycle()) {
            assert_eq!((&report["acknowledge"], &report["verified"]), (&way.into(), &true.into()));
            let log = &report["log"];
            assert_eq!(log.is_null(), way == "memory", "{report}");
            if way == "memory" {
                continue;
            }
            for key in ["bytes_written", "transactions", "epochs_written", "syncs"] {
                assert!(number(&log[key]) > 0.0, "{key}: {report}");
            }
            let bytes = number(&log["bytes_written"]) / number(&log["transactions"]);
            assert!((number(&log["bytes_per_transaction"]) - bytes).abs() < 1e-6 * bytes, "{log}");
            assert_eq!(log["acknowledged_us"].is_null(), way == "committed", "{report}");
            // Epochs take 5 ms; a transaction that waits for its log ends its epoch sooner.
            let after =
                log["durable_after_us"]["p99"].as_f64().expect("there was a log to look at");
            assert!(after > 0.0, "{report}");
        }
        let left = std::fs::read_dir(&directory).expect("it is there").count();
        assert_eq!(left, 0, "something is left in {file}");
    }
    let output = run(&[&SHORT[..], &all[..4]].concat());
    for word in ["dbx+log", "dbx+durable", "bytes/write tx", "durable p50 µs"] {
        assert!(text(&output.stdout).contains(word), "{}", text(&output.stdout));
    }
}

#[test]
fn snapshots_take_turns_with_transactions() {
    let options = ["--snapshots", "off,on,recent", "--mix", "50,0,0,0,50", "-t", "2", "-w", "1"];
    let output = run(&[&SHORT[..], &options, &["--verify"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for word in
        ["| dbx ", "| dbx+snapshots ", "| dbx+recent ", "versions held", "dbx+snapshots: verified"]
    {
        assert!(text(&output.stdout).contains(word), "{}", text(&output.stdout));
    }
    for (options, expected) in [(&["--snapshots"][..], "on"), (&[], "off")] {
        let output = run(&[&SHORT[..], options, &["--json", "-"]].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        assert_eq!(json[0]["snapshots"], expected);
    }
}

#[test]
fn a_json_file_comes_beside_the_report() {
    let path = scratch("results.json");
    std::fs::write(&path, "what was there before ".repeat(10_000)).expect("the file can be made");
    let file = path.to_str().expect("the path is UTF-8");
    let output = run(&[&SHORT[..], &["--json", file]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("| dbx "), "the report is printed as well");
    let json = std::fs::read(&path).expect("the file is there");
    let json: Value = serde_json::from_slice(&json).expect("nothing of the old file is left");
    assert_eq!(json[0]["protocol"], "dbx");
}

#[test]
fn refused_run_leaves_no_file() {
    let path = scratch("never.json");
    let file = path.to_str().expect("the path is UTF-8");
    let output = run(&["bench", "tpcc", "-p", "none", "-t", "2", "--json", file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!path.exists());
}

#[test]
fn ycsb_runs_with_and_without_transactions() {
    let mixed = ["--read", "40", "--rmw", "30", "--insert", "20", "--scan", "10"];
    let options = ["-p", "raw,dbx", "-t", "2", "--operations", "3", "--theta", "1.2", "--verify"];
    let output = run(&[&SHORT_YCSB[..], &mixed, &options, &["--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    for (report, protocol) in json.as_array().expect("an array").iter().zip(["raw", "dbx"]) {
        assert_eq!((&report["workload"], &report["protocol"]), (&"ycsb".into(), &protocol.into()));
        assert_eq!(report["verified"], true, "{report}");
        for (key, value) in [("read", 40), ("rmw", 30), ("insert", 20), ("scan", 10)] {
            assert_eq!(report[key], value, "{report}");
        }
        assert_eq!(
            (&report["records"], &report["operations"], &report["theta"], &report["storage"]),
            (&500.into(), &3.into(), &1.2.into(), &"tree".into())
        );
        check_sums(report);
        let [operations, transactions] = ["operations_per_second", "throughput_per_second"]
            .map(|key| number(&report[key]["median"]));
        assert!((operations / transactions - 3.0).abs() < 1e-9, "{report}");
        assert_eq!(report["transactions"]["mixed"]["committed"], report["committed"]);
        let latency = &report["latency_us"]["mixed"];
        assert!(number(&latency["p50"]) > 0.0, "{report}");
    }
    assert!(json[0]["htm_backend"].is_null(), "there is no protocol that could have regions");
}

#[test]
fn every_ycsb_preset_runs() {
    for preset in ["dbx", "a", "b", "c", "d", "e", "f"] {
        let output =
            run(&[&SHORT_YCSB[..], &["--preset", preset, "-p", "raw,dbx", "--verify"]].concat());
        let report = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{preset}: {}", text(&output.stderr));
        for word in ["YCSB", "500 rows", "raw: verified", "dbx: verified", "vs raw"] {
            assert!(report.contains(word), "{preset}: {word:?} is missing in:\n{report}");
        }
        for line in report.lines() {
            assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
        }
    }
    let output = run(&[&SHORT_YCSB[..], &["--storage", "hash", "--verify"]].concat());
    assert!(text(&output.stdout).contains("hash table"), "{}", text(&output.stderr));
}

#[test]
fn tatp_reports_how_often_transactions_succeed() {
    let options = ["-p", "dbx,2pl", "-t", "2", "--verify"];
    let output = run(&[&SHORT_TATP[..], &options].concat());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for word in ["TATP, mix standard, 500 subscribers", "succeeded %", "31.25", "2pl: verified"] {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
    let output = run(&[&SHORT_TATP[..], &options, &["--snapshots", "--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    for report in json.as_array().expect("an array") {
        assert_eq!(
            (&report["workload"], &report["subscribers"], &report["mix"], &report["verified"]),
            (&"tatp".into(), &500.into(), &"standard".into(), &true.into()),
            "{report}"
        );
        assert_eq!(report["snapshots"], "on");
        check_sums(report);
        let rates = report["success_rates"].as_object().expect("an object");
        for (name, rate) in rates {
            let counts = &report["transactions"][name];
            let [committed, others] =
                ["committed", "user_rollbacks"].map(|key| number(&counts[key]));
            let measured = committed / (committed + others);
            assert!((number(&rate["measured"]) - measured).abs() < 1e-9, "{name}: {report}");
            if name == "getaccessdata" {
                check_share(committed, committed + others, 0.625, 0.2);
            }
        }
        assert_eq!(rates["getsubdata"]["measured"], 1.0, "{report}");
        assert_eq!(rates["getaccessdata"]["specified"], 0.625, "{report}");
    }
    let output = run(&[&SHORT_TATP[..], &["--mix", "getsubdata", "--json", "-"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let ran: Vec<&String> =
        json[0]["success_rates"].as_object().expect("an object").keys().collect();
    assert_eq!(ran, ["getsubdata"], "{json}");
}

#[test]
fn articles_runs_with_operations_and_without_and_verifies_both() {
    let options = ["-p", "dbx,2pl", "-t", "2", "--verify"];
    let output = run(&[&SHORT_ARTICLES[..], &options].concat());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let title = "Articles, mix standard, 200 articles, 20 users, alpha 1;";
    for word in [title, "| getcomments ", "| updateuser ", "2pl: verified"] {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
    for operations in ["on", "off"] {
        let more = ["--operations", operations, "--alpha", "2", "--snapshots", "--json", "-"];
        let output = run(&[&SHORT_ARTICLES[..], &options, &more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        for report in json.as_array().expect("an array") {
            assert_eq!(
                (&report["workload"], &report["mix"], &report["alpha"], &report["operations"]),
                (&"articles".into(), &"standard".into(), &2.0.into(), &operations.into()),
                "{report}"
            );
            assert_eq!((&report["articles"], &report["users"]), (&200.into(), &20.into()));
            assert_eq!((&report["verified"], &report["snapshots"]), (&true.into(), &"on".into()));
            check_sums(report);
            let committed = number(&report["committed"]);
            let names = ["getarticle", "getcomments", "addcomment", "updateuser"];
            for (name, percent) in names.into_iter().zip([35.0, 35.0, 20.0, 10.0]) {
                let of_type = number(&report["transactions"][name]["committed"]);
                check_share(of_type, committed, percent / 100.0, 0.2 * percent / 100.0);
            }
        }
    }
}

/// The workloads of Weft's own: title, options in the JSON, and the shares of their transaction types.
#[test]
fn own_workloads_run_and_verify() {
    type Shares = &'static [(&'static str, f64)];
    type Case = (&'static [&'static str], &'static str, &'static [(&'static str, u64)], Shares);
    let cases: [Case; 5] = [
        (
            &["flash-sale", "--hot", "10", "--items", "100", "--buyers", "100"],
            "Flash sale, 100 items, 100 buyers, 90 % for the 10 hot ones;",
            &[("items", 100), ("buyers", 100), ("hot", 10), ("hot_percent", 90)],
            &[("order", 0.98), ("restock", 0.02)],
        ),
        (
            &["queue", "--backlog", "2000"],
            "Queue, 2,000 entries at first;",
            &[("backlog", 2000)],
            &[("produce", 0.5), ("consume", 0.5)],
        ),
        (
            &["bank", "--accounts", "50", "--audits", "20"],
            "Bank, 50 accounts, 50 % of the transfers with the hot one, 20 % audit;",
            &[("accounts", 50), ("hot_percent", 50), ("audit_percent", 20)],
            &[("transfer", 0.8), ("audit", 0.2)],
        ),
        (
            &["shift", "--records", "1000", "--change", "0.02", "--hot", "40"],
            "Shift, 1,000 rows, 40 % to a hot spot that changes every 0.02 s;",
            &[("records", 1000), ("hot_percent", 40)],
            &[("plain", 0.6)],
        ),
        (
            &["mixture", "--scale", "tiny"],
            "Mixture of 10 workloads, tiny scale;",
            &[],
            &[("tpcc", 0.1), ("ycsb", 0.15), ("queue", 0.05)],
        ),
    ];
    for (arguments, title, options, shares) in cases {
        let more =
            ["--seconds", "0.2", "--warmup", "0", "--rounds", "1", "-p", "dbx,2pl", "-t", "2"];
        let arguments = [&["bench"], arguments, &more, &["--verify"]].concat();
        let output = run(&arguments);
        let report = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        for word in [title, "2pl: verified"] {
            assert!(report.contains(word), "{word:?} is missing in:\n{report}");
        }
        let output = run(&[&arguments[..], &["--json", "-"]].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        for report in json.as_array().expect("an array") {
            assert_eq!(
                (&report["workload"], &report["verified"]),
                (&arguments[1].into(), &true.into())
            );
            for &(name, value) in options {
                assert_eq!(report[name], value, "{name}: {report}");
            }
            let of_type = |name: &str| {
                let counts = &report["transactions"][name];
                number(&counts["committed"]) + number(&counts["user_rollbacks"])
            };
            let all = number(&report["committed"]) + number(&report["user_rollbacks"]);
            for &(name, share) in shares {
                check_share(of_type(name), all, share, 0.2 * share);
            }
            assert!(number(&report["latency_all_us"]["p99"]) > 0.0, "{report}");
        }
    }
}

#[test]
fn rubis_runs_both_of_its_mixes_and_verifies_them() {
    let options = ["-p", "dbx,2pl", "-t", "2", "--verify"];
    let output = run(&[&SHORT_RUBIS[..], &options].concat());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for word in ["RUBiS, mix bidding, 500 users, 50 items;", "| searchregion ", "2pl: verified"] {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
    for operations in ["on", "off"] {
        let more = ["--mix", "contended", "--operations", operations, "--json", "-"];
        let output = run(&[&SHORT_RUBIS[..], &options, &more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
        for report in json.as_array().expect("an array") {
            assert_eq!(
                (&report["workload"], &report["mix"], &report["alpha"], &report["operations"]),
                (&"rubis".into(), &"contended".into(), &1.8.into(), &operations.into()),
                "{report}"
            );
            assert_eq!((&report["users"], &report["items"]), (&500.into(), &50.into()), "{report}");
            assert_eq!(report["verified"], true, "{report}");
            check_sums(report);
            let bids = number(&report["transactions"]["storebid"]["committed"]);
            check_share(bids, number(&report["committed"]), 0.5, 0.05);
        }
    }
    let output = run(&[&SHORT_RUBIS[..], &["--json", "-"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    assert_eq!((&json[0]["mix"], &json[0]["alpha"]), (&"bidding".into(), &Value::Null), "{json}");
}

#[test]
fn locks_take_turns_with_elided_locks() {
    let output = run(&[&SHORT_LOCKS[..], &["--updates", "20", "-t", "2", "--verify"]].concat());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for lock in ["occ_rwlock", "tatas", "mcs", "srwlock"] {
        for word in [format!("| {lock} "), format!("{lock}+elided: verified")] {
            assert!(report.contains(&word), "{word:?} is missing in:\n{report}");
        }
    }
    for line in report.lines().filter(|line| line.starts_with('|')) {
        // This is the width that a lock's name and rates of a hundred million need.
        assert!(line.chars().count() <= 108, "a line of over 108 columns:\n{line}");
    }
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--workload", "probe", "-l", "none,mcs"], &["none", "mcs", "mcs+elided"]),
        (&["--lock", "tatas", "--elide", "on"], &["tatas+elided"]),
        (
            &["--workload", "manager", "-l", "tatas,mcs", "--without", "pins,stack"],
            &["manager", "manager+elided"],
        ),
        (&["--workload", "manager", "--coarse"], &["manager", "manager+coarse"]),
        (&["--workload", "manager", "--mix", "standard"], &["manager", "manager+elided"]),
        (&["--workload", "map", "--theta", "0.8", "-t", "2"], &["map", "map+elided"]),
    ];
    for htm in ["auto", "software"] {
        for (options, names) in cases {
            let more = ["--htm", htm, "--verify", "--json", "-"];
            let output = run(&[&SHORT_LOCKS[..], options, &more].concat());
            assert_eq!(output.status.code(), Some(0), "{options:?}: {}", text(&output.stderr));
            let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
            let reports = json.as_array().expect("an array");
            let named: Vec<&str> =
                reports.iter().map(|report| report["protocol"].as_str().expect("a name")).collect();
            assert_eq!(named, names);
            for report in reports {
                assert_eq!(
                    (&report["workload"], &report["verified"]),
                    (&"locks".into(), &true.into())
                );
                check_sums(report);
                // If a lock is elided, the report names what replaces the regions and counts it.
                let is_elided = report["protocol"].as_str().expect("a name").contains('+');
                let backend = report["htm_backend"].as_str();
                assert_eq!(backend.is_some(), is_elided, "{report}");
                assert_eq!(
                    number(&report["htm"]["started"]) > 0.0,
                    backend == Some("rtm"),
                    "{report}"
                );
                assert_eq!(report["twin"].is_null(), backend != Some("software"), "{report}");
                assert!(htm == "auto" || backend != Some("rtm"), "{report}");
            }
        }
    }
    let output = run(&[&SHORT_LOCKS[..], &["--htm", "software", "--lock", "mcs"]].concat());
    assert!(text(&output.stdout).contains("no RTM here, so its twin runs: the locks, taken"));
}

/// If a twin replaces hardware regions, the report says so, because the results could be misread.
#[test]
fn twins_are_named_below_the_table_and_in_the_json() {
    for protocol in PROTOCOLS.iter().filter(|protocol| protocol.twin.is_some()) {
        let twin = protocol.twin.expect("it has one");
        let path = scratch(&format!("twin-of-{}.json", protocol.name));
        let file = path.to_str().expect("the path is UTF-8");
        let options = ["-p", protocol.name, "--htm", "software", "--json", file];
        let output = run(&[&SHORT_YCSB[..], &options].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(twin), "{}", text(&output.stdout));
        let json = std::fs::read(&path).expect("the file is there");
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(json[0]["twin"], twin);
    }
}

/// Protects `cargo lab bench compare` on the output of `cargo lab bench`: a file compared with itself is the same,
/// and a missed bound gives an exit code.
#[test]
fn results_are_compared() {
    let file = scratch("compared.json");
    let file = file.to_str().expect("a path of ours");
    let measured = run(&[
        "bench",
        "ycsb",
        "--protocol",
        "dbx,silo",
        "--records",
        "100",
        "--seconds",
        "0.05",
        "--warmup",
        "0",
        "--rounds",
        "1",
        "--json",
        file,
    ]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let same = run(&["bench", "compare", file, file]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    assert_eq!(text(&same.stdout).matches("the same").count(), 2, "{}", text(&same.stdout));
    let json = run(&["bench", "compare", file, file, "--json", "-"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["pairs"][1]["label"], "silo");
    assert_eq!(json["pairs"][1]["ratio"]["median"], 1.0);
    let below = run(&["bench", "compare", file, file, "--at-least", "1.5"]);
    assert_eq!(below.status.code(), Some(1));
    assert!(
        text(&below.stderr).contains("dbx: the throughput is 1.000"),
        "{}",
        text(&below.stderr)
    );
    for (arguments, words) in
        [([file, "/nowhere.json"], "nowhere"), ([file, "Cargo.toml"], "not JSON")]
    {
        let wrong = run(&[&["bench", "compare"][..], &arguments].concat());
        assert_eq!(wrong.status.code(), Some(2));
        assert!(text(&wrong.stderr).contains(words), "{}", text(&wrong.stderr));
    }
    std::fs::remove_file(file).expect("it is there");
}

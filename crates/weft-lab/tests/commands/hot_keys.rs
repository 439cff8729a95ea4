//! `cargo lab bench incr` and `cargo lab bench like` as processes, and the timelines of `cargo lab bench`.

use std::time::{Duration, Instant};

use serde_json::Value;
use weft_protocols::PROTOCOLS;

use crate::support::{check_share, number, refused, run, scratch, text};

/// Short runs of INCR and LIKE.
const SHORT_INCR: [&str; 10] =
    ["bench", "incr", "--records", "500", "--seconds", "0.04", "--warmup", "0.01", "--rounds", "2"];
const SHORT_LIKE: [&str; 12] = [
    "bench",
    "like",
    "--users",
    "500",
    "--pages",
    "300",
    "--seconds",
    "0.05",
    "--warmup",
    "0.01",
    "--rounds",
    "2",
];

/// Runs the command, asserts that it succeeds, and returns its reports.
fn reports(arguments: &[&str]) -> Vec<Value> {
    let output = run(&[arguments, &["--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    json.as_array().expect("an array").clone()
}

#[test]
fn wrong_arguments_exit_with_2_and_a_hint() {
    let percent = "from 0 to 100";
    let alpha = "a number from 0 to 5";
    refused(
        "incr",
        &[
            (&["--records", "1"], &["--records", "from 2 to 268435456"]),
            (&["--records", "268435457"], &["--records", "from 2 to 268435456"]),
            (&["--hot", "-1"], &["--hot", percent]),
            (&["--hot", "100.1"], &["--hot", percent]),
            (&["--hot", "NaN"], &["--hot", percent]),
            (&["--alpha", "-0.1"], &["--alpha", alpha]),
            (&["--alpha", "inf"], &["--alpha", alpha]),
            (&["--alpha", "1", "--hot", "10"], &["--alpha", "--hot", "cannot be used with"]),
            (&["--alpha", "1", "--change", "5"], &["--alpha", "--change", "cannot be used with"]),
            (&["--change", "-1"], &["--change", "from 0 to 86400"]),
            (&["--change", "1e-10"], &["--change", "less than a nanosecond"]),
            (&["--protocol", "none", "--threads", "2"], &["'none'", "--threads 1"]),
            (&["--protocol", "raw"], &["raw", "possible values"]),
            (&["--snapshots"], &["--snapshots"]),
            (&["--phase-length", "0"], &["--phase-length", "from 0.01 to 60000"]),
            (&["--timeline", "curve.png"], &["--timeline", ".json", ".svg"]),
            (&["--timeline", "/nowhere/at/all.svg"], &["/nowhere/at/all.svg", "--timeline"]),
        ],
    );
    refused(
        "like",
        &[
            (&["--users", "0"], &["--users", "from 1 to 268435456"]),
            (&["--pages", "-1"], &["--pages", "from 1 to 268435456"]),
            (&["--alpha", "five"], &["--alpha", alpha]),
            (&["--write", "101"], &["--write", percent]),
            (&["--write", "0.5"], &["--write", percent]),
            (&["--hot", "10"], &["--hot"]),
        ],
    );
}

#[test]
fn help_covers_the_essentials() {
    let cases: [(&str, &[&str]); 2] = [
        ("incr", &["INCR1", "INCRZ", "Figure 10", "--change", "--timeline", "- atomic:"]),
        ("like", &["likes", "--write", "alpha 1.4", "latencies"]),
    ];
    for (workload, words) in cases {
        let output = run(&["bench", workload, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        let help = text(&output.stdout);
        for word in [&["What is measured", "Examples:", "Exit code", "- dbx:"], words].concat() {
            assert!(help.contains(word), "{workload}: {word:?} is missing in:\n{help}");
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 104, "{workload}: a long line:\n{line}");
        }
    }
}

/// Protocols that only make single accesses atomic run INCR, too.
#[test]
fn every_protocol_counts_increments() {
    let all: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
    let settings: [(&[&str], &str, [Value; 3]); 4] = [
        (&[], "incr1", [100.0.into(), Value::Null, Value::Null]),
        (&["--hot", "12.5"], "incr1", [12.5.into(), Value::Null, Value::Null]),
        (&["--hot", "50", "--change", "0.02"], "incr1", [50.0.into(), 0.02.into(), Value::Null]),
        (&["--alpha", "1.4"], "incrz", [Value::Null, Value::Null, 1.4.into()]),
    ];
    for (options, distribution, [hot, change, alpha]) in settings {
        for report in
            reports(&[&SHORT_INCR[..], options, &["-p", &all.join(","), "--verify"]].concat())
        {
            assert_eq!(
                (&report["workload"], &report["distribution"], &report["records"]),
                (&"incr".into(), &distribution.into(), &500.into())
            );
            assert_eq!(
                (&report["hot_percent"], &report["change_seconds"], &report["alpha"]),
                (&hot, &change, &alpha)
            );
            assert_eq!(report["verified"], true, "{report}");
            assert!(number(&report["committed"]) > 0.0, "{report}");
            assert_eq!(report["transactions"]["increment"]["committed"], report["committed"]);
            assert!(number(&report["latency_us"]["increment"]["p50"]) > 0.0, "{report}");
        }
    }
    let single = PROTOCOLS.iter().filter(|protocol| protocol.single_key);
    for name in single.map(|protocol| protocol.name) {
        let output = run(&[&SHORT_LIKE[..], &["-p", name]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("cargo lab bench incr"), "{}", text(&output.stderr));
    }
}

#[test]
fn likes_and_reads_have_latencies_of_their_own() {
    let several = PROTOCOLS.iter().filter(|protocol| !protocol.single_key);
    let several: Vec<&str> = several.map(|protocol| protocol.name).collect();
    let options = ["-p", &several.join(","), "--write", "30", "--verify"];
    for report in reports(&[&SHORT_LIKE[..], &options].concat()) {
        assert_eq!(
            (&report["workload"], &report["users"], &report["pages"], &report["alpha"]),
            (&"like".into(), &500.into(), &300.into(), &1.4.into())
        );
        assert_eq!((&report["write_percent"], &report["verified"]), (&30.into(), &true.into()));
        let committed = |name: &str| number(&report["transactions"][name]["committed"]);
        check_share(committed("like"), number(&report["committed"]), 0.3, 0.1);
        for name in ["like", "read"] {
            assert!(number(&report["latency_us"][name]["p99"]) > 0.0, "{report}");
        }
    }
    let output = run(&[&SHORT_LIKE[..], &["-t", "2", "--verify"]].concat());
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for word in ["LIKE, 500 users, 300 pages, alpha 1.4, 50 % like", "| like ", "dbx: verified"] {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
}

/// Phases are counted, and are as long as `--phase-length` says.
#[test]
fn phases_are_reported() {
    let contended = ["--alpha", "3", "-t", "2", "--phase-length", "2", "--verify"];
    let begun = Instant::now();
    for report in reports(&[&SHORT_LIKE[..], &contended, &["-p", "doppel,silo"]].concat()) {
        assert_eq!((&report["phase_length_ms"], &report["verified"]), (&2.0.into(), &true.into()));
        let phases = &report["phases"];
        if report["protocol"] == "silo" {
            assert!(phases.is_null(), "{report}");
            continue;
        }
        assert!(number(&phases["stashed"]) <= number(&phases["refused"]), "{report}");
        assert!(number(&phases["hurried"]) <= number(&phases["split_phases"]) + 1.0, "{report}");
        let split = Duration::from_secs_f64(number(&phases["split_ms"]) / 1e3);
        assert!(split <= begun.elapsed(), "longer than the whole run: {report}");
    }
    let output = run(&[&SHORT_LIKE[..], &contended, &["-p", "doppel,silo"]].concat());
    let report = text(&output.stdout);
    for word in ["| hurried |", "reconciliations"] {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
    for line in report.lines() {
        assert!(line.chars().count() <= 100, "a line of over 100 columns:\n{line}");
    }
    let output = run(&[&SHORT_LIKE[..], &["-p", "silo"]].concat());
    assert!(!text(&output.stdout).contains("hurried"), "it has no phases");
}

/// Protects the timeline: it counts what the rounds count, interval by interval, and marks where the hot key
/// changes.
#[test]
fn a_timeline_counts_what_the_rounds_count() {
    let (json, svg) = (scratch("timeline.json"), scratch("timeline.svg"));
    let [json_file, svg_file] = [&json, &svg].map(|path| path.to_str().expect("UTF-8"));
    let options = ["--hot", "50", "--change", "0.1", "-p", "dbx,silo", "-t", "2"];
    let seconds = ["--seconds", "0.45", "--timeline", json_file, "--timeline", svg_file];
    let short = [&SHORT_INCR[..4], &SHORT_INCR[6..]].concat();
    let reports = reports(&[&short[..], &options, &seconds].concat());
    let timelines: Value =
        serde_json::from_slice(&std::fs::read(json).expect("it is there")).expect("JSON");
    let timelines = timelines.as_array().expect("an array");
    assert_eq!(timelines.len(), 2);
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().expect("an array").iter().map(number).collect()
    };
    for ((timeline, report), name) in timelines.iter().zip(&reports).zip(["dbx", "silo"]) {
        assert_eq!((&timeline["name"], &report["protocol"]), (&name.into(), &name.into()));
        let rounds = timeline["rounds"].as_array().expect("an array");
        assert_eq!(rounds.len(), 2);
        for (round, counted) in rounds.iter().zip(report["rounds"].as_array().expect("an array")) {
            let (until, committed) =
                (numbers(&round["until_seconds"]), numbers(&round["committed"]));
            assert_eq!((until.len(), committed.len()), (5, 5), "{round}");
            assert!(until.is_sorted() && until[4] >= 0.45, "{round}");
            // Transactions that a client has not reported when the last interval ends are in no interval.
            let sum: f64 = committed.iter().sum();
            let total = number(&counted["committed"]);
            assert!(0.0 < sum && sum <= total, "{round}: {counted}");
            let changes = numbers(&round["changes_seconds"]);
            let expected = number(&round["seconds"]) / 0.1;
            assert!((changes.len() as f64 - expected).abs() <= 1.0, "{round}");
            assert!(changes.windows(2).all(|pair| (pair[1] - pair[0] - 0.1).abs() < 1e-6));
        }
    }
    let svg = std::fs::read_to_string(svg).expect("it is there");
    assert_eq!(svg.matches("<polyline").count(), 4, "two rounds of two: {svg}");
    for word in ["INCR1, 500 counters", "dbx: transactions per second", "silo:", "stroke-dasharray"]
    {
        assert!(svg.contains(word), "{word:?} is missing in: {svg}");
    }
}

/// Workloads without a hot key have timelines, too.
#[test]
fn every_workload_has_timelines() {
    let json = scratch("of-ycsb.json");
    let file = json.to_str().expect("UTF-8");
    let short = [&["bench", "ycsb", "--records", "500"], &SHORT_INCR[4..]].concat();
    reports(&[&short[..], &["-p", "raw,dbx", "--timeline", file]].concat());
    let timelines: Value =
        serde_json::from_slice(&std::fs::read(json).expect("it is there")).expect("JSON");
    for (timeline, name) in timelines.as_array().expect("an array").iter().zip(["raw", "dbx"]) {
        assert_eq!(timeline["name"], name);
        let round = &timeline["rounds"][0];
        assert!(number(&round["committed"][0]) > 0.0, "{timeline}");
        assert_eq!(round["changes_seconds"], Value::Array(vec![]));
    }
}

//! What the threads of a queue wait, and how long `adaptive` takes to decide, as processes.

use serde_json::Value;

use crate::support::{number, run, text};

const QUEUE: [&str; 13] = [
    "bench",
    "queue",
    "--seconds",
    "0.2",
    "--warmup",
    "0",
    "--rounds",
    "2",
    "-p",
    "dbx,2pl",
    "-t",
    "3",
    "--backlog=100",
];

#[test]
fn queue_reports_what_each_thread_got() {
    let output = run(&QUEUE);
    let told = text(&output.stdout);
    assert!(told.contains("max/mean") && told.contains("greatest latency"), "{told}");
    for row in ["| dbx      | produce     | 2 ", "| 2pl      | consume     | all "] {
        assert!(told.contains(row), "{row:?} is missing in:\n{told}");
    }
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    let output = run(&[&QUEUE[..], &["--json", "-"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    for report in json.as_array().expect("an array") {
        for kind in ["produce", "consume"] {
            let fairness = &report["fairness"][kind];
            let threads = fairness["threads"].as_array().expect("an array");
            assert_eq!(threads.len(), 3, "{fairness}");
            let sum = |key: &str| threads.iter().map(|thread| number(&thread[key])).sum::<f64>();
            assert_eq!(sum("committed"), number(&report["transactions"][kind]["committed"]));
            assert!((sum("share") - 1.0).abs() < 1e-9, "{fairness}");
            let longest =
                threads.iter().map(|thread| number(&thread["max_us"])).fold(0.0, f64::max);
            // The histogram of all has three significant digits, as those of the threads.
            let all = number(&report["latency_us"][kind]["max"]);
            assert!((longest - all).abs() <= 0.002 * all, "{longest} {all}");
            assert!(number(&fairness["greatest_by_mean"]) >= 1.0, "{fairness}");
        }
    }
}

const SHIFT: [&str; 14] = [
    "bench",
    "shift",
    "--records",
    "1000",
    "--hot",
    "90",
    "--change",
    "0.1",
    "--seconds",
    "2",
    "--rounds",
    "1",
    "-t",
    "4",
];

#[test]
fn shift_reports_the_reaction_to_each_change() {
    let arguments = [&SHIFT[..], &["--reaction", "-p", "adaptive,adaptive:nothing"]].concat();
    let output = run(&[&arguments[..], &["--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    let [adaptive, nothing] = &json.as_array().expect("an array")[..] else { panic!("{json}") };
    let kinds = |contender: &Value| contender["reactions"].as_array().expect("an array").clone();
    for contender in [adaptive, nothing] {
        let kinds = kinds(contender);
        let names: Vec<&str> =
            kinds.iter().map(|kind| kind["kind"].as_str().expect("text")).collect();
        assert_eq!(names, ["add", "modify", "take", "all"]);
        let changes: Vec<f64> = kinds.iter().map(|kind| number(&kind["changes"])).collect();
        assert_eq!(changes[3], changes[..3].iter().sum::<f64>(), "{contender}");
        assert!(changes[3] > 0.0, "{contender}");
    }
    for kind in kinds(nothing) {
        assert_eq!(kind["not_decided"], kind["changes"], "{kind}: nothing is ever done");
    }
    let output = run(&arguments);
    let told = text(&output.stdout);
    assert!(told.contains("| adaptive:nothing | take ") && told.contains("greatest ms"), "{told}");
}

#[test]
fn reaction_of_protocols_that_decide_nothing_is_refused() {
    let output = run(&[&SHIFT[..], &["--reaction", "-p", "adaptive,silo"]].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("'silo'") && message.contains("adaptive"), "{message}");
}

//! `cargo lab bench map` as a process.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{number, run, scratch, text, written};

fn json(path: &Path) -> Value {
    let written = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&written).expect("it is JSON")
}

/// One point on this machine, for a tenth of its time; then again, which measures nothing.
#[test]
fn map_is_measured_drawn_and_continued() {
    let directory = scratch("map");
    fs::create_dir_all(&directory).expect("it can be made");
    let (results, picture) = (directory.join("map.json"), directory.join("map.svg"));
    let (out, svg) = (results.to_str().expect("text"), picture.to_str().expect("text"));
    let arguments = [
        "bench",
        "map",
        "--quick",
        "--real",
        "--points",
        "queue",
        "--time",
        "0.1",
        "--candidate",
        "silo",
        "--out",
        out,
        "--svg",
        svg,
    ];
    let told = written(&arguments);
    for word in [
        "Queue, 2 threads",
        "Queue, 8 threads",
        "| htm-naive ",
        "aborts/commit",
        "silo / ",
        "7 pairs",
        "p99 latency: ",
    ] {
        assert!(told.contains(word), "{word:?} is missing in:\n{told}");
    }
    let found = json(&results);
    assert_eq!((&found["candidate"], &found["is_quick"]), (&"silo".into(), &true.into()));
    let places = found["places"].as_array().expect("places");
    assert_eq!(places.len(), 2, "{found}");
    for place in places {
        let protocols = place["protocols"].as_array().expect("protocols");
        assert!(protocols.len() >= 12, "{place}");
        assert_eq!(protocols[0]["protocol"], "silo", "the candidate comes first");
        let others = &protocols[1..];
        let rival = others.iter().find(|other| other["protocol"] == place["rival"]);
        let rival = number(&rival.expect("the rival was measured")["throughput"]);
        assert!(others.iter().all(|other| number(&other["throughput"]) <= rival), "{place}");
        let pairs = place["pairs"].as_array().expect("pairs");
        assert_eq!(pairs.len(), 7, "{place}");
        // So short a round has no sample if the machine is busy.
        let has_latencies = |pair: &Value| {
            let keys = ["candidate_p99_us", "rival_p99_us"];
            keys.iter().all(|key| pair[key].as_f64().is_some_and(|us| us > 0.0))
        };
        assert!(pairs.iter().any(has_latencies), "{place}");
        assert_eq!(place["failure"], Value::Null, "{place}");
    }
    let drawn = fs::read_to_string(&picture).expect("there is a picture");
    assert!(drawn.contains("this machine, 8 threads") && drawn.contains("Queue"), "{drawn}");

    // Without --resume, results are not overwritten. With it, nothing is measured again.
    let refused = run(&arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--resume"), "{refused:?}");
    let told = written(&[&arguments[..], &["--resume"]].concat());
    assert!(!told.contains("| silo"), "no table: {told}");
    assert!(told.contains("geometric mean of 2 places") && told.contains("the lowest:"), "{told}");
    let latency = "p99 latency of silo / of the best of the others, on this machine: ";
    assert!(told.contains(latency) && told.contains("above 2"), "{told}");
    assert_eq!(json(&results), found);
    // Results of another kind of run cannot be continued.
    let other = run(&["bench", "map", "--real", "--points", "queue", "--out", out, "--resume"]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let message = text(&other.stderr);
    assert!(message.contains("a quick run") && message.contains("'silo'"), "{message}");
}

/// The program given is not a simulator, so each of its runs fails.
#[test]
fn runs_that_fail_are_told_and_fail_the_command() {
    let impostor = env!("CARGO_BIN_EXE_weft-lab");
    let arguments = ["bench", "map", "--quick", "--simulated", "--points", "bank"];
    let output = run(&[&arguments[..], &["--simulator", impostor]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.contains("SIMULATED") && told.contains("unrecognized subcommand"), "{told}");
    assert!(text(&output.stderr).contains("at 1 place"), "{output:?}");
}

#[test]
fn impossible_maps_are_refused_before_any_run() {
    for (arguments, expected) in [
        (&["--points", "calvin"][..], &["'calvin'", "tpcc-1", "shift"][..]),
        (&["--candidate", "calvin"], &["calvin", "dbx"]),
        (&["--resume"], &["--out"]),
        (&["--real", "--simulated"], &["--simulated"]),
        (&["--simulated", "--simulator", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["--real", "--out", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["--real", "--svg", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["--jobs", "0"], &["--jobs"]),
    ] {
        let output = run(&[&["bench", "map"], arguments].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(expected.iter().all(|word| message.contains(word)), "{arguments:?}: {message}");
    }
}

/// One contended point and a cold one, for a hundredth of their time.
#[test]
fn ablation_compares_adaptive_with_variants() {
    let arguments = ["bench", "map", "--ablation", "--points", "like-50,incr-0", "--time", "0.01"];
    let told = written(&arguments);
    let cells = |title: &str| -> Vec<String> {
        let line = told.lines().find(|line| line.starts_with(&format!("| {title} ")));
        let line = line.unwrap_or_else(|| panic!("no {title:?} in:\n{told}"));
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let head = ["kind", "unordered", "by-records", "held", "unsplit", "nothing"];
    assert_eq!(cells("point")[2..8], head, "{told}");
    let cold = cells("INCR, 0 % hot");
    assert_eq!(cold[2], "cold");
    assert!(
        cold[3..8].iter().all(|gain| gain.parse::<f64>().is_ok_and(|gain| gain > 0.0)),
        "{told}"
    );
    let like = cells("LIKE, 50 % like");
    assert_eq!(
        (&like[2..6], &*like[7]),
        (&["contended", "-", "-", "-"].map(String::from)[..], "-")
    );
    assert!(like[6].parse::<f64>().is_ok(), "{told}");
    let refused = run(&["bench", "map", "--ablation", "--points", "bank"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--points"), "{refused:?}");
}

#[test]
fn list_shows_places_and_their_time() {
    let quick = written(&["bench", "map", "--list", "--quick"]);
    assert!(
        quick.contains("queue, 2 threads") && quick.contains("queue, 8 simulated cores"),
        "{quick}"
    );
    assert!(!quick.contains("tpcc-2,"), "{quick}");
    let full = written(&["bench", "map", "--list"]);
    assert!(
        full.contains("incr-100, 80 simulated cores") && full.contains("tpcc-2, 8 threads"),
        "{full}"
    );
    for place in [
        "tpcc-1, 8 simulated cores of haswell-4c8t ",
        "tpcc-4, 80 simulated cores ",
        "rubis-c, 20 simulated cores ",
        "incr-100, 20 simulated cores ",
        "flash-sale-1, 20 simulated cores ",
    ] {
        assert!(full.contains(place) && !quick.contains(place), "{place:?} in {full}");
    }
    assert!(full.lines().last().is_some_and(|line| line.contains("minutes")), "{full}");
}

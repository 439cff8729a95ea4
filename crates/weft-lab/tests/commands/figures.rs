//! `cargo lab figures`: the files that it makes, and the arguments that it rejects.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{run, scratch, text};

fn json(path: &Path) -> Value {
    let written = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&written).expect("it is JSON")
}

/// Uses an analysis of procedures, which takes no time and gives the same result on every machine.
#[test]
fn figure_is_made_again_from_stored_results() {
    let out = scratch("figures-chopped");
    let directory = out.to_str().expect("the path is text");
    let arguments =
        ["figures", "--paper", "dbx-tc", "--figure", "10", "--out", directory, "--quick"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.contains("dbx-tc-figure-10        agrees, 3 of 3 expectations hold"), "{told}");

    let figure = json(&out.join("dbx-tc-figure-10.json"));
    assert_eq!(figure["verdict"], "agrees", "{figure}");
    assert_eq!(figure["points"].as_array().map(Vec::len), Some(2), "{figure}");
    assert_eq!(figure["points"][0]["command"], "cargo lab chop tpcc --json --default");
    let svg = fs::read_to_string(out.join("dbx-tc-figure-10.svg")).expect("there is a picture");
    assert!(svg.contains("DBX-TC, Figure 10"), "{svg}");
    assert!(out.join("dbx-tc-figure-10.csv").is_file());
    let table = fs::read_to_string(out.join("results.md")).expect("there is a table");
    assert!(table.contains("| [DBX-TC Figure 10](./dbx-tc-figure-10.svg) |"), "{table}");
    let page = fs::read_to_string(out.join("index.html")).expect("there is a page");
    assert!(page.contains("id=\"dbx-tc-figure-10\""), "{page}");

    // Results that are there are used as they are, even changed ones, so nothing was run.
    let data = || fs::read_dir(out.join("data")).expect("there are results");
    assert_eq!(data().count(), 2, "Figure 11 is of the same runs");
    for file in data().map(|file| file.expect("it can be read").path()) {
        let written = fs::read_to_string(&file).expect("it is text");
        let mut kept: Value = serde_json::from_str(&written).expect("it is JSON");
        let pieces = kept["report"]["procedures"][0]["pieces"].as_array_mut().expect("pieces");
        pieces.extend(vec![Value::Null; 40]);
        fs::write(&file, kept.to_string()).expect("it can be written");
    }
    assert_eq!(run(&arguments).status.code(), Some(0));
    let figure = json(&out.join("dbx-tc-figure-10.json"));
    assert_eq!(figure["verdict"], "agrees in part", "{figure}");
    // `--again` runs everything again.
    assert_eq!(run(&[&arguments[..], &["--again"]].concat()).status.code(), Some(0));
    assert_eq!(json(&out.join("dbx-tc-figure-10.json"))["verdict"], "agrees");
    // A figure that was not asked for, but shares the results, is on the page.
    let page = fs::read_to_string(out.join("index.html")).expect("there is a page");
    assert!(page.contains("id=\"dbx-tc-figure-11\""), "{page}");
}

/// A figure that cannot be measured here is on the page all the same, with the reason.
#[test]
fn a_figure_that_is_not_measured_is_not_left_out() {
    let out = scratch("figures-not-measured");
    let directory = out.to_str().expect("the path is text");
    let output = run(&["figures", "--paper", "no-free-lunch", "--figure", "1", "--out", directory]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.contains("no-free-lunch-figure-1  not measured: "), "{told}");
    assert!(out.join("no-free-lunch-figure-1.csv").is_file());
    assert!(!out.join("no-free-lunch-figure-1.svg").exists(), "there is nothing to draw");
    let table = fs::read_to_string(out.join("results.md")).expect("there is a table");
    let row = table.lines().find(|line| line.starts_with("| No Free Lunch Figure 1 |"));
    assert!(row.is_some_and(|row| row.ends_with("| not measured |")), "{table}");
    let page = fs::read_to_string(out.join("index.html")).expect("there is a page");
    assert!(page.contains("Not measured: "), "{page}");
}

/// One real figure with one or two threads, for a fiftieth of its time.
#[test]
fn a_benchmark_becomes_a_figure() {
    let out = scratch("figures-measured");
    let directory = out.to_str().expect("the path is text");
    let arguments = ["figures", "--paper", "dbx", "--figure", "14", "--real", "--time", "0.02"];
    let output = run(&[&arguments[..], &["--with=--scale=tiny", "--out", directory]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let figure = json(&out.join("dbx-figure-14.json"));
    assert_eq!(
        (&figure["machine"], &figure["simulated"]),
        (&"this machine".into(), &false.into()),
        "{figure}"
    );
    for point in figure["points"].as_array().expect("points") {
        assert_eq!(point["failure"], Value::Null, "{point}");
        let number = point["numbers"]["throughput, tx/s"].as_f64();
        assert!(number.is_some_and(|number| number > 0.0), "{point}");
    }
    let csv = fs::read_to_string(out.join("dbx-figure-14.csv")).expect("there are numbers");
    assert!(
        csv.lines().count() > 4 && csv.contains("cargo lab bench tpcc --threads-per-warehouse 2"),
        "{csv}"
    );
}

/// The program given is not a simulator, so each of its runs fails; the figure shows the failures.
#[test]
fn runs_that_fail_are_shown_and_fail_the_command() {
    let out = scratch("figures-failed");
    let directory = out.to_str().expect("the path is text");
    let impostor = env!("CARGO_BIN_EXE_weft-lab");
    let arguments = ["figures", "--paper", "dbx", "--figure", "5", "--simulated"];
    let output = run(&[&arguments[..], &["--simulator", impostor, "--out", directory]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("9 runs failed"), "{output:?}");
    assert!(text(&output.stdout).contains("0 of 9 points"), "{output:?}");
    let page = fs::read_to_string(out.join("index.html")).expect("there is a page");
    assert!(page.contains("Points that are missing"), "{page}");
    assert!(page.contains("unrecognized subcommand"), "in the program's own words: {page}");
    assert!(out.join("dbx-figure-5.svg").is_file());
}

#[test]
fn impossible_requests_are_refused_before_any_run() {
    let out = scratch("figures-refused");
    let directory = out.to_str().expect("the path is text");
    for (arguments, expected) in [
        (&["--figure", "99", "--out", directory][..], &["'99'", "table-1", "--list"][..]),
        (&["--paper", "calvin", "--out", directory], &["dbx-tc", "no-free-lunch"]),
        (&["--quick"], &["--out"]),
        (&["--real", "--simulated", "--out", directory], &["--simulated"]),
        (&["--quick", "--full", "--out", directory], &["--quick"]),
        (
            &[
                "--paper",
                "dbx",
                "--figure",
                "5",
                "--simulated",
                "--out",
                directory,
                "--simulator",
                "/nowhere/at/all",
            ],
            &["/nowhere/at/all"],
        ),
        (&["--jobs", "0", "--out", directory], &["--jobs"]),
    ] {
        let output = run(&[&["figures"], arguments].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(expected.iter().all(|word| message.contains(word)), "{arguments:?}: {message}");
    }
    assert!(!out.exists(), "nothing was written");
}

#[test]
fn list_shows_figures_and_their_machines() {
    let output = run(&["figures", "--list", "--simulated"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed = text(&output.stdout);
    for expected in [
        "htcc-figure-14          throughput, 4 warehouses: xeon-e7-4x10, 24 points, about",
        "dbx-tc-figure-13b       throughput with a log, TPC-C: not measured with these options",
        "no-free-lunch-figure-1  elision by the pthread library: not measured",
        "Together about",
    ] {
        assert!(listed.contains(expected), "{expected} in {listed}");
    }
    assert!(!listed.contains("-0 s"), "{listed}");
    let one = run(&["figures", "--list", "--paper", "doppel", "--figure", "table-1"]);
    assert_eq!(text(&one.stdout).matches("doppel-").count(), 1, "{one:?}");
}

//! `cargo lab procedures` as a process.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{run, written};

#[test]
fn new_order_matches_its_profile() {
    let text = written(&["procedures", "tpcc", "--procedure", "new_order"]);
    assert_eq!(text, include_str!("golden/new_order.txt"), "{text}");
}

/// Both forms of the transaction: with a commutative operation, its steps do not depend on each other.
#[test]
fn comments_are_added_by_an_operation_or_by_reading() {
    let mut text = written(&["procedures", "articles", "--procedure", "add_comment"]);
    text.push('\n');
    text += &written(&["procedures", "articles", "--procedure", "add_comment_by_reading"]);
    assert_eq!(text, include_str!("golden/add_comment.txt"), "{text}");
}

/// The help's example is the command's actual output.
#[test]
fn the_help_shows_a_payment() {
    let payment = written(&["procedures", "tpcc", "-p", "payment"]);
    let help = written(&["procedures", "--help"]);
    for line in payment.lines() {
        assert!(help.contains(line), "{line:?} in {help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn every_workload_has_its_procedures_in_every_form() {
    for (workload, procedures) in [
        ("articles", 5),
        ("bank", 2),
        ("flash-sale", 4),
        ("incr", 1),
        ("like", 2),
        ("queue", 2),
        ("rubis", 19),
        ("shift", 4),
        ("tatp", 7),
        ("tpcc", 5),
    ] {
        let of_format = |format| written(&["procedures", workload, "--format", format]);
        let text = of_format("text");
        assert_eq!(text.split("\n\n").count(), procedures, "{text}");

        let json: Value = serde_json::from_str(&of_format("json")).expect("it is JSON");
        let all = json.as_array().expect("an array");
        assert_eq!(all.len(), procedures);
        let steps: Vec<&Value> =
            all.iter().flat_map(|it| it["steps"].as_array().expect("an array")).collect();
        assert!(steps.iter().all(|step| step["table"].is_string() && step["line"].is_u64()));

        let dot = of_format("dot");
        assert!(dot.starts_with("digraph ") && dot.ends_with("}\n"), "{dot}");
        assert_eq!(dot.matches('{').count(), dot.matches('}').count(), "{dot}");
        // One label for each step; graphs and loops have labels without numbers.
        assert_eq!(dot.matches("[label=\"").count(), steps.len(), "{dot}");

        let svg = of_format("svg");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    }
}

#[test]
fn a_stock_level_reads_districts_by_their_column() {
    let json = written(&["procedures", "tpcc", "-p", "stock_level", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let first = &json[0]["steps"][0];
    assert_eq!((&first["table"], &first["access"]), (&"district".into(), &"read".into()));
    assert_eq!(first["reads"], serde_json::json!(["d_next_o_id"]));
    assert_eq!(first["writes"], serde_json::json!([]));
    assert_eq!(json[0]["steps"][1]["keys"], serde_json::json!([{"on": 0, "carried": null}]));
}

#[test]
fn a_file_is_written_in_place_of_the_output() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("procedures.svg");
    let file = path.to_str().expect("a plain path");
    let svg = ["procedures", "tatp", "--format", "svg"];
    assert_eq!(written(&[&svg[..], &["--out", file]].concat()), "");
    assert_eq!(std::fs::read_to_string(&path).expect("it was written"), written(&svg));
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    for (arguments, expected) in [
        (&["procedures", "ycsb"][..], &["ycsb", "incr", "tpcc"][..]),
        (&["procedures", "tpcc", "-p", "neworder"], &["neworder", "new_order", "stock_level"]),
        (&["procedures", "tpcc", "--format", "png"], &["png", "text", "svg"]),
        (&["procedures", "like", "--out", "/nowhere/at/all"], &["/nowhere/at/all", "--out"]),
    ] {
        let output = run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(expected.iter().all(|word| errors.contains(word)), "{arguments:?}: {errors}");
    }
}

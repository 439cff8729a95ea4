//! The commands and protocols that `weft` has, and those that only `weft-lab` has.

use crate::support::{refused, run, text, written};

#[test]
fn tpcc_runs_under_the_protocols_of_an_application() {
    let report = written(&[
        "bench",
        "tpcc",
        "--protocol",
        "dbx,silo,2pl",
        "--scale",
        "tiny",
        "--seconds",
        "0.05",
        "--warmup",
        "0",
        "--rounds",
        "1",
        "--threads",
        "2",
        "--verify",
    ]);
    for protocol in ["| dbx ", "| silo ", "| 2pl "] {
        assert!(report.contains(protocol), "{protocol}: {report}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn tpcc_prints_its_results_if_the_json_cannot_be_written() {
    let scale = ["--scale", "tiny", "--seconds", "0.02", "--warmup", "0", "--rounds", "1"];
    let output = run(&[&["bench", "tpcc", "--json", "/dev/full"], &scale[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("cannot write '/dev/full'"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("| dbx "), "{}", text(&output.stdout));
}

#[test]
fn other_protocols_are_refused_by_name() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--protocol", "htcc"], &["'htcc'", "dbx", "silo", "2pl"]),
        (&["--protocol", "none"], &["'none'", "dbx"]),
    ];
    refused("tpcc", cases);
}

#[test]
fn help_lists_only_available_commands_and_options() {
    let help = run(&["bench", "tpcc", "--help"]);
    let help = text(&help.stdout);
    assert!(help.contains("silo") && !help.contains("doppel"), "{help}");
    assert!(!help.contains("--hot-tables") && !help.contains("--phase-length"), "{help}");
    let help = run(&["--help"]);
    let help = text(&help.stdout);
    for command in ["bench", "check", "log", "recover", "export", "import", "dump", "restore"] {
        assert!(help.contains(command), "{command}: {help}");
    }
}

//! `weft report`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use weft::{Database, Record};
use weft_inspect::{FLIGHT_FILE, FlightOptions, PREVIOUS_FLIGHT_FILE};

use crate::support::{run, text, written};

#[derive(Clone, Record)]
#[record(table = "pages")]
struct Page {
    #[record(key)]
    id: u32,
    views: u64,
}

/// A database's directory with two recordings, which is removed at the end of a test.
struct Recorded(PathBuf);

impl Recorded {
    fn new(test: &str) -> Recorded {
        let name = format!("weft-report-{test}-{}", std::process::id());
        let recorded = Recorded(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&recorded.0);
        let builder = Database::builder().table::<Page>().directory(&recorded.0);
        let database = builder.open().unwrap();
        let pages = database.table::<Page>().unwrap();
        for recording in 0..2 {
            let options = FlightOptions::new().interval(Duration::from_secs(1000));
            let recorder = options.start(&database).unwrap();
            database.transact(|tx| tx.insert(&pages, Page { id: recording, views: 0 })).unwrap();
            drop(recorder);
        }
        recorded
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_recording_is_shown_as_text_json_and_page() {
    let recorded = Recorded::new("shown");
    let shown = written(&["report", recorded.path()]);
    for part in
        ["FLIGHT: 2 reports, from 20", "committed/s", "The last report:", "dbx: 2 committed"]
    {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    let shown = written(&["report", recorded.path(), "--previous", "--json"]);
    let json: Value = serde_json::from_str(&shown).unwrap();
    let committed: Vec<_> = json["reports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|report| report["totals"]["committed"].as_u64().unwrap())
        .collect();
    assert_eq!(committed, [0, 1]);
    assert!(json["file"].as_str().unwrap().ends_with(PREVIOUS_FLIGHT_FILE));
    let page = recorded.0.join("page.html");
    let file = recorded.0.join(FLIGHT_FILE);
    let arguments = ["report", file.to_str().unwrap(), "--page", page.to_str().unwrap()];
    assert_eq!(written(&arguments), "");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"committed\":2"));
}

#[test]
fn a_damaged_record_is_skipped_with_a_message() {
    let recorded = Recorded::new("damaged");
    let file = recorded.0.join(FLIGHT_FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    // In the first report.
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let shown = written(&["report", recorded.path()]);
    assert!(shown.contains("FLIGHT: 1 report\n"), "{shown}");
    assert!(shown.contains("skipped: the record at byte 16 is torn or damaged"), "{shown}");
}

#[test]
fn other_files_are_refused() {
    let recorded = Recorded::new("other");
    let other = recorded.0.join("MANIFEST");
    for (file, expected) in [
        (other.to_str().unwrap(), "is not a file of a flight recorder"),
        ("/no/such/file", "cannot read /no/such/file"),
    ] {
        let output = run(&["report", file]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}

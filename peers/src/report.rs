//! The results: as a table in Markdown, as JSON, and in README.md.

use std::fmt::Write;

use serde::Serialize;

use crate::machine::Machine;
use crate::round::Round;
use crate::store::Result;
use crate::systems::{System, WorkloadName};
use crate::turns::Speed;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The length of a round.
    pub seconds: f64,
    /// The number of planned rounds.
    pub rounds: usize,
    /// The results, column by column.
    pub cells: Vec<Cell>,
}

/// The result of one system under one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The system.
    pub system: System,
    /// The workload.
    pub workload: WorkloadName,
    /// The number of threads.
    pub threads: usize,
    /// The speed.
    pub speed: Speed,
    /// All rounds, including those that are thrown away.
    pub rounds: Vec<Round>,
}

impl Report {
    /// Returns the table in Markdown, with a line below it that names the machine and the versions.
    pub fn markdown(&self) -> String {
        let mut columns: Vec<(WorkloadName, usize)> = Vec::new();
        let mut systems: Vec<System> = Vec::new();
        for cell in &self.cells {
            let column = (cell.workload, cell.threads);
            if !columns.contains(&column) {
                columns.push(column);
            }
            if !systems.contains(&cell.system) {
                systems.push(cell.system);
            }
        }

        let mut text = "| transactions per second |".to_owned();
        for (workload, threads) in &columns {
            let _ = write!(text, " {} |", column_title(*workload, *threads));
        }
        text += "\n| --- |";
        text += &" ---: |".repeat(columns.len());
        text += "\n";
        for &system in &systems {
            let _ = write!(text, "| {} |", system.title());
            for &column in &columns {
                let _ = write!(text, " {} |", self.cell_text(system, column));
            }
            text += "\n";
        }
        text + "\n" + &self.caption(&systems)
    }

    fn cell_text(&self, system: System, column: (WorkloadName, usize)) -> String {
        let is_it = |cell: &&Cell| cell.system == system && (cell.workload, cell.threads) == column;
        let Some(cell) = self.cells.iter().find(is_it) else { return "–".to_owned() };
        let mark = if cell.speed.is_disturbed { "\\*" } else { "" };
        format!("{}{mark}", rate(cell.speed.per_second.median))
    }

    fn caption(&self, systems: &[System]) -> String {
        let Machine { processor, processors, system, rustc } = &self.machine;
        let cores = counted(*processors, "core");
        let mut text =
            format!("k: thousand, M: million. {cores} of {processor}, {system}, rustc {rustc}");
        for version in systems.iter().filter_map(|system| system.version()) {
            let _ = write!(text, ", {version}");
        }
        let rounds = counted(self.rounds, "round");
        let _ = write!(text, ". Medians of {rounds} of {} s.", self.seconds);
        if self.cells.iter().any(|cell| cell.speed.is_disturbed) {
            text += " \\*: other processes computed at the same time.";
        }
        text + "\n"
    }

    /// Returns the results as JSON.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Returns the title of a column, such as `transfers, 2 threads`.
pub fn column_title(workload: WorkloadName, threads: usize) -> String {
    format!("{}, {}", workload.title(), counted(threads, "thread"))
}

/// Returns a number with a noun, such as `1 thread` or `2 threads`.
pub fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns a rate with three digits: `12.3 M`, `456 k`, `7.89 k`.
pub fn rate(per_second: f64) -> String {
    // The unit is chosen for the rounded number: 999,600 is 1.00 M.
    let (value, unit) =
        if per_second < 999_500.0 { (per_second / 1e3, "k") } else { (per_second / 1e6, "M") };
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

const BEGIN: &str = "<!-- speeds -->\n";
const END: &str = "<!-- /speeds -->";

/// Replaces what is between the marks for the table in a text.
///
/// # Errors
/// A mark is missing.
pub fn replace_table(text: &str, table: &str) -> Result<String> {
    let missing = |mark: &str| format!("the line {} is missing", mark.trim());
    let begin = text.find(BEGIN).ok_or_else(|| missing(BEGIN))? + BEGIN.len();
    let end = begin + text[begin..].find(END).ok_or_else(|| missing(END))?;
    Ok(format!("{}\n{table}\n{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(system: System, threads: usize, rate: f64, others: f64) -> Cell {
        let rounds = vec![Round { rate, seconds: 0.5, others, is_late: false }];
        let speed = Speed::of(&rounds, 1).expect("there is a round");
        Cell { system, workload: WorkloadName::Counter, threads, speed, rounds }
    }

    fn report(cells: Vec<Cell>) -> Report {
        let machine =
            Machine { processor: "Fast".to_owned(), processors: 2, system: "linux", rustc: "1.0" };
        Report { machine, seconds: 0.5, rounds: 1, cells }
    }

    #[test]
    fn rates_have_three_digits() {
        let rates = [7_891.0, 45_600.0, 456_000.0, 999_600.0, 1_234_567.0, 12_345_678.0, 1.5e8];
        let texts = ["7.89 k", "45.6 k", "456 k", "1.00 M", "1.23 M", "12.3 M", "150 M"];
        assert_eq!(rates.map(rate), texts);
        assert_eq!(rate(9_996.0), "10.0 k");
        assert_eq!(rate(0.0), "0.00 k");
    }

    #[test]
    fn table_has_a_row_for_each_system_and_a_column_for_each_number_of_threads() {
        let cells = vec![
            cell(System::Weft, 1, 12_345_678.0, 0.0),
            cell(System::Mutex, 1, 456_000.0, 0.0),
            cell(System::Weft, 2, 23_456_789.0, 0.5),
        ];
        let expected = "\
| transactions per second | hot counter, 1 thread | hot counter, 2 threads |
| --- | ---: | ---: |
| **Weft** | 12.3 M | 23.5 M\\* |
| `Mutex<HashMap>` | 456 k | – |

k: thousand, M: million. 2 cores of Fast, linux, rustc 1.0. Medians of 1 round of 0.5 s. \\*: other processes \
computed at the same time.
";
        assert_eq!(report(cells).markdown(), expected);
    }

    #[test]
    fn caption_names_the_versions() {
        let text = report(vec![cell(System::Redb, 1, 1.0, 0.0)]).markdown();
        assert!(text.contains(", redb 4."), "{text}");
        assert!(!text.contains("other processes"), "{text}");
    }

    #[test]
    fn json_has_every_round() {
        let json = report(vec![cell(System::Redb, 1, 1.0, 0.0)]).json().expect("it has no maps");
        let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(value["cells"][0]["system"], "redb");
        assert_eq!(value["cells"][0]["rounds"][0]["rate"], 1.0);
    }

    #[test]
    fn only_the_table_is_replaced() {
        let text = "before\n<!-- speeds -->\nold\n<!-- /speeds -->\nafter\n";
        let replaced = "before\n<!-- speeds -->\n\nnew\n\n<!-- /speeds -->\nafter\n";
        assert_eq!(replace_table(text, "new\n").expect("both marks exist"), replaced);
        assert!(replace_table("before <!-- /speeds -->", "new").is_err());
        assert!(replace_table("<!-- speeds -->\n", "new").is_err());
    }

    #[test]
    fn readme_has_the_marks() {
        let readme = std::fs::read_to_string(crate::readme_path()).expect("the file exists");
        replace_table(&readme, "new").expect("it has both marks");
    }
}

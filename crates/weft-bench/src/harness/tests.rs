//! Tests of the harness from end to end, with a workload of two transactions on one row.

use std::io;
use std::path::PathBuf;

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table};
use weft_protocols::with_protocol;
use weft_workloads::snapshots::Snapshots;
use weft_workloads::workload::{Condition, LoadOptions, Outcome, Progress, Workload};

use super::compare::Measurement;
use super::contender::{Benchmark, Contender, Variant, load_under};
use super::{Subject, run};
use crate::arguments::{AcknowledgeName, BenchArguments, Observation};
use crate::stop::Stop;

/// The table's row; there is only one, with key 0.
#[derive(Clone, Copy, Record)]
#[record(table = "counters", storage = "hash")]
struct Counter {
    #[record(key)]
    id: u64,
    value: u64,
}

/// What goes wrong, and in which transaction of the first client.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    Nothing,
    Failure { after: u64 },
    Panic { after: u64 },
    LostUpdate,
}

/// A workload that adds 1 to the counter; each fourth addition is rolled back, and each eighth transaction reads.
struct Counting<P: Protocol> {
    database: Database<P>,
    counters: Table<Counter>,
    trouble: Trouble,
    added: Word,
}

struct CountingClient {
    thread: usize,
    executed: u64,
}

/// Why a transaction of the workload did not commit.
enum Ending {
    Engine(Error),
    RolledBack,
}

impl From<Error> for Ending {
    fn from(error: Error) -> Self {
        Ending::Engine(error)
    }
}

impl<P: Protocol> Workload<P> for Counting<P> {
    const NAME: &'static str = "counting";
    const TRANSACTIONS: &'static [&'static str] = &["never", "add", "read"];
    type Parameters = Trouble;
    type Client = CountingClient;

    fn declare(_trouble: &Trouble, builder: Builder<P>) -> Builder<P> {
        builder.table::<Counter>()
    }

    fn fill(
        database: Database<P>,
        trouble: &Trouble,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let counters = database.table::<Counter>()?;
        let row = Counter { id: 0, value: 0 };
        database
            .transact(|tx| -> Result<(), Error> { tx.insert(&counters, row) })
            .map_err(failure)?;
        (options.progress)(1, 1);
        Ok(Counting { database, counters, trouble: *trouble, added: Word::new(0) })
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, _seed: u64, thread: usize, _threads: usize) -> CountingClient {
        CountingClient { thread, executed: 0 }
    }

    fn execute(&self, client: &mut CountingClient) -> Result<Outcome, Failure> {
        client.executed += 1;
        match self.trouble {
            Trouble::Failure { after } if client.thread == 0 && client.executed == after => {
                return Err(Failure::Closed);
            }
            Trouble::Panic { after } if client.thread == 0 && client.executed == after => {
                panic!("asked for by the test");
            }
            _ => {}
        }
        if client.executed.is_multiple_of(8) {
            self.database
                .transact(|tx| tx.get(&self.counters, &0).map(|row| row.map(|row| row.value)))
                .map_err(failure)?;
            return Ok(Outcome::new(2, false));
        }
        let rolls_back = client.executed.is_multiple_of(4);
        let ended = self.database.transact(|tx| -> Result<(), Ending> {
            tx.update(&self.counters, &0, |row| row.value += 1)?;
            if rolls_back { Err(Ending::RolledBack) } else { Ok(()) }
        });
        match ended {
            Ok(()) => {
                // Relaxed: only the sum matters, and it is read after the threads are joined.
                self.added.fetch_add(1, Ordering::Relaxed);
            }
            Err(Ending::RolledBack) => {}
            Err(Ending::Engine(error)) => return Err(failure(error)),
        }
        Ok(Outcome::new(1, rolls_back))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let found = self
            .database
            .transact(|tx| tx.get(&self.counters, &0).map(|row| row.map_or(0, |row| row.value)))
            .map_err(failure)?;
        progress(1, 1);
        let lost = u64::from(self.trouble == Trouble::LostUpdate);
        // Relaxed: see `execute`.
        let expected = self.added.load(Ordering::Relaxed) + lost;
        let holds = found == expected;
        Ok(vec![
            Condition { name: "exists".to_owned(), holds: true, checked: 1, detail: None },
            Condition {
                name: "value = additions".to_owned(),
                holds,
                checked: 1,
                detail: (!holds).then(|| format!("counter 0: {found} and {expected}")),
            },
        ])
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => unreachable!("conflicts are retried inside: {conflict}"),
    }
}

struct CountingBenchmark(Trouble);

impl Benchmark for CountingBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Counting<P>, 1>(&self.0, options))
            .expect("the tests name protocols of the list")
    }
}

fn arguments(protocols: &[&str], threads: usize, seconds: f64, json: bool) -> BenchArguments {
    BenchArguments {
        hot_tables: Vec::new(),
        paper: Vec::new(),
        protocol: protocols.iter().map(|&name| name.to_owned()).collect(),
        threads,
        seconds,
        warmup: 0.01,
        rounds: 2,
        seed: 1,
        htm: Some(weft::htm::Choice::Software),
        reserve_mib: 0,
        phase_length: None,
        conflict_retries: None,
        capacity_retries: None,
        by_rows: false,
        verify: true,
        directory: None,
        contention: vec![Observation::Off],
        acknowledge: vec![AcknowledgeName::Durable],
        loggers: 1,
        epoch_interval_ms: 10,
        json: json.then(|| PathBuf::from("-")),
        timeline: Vec::new(),
    }
}

fn subject() -> Subject {
    Subject {
        title: "Counting".to_owned(),
        options: vec![("zeal", "some".into())],
        operations: Some(3),
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: 1,
        growth_bytes_per_second: 0,
    }
}

fn bench(arguments: &BenchArguments, trouble: Trouble) -> (Result<(), Stop>, String) {
    let mut out = Vec::new();
    let ended = run(arguments, &CountingBenchmark(trouble), subject(), &mut out);
    (ended, String::from_utf8(out).expect("reports are text"))
}

#[test]
fn each_transaction_is_counted_once() {
    let (ended, out) = bench(&arguments(&["dbx", "none"], 1, 0.05, true), Trouble::Nothing);
    ended.expect("nothing goes wrong");
    let json: serde_json::Value = serde_json::from_str(&out).expect("only JSON is written");
    for (report, protocol) in json.as_array().expect("an array").iter().zip(["dbx", "none"]) {
        assert_eq!(report["protocol"], protocol);
        assert_eq!(report["zeal"], "some", "the workload's options are keys of the report");
        assert_eq!(report["rounds"].as_array().map(Vec::len), Some(2));
        assert_eq!(report["verified"], true);
        // Of eight consecutive transactions, six add, one is rolled back and one reads. Each of the two windows may
        // begin and end anywhere in the eight.
        let count = |transaction: &str, ending: &str| {
            report["transactions"][transaction][ending].as_i64().expect("a number")
        };
        let reads = count("read", "committed");
        assert!(count("add", "committed") > 0, "{report}");
        assert!((count("add", "committed") - 6 * reads).abs() <= 2 * 6, "{report}");
        assert!((count("add", "user_rollbacks") - reads).abs() <= 2, "{report}");
        assert_eq!(count("read", "user_rollbacks"), 0);
        let rate = |key: &str| report[key]["median"].as_f64().expect("a number");
        let ratio = rate("operations_per_second") / rate("throughput_per_second");
        assert!((ratio - 3.0).abs() < 1e-9, "{report}");
        assert_eq!(report["transactions"]["never"]["committed"], 0);
        assert!(report["latency_us"].get("never").is_none());
    }
    assert_eq!(json[0]["htm_backend"], "software");
    assert!(json[1]["htm_backend"].is_null(), "protocol none has no regions");
}

/// Protects `compare` from mistaking a result for an option of the run. A new key of the results is a result of
/// `compare`, too, or a setting here.
#[test]
fn settings_in_the_results_are_options_and_the_machine() {
    let (ended, out) = bench(&arguments(&["dbx"], 1, 0.02, true), Trouble::Nothing);
    ended.expect("nothing goes wrong");
    let json: serde_json::Value = serde_json::from_str(&out).expect("only JSON is written");
    let report = json[0].as_object().expect("an object");
    let measurement = Measurement::new(report).expect("it has a throughput");
    let mut settings: Vec<&String> = measurement.settings.keys().collect();
    settings.sort();
    let expected = [
        "by_rows",
        "capacity_retries",
        "conflict_retries",
        "logical_cores",
        "phase_length_ms",
        "pinned",
        "seconds",
        "seed",
        "twin",
        "version",
        "warmup_seconds",
        "zeal",
    ];
    assert_eq!(settings, expected);
}

/// Fault: the results had the name of the protocol alone, so those of its variants could not be told apart.
#[test]
fn variants_have_their_names_in_the_results() {
    let names = ["htcc", "htcc:restart", "dbx:paper"];
    let (ended, out) = bench(&arguments(&names, 1, 0.01, true), Trouble::Nothing);
    ended.expect("nothing goes wrong");
    let json: serde_json::Value = serde_json::from_str(&out).expect("only JSON is written");
    for (report, name) in json.as_array().expect("an array").iter().zip(names) {
        assert_eq!(report["protocol"], name);
    }
}

/// Fault: if the JSON could not be written at the end of a run, its results were not printed either.
#[cfg(target_os = "linux")]
#[test]
fn results_are_printed_if_the_json_cannot_be_written() {
    let mut arguments = arguments(&["dbx"], 1, 0.02, false);
    arguments.json = Some(PathBuf::from("/dev/full"));
    let (ended, out) = bench(&arguments, Trouble::Nothing);
    let Err(Stop::Failed(message)) = ended else { panic!("{ended:?}") };
    assert!(message.contains("cannot write '/dev/full'"), "{message}");
    assert!(out.contains("| dbx ") && out.contains("verified"), "{out}");
}

#[test]
fn repeated_protocols_are_numbered_in_the_report() {
    let (ended, out) = bench(&arguments(&["dbx", "dbx"], 2, 0.02, false), Trouble::Nothing);
    ended.expect("nothing goes wrong");
    for expected in ["Counting", "seed 1", "| dbx (2) ", "software", "vs dbx", "p99.9", "verified"]
    {
        assert!(out.contains(expected), "{expected:?} is missing in:\n{out}");
    }
    let widest = out.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?} columns:\n{out}");
}

#[test]
fn broken_condition_fails_after_the_report() {
    let (ended, out) = bench(&arguments(&["dbx"], 1, 0.02, false), Trouble::LostUpdate);
    let Err(Stop::Failed(message)) = ended else { panic!("{ended:?}") };
    assert!(message.contains("dbx: value = additions"), "{message}");
    assert!(message.contains("counter 0: ") && message.contains(" and "), "{message}");
    assert!(!message.contains("exists"), "a condition that holds is not blamed: {message}");
    assert!(out.contains("1 of 2 conditions broken"), "{out}");

    let (ended, out) = bench(&arguments(&["dbx"], 1, 0.02, true), Trouble::LostUpdate);
    assert!(matches!(ended, Err(Stop::Failed(_))), "{ended:?}");
    let json: serde_json::Value = serde_json::from_str(&out).expect("only JSON is written");
    assert_eq!(json[0]["verified"], false);
    assert_eq!(json[0]["conditions"][1]["holds"], false);
}

/// A writer that accepts the heading, and then reports a closed pipe.
struct ClosedPipe {
    bytes_left: usize,
}

impl io::Write for ClosedPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes.len())
            .ok_or(io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn closed_output_does_not_hide_a_broken_condition() {
    let arguments = arguments(&["dbx"], 1, 0.02, false);
    for (trouble, fails) in [(Trouble::Nothing, false), (Trouble::LostUpdate, true)] {
        let ended = run(
            &arguments,
            &CountingBenchmark(trouble),
            subject(),
            &mut ClosedPipe { bytes_left: 300 },
        );
        match ended {
            Err(Stop::ReaderGone) => assert!(!fails, "the broken condition was not reported"),
            Err(Stop::Failed(_)) => assert!(fails, "nothing is wrong but the reader"),
            other => panic!("{other:?}"),
        }
    }
}

// The next two rounds would take a day if the other client were not stopped.

#[test]
fn failing_client_ends_the_round_at_once() {
    let trouble = Trouble::Failure { after: 100 };
    let (ended, _) = bench(&arguments(&["dbx"], 2, 86_400.0, false), trouble);
    let Err(Stop::Failed(message)) = ended else { panic!("{ended:?}") };
    assert_eq!(message, "dbx, client 0: the database is closed");
}

#[test]
fn panicking_client_ends_the_round_at_once() {
    let trouble = Trouble::Panic { after: 100 };
    let (ended, _) = bench(&arguments(&["dbx"], 2, 86_400.0, false), trouble);
    let Err(Stop::Failed(message)) = ended else { panic!("{ended:?}") };
    assert!(message.starts_with("dbx, client 0 panicked"), "{message}");
}

#[test]
fn protocols_refuse_more_threads_than_they_can_run() {
    let (ended, out) = bench(&arguments(&["dbx", "none"], 2, 1.0, false), Trouble::Nothing);
    let Err(Stop::Usage(message)) = ended else { panic!("{ended:?}") };
    assert_eq!(message, "protocol 'none' allows only --threads 1, not 2");
    assert_eq!(out, "", "nothing is announced that is not run");
}

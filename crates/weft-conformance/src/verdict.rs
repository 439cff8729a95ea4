//! The verdict of a check: its finding, if there is one.

use weft::history::{History, HistoryKey, Operation, Status};
use weft_checker::{HistoryBuilder, Key, Observed, Options, check};

/// A result that no serializable database gives.
#[derive(Debug)]
pub struct Finding {
    /// The check that found it.
    pub check: &'static str,
    /// What it is, in the words of the judge: names of anomalies, or of an invariant.
    pub what: Vec<String>,
    /// The seed of the run, if it had one.
    pub seed: Option<u64>,
    /// How the run was interleaved, if its machine records that: the text of a file that repeats it.
    pub schedule: String,
    /// The evidence.
    pub witness: String,
}

impl Finding {
    /// Makes a finding without a seed.
    pub fn new(check: &'static str, what: impl Into<String>, witness: impl Into<String>) -> Self {
        let what = vec![what.into()];
        Finding { check, what, seed: None, schedule: String::new(), witness: witness.into() }
    }

    /// Returns whether `what` is one of its names.
    pub fn names(&self, what: &str) -> bool {
        self.what.iter().any(|found| found == what)
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.check, self.what.join(", "))?;
        if let Some(seed) = self.seed {
            write!(out, " (WEFT_SEED={seed} repeats this)")?;
        }
        write!(out, "\n{}", self.witness)?;
        if self.schedule.is_empty() { Ok(()) } else { write!(out, "\n{}", self.schedule) }
    }
}

/// Returns the checker's verdict: strict serializability, or the anomalies.
pub fn judge(check_name: &'static str, history: &History) -> Result<(), Finding> {
    let report = check(&converted(history), &Options::default());
    if report.is_ok() {
        return Ok(());
    }
    Err(Finding {
        check: check_name,
        what: report.anomalies.iter().map(|anomaly| format!("{:?}", anomaly.kind)).collect(),
        seed: None,
        schedule: String::new(),
        witness: report.to_string(),
    })
}

/// Converts a history of the engine into one of the checker.
pub fn converted(history: &History) -> weft_checker::History {
    let mut builder = HistoryBuilder::new();
    for transaction in &history.transactions {
        let tables: Vec<_> =
            transaction.operations.iter().map(|one| builder.table(table_of(one))).collect();
        let mut to =
            builder.transaction(transaction.id, transaction.session, transaction.invoke_ns);
        for (operation, table) in transaction.operations.iter().zip(tables) {
            match operation {
                Operation::Read { key, version, .. } => {
                    let observed = version.map_or(Observed::Absent, Observed::Version);
                    to.read(table, key_of(key), observed)
                }
                Operation::Write { key, version, .. } => to.write(table, key_of(key), *version),
                Operation::Delete { key, version, .. } => to.delete(table, key_of(key), *version),
                Operation::Scan { from, to: until, rows, .. } => {
                    let range = (from.as_ref().map(key_of), until.as_ref().map(key_of));
                    to.scan(table, range, rows.iter().map(|(key, at)| (key_of(key), *at)))
                }
            };
        }
        match transaction.status {
            Status::Committed => to.committed(transaction.complete_ns),
            Status::Aborted | Status::RolledBack => to.aborted(transaction.complete_ns),
        }
    }
    builder.build()
}

fn table_of(operation: &Operation) -> &str {
    match operation {
        Operation::Read { table, .. }
        | Operation::Write { table, .. }
        | Operation::Delete { table, .. }
        | Operation::Scan { table, .. } => table,
    }
}

fn key_of(key: &HistoryKey) -> Key {
    match key {
        HistoryKey::Integer(number) => Key::from(*number),
        HistoryKey::Text(text) => Key::from(text.as_str()),
        HistoryKey::Tuple(parts) => Key::from(parts.iter().map(key_of).collect::<Vec<_>>()),
    }
}

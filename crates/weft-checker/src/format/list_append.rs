//! List-append histories: every transaction appends to lists, or reads them whole.
//!
//! A list shows in which order it grew, so nearly the whole order of versions is known (Elle, §3). A version of
//! a list is named by its last element:
//!
//! - The longest list that was read of a key gives the order of its elements. Every other read list must be a
//!   prefix of it.
//! - Elements that were certainly appended, and never read, come after it. Their own order is not known. But a
//!   transaction that read all of the longest list and then appended is first.
//! - An element that was read was appended, even if the outcome of its transaction is not known.
//!
//! If a transaction reads a list after it appended to it, the list must end in what it appended. The rest is
//! what it would have read before its own appends, so the read moves to the front.

use rustc_hash::{FxHashMap, FxHashSet};

use super::FormatError;
use super::excerpt::excerpt;
use super::jepsen::{JepsenTransaction, Step, Values};
use super::values::Value;
use crate::history::{
    Finding, History, HistoryBuilder, INITIAL, OperationKind, OrderedPair, Status, TableId,
    Vocabulary,
};
use crate::key::Key;
use crate::report::AnomalyKind;

/// Where an element was appended.
#[derive(Clone, Copy)]
struct Append {
    transaction: u32,
    line: u64,
}

/// The facts about one list.
#[derive(Default)]
struct List {
    appends: FxHashMap<u64, Append>,
    /// The longest list that was read, and its reader.
    longest: Vec<u64>,
    longest_reader: u32,
    /// The last element that each transaction read before it appended, or 0.
    read_before_append: FxHashMap<u32, u64>,
}

struct Import<'a> {
    transactions: &'a [JepsenTransaction],
    builder: HistoryBuilder,
    table: TableId,
    values: Values,
    lists: FxHashMap<u32, List>,
    findings: Vec<Finding>,
    /// Keys of lists that were read in two orders. Each is reported only once.
    incompatible: FxHashSet<u32>,
}

/// A list as it was read, as the numbers of its elements.
struct ReadList {
    transaction: u32,
    key: u32,
    elements: Vec<u64>,
    /// How many elements at the end are the reader's own.
    own: usize,
}

/// Returns the history of these transactions.
pub(super) fn history(transactions: &[JepsenTransaction]) -> Result<History, FormatError> {
    let mut builder = HistoryBuilder::new();
    let table = builder.table("");
    let mut import = Import {
        transactions,
        builder,
        table,
        values: Values::new(),
        lists: FxHashMap::default(),
        findings: Vec::new(),
        incompatible: FxHashSet::default(),
    };
    import.collect_appends()?;
    let reads = import.collect_reads()?;
    let reads = import.keep_prefixes(reads);
    import.note_hidden_faults();
    let status = import.settle();
    import.push_transactions(&reads, &status);
    let order = import.order(&status);
    let mut history = import.builder.build();
    history.order = Some(order);
    history.vocabulary = Vocabulary::Appends;
    history.values = import.values.texts;
    history.findings = import.findings;
    history.timed_by_position = transactions.iter().any(|one| one.is_timed_by_position);
    Ok(history)
}

impl Import<'_> {
    fn key(&mut self, key: &Key) -> u32 {
        self.builder.key(self.table, key).0
    }

    fn name(&self, transaction: u32) -> String {
        format!("T{}", self.transactions[transaction as usize].id)
    }

    fn shown(&self, elements: &[u64]) -> String {
        let texts: Vec<&str> =
            elements.iter().map(|&element| self.values.texts[element as usize].as_str()).collect();
        format!("[{}]", texts.join(" "))
    }

    fn list_name(&self, key: u32) -> String {
        format!("list {}", self.builder.key_of(key))
    }

    fn find(&mut self, kind: AnomalyKind, transactions: Vec<u32>, explanation: String) {
        self.findings.push(Finding { kind, transactions, explanation });
    }

    fn collect_appends(&mut self) -> Result<(), FormatError> {
        for (index, transaction) in self.transactions.iter().enumerate() {
            for step in &transaction.steps {
                let (key, element) = match step {
                    Step::Append(key, element) => (key, element),
                    Step::Read(..) => continue,
                    Step::Write(..) => {
                        let message = "a list-append history has no :w steps";
                        return Err(FormatError::syntax(transaction.line, message));
                    }
                };
                let key = self.key(key);
                let number = self.values.number(element);
                let append = Append { transaction: index as u32, line: transaction.line };
                let list = self.lists.entry(key).or_default();
                if let Some(earlier) = list.appends.insert(number, append) {
                    let message = format!(
                        "{} is appended to {} twice, also in line {}: elements must be unique",
                        excerpt(element),
                        excerpt(&self.list_name(key)),
                        earlier.line
                    );
                    return Err(FormatError::syntax(transaction.line, message));
                }
            }
        }
        Ok(())
    }

    /// Returns the lists that committed transactions read, checked against the readers' own appends.
    fn collect_reads(&mut self) -> Result<Vec<ReadList>, FormatError> {
        let mut reads = Vec::new();
        for (index, transaction) in self.transactions.iter().enumerate() {
            let mut own: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
            for step in transaction.certain_steps() {
                match step {
                    Step::Append(key, element) => {
                        let key = self.key(key);
                        own.entry(key).or_default().push(self.values.number(element));
                    }
                    Step::Read(key, read) => {
                        let key = self.key(key);
                        let elements = self.elements(read, transaction.line)?;
                        let own = own.get(&key).map_or(&[][..], Vec::as_slice);
                        let reader = index as u32;
                        if elements.ends_with(own) {
                            let own = own.len();
                            reads.push(ReadList { transaction: reader, key, elements, own });
                        } else {
                            let text = format!(
                                "{} read {} as {}, after it had appended {} itself.",
                                self.name(reader),
                                self.list_name(key),
                                self.shown(&elements),
                                self.shown(own)
                            );
                            self.find(AnomalyKind::OwnWriteNotSeen, vec![reader], text);
                        }
                    }
                    Step::Write(..) => {}
                }
            }
        }
        Ok(reads)
    }

    fn elements(&mut self, read: &Value, line: u64) -> Result<Vec<u64>, FormatError> {
        match read {
            Value::Nil => Ok(Vec::new()),
            Value::List(elements) => {
                Ok(elements.iter().map(|element| self.values.number(element)).collect())
            }
            _ => Err(FormatError::syntax(line, format!("{} is not a list", excerpt(read)))),
        }
    }

    /// Finds the longest read of each list, and drops the reads that are not prefixes of it.
    fn keep_prefixes(&mut self, mut reads: Vec<ReadList>) -> Vec<ReadList> {
        for read in &reads {
            let list = self.lists.entry(read.key).or_default();
            if read.elements.len() > list.longest.len() {
                list.longest.clone_from(&read.elements);
                list.longest_reader = read.transaction;
            }
        }
        // Keep the reads that are prefixes of the longest, and report the first other one of each key.
        let all = std::mem::take(&mut reads);
        for read in all {
            let list = &self.lists[&read.key];
            if list.longest.starts_with(&read.elements) {
                reads.push(read);
            } else if self.incompatible.insert(read.key) {
                let text = format!(
                    "{} read {} as {}, but {} read it as {}: one of them must begin the other.",
                    self.name(read.transaction),
                    self.list_name(read.key),
                    self.shown(&read.elements),
                    self.name(list.longest_reader),
                    self.shown(&list.longest)
                );
                let readers = vec![read.transaction, list.longest_reader];
                self.find(AnomalyKind::IncompatibleOrder, readers, text);
            }
        }
        let mut last_read = FxHashSet::default();
        for read in &reads {
            let external = &read.elements[..read.elements.len() - read.own];
            let last = external.last().copied().unwrap_or(INITIAL);
            last_read.insert((read.key, last));
            let list = self.lists.entry(read.key).or_default();
            list.read_before_append.entry(read.transaction).or_insert(last);
        }
        reads
    }

    /// Notes faults of elements in the middle of lists that no read had as its last element. Faults of last
    /// elements are found with all other reads.
    fn note_hidden_faults(&mut self) {
        let mut keys: Vec<u32> = self.lists.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            let list = &self.lists[&key];
            let ends: FxHashSet<u64> = list.read_before_append.values().copied().collect();
            let (longest, reader) = (list.longest.clone(), list.longest_reader);
            let mut seen = FxHashSet::default();
            for &element in &longest {
                let append = self.lists[&key].appends.get(&element).copied();
                let shown = self.values.texts[element as usize].clone();
                let (name, list) = (self.name(reader), self.list_name(key));
                if !seen.insert(element) {
                    let text = format!("{name} read {shown} twice in {list}.");
                    self.find(AnomalyKind::DuplicateVersion, vec![reader], text);
                    continue;
                }
                if ends.contains(&element) {
                    continue;
                }
                match append {
                    None => {
                        let text = format!(
                            "{name} read {shown} in {list}, which no transaction appended."
                        );
                        self.find(AnomalyKind::GarbageRead, vec![reader], text);
                    }
                    Some(append) if self.status(append.transaction) == Status::Aborted => {
                        let by = self.name(append.transaction);
                        let text = format!(
                            "{name} read {shown} in {list}, which {by} appended, and {by} aborted."
                        );
                        let both = vec![reader, append.transaction];
                        self.find(AnomalyKind::AbortedRead, both, text);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn status(&self, transaction: u32) -> Status {
        self.transactions[transaction as usize].status
    }

    /// Returns how each transaction ended, as far as the lists tell.
    fn settle(&self) -> Vec<Status> {
        let mut status: Vec<Status> = self.transactions.iter().map(|one| one.status).collect();
        for list in self.lists.values() {
            for append in list.longest.iter().filter_map(|element| list.appends.get(element)) {
                let status = &mut status[append.transaction as usize];
                if *status == Status::Unknown {
                    *status = Status::Committed;
                }
            }
        }
        status
    }

    /// Adds each transaction: first what it read of others' appends, then what it appended.
    fn push_transactions(&mut self, reads: &[ReadList], status: &[Status]) {
        let mut reads = reads.iter().peekable();
        for (index, transaction) in self.transactions.iter().enumerate() {
            while let Some(read) = reads.next_if(|read| read.transaction == index as u32) {
                let external = &read.elements[..read.elements.len() - read.own];
                let last = external.last().copied().unwrap_or(INITIAL);
                self.builder.push(OperationKind::Read, read.key, last);
            }
            for step in &transaction.steps {
                if let Step::Append(key, element) = step {
                    let key = self.key(key);
                    let element = self.values.number(element);
                    self.builder.push(OperationKind::Write, key, element);
                }
            }
            let JepsenTransaction { id, process, invoke_ns, complete_ns, .. } = *transaction;
            self.builder.push_transaction(id, process, status[index], invoke_ns, complete_ns);
        }
    }

    /// Returns what is known of the order of all lists.
    fn order(&self, status: &[Status]) -> Vec<OrderedPair> {
        let mut pairs = Vec::new();
        for (&key, list) in &self.lists {
            let mut last = INITIAL;
            let mut add = |before, after| {
                pairs.push(OrderedPair { key, before, after, by_real_time: false });
            };
            let is_committed =
                |append: &Append| status[append.transaction as usize] == Status::Committed;
            let mut read = FxHashSet::default();
            // The longest list gives a chain of committed elements.
            for &element in &list.longest {
                let known = list.appends.get(&element).is_some_and(is_committed);
                if known && read.insert(element) {
                    add(last, element);
                    last = element;
                }
            }
            // The last append of each transaction whose appends no transaction read.
            let mut unread: FxHashMap<u32, u64> = FxHashMap::default();
            for (&element, append) in &list.appends {
                if is_committed(append) && !read.contains(&element) {
                    let latest = unread.entry(append.transaction).or_insert(element);
                    *latest = (*latest).max(element);
                }
            }
            let mut unread: Vec<(u32, u64)> = unread.into_iter().collect();
            unread.sort_unstable();
            // An unread append comes right after the chain if its transaction had read all of it. One such append
            // comes before all other unread ones.
            let follows = |transaction| list.read_before_append.get(&transaction) == Some(&last);
            let first = unread.iter().find(|&&(transaction, _)| follows(transaction)).copied();
            let from = first.map_or(last, |(_, element)| element);
            for &(transaction, element) in &unread {
                if follows(transaction) {
                    add(last, element);
                }
                if element != from {
                    add(from, element);
                }
            }
        }
        pairs
    }
}

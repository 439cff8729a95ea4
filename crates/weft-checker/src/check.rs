//! The check itself: from a history to a verdict.
//!
//! 1. `versions`: every version, its writer, and what overwrote it.
//! 2. `absence`, `ranges`: what reads that found no row may have seen, and the keys in order.
//! 3. `resolve`: each transaction's edges, and the faults of single operations.
//! 4. `real_time`: under strict serializability, the order of time.
//! 5. `graph`: strongly connected components. Without any, the history is serializable.
//! 6. `witness`, `naming`, `words`: one cycle of each component, its name, and the reason for each of its
//!    edges.
//!
//! Cycles that need the real-time order are searched only if there are no others: for a history that is not
//! serializable at all, the clocks explain nothing.

use rustc_hash::FxHashMap;

use crate::absence::Absences;
use crate::graph::{EdgeList, Graph, Tag};
use crate::history::{History, OperationKind, Status};
use crate::naming::{self, NamedEdge, Participants};
use crate::ranges::KeyTree;
use crate::real_time;
use crate::report::Step;
use crate::report::{Anomaly, AnomalyKind, Class, EdgeCounts, EdgeKind, Level, Options, Report};
use crate::resolve::{Fault, Reason, Resolver, Sink};
use crate::versions::{NONE, Versions};
use crate::witness::{CycleEdge, Search};
use crate::words::Words;

/// What the checker is doing, for showing progress.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Finding every version of every key.
    Versions,
    /// Finding the edges of the transactions.
    Edges {
        /// How many transactions are done.
        done: usize,
        /// How many transactions there are.
        total: usize,
    },
    /// Looking for cycles.
    Cycles,
    /// Looking for the clearest cycle.
    Witness,
}

/// How many transactions pass between two reports of progress.
const PROGRESS_INTERVAL: usize = 1 << 14;

/// Checks a history.
///
/// Takes time and memory in proportion to the operations and the rows of scans, and sorts each key's versions.
/// (Each scan also takes O(log keys) for each gap between its rows, see `ranges.rs`.)
///
/// # Panics
///
/// If the history has 2³² or more versions or edges.
pub fn check(history: &History, options: &Options) -> Report {
    check_with_progress(history, options, &mut |_| {})
}

/// Does the same as [`check`], and reports its progress now and then.
///
/// # Panics
///
/// As for [`check`].
pub fn check_with_progress(
    history: &History,
    options: &Options,
    progress: &mut dyn FnMut(Phase),
) -> Report {
    progress(Phase::Versions);
    let versions = Versions::new(history);
    let absences = Absences::new(history, &versions);
    let tree = (!history.scans.is_empty()).then(|| KeyTree::new(history, &versions, &absences));
    let checker =
        Checker { history, versions: &versions, absences: &absences, tree: tree.as_ref(), options };
    let mut sink = checker.edges(progress);
    progress(Phase::Cycles);

    let faults = std::mem::take(&mut sink.faults);
    let (fault_count, counts) = (sink.fault_count, sink.counts);
    let mut report = checker.empty_report(counts);
    checker.tell_findings(&mut report);
    checker.tell_duplicates(&mut report);
    checker.tell_faults(&faults, fault_count, &mut report);
    let graph = Graph::new(sink.next_node as usize, sink.edges);
    checker.tell_cycles(&graph, &mut report, progress);
    report.anomalies.sort_by_key(|anomaly| anomaly.class);
    report
}

#[derive(Clone, Copy)]
struct Checker<'a> {
    history: &'a History,
    versions: &'a Versions,
    absences: &'a Absences,
    tree: Option<&'a KeyTree>,
    options: &'a Options,
}

impl<'a> Checker<'a> {
    fn words(&self) -> Words<'a> {
        Words { history: self.history, versions: self.versions }
    }

    fn resolver(&self, single: bool) -> Resolver<'a> {
        Resolver::new(self.history, self.versions, self.absences, self.tree, single)
    }

    fn is_strict(&self) -> bool {
        self.options.level == Level::Strict
    }

    /// Finds all edges of the graph, and all faults.
    fn edges(&self, progress: &mut dyn FnMut(Phase)) -> GraphSink<'a> {
        let total = self.history.transaction_count();
        let count = u32::try_from(total).expect("fewer than 2^32 transactions");
        let mut sink = GraphSink {
            checker: *self,
            edges: EdgeList::default(),
            counts: EdgeCounts::default(),
            tree_nodes_told: vec![false; self.tree.map_or(0, KeyTree::node_count)],
            forks: FxHashMap::default(),
            tree_base: count,
            next_node: count + self.tree.map_or(0, KeyTree::node_count) as u32,
            faults: Vec::new(),
            fault_count: 0,
        };
        let mut resolver = self.resolver(false);
        for transaction in 0..count {
            if self.versions.live[transaction as usize] {
                resolver.transaction(transaction, &mut sink);
            }
            if (transaction as usize).is_multiple_of(PROGRESS_INTERVAL) {
                progress(Phase::Edges { done: transaction as usize, total });
            }
        }
        if self.is_strict() {
            let before = sink.edges.len();
            let live = &self.versions.live;
            let first = sink.next_node;
            sink.next_node += real_time::add_edges(self.history, live, first, &mut sink.edges);
            sink.counts.real_time = (sink.edges.len() - before) as u64;
        }
        sink
    }

    fn empty_report(&self, edges: EdgeCounts) -> Report {
        let live = self.versions.live.iter().filter(|&&live| live).count() as u64;
        let records = &self.history.transactions;
        let aborted = records.iter().filter(|record| record.status == Status::Aborted).count();
        let transactions = records.len() as u64;
        Report {
            level: self.options.level,
            transactions,
            committed: live,
            aborted: aborted as u64,
            unknown: transactions - live - aborted as u64,
            operations: self.history.operation_count() as u64,
            order_known: self.history.is_order_known(),
            edges,
            anomaly_count: 0,
            anomalies: Vec::new(),
        }
    }

    /// Counts an anomaly, and adds it to the report if there is room.
    fn tell(&self, report: &mut Report, anomaly: impl FnOnce() -> Anomaly) {
        report.anomaly_count += 1;
        if report.anomalies.len() < self.options.anomalies_max {
            report.anomalies.push(anomaly());
        }
    }

    fn single(&self, kind: AnomalyKind, transactions: &[u32], explanation: String) -> Anomaly {
        let class = match kind {
            AnomalyKind::AbortedRead => Class::G1a,
            AnomalyKind::IntermediateRead => Class::G1b,
            AnomalyKind::NonRepeatableRead => Class::GSingle,
            _ => Class::Inconsistent,
        };
        let id = |&position: &u32| self.history.transactions[position as usize].id;
        let transactions = transactions.iter().map(id).collect();
        Anomaly { kind, class, transactions, steps: Vec::new(), explanation }
    }

    fn tell_findings(&self, report: &mut Report) {
        for finding in &self.history.findings {
            self.tell(report, || {
                self.single(finding.kind, &finding.transactions, finding.explanation.clone())
            });
        }
    }

    fn tell_duplicates(&self, report: &mut Report) {
        for &slot in &self.versions.duplicates {
            self.tell(report, || {
                let (transactions, text) = self.words().duplicate(slot);
                self.single(AnomalyKind::DuplicateVersion, &transactions, text)
            });
        }
    }

    fn tell_faults(&self, faults: &[Fault], count: u64, report: &mut Report) {
        for fault in faults {
            self.tell(report, || {
                let (transactions, text) = self.words().fault(fault);
                self.single(fault.kind, &transactions, text)
            });
        }
        report.anomaly_count += count - faults.len() as u64;
    }

    fn tell_cycles(&self, graph: &Graph, report: &mut Report, progress: &mut dyn FnMut(Phase)) {
        let nodes = graph.node_count() as u32;
        let mut strict = self.is_strict();
        let mut components = graph.components(0..nodes, |_, _, tag| strict || !tag.is_strict());
        if strict && !components.is_empty() {
            // Prefer components that need no real-time edges.
            let without_time = graph.components(0..nodes, |_, _, tag| !tag.is_strict());
            if !without_time.is_empty() {
                components = without_time;
                strict = false;
            }
        }
        if components.is_empty() {
            return;
        }
        progress(Phase::Witness);
        // Show the smallest components first: they are the clearest.
        components.sort_by_key(|component| (component.len(), component.iter().min().copied()));
        let transactions = self.history.transaction_count() as u32;
        let mut search = Search::new(graph, transactions, strict);
        let mut resolver = self.resolver(true);
        for component in &components {
            self.tell(report, || {
                let cycle = search.cycle(component);
                self.explain(cycle, &mut resolver)
            });
        }
    }

    /// Names a cycle, and gives the reason for each of its edges.
    fn explain(&self, mut cycle: Vec<CycleEdge>, resolver: &mut Resolver<'a>) -> Anomaly {
        // Begin with an anti-dependency, that of the earliest transaction that has one.
        let is_late = |edge: &CycleEdge| (!edge.tag.kind().is_anti_dependency(), edge.from);
        let start = (0..cycle.len()).min_by_key(|&position| is_late(&cycle[position]));
        cycle.rotate_left(start.expect("a cycle has edges"));
        let edges: Vec<NamedEdge> = cycle
            .iter()
            .map(|edge| {
                let reasons = reasons(edge, resolver);
                NamedEdge { kind: edge.tag.kind(), strict: edge.tag.is_strict(), reasons }
            })
            .collect();
        let members = Members { checker: *self, cycle: &cycle };
        let (kind, class) = naming::name(&edges, &members);
        let id = |position: u32| self.history.transactions[position as usize].id;
        let steps = cycle.iter().zip(&edges).enumerate().map(|(position, (ends, edge))| {
            // Prefer a key that the transaction also writes: it explains more.
            let telling = |reason: &&Reason| members.writes(position, reason.key);
            let reason = edge.reasons.iter().find(telling).or(edge.reasons.first());
            let strict = edge.strict && edge.kind != EdgeKind::RealTime;
            let why = self.words().why(ends.from, ends.to, edge.kind, strict, reason);
            Step { from: id(ends.from), to: id(ends.to), edge: edge.kind, why }
        });
        let steps: Vec<Step> = steps.collect();
        let transactions = steps.iter().map(|step| step.from).collect();
        let explanation = naming::meaning(kind).to_owned();
        Anomaly { kind, class, transactions, steps, explanation }
    }
}

/// The transactions of a cycle.
struct Members<'a> {
    checker: Checker<'a>,
    cycle: &'a [CycleEdge],
}

impl Members<'_> {
    fn writes_any(&self, position: usize, is_wanted: impl Fn(u32) -> bool) -> bool {
        let history = self.checker.history;
        let transaction = self.cycle[position].from as usize;
        history.operations[history.operation_range(transaction)].iter().any(|operation| {
            matches!(operation.kind, OperationKind::Write | OperationKind::Delete)
                && is_wanted(operation.target)
        })
    }
}

impl Participants for Members<'_> {
    fn is_read_only(&self, position: usize) -> bool {
        !self.writes_any(position, |_| true)
    }

    fn writes(&self, position: usize, key: u32) -> bool {
        self.writes_any(position, |written| written == key)
    }
}

/// Returns every reason for an edge between two transactions.
fn reasons(edge: &CycleEdge, resolver: &mut Resolver<'_>) -> Vec<Reason> {
    let mut sink = ReasonSink { edge: *edge, reasons: Vec::new() };
    resolver.transaction(edge.from, &mut sink);
    resolver.transaction(edge.to, &mut sink);
    sink.reasons
}

/// Collects the reasons of one edge.
struct ReasonSink {
    edge: CycleEdge,
    reasons: Vec<Reason>,
}

impl Sink for ReasonSink {
    fn edge(&mut self, from: u32, to: u32, kind: EdgeKind, strict: bool, reason: Reason) {
        let wanted = (self.edge.from, self.edge.to, self.edge.tag);
        if wanted == (from, to, Tag::new(kind, strict)) {
            self.reasons.push(reason);
        }
    }

    fn plain_keys(&mut self, _transaction: u32, _node: u32) {}

    fn fork(&mut self, _transaction: u32, _slot: u32, _strict: bool) {}

    fn fault(&mut self, _fault: Fault) {}
}

/// Collects the edges of the graph.
struct GraphSink<'a> {
    checker: Checker<'a>,
    edges: EdgeList,
    counts: EdgeCounts,
    /// Whether a node of the tree of keys has its own edges already.
    tree_nodes_told: Vec<bool>,
    /// The nodes that represent all successors of a slot.
    forks: FxHashMap<(u32, bool), u32>,
    tree_base: u32,
    next_node: u32,
    faults: Vec<Fault>,
    fault_count: u64,
}

impl Sink for GraphSink<'_> {
    fn edge(&mut self, from: u32, to: u32, kind: EdgeKind, strict: bool, _reason: Reason) {
        debug_assert_ne!(from, to, "no transaction precedes itself");
        if strict && !self.checker.is_strict() {
            return;
        }
        let count = match kind {
            EdgeKind::WriteWrite => &mut self.counts.write_write,
            EdgeKind::WriteRead => &mut self.counts.write_read,
            EdgeKind::ReadWrite => &mut self.counts.read_write,
            EdgeKind::PredicateReadWrite => &mut self.counts.predicate_read_write,
            EdgeKind::RealTime => &mut self.counts.real_time,
        };
        *count += 1;
        self.edges.push(from, to, Tag::new(kind, strict));
    }

    fn plain_keys(&mut self, transaction: u32, node: u32) {
        let Some(tree) = self.checker.tree else { return };
        let tag = Tag::new(EdgeKind::PredicateReadWrite, false);
        self.counts.predicate_read_write += 1;
        self.edges.push(transaction, self.tree_base + node, tag);
        let mut pending = vec![node];
        while let Some(node) = pending.pop() {
            if std::mem::replace(&mut self.tree_nodes_told[node as usize], true) {
                continue;
            }
            match tree.below(node) {
                Ok(children) => {
                    for child in children.into_iter().filter(|&child| tree.any_plain(child)) {
                        self.edges.push(self.tree_base + node, self.tree_base + child, tag);
                        pending.push(child);
                    }
                }
                // A leaf leads to the transaction that inserted its key.
                Err(key) => {
                    let versions = self.checker.versions;
                    let inserted = versions.next(versions.of_key(key).start);
                    let writer = versions.slot(inserted).writer;
                    self.edges.push(self.tree_base + node, writer, tag);
                }
            }
        }
    }

    fn fork(&mut self, transaction: u32, slot: u32, strict: bool) {
        if strict && !self.checker.is_strict() {
            return;
        }
        let tag = Tag::new(EdgeKind::ReadWrite, strict);
        let (edges, versions) = (&mut self.edges, self.checker.versions);
        let next_node = &mut self.next_node;
        let node = *self.forks.entry((slot, strict)).or_insert_with(|| {
            let node = *next_node;
            *next_node += 1;
            versions.each_successor(slot, |after, by_real_time| {
                let writer = versions.slot(after).writer;
                let counts = writer != NONE && versions.live[writer as usize];
                if by_real_time == strict && counts {
                    edges.push(node, writer, tag);
                }
            });
            node
        });
        self.counts.read_write += 1;
        self.edges.push(transaction, node, tag);
    }

    fn fault(&mut self, fault: Fault) {
        self.fault_count += 1;
        if self.faults.len() < self.checker.options.anomalies_max {
            self.faults.push(fault);
        }
    }
}

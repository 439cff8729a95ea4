//! The search for the clearest cycle of a strongly connected component.
//!
//! A component holds many cycles. The search tries the worst class first: overwrites alone (G0), then with
//! reads-from (G1c), then with exactly one anti-dependency (G-single), then with several on items (G2-item),
//! then on predicates too (G2). Within a class it looks for the shortest cycle, by a breadth-first search from
//! each transaction. When the work exceeds a bound, it takes the shortest cycle found so far.

use std::collections::VecDeque;

use crate::graph::{Graph, Tag};
use crate::report::EdgeKind;
use crate::versions::NONE;

/// A set of edge kinds: bit `kind as u8` for each.
type Kinds = u8;

const WRITE_WRITE: Kinds = 1 << EdgeKind::WriteWrite as u8;
const WRITE_READ: Kinds = 1 << EdgeKind::WriteRead as u8;
const READ_WRITE: Kinds = 1 << EdgeKind::ReadWrite as u8;
const PREDICATE: Kinds = 1 << EdgeKind::PredicateReadWrite as u8;
const REAL_TIME: Kinds = 1 << EdgeKind::RealTime as u8;
const DEPENDENCIES: Kinds = WRITE_WRITE | WRITE_READ;

/// How many edges of a component the search for the shortest cycle of one class looks at, at most.
const EDGES_MAX: u64 = 20_000_000;

/// The classes, worst first: the kinds that the first edge of a cycle may have, and those of the other edges.
const RUNGS: [(Kinds, Kinds); 6] = [
    (WRITE_WRITE, WRITE_WRITE),
    (DEPENDENCIES, DEPENDENCIES),
    (READ_WRITE, DEPENDENCIES),
    (PREDICATE, DEPENDENCIES),
    (READ_WRITE | DEPENDENCIES, READ_WRITE | DEPENDENCIES),
    (PREDICATE | READ_WRITE | DEPENDENCIES, PREDICATE | READ_WRITE | DEPENDENCIES),
];

/// One edge of a cycle, between two transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CycleEdge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) tag: Tag,
}

/// Searches cycles.
pub(crate) struct Search<'a> {
    graph: &'a Graph,
    /// Nodes from this number on represent many edges.
    transactions: u32,
    /// Whether edges that depend on the real-time order count.
    strict: bool,
    /// The part of the graph that a node belongs to in the current search.
    scope: Vec<u32>,
    scopes: u32,
    /// The search that last reached each node, from where and at what distance.
    reached: Vec<Reached>,
    searches: u32,
    edges_seen: u64,
}

#[derive(Clone, Copy)]
struct Reached {
    search: u32,
    distance: u32,
    parent: u32,
    tag: Tag,
}

impl<'a> Search<'a> {
    pub(crate) fn new(graph: &'a Graph, transactions: u32, strict: bool) -> Self {
        let nothing = Reached {
            search: 0,
            distance: 0,
            parent: NONE,
            tag: Tag::new(EdgeKind::WriteWrite, false),
        };
        Search {
            graph,
            transactions,
            strict,
            scope: vec![0; graph.node_count()],
            scopes: 0,
            reached: vec![nothing; graph.node_count()],
            searches: 0,
            edges_seen: 0,
        }
    }

    /// Returns the cycle to show for a strongly connected component.
    pub(crate) fn cycle(&mut self, component: &[u32]) -> Vec<CycleEdge> {
        for (first, others) in RUNGS {
            let real_time = if self.strict { REAL_TIME } else { 0 };
            let (others, same) = (others | real_time, first == others);
            let first = if same { others } else { first };
            let best = if same {
                self.shortest_of_class(component, others)
            } else {
                self.enter_scope(component);
                self.shortest(component, first, others)
            };
            if let Some(cycle) = best {
                return cycle;
            }
        }
        unreachable!("a strongly connected component has a cycle of the most general class")
    }

    fn enter_scope(&mut self, nodes: &[u32]) {
        self.scopes += 1;
        for &node in nodes {
            self.scope[node as usize] = self.scopes;
        }
    }

    /// Returns the shortest cycle of edges of these kinds.
    fn shortest_of_class(&mut self, component: &[u32], kinds: Kinds) -> Option<Vec<CycleEdge>> {
        self.enter_scope(component);
        let scope = self.scopes;
        let parts = self.graph.components(component.iter().copied(), |from, to, tag| {
            self.scope[to as usize] == scope && self.allows(from, tag, kinds)
        });
        // The smallest part is the easiest to read, and to search.
        let part = parts.into_iter().min_by_key(Vec::len)?;
        self.enter_scope(&part);
        self.shortest(&part, kinds, kinds)
    }

    fn allows(&self, from: u32, tag: Tag, kinds: Kinds) -> bool {
        // A path that has reached a node that represents many edges may leave it.
        let is_inside = from >= self.transactions;
        (self.strict || !tag.is_strict()) && (is_inside || kinds & (1 << tag.kind() as u8) != 0)
    }

    fn shortest(&mut self, nodes: &[u32], first: Kinds, others: Kinds) -> Option<Vec<CycleEdge>> {
        self.edges_seen = 0;
        let mut starts: Vec<u32> =
            nodes.iter().copied().filter(|&node| node < self.transactions).collect();
        starts.sort_unstable();
        let mut best: Option<Vec<CycleEdge>> = None;
        for start in starts {
            let limit = best.as_ref().map_or(u32::MAX, |cycle| cycle.len() as u32);
            if limit == 2 || self.edges_seen > EDGES_MAX {
                break;
            }
            // Only a shorter cycle than the best one is returned.
            if let Some(cycle) = self.through(start, first, others, limit) {
                best = Some(cycle);
            }
        }
        best
    }

    /// Returns the shortest cycle through a transaction, if it has fewer than `limit` edges.
    fn through(
        &mut self,
        start: u32,
        first: Kinds,
        others: Kinds,
        limit: u32,
    ) -> Option<Vec<CycleEdge>> {
        self.searches += 1;
        let scope = self.scope[start as usize];
        let mut queue = VecDeque::from([(start, 0)]);
        let mut is_first = true;
        while let Some((node, distance)) = queue.pop_front() {
            if node == start && !is_first {
                return Some(self.path_to(start));
            }
            let reached = self.reached[node as usize];
            if !is_first && reached.distance < distance {
                continue;
            }
            let kinds = if is_first { first } else { others };
            is_first = false;
            // An edge out of a node that represents many edges does not count: the edge into it has been
            // counted.
            let weight = u32::from(node < self.transactions);
            let next = distance + weight;
            if next >= limit {
                continue;
            }
            let graph = self.graph;
            for (to, tag) in graph.edges(node) {
                self.edges_seen += 1;
                if self.scope[to as usize] != scope || !self.allows(node, tag, kinds) {
                    continue;
                }
                let old = self.reached[to as usize];
                if old.search == self.searches && old.distance <= next {
                    continue;
                }
                let search = self.searches;
                self.reached[to as usize] = Reached { search, distance: next, parent: node, tag };
                // Breadth-first with weights 0 and 1: targets at the same distance go to the front of the queue.
                if weight == 0 {
                    queue.push_front((to, next));
                } else {
                    queue.push_back((to, next));
                }
            }
        }
        None
    }

    /// Returns the edges of the path by which `start` was reached from itself.
    fn path_to(&self, start: u32) -> Vec<CycleEdge> {
        let mut edges = Vec::new();
        let mut to = start;
        let mut node = start;
        loop {
            let Reached { parent, tag, .. } = self.reached[node as usize];
            if parent < self.transactions {
                edges.push(CycleEdge { from: parent, to, tag });
                to = parent;
            }
            node = parent;
            if node == start {
                break;
            }
        }
        edges.reverse();
        edges
    }
}

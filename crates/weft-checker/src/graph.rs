//! The graph, with its edges in arrays, and Tarjan's algorithm (*Depth-First Search and Linear Graph
//! Algorithms*, SIAM Journal on Computing 1972) without recursion.
//!
//! Node numbers: first the transactions by position, then the nodes that represent many edges at once. These
//! are nodes of the [tree of keys](crate::ranges), forks of versions with several successors, and the barriers
//! of the real-time order. Only the edge into such a node counts as a step of a cycle. So a path's length is
//! its number of edges between transactions.

use crate::report::EdgeKind;
use crate::versions::NONE;

/// The tag's bits that hold the kind.
const KIND_MASK: u8 = 0x0F;
/// The tag's bit of an edge that depends on the real-time order.
const STRICT: u8 = 0x80;

/// The properties of an edge, in a byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tag(u8);

/// The kinds, indexed by their number in a tag.
const KINDS: [EdgeKind; 5] = [
    EdgeKind::WriteWrite,
    EdgeKind::WriteRead,
    EdgeKind::ReadWrite,
    EdgeKind::PredicateReadWrite,
    EdgeKind::RealTime,
];

impl Tag {
    pub(crate) fn new(kind: EdgeKind, strict: bool) -> Tag {
        Tag(kind as u8 | if strict { STRICT } else { 0 })
    }

    pub(crate) fn kind(self) -> EdgeKind {
        KINDS[usize::from(self.0 & KIND_MASK)]
    }

    /// Returns whether the edge depends on the real-time order.
    pub(crate) fn is_strict(self) -> bool {
        self.0 & STRICT != 0
    }
}

/// Edges in the order in which they were added.
#[derive(Default)]
pub(crate) struct EdgeList {
    from: Vec<u32>,
    to: Vec<u32>,
    tags: Vec<Tag>,
}

impl EdgeList {
    pub(crate) fn push(&mut self, from: u32, to: u32, tag: Tag) {
        self.from.push(from);
        self.to.push(to);
        self.tags.push(tag);
    }

    pub(crate) fn len(&self) -> usize {
        self.from.len()
    }
}

/// Edges, grouped by the node that they leave.
pub(crate) struct Graph {
    starts: Vec<u32>,
    to: Vec<u32>,
    tags: Vec<Tag>,
}

impl Graph {
    pub(crate) fn new(node_count: usize, edges: EdgeList) -> Graph {
        let mut starts = vec![0_u32; node_count + 1];
        for &from in &edges.from {
            starts[from as usize + 1] += 1;
        }
        for node in 0..node_count {
            let sum = starts[node].checked_add(starts[node + 1]);
            starts[node + 1] = sum.expect("fewer than 2^32 edges");
        }
        // Counting sort: `starts` now holds the prefix sums, and `ends` the next free place of each node.
        let mut ends = starts.clone();
        let mut to = vec![0; edges.from.len()];
        let mut tags = vec![Tag(0); edges.from.len()];
        for ((&from, &target), &tag) in edges.from.iter().zip(&edges.to).zip(&edges.tags) {
            let place = ends[from as usize] as usize;
            ends[from as usize] += 1;
            to[place] = target;
            tags[place] = tag;
        }
        Graph { starts, to, tags }
    }

    pub(crate) fn node_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the edges that leave a node.
    pub(crate) fn edges(&self, node: u32) -> impl Iterator<Item = (u32, Tag)> + '_ {
        self.edge_range(node).map(|edge| (self.to[edge], self.tags[edge]))
    }

    fn edge_range(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// Returns the strongly connected components of more than one node. Considers only the edges (from, to,
    /// tag) that `keep` accepts, among `nodes`. No accepted edge may leave `nodes`.
    pub(crate) fn components(
        &self,
        nodes: impl Iterator<Item = u32>,
        keep: impl Fn(u32, u32, Tag) -> bool,
    ) -> Vec<Vec<u32>> {
        let mut search = Tarjan {
            graph: self,
            order: vec![NONE; self.node_count()],
            low: vec![NONE; self.node_count()],
            visited: 0,
            path: Vec::new(),
            calls: Vec::new(),
            components: Vec::new(),
        };
        for node in nodes {
            search.visit(node, &keep);
        }
        search.components
    }
}

struct Tarjan<'a> {
    graph: &'a Graph,
    /// The position of each node in the order of first visits.
    order: Vec<u32>,
    /// The earliest node known to be reachable; [`NONE`] after the node's component is complete.
    low: Vec<u32>,
    visited: u32,
    /// Nodes whose component is not complete.
    path: Vec<u32>,
    /// Nodes whose edges are being followed, with the next edge to follow.
    calls: Vec<(u32, usize)>,
    components: Vec<Vec<u32>>,
}

impl Tarjan<'_> {
    fn visit(&mut self, root: u32, keep: &impl Fn(u32, u32, Tag) -> bool) {
        if self.order[root as usize] != NONE {
            return;
        }
        self.enter(root);
        while let Some(&(node, edge)) = self.calls.last() {
            // All edges of the node are followed: return to its caller.
            if edge == self.graph.edge_range(node).end {
                self.leave(node);
                continue;
            }
            let last = self.calls.len() - 1;
            self.calls[last].1 += 1;
            let (to, tag) = (self.graph.to[edge], self.graph.tags[edge]);
            if !keep(node, to, tag) {
                continue;
            }
            if self.order[to as usize] == NONE {
                self.enter(to);
            // The target is on the path, so the node belongs to the same component.
            } else if self.low[to as usize] != NONE {
                let low = &mut self.low[node as usize];
                *low = (*low).min(self.order[to as usize]);
            }
        }
    }

    fn enter(&mut self, node: u32) {
        self.order[node as usize] = self.visited;
        self.low[node as usize] = self.visited;
        self.visited += 1;
        self.path.push(node);
        self.calls.push((node, self.graph.edge_range(node).start));
    }

    fn leave(&mut self, node: u32) {
        self.calls.pop();
        let low = self.low[node as usize];
        if let Some(&(caller, _)) = self.calls.last() {
            let caller_low = &mut self.low[caller as usize];
            *caller_low = (*caller_low).min(low);
        }
        // Only the first node of a component completes it.
        if low != self.order[node as usize] {
            return;
        }
        // The component is the rest of the path, from this node on.
        let start = self.path.iter().rposition(|&other| other == node).expect("it is on the path");
        for &member in &self.path[start..] {
            self.low[member as usize] = NONE;
        }
        if self.path.len() - start > 1 {
            self.components.push(self.path[start..].to_vec());
        }
        self.path.truncate(start);
    }
}

//! A tree of keys that represents scans of many keys with few edges.
//!
//! A scan saw every key of its range, and most of them absent. An edge for each would be a multiple of the
//! history's size. So the keys are sorted, and a binary tree is built over them:
//!
//! ```text
//!                 1                    a node's edges lead to its children, a leaf's edge to the
//!         2               3            transaction that inserted the key
//!     4       5       6       7
//!    k0  k1  k2  k3  k4  k5  k6  k7    heap order; leaf of rank r is node `width + r`
//! ```
//!
//! A scan has one edge to each of the O(log keys) nodes that cover a gap between its rows. That is correct for
//! *plain* keys. These were absent at first, then inserted, and never deleted. So every transaction that finds
//! them absent precedes the one that inserted them. There are two other sorts of keys:
//!
//! - *quiet* keys were absent at first and at the end (or always). From their absence alone nothing follows,
//!   but with the real-time order something may. So each node knows when the first writer of its quiet keys was
//!   invoked and when the last was complete. A scan descends only to the keys that were written while it ran.
//!   For all others the real-time edges are enough.
//! - *restless* keys are all others: they were rows at first, or came back after a delete. A scan looks at each
//!   one in its range that it did not return.
//!
//! So a scan costs O((rows + own writes + 1) log keys), plus the restless keys that it did not return.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use crate::absence::Absences;
use crate::history::{History, ScanRecord};
use crate::key::{Keys, TABLE_BYTES};
use crate::versions::{NONE, Versions};

/// A node's summary of the keys below it.
#[derive(Clone, Copy)]
struct Summary {
    any_plain: bool,
    any_restless: bool,
    /// When the first writer of a quiet key was invoked. The next field: when the last was complete.
    quiet_from_ns: u64,
    quiet_to_ns: u64,
}

impl Summary {
    const EMPTY: Summary =
        Summary { any_plain: false, any_restless: false, quiet_from_ns: u64::MAX, quiet_to_ns: 0 };

    fn joined(self, other: Summary) -> Summary {
        Summary {
            any_plain: self.any_plain || other.any_plain,
            any_restless: self.any_restless || other.any_restless,
            quiet_from_ns: self.quiet_from_ns.min(other.quiet_from_ns),
            quiet_to_ns: self.quiet_to_ns.max(other.quiet_to_ns),
        }
    }

    /// Returns whether a quiet key was written between the two times.
    fn stirs(&self, (invoke_ns, complete_ns): (u64, u64)) -> bool {
        // Without writes of quiet keys the interval is (u64::MAX, 0). The two comparisons below would still hold for a
        // transaction without times, which runs from 0 to u64::MAX.
        self.quiet_from_ns <= self.quiet_to_ns
            && self.quiet_from_ns <= complete_ns
            && self.quiet_to_ns >= invoke_ns
    }
}

/// The parts of a gap of a scan, as [`KeyTree::cover`] finds them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cover {
    /// A node of the tree, without restless keys below it.
    Node(u32),
    /// A key that must be looked at alone.
    Key(u32),
    /// A quiet key that was written while the scan ran.
    Quiet(u32),
}

/// The keys of a history in order.
pub(crate) struct KeyTree {
    /// The keys' numbers in the order of the keys.
    sorted: Vec<u32>,
    /// The position of each key in `sorted`.
    ranks: Vec<u32>,
    /// The number of leaves: a power of two.
    width: usize,
    /// The summary of each node. The root is number 1.
    summaries: Vec<Summary>,
}

impl KeyTree {
    pub(crate) fn new(history: &History, versions: &Versions, absences: &Absences) -> KeyTree {
        let keys = &history.keys;
        let mut sorted: Vec<u32> = (0..keys.len() as u32).collect();
        sorted.sort_unstable_by(|&one, &other| keys.bytes(one).cmp(keys.bytes(other)));
        let mut ranks = vec![0; sorted.len()];
        for (rank, &key) in sorted.iter().enumerate() {
            ranks[key as usize] = rank as u32;
        }
        let width = sorted.len().next_power_of_two();
        let mut summaries = vec![Summary::EMPTY; 2 * width];
        for (rank, &key) in sorted.iter().enumerate() {
            summaries[width + rank] = summary(history, versions, absences, key);
        }
        for node in (1..width).rev() {
            summaries[node] = summaries[2 * node].joined(summaries[2 * node + 1]);
        }
        KeyTree { sorted, ranks, width, summaries }
    }

    /// Returns how many numbers its nodes take.
    pub(crate) fn node_count(&self) -> usize {
        2 * self.width
    }

    pub(crate) fn rank(&self, key: u32) -> u32 {
        self.ranks[key as usize]
    }

    /// Returns the two children of a node, or `Err` with the key of a leaf.
    pub(crate) fn below(&self, node: u32) -> Result<[u32; 2], u32> {
        match (node as usize).checked_sub(self.width) {
            None => Ok([2 * node, 2 * node + 1]),
            Some(rank) => Err(self.sorted[rank]),
        }
    }

    /// Returns whether there is a plain key below the node.
    pub(crate) fn any_plain(&self, node: u32) -> bool {
        self.summaries[node as usize].any_plain
    }

    /// Returns the ranks of the keys in the range of a scan.
    pub(crate) fn ranks_of(&self, keys: &Keys, scan: &ScanRecord) -> Range<u32> {
        let before = |bound: &Bound<Box<[u8]>>, below_equal: bool| {
            self.sorted.partition_point(|&key| {
                let order = compare(keys.bytes(key), scan.table, bound);
                order == Ordering::Less || (below_equal && order == Ordering::Equal)
            }) as u32
        };
        let start = match &scan.from {
            Bound::Unbounded => self.table_start(keys, scan.table),
            from @ Bound::Included(_) => before(from, false),
            from @ Bound::Excluded(_) => before(from, true),
        };
        let end = match &scan.to {
            Bound::Unbounded => match scan.table.checked_add(1) {
                Some(table) => self.table_start(keys, table),
                None => self.sorted.len() as u32,
            },
            to @ Bound::Included(_) => before(to, true),
            to @ Bound::Excluded(_) => before(to, false),
        };
        start..end.max(start)
    }

    fn table_start(&self, keys: &Keys, table: u32) -> u32 {
        self.sorted.partition_point(|&key| keys.table(key) < table) as u32
    }

    /// Splits a range of ranks into the parts that matter to a transaction that ran at `times`. With `single`,
    /// plain keys are visited one by one.
    pub(crate) fn cover(
        &self,
        ranks: Range<u32>,
        times: (u64, u64),
        single: bool,
        visit: &mut impl FnMut(Cover),
    ) {
        let (mut low, mut high) =
            (ranks.start as usize + self.width, ranks.end as usize + self.width);
        // Climb from the leaves at both ends. A node that is a right child on the left side, or a left child on
        // the right side, is covered whole.
        while low < high {
            if low & 1 == 1 {
                self.visit_node(low, times, single, visit);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                self.visit_node(high, times, single, visit);
            }
            low /= 2;
            high /= 2;
        }
    }

    fn visit_node(
        &self,
        node: usize,
        times: (u64, u64),
        single: bool,
        visit: &mut impl FnMut(Cover),
    ) {
        let summary = self.summaries[node];
        let shared = summary.any_plain && !summary.any_restless && !single;
        if shared {
            visit(Cover::Node(node as u32));
        }
        let descend = summary.any_restless || (single && summary.any_plain);
        if node >= self.width {
            let Some(&key) = self.sorted.get(node - self.width) else { return };
            if descend {
                visit(Cover::Key(key));
            } else if summary.stirs(times) {
                visit(Cover::Quiet(key));
            }
        } else if descend {
            self.visit_node(2 * node, times, single, visit);
            self.visit_node(2 * node + 1, times, single, visit);
        } else if summary.stirs(times) {
            self.visit_stirring(node, times, visit);
        }
    }

    /// Visits only the quiet keys below a node that were written between the two times.
    fn visit_stirring(&self, node: usize, times: (u64, u64), visit: &mut impl FnMut(Cover)) {
        if !self.summaries[node].stirs(times) {
            return;
        }
        if node < self.width {
            self.visit_stirring(2 * node, times, visit);
            self.visit_stirring(2 * node + 1, times, visit);
        } else {
            visit(Cover::Quiet(self.sorted[node - self.width]));
        }
    }
}

fn compare(bytes: &[u8], table: u32, bound: &Bound<Box<[u8]>>) -> Ordering {
    let (bytes_table, key) = bytes.split_at(TABLE_BYTES);
    bytes_table.cmp(&table.to_be_bytes()).then_with(|| match bound {
        Bound::Included(end) | Bound::Excluded(end) => key.cmp(end),
        Bound::Unbounded => Ordering::Equal,
    })
}

/// Returns a leaf's summary of its key.
fn summary(history: &History, versions: &Versions, absences: &Absences, key: u32) -> Summary {
    let initial = versions.of_key(key).start;
    let first = versions.next(initial);
    if versions.initial_row[key as usize] {
        return Summary { any_restless: true, ..Summary::EMPTY };
    }
    let latest = absences.latest(key).unwrap_or(initial);
    if absences.count(key) == 1 && first != NONE {
        return Summary { any_plain: true, ..Summary::EMPTY };
    }
    if versions.next(latest) != NONE {
        return Summary { any_restless: true, ..Summary::EMPTY };
    }
    let mut quiet = Summary::EMPTY;
    for slot in versions.of_key(key) {
        let writer = versions.slot(slot).writer;
        if writer != NONE {
            let record = &history.transactions[writer as usize];
            quiet.quiet_from_ns = quiet.quiet_from_ns.min(record.invoke_ns);
            quiet.quiet_to_ns = quiet.quiet_to_ns.max(record.complete_ns);
        }
    }
    quiet
}

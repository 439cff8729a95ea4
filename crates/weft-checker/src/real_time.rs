//! The real-time order in O(n) edges.
//!
//! A transaction that was complete before another was invoked precedes it. There are n² such pairs, so a chain
//! of barriers represents them:
//!
//! ```text
//!   T1        T2   T3
//!    ╲          ╲ ╱           in: transactions that are complete
//!     b1 ──────▶ b2 ──▶ …     the chain, as time goes on
//!      ╲          ╲
//!       T4         T5         out: transactions that are invoked later
//! ```
//!
//! A new barrier is made only if a transaction was completed since the last barrier and another is invoked. So
//! there are at most as many barriers as transactions.

use crate::graph::{EdgeList, Tag};
use crate::history::History;
use crate::report::EdgeKind;

/// Adds the edges of the real-time order among the transactions that are `live`. Barriers are numbered from
/// `first_node`. Returns the number of barriers.
pub(crate) fn add_edges(
    history: &History,
    live: &[bool],
    first_node: u32,
    edges: &mut EdgeList,
) -> u32 {
    let tag = Tag::new(EdgeKind::RealTime, true);
    let count = history.transactions.len() as u32;
    let record = |transaction: &u32| &history.transactions[*transaction as usize];
    let mut invoked: Vec<u32> = (0..count).filter(|&node| live[node as usize]).collect();
    let mut completed: Vec<u32> =
        invoked.iter().copied().filter(|node| record(node).complete_ns != u64::MAX).collect();
    invoked.sort_by_key(|node| record(node).invoke_ns);
    completed.sort_by_key(|node| record(node).complete_ns);

    let mut barriers = 0;
    let mut done = completed.iter().copied().peekable();
    for transaction in invoked {
        let invoke_ns = record(&transaction).invoke_ns;
        let barrier = first_node + barriers;
        let mut is_new = false;
        // Lead all transactions that were complete before this invocation into one new barrier.
        while let Some(before) = done.next_if(|before| record(before).complete_ns < invoke_ns) {
            edges.push(before, barrier, tag);
            is_new = true;
        }
        if is_new {
            // Link the new barrier to the chain.
            if barriers > 0 {
                edges.push(barrier - 1, barrier, tag);
            }
            barriers += 1;
        }
        // The latest barrier precedes this transaction.
        if barriers > 0 {
            edges.push(first_node + barriers - 1, transaction, tag);
        }
    }
    barriers
}

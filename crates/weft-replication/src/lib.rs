//! Replication of a Weft database through a replicated log that somebody runs already, such as Kafka.
//!
//! Weft has no consensus of its own. It appends what commits to a log that is kept on several machines. A commit is
//! acknowledged when the log has it. Other nodes read the log, and one of them takes over when the first one is gone. All
//! the agreement that this needs is the order of the log's records.
//!
//! # The protocol
//!
//! Three kinds of records lie in the log (and a fourth one, if it has lost some):
//!
//! ```text
//!   offset   0        1        2        3        4        5        6        7
//!          fence    part     part     beat     part     fence    part     part
//!   gener.   1        1        1        1        1        2        1        2
//!   node     A        A        A        A        A        B        A        B
//!                  epoch 7  epoch 9           epoch 9           epoch 9   epoch 3
//!                           1st of 2          2nd of 2           late
//! ```
//!
//! - A **fence** begins a *generation*: the time of one primary. It names the generation and the node.
//! - A **part** carries an epoch of the primary, or a piece of it if the epoch is too long for a record. An epoch is what
//!   the database's own log writes at once: whole transactions.
//! - A **heartbeat** shows that the primary is there when it has nothing to write.
//!
//! **Which records count** is decided by each reader alone, in the order of the log, so all readers decide alike. This is
//! the *replay rule*:
//!
//! | record | what it means |
//! | --- | --- |
//! | a fence of the next generation | It wins. The parts of an unfinished epoch are discarded. |
//! | a fence of the same generation, or of an earlier one | It has lost the election, and has no effect. |
//! | a part of the current generation that is the next one | It counts. With the last part, the epoch is applied. |
//! | a part that was seen already, or of an earlier generation | It came twice, or too late, and has no effect. |
//! | a part of the current generation that is not the next one, or a record of a later generation | Records are missing. It has no effect, unless they come and it comes again. |
//! | anything else | Something else writes to the log. The reader stops, and names the offset. |
//!
//! In the picture, the record at offset 6 came too late: node B had begun generation 2 before.
//!
//! A *chain of checksums* tells whether a part is the next one. Each part names the checksum of everything that counted
//! before it, fences included. So a reader notices if the log has lost records that another reader has seen.
//!
//! **When an epoch is acknowledged.** The primary appends one record at a time. An append returns an offset.
//!
//! - If it is the offset after the last record that the primary knows, the record counts for every reader. When the last
//!   part of an epoch is there, the epoch is acknowledged.
//! - If it is greater, other records lie between. The primary reads them by the replay rule, like any reader. If one of them
//!   is the fence of a later generation, the primary *steps down*: its record does not count. If they are its own records
//!   that came twice, it goes on.
//! - If it is less, the log has lost its end. The primary appends again what is missing, and then the record.
//!
//! So there are no two primaries that both acknowledge. If a fence lies before a primary's record, the primary finds it
//! before it acknowledges. If the fence lies behind the record, the new primary has read the record before it began.
//!
//! An append that fails may be in the log all the same, or come later. The primary appends the same record again until it
//! knows that it is there. Readers ignore the second copy.
//!
//! **Promotion.** A standby reads the log, appends a fence of the generation after the current one, and reads everything up
//! to the place where the append has put it. If its fence is the first one of the generation, it is the primary.
//!
//! **Reads of a primary.** A primary that was paused does not know that another one has taken over. So a read is strict only
//! if the primary proves afterwards that it was the only one:
//!
//! - by a *lease*. An append that began at a time *t*, and before which no fence was found, proves that the node was the
//!   primary at *t*. A new primary does not serve before a lease has passed since it last heard of the one before. So the
//!   node was also the only primary for the length of a lease after *t*.
//! - or by an append that began after the read. The primary makes one if the lease has run out.
//!
//! The lease needs clocks that run equally fast on all nodes, and go on while a node is paused. They need not show the same
//! time.
//!
//! # What the log must do
//!
//! [`ReplicatedLog`] says it. With the feature `kafka` the module `kafka` has a topic of Kafka as such a log.
//!
//! # A log that loses its end
//!
//! A log may lose records at its end, though it had confirmed them: if all of its machines lose power. A node that has read
//! them finds that out, and *compares* its newest records with the log (`src/tail.rs`):
//!
//! | the log | what the node does |
//! | --- | --- |
//! | ends before them | It appends them again, byte by byte. So nothing is lost. Readers ignore what they know already. |
//! | has a fence of a new primary in their place | They are lost. The node reports them, keeps them in a file if it has a directory, and begins again without them. |
//!
//! A part that is not the next one in the chain has no effect: the parts before it may be appended again, and then it is, too.
//! Until then the reader *misses* records. It does not become the primary, and asks the other nodes for them with a record of
//! a kind of its own, a **question**. Every node that reads a question compares. So a primary repairs the log although it has not
//! noticed the loss itself, since other records had taken the places before its next append.
//!
//! A new primary compares before it serves, so its history is the log's. A standby that wants to become the primary also asks
//! where the log ends before it appends its fence. If that is before what it has read, it compares first, since its fence would
//! take the place of the records that are missing.
//!
//! # Directories and backups
//!
//! A node's [directory](NodeBuilder::directory) has a copy of the records, and now and then all rows with their position in
//! the log, a *base* (`src/directory.rs`, `src/journal.rs`). The primary writes an epoch there while it appends it to the log, and
//! acknowledges it when both have it. The state of a node follows from the records. So a node that starts loads the newest base,
//! replays the records behind it, and reads on in the log. Before that, it compares: the log decides which records count.
//!
//! A backup is a base in an object store (feature `object-store`, module `backup`). A node that has nothing begins with one.
//!
//! # Nodes
//!
//! A [`Node`] is the protocol with a database. [`NodeBuilder`] starts one:
//!
//! ```
//! use std::time::Duration;
//!
//! use weft::{Database, Record};
//! use weft_replication::{NodeBuilder, ReplicationError, SimulatedLog};
//!
//! #[derive(Clone, Record)]
//! struct Account {
//!     #[record(key)]
//!     id: u32,
//!     cents: i64,
//! }
//!
//! let log = SimulatedLog::new(1);
//! let start = || NodeBuilder::new(Database::builder).table::<Account>().start(log.connect());
//! let (one, other) = (start()?, start()?);
//! let limit = Duration::from_secs(30);
//! let primary = one.promote(limit)?;
//! let accounts = primary.database().table::<Account>()?;
//! let (_, token) = primary.transact(|tx| {
//!     Ok::<_, ReplicationError>(tx.insert(&accounts, Account { id: 1, cents: 100 })?)
//! })?;
//! other.wait_for(token, limit)?;
//! let view = other.snapshot()?;
//! assert!(view.snapshot().get(&view.table::<Account>()?, &1)?.is_some());
//! # Ok::<(), ReplicationError>(())
//! ```
//!
//! *The primary.* The engine's log is written to a file system in memory, on which the sync of a segment also appends the
//! epoch to the replicated log (`src/disk.rs`). So the engine does all the rest: an epoch collects commits while the one
//! before is appended, commits are acknowledged when the sync has returned, and writers wait when too much waits. The engine
//! knows nothing of replication.
//!
//! *A standby* applies each epoch as one transaction (`src/tables.rs`), so snapshots show whole epochs. The body of a fence
//! has the tables of its primary, so a standby with a later version of the program can read the rows, and the address of the
//! primary, if it has published one (`src/node/fence.rs`).
//!
//! *Time.* The log has the times at which transactions have looked at the clock, so a standby's time is the latest one that it has
//! applied. The transaction that applies an epoch commits with this time, and also changes rows that have expired. Rows
//! disappear by the primary's deletions. When a standby becomes the primary, its time goes on by the clock of its machine, and
//! only then its background removes rows.
//!
//! *A change of roles* from primary to standby begins with an empty database, or with the directory or a backup, since the old
//! database may have commits that the log never accepted (`src/node.rs`).
//!
//! # How it is tested
//!
//! [`Member`] is the protocol as a state machine, without threads and clocks. A simulation lets members run in an order that
//! a seed decides. Appends and reads fail, answers are lost, records come late and twice, members are paused and crash, and
//! the log loses its end. Half of the members have directories, on a simulated disk that loses what was not synced. Sixteen
//! planted bugs must be found (`src/flaw.rs`). `tests/nodes.rs` has tests of nodes with databases, on a [`SimulatedLog`],
//! `tests/promotions.rs` of promotions while calls of the log fail, `tests/lives.rs` of nodes that begin again,
//! `tests/directories.rs` of nodes with directories, and `tests/backups.rs` of backups; `tests/time.rs` has rows that expire
//! and transactions that run once, and `tests/upgrade.rs` two versions of a program. `tests/cluster` has
//! nodes as processes of their own on three brokers of Kafka. Nodes and brokers are killed and stopped, and links are cut. The
//! history of all clients must be strictly serializable.

#![warn(missing_docs)]

#[cfg(feature = "object-store")]
pub mod backup;
mod base;
mod directory;
mod disk;
mod flaw;
mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;
mod link;
mod log;
mod member;
mod node;
mod position;
mod reader;
mod record;
mod simulated;
mod tables;
mod tail;

pub use directory::Loss;
pub use log::{LogError, LogRecord, ReplicatedLog};
pub use member::{Event, Member, Remembered, Request, Role};
pub use node::{
    Node, NodeBuilder, NodeRole, NodeSnapshot, NodeStatus, Options, Primary, Replica,
    ReplicationError, Report, Trouble,
};
pub use reader::{Fault, Position, ReplicationToken};
pub use record::RECORD_BYTES_MAX;
pub use simulated::{Faults, SimulatedConnection, SimulatedLog};
pub use tail::Tail;

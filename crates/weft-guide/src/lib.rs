//! The examples of the guide in `docs/guide`, as documentation tests: `cargo test -p weft-guide`.
//!
//! Each chapter is a module here, in the order of the guide's `SUMMARY.md`. The tests in `tests/documents` check the
//! guide and the repository's other documents: links, commands, and what they say of the program.
//!
//! The examples of the macros are here, too, because their own crate cannot run them without the engine.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/README.md")]
mod introduction {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/first-table.md")]
mod first_table {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/keys.md")]
mod keys {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/conflicts.md")]
mod conflicts {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/idempotence.md")]
mod idempotence {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/durability.md")]
mod durability {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/snapshots.md")]
mod snapshots {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/changes.md")]
mod changes {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/hot-rows.md")]
mod hot_rows {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/inside.md")]
mod inside {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/expiry.md")]
mod expiry {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/procedures.md")]
mod procedures {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/async.md")]
mod async_programs {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/schema.md")]
mod schema {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/limits.md")]
mod limits {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/moving-data.md")]
mod moving_data {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/operating.md")]
mod operating {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/replication.md")]
mod replication {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/replication-runbook.md")]
mod replication_runbook {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/watching.md")]
mod watching {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/testing.md")]
mod testing {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/redis.md")]
mod redis {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/running-the-server.md")]
mod running_the_server {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/comparison.md")]
mod comparison {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/README.md")]
mod protocols {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/dbx.md")]
mod protocols_dbx {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/silo.md")]
mod protocols_silo {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/2pl.md")]
mod protocols_2pl {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/doppel.md")]
mod protocols_doppel {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/htcc.md")]
mod protocols_htcc {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/dbx-tc.md")]
mod protocols_dbx_tc {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/adaptive.md")]
mod protocols_adaptive {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/occ.md")]
mod protocols_occ {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/tso.md")]
mod protocols_tso {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/dbx-spin.md")]
mod protocols_dbx_spin {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/dbx-paper.md")]
mod protocols_dbx_paper {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/htm-naive.md")]
mod protocols_htm_naive {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/atomic.md")]
mod protocols_atomic {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/protocols/none.md")]
mod protocols_none {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/laboratory/README.md")]
mod laboratory {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/laboratory/protocol-in-a-day.md")]
mod laboratory_protocol_in_a_day {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/laboratory/simulator.md")]
mod laboratory_simulator {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/laboratory/checker.md")]
mod laboratory_checker {}

// What the macros' documentation shows.

#[cfg(doctest)]
#[doc = include_str!("../../weft-macros/docs/record.md")]
mod derive_record {}

#[cfg(doctest)]
#[doc = include_str!("../../weft-macros/docs/column_value.md")]
mod derive_column_value {}

#[cfg(doctest)]
#[doc = include_str!("../../weft-macros/docs/key.md")]
mod derive_key {}

#[cfg(doctest)]
#[doc = include_str!("../../weft-macros/docs/procedure.md")]
mod procedure {}

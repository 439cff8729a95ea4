//! Chopping: finding the pieces that procedures can commit one by one and still be serializable.
//!
//! DBX-TC (H. Qian and others, *Exploiting Hardware Transactional Memory for Efficient In-Memory Transaction
//! Processing*, 2015, §3) runs a transaction in pieces. Each piece is atomic, and short enough for a hardware
//! region. Which pieces are possible follows from the theory of transaction chopping (D. Shasha and others, ACM
//! TODS 20, 1995). Take two instances of each procedure. Connect the consecutive pieces of an instance by
//! *S-edges*, and pieces of two instances that conflict by *C-edges*. Then there must be no *SC-cycle*, which
//! is a cycle with edges of both kinds. Steps on an SC-cycle are merged until there is no such cycle.
//!
//! ```
//! use weft_procedures::chopping::{Options, Outlines, PieceKind, chop};
//!
//! let outlines: Outlines = "
//!     procedure pay
//!         find: read account (branch)
//!         add account (balance)
//!         branch: add branch (cents); key from find
//!     end
//!     procedure audit
//!         scan account (balance)
//!         scan branch (cents)
//!     end
//! ".parse()?;
//! // The audit reads both, so it would see half of a payment.
//! let chopping = chop(&outlines, Options::CONVENTIONAL)?;
//! assert_eq!(chopping.procedures[0].pieces.len(), 1);
//! // On a snapshot it has no conflicts; and sums commute.
//! let chopping = chop(&outlines, Options::ALL)?;
//! let kinds: Vec<PieceKind> = chopping.procedures[0].pieces.iter().map(|piece| piece.kind).collect();
//! assert_eq!(kinds, [PieceKind::Reading, PieceKind::Commutative, PieceKind::Commutative]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The analysis
//!
//! 1. Procedures that only read, and read from snapshots, leave the graph.
//! 2. Each pair of steps of two instances that [conflict](Meeting) gets a C-edge.
//! 3. C-edges of tables whose rows are guarded by [tokens](Token) are dropped: the tokens' C-edges imply them.
//! 4. Steps that may wait for the epoch's end are deferred, and lose their C-edges.
//! 5. Steps on an SC-cycle are merged. By the paper's Theorem 1 each procedure then has at most one conflicting
//!    piece.
//! 6. Steps are merged whose order would otherwise be violated: what a piece needs must come before it, and
//!    what needs it must come after it. With *reordering*, the order is what steps need of each other. So a
//!    step between two others that is independent of both moves out from between them, and a loop may be
//!    divided. This is done only where it makes more pieces. Without reordering, pieces are ranges of the steps
//!    as written, and loops are not divided.
//! 7. Steps at which the procedure may decide to roll back are in the first piece, with everything that has to
//!    run before them. Otherwise pieces would have been committed that cannot be undone.
//!
//! Steps 5 to 7 of the analysis only merge, so they terminate, and each merge is necessary. For step 5 this is
//! proved where the [graph](self#reading) is defined. Merges for order and for roll-back create no new
//! SC-cycles, because SC-cycles do not depend on how an instance is chopped. So the result is the finest
//! chopping under the given options (and for the order that was chosen), and does not depend on the order of
//! merges.
//!
//! # Assumptions
//!
//! - The description of the procedures is correct. `#[procedure]` derives it. But commutative sums must not
//!   overflow, and a row that `insert` inserts must not exist. Errors of the engine in a piece that is not the
//!   first are errors of the program.
//! - Each piece is atomic, and the pieces of one instance run in their order.
//! - A deferred piece is published with the epoch in which the conflicting piece of its transaction has run.
//!   Subscribers, in their conflicting piece, read everything of earlier epochs and nothing of their own.
//!   Whether the row that a deferred step changes exists can be looked up at once, because no procedure inserts
//!   or deletes it.
//!
//! # Departures from the paper
//!
//! - *Tokens* are not in the paper. It says that with deferred execution "the accesses to the Order and
//!   Orderline tables can also be removed from the conflicting piece" of DELIVERY (§3.2), but not why they have
//!   no C-edges to NEWORDER's inserts. Here the reason is spelled out, declared and checked.
//! - The paper's premise of deferred execution is about one pair of procedures. Here is a second premise about
//!   several pairs: no two procedures may wait for each other.
//! - The subscriber's reads of deferred changes stay in its conflicting piece, even where they have no C-edge
//!   left. Otherwise the subscriber could see an epoch's end between two pieces.
//!
//! # Reading
//!
//! In reading order: `outline`, what is known of procedures; `text`, the notation for it; `conflict` and
//! `order`; `graph`, with the proof; `partition`, `defer`; `analysis`; `result`; `admit`.

mod admit;
mod analysis;
mod conflict;
mod defer;
mod excerpt;
mod graph;
mod order;
mod outline;
mod partition;
mod pieces;
mod result;
mod text;

pub use admit::{Change, NotAdmitted, admit};
pub use analysis::chop;
pub use conflict::Meeting;
pub use order::{Before, Why};
pub use outline::{Columns, Outline, OutlineAccess, OutlineLoop, OutlineStep, Outlines, Token};
pub use pieces::{one_piece_of, pieces_of};
pub use result::{
    Chopped, Chopping, Conflict, Merge, NotDeferred, Piece, PieceKind, Reason, Standing,
    StepNumber, Vertex,
};
pub use text::TextError;

/// The optimizations that the analysis uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Conflicts are found by columns, not by tables (§5).
    pub columns: bool,
    /// Commuting steps have no C-edge: inserts, and operations of the same kind (§3.1).
    pub commutativity: bool,
    /// Independent steps are reordered where that makes more pieces (§3.1).
    pub reordering: bool,
    /// Procedures that only read use snapshots, and leave the graph (§3.2).
    pub snapshots: bool,
    /// Steps that would commute but for their readers are deferred to the end of the epoch (§3.2).
    pub deferral: bool,
    /// Rows that are guarded by tokens have no C-edges other than those of the tokens.
    pub tokens: bool,
    /// Pieces that read only tables that no procedure changes are marked as such (§3.3).
    pub static_tables: bool,
}

impl Options {
    /// No optimization: steps conflict by table.
    pub const NONE: Options = Options {
        columns: false,
        commutativity: false,
        reordering: false,
        snapshots: false,
        deferral: false,
        tokens: false,
        static_tables: false,
    };

    /// The optimizations known before the paper: by tables, with commutativity and reordering. The paper's
    /// default, as in Figure 10.
    pub const CONVENTIONAL: Options =
        Options { commutativity: true, reordering: true, ..Options::NONE };

    /// All optimizations, as in Figure 11.
    pub const ALL: Options = Options {
        columns: true,
        commutativity: true,
        reordering: true,
        snapshots: true,
        deferral: true,
        tokens: true,
        static_tables: true,
    };
}

pub use weft::OutlineError;

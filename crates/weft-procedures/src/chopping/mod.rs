//! Chopping: in which pieces procedures can be committed one by one, and still be serializable.
//!
//! DBX-TC (H. Qian and others, *Exploiting Hardware Transactional Memory for Efficient In-Memory Transaction
//! Processing*, 2015, §3) runs a transaction in pieces, each of them atomic by itself, so that each is short
//! enough for a hardware region. Which pieces there may be follows from the theory of transaction chopping (D.
//! Shasha and others, ACM TODS 20, 1995): take two instances of each procedure; connect the consecutive pieces
//! of an instance by *S-edges*, and pieces of two instances that conflict by *C-edges*; then there must be no
//! *SC-cycle*, which has edges of both sorts. Steps on one are merged until there is none.
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
//! // The audit reads both, so it would see a payment by halves.
//! let chopping = chop(&outlines, Options::CONVENTIONAL)?;
//! assert_eq!(chopping.procedures[0].pieces.len(), 1);
//! // On a snapshot it is out of the way; and sums commute.
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
//! 3. C-edges of tables whose rows go by [tokens](Token) are dropped: the tokens' C-edges say the same.
//! 4. Steps that may wait for the epoch's end are deferred, and lose their C-edges.
//! 5. Steps on an SC-cycle are merged. By the paper's Theorem 1 that leaves one conflicting piece to each
//!    procedure at most.
//! 6. Steps are merged whose order would otherwise be broken: what a piece needs comes before it, and what
//!    needs it comes after it. With *reordering* the order is what steps need of each other, so that a step
//!    between two others which has to do with neither moves out from between them, and a loop is divided;
//!    this is done only where it makes more pieces. Without it, pieces are ranges of the steps as written, and
//!    loops are not divided.
//! 7. What may roll back by its own decision is in the first piece, with all that has to run before it:
//!    otherwise pieces would have been committed that nobody takes back.
//!
//! Steps 5 to 7 only merge, so they end; and each merge is one that has to be. For 5 that is proved where the
//! [graph](self#reading) is defined; merges for order and for roll-back make no new SC-cycles, for those do
//! not depend on how an instance is chopped. So the outcome is the finest chopping there is under the given
//! options (and for the order that was chosen), and does not depend on the order of merges.
//!
//! # What it takes for granted
//!
//! - What is said of the procedures is so. `#[procedure]` finds it out; but commutative sums must not
//!   overflow, and what `insert` inserts must not be there. Errors of the engine in a piece that is not the
//!   first are errors of the program.
//! - Each piece is atomic, and pieces of one instance run in their order.
//! - A deferred piece is published with the epoch in which the conflicting piece of its transaction has run;
//!   and subscribers read, in their conflicting piece, all of earlier epochs and nothing of their own. Whether
//!   the row is there that a deferred step changes can be looked up at once: nobody inserts or deletes it.
//!
//! # Departures from the paper
//!
//! - *Tokens* are not in the paper, which says that with deferred execution "the accesses to the Order and
//!   Orderline tables can also be removed from the conflicting piece" of DELIVERY (§3.2), and not why they have
//!   no C-edges to NEWORDER's inserts. Here the reason is spelled out, declared and checked.
//! - The paper's premise of deferred execution is about one pair of procedures; here is one about several, too:
//!   no two may wait for each other.
//! - The subscriber's reads of what is deferred stay in its conflicting piece, also where they have no C-edge
//!   left: it would see an epoch's end between two pieces.
//!
//! # Reading
//!
//! In reading order: `outline`, what is known of procedures; `text`, how that is written down; `conflict` and
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

/// What the analysis makes use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Conflicts are looked for in columns, and not in tables (§5).
    pub columns: bool,
    /// What commutes has no C-edge: inserts, and operations of one kind (§3.1).
    pub commutativity: bool,
    /// Independent steps are put in another order where that makes more pieces (§3.1).
    pub reordering: bool,
    /// Procedures that only read do so from snapshots, and leave the graph (§3.2).
    pub snapshots: bool,
    /// What commutes but for its readers is deferred to the end of the epoch (§3.2).
    pub deferral: bool,
    /// Rows that go by tokens have no C-edges besides these.
    pub tokens: bool,
    /// Pieces that read only tables that nobody changes are known as such (§3.3).
    pub static_tables: bool,
}

impl Options {
    /// None: each step that conflicts by table.
    pub const NONE: Options = Options {
        columns: false,
        commutativity: false,
        reordering: false,
        snapshots: false,
        deferral: false,
        tokens: false,
        static_tables: false,
    };

    /// What was known before the paper: by tables, with commutativity and reordering. Its default, as in
    /// Figure 10.
    pub const CONVENTIONAL: Options =
        Options { commutativity: true, reordering: true, ..Options::NONE };

    /// All of them, as in Figure 11.
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

//! Outlines as text, to be read and written by people.
//!
//! A file is a list of procedures; a line is a step.
//!
//! ```text
//! # A row of new_order is the token of an order and its lines.
//! token new_order for order, order_line
//!
//! procedure delivery
//!     loop
//!         oldest: scan new_order
//!         delete new_order; key from oldest; if oldest
//!     end
//!     loop over oldest
//!         update order (reads o_c_id; writes o_carrier_id); key from oldest
//!     end
//!     loop over order
//!         add customer (c_balance, c_delivery_cnt); key from order
//!     end
//! end
//! ```
//!
//! # Grammar
//!
//! What stands in quotes stands so; `[ ]` is what may be there, `{ }` what may be there any number of times. A
//! *name* is made of letters, digits, `_` and `-`. No word is reserved. Space at the beginning of a line is
//! for people. `#` begins a comment, which goes to the end of the line.
//!
//! ```text
//! file      = { token | procedure }
//! token     = "token" table "for" table { "," table } newline
//! procedure = "procedure" name newline { item } "end" newline
//! item      = loop | step
//! loop      = "loop" [ "over" labels ] newline { item } "end" newline
//! step      = [ label ":" ] access table [ "by" index ] [ "(" [ columns ] ")" ] { ";" clause } newline
//! access    = "read" | "scan" | "write" | "update" | "insert" | "upsert" | "delete" | operation
//! operation = "add" | "mul" | "max" | "min" | "or" | "and" | "ordered_put" | "top_k_insert" | "union"
//! columns   = names | part { ";" part }
//! part      = ( "reads" | "writes" | operation ) names
//! names     = "*" | column { "," column }
//! clause    = "key from" labels | "values from" labels | "if" labels | "may roll back" | "at once"
//! labels    = label { "," label }
//! ```
//!
//! - Without columns in brackets a step touches any of them, as far as it is known. `()` is none: only whether
//!   the row is there.
//! - `update` alone has parts; `update t (a, b)` is short for `update t (reads a, b; writes a, b)`. Columns
//!   under an operation are changed by it, and not looked at. `*` is any.
//! - `insert`, `upsert` and `delete` are about whole rows, and have no columns.
//! - A step's label is its table's name, if it has no other. `from` and `if` say which steps it depends on:
//!   for its key, for what it writes, and for whether it runs. They stand before it, or in a loop around both.
//! - Loops are nested at most 64 deep.
//!
//! A text is read in time linear in its length, and messages quote at most 80 characters of a name.

mod read;
mod write;

/// Why a text is not one of outlines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// What is wrong, and what could be there.
    pub what: String,
}

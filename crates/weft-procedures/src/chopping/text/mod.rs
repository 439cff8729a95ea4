//! The text form of outlines, which people can read and write.
//!
//! A file is a list of procedures. Each step is a line.
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
//! Words in quotes stand for themselves. `[ ]` encloses what is optional, and `{ }` what may occur any number
//! of times. A *name* consists of letters, digits, `_` and `-`. No word is reserved. Space at the beginning of
//! a line has no meaning. `#` begins a comment, which extends to the end of the line.
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
//! - A step without columns in brackets may touch any column. `()` means no columns: the step only finds out
//!   whether the row exists.
//! - Only `update` has parts; `update t (a, b)` is short for `update t (reads a, b; writes a, b)`. Columns
//!   after an operation are changed by it, and not read. `*` means any column.
//! - `insert`, `upsert` and `delete` are about whole rows, and have no columns.
//! - If a step has no label, its label is the table's name. `from` and `if` name the steps on which it depends:
//!   for its key, for what it writes, and for whether it runs. Those steps come before it, or are in a loop
//!   around both.
//! - Loops may be nested at most 64 deep.
//!
//! A text is read in time linear in its length, and messages quote at most 80 characters of a name.

mod read;
mod write;

/// The error of a text that does not describe outlines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, in characters, counted from 1.
    pub column: usize,
    /// What is wrong, and what is expected.
    pub what: String,
}

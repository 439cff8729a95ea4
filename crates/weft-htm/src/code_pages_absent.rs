//! A stand-in for `code_pages` on platforms where the program's code cannot be found. It does nothing.

/// Does nothing.
pub(crate) fn map_all() {}

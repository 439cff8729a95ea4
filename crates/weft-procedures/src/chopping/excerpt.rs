//! Short excerpts of names, for messages.

use std::borrow::Cow;

/// The most characters of a name that a message quotes.
const CHARACTERS_MAX: usize = 80;

/// Returns the name, or its beginning and "…" if it is long.
pub(super) fn excerpt(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(CHARACTERS_MAX) {
        None => Cow::Borrowed(name),
        Some((end, _)) => Cow::Owned(format!("{}…", &name[..end])),
    }
}

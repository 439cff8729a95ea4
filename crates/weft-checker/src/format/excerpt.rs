//! Short excerpts of the input, for messages.

use std::fmt::{self, Display, Write};

/// How many characters of the input a message quotes in one place, at most.
const CHARACTERS_MAX: usize = 80;

/// How many characters of a `serde_json` message are kept before and after the part that is left out.
const MESSAGE_PART_CHARACTERS: usize = 160;

/// Returns the beginning of a value's text, with "…" where it is cut. Formats no more than that.
pub(super) fn excerpt(value: &impl Display) -> String {
    let mut bounded = Bounded { text: String::new(), characters: 0 };
    match write!(bounded, "{value}") {
        Ok(()) => bounded.text,
        Err(fmt::Error) => bounded.text + "…",
    }
}

/// Returns a message without its middle, if it is long. Quotes of the input are in the middle: the message
/// begins with what is wrong, and ends with what was expected.
pub(super) fn without_middle(message: &str) -> String {
    let start = message.char_indices().nth(MESSAGE_PART_CHARACTERS);
    let end = message.char_indices().nth_back(MESSAGE_PART_CHARACTERS - 1);
    match (start, end) {
        (Some((start, _)), Some((end, _))) if start < end => {
            format!("{}…{}", &message[..start], &message[end..])
        }
        _ => message.to_owned(),
    }
}

/// A text that takes [`CHARACTERS_MAX`] characters and refuses the next one.
struct Bounded {
    text: String,
    characters: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.characters == CHARACTERS_MAX {
                return Err(fmt::Error);
            }
            self.characters += 1;
            self.text.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_quoted_whole() {
        assert_eq!(excerpt(&"é".repeat(80)), "é".repeat(80));
        assert_eq!(without_middle(&"é".repeat(320)), "é".repeat(320));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(excerpt(&"é".repeat(81)), "é".repeat(80) + "…");
        let cut = format!("{}…{}", "a".repeat(160), "é".repeat(160));
        assert_eq!(without_middle(&("a".repeat(170) + &"é".repeat(170))), cut);
    }
}

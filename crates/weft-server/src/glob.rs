//! Patterns of keys: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that stands for itself.

/// Returns whether a pattern matches all of a text. Takes time in proportion to the product of their lengths.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    // Where to go on if the rest does not match: the last star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at_pattern) == Some(&b'*') {
            star = Some((at_pattern + 1, at_text));
            at_pattern += 1;
            continue;
        }
        if at_text == text.len() {
            return at_pattern == pattern.len();
        }
        match one(&pattern[at_pattern..], text[at_text]) {
            Some(length) => {
                at_pattern += length;
                at_text += 1;
            }
            None => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (at_pattern, at_text) = (*after, *from);
                }
                None => return false,
            },
        }
    }
}

/// Returns the length of the pattern's first element if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => class_matches(class, byte).map(|length| length + 1),
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// Returns the length of a class, with its closing bracket, if it has a byte.
fn class_matches(class: &[u8], byte: u8) -> Option<usize> {
    let inverts = class.first() == Some(&b'^');
    let mut at = usize::from(inverts);
    let mut is_in = false;
    loop {
        match &class[at.min(class.len())..] {
            // A class that is not closed ends with the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                is_in |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [single, ..] => {
                is_in |= *single == byte;
                at += 1;
            }
        }
    }
    (is_in != inverts).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hallo", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("*a*b", "xxaxxb", true),
            ("*a*b", "xxaxx", false),
            ("[abc", "b", true),
            ("", "a", false),
            ("user:*:name", "user:7:name", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
    }
}

//! Checks that the project's prose uses plain words, in which each sentence names its actor.
//!
//! Prose is what a person reads: documents, comments, help and messages. Identifiers and code are not prose. The
//! file `docs/prose-allowed.txt` lists the right uses of a listed word, each with its reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::markdown::{blocks_and_prose, spans_and_words};
use super::{files, root, shown, text};

/// Words and phrases that prose does not use. A plainer form is in the second column.
const LISTED: &[(&str, &str)] = &[
    ("nobody", "name the actor, or \"no thread\", \"no other transaction\""),
    ("whoever", "name the actor"),
    ("whomever", "name the actor"),
    ("whichever", "\"any\", \"the one that\""),
    ("likewise", "\"also\", or repeat the reason"),
    ("meanwhile", "\"while …\""),
    ("is none", "\"isn't one\""),
    ("are none", "\"aren't any\""),
    ("so it is", "say what is so"),
    ("comes to nothing", "say what happens"),
    ("by itself", "\"automatically\", or \"alone\""),
    ("of itself", "\"automatically\""),
    ("anew", "\"again\""),
    ("beforehand", "\"in advance\""),
    ("therein", "\"in it\""),
    ("thereof", "\"of it\""),
    ("that which", "\"what\", or name it"),
    ("as it is without being asked", "\"with default options\""),
];

/// Phrases that do not begin a sentence, unless it is a question.
const LISTED_AT_START: &[(&str, &str)] =
    &[("of which", "begin with the subject"), ("who", "name the actor")];

/// Lines of text that belong together.
struct Paragraph {
    /// The number of its first line.
    line: usize,
    text: String,
}

/// A listed phrase, found.
#[derive(Debug, PartialEq)]
struct Fault {
    line: usize,
    phrase: &'static str,
    instead: &'static str,
}

/// Finds the listed phrases in a paragraph.
fn faults(paragraph: &Paragraph) -> Vec<Fault> {
    let (_, text) = spans_and_words(&paragraph.text);
    let words = words(&text);
    let mut found = Vec::new();
    for at in 0..words.len() {
        let listed = LISTED.iter().map(|listed| (listed, false));
        for (&(phrase, instead), at_start) in
            listed.chain(LISTED_AT_START.iter().map(|listed| (listed, true)))
        {
            let count = phrase.split(' ').count();
            let of_text = &words[at..words.len().min(at + count)];
            let is_it = phrase.split(' ').eq(of_text.iter().map(|(_, word)| word.as_str()))
                && of_text.windows(2).all(|pair| is_one_sentence(&text, pair));
            let begin = words[at].0;
            if is_it && (!at_start || (begins_sentence(&text, begin) && !asks(&text, begin))) {
                let line = paragraph.line + text[..begin].matches('\n').count();
                found.push(Fault { line, phrase, instead });
            }
        }
    }
    found
}

/// The words of a text in lower case, with where they begin.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut end = 0;
    for (at, character) in text.char_indices() {
        // Apostrophes, hyphens and underscores belong to a word, so that no part of an identifier counts as one.
        if !character.is_alphanumeric() && !"_'’-".contains(character) {
            continue;
        }
        match words.last_mut() {
            Some((_, word)) if end == at => word.extend(character.to_lowercase()),
            _ => words.push((at, character.to_lowercase().collect())),
        }
        end = at + character.len_utf8();
    }
    words
}

/// Whether only space lies between two words.
fn is_one_sentence(text: &str, words: &[(usize, String)]) -> bool {
    text[words[0].0 + words[0].1.len()..words[1].0].trim().is_empty()
}

/// Whether a sentence begins at this word. What follows a bullet or a table's bar counts as well.
fn begins_sentence(text: &str, begin: usize) -> bool {
    let before = text[..begin].trim_end_matches([' ', '\n', '*', '(', '"', '“', '[']);
    before.is_empty() || before.ends_with(['.', '!', '?', ':', ';', '|', '#', '-', '>'])
}

/// Whether the sentence that begins here is a question.
fn asks(text: &str, begin: usize) -> bool {
    let end = text[begin..].find(['.', '!', '?', ';', '|']).map(|length| begin + length);
    end.is_some_and(|end| text[end..].starts_with('?'))
}

/// The paragraphs of a Markdown text whose first line has this number, without its blocks of code.
fn of_markdown(text: &str, line: usize) -> Vec<Paragraph> {
    paragraphs(&blocks_and_prose(text).1, line)
}

/// The paragraphs of a text whose first line has this number.
fn paragraphs(text: &str, line: usize) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    for (index, text) in text.lines().enumerate() {
        let is_empty = text.trim().is_empty();
        match paragraphs.last_mut() {
            _ if is_empty => {}
            Some(paragraph) if is_open => {
                paragraph.text.push('\n');
                paragraph.text.push_str(text);
            }
            _ => paragraphs.push(Paragraph { line: line + index, text: text.to_owned() }),
        }
        is_open = !is_empty;
    }
    paragraphs
}

/// The comments of a shell script or a TOML file.
fn of_hash_comments(text: &str) -> Vec<Paragraph> {
    let comment = |line: &str| line.trim_start().strip_prefix('#').unwrap_or("").to_owned() + "\n";
    paragraphs(&text.lines().map(comment).collect::<String>(), 1)
}

/// The comments and the string literals of a Rust file.
fn of_rust(text: &str) -> Vec<Paragraph> {
    let mut scanner = Scanner { text, at: 0, line: 1 };
    let mut found = Vec::new();
    // The comment that may go on in the next line: the number of its first line, and its text.
    let (mut first, mut comment) = (1, String::new());
    while let Some(piece) = scanner.next_piece() {
        match piece {
            Piece::Comment(line, text) => {
                if line > first + comment.matches('\n').count() {
                    found.extend(of_markdown(&std::mem::take(&mut comment), first));
                    first = line;
                }
                let text = text.trim_start_matches('/');
                comment += text.strip_prefix('!').unwrap_or(text);
                comment.push('\n');
            }
            Piece::Literal(line, text) => {
                let text = text.lines().map(|line| line.trim_end_matches('\\'));
                found.extend(paragraphs(&text.collect::<Vec<_>>().join("\n"), line));
            }
        }
    }
    found.extend(of_markdown(&comment, first));
    found
}

/// A piece of prose in a Rust file, with the line that it begins on.
enum Piece<'t> {
    /// From its slashes to the end of the line.
    Comment(usize, &'t str),
    /// The text between the quotes.
    Literal(usize, &'t str),
}

/// Goes through a Rust file, from one comment or literal to the next.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Scanner<'t> {
    fn next_piece(&mut self) -> Option<Piece<'t>> {
        loop {
            let rest = &self.text[self.at..];
            let first = rest.chars().next()?;
            if rest.starts_with("//") {
                let comment = self.take(rest.find('\n').unwrap_or(rest.len()));
                return Some(Piece::Comment(self.line, comment));
            }
            if rest.starts_with("/*") {
                let length = rest.find("*/").map_or(rest.len(), |length| length + 2);
                let line = self.line;
                let comment = self.take(length);
                return Some(Piece::Literal(line, comment));
            }
            if first == '"' {
                return Some(self.literal(1, "\"", true));
            }
            if let Some(hashes) = raw_string(rest, self.text[..self.at].chars().next_back()) {
                let end = format!("\"{}", "#".repeat(hashes));
                return Some(self.literal(2 + hashes, &end, false));
            }
            let length = if first == '\'' { quoted(rest) } else { first.len_utf8() };
            self.take(length);
        }
    }

    /// Takes a literal that begins with so many characters, and ends with `end`.
    fn literal(&mut self, begin: usize, end: &str, escapes: bool) -> Piece<'t> {
        let line = self.line;
        let rest = &self.text[self.at + begin..];
        let mut length = 0;
        while !rest[length..].starts_with(end) {
            let is_escape = escapes && rest[length..].starts_with('\\');
            for character in rest[length..].chars().take(1 + usize::from(is_escape)) {
                length += character.len_utf8();
            }
            if length >= rest.len() {
                break;
            }
        }
        self.take(begin + length + end.len());
        Piece::Literal(line, &rest[..length])
    }

    fn take(&mut self, length: usize) -> &'t str {
        let end = (self.at + length).min(self.text.len());
        let taken = &self.text[self.at..end];
        self.line += taken.matches('\n').count();
        self.at = end;
        taken
    }
}

/// The number of hashes of the raw string that begins here, if one does. `before` is the character before it.
fn raw_string(rest: &str, before: Option<char>) -> Option<usize> {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let is_inside_name = before.is_some_and(|before| is_name(before) && before != 'b');
    let hashes = rest.strip_prefix('r')?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    (!is_inside_name && hashes[count..].starts_with('"')).then_some(count)
}

/// The length of the character literal or lifetime that begins with this quote.
fn quoted(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => rest[3..].find('\'').map_or(1, |length| length + 4),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// All prose of the repository, by file.
fn all_prose() -> BTreeMap<String, Vec<Paragraph>> {
    let mut sources = vec![root().join(".cargo/config.toml")];
    for ending in [".md", ".rs", ".toml", ".sh"] {
        sources.extend(files(&root(), ending));
    }
    let scripts = ["run", "deep", "application-lines"];
    sources.extend(scripts.map(|script| root().join(".ci").join(script)));
    // This file has the words, to find them.
    let this = root().join("crates/weft-guide/tests/documents/prose.rs");
    let sources = sources.into_iter().filter(|file| *file != this);
    let prose = sources.map(|file| {
        let text = text(&file);
        let prose = match file.extension().and_then(|extension| extension.to_str()) {
            Some("md") => of_markdown(&text, 1),
            Some("rs") => of_rust(&text),
            _ => of_hash_comments(&text),
        };
        (shown(&file), prose)
    });
    prose.collect()
}

/// The right uses: file and phrase.
fn allowed() -> Vec<(String, String)> {
    let list = include_str!("../../../../docs/prose-allowed.txt");
    let entries = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = entries.map(|line| {
        let mut fields = line.split(" | ");
        let (Some(file), Some(phrase), Some(_reason), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            panic!("docs/prose-allowed.txt: not 'FILE | PHRASE | REASON': {line}");
        };
        (file.to_owned(), phrase.to_owned())
    });
    entries.collect()
}

#[test]
fn prose_uses_plain_words() {
    let allowed = allowed();
    let mut used = vec![false; allowed.len()];
    let mut message = String::new();
    let prose = all_prose();
    assert!(prose.len() > 500, "{} files", prose.len());
    for (file, paragraphs) in prose {
        for fault in paragraphs.iter().flat_map(faults) {
            let entry = allowed
                .iter()
                .position(|(in_file, phrase)| *in_file == file && phrase.as_str() == fault.phrase);
            match entry {
                Some(entry) => used[entry] = true,
                None => {
                    let Fault { line, phrase, instead } = fault;
                    writeln!(message, "{file}:{line}: '{phrase}': {instead}").expect("it has room");
                }
            }
        }
    }
    for ((file, phrase), _) in allowed.iter().zip(&used).filter(|(_, used)| !**used) {
        writeln!(message, "docs/prose-allowed.txt: {file} does not use '{phrase}'")
            .expect("it has room");
    }
    assert!(message.is_empty(), "see docs/prose-allowed.txt for right uses:\n{message}");
}

#[test]
fn planted_words_are_found_where_they_are() {
    let rust = "//! Nobody waits.\n//!\n//! ```\n//! nobody();\n//! ```\nfn nobody() {\n    \
        // It comes by\n    // itself, `whoever` asks.\n    f('\"', r#\"so\n    it is\"#, \"\\\"anew\");\n}\n";
    let found: Vec<_> = of_rust(rust).iter().flat_map(faults).collect();
    let found: Vec<_> = found.iter().map(|fault| (fault.line, fault.phrase)).collect();
    assert_eq!(found, [(1, "nobody"), (9, "so it is"), (10, "anew"), (7, "by itself")]);
}

#[test]
fn a_sentence_may_ask_who() {
    let text = "Who holds the lock? So. It is the worker.\n\nWho waits is late. The one\nwho waits, who else.\n\n\
        - Of which\nnone is left.\n";
    let found: Vec<_> = of_markdown(text, 1).iter().flat_map(faults).collect();
    let found: Vec<_> = found.iter().map(|fault| (fault.line, fault.phrase)).collect();
    assert_eq!(found, [(3, "who"), (6, "of which")]);
}

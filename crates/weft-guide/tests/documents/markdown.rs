//! Markdown, as far as these tests have to understand it.

/// A fenced block of code.
pub struct Block {
    /// The line of its first fence, from 1.
    pub line: usize,
    /// The text behind the first fence.
    pub info: String,
    pub lines: Vec<String>,
}

/// Divides a document into its fenced blocks, and the rest, in which the blocks are empty lines.
pub fn blocks_and_prose(document: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut prose): (Vec<Block>, String) = (Vec::new(), String::new());
    let mut open: Option<(String, Block)> = None;
    for (number, line) in document.lines().enumerate() {
        let trimmed = line.trim_start();
        match &mut open {
            Some((fence, _)) if trimmed.trim_end() == fence => {
                blocks.extend(open.take().map(|(_, block)| block));
                prose.push('\n');
            }
            Some((_, block)) => {
                block.lines.push(line.to_owned());
                prose.push('\n');
            }
            None if trimmed.starts_with("```") => {
                let info = trimmed.trim_start_matches('`');
                let fence = trimmed[..trimmed.len() - info.len()].to_owned();
                let block =
                    Block { line: number + 1, info: info.trim().to_owned(), lines: Vec::new() };
                open = Some((fence, block));
                prose.push('\n');
            }
            None => {
                prose.push_str(line);
                prose.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a block of code without an end");
    (blocks, prose)
}

/// Divides prose into its code spans, each with its line, and the rest, in which a backtick stands for each span.
pub fn spans_and_words(prose: &str) -> (Vec<(usize, String)>, String) {
    let (mut spans, mut words) = (Vec::new(), String::new());
    let mut rest = prose;
    while let Some(start) = rest.find('`') {
        words.push_str(&rest[..start]);
        let after = rest[start..].trim_start_matches('`');
        let ticks = rest[start..].len() - after.len();
        // A span ends with as many ticks, and within its paragraph.
        let paragraph = &after[..after.find("\n\n").unwrap_or(after.len())];
        let end = paragraph.match_indices('`').map(|(position, _)| position).find(|&position| {
            let here = &paragraph[position..];
            let run = here.len() - here.trim_start_matches('`').len();
            run == ticks && !paragraph[..position].ends_with('`')
        });
        match end {
            Some(end) => {
                let line = 1 + prose[..prose.len() - after.len()].matches('\n').count();
                spans.push((line, after[..end].to_owned()));
                words.push('`');
                // Keeps the lines' numbers.
                words.extend(after[..end].chars().filter(|&character| character == '\n'));
                rest = &after[end + ticks..];
            }
            None => rest = after,
        }
    }
    words.push_str(rest);
    (spans, words)
}

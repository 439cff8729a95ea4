//! The lines of code that README.md names.

use std::fs;
use std::path::Path;

/// Returns how many lines of a file are neither empty nor only a comment.
fn lines_of_code(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn the_readme_has_the_lines_of_code_of_each_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (mut missing, mut server) = (Vec::new(), 0);
    for directory in ["src", "tests/shop", "browser/src", "browser/tests"] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let file = format!("{directory}/{}", entry.unwrap().file_name().display());
            let lines = lines_of_code(&root.join(&file));
            if directory == "src" && file.ends_with(".rs") {
                server += lines;
            }
            // Not worth a line: `src/lib.rs` and `tests/shop/main.rs`.
            let cells = format!("| [{file}]({file}) | {lines} |");
            if lines > 15 && !readme.contains(&cells) {
                missing.push(cells);
            }
        }
    }
    let sum = format!("The server has {server} lines of Rust.");
    if !readme.contains(&sum) {
        missing.push(sum);
    }
    assert!(missing.is_empty(), "README.md must have:\n{}", missing.join("\n"));
}

//! The registry of call sites: how often each file of the engine makes a call that leads to user code.
//!
//! The [runs](crate::run) find the calls that they make, and let an operation misbehave at each of them. This list
//! has all other calls, too, because it is made from the source text. When a call is added, the test fails until
//! somebody has reviewed it and has changed `callers.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Calls that lead to user code, as they are written in the source.
const CALLS: &[&str] = &[
    ".encode_row(",
    ".encode_change(",
    ".encode_changes(",
    ".encode_key(",
    ".decode_row(",
    "::decode_row(",
    "::decode_key(",
    ".clone_row(",
    ".same_columns(",
    ".same_index_keys(",
    ".index_key_differs(",
    ".encode_index_key(",
    ".may_be_written(",
    ".apply_to(",
    ".rebase(",
    ".lacks_room(",
    ".add_difference(",
    ".stored_bytes(",
    ".heap_bytes(",
    ".heap_bytes_of(",
    ".is_same(",
    ".index_key(",
    "index_key(row",
    "from_key(",
    "number(&key)",
    "Key::generate(",
    "= row(key",
    ".key_equals(",
    "row.check()",
    "T::migrate(",
    "compute(row",
    "hook(&Migration",
    "(hook.0)(self",
    "wanted(row)",
    "check(&row",
    "format_key)",
    "encode_prefix(",
    "from_lookup(",
    "encode_lookup(",
    "encode_start(",
    "encode_rest_of_key(",
    "drop_row(row",
    ".drop_newest(",
];

/// The path of the list of known calls. It has a line for each file and call, with the number of such calls.
const KNOWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/callers.txt");

fn visit(directory: &Path, found: &mut BTreeMap<String, usize>, root: &Path) {
    for entry in fs::read_dir(directory).expect("the source directory can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            visit(&path, found, root);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("the source file can be read");
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            let name = name.replace('\\', "/");
            // Tests inside the crate are not part of the engine.
            if name.ends_with("tests.rs") {
                continue;
            }
            let code: Vec<&str> = text
                .lines()
                .take_while(|line| !line.starts_with("mod tests {"))
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            for call in CALLS {
                let is_call = |line: &&&str| line.contains(call) && !line.contains("fn ");
                let calls = code.iter().filter(is_call).count();
                if calls > 0 {
                    found.insert(format!("{name}: {call}"), calls);
                }
            }
        }
    }
}

#[test]
fn calls_of_user_code_are_known() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate lies among others");
    let mut found = BTreeMap::new();
    for name in ["weft", "weft-inspect", "weft-procedures", "weft-protocols"] {
        visit(&crates.join(name).join("src"), &mut found, crates);
    }
    let found: BTreeSet<String> =
        found.into_iter().map(|(call, times)| format!("{call} {times}")).collect();
    let known = fs::read_to_string(KNOWN).expect("callers.txt can be read");
    let known: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&known).cloned().collect();
    let gone: Vec<_> = known.difference(&found).cloned().collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "the engine's calls of user code differ from tests/hostile/callers.txt.\n\
         New (check that no lock and no borrow is held there and that nothing is half done, and add them):\n{}\n\
         Gone (remove them from the list):\n{}",
        new.join("\n"),
        gone.join("\n")
    );
}

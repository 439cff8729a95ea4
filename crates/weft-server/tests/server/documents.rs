//! The page of the guide lists the commands that there are, and those that there are not.

use std::collections::BTreeMap;
use std::fmt::Write;

use weft_server::list_commands;

/// Returns the two tables of the page.
fn tables() -> String {
    let (there, absent) = list_commands();
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, group) in &there {
        groups.entry(group).or_default().push(name);
    }
    let quoted = |names: &[&str]| {
        let mut names: Vec<_> =
            names.iter().map(|name| format!("`{}`", name.to_uppercase())).collect();
        names.sort();
        names.join(", ")
    };
    let mut text = format!("\nThere are {}:\n\n| group | commands |\n| --- | --- |\n", there.len());
    for (group, names) in groups {
        writeln!(text, "| {group} | {} |", quoted(&names)).unwrap();
    }
    let count: usize = absent.iter().map(|(names, _)| names.split(' ').count()).sum();
    write!(
        text,
        "\nThese {count} are not there:\n\n| commands | why, or what to do |\n| --- | --- |\n"
    )
    .unwrap();
    for (names, reason) in absent {
        let names: Vec<_> = names.split(' ').collect();
        writeln!(text, "| {} | {reason} |", quoted(&names)).unwrap();
    }
    text + "\n"
}

#[test]
fn the_page_lists_every_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/redis.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("<!-- commands -->\n").unwrap();
    let (listed, after) = rest.split_once("<!-- /commands -->").unwrap();
    if std::env::var_os("WEFT_SERVER_RECORD").is_some() {
        let page = format!("{before}<!-- commands -->\n{}<!-- /commands -->{after}", tables());
        std::fs::write(path, page).unwrap();
    } else {
        assert_eq!(listed, tables(), "run this test with WEFT_SERVER_RECORD=1 to write the tables");
    }
}

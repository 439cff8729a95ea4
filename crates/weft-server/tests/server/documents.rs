//! The pages of the guide list the commands that there are, those that there are not, and the settings.

use std::collections::BTreeMap;
use std::fmt::Write;

use weft_server::{Options, SETTINGS, list_commands};

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

/// Returns the table of settings.
fn settings() -> String {
    let mut text = "\n| setting | Redis's name | default | live | what it is |\n| --- | --- | --- | --- | --- |\n".to_owned();
    let defaults = Options::default();
    let quoted = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    for setting in SETTINGS {
        let (redis, default) = (quoted(setting.redis), quoted(&setting.get(&defaults)));
        let live = if setting.is_live() { "yes" } else { "" };
        let (name, help) = (setting.name, setting.help.replace('|', "\\|"));
        writeln!(text, "| `{name}` | {redis} | {default} | {live} | {help} |").unwrap();
    }
    text + "\n"
}

/// Compares the part of a page between two marks, or writes it.
fn check(page: &str, mark: &str, expected: &str) {
    let path = format!("{}/../../docs/guide/src/{page}", env!("CARGO_MANIFEST_DIR"));
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(&begin).unwrap();
    let (listed, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("WEFT_SERVER_RECORD").is_some() {
        std::fs::write(path, format!("{before}{begin}{expected}{end}{after}")).unwrap();
    } else {
        assert_eq!(listed, expected, "run this test with WEFT_SERVER_RECORD=1 to write the table");
    }
}

#[test]
fn the_page_lists_every_command() {
    check("redis.md", "commands", &tables());
}

#[test]
fn the_page_lists_every_setting() {
    check("running-the-server.md", "settings", &settings());
}

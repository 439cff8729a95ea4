//! The pages of the guide list the commands that there are, those that there are not, and the settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use weft_server::{Options, SETTINGS, list_commands};

use crate::client::{Client, TestServer, Value};
use crate::durable::Directory;
use crate::missing::skip;
use crate::replies::Redis;

/// Returns the two tables of the page.
fn tables() -> String {
    let (there, absent) = list_commands();
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, group) in &there {
        groups.entry(group).or_default().push(name);
    }
    let quoted = |names: &[&str]| {
        // A part of a command is written as clients send it.
        let shown = |name: &&str| format!("`{}`", name.replace('|', " ").to_uppercase());
        let mut names: Vec<_> = names.iter().map(shown).collect();
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
        "\nThese {count} are not there, commands and parts of commands:\n\n| commands | why, or what to do |\n| --- | --- |\n"
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
    let mut text = "\n| setting | value | Redis's name | default | live | what it is |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
    let defaults = Options::default();
    let quoted = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    for setting in SETTINGS {
        let (redis, default) = (quoted(setting.redis), quoted(&setting.get(&defaults)));
        let live = if setting.is_live() { "yes" } else { "" };
        let [value, help] = [setting.value, setting.help].map(|text| text.replace('|', "\\|"));
        let name = setting.name;
        writeln!(text, "| `{name}` | `{value}` | {redis} | {default} | {live} | {help} |").unwrap();
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

/// Returns the tokens of a command's arguments, and the types of those without.
fn words_of(value: &Value, words: &mut BTreeSet<String>) {
    let Value::List(_, values) = value else { return };
    for (at, value) in values.iter().enumerate() {
        match value {
            Value::Text(text) if *text == b"token" => {
                if let Some(Value::Text(token)) = values.get(at + 1) {
                    words.insert(String::from_utf8_lossy(token).to_uppercase());
                }
            }
            value => words_of(value, words),
        }
    }
}

/// Words of arguments that only one of the two has: of the server, and of Redis.
const OTHER_WORDS: &[(&str, &[&str], &[&str])] = &[
    // Redis 7.0 calls it a string.
    ("bitop", &["AND", "NOT", "OR", "XOR"], &[]),
    // Redis shows the names of its subcommands elsewhere.
    ("command", &["COUNT", "DOCS", "GETKEYS", "HELP", "INFO", "LIST"], &[]),
];

#[test]
fn the_arguments_are_those_that_redis_documents() {
    let folder = Directory::new("docs");
    let Some(redis) = Redis::start_in(&folder.0) else {
        skip("redis-server", "redis-server");
        return;
    };
    let server = TestServer::new();
    let (mut ours, mut theirs) = (server.client(), Client::new(redis.1));
    let mut different = Vec::new();
    for (name, _) in list_commands().0 {
        let [ours, theirs] = [&mut ours, &mut theirs].map(|client| {
            let docs = client.line(&format!("COMMAND DOCS {name}"));
            let mut words = BTreeSet::new();
            words_of(&docs, &mut words);
            let shown = docs.shown();
            let [arguments, subcommand] = ["\"arguments\"", "\"subcommand\""];
            (words, shown.contains(arguments), shown.contains(subcommand))
        });
        assert!(ours.1 || !theirs.1, "{name} has no arguments");
        // Redis shows subcommands as commands of their own.
        if theirs.1 && !ours.2 {
            let less = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect();
            let (more, less): (Vec<_>, Vec<_>) =
                (less(&ours.0, &theirs.0), less(&theirs.0, &ours.0));
            let expected = OTHER_WORDS.iter().find(|(of, ..)| *of == name);
            let expected = expected.map_or((&[][..], &[][..]), |(_, more, less)| (*more, *less));
            if more != expected.0 || less != expected.1 {
                different.push((name, more, less));
            }
        }
    }
    assert!(different.is_empty(), "{different:?}");
}

#[test]
fn the_page_lists_every_command() {
    check("redis.md", "commands", &tables());
}

#[test]
fn the_page_lists_every_setting() {
    check("running-the-server.md", "settings", &settings());
}

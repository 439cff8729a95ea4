//! The repository's documents: that links lead somewhere, that commands exist, that what is counted is right, and that
//! the prose uses plain words.
//!
//! Commands are compared with the definitions of clap in the sources of the programs, which are not libraries. So a
//! subcommand or an option that was renamed is found; whether an option belongs to the very subcommand is not.

mod markdown;
mod prose;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use weft_protocols::{NAMES, PROTOCOLS};

use markdown::{Block, blocks_and_prose, spans_and_words};

// ---- files --------------------------------------------------------------------------------------

/// The root of the repository.
fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in crates/");
    crates.parent().expect("crates/ lies in the repository").to_owned()
}

/// A file's text.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder whose names end like this, sorted. What builds have left is not among them.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry of the folder").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name == "target" {
            continue;
        } else if path.is_dir() {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The folder of the guide's chapters.
fn guide() -> PathBuf {
    root().join("docs/guide/src")
}

/// The documents whose commands and numbers are checked: those for newcomers.
fn entrance() -> Vec<PathBuf> {
    let mut documents = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    documents.extend(files(&guide(), ".md"));
    documents
}

/// A path from the root, for messages.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

// ---- Markdown -----------------------------------------------------------------------------------

/// The targets of a document's links, each with its line.
fn links(document: &str) -> Vec<(usize, String)> {
    let (_, prose) = blocks_and_prose(document);
    let (_, words) = spans_and_words(&prose);
    let targets = words.match_indices("](").map(|(position, _)| {
        let target = &words[position + 2..];
        let target = &target[..target.find([')', ' ', '\n']).unwrap_or(target.len())];
        (1 + words[..position].matches('\n').count(), target.to_owned())
    });
    targets.collect()
}

/// The anchors of a document's headings, as code hosts make them.
fn anchors(document: &str) -> BTreeSet<String> {
    let (_, prose) = blocks_and_prose(document);
    let mut seen = BTreeMap::<String, usize>::new();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let slugs = headings.map(|heading| {
        let mut title = heading.trim_start_matches('#').trim().to_owned();
        // Only the text of a link counts.
        while let Some(start) = title.find("](") {
            let end = title[start..].find(')').map_or(title.len(), |end| start + end + 1);
            title.replace_range(start..end, "");
        }
        let title = title.to_lowercase();
        let kept = title.chars().filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ => character.is_alphanumeric().then_some(character),
        });
        let slug: String = kept.collect();
        let count = seen.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    });
    slugs.collect()
}

// ---- the guide ----------------------------------------------------------------------------------

/// The chapters that the table of contents names.
fn chapters() -> Vec<String> {
    links(&text(&guide().join("SUMMARY.md"))).into_iter().map(|(_, target)| target).collect()
}

#[test]
fn the_table_of_contents_has_every_chapter_once() {
    let named = chapters();
    let set: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(set.len(), named.len(), "a chapter is named twice in SUMMARY.md");
    let guide = guide();
    let there: BTreeSet<String> = files(&guide, ".md")
        .iter()
        .map(|file| file.strip_prefix(&guide).expect("a file of the guide"))
        .map(|file| file.to_string_lossy().replace('\\', "/"))
        .filter(|file| file != "SUMMARY.md")
        .collect();
    assert_eq!(set, there, "SUMMARY.md (left) and the files of the guide (right)");
}

#[test]
fn every_rust_example_of_the_guide_is_run() {
    let library = text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs"));
    let mut examples = 0;
    for chapter in chapters() {
        let (blocks, _) = blocks_and_prose(&text(&guide().join(&chapter)));
        let rust: Vec<&Block> =
            blocks.iter().filter(|block| block.info.starts_with("rust")).collect();
        examples += rust.len();
        for block in rust {
            assert_eq!(
                block.info, "rust",
                "{chapter}:{}: examples are compiled and run",
                block.line
            );
        }
        for block in blocks {
            let known = ["rust", "console", "text", "json"];
            assert!(
                known.contains(&block.info.as_str()),
                "{chapter}:{}: no kind of block",
                block.line
            );
        }
        let included = format!("include_str!(\"../../../docs/guide/src/{chapter}\")");
        assert!(library.contains(&included), "src/lib.rs does not include {chapter}");
    }
    assert!(examples > 20, "{examples} examples");
}

#[test]
fn every_protocol_has_its_page() {
    let mut described = BTreeMap::<String, PathBuf>::new();
    for page in files(&guide().join("protocols"), ".md") {
        if page.ends_with("README.md") {
            continue;
        }
        let page_text = text(&page);
        let heading = page_text.lines().next().and_then(|line| line.strip_prefix("# "));
        let heading = heading.unwrap_or_else(|| panic!("{}: no heading", shown(&page)));
        for name in heading.split(" and ") {
            assert!(NAMES.contains(&name), "{}: there is no protocol `{name}`", shown(&page));
            assert!(
                described.insert(name.to_owned(), page.clone()).is_none(),
                "`{name}` has two pages"
            );
        }
    }
    let overview = text(&guide().join("protocols/README.md"));
    for protocol in PROTOCOLS {
        let page = described.get(protocol.name);
        let page = page.unwrap_or_else(|| panic!("`{}` has no page in protocols/", protocol.name));
        let file = page.file_name().unwrap_or_default().to_string_lossy();
        let link = format!("[`{}`]({file})", protocol.name);
        assert!(overview.contains(&link), "protocols/README.md has no {link}");
    }
}

// ---- links --------------------------------------------------------------------------------------

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    let mut followed = 0;
    // Other files in a working copy, such as figures, do not belong to the repository.
    let mut documents: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    for folder in ["docs", "crates", "peers"] {
        documents.extend(files(&root().join(folder), ".md"));
    }
    for document in documents {
        let folder = document.parent().expect("a file lies in a folder");
        for (line, target) in links(&text(&document)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { document.clone() } else { folder.join(path) };
            let is_there = path.exists();
            let is_markdown = path.extension().is_some_and(|extension| extension == "md");
            let has_anchor = || !is_markdown || anchors(&text(&path)).contains(anchor);
            if !is_there || !(anchor.is_empty() || has_anchor()) {
                broken.push(format!("{}:{line}: {target}", shown(&document)));
            }
        }
    }
    assert!(followed > 300, "{followed} links");
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

// ---- commands -----------------------------------------------------------------------------------

/// What the programs accept, by the sources.
struct Programs {
    /// Cargo's aliases.
    aliases: BTreeSet<String>,
    /// The subcommands of each enum, with the enum of the next level, by crate and name of the enum.
    subcommands: BTreeMap<(String, String), BTreeMap<String, Option<String>>>,
    /// All long options of all commands.
    options: BTreeSet<String>,
    /// The names of protocols: the program's, and those that the guide's examples define.
    protocols: BTreeSet<String>,
}

/// `PascalCase` or `snake_case` as clap writes it on the command line.
fn kebab_case(name: &str) -> String {
    let mut kebab = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(if character == '_' { '-' } else { character }.to_lowercase());
    }
    kebab
}

/// The last name of a type's path.
fn name_of(type_of: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = type_of else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

/// Whether an attribute `name` has `word` among its arguments.
fn has_word(attributes: &[syn::Attribute], name: &str, word: &str) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident(name)).any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.tokens
            .to_string()
            .split(|character: char| !character.is_alphanumeric())
            .any(|part| part == word)
    })
}

/// The long options of a struct's fields.
fn long_options(fields: &syn::Fields, options: &mut BTreeSet<String>) {
    for field in fields {
        let Some(name) = &field.ident else { continue };
        let mut arguments = field.attrs.iter().filter(|attribute| attribute.path().is_ident("arg"));
        if !arguments
            .clone()
            .any(|attribute| has_word(std::slice::from_ref(attribute), "arg", "long"))
        {
            continue;
        }
        let explicit = arguments.find_map(|attribute| {
            let syn::Meta::List(list) = &attribute.meta else { return None };
            let tokens = list.tokens.to_string();
            let (_, value) = tokens.split_once("long = \"")?;
            Some(value[..value.find('"')?].to_owned())
        });
        options.insert(explicit.unwrap_or_else(|| kebab_case(&name.to_string())));
    }
}

impl Programs {
    /// Reads the sources.
    fn read() -> Programs {
        let config = text(&root().join(".cargo/config.toml"));
        let aliases = config.lines().filter(|line| !line.starts_with(['#', '[']));
        let aliases =
            aliases.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect();
        let (mut subcommands, mut options) = (BTreeMap::new(), BTreeSet::new());
        for package in ["weft-bench", "weft-cli", "weft-lab", "weft-options", "weft-simulate"] {
            for file in files(&root().join("crates").join(package).join("src"), ".rs") {
                let parsed = syn::parse_file(&text(&file))
                    .unwrap_or_else(|error| panic!("{}: {error}", shown(&file)));
                for item in parsed.items {
                    match item {
                        syn::Item::Enum(item) if has_word(&item.attrs, "derive", "Subcommand") => {
                            let variants = item.variants.iter().map(|variant| {
                                long_options(&variant.fields, &mut options);
                                let next = variant
                                    .fields
                                    .iter()
                                    .find(|field| has_word(&field.attrs, "command", "subcommand"));
                                let next = next.and_then(|field| name_of(&field.ty));
                                (kebab_case(&variant.ident.to_string()), next)
                            });
                            let variants = variants.collect();
                            subcommands
                                .insert((package.to_owned(), item.ident.to_string()), variants);
                        }
                        syn::Item::Struct(item) => long_options(&item.fields, &mut options),
                        _ => {}
                    }
                }
            }
        }
        options.extend(["help".to_owned(), "version".to_owned()]);
        let mut protocols: BTreeSet<String> = NAMES.iter().map(|&name| name.to_owned()).collect();
        for chapter in files(&guide(), ".md") {
            let (blocks, _) = blocks_and_prose(&text(&chapter));
            for line in blocks.iter().flat_map(|block| &block.lines) {
                let name = line.trim().strip_prefix("const NAME: &'static str = \"");
                protocols.extend(name.and_then(|name| name.strip_suffix("\";")).map(str::to_owned));
            }
        }
        Programs { aliases, subcommands, options, protocols }
    }

    /// The subcommands of an enum.
    fn of(&self, package: &str, name: &str) -> &BTreeMap<String, Option<String>> {
        let key = (package.to_owned(), name.to_owned());
        self.subcommands.get(&key).unwrap_or_else(|| panic!("{package} has no enum {name}"))
    }

    /// Checks a command line; `Err` says what is wrong with it.
    fn check(&self, words: &[String]) -> Result<(), String> {
        let mut words = words.iter().map(String::as_str).peekable();
        // Environment.
        while words.peek().is_some_and(|word| {
            let name = word.split_once('=').map_or("", |(name, _)| name);
            !name.is_empty()
                && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        }) {
            words.next();
        }
        let program = words.next().unwrap_or_default();
        let arguments: Vec<&str> = words.collect();
        match program {
            "cargo" => self.check_cargo(&arguments),
            "weft" => self.check_arguments("weft-cli", "Command", &arguments),
            "cd" => Ok(()),
            path if path.contains('/') && root().join(path).exists() => Ok(()),
            other => Err(format!("no program `{other}`")),
        }
    }

    fn check_cargo(&self, arguments: &[&str]) -> Result<(), String> {
        let (&command, rest) = arguments.split_first().unwrap_or((&"", &[]));
        match command {
            "doc" | "run" | "test" | "add" | "new" | "fmt" | "clippy" | "build" => {
                check_packages(rest)
            }
            alias if !self.aliases.contains(alias) => Err(format!("no alias `cargo {alias}`")),
            "weft" => self.check_arguments("weft-cli", "Command", rest),
            "lab" => self.check_arguments("weft-lab", "Command", rest),
            "simulate" => self.check_arguments("weft-simulate", "Workload", rest),
            "export" => self.check_options(rest),
            _ => Ok(()),
        }
    }

    /// Checks subcommands, level by level, and then the options.
    fn check_arguments(&self, package: &str, name: &str, arguments: &[&str]) -> Result<(), String> {
        let mut level = Some(name.to_owned());
        let mut rest = arguments;
        while let Some(name) = level {
            let Some((&word, behind)) = rest.split_first() else { break };
            // In prose: any of them.
            if word.starts_with('-') || word == "…" || word.contains('|') {
                break;
            }
            let known = self.of(package, &name);
            let Some(next) = known.get(word) else {
                let known: Vec<_> = known.keys().cloned().collect();
                return Err(format!("no subcommand `{word}`; there are {}", known.join(", ")));
            };
            (level, rest) = (next.clone(), behind);
        }
        self.check_options(rest)
    }

    fn check_options(&self, arguments: &[&str]) -> Result<(), String> {
        for (position, argument) in arguments.iter().enumerate() {
            if let Some(option) = argument.strip_prefix("--") {
                let option = option.split('=').next().unwrap_or_default();
                if !option.is_empty() && !self.options.contains(option) {
                    return Err(format!("no option `--{option}`"));
                }
            }
            if ["--protocol", "-p"].contains(argument) {
                let names = arguments.get(position + 1).copied().unwrap_or_default().split(',');
                // A variant is named behind a colon. `raw` is no protocol, and takes part in YCSB.
                let mut names = names.map(|name| name.split(':').next().unwrap_or_default());
                if let Some(name) =
                    names.find(|&name| !self.protocols.contains(name) && name != "raw")
                {
                    return Err(format!("no protocol `{name}`"));
                }
            }
        }
        Ok(())
    }
}

/// Checks what the arguments of one of cargo's own commands name in this repository.
fn check_packages(arguments: &[&str]) -> Result<(), String> {
    let arguments = arguments.split(|argument| *argument == "--").next().unwrap_or_default();
    let crates = root().join("crates");
    let mut package = None;
    for pair in arguments.windows(2) {
        if ["-p", "--package"].contains(&pair[0]) {
            package = Some(crates.join(pair[1]));
        }
        if pair[0] == "--path" {
            // From a folder beside the checkout.
            let path = pair[1].strip_prefix("../weft/").ok_or("a path beside the checkout")?;
            package = Some(root().join(path));
        }
    }
    let Some(package) = package else { return Ok(()) };
    if !package.join("Cargo.toml").exists() {
        return Err(format!("no package in {}", shown(&package)));
    }
    let manifest = text(&package.join("Cargo.toml"));
    for pair in arguments.windows(2) {
        let (folder, name) = match pair[0] {
            "--example" => ("examples", pair[1]),
            "--test" => ("tests", pair[1]),
            "--bench" => ("benches", pair[1]),
            "--features" if !manifest.contains(&format!("\n{} = [", pair[1])) => {
                return Err(format!("no feature `{}`", pair[1]));
            }
            _ => continue,
        };
        let file = package.join(folder).join(name);
        if !file.with_extension("rs").exists() && !file.join("main.rs").exists() {
            return Err(format!("no {}", shown(&file)));
        }
    }
    Ok(())
}

/// Divides a command line into words. Quotes hold words together; a comment, a pipe and a redirection end it.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for character in command.chars() {
        match quote {
            Some(end) if character == end => quote = None,
            Some(_) => word.push(character),
            None if character == '"' || character == '\'' => quote = Some(character),
            None if character.is_whitespace() => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)))
            }
            None => word.push(character),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    let end = words.iter().position(|word| ["|", ">", "#", "&&"].contains(&word.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    words
}

/// The commands of a document's console blocks, each with its line.
fn commands(document: &str) -> Vec<(usize, String)> {
    let (blocks, _) = blocks_and_prose(document);
    let mut commands = Vec::<(usize, String)>::new();
    for block in blocks.iter().filter(|block| block.info == "console") {
        let mut goes_on = false;
        for (number, line) in block.lines.iter().enumerate() {
            if let Some(command) = line.trim_start().strip_prefix("$ ") {
                commands.push((block.line + 1 + number, command.to_owned()));
            } else if goes_on && let Some((_, command)) = commands.last_mut() {
                command.push_str(line);
            }
            goes_on = line.ends_with('\\');
            if goes_on && let Some((_, command)) = commands.last_mut() {
                command.pop();
            }
        }
    }
    commands
}

#[test]
fn commands_in_documents_exist() {
    let programs = Programs::read();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for document in entrance() {
        let document_text = text(&document);
        let (_, prose) = blocks_and_prose(&document_text);
        let (spans, _) = spans_and_words(&prose);
        let in_prose = spans.into_iter().filter(|(_, span)| span.starts_with("cargo "));
        for (line, command) in commands(&document_text).into_iter().chain(in_prose) {
            checked += 1;
            if let Err(error) = programs.check(&words(&command)) {
                wrong.push(format!("{}:{line}: {command}: {error}", shown(&document)));
            }
        }
    }
    assert!(checked > 60, "{checked} commands");
    assert!(wrong.is_empty(), "commands that do not exist:\n{}", wrong.join("\n"));
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let programs = Programs::read();
    let check = |command: &str| programs.check(&words(command));
    for right in [
        "cargo weft log inspect DIR",
        "cargo lab bench tpcc --protocol htcc:restart,dbx --threads 2",
        "WEFT_STRESS=20 cargo test-simulated",
        "RUSTFLAGS=\"--cfg loom\" cargo test -p weft --lib -- loom",
        "cargo run --release -p weft --features history --example history -- dbx > history.jsonl",
    ] {
        assert_eq!(check(right), Ok(()), "{right}");
    }
    for wrong in [
        "cargo weft bench ycsb",
        "cargo weft log show DIR",
        "cargo lap protocols",
        "cargo lab bench tpcc --protocol dxb",
        "cargo lab bench tpcc --thread 2",
        "cargo run -p weft --example bang",
        "cargo test -p weft-gide",
        "cargo run -p weft --features hystory --example history",
        "weft inspect DIR",
        "wept check FILE",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}

// ---- numbers ------------------------------------------------------------------------------------

/// A number in words or digits.
fn number(word: &str) -> Option<usize> {
    const WORDS: [&str; 21] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    WORDS.iter().position(|known| *known == word).or_else(|| word.parse().ok())
}

/// Where a document counts a noun: `fourteen protocols`, also with one word between. Each with its line.
fn counted(document: &str, noun: &str) -> Vec<(usize, usize)> {
    let (_, prose) = blocks_and_prose(document);
    let mut found = Vec::new();
    let (mut before, mut last) = (None, None);
    for (line, line_text) in prose.lines().enumerate() {
        for word in line_text.split_whitespace() {
            let is_end = word.ends_with(['.', ',', ';', ':', '|', ')']);
            let word =
                word.trim_matches(|character: char| !character.is_alphanumeric()).to_lowercase();
            if word == noun {
                found.extend(last.or(before).map(|number| (line + 1, number)));
            }
            (before, last) = if is_end { (None, None) } else { (last, number(&word)) };
        }
    }
    found
}

#[test]
fn numbers_in_documents_agree_with_the_program() {
    let programs = Programs::read();
    let of_product = text(&root().join("crates/weft-cli/src/bench.rs"));
    let of_product = of_product.lines().find(|line| line.contains("PROTOCOLS: &[&str]"));
    let of_product = of_product.expect("the protocols of `weft bench`").matches("::NAME").count();
    // `compare` runs none, and `locks` and `rtm` no database.
    let workloads = programs.of("weft-lab", "Workload").keys();
    let workloads = workloads
        .filter(|name| !["compare", "locks", "map", "rtm"].contains(&name.as_str()))
        .count();
    let commands = programs.of("weft-cli", "Command").len();
    let nouns = [
        ("protocols", vec![PROTOCOLS.len(), of_product]),
        ("workloads", vec![workloads]),
        ("commands", vec![commands]),
    ];
    let mut wrong = Vec::new();
    for document in entrance() {
        // About the two lines below it, not about the program.
        let document_text = text(&document).replace("Two commands, with a Rust toolchain", "");
        for (noun, right) in &nouns {
            for (line, number) in counted(&document_text, noun) {
                if !right.contains(&number) {
                    wrong.push(format!(
                        "{}:{line}: {number} {noun}, not {right:?}",
                        shown(&document)
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "numbers that do not agree with the program:\n{}", wrong.join("\n"));
    for document in ["README.md", "docs/guide/src/protocols/README.md"] {
        let numbers = counted(&text(&root().join(document)), "protocols");
        assert!(
            numbers.iter().any(|(_, number)| *number == PROTOCOLS.len()),
            "{document} counts the protocols"
        );
    }
}

#[test]
fn counting_finds_words_and_digits() {
    let document =
        "It has fourteen protocols, and\n7 small workloads. Of two, protocols are one.\n";
    assert_eq!(counted(document, "protocols"), [(1, 14)]);
    assert_eq!(counted(document, "workloads"), [(2, 7)]);
}

#[test]
fn anchors_are_those_of_code_hosts() {
    let document = "# A `b`, c\n## The same\n## The same\n```text\n# no heading\n```\n### [Link](x.md) & more\n";
    let expected = ["a-b-c", "link--more", "the-same", "the-same-1"];
    assert_eq!(anchors(document).into_iter().collect::<Vec<_>>(), expected);
}

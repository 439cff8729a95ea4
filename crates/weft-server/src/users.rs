//! Users, and their rights to run commands on keys and channels.
//!
//! The rules and the file are those of Redis's ACL, without selectors. A connection holds its user, and looks it up again
//! when the generation says that a user has changed. [`User::check`] decides about one command;
//! [`Permit`](crate::commands::Permit) makes sure that it is asked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weft::htm::word::{Ordering, Word};

use crate::commands::access::{Access, CATEGORIES, Channels};
use crate::commands::{COMMANDS, Command, find, flags};
use crate::glob;

/// The name of the user that every connection begins with.
pub const DEFAULT: &str = "default";
/// The most refusals that the log keeps.
const LOG_LENGTH_MAX: usize = 128;
/// How much of a key, channel or name the log keeps.
const LOGGED_BYTES_MAX: usize = 128;
/// Refusals of the same kind within this time are one entry of the log.
const LOG_GATHERS: Duration = Duration::from_secs(60);

/// The SHA-256 of a password.
type Hash = [u8; 32];

fn hash_of(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hash_from_hex(text: &[u8]) -> Result<Hash, String> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters".to_owned()
    })
}

/// A pattern of keys, and what may be done with keys that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    access: Access,
}

impl KeyPattern {
    fn shown(&self) -> String {
        let prefix = match (self.access.reads, self.access.writes) {
            (true, false) => "%R~",
            (false, true) => "%W~",
            _ => "~",
        };
        format!("{prefix}{}", String::from_utf8_lossy(&self.pattern))
    }
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Whether connections can become this user.
    pub is_enabled: bool,
    /// Whether any password is right.
    pub needs_no_password: bool,
    passwords: Vec<Hash>,
    /// Which commands the user may run, by their number in the table.
    commands: Vec<bool>,
    /// The names of the procedures that the user may run.
    procedures: BTreeSet<&'static str>,
    /// Parts of commands for which this is different.
    parts: BTreeMap<(usize, String), bool>,
    /// The rules about commands that have led to this.
    rules: Vec<String>,
    keys: Vec<KeyPattern>,
    channels: Vec<Vec<u8>>,
    /// Whether all is permitted, so that nothing needs to be compared.
    is_unlimited: bool,
}

/// What a user may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Run the command, or the part of it.
    Command(String),
    /// Use a key.
    Key(Vec<u8>),
    /// Use a channel.
    Channel(Vec<u8>),
    /// Become the user: the password is wrong.
    Password(Vec<u8>),
}

impl Denial {
    /// Returns the error reply.
    pub fn text(&self) -> String {
        match self {
            Denial::Command(name) => {
                format!("NOPERM this user has no permissions to run the '{name}' command")
            }
            Denial::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".into()
            }
            Denial::Channel(_) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
            Denial::Password(_) => {
                "WRONGPASS invalid username-password pair or user is disabled.".into()
            }
        }
    }

    /// Returns the reply of `ACL DRYRUN`.
    pub fn dry(&self) -> String {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Denial::Command(name) => {
                format!("This user has no permissions to run the '{name}' command")
            }
            Denial::Key(key) => {
                format!("This user has no permissions to access the '{}' key", shown(key))
            }
            Denial::Channel(name) => {
                format!("This user has no permissions to access the '{}' channel", shown(name))
            }
            Denial::Password(_) => self.text(),
        }
    }

    /// Returns the reason and the object, as the log shows them.
    fn entry(&self) -> (&'static str, Vec<u8>) {
        match self {
            Denial::Command(name) => ("command", name.clone().into_bytes()),
            Denial::Key(key) => ("key", key.clone()),
            Denial::Channel(channel) => ("channel", channel.clone()),
            Denial::Password(user) => ("auth", user.clone()),
        }
    }
}

impl User {
    /// Creates a user that may do nothing.
    pub fn new(name: &str) -> Self {
        User {
            name: name.to_owned(),
            is_enabled: false,
            needs_no_password: false,
            passwords: Vec::new(),
            commands: vec![false; COMMANDS.len()],
            procedures: BTreeSet::new(),
            parts: BTreeMap::new(),
            rules: vec!["-@all".to_owned()],
            keys: Vec::new(),
            channels: Vec::new(),
            is_unlimited: false,
        }
    }

    /// Returns whether the user may do everything.
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Changes the user by a rule of a server that has these procedures.
    ///
    /// # Errors
    /// There is no such rule. The user is unchanged.
    fn apply(&mut self, rule: &[u8], procedures: &[&'static Command]) -> Result<(), String> {
        let lower = rule.to_ascii_lowercase();
        match lower.as_slice() {
            b"on" => self.is_enabled = true,
            b"off" => self.is_enabled = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"allkeys" | b"~*" => {
                let all = KeyPattern { pattern: b"*".to_vec(), access: Access::BOTH };
                self.keys = vec![all];
            }
            b"resetkeys" => self.keys.clear(),
            b"allchannels" | b"&*" => self.channels = vec![b"*".to_vec()],
            b"resetchannels" => self.channels.clear(),
            b"allcommands" | b"+@all" => self.permit_all(true, procedures),
            b"nocommands" | b"-@all" => self.permit_all(false, procedures),
            b"reset" => *self = User::new(&self.name),
            // Redis can check the format of what RESTORE gets, which is not there.
            b"sanitize-payload" | b"skip-sanitize-payload" => {}
            _ => self.apply_with_argument(rule, &lower, procedures)?,
        }
        self.is_unlimited = self.rules == ["+@all"]
            && self.keys.iter().any(|key| key.pattern == b"*" && key.access == Access::BOTH)
            && self.channels.iter().any(|channel| channel == b"*");
        Ok(())
    }

    /// As [`User::apply`], for rules of a sign and what it is about.
    fn apply_with_argument(
        &mut self,
        rule: &[u8],
        lower: &[u8],
        procedures: &[&'static Command],
    ) -> Result<(), String> {
        match rule {
            [b'>', password @ ..] => self.add_password(hash_of(password)),
            [b'#', hash @ ..] => self.add_password(hash_from_hex(hash)?),
            [b'<', password @ ..] => self.remove_password(&hash_of(password))?,
            [b'!', hash @ ..] => self.remove_password(&hash_from_hex(hash)?)?,
            [b'~', pattern @ ..] => self.add_keys(pattern, Access::BOTH)?,
            [b'%', b'R' | b'r', b'~', pattern @ ..] => self.add_keys(pattern, Access::READ)?,
            [b'%', b'W' | b'w', b'~', pattern @ ..] => self.add_keys(pattern, Access::WRITE)?,
            [b'%', _, _, b'~', pattern @ ..] if matches!(&lower[1..3], b"rw" | b"wr") => {
                self.add_keys(pattern, Access::BOTH)?;
            }
            [b'&', pattern @ ..] => {
                check_pattern(pattern)?;
                if self.channels.iter().any(|channel| channel == b"*") {
                    return Err("Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                                does not have any effect. Try 'resetchannels' to start with an empty list of channels"
                        .into());
                }
                self.channels.push(pattern.to_vec());
            }
            [sign @ (b'+' | b'-'), ..] => {
                let name = String::from_utf8_lossy(&lower[1..]).into_owned();
                self.permit(&name, *sign == b'+', procedures)?;
            }
            [b'(', ..] => {
                return Err("Selectors are not supported; give the rules to another user".into());
            }
            _ => return Err("Syntax error".into()),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &Hash) -> Result<(), String> {
        let before = self.passwords.len();
        self.passwords.retain(|password| password != hash);
        if self.passwords.len() == before {
            return Err("The password you are trying to remove from the user does not exist".into());
        }
        Ok(())
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), String> {
        check_pattern(pattern)?;
        if self.keys.iter().any(|key| key.pattern == b"*" && key.access == Access::BOTH) {
            return Err("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
                        any effect. Try 'resetkeys' to start with an empty list of patterns"
                .into());
        }
        self.keys.push(KeyPattern { pattern: pattern.to_vec(), access });
        Ok(())
    }

    fn permit_all(&mut self, permits: bool, procedures: &[&'static Command]) {
        self.commands.fill(permits);
        procedures.iter().for_each(|procedure| self.permit_procedure(procedure, permits));
        self.parts.clear();
        self.rules = vec![if permits { "+@all" } else { "-@all" }.to_owned()];
    }

    /// Permits or forbids a command, a part of one (`config|get`), a procedure, or a category (`@read`).
    fn permit(
        &mut self,
        name: &str,
        permits: bool,
        procedures: &[&'static Command],
    ) -> Result<(), String> {
        const UNKNOWN: &str = "Unknown command or category name in ACL";
        if let Some(category) = name.strip_prefix('@') {
            if !CATEGORIES.contains(&category) {
                return Err(UNKNOWN.into());
            }
            // Operators' commands have parts that are for everybody.
            let leaves_parts = matches!(category, "admin" | "dangerous");
            for command in COMMANDS.iter().filter(|command| command.is_in(category)) {
                let number = command.number() as usize;
                let kept: Vec<_> = command
                    .plain_parts()
                    .filter(|_| leaves_parts)
                    .map(|part| ((number, part.to_owned()), self.permits_part(number, part)))
                    .collect();
                self.permit_whole(number, permits);
                self.parts.extend(kept);
            }
            for procedure in procedures.iter().filter(|procedure| procedure.is_in(category)) {
                self.permit_procedure(procedure, permits);
            }
        } else if let Some(procedure) = procedures.iter().find(|found| found.name == name) {
            self.permit_procedure(procedure, permits);
        } else {
            let (whole, part) = match name.split_once('|') {
                Some((whole, part)) if !part.is_empty() => (whole, Some(part)),
                _ => (name, None),
            };
            let command = find(whole.as_bytes()).ok_or(UNKNOWN)?;
            let number = command.number() as usize;
            match part {
                None => self.permit_whole(number, permits),
                Some(part) if command.has_parts() => {
                    self.parts.insert((number, part.to_owned()), permits);
                }
                Some(_) => return Err(UNKNOWN.into()),
            }
        }
        self.rules.retain(|rule| {
            let about = &rule[1..];
            let is_part = about.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'));
            about == "@all" || !(about == name || is_part)
        });
        self.rules.push(format!("{}{name}", if permits { '+' } else { '-' }));
        Ok(())
    }

    fn permit_whole(&mut self, number: usize, permits: bool) {
        self.commands[number] = permits;
        self.parts.retain(|(command, _), _| *command != number);
    }

    fn permit_procedure(&mut self, procedure: &Command, permits: bool) {
        match permits {
            true => self.procedures.insert(procedure.name),
            false => self.procedures.remove(procedure.name),
        };
    }

    fn permits_part(&self, number: usize, part: &str) -> bool {
        let of_part = self.parts.get(&(number, part.to_owned()));
        of_part.copied().unwrap_or(self.commands[number])
    }

    /// Checks that the user may run a command with these arguments.
    ///
    /// # Errors
    /// What the user may not do.
    pub fn check(&self, command: &Command, arguments: &[&[u8]]) -> Result<(), Denial> {
        if command.has(flags::NO_AUTH) {
            return Ok(());
        }
        let number = command.number() as usize;
        let has_parts = self.parts.range((number, String::new())..).next();
        let permits = match (has_parts, arguments.get(1)) {
            (Some(((found, _), _)), Some(part)) if *found == number => {
                self.permits_part(number, &String::from_utf8_lossy(part).to_lowercase())
            }
            _ => match self.commands.get(number) {
                Some(permits) => *permits,
                None => self.procedures.contains(command.name),
            },
        };
        if !permits {
            let part = arguments.get(1).filter(|_| command.has_parts());
            let part = part.map(|part| &part[..part.len().min(LOGGED_BYTES_MAX)]);
            let part =
                part.map(|part| format!("|{}", String::from_utf8_lossy(part).to_lowercase()));
            return Err(Denial::Command(format!("{}{}", command.name, part.unwrap_or_default())));
        }
        let may_use = |key: &[u8], access| {
            self.keys.iter().any(|permitted| {
                permitted.access.permits(access) && glob::matches(&permitted.pattern, key)
            })
        };
        // A pattern to read and another to write permit both.
        let may = |key: &[u8], access: Access| {
            may_use(key, access)
                || (access == Access::BOTH
                    && may_use(key, Access::READ)
                    && may_use(key, Access::WRITE))
        };
        // A command whose keys cannot be found is refused, since it might find some itself.
        let mut accesses = command
            .accesses(arguments)
            .map_err(|_| Denial::Key(arguments.get(1).map_or(Vec::new(), |key| key.to_vec())))?;
        if let Some((key, _)) = accesses.find(|(key, access)| !may(key, *access)) {
            return Err(Denial::Key(key.to_vec()));
        }
        let Channels { names, are_patterns } = command.channels(arguments);
        match names.iter().find(|name| !self.may_use_channel(name, are_patterns)) {
            Some(name) => Err(Denial::Channel(name.to_vec())),
            None => Ok(()),
        }
    }

    /// Returns whether the user may read all keys.
    pub fn may_read_all_keys(&self) -> bool {
        self.keys.iter().any(|key| key.pattern == b"*" && key.access.reads)
    }

    /// Returns whether the user may use a channel, or a pattern of channels.
    pub fn may_use_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.channels.iter().any(|permitted| match is_pattern {
            true => permitted == b"*" || permitted == name,
            false => glob::matches(permitted, name),
        })
    }

    /// Returns whether the password is right, in a time that does not depend on how much of it is.
    fn accepts(&self, password: &[u8]) -> bool {
        let given = hash_of(password);
        let mut is_right = subtle::Choice::from(u8::from(self.needs_no_password));
        for hash in &self.passwords {
            is_right |= hash.ct_eq(&given);
        }
        self.is_enabled && bool::from(is_right)
    }

    /// Returns the user's flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_enabled { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags
    }

    /// Returns the hashes of the passwords.
    pub fn hashes(&self) -> Vec<String> {
        self.passwords.iter().map(hex).collect()
    }

    /// Returns the rules about commands.
    pub fn command_rules(&self) -> String {
        self.rules.join(" ")
    }

    /// Returns the rules about keys.
    pub fn key_rules(&self) -> String {
        self.keys.iter().map(KeyPattern::shown).collect::<Vec<_>>().join(" ")
    }

    /// Returns the rules about channels.
    pub fn channel_rules(&self) -> String {
        let shown = |channel: &Vec<u8>| format!("&{}", String::from_utf8_lossy(channel));
        self.channels.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    /// Returns the user as a line of the file.
    pub fn line(&self) -> String {
        let mut words = vec!["user".to_owned(), self.name.clone()];
        words.extend(self.flags().into_iter().map(str::to_owned));
        words.extend(self.hashes().iter().map(|hash| format!("#{hash}")));
        words.extend(Some(self.key_rules()).filter(|rules| !rules.is_empty()));
        match self.channels.is_empty() {
            true => words.push("resetchannels".to_owned()),
            false => words.push(self.channel_rules()),
        }
        words.push(self.command_rules());
        words.join(" ")
    }
}

fn check_pattern(pattern: &[u8]) -> Result<(), String> {
    match pattern.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        true => Err("Syntax error".into()),
        false => Ok(()),
    }
}

/// A refusal, in the log.
#[derive(Clone, Debug)]
pub struct LoggedDenial {
    /// How often it happened.
    pub count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    /// The command, key, channel or user.
    pub object: Vec<u8>,
    /// The user.
    pub user: String,
    /// When it happened last.
    pub at: Instant,
    /// The client.
    pub client: String,
}

/// All users.
#[derive(Debug)]
pub struct Users {
    users: Mutex<BTreeMap<String, Arc<User>>>,
    /// Grows when a user changes.
    generation: Word,
    file: Option<PathBuf>,
    /// The procedures that rules can name.
    procedures: Vec<&'static Command>,
    log: Mutex<VecDeque<LoggedDenial>>,
}

impl Users {
    /// Creates the users of a file, or only the one with which connections begin. If the file does not say what this user
    /// may do, it may do everything, with the password if there is one. Rules can name commands and these procedures.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is wrong.
    pub fn open(
        file: Option<PathBuf>,
        password: Option<&str>,
        procedures: Vec<&'static Command>,
    ) -> Result<Self, String> {
        let mut users = match &file {
            Some(path) if is_there(path)? => read(path, &procedures)?,
            _ => BTreeMap::new(),
        };
        users.entry(DEFAULT.to_owned()).or_insert_with(|| {
            let mut user = User::new(DEFAULT);
            for rule in ["on", "nopass", "~*", "&*", "+@all"] {
                user.apply(rule.as_bytes(), &procedures).expect("the rules are right");
            }
            if let Some(password) = password {
                user.add_password(hash_of(password.as_bytes()));
            }
            Arc::new(user)
        });
        let (users, log) = (Mutex::new(users), Mutex::default());
        Ok(Users { users, generation: Word::new(0), file, procedures, log })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<User>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that grows when a user changes.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns a user.
    pub fn find(&self, name: &str) -> Option<Arc<User>> {
        self.lock().get(name).cloned()
    }

    /// Returns the user that connections begin with.
    pub fn default_user(&self) -> Arc<User> {
        self.find(DEFAULT).expect("this user is always there")
    }

    /// Returns whether connections can begin without a password.
    pub fn admits_strangers(&self) -> bool {
        let user = self.default_user();
        user.is_enabled && user.needs_no_password
    }

    /// Returns all users, ordered by their names.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the user with this name and password.
    ///
    /// # Errors
    /// There is no such user, the user is off, or the password is wrong.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Result<Arc<User>, Denial> {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.find(name));
        // An unknown name takes as long as a wrong password.
        let user = user.unwrap_or_else(|| Arc::new(User::new("")));
        match user.accepts(password) {
            true => Ok(user),
            false => Err(Denial::Password(name.to_vec())),
        }
    }

    /// Changes a user by rules, which take effect together, or makes a new one.
    ///
    /// # Errors
    /// The rule that is wrong, and why.
    pub fn set<'r>(
        &self,
        name: &str,
        rules: impl IntoIterator<Item = &'r [u8]>,
    ) -> Result<(), (&'r [u8], String)> {
        let mut users = self.lock();
        let mut user = users.get(name).map_or_else(|| User::new(name), |user| User::clone(user));
        for rule in rules {
            user.apply(rule, &self.procedures).map_err(|error| (rule, error))?;
        }
        users.insert(name.to_owned(), Arc::new(user));
        // Release: a connection that sees the number finds the user.
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes a user. Returns whether it was there.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.lock().remove(name).is_some();
        self.generation.fetch_add(1, Ordering::Release);
        removed
    }

    /// Reads the file again, in place of all users.
    ///
    /// # Errors
    /// There is no file, or it cannot be read, or a line of it is wrong. The users are unchanged.
    pub fn load(&self) -> Result<(), String> {
        let read = read(self.file.as_ref().ok_or(NO_FILE)?, &self.procedures)?;
        let mut users = self.lock();
        let default = users.remove(DEFAULT).expect("this user is always there");
        *users = read;
        users.entry(DEFAULT.to_owned()).or_insert(default);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Writes the file, in one step.
    ///
    /// # Errors
    /// There is no file, or it cannot be written.
    pub fn save(&self) -> Result<(), String> {
        let path = self.file.as_ref().ok_or(NO_FILE)?;
        let text: String = self.all().iter().map(|user| user.line() + "\n").collect();
        replace_file(path, &text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn log(&self) -> MutexGuard<'_, VecDeque<LoggedDenial>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a refusal in the log.
    pub fn note(&self, denial: &Denial, context: &'static str, user: &str, client: String) {
        let (reason, mut object) = denial.entry();
        object.truncate(LOGGED_BYTES_MAX);
        let mut log = self.log();
        let at = Instant::now();
        let same = log.iter().position(|entry| {
            (entry.reason, entry.context, &*entry.user) == (reason, context, user)
                && entry.object == object
                && at - entry.at < LOG_GATHERS
        });
        let count = same.and_then(|same| log.remove(same)).map_or(0, |entry| entry.count) + 1;
        let user = user.to_owned();
        log.push_front(LoggedDenial { count, reason, context, object, user, at, client });
        log.truncate(LOG_LENGTH_MAX);
    }

    /// Returns the newest refusals.
    pub fn denials(&self, count: usize) -> Vec<LoggedDenial> {
        self.log().iter().take(count).cloned().collect()
    }

    /// Forgets all refusals.
    pub fn forget_denials(&self) {
        self.log().clear();
    }
}

const NO_FILE: &str =
    "This server is not configured to use an ACL file: start it with --users-file";

/// Returns whether there is a file of users, or a link that should lead to one. Without a file the user `default` may do
/// everything, so a file that cannot be reached must not be taken for none.
///
/// # Errors
/// The folder of the file cannot be searched.
fn is_there(path: &Path) -> Result<bool, String> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Reads a file of users of a server that has these procedures.
fn read(
    path: &PathBuf,
    procedures: &[&'static Command],
) -> Result<BTreeMap<String, Arc<User>>, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    let mut users = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |error: &str| format!("{}:{}: {error}", path.display(), number + 1);
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => continue,
            Some(comment) if comment.starts_with('#') => continue,
            Some("user") => {}
            Some(_) => return Err(wrong("a line must begin with the word user")),
        }
        let name =
            words.next().ok_or_else(|| wrong("write the user's name after the word user"))?;
        let mut user = User::new(name);
        for rule in words {
            let applied = user.apply(rule.as_bytes(), procedures);
            applied.map_err(|error| wrong(&format!("'{rule}': {error}")))?;
        }
        if users.insert(name.to_owned(), Arc::new(user)).is_some() {
            return Err(wrong(&format!("the user '{name}' is there twice")));
        }
    }
    Ok(users)
}

/// Replaces a file. If it is new, only its owner may read it. A crash leaves the old text or the new one.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    if let Ok(found) = std::fs::metadata(path) {
        file.set_permissions(found.permissions())?;
    }
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: a file of users that could not be reached was taken for no file. The server started with a user `default` that
    /// had all rights and no password.
    #[test]
    fn users_file_that_cannot_be_reached_is_an_error() {
        let name = format!("weft-users-{}-{:x}", std::process::id(), fastrand::u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let open = |path: PathBuf| Users::open(Some(path), None, Vec::new());
        let link = folder.join("link");
        std::os::unix::fs::symlink(folder.join("gone"), &link).unwrap();
        let error = open(link.clone()).unwrap_err();
        assert!(error.contains("link: No such file"), "{error}");
        std::fs::write(folder.join("file"), "").unwrap();
        let error = open(folder.join("file").join("users")).unwrap_err();
        assert!(error.contains("Not a directory"), "{error}");
        // `ACL SAVE` makes a file that is not there yet.
        assert!(open(folder.join("new")).unwrap().admits_strangers());
        std::fs::write(folder.join("gone"), "user default off\n").unwrap();
        assert!(!open(link).unwrap().admits_strangers());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

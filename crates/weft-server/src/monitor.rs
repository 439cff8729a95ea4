//! `MONITOR`: clients that see every command which the server runs.
//!
//! A command is shown when it begins, and those of `MULTI` and of scripts when their transaction has committed. So an attempt
//! that is run again is shown once. The lines wait in a bounded [`Mailbox`], like messages. While no client monitors, a command
//! looks at one word.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use weft::htm::word::{Ordering, Word};

use crate::call::is;
use crate::commands::{self, Command, Permit, flags};
use crate::publish::Mailbox;
use crate::users::User;

/// The clients that monitor.
#[derive(Debug, Default)]
pub struct Monitors {
    count: Word,
    mailboxes: Mutex<Vec<(u64, Arc<Mailbox>)>>,
    /// How many were dropped because they read too slowly.
    pub dropped: Word,
}

impl Monitors {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<Mailbox>)>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any client monitors.
    #[inline]
    pub fn are_there(&self) -> bool {
        // Nothing else is read with this number. A command of another thread may miss the first moment.
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Begins to show commands to a client.
    pub fn add(&self, client: u64, mailbox: &Arc<Mailbox>) {
        let mut mailboxes = self.lock();
        mailboxes.push((client, Arc::clone(mailbox)));
        self.count.store(mailboxes.len() as u64, Ordering::Relaxed);
    }

    /// Shows no more commands to a client.
    pub fn remove(&self, client: u64) {
        let mut mailboxes = self.lock();
        mailboxes.retain(|(known, _)| *known != client);
        self.count.store(mailboxes.len() as u64, Ordering::Relaxed);
    }

    /// Returns the clients that monitor.
    pub fn clients(&self) -> Vec<u64> {
        self.lock().iter().map(|(client, _)| *client).collect()
    }

    /// Shows a command to all clients that monitor.
    pub fn show(&self, line: &str) {
        for (_, mailbox) in self.lock().iter() {
            if mailbox.push_line(line) {
                // Only the number itself matters.
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns whether a user may monitor.
pub fn is_permitted(user: &User) -> bool {
    let command = commands::find(b"monitor");
    command.is_some_and(|command| Permit::new(user, command, &[b"monitor"]).is_ok())
}

/// Returns the line that shows a command: the time, the numbered database, where the command comes from, and its arguments.
/// `None` if the command is for operators, whose arguments may be secret.
pub fn line_of(command: &Command, space: u8, from: &str, arguments: &[&[u8]]) -> Option<String> {
    if command.has(flags::ADMIN) {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = format!("{}.{:06} [{space} {from}]", now.as_secs(), now.subsec_micros());
    let secrets = secrets(command, arguments);
    for (position, argument) in arguments.iter().enumerate() {
        let argument = if secrets.contains(&position) { b"(redacted)" } else { *argument };
        line.push_str(" \"");
        for byte in argument {
            match byte {
                b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
                b'\n' => line.push_str("\\n"),
                b'\r' => line.push_str("\\r"),
                b'\t' => line.push_str("\\t"),
                0x07 => line.push_str("\\a"),
                0x08 => line.push_str("\\b"),
                b' '..=b'~' => line.push(char::from(*byte)),
                _ => line.push_str(&format!("\\x{byte:02x}")),
            }
        }
        line.push('"');
    }
    Some(line)
}

/// Returns the positions of names and passwords.
fn secrets(command: &Command, arguments: &[&[u8]]) -> Vec<usize> {
    match command.name {
        "auth" => (1..arguments.len()).collect(),
        "hello" => {
            let (mut secrets, mut position) = (Vec::new(), 2);
            while let Some(option) = arguments.get(position) {
                // A name of a connection may be called like an option.
                let is_auth = is(option, "auth");
                let values = if is_auth { 2 } else { usize::from(is(option, "setname")) };
                if is_auth {
                    secrets.extend(position + 1..=position + values);
                }
                position += 1 + values;
            }
            secrets
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Option<String> {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let command = commands::find(arguments[0]).unwrap();
        let line = line_of(command, 3, "127.0.0.1:4000", &arguments)?;
        let (time, rest) = line.split_once(' ').unwrap();
        assert_eq!(time.split_once('.').unwrap().1.len(), 6, "{line}");
        Some(rest.to_owned())
    }

    #[test]
    fn secrets_are_not_shown() {
        for (line, expected) in [
            ("get key", Some("\"get\" \"key\"")),
            ("AUTH me secret", Some("\"AUTH\" \"(redacted)\" \"(redacted)\"")),
            ("auth secret", Some("\"auth\" \"(redacted)\"")),
            (
                "hello 3 AUTH me secret setname x",
                Some("\"hello\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"setname\" \"x\""),
            ),
            (
                "hello 3 setname auth AUTH me secret auth me secret",
                Some(
                    "\"hello\" \"3\" \"setname\" \"auth\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"auth\" \
                     \"(redacted)\" \"(redacted)\"",
                ),
            ),
            ("acl setuser me >secret", None),
            ("config set requirepass secret", None),
            ("set a\"\\\r\n\u{7}\u{e9} b", Some(r#""set" "a\"\\\r\n\a\xc3\xa9" "b""#)),
        ] {
            let expected = expected.map(|arguments| format!("[3 127.0.0.1:4000] {arguments}"));
            assert_eq!(shown(line), expected, "{line}");
        }
    }
}

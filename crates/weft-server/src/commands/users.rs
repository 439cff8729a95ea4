//! `ACL`: users and their rights.

use std::io::Read;

use super::access::CATEGORIES;
use super::{COMMANDS, Permit, find, unknown_subcommand};
use crate::call::{integer, is};
use crate::reply::Reply;
use crate::session::Session;
use crate::stop::{Done, texts};
use crate::users::{DEFAULT, User};

/// `ACL`
pub fn acl(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let server = &session.server;
    let users = &server.users;
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"whoami", []) => reply.text(&session.user.name),
        (b"users", []) => reply.texts(users.all().iter().map(|user| &user.name)),
        (b"list", []) => reply.texts(users.all().iter().map(|user| user.line())),
        (b"setuser", [name, rules @ ..]) => {
            let name = user_name(name)?;
            users.set(name, rules.iter().copied()).map_err(|(rule, error)| {
                let rule = String::from_utf8_lossy(rule);
                format!("ERR Error in ACL SETUSER modifier '{rule}': {error}")
            })?;
            server.end_lost_connections();
            reply.ok();
        }
        (b"getuser", [name]) => {
            match std::str::from_utf8(name).ok().and_then(|name| users.find(name)) {
                Some(user) => write_user(&user, reply),
                None => reply.null_array(),
            }
        }
        (b"deluser", names @ [_, ..]) => {
            if names.contains(&DEFAULT.as_bytes()) {
                return Err("ERR The 'default' user cannot be removed".into());
            }
            let mut removed = 0;
            for name in names.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
                removed += usize::from(users.remove(name));
            }
            server.end_lost_connections();
            reply.count(removed);
        }
        (b"cat", []) => reply.texts(CATEGORIES.iter()),
        (b"cat", [category]) => {
            let category = String::from_utf8_lossy(category).to_lowercase();
            if !CATEGORIES.contains(&&*category) {
                return Err(format!("ERR Unknown category '{category}'").into());
            }
            let found: Vec<_> =
                COMMANDS.iter().filter(|command| command.is_in(&category)).collect();
            reply.texts(found.iter().map(|command| command.name));
        }
        (b"dryrun", [name, rest @ ..]) if !rest.is_empty() => {
            let shown = String::from_utf8_lossy(name);
            let user = users.find(&shown).ok_or_else(|| format!("ERR User '{shown}' not found"))?;
            let command = find(rest[0]).or_else(|| server.procedures.command(rest[0]));
            let command = command.ok_or_else(|| {
                format!("ERR Command '{}' not found", String::from_utf8_lossy(rest[0]))
            })?;
            if !command.takes(rest.len()) {
                let name = command.name;
                return Err(format!("ERR wrong number of arguments for '{name}' command").into());
            }
            match Permit::new(&user, command, rest) {
                Ok(_) => reply.ok(),
                Err(denial) => reply.text(denial.dry()),
            }
        }
        (b"log", [word]) if is(word, "reset") => {
            users.forget_denials();
            reply.ok();
        }
        (b"log", count @ ([] | [_])) => {
            let count = count.first().map_or(Ok(10), |count| integer(count))?;
            write_log(session, usize::try_from(count).map_err(|_| texts::NEGATIVE)?, reply);
        }
        (b"genpass", bits @ ([] | [_])) => {
            let bits = bits.first().map_or(Ok(256), |bits| integer(bits))?;
            let bits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits));
            let bits = bits.ok_or(
                "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up \
                 to 4096",
            )?;
            reply.text(random_digits(bits.div_ceil(4))?);
        }
        (b"load", []) => {
            users.load().map_err(|error| format!("ERR {error}"))?;
            server.end_lost_connections();
            reply.ok();
        }
        (b"save", []) => {
            // The file gets the password that `CONFIG SET` has changed, so `CONFIG REWRITE` does not complain any more.
            let has_new_password = server.changed().remove("password");
            if let Err(error) = users.save() {
                if has_new_password {
                    server.changed().insert("password");
                }
                return Err(format!("ERR {error}").into());
            }
            reply.ok();
        }
        (b"help", []) => super::introspection::help(
            reply,
            &[
                "ACL WHOAMI | USERS | LIST | GETUSER <user> | DELUSER <user> ...",
                "ACL SETUSER <user> <rule> ...",
                "ACL CAT [<category>] | DRYRUN <user> <command> [<argument> ...]",
                "ACL LOG [<count> | RESET] | GENPASS [<bits>] | LOAD | SAVE",
            ],
        ),
        _ => return Err(unknown_subcommand(arguments, "ACL").into()),
    }
    Ok(())
}

/// Returns an argument as the name of a user.
fn user_name(argument: &[u8]) -> Done<&str> {
    let is_right = !argument.is_empty()
        && !argument.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0);
    let name = std::str::from_utf8(argument).ok().filter(|_| is_right);
    name.ok_or_else(|| "ERR Usernames can't contain spaces or null characters".into())
}

fn write_user(user: &User, reply: &mut Reply) {
    reply.map(6);
    reply.text("flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.text(flag));
    reply.text("passwords");
    reply.texts(user.hashes().iter());
    for (name, rules) in [
        ("commands", user.command_rules()),
        ("keys", user.key_rules()),
        ("channels", user.channel_rules()),
    ] {
        reply.text(name);
        reply.text(rules);
    }
    reply.text("selectors");
    reply.array(0);
}

fn write_log(session: &Session, count: usize, reply: &mut Reply) {
    let denials = session.server.users.denials(count);
    reply.array(denials.len());
    for denial in denials {
        reply.map(7);
        reply.text("count");
        reply.integer(i64::try_from(denial.count).unwrap_or(i64::MAX));
        for (name, value) in [
            ("reason", denial.reason.as_bytes()),
            ("context", denial.context.as_bytes()),
            ("object", &denial.object),
            ("username", denial.user.as_bytes()),
        ] {
            reply.text(name);
            reply.text(value);
        }
        reply.text("age-seconds");
        reply.double(denial.at.elapsed().as_secs_f64());
        reply.text("client-info");
        reply.text(denial.client);
    }
}

/// Returns so many random hexadecimal digits, which cannot be guessed.
fn random_digits(count: usize) -> Done<String> {
    let mut bytes = vec![0; count.div_ceil(2)];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| format!("ERR /dev/urandom: {error}"))?;
    let mut digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(count);
    Ok(digits)
}

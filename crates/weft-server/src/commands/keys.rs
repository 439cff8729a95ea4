//! Commands on keys of any type.

use weft::Error;

use crate::call::{Call, integer};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::store::Key;
use crate::tables::{Garbage, Head, Kind, SPACES, expiring};

/// `DEL`, `UNLINK`
pub fn del(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut removed = 0;
    for key in call.rest(1) {
        removed += usize::from(call.remove_if_there(&call.key_of(key))?);
    }
    reply.count(removed);
    Ok(())
}

/// `EXISTS`, `TOUCH`
pub fn exists(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut found = 0;
    for key in call.rest(1) {
        found += usize::from(call.head(&call.key_of(key))?.is_some());
    }
    reply.count(found);
    Ok(())
}

/// `TYPE`
pub fn type_of(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.simple(call.head(&call.key(1))?.map_or("none", |head| head.kind.name()));
    Ok(())
}

fn rename_unless(call: &Call<'_>, spares: bool) -> Done<bool> {
    let (from, to) = (call.key(1), call.key(2));
    let head = call.head(&from)?.ok_or(texts::NO_SUCH_KEY)?;
    if from.bytes == to.bytes {
        return Ok(!spares);
    }
    match call.head(&to)? {
        Some(_) if spares => return Ok(false),
        Some(old) => call.displace(&to, old)?,
        None => {}
    }
    call.rename(&from, head, &to, ("rename_from", "rename_to"))?;
    Ok(true)
}

/// `RENAME`
pub fn rename(call: &Call<'_>, reply: &mut Reply) -> Done {
    rename_unless(call, false)?;
    reply.ok();
    Ok(())
}

/// `RENAMENX`
pub fn renamenx(call: &Call<'_>, reply: &mut Reply) -> Done {
    let renamed = rename_unless(call, true)?;
    reply.flag(renamed);
    Ok(())
}

/// Returns the numbered database that an argument names.
pub fn space_of(argument: &[u8]) -> Done<u8> {
    let space = u8::try_from(integer(argument)?).ok().filter(|space| *space < SPACES);
    Ok(space.ok_or("ERR DB index is out of range")?)
}

/// `COPY`
pub fn copy(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut options = call.options(3);
    let (mut space, mut replaces) = (call.space, false);
    while !options.is_empty() {
        if options.take("replace") {
            replaces = true;
        } else if options.take("db") {
            space = space_of(options.next()?)?;
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    let (from, to) = (call.key(1), Key::new(space, call.argument(2)));
    if from.bytes == to.bytes && space == call.space {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(head) = call.head(&from)? else {
        reply.flag(false);
        return Ok(());
    };
    match call.head(&to)? {
        Some(_) if !replaces => {
            reply.flag(false);
            return Ok(());
        }
        Some(old) => call.displace(&to, old)?,
        None => {}
    }
    call.copy(head, &to)?;
    reply.flag(true);
    Ok(())
}

/// `MOVE`
pub fn move_to(call: &Call<'_>, reply: &mut Reply) -> Done {
    let space = space_of(call.argument(2))?;
    if space == call.space {
        return Err("ERR source and destination objects are the same".into());
    }
    let (from, to) = (call.key(1), Key::new(space, call.argument(1)));
    let moves = match call.head(&from)? {
        Some(head) if call.head(&to)?.is_none() => {
            call.rename(&from, head, &to, ("move_from", "move_to"))?;
            true
        }
        _ => false,
    };
    reply.flag(moves);
    Ok(())
}

/// `DBSIZE`
pub fn dbsize(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.integer(call.size(u64::from(call.space))?);
    Ok(())
}

fn flush(call: &Call<'_>, spaces: std::ops::Range<u8>) -> Done {
    let tables = &call.store.tables;
    let range = (spaces.start, 0)..(spaces.end, 0);
    let heads: Vec<&Head> =
        call.tx.range(&tables.heads, range.clone()).collect::<Result<_, Error>>()?;
    for head in heads {
        if head.collection != 0 {
            let garbage = Garbage { collection: head.collection, kind: head.kind };
            call.tx.insert(&tables.garbage, garbage)?;
        }
        if head.expires_at != 0 {
            let deadline = (head.expires_at, head.space, &head.key[..]);
            call.tx.delete(&tables.deadlines, deadline)?;
        }
        if head.kind == Kind::Stream {
            // Those who wait for a group of consumers are told that it is gone.
            call.effects.note_arrival();
        }
        call.touch(&Key::new(head.space, &head.key))?;
    }
    call.tx.delete_range(&tables.heads, range)?;
    let counts: [fn(u8) -> u64; 2] = [u64::from, expiring];
    for counted in counts {
        let sizes = (counted(spaces.start), 0)..(counted(spaces.end), 0);
        call.tx.delete_range(&tables.sizes, sizes)?;
    }
    Ok(())
}

fn check_flush(call: &Call<'_>) -> Done {
    match call.len() {
        1 => Ok(()),
        2 if call.is(1, "async") || call.is(1, "sync") => Ok(()),
        _ => Err(texts::SYNTAX.into()),
    }
}

/// `FLUSHDB`
pub fn flushdb(call: &Call<'_>, reply: &mut Reply) -> Done {
    check_flush(call)?;
    flush(call, call.space..call.space + 1)?;
    reply.ok();
    Ok(())
}

/// `FLUSHALL`
pub fn flushall(call: &Call<'_>, reply: &mut Reply) -> Done {
    check_flush(call)?;
    flush(call, 0..SPACES)?;
    reply.ok();
    Ok(())
}

/// Returns the name of the form in which a value is kept. Weft has one form for each type; the names are those of Redis.
fn encoding(head: &Head) -> &'static str {
    match (head.kind, &head.text) {
        (Kind::Text, None) => "int",
        (Kind::Text, Some(text)) if text.len() <= 44 => "embstr",
        (Kind::Text, Some(_)) => "raw",
        (Kind::Hash | Kind::Set, _) => "hashtable",
        (Kind::List, _) => "quicklist",
        (Kind::SortedSet, _) => "skiplist",
        (Kind::Stream, _) => "stream",
    }
}

/// `OBJECT`
pub fn object(call: &Call<'_>, reply: &mut Reply) -> Done {
    let name = call.argument(1).to_ascii_lowercase();
    if name == b"help" && call.len() == 2 {
        let lines = [
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    The name that Redis has for the form of the value.",
            "REFCOUNT <key>",
            "    Always 1.",
            "IDLETIME <key>",
            "    Always 0: the server does not keep when a key was used.",
            "FREQ <key>",
            "    An error: the server does not keep how often a key is used.",
        ];
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.simple(line));
        return Ok(());
    }
    let names = [&b"encoding"[..], b"refcount", b"idletime", b"freq"];
    if call.len() != 3 || !names.contains(&&*name) {
        return Err(super::unknown_subcommand(call.arguments, "OBJECT").into());
    }
    let Some(head) = call.head(&call.key(2))? else {
        reply.null();
        return Ok(());
    };
    match name.as_slice() {
        b"encoding" => reply.text(encoding(head)),
        b"refcount" => reply.integer(1),
        b"idletime" => reply.integer(0),
        _ => return Err(NO_FREQUENCY.into()),
    }
    Ok(())
}

const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
                            when switching between policies at runtime LRU and LFU data will take some time to adjust.";

#[cfg(test)]
mod tests {
    use crate::server::{Options, Server};
    use crate::session::Session;

    #[test]
    fn keys_that_expire_take_the_names_of_expired_keys() {
        for (line, space, reply) in
            [("RENAME a b", 0, "+OK"), ("RENAMENX a b", 0, ":1"), ("MOVE a 1", 1, ":1")]
        {
            // No thread removes expired keys in this test.
            let server = Server::open(Options::default()).unwrap();
            let mut session = Session::of_a_test(&server);
            let target = if space == 0 { "b" } else { "a" };
            session.say(&format!("SELECT {space}"));
            assert_eq!(session.say(&format!("SET {target} 2 PXAT 1")), "+OK\r\n");
            session.say("SELECT 0");
            session.say("SET a 1 EX 100");
            assert_eq!(session.say(line), format!("{reply}\r\n"), "{line}");
            session.say(&format!("SELECT {space}"));
            assert_eq!(session.say(&format!("GET {target}")), "$1\r\n1\r\n", "{line}");
            let time = session.say(&format!("TTL {target}"));
            assert!([":99\r\n", ":100\r\n"].contains(&&*time), "{line}: {time}");
            assert_eq!(session.say(&format!("PERSIST {target}")), ":1\r\n", "{line}");
        }
    }
}

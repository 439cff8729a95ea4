//! Commands on functions, and calls of procedures.

use super::function_dump;
use super::scripts::{check_flush, keys_and_arguments};
use super::{Permit, unknown_subcommand};
use crate::call::{Call, is};
use crate::glob;
use crate::reply::Reply;
use crate::scripts::libraries;
use crate::stop::{Done, texts};

fn call_function(call: &Call<'_>, is_read_only: bool, reply: &mut Reply) -> Done {
    let (keys, arguments) = keys_and_arguments(call, Some("ERR Bad number of keys provided"))?;
    let (name, server) = (call.argument(1), call.caller.server);
    let Some(procedure) = server.procedures.get(name) else {
        return libraries::call(call, name, keys, arguments, is_read_only, reply);
    };
    // The user needs the right to run the procedure, too. A procedure has no keys. What a client gives as such comes first.
    let request = [&[name], keys, arguments].concat();
    Permit::new(call.caller.user, procedure.command, &request).map_err(|denial| {
        let (user, client) = (&call.caller.user.name, call.caller.client.line());
        server.users.note(&denial, "toplevel", user, client);
        denial.text()
    })?;
    if is_read_only && !procedure.is_read_only {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    if !procedure.is_read_only && !server.writes() {
        return Err(server.read_only());
    }
    procedure.run(call, &request[1..], reply)
}

/// `FCALL`
pub fn fcall(call: &Call<'_>, reply: &mut Reply) -> Done {
    call_function(call, false, reply)
}

/// `FCALL_RO`
pub fn fcall_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    call_function(call, true, reply)
}

/// `FUNCTION`
pub fn function(call: &Call<'_>, reply: &mut Reply) -> Done {
    let rest = call.rest(2);
    match (call.argument(1).to_ascii_lowercase().as_slice(), rest) {
        (b"load", [code]) => reply.text(libraries::load(call, code, false)?),
        (b"load", [word, code]) if is(word, "replace") => {
            reply.text(libraries::load(call, code, true)?);
        }
        (b"load", [word, _]) => {
            let word = String::from_utf8_lossy(word);
            return Err(format!("ERR Unknown option given: {word}").into());
        }
        (b"delete", [name]) => {
            if !libraries::delete(call, name)? {
                return Err("ERR Library not found".into());
            }
            reply.ok();
        }
        (b"flush", rest) => {
            check_flush(rest, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")?;
            libraries::flush(call)?;
            reply.ok();
        }
        (b"list", _) => list(call, reply)?,
        (b"stats", []) => stats(call, reply)?,
        (b"kill", []) => {
            call.caller.server.scripts.kill()?;
            reply.ok();
        }
        (b"dump", []) => function_dump::dump(call, reply)?,
        (b"restore", [payload, policy @ ..]) if policy.len() < 2 => {
            function_dump::restore(call, payload, policy.first().copied())?;
            reply.ok();
        }
        (b"help", []) => super::introspection::help(
            reply,
            &[
                "FUNCTION LOAD [REPLACE] <code> | DELETE <library> | FLUSH [ASYNC|SYNC]",
                "FUNCTION DUMP | RESTORE <dump> [FLUSH|APPEND|REPLACE]",
                "FUNCTION LIST [LIBRARYNAME <pattern>] [WITHCODE] | STATS | KILL",
            ],
        ),
        _ => return Err(unknown_subcommand(call.arguments, "FUNCTION").into()),
    }
    Ok(())
}

fn list(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut options = call.options(2);
    let (mut pattern, mut with_code) = (&b"*"[..], false);
    while !options.is_empty() {
        if options.take("withcode") {
            with_code = true;
        } else if options.take("libraryname") {
            pattern = options.next().map_err(|_| "ERR library name argument was not given")?;
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    let mut found = libraries::all(call)?;
    found.retain(|library| glob::matches(pattern, &library.name));
    reply.array(found.len());
    for library in found {
        reply.map(if with_code { 4 } else { 3 });
        reply.text("library_name");
        reply.text(&library.name);
        reply.text("engine");
        reply.text("LUA");
        reply.text("functions");
        let functions = libraries::functions_of(call, &library.name)?;
        reply.array(functions.len());
        for function in functions {
            reply.map(3);
            reply.text("name");
            reply.text(&function.name);
            reply.text("description");
            reply.optional(function.description.as_deref());
            reply.text("flags");
            let flags = String::from_utf8_lossy(&function.flags);
            let flags: Vec<&str> = flags.split(',').filter(|flag| !flag.is_empty()).collect();
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if with_code {
            reply.text("library_code");
            reply.text(&library.code);
        }
    }
    Ok(())
}

fn stats(call: &Call<'_>, reply: &mut Reply) -> Done {
    let tables = &call.store.tables;
    let functions = call.tx.range(&tables.functions, ..).count_rows()?;
    reply.map(2);
    reply.text("running_script");
    reply.null();
    reply.text("engines");
    reply.map(1);
    reply.text("LUA");
    reply.map(2);
    reply.text("libraries_count");
    reply.count(libraries::all(call)?.len());
    reply.text("functions_count");
    reply.integer(i64::try_from(functions).unwrap_or(i64::MAX));
    Ok(())
}

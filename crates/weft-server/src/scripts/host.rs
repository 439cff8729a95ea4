//! The functions that scripts call: those of the table `redis`, and what the sandbox is made of.

use std::panic::resume_unwind;

use mlua::{BorrowedBytes, Lua, LuaString, MultiValue, Table, Value, Variadic};
use serde_json::json;
use smallvec::SmallVec;

use super::direct::{self, Left};
use super::running::{MEMORY, Mode, RUNNING, Registered, Running};
use super::sources::{FLAGS, digest};
use super::{
    Program, bits, engine, json, message_pack, number, packing, place, raise, text_of, values,
};
use crate::call::{Call, Caller, is};
use crate::commands::connection::REDIS_VERSION;
use crate::commands::{self, Command, Permit, Run, flags, keys::space_of};
use crate::log::{Level, log};
use crate::monitor;
use crate::replication::AtStandby;
use crate::reply::{Reply, Version};
use crate::session::in_place;
use crate::stop::{Done, Stop};
use crate::store::Keys;

/// Creates the functions of the host.
pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.raw_set("redis", redis(lua)?)?;
    host.raw_set("bit", bits::create(lua)?)?;
    host.raw_set("cjson", json::create(lua)?)?;
    host.raw_set("cmsgpack", message_pack::create(lua)?)?;
    host.raw_set("struct", packing::create(lua)?)?;
    host.raw_set("caught", lua.create_function(caught)?)?;
    host.raw_set("described", lua.create_function(described)?)?;
    host.raw_set("load", lua.create_function(load)?)?;
    host.raw_set("random", lua.create_function(random)?)?;
    host.raw_set(
        "randomseed",
        lua.create_function(|_, seed: f64| {
            RUNNING.with(|running| running.random.borrow_mut().seed(seed.to_bits()));
            Ok(())
        })?,
    )?;
    host.raw_set(
        "clock",
        lua.create_function(|_, ()| Ok(RUNNING.with(|running| running.time().as_secs_f64())))?,
    )?;
    Ok(host)
}

fn redis(lua: &Lua) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let other = lua.create_function(move |lua, arguments| call(lua, arguments, raises))?;
        redis.raw_set(name, direct::create(lua, &other)?)?;
    }
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    redis.raw_set("status_reply", lua.create_function(status_reply)?)?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("log", lua.create_function(write_log)?)?;
    redis.raw_set("setresp", lua.create_function(setresp)?)?;
    redis.raw_set("register_function", lua.create_function(register_function)?)?;
    // Scripts are replayed nowhere, and have no debugger.
    let ignored = lua.create_function(|_, _: MultiValue| Ok(true))?;
    redis.raw_set("replicate_commands", &ignored)?;
    redis.raw_set("set_repl", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    redis.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    redis.raw_set("acl_check_cmd", lua.create_function(acl_check_cmd)?)?;
    redis.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    redis.raw_set("REDIS_VERSION_NUM", 0x0007_0000)?;
    for (level, name) in LEVELS.iter().enumerate() {
        redis.raw_set(format!("LOG_{name}"), level)?;
    }
    for (name, value) in [("NONE", 0), ("AOF", 1), ("SLAVE", 2), ("REPLICA", 2), ("ALL", 3)] {
        redis.raw_set(format!("REPL_{name}"), value)?;
    }
    Ok(redis)
}

const LEVELS: [&str; 4] = ["DEBUG", "VERBOSE", "NOTICE", "WARNING"];

/// Up to this length, a reply becomes Lua values without the limit of memory, which would take longer.
const UNLIMITED_BYTES_MAX: usize = 16 << 10;
/// The most bytes of a text that `redis.log` writes.
const LOG_BYTES_MAX: usize = 1024;

/// An argument of a command.
enum Argument {
    Text(BorrowedBytes),
    Number(String),
}

impl Argument {
    fn new(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Argument::Text(text.as_bytes())),
            Value::Integer(number) => Some(Argument::Number(number.to_string())),
            Value::Number(number) => Some(Argument::Number(values::digits(*number, 17))),
            _ => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Argument::Text(bytes) => bytes,
            Argument::Number(digits) => digits.as_bytes(),
        }
    }
}

/// `redis.call`, and, if it does not `raise` errors, `redis.pcall`, where [`direct`] hands them over
fn call(lua: &Lua, arguments: MultiValue, raises: bool) -> mlua::Result<Value> {
    RUNNING.with(|running| {
        let left = running.left.take();
        if left.is_none() {
            running.count_command()?;
        }
        lua.set_memory_limit(0)?;
        let outcome = match left {
            None => call_command(lua, running, &arguments),
            Some(Left::Reply) => Ok(read_reply(lua, running)),
            Some(Left::Stop(stop)) => Err(stop),
            Some(Left::Panic(panic)) => resume_unwind(panic),
        };
        lua.set_memory_limit(running.memory_limit.get())?;
        match outcome {
            Ok(value) => value,
            Err(conflict @ Stop::Database(weft::Error::Conflict(_))) => Err(running.stop(conflict)),
            Err(stop) if raises => Err(mlua::Error::external(ReplyError(stop.text().into_owned()))),
            Err(stop) => values::error(lua, stop.text().as_bytes()),
        }
    })
}

/// An error reply that a script gets.
#[derive(Debug)]
struct ReplyError(String);

impl std::fmt::Display for ReplyError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ReplyError {}

/// Calls a command. An error of the outer result is an error reply.
fn call_command(
    lua: &Lua,
    running: &Running<'_>,
    arguments: &MultiValue,
) -> Done<mlua::Result<Value>> {
    let owned: Option<SmallVec<[Argument; 8]>> = arguments.iter().map(Argument::new).collect();
    let owned = owned.ok_or("ERR Lua redis lib command arguments must be strings or integers")?;
    let arguments: SmallVec<[&[u8]; 8]> = owned.iter().map(Argument::bytes).collect();
    run_command(running, &arguments, &mut running.buffer.borrow_mut())?;
    Ok(read_reply(lua, running))
}

/// Returns the reply of the last command as a Lua value.
fn read_reply(lua: &Lua, running: &Running<'_>) -> mlua::Result<Value> {
    let reply = running.buffer.borrow();
    if reply.is_too_long() {
        return Err(running.stop_for_memory());
    }
    if reply.len() > UNLIMITED_BYTES_MAX {
        lua.set_memory_limit(running.memory_limit.get())?;
    }
    values::read(lua, reply.bytes())
}

/// Runs a command that a script calls, and writes its reply in place of what is there.
///
/// # Errors
/// The error reply.
pub fn run_command(running: &Running<'_>, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    if running.mode.get() == Mode::Register {
        return Err(
            "ERR redis.call can only be called by a function, not while its library is loaded"
                .into(),
        );
    }
    if arguments.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let name = arguments[0];
    let outer = &running.call;
    let command = commands::find(name).or_else(|| outer.caller.server.procedures.command(name));
    let command = command.ok_or("ERR Unknown Redis command called from script")?;
    if !command.takes(arguments.len()) {
        return Err("ERR Wrong number of args calling Redis command from script".into());
    }
    if running.is_read_only.get() && command.has(flags::WRITE) {
        return Err("ERR Write commands are not allowed from read-only scripts.".into());
    }
    let server = outer.caller.server;
    if !server.writes() {
        server.admit(command, true, AtStandby { reads: true, ..AtStandby::default() })?;
    }
    let permit = Permit::new(outer.caller.user, command, arguments).map_err(|denial| {
        outer.caller.server.users.note(
            &denial,
            "lua",
            &outer.caller.user.name,
            outer.caller.client.line(),
        );
        denial.text()
    })?;
    if server.monitors.are_there() {
        outer.effects.show(monitor::line_of(command, running.space.get(), "lua", arguments));
    }
    reply.truncate(0);
    reply.set_version(running.version.get());
    match permit.run() {
        Run::Data(run) if !command.has(flags::NO_SCRIPT) => {
            let caller = Caller { wants_reply: true, ..outer.caller };
            let run = |keys: Keys<'_>, reply: &mut Reply| {
                let space = running.space.get();
                run(&Call { caller, keys, space, arguments, ..*outer }, reply)
            };
            let keys = outer.keys;
            keys.effects.begin(command);
            if command.has(flags::WRITE) {
                // A command that fails leaves nothing.
                keys.savepoint(|keys| run(*keys, reply))?;
            } else if command.has(flags::SLOW) {
                in_place(|| run(keys, reply))?;
            } else {
                run(keys, reply)?;
            }
        }
        _ => call_session(running, command, arguments, reply)?,
    }
    Ok(())
}

/// Calls one of the commands on the session that scripts may use.
fn call_session(
    running: &Running<'_>,
    command: &Command,
    arguments: &[&[u8]],
    reply: &mut Reply,
) -> Done {
    match (command.name, arguments) {
        ("ping", [_]) => reply.simple("PONG"),
        ("ping", [_, text]) | ("echo", [_, text]) => reply.text(text),
        ("select", [_, space]) => {
            running.space.set(space_of(space)?);
            reply.ok();
        }
        ("time", _) => commands::introspection::write_time(running.time(), reply),
        _ => return Err("ERR This Redis command is not allowed from script".into()),
    }
    Ok(())
}

/// Returns what a script gets that has caught an error.
///
/// # Errors
/// The error ends the call, so that it cannot be caught.
fn caught(lua: &Lua, problem: Value) -> mlua::Result<Value> {
    RUNNING.with(|running| running.check())?;
    let text = match &problem {
        Value::Error(error) => text_of(error),
        Value::String(text) if *text == *MEMORY => MEMORY.to_owned(),
        Value::Table(table) => {
            // As in Redis, the error of a command is caught as text.
            let text: Value = table.raw_get("err")?;
            return Ok(if text.is_string() { text } else { problem });
        }
        _ => return Ok(problem),
    };
    match text == MEMORY {
        true => Err(RUNNING.with(|running| running.stop_for_memory())),
        false => Ok(Value::String(lua.create_string(text)?)),
    }
}

/// Returns the text of an error that a script has not caught: what it is, which script it was, and the line.
fn described(lua: &Lua, problem: Value) -> mlua::Result<String> {
    let text = match &problem {
        Value::Error(error) => match error.downcast_ref::<ReplyError>() {
            Some(ReplyError(text)) => text.clone(),
            None if text_of(error) == MEMORY => return Ok(MEMORY.to_owned()),
            None => format!("ERR {}", text_of(error)),
        },
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            Value::String(text) => text.to_string_lossy(),
            _ => "ERR unknown error".to_owned(),
        },
        Value::String(text) => format!("ERR {}", text.to_string_lossy()),
        other => format!("ERR {}", other.to_string()?),
    };
    let name = RUNNING.with(|running| {
        Some(match running.program? {
            Program::Script(script) => hex(&script.digest),
            Program::Function { name, .. } => String::from_utf8_lossy(name).into_owned(),
        })
    });
    let Some(name) = name else { return Ok(text) };
    let (chunk, line) = place(lua).unwrap_or_default();
    Ok(format!("{text} script: {name}, on @{chunk}:{line}."))
}

/// Returns the bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `loadstring`
fn load(lua: &Lua, (code, name): (LuaString, Option<LuaString>)) -> mlua::Result<MultiValue> {
    let name = name.map_or("loaded".to_owned(), |name| name.to_string_lossy());
    let loaded = match engine::load(lua, &code.as_bytes(), &name) {
        Ok(function) => vec![Value::Function(function)],
        Err(mlua::Error::SyntaxError { message, .. }) => {
            vec![Value::Nil, Value::String(lua.create_string(message)?)]
        }
        Err(error) => return Err(error),
    };
    Ok(MultiValue::from_vec(loaded))
}

/// `math.random`
fn random(lua: &Lua, limits: Variadic<f64>) -> mlua::Result<f64> {
    RUNNING.with(|running| {
        let number = running.random.borrow_mut().f64();
        let (low, high) = match limits[..] {
            [] => return Ok(number),
            [high] => (1.0, high.floor()),
            [low, high] => (low.floor(), high.floor()),
            _ => return raise(lua, "wrong number of arguments"),
        };
        if low > high {
            return raise(lua, "bad argument to 'random' (interval is empty)");
        }
        Ok((number * (high - low + 1.0)).floor() + low)
    })
}

/// `redis.error_reply`
fn error_reply(lua: &Lua, text: LuaString) -> mlua::Result<Value> {
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    match text.contains(&b' ') {
        true => values::single(lua, "err", text),
        // Without a code in front.
        false => values::single(lua, "err", &[b"ERR ", text].concat()),
    }
}

/// `redis.status_reply`
fn status_reply(lua: &Lua, text: LuaString) -> mlua::Result<Value> {
    values::single(lua, "ok", &text.as_bytes())
}

/// `redis.sha1hex`
fn sha1hex(_: &Lua, text: LuaString) -> mlua::Result<String> {
    Ok(hex(&digest(&text.as_bytes())))
}

/// `redis.log`
fn write_log(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if arguments.len() < 2 {
        return fail("ERR redis.log() requires two arguments or more.");
    }
    let level = arguments.front().and_then(number).map(|level| level as usize);
    let Some(level) = level.filter(|level| *level < LEVELS.len()) else {
        return fail("ERR Invalid debug level.");
    };
    // As with Redis's default level.
    if level < 2 {
        return Ok(());
    }
    let mut text = Vec::new();
    for value in arguments.iter().skip(1) {
        if let Some(part) = lua.coerce_string(value.clone())? {
            let part = part.as_bytes();
            let room = LOG_BYTES_MAX.saturating_sub(text.len());
            text.extend_from_slice(&part[..part.len().min(room)]);
            text.push(b' ');
        }
    }
    let level = if level == 2 { Level::Info } else { Level::Warn };
    log(level, "a script says", json!({ "text": String::from_utf8_lossy(&text).trim_end() }));
    Ok(())
}

/// Raises an error that is not one of Lua, but of the call.
fn fail<T>(text: &str) -> mlua::Result<T> {
    Err(mlua::Error::external(ReplyError(text.to_owned())))
}

/// `redis.setresp`
fn setresp(_: &Lua, version: f64) -> mlua::Result<()> {
    let version = match version {
        2.0 => Version::Two,
        3.0 => Version::Three,
        _ => return fail("ERR RESP version must be 2 or 3."),
    };
    RUNNING.with(|running| running.version.set(version));
    Ok(())
}

/// `redis.acl_check_cmd`: whether the user may run a command.
fn acl_check_cmd(_: &Lua, arguments: MultiValue) -> mlua::Result<bool> {
    let owned: Option<Vec<Argument>> = arguments.iter().map(Argument::new).collect();
    let owned = owned.unwrap_or_default();
    let arguments: Vec<&[u8]> = owned.iter().map(Argument::bytes).collect();
    RUNNING.with(|running| {
        let Caller { server, user, .. } = running.call.caller;
        let procedure = |name: &&[u8]| server.procedures.command(name);
        let name = arguments.first();
        match name.and_then(|name| commands::find(name)).or_else(|| name.and_then(procedure)) {
            Some(command) => Ok(Permit::new(user, command, &arguments).is_ok()),
            None => fail("ERR Invalid command passed to redis.acl_check_cmd()"),
        }
    })
}

/// `redis.register_function`
fn register_function(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if RUNNING.with(|running| running.mode.get()) != Mode::Register {
        return raise(lua, "redis.register_function can only be called while a library is loaded");
    }
    let mut function = lua.create_table()?;
    match (arguments.len(), arguments.front(), arguments.get(1)) {
        (1, Some(Value::Table(named)), _) => function = named.clone(),
        (1, ..) => {
            return fail(
                "ERR calling redis.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
            );
        }
        (2, Some(name), Some(callback)) => {
            function.raw_set("function_name", name)?;
            function.raw_set("callback", callback)?;
        }
        _ => return fail("ERR wrong number of arguments to redis.register_function"),
    }
    let (mut name, mut callback, mut description) = (None, None, None);
    let mut found = Vec::new();
    for pair in function.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            return fail("ERR named argument key given to redis.register_function is not a string");
        };
        match (&*key.as_bytes(), value) {
            (b"function_name", Value::String(text)) => name = Some(text.as_bytes().to_vec()),
            (b"function_name", _) => {
                return fail(
                    "ERR function_name argument given to redis.register_function must be a string",
                );
            }
            (b"callback", Value::Function(function)) => callback = Some(function),
            (b"callback", _) => {
                return fail(
                    "ERR callback argument given to redis.register_function must be a function",
                );
            }
            (b"description", Value::String(text)) => description = Some(text.as_bytes().to_vec()),
            (b"description", _) => {
                return fail(
                    "ERR description argument given to redis.register_function must be a string",
                );
            }
            (b"flags", Value::Table(list)) => {
                for flag in list.sequence_values::<LuaString>() {
                    let flag = flag?;
                    let known = FLAGS.iter().find(|known| is(&flag.as_bytes(), known));
                    let Some(known) = known else { return fail("ERR unknown flag given") };
                    found.push(*known);
                }
            }
            (b"flags", _) => {
                return fail(
                    "ERR flags argument to redis.register_function must be a table representing function flags",
                );
            }
            _ => return fail("ERR unknown argument given to redis.register_function"),
        }
    }
    let Some(name) = name else {
        return fail("ERR redis.register_function must get a function name argument");
    };
    let Some(callback) = callback else {
        return fail("ERR redis.register_function must get a callback argument");
    };
    if !super::libraries::is_name(&name) {
        return fail(super::libraries::WRONG_NAME);
    }
    RUNNING.with(|running| {
        let mut registered = running.registered.borrow_mut();
        if registered.iter().any(|function| function.name == name) {
            return fail("ERR Function already exists in the library");
        }
        let is_read_only = found.contains(&FLAGS[0]);
        registered.push(Registered { name, callback, description, is_read_only, flags: found });
        Ok(())
    })
}

//! Libraries of functions, which lie in two tables: so they are as durable as the data, and a call finds those that were
//! there at its place in the serial order.

use weft::Error;

use super::sources::{Script, digest, shebang};
use super::{Program, engine};
use crate::call::Call;
use crate::reply::Reply;
use crate::stop::Done;
use crate::tables::{FunctionRow, Library};

/// The error for a name that is not allowed.
pub const WRONG_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at \
                              least one character long";

/// Returns whether a library or a function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Returns the name of a library, from the first line of its code.
fn name_of(code: &[u8]) -> Done<String> {
    let (line, _) = shebang(code).ok_or("ERR Missing library metadata")?;
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or("");
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("ERR Engine '{engine}' not found").into());
    }
    let mut name = None;
    for word in words {
        match word.strip_prefix("name=") {
            Some(_) if name.is_some() => {
                return Err(
                    "ERR Invalid metadata value, name argument was given multiple times".into()
                );
            }
            Some(given) => name = Some(given.to_owned()),
            None => return Err(format!("ERR Invalid metadata value given: {word}").into()),
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    if is_name(name.as_bytes()) { Ok(name) } else { Err(WRONG_NAME.into()) }
}

/// Adds a library, and returns its name.
///
/// # Errors
/// The library is wrong, or it or one of its functions is there already.
pub fn load(call: &Call<'_>, code: &[u8], replaces: bool) -> Done<String> {
    let tables = &call.store.tables;
    let name = name_of(code)?;
    let key = name.as_bytes();
    if call.tx.get(&tables.libraries, key)?.is_some() {
        if !replaces {
            return Err(format!("ERR Library '{name}' already exists").into());
        }
        delete(call, key)?;
    }
    let script = Script { digest: digest(code), code: code.into(), is_read_only: false };
    let functions = engine::register(call, &script)?;
    if functions.is_empty() {
        return Err("ERR No functions registered".into());
    }
    for function in functions {
        let shown = String::from_utf8_lossy(&function.name).into_owned();
        let exists = call.tx.get(&tables.functions, &function.name[..])?.is_some();
        if exists || call.caller.server.procedures.command(&function.name).is_some() {
            return Err(format!("ERR Function {shown} already exists").into());
        }
        let row = FunctionRow {
            name: function.name.into(),
            library: key.into(),
            description: function.description.map(Into::into),
            flags: function.flags.join(",").into_bytes().into(),
            is_read_only: function.is_read_only,
        };
        call.tx.insert(&tables.functions, row)?;
    }
    let digest = script.digest[..].into();
    call.tx.insert(&tables.libraries, Library { name: key.into(), code: script.code, digest })?;
    Ok(name)
}

/// Removes a library. Returns whether it was there.
///
/// # Errors
/// Those of the database.
pub fn delete(call: &Call<'_>, name: &[u8]) -> Done<bool> {
    let tables = &call.store.tables;
    for function in functions_of(call, name)? {
        call.tx.delete(&tables.functions, &function.name[..])?;
    }
    Ok(call.tx.delete(&tables.libraries, name)?)
}

/// Removes all libraries.
///
/// # Errors
/// Those of the database.
pub fn flush(call: &Call<'_>) -> Done {
    for library in all(call)? {
        delete(call, &library.name)?;
    }
    Ok(())
}

/// Returns all libraries, in the order of their names.
///
/// # Errors
/// Those of the database.
pub fn all<'c>(call: &Call<'c>) -> Done<Vec<&'c Library>> {
    let libraries = call.tx.range(&call.store.tables.libraries, ..);
    Ok(libraries.collect::<Result<_, Error>>()?)
}

/// Returns the functions of a library, in the order of their names.
///
/// # Errors
/// Those of the database.
pub fn functions_of<'c>(call: &Call<'c>, library: &[u8]) -> Done<Vec<&'c FunctionRow>> {
    let functions = call.tx.range(&call.store.tables.functions, ..);
    let functions: Vec<&FunctionRow> = functions.collect::<Result<_, Error>>()?;
    Ok(functions.into_iter().filter(|function| *function.library == *library).collect())
}

/// Calls a function, and writes its result.
///
/// # Errors
/// There is no such function, or `is_read_only` asks for one that does not write and this one may; those of
/// [`run`](super::run).
pub fn call(
    call: &Call<'_>,
    name: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
    is_read_only: bool,
    reply: &mut Reply,
) -> Done {
    let tables = &call.store.tables;
    let function = call.tx.get(&tables.functions, name)?.ok_or("ERR Function not found")?;
    if is_read_only && !function.is_read_only {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    let library = call.tx.get(&tables.libraries, &*function.library)?;
    let library = library.ok_or("ERR Function not found")?;
    let script = Script {
        digest: library.digest[..].try_into().unwrap_or_default(),
        code: library.code.clone(),
        is_read_only: false,
    };
    let program = Program::Function { library: &script, name };
    super::run(call, program, keys, arguments, is_read_only, reply)
}

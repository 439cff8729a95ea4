//! `redis.call` without references: takes texts and integers from Lua's stack, and leaves a simple reply there.
//!
//! `mlua` makes a reference of each argument and each result, which takes longer than a short command. The function here is
//! called by Lua itself. It hands over to the function in [`host`] what is not simple: arguments of other types, errors, panics,
//! and replies of several values.
//!
//! Lua raises an error by a jump that runs no destructor. So the function has two steps. [`run`] has everything with a
//! destructor, calls only functions of Lua that raise no error, and returns a [`Simple`], which has no destructor. Then
//! [`call`] leaves the result on the stack, by functions that raise an error if there is no memory.

use std::any::Any;
use std::ffi::c_int;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use mlua::{Function, Lua, ffi, lua_State};
use smallvec::SmallVec;

use super::host;
use super::running::{RUNNING, Running};
use crate::request::parse_integer;
use crate::stop::Stop;

/// What a command has left for the function that the call is handed over to.
#[derive(Debug)]
pub enum Left {
    /// Its reply, in the buffer.
    Reply,
    /// Why it has failed.
    Stop(Stop),
    /// What it has panicked with.
    Panic(Box<dyn Any + Send>),
}

/// What the call returns to Lua. The bytes lie in the buffer of the call that runs, until its next command.
#[derive(Clone, Copy)]
enum Simple {
    /// A text.
    Text(NonNull<[u8]>),
    /// A table that says that the command has succeeded.
    Status(NonNull<[u8]>),
    /// A number.
    Number(f64),
    /// `false`, which stands for a null.
    Null,
}

/// An argument.
enum Argument {
    /// A text of Lua.
    Text(NonNull<[u8]>),
    /// A part of the digits of all numbers.
    Digits(Range<usize>),
}

/// Calls with more arguments are handed over.
const ARGUMENTS_MAX: c_int = 32;
/// All integers up to this one are numbers of Lua.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Creates the function. Lua calls `other` where the call is handed over.
pub fn create(lua: &Lua, other: &Function) -> mlua::Result<Function> {
    // SAFETY: the argument is on top of the stack. The new function takes its place, and has it as its upvalue.
    unsafe { lua.exec_raw(other, |state| ffi::lua_pushcclosure(state, call, 1)) }
}

/// The function that Lua calls.
unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this with its state.
    let simple = unsafe { run(state) };
    // SAFETY: the stack has room for 20 values besides the arguments. `run` has returned, so nothing with a destructor is on
    // Rust's stack when a function of Lua raises an error. The bytes are there until the next command, and are copied before
    // Lua runs anything.
    unsafe {
        match simple {
            Some(Simple::Text(text)) => {
                ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
            }
            Some(Simple::Status(text)) => {
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
                ffi::lua_setfield(state, -2, c"ok".as_ptr());
            }
            Some(Simple::Number(number)) => ffi::lua_pushnumber(state, number),
            Some(Simple::Null) => ffi::lua_pushboolean(state, 0),
            None => {
                let arguments = ffi::lua_gettop(state);
                ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
                ffi::lua_insert(state, 1);
                ffi::lua_call(state, arguments, 1);
            }
        }
    }
    1
}

/// Runs the command, if the arguments are simple. Returns `None` if the call is to be handed over.
///
/// # Safety
/// The state is that of the function that Lua calls.
unsafe fn run(state: *mut lua_State) -> Option<Simple> {
    if !RUNNING.is_set() {
        return None;
    }
    RUNNING.with(|running| {
        // Lua may have had no room to hand a call over.
        running.left.take();
        // SAFETY: the caller promises it.
        let ran = catch_unwind(AssertUnwindSafe(|| unsafe { run_simple(state, running) }));
        ran.unwrap_or_else(|panic| {
            running.left.replace(Some(Left::Panic(panic)));
            let _ = running.stop("ERR a command has failed, and the script was rolled back".into());
            None
        })
    })
}

/// # Safety
/// As for [`run`].
unsafe fn run_simple(state: *mut lua_State, running: &Running<'_>) -> Option<Simple> {
    // SAFETY: this raises no error.
    let count = unsafe { ffi::lua_gettop(state) };
    if count == 0 || count > ARGUMENTS_MAX {
        return None;
    }
    let mut digits = SmallVec::<[u8; 64]>::new();
    let mut arguments = SmallVec::<[Argument; 8]>::new();
    for position in 1..=count {
        // SAFETY: the position is on the stack. No function raises an error, since the value has the type.
        arguments.push(unsafe {
            match ffi::lua_type(state, position) {
                ffi::LUA_TSTRING => {
                    let mut length = 0;
                    let text = ffi::lua_tolstring(state, position, &raw mut length);
                    let text = NonNull::new(text.cast_mut())?.cast();
                    Argument::Text(NonNull::slice_from_raw_parts(text, length))
                }
                ffi::LUA_TNUMBER => {
                    let number = ffi::lua_tonumber(state, position);
                    let integer = number as i64;
                    // Not so for a fraction, and for a zero below zero.
                    let is_integer = (integer as f64).to_bits() == number.to_bits();
                    if !is_integer || number.abs() >= INTEGER_MAX {
                        return None;
                    }
                    let start = digits.len();
                    let mut buffer = itoa::Buffer::new();
                    digits.extend_from_slice(buffer.format(integer).as_bytes());
                    Argument::Digits(start..digits.len())
                }
                _ => return None,
            }
        });
    }
    let bytes = arguments.iter().map(|argument| match argument {
        // SAFETY: Lua neither moves nor frees a text that is on the stack, and nothing takes it away from there before this
        // function returns.
        Argument::Text(text) => unsafe { text.as_ref() },
        Argument::Digits(range) => &digits[range.clone()],
    });
    let arguments: SmallVec<[&[u8]; 8]> = bytes.collect();
    running.count_command().ok()?;
    let mut reply = running.buffer.borrow_mut();
    let left = match host::run_command(running, &arguments, &mut reply) {
        Err(stop) => Left::Stop(stop),
        Ok(()) => match simple(reply.bytes()).filter(|_| !reply.is_too_long()) {
            Some(simple) => return Some(simple),
            None => Left::Reply,
        },
    };
    running.left.replace(Some(left));
    None
}

/// Returns a reply of one value, unless it is an error or one of RESP3 alone.
fn simple(reply: &[u8]) -> Option<Simple> {
    let (kind, rest) = reply.split_first()?;
    let end = memchr::memchr(b'\r', rest)?;
    let (line, text) = (&rest[..end], rest.get(end + 2..)?);
    match kind {
        b'+' => Some(Simple::Status(line.into())),
        b':' => Some(Simple::Number(parse_integer(line)? as f64)),
        b'$' if line == b"-1" => Some(Simple::Null),
        b'$' => Some(Simple::Text(text.get(..text.len().checked_sub(2)?)?.into())),
        _ => None,
    }
}

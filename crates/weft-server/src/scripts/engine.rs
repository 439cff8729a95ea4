//! The Lua states: each thread keeps one, with the scripts that it has compiled.

use std::cell::{Cell, RefCell};

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};
use rustc_hash::FxHashMap;

use super::running::{MEMORY, Mode, RUNNING, Registered, Running};
use super::sources::{Digest, Script, shebang};
use super::{Program, host, text_of};
use crate::call::Call;
use crate::stop::{Done, Stop};

/// The limits of a call are checked after so many instructions of Lua's machine.
const INSTRUCTIONS_PER_CHECK: u32 = 10_000;
/// A state that needs more memory between two calls is given up, as is one with more compiled scripts.
const IDLE_BYTES_MAX: usize = 8 << 20;
const COMPILED_MAX: usize = 1000;
/// The name of the code that builds what scripts see.
pub const SANDBOX: &str = "sandbox";

/// A Lua state.
struct Engine {
    lua: Lua,
    /// The globals of scripts.
    visible: Table,
    keys: LuaString,
    arguments: LuaString,
    /// Runs a function, and catches its error.
    run: Function,
    compiled: FxHashMap<Digest, Function>,
    /// The memory that the state needed before it ran anything.
    empty_bytes: usize,
    /// The most memory that its last call might need, in bytes.
    call_bytes: Cell<usize>,
}

thread_local! {
    static IDLE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

impl Engine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(format!("@{SANDBOX}"));
        let (globals, visible, run) =
            sandbox.call::<(Table, Table, Function)>(host::create(&lua)?)?;
        lua.set_globals(globals)?;
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_CHECK);
        lua.set_global_hook(triggers, |_, _| {
            if RUNNING.is_set() {
                RUNNING.with(|running| running.check())?;
            }
            Ok(VmState::Continue)
        })?;
        let (keys, arguments) = (lua.create_string("KEYS")?, lua.create_string("ARGV")?);
        let (compiled, empty_bytes) = (FxHashMap::default(), lua.used_memory());
        let call_bytes = Cell::new(IDLE_BYTES_MAX);
        Ok(Engine { lua, visible, keys, arguments, run, compiled, empty_bytes, call_bytes })
    }

    /// Returns the function of a script.
    fn compile(&mut self, script: &Script, name: &str) -> mlua::Result<&Function> {
        if !self.compiled.contains_key(&script.digest) {
            let code = shebang(&script.code).map_or(&script.code[..], |(_, rest)| rest);
            self.compiled.insert(script.digest, load(&self.lua, code, name)?);
        }
        Ok(&self.compiled[&script.digest])
    }

    fn texts(&self, texts: &[&[u8]]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
        for text in texts {
            table.raw_push(self.lua.create_string(text)?)?;
        }
        Ok(table)
    }

    /// Runs a program. Returns whether it has ended well, and its result or the text of its error.
    fn start(
        &mut self,
        running: &Running<'_>,
        program: Program<'_>,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> mlua::Result<(bool, Value)> {
        let (keys, arguments) = (self.texts(keys)?, self.texts(arguments)?);
        match program {
            Program::Script(script) => {
                self.visible.raw_set(&self.keys, keys)?;
                self.visible.raw_set(&self.arguments, arguments)?;
                match self.compile(script, SCRIPT_NAME) {
                    Ok(_) => self.limited(running, &self.compiled[&script.digest]),
                    Err(mlua::Error::SyntaxError { message, .. }) => {
                        let text = self.lua.create_string(not_compiled(&message))?;
                        Ok((false, Value::String(text)))
                    }
                    Err(error) => Err(error),
                }
            }
            Program::Function { library, name } => {
                let (is_ok, problem) = self.register(running, library)?;
                if !is_ok {
                    return Ok((false, problem));
                }
                let registered = running.registered.take();
                let Some(function) = registered.into_iter().find(|function| function.name == name)
                else {
                    return Err(mlua::Error::runtime("ERR Function not found"));
                };
                running.is_read_only.set(running.is_read_only.get() || function.is_read_only);
                self.limited(running, (function.callback, keys, arguments))
            }
        }
    }

    /// Runs the code of a library, which registers its functions.
    fn register(&mut self, running: &Running<'_>, library: &Script) -> mlua::Result<(bool, Value)> {
        self.compile(library, LIBRARY_NAME)?;
        self.visible.raw_set(&self.keys, Value::Nil)?;
        self.visible.raw_set(&self.arguments, Value::Nil)?;
        running.mode.set(Mode::Register);
        let outcome = self.limited(running, &self.compiled[&library.digest]);
        running.mode.set(Mode::Call);
        outcome
    }

    /// Runs a function with the limit of memory. Without it the host's own conversions take a third of the time, because
    /// `mlua` need not protect each of them. What they need is bounded by the length of a reply.
    fn limited(
        &self,
        running: &Running<'_>,
        function: impl mlua::IntoLuaMulti,
    ) -> mlua::Result<(bool, Value)> {
        let bytes = running.call.caller.server.options.script_bytes;
        running.memory_limit.set(self.lua.used_memory().saturating_add(bytes));
        self.lua.set_memory_limit(running.memory_limit.get())?;
        self.call_bytes.set(bytes);
        let outcome = self.run.call(function);
        self.lua.set_memory_limit(0)?;
        outcome
    }

    /// Returns whether the state may be used again. A call may need so many bytes more than it finds in use. What it finds
    /// includes what earlier calls have left, so that has to be little beside what a call may need.
    fn is_reusable(&self) -> bool {
        let idle_bytes_max = IDLE_BYTES_MAX.min(self.empty_bytes + self.call_bytes.get() / 8);
        let is_small = || self.lua.used_memory() <= idle_bytes_max;
        self.compiled.len() <= COMPILED_MAX
            && (is_small() || (self.lua.gc_collect().is_ok() && is_small()))
    }
}

const SCRIPT_NAME: &str = "user_script";
const LIBRARY_NAME: &str = "user_function";

/// Returns the function of code, which has to be text.
pub fn load(lua: &Lua, code: &[u8], name: &str) -> mlua::Result<Function> {
    lua.load(code).set_name(format!("@{name}")).set_mode(ChunkMode::Text).into_function()
}

fn not_compiled(message: &str) -> String {
    format!("ERR Error compiling script (new function): {message}")
}

/// Uses the state of this thread.
fn with<R>(work: impl FnOnce(&mut Engine) -> Done<R>) -> Done<R> {
    let engine = match IDLE.take() {
        Some(engine) => Ok(engine),
        None => Engine::new(),
    };
    let mut engine = engine.map_err(|error| -> Stop {
        format!("ERR a state for scripts cannot be made: {error}").into()
    })?;
    let result = work(&mut engine);
    if engine.is_reusable() {
        IDLE.set(Some(engine));
    }
    result
}

/// Checks that a script can be compiled.
///
/// # Errors
/// It cannot.
pub fn check(script: &Script) -> Done {
    with(|engine| match engine.compile(script, SCRIPT_NAME) {
        Ok(_) => Ok(()),
        Err(error) => Err(not_compiled(&text_of(&error)).into()),
    })
}

/// Runs a program within the transaction of a call. `end` gets its result. Returns what `end` returns, or the text of the
/// program's error.
///
/// # Errors
/// A conflict, or a limit.
pub fn run(
    call: &Call<'_>,
    program: Program<'_>,
    keys: &[&[u8]],
    arguments: &[&[u8]],
    is_read_only: bool,
    end: impl FnOnce(&Value) -> Option<String>,
) -> Done<Option<String>> {
    let running = Running::new(call, Some(program), is_read_only);
    with(|engine| {
        RUNNING.set(&running, || {
            let outcome = engine.start(&running, program, keys, arguments);
            finish(&running, outcome, end)
        })
    })
}

/// Runs the code of a library, and returns the functions that it registers.
///
/// # Errors
/// It cannot be compiled, raises an error, or is stopped by a limit.
pub fn register(call: &Call<'_>, library: &Script) -> Done<Vec<Registered>> {
    let running = Running::new(call, None, true);
    with(|engine| {
        RUNNING.set(&running, || {
            let outcome = match engine.register(&running, library) {
                Err(mlua::Error::SyntaxError { message, .. }) => {
                    return Err(format!("ERR Error compiling function: {message}").into());
                }
                outcome => outcome,
            };
            let failed = finish(&running, outcome, |_| None)?;
            match failed {
                Some(text) => Err(format!("ERR Error registering functions: {text}").into()),
                None => Ok(running.registered.take()),
            }
        })
    })
}

fn finish(
    running: &Running<'_>,
    outcome: mlua::Result<(bool, Value)>,
    end: impl FnOnce(&Value) -> Option<String>,
) -> Done<Option<String>> {
    running.end()?;
    let text = match outcome {
        Ok((true, value)) => return Ok(end(&value)),
        Ok((false, Value::String(text))) => text.to_string_lossy(),
        Ok((false, _)) => "ERR unknown error".to_owned(),
        Err(error) => text_of(&error),
    };
    if text == MEMORY {
        let _ = running.stop_for_memory();
        running.end()?;
    }
    Ok(Some(text))
}

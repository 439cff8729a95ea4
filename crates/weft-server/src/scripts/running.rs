//! The call that runs on a thread: its transaction, its limits, and why it was stopped.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mlua::Function;
use scoped_tls_hkt::scoped_thread_local;
use weft::htm::word::Ordering;

use super::Program;
use super::direct::Left;
use super::json::Settings;
use crate::call::Call;
use crate::reply::{Reply, Version};
use crate::session::{SLOW, in_place};
use crate::stop::{Done, Stop};

scoped_thread_local!(
    /// The call that runs on this thread.
    pub static RUNNING: for<'c> &'c Running<'c>
);

/// The part of a call that is the same in all its attempts.
#[derive(Debug)]
pub struct Fixed {
    begun: Instant,
    /// The time since 1970 that the script sees, once it has asked for it.
    time: Cell<Option<Duration>>,
    seed: u64,
    /// After so long the call hands the other connections of its thread over, and can be killed. Then again after twice the
    /// time.
    handover: Cell<Duration>,
}

/// What a state may do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Call commands.
    Call,
    /// Register functions, as the code of a library does.
    Register,
}

/// A function that a library registers.
#[derive(Clone, Debug)]
pub struct Registered {
    /// Its name.
    pub name: Vec<u8>,
    /// What runs when it is called.
    pub callback: Function,
    /// What it does.
    pub description: Option<Vec<u8>>,
    /// Whether it may not write.
    pub is_read_only: bool,
    /// The names of its flags.
    pub flags: Vec<&'static str>,
}

/// An attempt of a call.
#[derive(Debug)]
pub struct Running<'c> {
    /// The call of `EVAL` or the like.
    pub call: Call<'c>,
    /// What runs. `None` if the functions of a new library are registered.
    pub program: Option<Program<'c>>,
    fixed: &'c Fixed,
    /// What the script may do.
    pub mode: Cell<Mode>,
    /// Whether commands that write are refused.
    pub is_read_only: Cell<bool>,
    /// The numbered database that the script has selected.
    pub space: Cell<u8>,
    /// The version of the protocol in which the script gets replies.
    pub version: Cell<Version>,
    /// Where commands write the replies that the script gets.
    pub buffer: RefCell<Reply>,
    /// What [`direct`](super::direct) hands over.
    pub left: RefCell<Option<Left>>,
    /// The numbers of `math.random`.
    pub random: RefCell<fastrand::Rng>,
    /// The settings of `cjson`.
    pub json: Cell<Settings>,
    /// The functions that were registered.
    pub registered: RefCell<Vec<Registered>>,
    /// How many bytes the state may use while Lua's code runs.
    pub memory_limit: Cell<usize>,
    commands: Cell<u32>,
    stop: RefCell<Option<Stop>>,
    /// How often scripts had been killed when this one had run for so long that it can be killed.
    kills: Cell<Option<u64>>,
}

/// Checks the length of what a function of the host has written for a script, outside of Lua's memory.
///
/// # Errors
/// It is longer than the memory of a call, which is stopped.
pub fn check_length(bytes: usize) -> mlua::Result<()> {
    RUNNING.with(|running| match bytes > running.call.caller.server.options.script_bytes {
        true => Err(running.stop_for_memory()),
        false => Ok(()),
    })
}

/// The text of the error of a call that has used too much memory.
pub const MEMORY: &str = "not enough memory";

impl<'c> Running<'c> {
    /// Begins an attempt.
    pub fn new(call: &Call<'c>, program: Option<Program<'c>>, is_read_only: bool) -> Self {
        let fixed = call.fixed.get_or_init(|| Fixed {
            begun: Instant::now(),
            time: Cell::new(None),
            seed: fastrand::u64(..),
            handover: Cell::new(SLOW),
        });
        // Commands that choose at random do so in the same way in each attempt.
        fastrand::seed(fixed.seed);
        Running {
            call: *call,
            program,
            fixed,
            mode: Cell::new(Mode::Call),
            is_read_only: Cell::new(is_read_only),
            space: Cell::new(call.space),
            version: Cell::new(Version::Two),
            buffer: RefCell::new(Reply::with_room(call.caller.server.options.script_bytes)),
            left: RefCell::new(None),
            random: RefCell::new(fastrand::Rng::with_seed(fixed.seed)),
            json: Cell::default(),
            registered: RefCell::new(Vec::new()),
            memory_limit: Cell::new(0),
            commands: Cell::new(0),
            stop: RefCell::new(None),
            kills: Cell::new(None),
        }
    }

    /// Returns the time that the script sees, since 1970.
    pub fn time(&self) -> Duration {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = self.fixed.time.get().unwrap_or_else(now);
        self.fixed.time.set(Some(time));
        time
    }

    /// Notes that the script calls a command. Checks the limits now and then: a few commands may take long.
    ///
    /// # Errors
    /// The call is stopped.
    pub fn count_command(&self) -> mlua::Result<()> {
        let commands = self.commands.get().wrapping_add(1);
        self.commands.set(commands);
        if commands.is_multiple_of(32) { self.check() } else { self.check_stop() }
    }

    /// Checks the limits. If the call takes long, lets other connections have the thread's place.
    ///
    /// # Errors
    /// The call is stopped.
    pub fn check(&self) -> mlua::Result<()> {
        self.check_stop()?;
        let elapsed = self.fixed.begun.elapsed();
        let limit = self.call.caller.server.options.script_time;
        if elapsed >= limit {
            let text = format!(
                "ERR the script was stopped, and rolled back, because it has run for {} ms; make it shorter, or start \
                 the server with a longer --script-time, in milliseconds",
                limit.as_millis()
            );
            return Err(self.stop(text.into()));
        }
        let scripts = &self.call.caller.server.scripts;
        let kills = scripts.kills.load(Ordering::SeqCst);
        if self.kills.get().is_some_and(|before| before != kills) {
            return Err(
                self.stop("ERR the script was killed by SCRIPT KILL, and rolled back".into())
            );
        }
        if elapsed >= self.fixed.handover.get() {
            self.fixed.handover.set(elapsed * 2);
            if self.kills.get().is_none() {
                self.kills.set(Some(kills));
                scripts.busy.fetch_add(1, Ordering::SeqCst);
            }
            // Another thread takes the connections over as soon as it wakes up.
            in_place(|| std::thread::sleep(SLOW / 5));
        }
        Ok(())
    }

    fn check_stop(&self) -> mlua::Result<()> {
        match &*self.stop.borrow() {
            None => Ok(()),
            Some(stop) => Err(mlua::Error::runtime(stop.text())),
        }
    }

    /// Stops the call, whatever the script does with the error.
    pub fn stop(&self, stop: Stop) -> mlua::Error {
        let error = mlua::Error::runtime(stop.text());
        self.stop.borrow_mut().get_or_insert(stop);
        error
    }

    /// Stops the call because it has used too much memory.
    pub fn stop_for_memory(&self) -> mlua::Error {
        let text = format!(
            "ERR the script was stopped, and rolled back, because it needs more than {} bytes of memory",
            self.call.caller.server.options.script_bytes
        );
        self.stop(text.into())
    }

    /// Returns why the call was stopped, if it was.
    ///
    /// # Errors
    /// That is the error.
    pub fn end(&self) -> Done {
        self.stop.borrow_mut().take().map_or(Ok(()), Err)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.kills.get().is_some() {
            // One less.
            self.call.caller.server.scripts.busy.fetch_add(u64::MAX, Ordering::SeqCst);
        }
    }
}

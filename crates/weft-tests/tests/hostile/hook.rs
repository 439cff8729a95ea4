//! The hook in every user operation: it counts calls, finds their call sites, and lets one of them misbehave.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use weft_htm::blocking::{Condvar, Mutex};

macro_rules! operations {
    ($($operation:ident)*) => {
        /// An operation that the user supplies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation { $($operation),* }

        impl Operation {
            pub const ALL: &'static [Operation] = &[$(Operation::$operation),*];
        }
    };
}

operations! {
    RowClone RowDrop RowKey RowKeyEquals RowEncodeIndexKey RowIndexKeyDiffers RowEncode RowDecode
    RowStoredBytes RowHeapBytes RowEncodeChanges RowSameColumns RowRebase RowLacksRoom RowEncodeKey RowDecodeKey RowCheck
    ValueClone ValueDrop ValueEq ValueDebug ValueEncode ValueWrite ValueRead ValueStoredBytes ValueHeapBytes ValueIsSame
    KeyNumber KeyGenerate
    SumAddDifference SumHasRoom SumAddAssign
    TransactionBody UpdateBody SnapshotBody HookBody PrefetchNext RangeBound EncodePrefix ConvertError
}

impl Operation {
    /// Returns whether the operation answers a question, so that it may answer falsely.
    pub fn may_lie(self) -> bool {
        !matches!(self, Operation::RowDrop | Operation::ValueDrop | Operation::ValueDebug)
    }

    /// Returns whether the operation has access to a user's value that it may change.
    pub fn may_mutate(self) -> bool {
        matches!(
            self,
            Operation::ValueClone
                | Operation::ValueEq
                | Operation::ValueEncode
                | Operation::ValueWrite
                | Operation::ValueStoredBytes
                | Operation::ValueHeapBytes
                | Operation::ValueIsSame
                | Operation::ValueDebug
                | Operation::RowKey
        )
    }
}

/// What an operation does instead of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Misbehaviour {
    Panic,
    /// Waits until the test lets it go on.
    Block,
    /// Runs a transaction, opens a snapshot, and requests a checkpoint.
    Reenter,
    /// Uses the current transaction of this thread, if there is one.
    UseTransaction,
    /// Closes the database.
    Close,
    /// Answers falsely, once.
    Lie,
    /// Changes the value that it is called on, although the value is borrowed and may be a key.
    Mutate,
}

impl Misbehaviour {
    pub const ALL: [Misbehaviour; 7] = [
        Misbehaviour::Panic,
        Misbehaviour::Block,
        Misbehaviour::Reenter,
        Misbehaviour::UseTransaction,
        Misbehaviour::Close,
        Misbehaviour::Lie,
        Misbehaviour::Mutate,
    ];

    pub fn suits(self, operation: Operation) -> bool {
        match self {
            Misbehaviour::Lie => operation.may_lie(),
            Misbehaviour::Mutate => operation.may_mutate(),
            _ => true,
        }
    }

    /// Returns whether the type may get wrong answers about its own rows as a result.
    pub fn is_false(self) -> bool {
        matches!(self, Misbehaviour::Lie | Misbehaviour::Mutate)
    }
}

/// How an operation should answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    Honest,
    Lie,
    Mutate,
}

/// The payload of this suite's panics.
pub struct Misbehaved;

/// A planned misbehaviour: the operation's call with this number, counted from 0, misbehaves.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub operation: Operation,
    pub misbehaviour: Misbehaviour,
    pub number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocking {
    Never,
    Now,
    Over,
}

type Act = Arc<dyn Fn(Misbehaviour) + Send + Sync>;

struct State {
    plan: Option<Plan>,
    /// The call site at which the plan was carried out.
    fired_at: Option<String>,
    /// The numbers of calls by operation and call site, if calls are recorded.
    recorded: Option<Calls>,
    blocking: Blocking,
    /// The action that uses the database from user code.
    act: Option<Act>,
}

static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
static COUNTS: [AtomicU64; Operation::ALL.len()] =
    [const { AtomicU64::new(0) }; Operation::ALL.len()];
static STATE: Mutex<State> = Mutex::new(State {
    plan: None,
    fired_at: None,
    recorded: None,
    blocking: Blocking::Never,
    act: None,
});
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// The number of nested calls of [`quietly`] on this thread.
    static QUIET: Cell<u32> = const { Cell::new(0) };
    /// Uses the transaction whose body this thread is running.
    static TRANSACTION: RefCell<Option<*const dyn Fn()>> = const { RefCell::new(None) };
}

/// The longest time that an operation blocks.
const BLOCK_MAX: Duration = Duration::from_secs(20);

/// Begins a run with a plan, or, without a plan, a run that records all calls.
pub fn arm(plan: Option<Plan>) {
    let mut state = STATE.lock().unwrap();
    COUNTS.iter().for_each(|count| count.store(0, SeqCst));
    state.recorded = plan.is_none().then(BTreeMap::new);
    state.plan = plan;
    state.fired_at = None;
    state.blocking = Blocking::Never;
    IS_ACTIVE.store(true, SeqCst);
}

/// The numbers of the calls of an operation, by call site.
pub type Calls = BTreeMap<(Operation, String), Vec<u64>>;

/// Ends a run. Returns the call site at which the plan was carried out, and the recorded calls.
pub fn disarm() -> (Option<String>, Calls) {
    IS_ACTIVE.store(false, SeqCst);
    let mut state = STATE.lock().unwrap();
    state.act = None;
    (state.fired_at.take(), state.recorded.take().unwrap_or_default())
}

/// Sets the action that uses the database from user code.
pub fn set_act(act: Option<Act>) {
    let before = std::mem::replace(&mut STATE.lock().unwrap().act, act);
    drop(before);
}

/// Runs something without counting operations, and without misbehaviour.
pub fn quietly<R>(run: impl FnOnce() -> R) -> R {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            QUIET.set(QUIET.get() - 1);
        }
    }
    QUIET.set(QUIET.get() + 1);
    let _loud = Loud;
    run()
}

/// Lets operations use a transaction while its body runs.
pub fn with_transaction<R>(use_transaction: &dyn Fn(), body: impl FnOnce() -> R) -> R {
    struct Forget(Option<*const dyn Fn()>);
    impl Drop for Forget {
        fn drop(&mut self) {
            TRANSACTION.set(self.0.take());
        }
    }
    // SAFETY: only the lifetime changes. `Forget` removes the pointer before the reference's lifetime ends.
    let erased = unsafe {
        std::mem::transmute::<*const (dyn Fn() + '_), *const (dyn Fn() + 'static)>(use_transaction)
    };
    let _forget = Forget(TRANSACTION.replace(Some(erased)));
    body()
}

/// Uses the transaction whose body this thread is running, if there is one.
pub fn use_transaction() {
    let use_transaction = TRANSACTION.try_with(|it| *it.borrow()).ok().flatten();
    if let Some(use_transaction) = use_transaction {
        // SAFETY: a `with_transaction` of this thread is in progress, and holds a reference to it.
        unsafe { (*use_transaction)() };
    }
}

/// Waits until an operation blocks. Returns false if `may_end` returns true before that.
pub fn await_block(may_end: impl Fn() -> bool) -> bool {
    let mut state = STATE.lock().unwrap();
    loop {
        if state.blocking == Blocking::Now {
            return true;
        }
        if may_end() {
            return false;
        }
        state = CHANGED.wait_timeout(state, Duration::from_millis(1)).unwrap().0;
    }
}

/// Unblocks the operation that blocks.
pub fn release() {
    STATE.lock().unwrap().blocking = Blocking::Over;
    CHANGED.notify_all();
}

/// Reports a call. An operation calls it at its beginning, and a `Drop` at its end.
pub fn called(operation: Operation) -> Answer {
    if !IS_ACTIVE.load(SeqCst) || QUIET.try_with(Cell::get).is_ok_and(|quiet| quiet > 0) {
        return Answer::Honest;
    }
    let number = COUNTS[operation as usize].fetch_add(1, SeqCst);
    let mut state = STATE.lock().unwrap();
    if let Some(recorded) = &mut state.recorded {
        if let Some(site) = engine_site() {
            recorded.entry((operation, site)).or_default().push(number);
        }
        return Answer::Honest;
    }
    match state.plan {
        Some(plan) if plan.operation == operation && plan.number == number => {
            if plan.misbehaviour == Misbehaviour::Panic && std::thread::panicking() {
                return Answer::Honest; // A second panic would abort the process, as with any type.
            }
            let Some(site) = engine_site() else { return Answer::Honest };
            state.fired_at = Some(site);
            drop(state);
            misbehave(plan.misbehaviour)
        }
        _ => Answer::Honest,
    }
}

fn misbehave(misbehaviour: Misbehaviour) -> Answer {
    match misbehaviour {
        Misbehaviour::Panic => resume_unwind(Box::new(Misbehaved)),
        Misbehaviour::Block => {
            let mut state = STATE.lock().unwrap();
            state.blocking = Blocking::Now;
            CHANGED.notify_all();
            let until = Instant::now() + BLOCK_MAX;
            while state.blocking == Blocking::Now && Instant::now() < until {
                state = CHANGED.wait_timeout(state, Duration::from_millis(10)).unwrap().0;
            }
        }
        Misbehaviour::Reenter | Misbehaviour::Close => {
            let act = STATE.lock().unwrap().act.clone();
            if let Some(act) = act {
                act(misbehaviour);
            }
        }
        Misbehaviour::UseTransaction => {
            use_transaction();
        }
        Misbehaviour::Lie => return Answer::Lie,
        Misbehaviour::Mutate => return Answer::Mutate,
    }
    Answer::Honest
}

// ---- call sites ---------------------------------------------------------------------------------

/// The number of stack frames by which call sites are distinguished.
const FRAMES: usize = 32;

/// A cache of call sites by the addresses on the stack, because finding the names of addresses takes long.
static SITES: Mutex<Option<HashMap<Vec<usize>, Option<String>>>> = Mutex::new(None);

/// Returns the function of the engine that made the call, and its caller in the engine, for example `table/core.rs
/// clone_row < transaction/private_row.rs cloned`. Returns `None` if the engine is not on the stack.
pub fn engine_site() -> Option<String> {
    let addresses = addresses();
    if let Some(addresses) = &addresses
        && let Some(sites) = &*SITES.lock().unwrap()
        && let Some(site) = sites.get(addresses)
    {
        return site.clone();
    }
    let site = site_of(&Backtrace::force_capture().to_string());
    if let Some(addresses) = addresses {
        SITES.lock().unwrap().get_or_insert_default().insert(addresses, site.clone());
    }
    site
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn addresses() -> Option<Vec<usize>> {
    unsafe extern "C" {
        fn backtrace(buffer: *mut usize, size: i32) -> i32;
    }
    let mut buffer = [0_usize; FRAMES];
    // SAFETY: `backtrace` of the C library writes at most `FRAMES` addresses, which is the buffer's length.
    let length = unsafe { backtrace(buffer.as_mut_ptr(), FRAMES as i32) };
    Some(buffer[..length as usize].to_vec())
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn addresses() -> Option<Vec<usize>> {
    None
}

fn site_of(backtrace: &str) -> Option<String> {
    let mut functions: Vec<String> = Vec::new();
    let mut symbol = "";
    for line in backtrace.lines().map(str::trim) {
        let Some(place) = line.strip_prefix("at ") else {
            symbol = line.split_once(": ").map_or(line, |(_, symbol)| symbol);
            continue;
        };
        let Some(file) = engine_file(place) else { continue };
        let function = format!("{file} {}", function_name(symbol));
        if functions.last() != Some(&function) {
            functions.push(function);
        }
        if functions.len() == 2 {
            break;
        }
    }
    (!functions.is_empty()).then(|| functions.join(" < "))
}

/// Returns the engine's source file of a frame, relative to `crates/weft/src`.
fn engine_file(place: &str) -> Option<&str> {
    let path = match place.strip_prefix("./src/") {
        Some(path) => path,
        None => place.split_once("crates/weft/src/")?.1,
    };
    path.split_once(".rs:").map(|(stem, _)| &path[..stem.len() + 3])
}

/// Returns the name of a function, without its path, parameters and hash. A closure has the name of the function
/// around it.
fn function_name(symbol: &str) -> &str {
    let mut rest = symbol;
    loop {
        let start = last_segment(rest);
        let segment = &rest[start..];
        let is_hash = segment.len() == 17
            && segment.starts_with('h')
            && segment[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
        if (is_hash || segment.starts_with('{') || segment.starts_with('<')) && start >= 2 {
            rest = &rest[..start - 2];
            continue;
        }
        return segment.split('<').next().unwrap_or(segment);
    }
}

/// Returns the position of a path's last segment. The segment's parameters may contain paths.
fn last_segment(path: &str) -> usize {
    let (bytes, mut depth, mut position) = (path.as_bytes(), 0_i32, path.len());
    while position > 0 {
        position -= 1;
        match bytes[position] {
            b'>' if position > 0 && bytes[position - 1] != b'-' => depth += 1,
            b'<' => depth -= 1,
            b':' if depth == 0 && position > 0 && bytes[position - 1] == b':' => {
                return position + 1;
            }
            _ => {}
        }
    }
    0
}

#[test]
fn function_names_are_found_in_symbols() {
    for (symbol, name) in [
        ("weft::transaction::writes::<impl weft::transaction::Transaction<P>>::place", "place"),
        ("weft::table::core::clone_row::h0123456789abcdef", "clone_row"),
        ("<weft::snapshot::Snapshot as core::ops::drop::Drop>::drop", "drop"),
        ("weft::worker::stage::{{closure}}::{{closure}}::h0123456789abcdef", "stage"),
        ("weft::worker::stage::<a::B<C>>", "stage"),
    ] {
        assert_eq!(function_name(symbol), name);
    }
}

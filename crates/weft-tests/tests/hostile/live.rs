//! A register of the values that are alive. It tells a value that is dropped twice, used after its drop, or
//! never dropped, without the help of a sanitizer.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::SeqCst};

use weft_htm::blocking::Mutex;

use crate::hook::engine_site;

/// The most values of one run.
const VALUES_MAX: usize = 1 << 20;

const ALIVE: u8 = 1;
const DROPPED: u8 = 2;

static STATES: [AtomicU8; VALUES_MAX] = [const { AtomicU8::new(0) }; VALUES_MAX];
static NEXT: AtomicU32 = AtomicU32::new(0);
static VIOLATIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes that something is wrong. The run goes on, and fails when it is over.
pub fn violation(message: String) {
    let site = engine_site().unwrap_or_else(|| "outside the engine".to_owned());
    VIOLATIONS.lock().unwrap().push(format!("{message} (called from {site})"));
}

/// Takes the violations that were noted.
pub fn take_violations() -> Vec<String> {
    std::mem::take(&mut VIOLATIONS.lock().unwrap())
}

/// Starts a run: no value is alive.
pub fn reset() {
    let used = NEXT.swap(0, SeqCst) as usize;
    STATES[..used.min(VALUES_MAX)].iter().for_each(|state| state.store(0, SeqCst));
    VIOLATIONS.lock().unwrap().clear();
}

/// How many values are alive.
pub fn count_alive() -> usize {
    let used = NEXT.load(SeqCst) as usize;
    STATES[..used].iter().filter(|state| state.load(SeqCst) == ALIVE).count()
}

/// Part of a value: its entry in the register, and some memory of its own.
pub struct Live {
    id: u32,
    heap: ManuallyDrop<Box<[u64; 2]>>,
}

impl Live {
    pub fn new() -> Live {
        let id = NEXT.fetch_add(1, SeqCst);
        let state = STATES.get(id as usize).expect("one run makes fewer values");
        state.store(ALIVE, SeqCst);
        Live { id, heap: ManuallyDrop::new(Box::new([u64::from(id), !u64::from(id)])) }
    }

    /// Checks that the value is alive, and that its memory is its own.
    pub fn check(&self, used_by: &str) {
        let state = STATES.get(self.id as usize).map(|state| state.load(SeqCst));
        if state != Some(ALIVE) {
            violation(format!("{used_by} of a value that is not alive"));
        } else if **self.heap != [u64::from(self.id), !u64::from(self.id)] {
            violation(format!("{used_by} of a value whose memory was overwritten"));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        match STATES.get(self.id as usize).map(|state| state.swap(DROPPED, SeqCst)) {
            // SAFETY: the register says that this is the first drop.
            Some(ALIVE) => unsafe { ManuallyDrop::drop(&mut self.heap) },
            _ => violation("a value was dropped twice".to_owned()),
        }
    }
}

//! A register of the live values. It detects a value that is dropped twice, used after its drop, or never dropped,
//! without the help of a sanitizer.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::SeqCst};

use weft_htm::blocking::Mutex;

use crate::hook::engine_site;

/// The maximum number of values in a run.
const VALUES_MAX: usize = 1 << 20;

const ALIVE: u8 = 1;
const DROPPED: u8 = 2;

static STATES: [AtomicU8; VALUES_MAX] = [const { AtomicU8::new(0) }; VALUES_MAX];
static NEXT: AtomicU32 = AtomicU32::new(0);
static VIOLATIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records a violation. The run goes on, and fails at its end.
pub fn violation(message: String) {
    let site = engine_site().unwrap_or_else(|| "outside the engine".to_owned());
    VIOLATIONS.lock().unwrap().push(format!("{message} (called from {site})"));
}

/// Returns the recorded violations, and clears them.
pub fn take_violations() -> Vec<String> {
    std::mem::take(&mut VIOLATIONS.lock().unwrap())
}

/// Starts a run in which no value is alive.
pub fn reset() {
    let used = NEXT.swap(0, SeqCst) as usize;
    STATES[..used.min(VALUES_MAX)].iter().for_each(|state| state.store(0, SeqCst));
    VIOLATIONS.lock().unwrap().clear();
}

/// Returns the number of live values.
pub fn count_alive() -> usize {
    let used = NEXT.load(SeqCst) as usize;
    STATES[..used].iter().filter(|state| state.load(SeqCst) == ALIVE).count()
}

/// A part of each hostile value: its entry in the register, and some heap memory.
pub struct Live {
    id: u32,
    heap: ManuallyDrop<Box<[u64; 2]>>,
}

impl Live {
    pub fn new() -> Live {
        let id = NEXT.fetch_add(1, SeqCst);
        let state = STATES.get(id as usize).expect("a run makes at most VALUES_MAX values");
        state.store(ALIVE, SeqCst);
        Live { id, heap: ManuallyDrop::new(Box::new([u64::from(id), !u64::from(id)])) }
    }

    /// Checks that the value is alive, and that its memory is intact.
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
            // SAFETY: the register shows that this is the first drop, so the box has not been dropped.
            Some(ALIVE) => unsafe { ManuallyDrop::drop(&mut self.heap) },
            _ => violation("a value was dropped twice".to_owned()),
        }
    }
}

//! Memory and workers for the tests of the indexes. They keep account of every block. What is retired is
//! freed as soon as the rules allow, after it is overwritten, so a reader that comes too late reads nonsense.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use weft_htm::{Htm, Regions};

use super::IndexWorker;

/// The account of all blocks. (Its lock is the standard library's also under a model checker: no thread is
/// switched while it is held.)
#[derive(Default)]
pub(super) struct TestMemory(Mutex<Books>);

#[derive(Default)]
struct Books {
    live: HashMap<usize, Layout>,
    /// Blocks with the time of their retirement.
    retired: Vec<(u64, usize, Layout)>,
    /// The number of retirements so far.
    time: u64,
    /// The time since which each worker is pinned.
    pinned_since: Vec<Option<u64>>,
}

pub(super) struct TestWorker {
    memory: Arc<TestMemory>,
    id: usize,
    regions: Regions,
}

/// Keeps a worker pinned while it lives: what the worker can reach is not freed.
pub(super) struct Pin<'a>(&'a TestWorker);

impl TestMemory {
    /// Creates a worker without hardware regions.
    pub(super) fn worker(self: &Arc<Self>) -> TestWorker {
        self.worker_with(&Htm::software())
    }

    /// Creates a worker with the regions of `htm`.
    pub(super) fn worker_with(self: &Arc<Self>, htm: &Htm) -> TestWorker {
        let mut books = self.0.lock().unwrap();
        books.pinned_since.push(None);
        let id = books.pinned_since.len() - 1;
        TestWorker { memory: self.clone(), id, regions: Regions::new(htm) }
    }

    /// Returns how many blocks are allocated and not retired.
    pub(super) fn in_use(&self) -> usize {
        let books = self.0.lock().unwrap();
        books.live.len() - books.retired.len()
    }
}

impl Books {
    fn free(&mut self, address: usize, layout: Layout) {
        assert_eq!(self.live.remove(&address), Some(layout), "not a block of this layout");
        let block = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the block was allocated with this layout, is in the account, and is removed from it now.
        unsafe {
            block.write_bytes(0xDD, layout.size());
            dealloc(block, layout);
        }
    }

    fn free_unreachable(&mut self) {
        let oldest_pin = self.pinned_since.iter().flatten().copied().min().unwrap_or(u64::MAX);
        for (time, address, layout) in std::mem::take(&mut self.retired) {
            if time <= oldest_pin {
                self.free(address, layout);
            } else {
                self.retired.push((time, address, layout));
            }
        }
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        self.pinned_since.clear();
        self.free_unreachable();
        if !std::thread::panicking() {
            assert!(self.live.is_empty(), "{} blocks were never given back", self.live.len());
        }
    }
}

impl TestWorker {
    pub(super) fn pin(&self) -> Pin<'_> {
        let mut books = self.memory.0.lock().unwrap();
        let time = books.time;
        books.pinned_since[self.id] = Some(time);
        Pin(self)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Ok(mut books) = self.0.memory.0.lock() {
            books.pinned_since[self.0.id] = None;
            // Loom does not see that the lock of the account orders pins and retirements. It lets a thread
            // read a word as it was before a retirement that precedes the thread's pin. So under loom nothing
            // is freed before the end.
            if !cfg!(loom) {
                books.free_unreachable();
            }
        }
    }
}

impl IndexWorker for TestWorker {
    fn regions(&self) -> &Regions {
        &self.regions
    }

    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: no test allocates nothing.
        let block = NonNull::new(unsafe { alloc(layout) }).expect("memory");
        let address = block.as_ptr().expose_provenance();
        self.memory.0.lock().unwrap().live.insert(address, layout);
        block
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        self.memory.0.lock().unwrap().free(block.as_ptr().addr(), layout);
    }

    unsafe fn retire(&self, block: NonNull<u8>, layout: Layout) {
        let mut books = self.memory.0.lock().unwrap();
        books.time += 1;
        let (time, address) = (books.time, block.as_ptr().addr());
        assert_eq!(books.live.get(&address), Some(&layout), "not a block of this layout");
        assert!(!books.retired.iter().any(|&(_, other, _)| other == address), "retired twice");
        books.retired.push((time, address, layout));
    }
}

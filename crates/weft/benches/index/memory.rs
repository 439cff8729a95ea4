//! Workers that allocate memory for the indexes, and a clock.

use std::alloc::{Layout, alloc};
use std::cell::Cell;
use std::ptr::NonNull;
use std::time::Duration;

use weft::index::IndexWorker;
use weft_htm::{Htm, Regions};

/// A worker for benchmarks. It never frees memory, so there is no grace period to wait for.
pub trait BenchWorker: IndexWorker {
    const NAME: &str;
    fn new() -> Self;
}

/// Takes every block from the global allocator.
pub struct GlobalWorker {
    regions: Regions,
}

impl BenchWorker for GlobalWorker {
    const NAME: &str = "global allocator";
    fn new() -> Self {
        GlobalWorker { regions: Regions::new(&Htm::software()) }
    }
}

impl IndexWorker for GlobalWorker {
    fn regions(&self) -> &Regions {
        &self.regions
    }

    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        // SAFETY: an index never allocates an empty block.
        NonNull::new(unsafe { alloc(layout) }).expect("memory")
    }

    unsafe fn free(&self, _block: NonNull<u8>, _layout: Layout) {}

    unsafe fn retire(&self, _block: NonNull<u8>, _layout: Layout) {}
}

/// Cuts blocks off chunks of huge pages, as the engine's workers do.
pub struct HugePageWorker {
    next: Cell<usize>,
    end: Cell<usize>,
    regions: Regions,
}

impl HugePageWorker {
    const CHUNK_BYTES: usize = 2 << 20;

    fn new_chunk(&self) {
        let layout = Layout::from_size_align(Self::CHUNK_BYTES, Self::CHUNK_BYTES).expect("valid");
        // SAFETY: the chunk is not empty.
        let chunk = NonNull::new(unsafe { alloc(layout) }).expect("memory");
        #[cfg(target_os = "linux")]
        // SAFETY: the chunk is a whole range of pages that this worker owns; the advice does not
        // change its content.
        unsafe {
            libc::madvise(chunk.as_ptr().cast(), Self::CHUNK_BYTES, libc::MADV_HUGEPAGE);
        }
        let start = chunk.as_ptr().expose_provenance();
        self.next.set(start);
        self.end.set(start + Self::CHUNK_BYTES);
    }
}

impl BenchWorker for HugePageWorker {
    const NAME: &str = "huge pages";
    fn new() -> Self {
        let regions = Regions::new(&Htm::software());
        HugePageWorker { next: Cell::new(0), end: Cell::new(0), regions }
    }
}

impl IndexWorker for HugePageWorker {
    fn regions(&self) -> &Regions {
        &self.regions
    }

    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        let mut start = self.next.get().next_multiple_of(layout.align());
        if start + layout.size() > self.end.get() {
            self.new_chunk();
            start = self.next.get();
        }
        self.next.set(start + layout.size());
        NonNull::new(std::ptr::with_exposed_provenance_mut(start)).expect("in a chunk")
    }

    unsafe fn free(&self, _block: NonNull<u8>, _layout: Layout) {}

    unsafe fn retire(&self, _block: NonNull<u8>, _layout: Layout) {}
}

/// Returns the processor time that this thread has used, or the elapsed time where the system does
/// not have it.
pub fn thread_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for the write.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        START.elapsed()
    }
}

//! Memory for records, row versions and index nodes: size-class arenas, one per worker.
//!
//! Every update allocates a version and retires one, so the allocator is on the hottest path. In most cases a
//! worker's arena serves both without touching anything shared:
//!
//! ```text
//!   worker                        database
//!   ------                        --------
//!   per size class:               per size class:
//!     active magazine  <-------->   depot: full magazines given up by some
//!     spare magazine   <-------->          workers for others to take
//!   fresh: the rest of a chunk <->  chunks: 2 MiB each, on huge pages where there are any,
//!                                   and the rests of chunks whose workers have left
//! ```
//!
//! A *magazine* is a chain of up to [`magazine_blocks`] free blocks of one class, linked through their first
//! word (Bonwick's design). A worker allocates from its active magazine and frees into it. It goes to the
//! depot only when both its magazines are empty, or both full, and then exchanges a whole magazine. So a
//! worker that only deletes feeds one that only inserts, and neither takes a lock more often than once per
//! magazine. Free blocks are reused last in, first out, while they are still in the cache.
//!
//! Blocks have no header and no owner: a worker that frees a block keeps it. Chunks go back to the operating
//! system when the database is dropped.
//!
//! AddressSanitizer and ThreadSanitizer would see a chunk as one object that is never freed. Therefore a
//! build with `--cfg weft_sanitize` has no chunks: each block is an allocation of its own (see `separate`).

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};

use weft_htm::word::{Mutex, Ordering, Word};

/// The size of an arena's chunks. It is also the size of the huge pages on which they should lie.
pub const CHUNK_BYTES: usize = 2 << 20;

/// The largest block of an arena. Anything larger comes from the global allocator.
pub const BLOCK_BYTES_MAX: usize = 32 << 10;

/// The size of a cache line, which no block's alignment exceeds.
const LINE_BYTES: usize = 64;

/// Up to this size, the classes grow in steps of 16 bytes. Rows are the bulk of a database's memory, and with
/// larger steps blocks of rows would hold up to a third of nothing.
const FINE_BYTES_MAX: usize = 512;

/// The step of the small classes.
const FINE_STEP: usize = 16;

/// Up to this size, the classes grow in steps of a cache line.
const LINES_BYTES_MAX: usize = 1024;

/// The sizes of the large classes.
const LARGE_BYTES: [usize; 8] = [1536, 2048, 3072, 4096, 6144, 8192, 16384, 32768];

const FINE_CLASSES: usize = FINE_BYTES_MAX / FINE_STEP;
const LINES_CLASSES: usize = (LINES_BYTES_MAX - FINE_BYTES_MAX) / LINE_BYTES;

/// The number of size classes.
pub const CLASSES: usize = FINE_CLASSES + LINES_CLASSES + LARGE_BYTES.len();

/// The block sizes of the classes.
const CLASS_BYTES: [usize; CLASSES] = {
    let mut bytes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        bytes[class] = if class < FINE_CLASSES {
            (class + 1) * FINE_STEP
        } else if class < FINE_CLASSES + LINES_CLASSES {
            FINE_BYTES_MAX + (class + 1 - FINE_CLASSES) * LINE_BYTES
        } else {
            LARGE_BYTES[class - FINE_CLASSES - LINES_CLASSES]
        };
        class += 1;
    }
    bytes
};

const _: () = assert!(CLASS_BYTES[CLASSES - 1] == BLOCK_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES_MAX));

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass(u8);

impl SizeClass {
    /// Returns the smallest class whose blocks hold `layout`. Returns `None` if `layout` is larger than any
    /// block, or needs more alignment than a cache line.
    pub const fn of(layout: Layout) -> Option<SizeClass> {
        if layout.align() > LINE_BYTES {
            return None;
        }
        // A multiple of its alignment: see `align`.
        let size = layout.size().next_multiple_of(layout.align());
        if size > BLOCK_BYTES_MAX {
            return None;
        }
        let class = if size == 0 {
            0
        } else if size <= FINE_BYTES_MAX {
            size.div_ceil(FINE_STEP) - 1
        } else if size <= LINES_BYTES_MAX {
            FINE_CLASSES + (size - FINE_BYTES_MAX).div_ceil(LINE_BYTES) - 1
        } else {
            let mut class = FINE_CLASSES + LINES_CLASSES;
            while CLASS_BYTES[class] < size {
                class += 1;
            }
            class
        };
        Some(SizeClass(class as u8))
    }

    /// As [`SizeClass::of`], for a record. A small record has cache lines of its own, since other threads write
    /// the header of the next one. In a large one that line holds little else.
    pub const fn of_record(layout: Layout) -> Option<SizeClass> {
        let align = match layout.size() {
            0..=16 => 16,
            17..=LINE_BYTES => LINE_BYTES,
            65..=128 => 32,
            _ => 16,
        };
        match Layout::from_size_align(layout.size().next_multiple_of(align), align) {
            Ok(layout) => SizeClass::of(layout),
            Err(_) => None,
        }
    }

    /// Returns the size of the class's blocks.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        CLASS_BYTES[self.0 as usize]
    }

    /// Returns the alignment of the class's blocks: the largest power of two, up to a line, that divides their
    /// size. So blocks that lie side by side are aligned.
    const fn align(self) -> usize {
        let align = 1 << self.bytes().trailing_zeros();
        if align < LINE_BYTES { align } else { LINE_BYTES }
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Returns how many blocks of a class make a magazine: about 16 KiB of them.
const fn magazine_blocks(class: SizeClass) -> usize {
    let blocks = (16 << 10) / class.bytes();
    if blocks < 4 { 4 } else { blocks }
}

/// A free block. Its first word links to the next block of its magazine.
#[repr(C)]
struct FreeBlock {
    next: *mut FreeBlock,
}

/// A chain of free blocks of one class. Only the holder of this value can reach them.
struct Magazine {
    first: *mut FreeBlock,
    blocks: usize,
}

// SAFETY: a magazine owns the blocks that it links; nothing else has their addresses.
unsafe impl Send for Magazine {}

impl Magazine {
    const EMPTY: Magazine = Magazine { first: ptr::null_mut(), blocks: 0 };

    #[inline(always)]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first)?;
        // SAFETY: the chain links valid free blocks that this magazine owns.
        self.first = unsafe { (*block.as_ptr()).next };
        self.blocks -= 1;
        Some(block.cast())
    }

    /// # Safety
    /// The block is at least 16 bytes long, aligned to 16, and not used otherwise.
    #[inline(always)]
    unsafe fn push(&mut self, block: NonNull<u8>) {
        let block = block.cast::<FreeBlock>().as_ptr();
        // SAFETY: by the contract the block may be written, and is large enough for a link.
        unsafe { block.write(FreeBlock { next: self.first }) };
        self.first = block;
        self.blocks += 1;
    }
}

/// The part of a chunk from which no block has been cut yet.
struct FreshSpan {
    start: *mut u8,
    end: *mut u8,
}

// SAFETY: nothing else has addresses in a fresh part.
unsafe impl Send for FreshSpan {}

/// The smallest remainder of a chunk that is worth keeping.
const REMAINDER_BYTES_MIN: usize = 4 << 10;

impl FreshSpan {
    const NONE: FreshSpan = FreshSpan { start: ptr::null_mut(), end: ptr::null_mut() };

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.end as usize - self.start as usize
    }

    fn has_room(&self, class: SizeClass) -> bool {
        !self.start.is_null()
            && self.bytes() >= self.start.align_offset(class.align()) + class.bytes()
    }

    /// Cuts off what lies after so many bytes, if that is worth keeping.
    fn split_after(&mut self, bytes: usize) -> Option<FreshSpan> {
        if self.bytes() < bytes + REMAINDER_BYTES_MIN {
            return None;
        }
        // SAFETY: the span is longer, and is part of a chunk.
        let middle = unsafe { self.start.add(bytes) };
        let rest = FreshSpan { start: middle, end: self.end };
        self.end = middle;
        Some(rest)
    }

    /// Cuts the next block off a span of blocks of one class, which lie side by side, so that each of them is aligned.
    /// `None`: the span is used up.
    #[inline(always)]
    fn cut_next(&mut self, class: SizeClass) -> Option<NonNull<u8>> {
        if self.bytes() < class.bytes() {
            return None;
        }
        debug_assert_eq!(self.start.align_offset(class.align()), 0);
        // SAFETY: the block lies within the span, which is not empty and therefore part of a chunk.
        unsafe {
            let block = self.start;
            self.start = block.add(class.bytes());
            Some(NonNull::new_unchecked(block))
        }
    }

    /// Cuts off a block. The caller has checked that there is room.
    fn cut(&mut self, class: SizeClass) -> NonNull<u8> {
        debug_assert!(self.has_room(class));
        // SAFETY: by `has_room` the block lies within the chunk.
        unsafe {
            let block = self.start.add(self.start.align_offset(class.align()));
            self.start = block.add(class.bytes());
            NonNull::new_unchecked(block)
        }
    }
}

struct Chunk(NonNull<u8>);

// SAFETY: a chunk is plain memory; the value is only used to free it.
unsafe impl Send for Chunk {}

const CHUNK_LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// A database's memory: the chunks, and the depot through which workers exchange free blocks.
pub struct Memory {
    /// Chunks in use.
    chunks: Mutex<Vec<Chunk>>,
    /// Chunks that are reserved for later use.
    reserve: Mutex<Vec<Chunk>>,
    /// Fresh parts of chunks whose workers have left, or needed a larger block than would fit.
    remainders: Mutex<Vec<FreshSpan>>,
    chunk_bytes: Word,
    /// How many bytes the database may use.
    limit: Option<u64>,
    /// Bytes of large blocks, each of which is a mapping of its own.
    mapped: Word,
    /// Bytes from the global allocator, as workers have reported them. A signed number.
    reported: Word,
    /// The most of them so far, or since the allocator has given back what it does not need: it keeps what is freed.
    reported_max: Word,
    /// Bytes of the log and of lists, when they were last looked at.
    measured: Word,
    /// 1 while so little is left below the limit that each write has to make room.
    scarce: Word,
    depot: [Mutex<Vec<Magazine>>; CLASSES],
    #[cfg(weft_sanitize)]
    separate: separate::Blocks,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            chunks: Mutex::new(Vec::new()),
            reserve: Mutex::new(Vec::new()),
            remainders: Mutex::new(Vec::new()),
            chunk_bytes: Word::new(0),
            limit: None,
            mapped: Word::new(0),
            reported: Word::new(0),
            reported_max: Word::new(0),
            measured: Word::new(0),
            scarce: Word::new(0),
            depot: std::array::from_fn(|_| Mutex::new(Vec::new())),
            #[cfg(weft_sanitize)]
            separate: separate::Blocks::default(),
        }
    }
}

impl Memory {
    /// Returns how many bytes the chunks take, used or not.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.load(Ordering::Relaxed)
    }

    /// Sets how many bytes the database may use.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = Some(limit);
        self.note_use();
    }

    /// Returns how many bytes the database may use, if there is a limit.
    #[inline(always)]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the bounds below a limit: see [`room`](crate::store::worker).
    pub fn bounds(&self, limit: u64) -> (u64, u64) {
        let reserve = (limit / 8).clamp(2 * CHUNK_BYTES as u64, 64 << 20).min(limit);
        (limit - reserve, limit - reserve / 2)
    }

    /// Returns how many bytes the database uses, as far as is known.
    pub fn used_bytes(&self) -> u64 {
        self.used_with(0)
    }

    /// Returns how many bytes the database would use with so many more from the global allocator.
    pub fn used_with(&self, bytes: usize) -> u64 {
        // Relaxed, as all accesses to these words: statistics.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let reported = 0u64.saturating_add_signed(load(&self.reported) as i64) + bytes as u64;
        let allocated = reported.max(load(&self.reported_max));
        self.chunk_bytes() + load(&self.mapped) + load(&self.measured) + allocated
    }

    /// Returns whether the global allocator has `bytes` that were freed and that it keeps.
    pub fn keeps(&self, bytes: usize) -> bool {
        let reported = self.reported.load(Ordering::Relaxed) as i64;
        bytes == 0 || reported + bytes as i64 <= self.reported_max.load(Ordering::Relaxed) as i64
    }

    /// Notes that a worker uses `bytes` more, or fewer, from the global allocator.
    #[cold]
    pub fn report(&self, bytes: i64) {
        let before = self.reported.fetch_add(bytes as u64, Ordering::Relaxed) as i64;
        let now = before + bytes;
        // Two workers at the same time may note the smaller number. The next report corrects that.
        if now > self.reported_max.load(Ordering::Relaxed) as i64 {
            self.reported_max.store(now as u64, Ordering::Relaxed);
        }
        self.note_use();
    }

    /// Notes that `bytes` more, or fewer, are mapped in large blocks.
    pub fn report_mapped(&self, bytes: i64) {
        self.mapped.fetch_add(bytes as u64, Ordering::Relaxed);
        self.note_use();
    }

    /// Has the global allocator give back what it keeps, if that is much and the allocator can do it.
    pub fn trim(&self, limit: u64) {
        let reported = self.reported.load(Ordering::Relaxed);
        let kept = self.reported_max.load(Ordering::Relaxed).wrapping_sub(reported);
        if (kept as i64) < (limit / 32) as i64 {
            return;
        }
        #[cfg(all(target_os = "linux", target_env = "gnu", not(weft_sim)))]
        {
            // SAFETY: it only gives memory back that is not in use.
            unsafe { libc::malloc_trim(0) };
            self.reported_max.store(reported, Ordering::Relaxed);
        }
    }

    /// Sets how many bytes the log and the lists take.
    pub fn set_measured(&self, bytes: u64) {
        self.measured.store(bytes, Ordering::Relaxed);
        self.note_use();
    }

    /// Adds what the log has taken since it was measured. When the disk is slow, it takes much between two measurements.
    pub fn add_logged(&self, bytes: u64) {
        if bytes > 0 {
            self.measured.fetch_add(bytes, Ordering::Relaxed);
            self.note_use();
        }
    }

    /// Decides whether memory is scarce.
    fn note_use(&self) {
        if let Some(limit) = self.limit {
            let is_scarce = self.used_bytes() + CHUNK_BYTES as u64 > self.bounds(limit).0;
            // Relaxed: a write that sees this late is one that came a moment earlier.
            self.scarce.store(is_scarce.into(), Ordering::Relaxed);
        }
    }

    /// Returns whether each write has to make room.
    #[inline(always)]
    pub fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed) == 1
    }

    /// Returns whether there is room for new rows.
    pub fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.used_bytes() <= self.bounds(limit).0)
    }

    /// Returns whether an index may take `bytes` more. It may use a part of what is kept, as nodes may.
    pub fn may_index_take(&self, bytes: usize) -> bool {
        self.limit.is_none_or(|limit| self.used_bytes() + bytes as u64 <= self.bounds(limit).1)
    }

    fn add_chunk(&self) -> FreshSpan {
        let reserved = self.lock(&self.reserve).pop();
        let chunk = reserved.unwrap_or_else(|| self.new_chunk());
        self.begin_chunk(chunk)
    }

    /// As `add_chunk`, unless the database would use more than `bound` with a new chunk.
    fn add_chunk_below(&self, bound: u64) -> Option<FreshSpan> {
        if let Some(reserved) = self.lock(&self.reserve).pop() {
            return Some(self.begin_chunk(reserved));
        }
        // Added first, so that several workers at the same time stay below the bound.
        self.chunk_bytes.fetch_add(CHUNK_BYTES as u64, Ordering::Relaxed);
        if self.used_bytes() > bound {
            self.chunk_bytes.fetch_add((CHUNK_BYTES as u64).wrapping_neg(), Ordering::Relaxed);
            return None;
        }
        self.note_use();
        Some(self.begin_chunk(Chunk(allocate_huge(CHUNK_LAYOUT))))
    }

    fn begin_chunk(&self, chunk: Chunk) -> FreshSpan {
        let start = chunk.0.as_ptr();
        self.lock(&self.chunks).push(chunk);
        // SAFETY: the chunk has this length.
        FreshSpan { start, end: unsafe { start.add(CHUNK_BYTES) } }
    }

    /// Exchanges a fresh part that has no room for a block of `class` for one that has.
    fn exchange_fresh(&self, class: SizeClass, small: FreshSpan) -> FreshSpan {
        let mut remainders = self.lock(&self.remainders);
        let found = remainders.iter().rposition(|fresh| fresh.has_room(class));
        let fresh = found.map(|position| remainders.swap_remove(position));
        if small.bytes() >= REMAINDER_BYTES_MIN {
            remainders.push(small);
        }
        drop(remainders);
        fresh.unwrap_or_else(|| self.add_chunk())
    }

    fn new_chunk(&self) -> Chunk {
        // Relaxed: a statistic.
        self.chunk_bytes.fetch_add(CHUNK_BYTES as u64, Ordering::Relaxed);
        self.note_use();
        Chunk(allocate_huge(CHUNK_LAYOUT))
    }

    /// Reserves chunks of about `bytes` in total, and touches each of their pages. The operating system
    /// clears a page at its first use, which can take as long as the transactions themselves.
    pub fn reserve(&self, bytes: usize) {
        const PAGE_BYTES_MIN: usize = 4096;
        for _ in 0..bytes.div_ceil(CHUNK_BYTES) {
            let chunk = self.new_chunk();
            for offset in (0..CHUNK_BYTES).step_by(PAGE_BYTES_MIN) {
                // SAFETY: within the new chunk, which only this thread has. Volatile, because the compiler
                // would drop a store that is never read.
                unsafe { chunk.0.add(offset).write_volatile(0) };
            }
            self.lock(&self.reserve).push(chunk);
        }
    }

    fn take_magazine(&self, class: SizeClass) -> Option<Magazine> {
        self.lock(&self.depot[class.index()]).pop()
    }

    fn give_magazine(&self, class: SizeClass, magazine: Magazine) {
        if magazine.blocks > 0 {
            self.lock(&self.depot[class.index()]).push(magazine);
        }
    }

    /// Locks `mutex`, also if a previous holder panicked: no critical section here can panic half-way through
    /// a change.
    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> impl std::ops::DerefMut<Target = T> + 'm {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let chunks = std::mem::take(&mut *self.lock(&self.chunks));
        let reserve = std::mem::take(&mut *self.lock(&self.reserve));
        for Chunk(chunk) in chunks.into_iter().chain(reserve) {
            // SAFETY: allocated in `new_chunk` with this layout. The database is being dropped, and with it
            // everything that could point into its chunks.
            unsafe { free_huge(chunk, CHUNK_LAYOUT) };
        }
    }
}

/// Allocates a block, on huge pages if it is at least [`CHUNK_BYTES`] long and the system has them. One TLB
/// entry then covers 2 MiB; random access to large tables is bound by TLB misses. Smaller blocks come from
/// the global allocator.
pub fn allocate_huge(layout: Layout) -> NonNull<u8> {
    let block = if layout.size() < CHUNK_BYTES {
        // SAFETY: no caller asks for zero bytes: chunks, index arrays and nodes all have a size.
        NonNull::new(unsafe { alloc::alloc(layout) })
    } else {
        pages::map(layout.size())
    };
    block.unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// Frees a block that [`allocate_huge`] returned for the same layout.
///
/// # Safety
/// As for [`std::alloc::dealloc`].
pub unsafe fn free_huge(block: NonNull<u8>, layout: Layout) {
    // SAFETY: passed on to the caller.
    unsafe {
        if layout.size() < CHUNK_BYTES {
            alloc::dealloc(block.as_ptr(), layout);
        } else {
            pages::unmap(block, layout.size());
        }
    }
}

/// Pages of the simulated machine, whose addresses are the same in every process.
#[cfg(weft_sim)]
use weft_htm::simulation::pages;

/// Pages from the operating system itself. The global allocator does not suffice: it may write to a block
/// before it returns it, and a page that was touched before the advice stays small.
#[cfg(all(target_os = "linux", not(weft_sim)))]
mod pages {
    use super::{CHUNK_BYTES, NonNull};

    /// Maps `bytes`, rounded up to whole huge pages and aligned to them.
    pub fn map(bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.next_multiple_of(CHUNK_BYTES);
        let reserved = bytes + CHUNK_BYTES;
        // SAFETY: a new private anonymous mapping. The parts before and after the aligned block are unmapped
        // at once; no other thread knows these addresses. `madvise` is only advice: if the system refuses it,
        // the pages are small.
        unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if start == libc::MAP_FAILED {
                return None;
            }
            let start = start.cast::<u8>();
            let before = start.align_offset(CHUNK_BYTES);
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            let block = start.add(before);
            libc::munmap(block.add(bytes).cast(), reserved - before - bytes);
            libc::madvise(block.cast(), bytes, libc::MADV_HUGEPAGE);
            NonNull::new(block)
        }
    }

    /// Unmaps a block that [`map`] returned for the same size.
    ///
    /// # Safety
    /// The block is not used any more.
    pub unsafe fn unmap(block: NonNull<u8>, bytes: usize) {
        let bytes = bytes.next_multiple_of(CHUNK_BYTES);
        // SAFETY: passed on to the caller.
        unsafe { libc::munmap(block.as_ptr().cast(), bytes) };
    }
}

/// Pages from the global allocator, on systems where the engine does not know how to ask for huge pages.
#[cfg(not(any(target_os = "linux", weft_sim)))]
mod pages {
    use super::{CHUNK_BYTES, Layout, NonNull, alloc};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes.next_multiple_of(CHUNK_BYTES), CHUNK_BYTES)
            .expect("sizes of large blocks are far below isize::MAX")
    }

    pub fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: never called for zero bytes.
        NonNull::new(unsafe { alloc::alloc(layout(bytes)) })
    }

    pub unsafe fn unmap(block: NonNull<u8>, bytes: usize) {
        // SAFETY: passed on to the caller.
        unsafe { alloc::dealloc(block.as_ptr(), layout(bytes)) };
    }
}

/// A worker's part of the memory.
pub struct Arena {
    active: [Magazine; CLASSES],
    spare: [Magazine; CLASSES],
    /// Runs of fresh blocks, one for each class: see [`Arena::cut_span`].
    spans: [FreshSpan; CLASSES],
    /// The rest of the worker's chunk.
    fresh: FreshSpan,
    /// Whether blocks are cut from chunks even in a build for sanitizers. For the tests of this file.
    #[cfg(weft_sanitize)]
    is_pooled: bool,
}

impl Default for Arena {
    fn default() -> Self {
        Arena {
            #[cfg(weft_sanitize)]
            is_pooled: false,
            active: [Magazine::EMPTY; CLASSES],
            spare: [Magazine::EMPTY; CLASSES],
            spans: [FreshSpan::NONE; CLASSES],
            fresh: FreshSpan::NONE,
        }
    }
}

impl Arena {
    /// Returns an uninitialised block of `class`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn allocate(&mut self, class: SizeClass, memory: &Memory) -> NonNull<u8> {
        #[cfg(weft_sanitize)]
        if !self.is_pooled {
            return memory.separate.allocate(class);
        }
        match self.active[class.index()].pop() {
            Some(block) => block,
            None => self.refill(class, memory),
        }
    }

    /// Returns a block of a class whose active magazine is empty. Tries the spare one, then blocks that are already cut,
    /// then the depot, and last the chunk.
    #[inline(never)]
    fn refill(&mut self, class: SizeClass, memory: &Memory) -> NonNull<u8> {
        let index = class.index();
        if self.spare[index].blocks == 0 {
            // A transaction that inserts rows comes here for each of them.
            return match self.spans[index].cut_next(class) {
                Some(block) => block,
                None => self.refill_from_memory(class, memory),
            };
        }
        std::mem::swap(&mut self.active[index], &mut self.spare[index]);
        self.active[index].pop().expect("the spare magazine holds blocks")
    }

    #[cold]
    #[inline(never)]
    fn refill_from_memory(&mut self, class: SizeClass, memory: &Memory) -> NonNull<u8> {
        let index = class.index();
        if let Some(magazine) = memory.take_magazine(class) {
            self.active[index] = magazine;
            return self.active[index].pop().expect("depots hold no empty magazines");
        }
        self.spans[index] = self.cut_span(class, memory);
        self.spans[index].cut(class)
    }

    /// Cuts a span of blocks from the fresh part of the worker's chunk. Without spans, a table that only
    /// grows would ask the depot in vain for every single block.
    fn cut_span(&mut self, class: SizeClass, memory: &Memory) -> FreshSpan {
        const SPAN_BYTES: usize = 4 << 10;
        let start = self.cut(class, memory).as_ptr();
        let mut blocks = 1;
        while (blocks + 1) * class.bytes() <= SPAN_BYTES && self.fresh.has_room(class) {
            // The next block of the same class starts where this one ends.
            self.fresh.cut(class);
            blocks += 1;
        }
        // SAFETY: the blocks lie one after the other within one chunk.
        FreshSpan { start, end: unsafe { start.add(blocks * class.bytes()) } }
    }

    /// Cuts a block from the fresh part of the worker's chunk.
    fn cut(&mut self, class: SizeClass, memory: &Memory) -> NonNull<u8> {
        if !self.fresh.has_room(class) {
            let small = std::mem::replace(&mut self.fresh, FreshSpan::NONE);
            self.fresh = memory.exchange_fresh(class, small);
        }
        self.fresh.cut(class)
    }

    /// Makes sure that a block of each class, and some nodes of indexes, can be allocated without a further chunk.
    /// Takes a chunk if the database then uses no more than the first bound, or the second one if only nodes need it.
    /// Returns false if there is no room.
    pub fn make_room(
        &mut self,
        classes: [SizeClass; 2],
        bounds: (u64, u64),
        memory: &Memory,
    ) -> bool {
        if cfg!(weft_sanitize) {
            return true; // There are no chunks.
        }
        /// Room for the nodes of indexes that an insertion may split, and for spans that are cut.
        const NODES_BYTES: usize = 32 << 10;
        /// So much of a chunk a worker takes at a time. The rest is for the other workers: there may be no further chunk.
        const PIECE_BYTES: usize = 128 << 10;
        let mut needed = NODES_BYTES;
        for class in classes {
            let index = class.index();
            if self.active[index].blocks + self.spare[index].blocks == 0
                && !self.spans[index].has_room(class)
            {
                match memory.take_magazine(class) {
                    Some(magazine) => self.spare[index] = magazine,
                    None => needed += 2 * class.bytes(),
                }
            }
        }
        if self.fresh.bytes() >= needed {
            return true;
        }
        let mut remainders = memory.lock(&memory.remainders);
        let found = remainders.iter().rposition(|fresh| fresh.bytes() >= needed);
        let found = found.map(|position| remainders.swap_remove(position));
        drop(remainders);
        let bound = if needed == NODES_BYTES { bounds.1 } else { bounds.0 };
        let Some(mut fresh) = found.or_else(|| memory.add_chunk_below(bound)) else { return false };
        if let Some(rest) = fresh.split_after(needed.max(PIECE_BYTES)) {
            memory.lock(&memory.remainders).push(rest);
        }
        let small = std::mem::replace(&mut self.fresh, fresh);
        if small.bytes() >= REMAINDER_BYTES_MIN {
            memory.lock(&memory.remainders).push(small);
        }
        true
    }

    /// Takes a block back. It may be allocated again at once.
    ///
    /// # Safety
    /// The block came from an [`Arena`] of the same [`Memory`] with the same class, and is not used any more.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn free(&mut self, block: NonNull<u8>, class: SizeClass, memory: &Memory) {
        #[cfg(weft_sanitize)]
        if !self.is_pooled {
            // SAFETY: passed on to the caller.
            return unsafe { memory.separate.free(block, class) };
        }
        if self.active[class.index()].blocks >= magazine_blocks(class) {
            self.exchange(class, memory);
        }
        // SAFETY: by the contract the block may be written; blocks of every class can hold a link.
        unsafe { self.active[class.index()].push(block) };
    }

    /// Makes room in the active magazine, which is full: swaps it with the spare one, and gives that one to
    /// the depot if it held any blocks.
    #[cold]
    #[inline(never)]
    fn exchange(&mut self, class: SizeClass, memory: &Memory) {
        let index = class.index();
        std::mem::swap(&mut self.active[index], &mut self.spare[index]);
        if self.active[index].blocks > 0 {
            let full = std::mem::replace(&mut self.active[index], Magazine::EMPTY);
            memory.give_magazine(class, full);
        }
    }

    /// Gives all free blocks, and the rest of the chunk, to the other workers. Called when the worker leaves.
    pub fn give_up(&mut self, memory: &Memory) {
        for index in 0..CLASSES {
            let class = SizeClass(index as u8);
            while self.spans[index].has_room(class) {
                let block = self.spans[index].cut(class);
                // SAFETY: a fresh block, sized and aligned for its class.
                unsafe { self.active[index].push(block) };
            }
            for magazine in [&mut self.active[index], &mut self.spare[index]] {
                memory.give_magazine(class, std::mem::replace(magazine, Magazine::EMPTY));
            }
        }
        let fresh = std::mem::replace(&mut self.fresh, FreshSpan::NONE);
        if fresh.bytes() >= REMAINDER_BYTES_MIN {
            memory.lock(&memory.remainders).push(fresh);
        }
    }
}

/// Blocks for sanitizers: each is an allocation of its own, with the layout of its class.
#[cfg(weft_sanitize)]
mod separate {
    use std::alloc::{self, Layout};
    use std::collections::HashMap;
    use std::ptr::NonNull;
    use std::sync::PoisonError;

    use weft_htm::word::Mutex;

    use super::SizeClass;

    /// The blocks in use, by address. A database that is dropped does not free its blocks one by one, because
    /// its chunks go as a whole. Here there are no chunks, so the blocks that are left are freed instead.
    #[derive(Default)]
    pub struct Blocks(Mutex<HashMap<usize, SizeClass>>);

    fn layout(class: SizeClass) -> Layout {
        Layout::from_size_align(class.bytes(), class.align()).expect("classes have valid layouts")
    }

    impl Blocks {
        pub fn allocate(&self, class: SizeClass) -> NonNull<u8> {
            // SAFETY: no class is empty.
            let block = NonNull::new(unsafe { alloc::alloc(layout(class)) });
            let block = block.unwrap_or_else(|| alloc::handle_alloc_error(layout(class)));
            let address = block.as_ptr().expose_provenance();
            let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(blocks.insert(address, class).is_none(), "a block is given out once");
            block
        }

        /// # Safety
        /// As for [`Arena::free`](super::Arena::free).
        pub unsafe fn free(&self, block: NonNull<u8>, class: SizeClass) {
            let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = blocks.remove(&block.as_ptr().addr());
            drop(blocks);
            assert!(
                found.is_none_or(|found| found == class),
                "a block is freed with the class with which it was allocated"
            );
            // If the block is not in use, this is a double free, which the sanitizer reports.
            // SAFETY: by the contract, allocated above with this layout, and not used any more.
            unsafe { alloc::dealloc(block.as_ptr(), layout(class)) };
        }
    }

    impl Drop for Blocks {
        fn drop(&mut self) {
            let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for (address, class) in blocks.drain() {
                // SAFETY: allocated above with this layout. The database is being dropped, and with it
                // everything that could lead to its blocks.
                unsafe {
                    let block: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
                    alloc::dealloc(block, layout(class));
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Creates an arena that cuts its blocks from chunks, in every build.
    fn pooled() -> Arena {
        Arena {
            #[cfg(weft_sanitize)]
            is_pooled: true,
            ..Arena::default()
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn size_classes_fit_the_requested_layout() {
        for size in 1..=BLOCK_BYTES_MAX {
            let class = SizeClass::of(layout(size, 8)).unwrap();
            assert!(class.bytes() >= size, "{size} in a block of {}", class.bytes());
            assert!(
                class.index() == 0 || CLASS_BYTES[class.index() - 1] < size,
                "{size} too large"
            );
        }
        assert_eq!(SizeClass::of(layout(BLOCK_BYTES_MAX + 1, 8)), None);
        assert_eq!(SizeClass::of(layout(64, 128)), None);
        assert_eq!(SizeClass::of(layout(8, 64)).unwrap().bytes(), 64);
    }

    #[test]
    fn blocks_are_disjoint_and_aligned() {
        let memory = Memory::default();
        let mut arena = pooled();
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for round in 0..2000usize {
            let class = SizeClass::of(layout(1 + (round * 37) % 1500, 8)).unwrap();
            let block = arena.allocate(class, &memory).as_ptr() as usize;
            assert_eq!(block % class.align(), 0);
            seen.push((block, class.bytes()));
        }
        seen.sort_unstable();
        for pair in seen.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "blocks overlap");
        }
    }

    #[test]
    fn freed_blocks_come_back_and_cross_workers_without_new_chunks() {
        let memory = Memory::default();
        let (mut producer, mut consumer) = (pooled(), pooled());
        let class = SizeClass::of(layout(320, 8)).unwrap();
        for _ in 0..200_000 {
            let block = producer.allocate(class, &memory);
            // SAFETY: from this memory, and not used afterwards.
            unsafe { consumer.free(block, class, &memory) };
        }
        assert!(
            memory.chunk_bytes() <= 2 * CHUNK_BYTES as u64,
            "64 MB went through, {} bytes of chunks",
            memory.chunk_bytes()
        );
    }

    #[test]
    fn a_leaving_worker_gives_up_all_blocks() {
        let memory = Memory::default();
        let class = SizeClass::of(layout(64, 8)).unwrap();
        let mut leaving = pooled();
        let blocks: Vec<_> = (0..1000).map(|_| leaving.allocate(class, &memory)).collect();
        for &block in &blocks {
            // SAFETY: from this memory, and not used afterwards.
            unsafe { leaving.free(block, class, &memory) };
        }
        leaving.give_up(&memory);
        let mut next = pooled();
        let again: HashSet<_> = (0..1000).map(|_| next.allocate(class, &memory)).collect();
        assert_eq!(again.len(), 1000);
        for size in [32768, 16384, 8192, 64] {
            next.allocate(SizeClass::of(layout(size, 8)).unwrap(), &memory);
        }
        assert_eq!(memory.chunk_bytes(), CHUNK_BYTES as u64, "the rest of the chunk was reused");
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// When one worker has written a block and given it up, the worker that gets it has exclusive access:
    /// loom's cell reports any access that is not ordered after the first worker's.
    #[test]
    fn loom_hand_over_through_the_depot() {
        loom::model(|| {
            let memory = Arc::new(Memory::default());
            let contents = Arc::new(UnsafeCell::new(0u64));
            let class = SizeClass(2);
            let giver = {
                let (memory, contents) = (Arc::clone(&memory), Arc::clone(&contents));
                thread::spawn(move || {
                    let mut block = [0u64; 8];
                    let mut magazine = Magazine::EMPTY;
                    // SAFETY: the giver's own block and cell, before the hand-over.
                    unsafe {
                        contents.with_mut(|value| *value = 7);
                        magazine.push(NonNull::from(&mut block).cast());
                    }
                    memory.give_magazine(class, magazine);
                })
            };
            if memory.take_magazine(class).is_some() {
                // SAFETY: the block, and the cell that stands for its contents, now belong to this thread.
                contents.with_mut(|value| unsafe { *value += 1 });
            }
            giver.join().unwrap();
        });
    }
}

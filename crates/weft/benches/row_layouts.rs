//! What a read and an update of one row cost, by how its versions lie in memory
//! ([decision 1](../../../docs/decisions/0001-immutable-row-versions.md)):
//!
//! ```console
//! $ cargo bench -p weft --bench row_layouts -- [ROWS [ROUNDS]]
//! ```
//!
//! There is no transaction here, no index but an array of addresses, and no log: only the accesses to memory that a
//! layout needs. So the differences are greater than those that a whole transaction would see.
//!
//! - *Versions*: a record is a header of four words and a place for one row. An update writes a row of its own into a
//!   block and swaps the pointer in the header. When the grace period has passed, the row moves back into the record.
//!   This is what the engine does ([decision 42](../../../docs/decisions/0042-rows-move-back.md)). A reader gets a
//!   reference to a row that does not change.
//! - *In place*: a record is a version and a row, which writers overwrite under the version's lock. A reader copies the
//!   row word by word and then looks at the version again, as in a seqlock.
//! - *Two slots*: a record is a version and two rows, of which writers overwrite the older one. A reader gets a reference
//!   as long as no second update comes before the grace period has passed. (The program does not check that: with
//!   uniform rows it happens once in a thousand updates.)

use std::collections::VecDeque;
use std::hint::black_box;
use std::thread::scope;
use std::time::{Duration, Instant};

use weft_htm::word::{Ordering, Word, fence, spin_loop};

/// How many updates a grace period lasts, and how many blocks wait for one at most.
const GRACE_UPDATES: usize = 512;
const OPERATIONS: usize = 2_000_000;
const WORD_BYTES: usize = 8;

/// Memory in words. Addresses are positions in it.
struct Memory {
    words: Vec<Word>,
    /// The records' addresses, in the order of their numbers. Neighbouring numbers do not lie side by side.
    records: Vec<usize>,
}

impl Memory {
    fn new(rows: usize, record_words: usize, block_words: usize, blocks: usize) -> Self {
        // Records of up to a cache line have lines of their own, as in the engine.
        let line = 64 / WORD_BYTES;
        let stride = if record_words <= line { line } else { record_words.next_multiple_of(2) };
        let words = (0..rows * stride + blocks * block_words).map(|_| Word::new(0)).collect();
        let mut records: Vec<_> = (0..rows).map(|number| number * stride).collect();
        fastrand::Rng::with_seed(7).shuffle(&mut records);
        Memory { words, records }
    }

    fn load(&self, address: usize, order: Ordering) -> u64 {
        self.words[address].load(order)
    }

    fn store(&self, address: usize, value: u64, order: Ordering) {
        self.words[address].store(value, order);
    }

    fn sum(&self, row: usize, row_words: usize) -> u64 {
        let row = &self.words[row..row + row_words];
        row.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }

    /// Copies a row and adds one to its first word.
    fn copy_changed(&self, from: usize, to: usize, row_words: usize) {
        for word in 0..row_words {
            let value = self.load(from + word, Ordering::Relaxed) + u64::from(word == 0);
            self.store(to + word, value, Ordering::Relaxed);
        }
    }

    /// Locks a record, whose version is its first word, and returns the version.
    fn lock(&self, record: usize) -> u64 {
        loop {
            let version = self.load(record, Ordering::Relaxed);
            let lock = || {
                let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
                self.words[record].compare_exchange(version, version + 1, success, failure)
            };
            if version.is_multiple_of(2) && lock().is_ok() {
                return version;
            }
            spin_loop();
        }
    }

    fn unlock(&self, record: usize, version: u64) {
        self.store(record, version + 2, Ordering::Release);
    }
}

/// How rows lie in memory.
trait Layout: Sync {
    const NAME: &str;
    /// What a thread keeps between its updates.
    type Thread: Send;
    fn new(rows: usize, row_words: usize, threads: usize) -> (Self, Vec<Self::Thread>)
    where
        Self: Sized;
    fn record_words(row_words: usize) -> usize;
    fn read(&self, number: usize) -> u64;
    fn update(&self, thread: &mut Self::Thread, number: usize);
}

struct Versions {
    memory: Memory,
    row_words: usize,
}

/// The blocks of a thread: free ones, and those that wait, with the record that they belonged to if the record's
/// inline place waits, too.
struct Blocks {
    free: Vec<usize>,
    waiting: VecDeque<Waiting>,
}

enum Waiting {
    Block(usize),
    Place(usize),
}

/// The words of a header: version, pointer to the newest row, and two that stand for the links to older versions and to
/// the log.
const HEADER_WORDS: usize = 4;

impl Versions {
    /// Does what is due after a grace period: frees blocks, and moves rows back.
    fn collect(&self, blocks: &mut Blocks) {
        while blocks.waiting.len() > GRACE_UPDATES {
            match blocks.waiting.pop_front().expect("more than none") {
                Waiting::Block(block) => blocks.free.push(block),
                Waiting::Place(record) => {
                    let version = self.memory.lock(record);
                    let newest = self.memory.load(record + 1, Ordering::Relaxed) as usize;
                    let place = record + HEADER_WORDS;
                    if newest != place {
                        for word in 0..self.row_words {
                            let value = self.memory.load(newest + word, Ordering::Relaxed);
                            self.memory.store(place + word, value, Ordering::Relaxed);
                        }
                        self.memory.store(record + 1, place as u64, Ordering::Release);
                        blocks.waiting.push_back(Waiting::Block(newest));
                    }
                    self.memory.store(record, version, Ordering::Release);
                }
            }
        }
    }
}

impl Layout for Versions {
    const NAME: &str = "versions";
    type Thread = Blocks;

    fn new(rows: usize, row_words: usize, threads: usize) -> (Self, Vec<Blocks>) {
        let each = 4 * GRACE_UPDATES;
        let memory = Memory::new(rows, Self::record_words(row_words), row_words, threads * each);
        for &record in &memory.records {
            memory.store(record + 1, (record + HEADER_WORDS) as u64, Ordering::Relaxed);
        }
        let first = memory.words.len() - threads * each * row_words;
        let blocks = |thread: usize| Blocks {
            free: (thread * each..(thread + 1) * each).map(|it| first + it * row_words).collect(),
            waiting: VecDeque::new(),
        };
        (Versions { memory, row_words }, (0..threads).map(blocks).collect())
    }

    fn record_words(row_words: usize) -> usize {
        HEADER_WORDS + row_words
    }

    fn read(&self, number: usize) -> u64 {
        let record = self.memory.records[number];
        loop {
            let version = self.memory.load(record, Ordering::Acquire);
            let row = self.memory.load(record + 1, Ordering::Acquire) as usize;
            if version.is_multiple_of(2) && self.memory.load(record, Ordering::Acquire) == version {
                return self.memory.sum(row, self.row_words);
            }
            spin_loop();
        }
    }

    fn update(&self, blocks: &mut Blocks, number: usize) {
        let record = self.memory.records[number];
        let block = blocks.free.pop().expect("a block is free");
        let version = self.memory.lock(record);
        let replaced = self.memory.load(record + 1, Ordering::Relaxed) as usize;
        self.memory.copy_changed(replaced, block, self.row_words);
        self.memory.store(record + 1, block as u64, Ordering::Release);
        self.memory.unlock(record, version);
        let is_inline = replaced == record + HEADER_WORDS;
        blocks.waiting.push_back(match is_inline {
            true => Waiting::Place(record),
            false => Waiting::Block(replaced),
        });
        self.collect(blocks);
    }
}

struct InPlace {
    memory: Memory,
    row_words: usize,
}

/// The words of the longest row.
const ROW_WORDS_MAX: usize = 128;

impl Layout for InPlace {
    const NAME: &str = "in place";
    type Thread = ();

    fn new(rows: usize, row_words: usize, threads: usize) -> (Self, Vec<()>) {
        let memory = Memory::new(rows, Self::record_words(row_words), 0, 0);
        (InPlace { memory, row_words }, vec![(); threads])
    }

    fn record_words(row_words: usize) -> usize {
        1 + row_words
    }

    fn read(&self, number: usize) -> u64 {
        let record = self.memory.records[number];
        let mut copy = [0; ROW_WORDS_MAX];
        let copy = &mut copy[..self.row_words];
        loop {
            let version = self.memory.load(record, Ordering::Acquire);
            for (word, value) in copy.iter_mut().enumerate() {
                *value = self.memory.load(record + 1 + word, Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.memory.load(record, Ordering::Relaxed) == version {
                return black_box(&*copy).iter().fold(0, |sum, &word| sum.wrapping_add(word));
            }
            spin_loop();
        }
    }

    fn update(&self, (): &mut (), number: usize) {
        let record = self.memory.records[number];
        let version = self.memory.lock(record);
        fence(Ordering::Release);
        // A transaction writes a row of its own first, and copies it at the commit.
        let mut copy = [0; ROW_WORDS_MAX];
        let copy = &mut copy[..self.row_words];
        for (word, value) in copy.iter_mut().enumerate() {
            *value = self.memory.load(record + 1 + word, Ordering::Relaxed);
        }
        black_box(&mut *copy)[0] += 1;
        for (word, value) in copy.iter().enumerate() {
            self.memory.store(record + 1 + word, *value, Ordering::Relaxed);
        }
        self.memory.unlock(record, version);
    }
}

struct TwoSlots {
    memory: Memory,
    row_words: usize,
}

impl TwoSlots {
    /// Returns the slot that is the newest, or the older one, at this version.
    fn slot(&self, record: usize, version: u64, is_newest: bool) -> usize {
        let second = (version / 2).is_multiple_of(2) != is_newest;
        record + 1 + if second { self.row_words } else { 0 }
    }
}

impl Layout for TwoSlots {
    const NAME: &str = "two slots";
    type Thread = ();

    fn new(rows: usize, row_words: usize, threads: usize) -> (Self, Vec<()>) {
        let memory = Memory::new(rows, Self::record_words(row_words), 0, 0);
        (TwoSlots { memory, row_words }, vec![(); threads])
    }

    fn record_words(row_words: usize) -> usize {
        1 + 2 * row_words
    }

    fn read(&self, number: usize) -> u64 {
        let record = self.memory.records[number];
        loop {
            let version = self.memory.load(record, Ordering::Acquire);
            if version.is_multiple_of(2) {
                return self.memory.sum(self.slot(record, version, true), self.row_words);
            }
            spin_loop();
        }
    }

    fn update(&self, (): &mut (), number: usize) {
        let record = self.memory.records[number];
        let version = self.memory.lock(record);
        let (newest, older) = (self.slot(record, version, true), self.slot(record, version, false));
        self.memory.copy_changed(newest, older, self.row_words);
        self.memory.unlock(record, version);
    }
}

/// Nanoseconds for each read and each update.
type Times = [f64; 2];

fn measure<L: Layout>(layout: &L, threads: &mut [L::Thread], rows: usize, seed: u64) -> Times {
    let operations = OPERATIONS / threads.len();
    let run = |threads: &mut [L::Thread], is_update: bool| -> Duration {
        let start = Instant::now();
        scope(|scope| {
            for (number, thread) in threads.iter_mut().enumerate() {
                scope.spawn(move || {
                    let seed = seed + number as u64;
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut sum = 0_u64;
                    for _ in 0..operations {
                        let number = random.usize(..rows);
                        match is_update {
                            true => layout.update(thread, number),
                            false => sum = sum.wrapping_add(layout.read(number)),
                        }
                    }
                    black_box(sum);
                });
            }
        });
        start.elapsed()
    };
    [false, true].map(|is_update| {
        let time = run(threads, is_update);
        time.as_nanos() as f64 / operations as f64
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    println!(
        "Nanoseconds for a read and an update of one of {rows} rows, medians of {rounds} rounds"
    );
    println!("| threads, bytes of a row | versions | in place | two slots |");
    println!("| --- | --- | --- | --- |");
    for threads in [1, 2] {
        for bytes in [8, 16, 32, 64, 104, 256, 1024] {
            let row_words = bytes / WORD_BYTES;
            // The layouts take turns, so that what slows the machine down slows all of them.
            let mut versions = Versions::new(rows, row_words, threads);
            let mut in_place = InPlace::new(rows, row_words, threads);
            let mut two_slots = TwoSlots::new(rows, row_words, threads);
            let mut times = [const { Vec::new() }; 3];
            for round in 0..=rounds {
                let seed = round * 100;
                let measured = [
                    measure(&versions.0, &mut versions.1, rows, seed),
                    measure(&in_place.0, &mut in_place.1, rows, seed),
                    measure(&two_slots.0, &mut two_slots.1, rows, seed),
                ];
                if round > 0 {
                    measured.into_iter().zip(&mut times).for_each(|(it, times)| times.push(it));
                }
            }
            let shown = times.map(|times| {
                let median = |of: usize| {
                    let mut times: Vec<_> = times.iter().map(|times| times[of]).collect();
                    times.sort_by(f64::total_cmp);
                    times[times.len() / 2]
                };
                format!("{:.0}, {:.0}", median(0), median(1))
            });
            println!("| {threads}, {bytes} | {} |", shown.join(" | "));
        }
    }
    let names = [Versions::NAME, InPlace::NAME, TwoSlots::NAME];
    println!("Records, in bytes, of a row of 104: {names:?} {:?}", {
        let words =
            [Versions::record_words(13), InPlace::record_words(13), TwoSlots::record_words(13)];
        words.map(|words| words * WORD_BYTES)
    });
    Ok(())
}

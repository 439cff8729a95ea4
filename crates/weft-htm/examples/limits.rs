//! What a region can hold on this processor: `cargo run --release -p weft-htm --example limits`.
//!
//! Each line tries regions of one kind and says how many of them committed, each tried once. It is
//! what the DBX paper measures before anything else (§2, Figure 1).
use std::hint::black_box;
use std::time::Instant;

use weft_htm::word::{Ordering, Word};
use weft_htm::{Choice, Htm, Regions, RetryPolicy};

const LINE_WORDS: usize = 64 / size_of::<Word>();
const PAGE_WORDS: usize = 4096 / size_of::<Word>();
const ARENA_LINES: usize = (64 << 20) / 64;
const TRIES: u64 = 2_000;

fn main() {
    let once = RetryPolicy { conflict: 1, capacity: 1, system_event: 1 };
    let htm = match Htm::open(Choice::Rtm, once) {
        Ok(htm) => htm,
        Err(why) => return println!("{why}"),
    };
    let arena: Vec<Word> = (0..ARENA_LINES * LINE_WORDS).map(|_| Word::new(1)).collect();
    let mut order: Vec<usize> = (0..ARENA_LINES).collect();
    let mut random = 1_u64;
    for place in (1..ARENA_LINES).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(place, (random % (place as u64 + 1)) as usize);
    }

    empty(&htm);
    for lines in [4, 8, 10, 11, 12, 13, 16] {
        let write = || {
            for line in 0..lines {
                arena[line * PAGE_WORDS].store(2, Ordering::Relaxed);
            }
        };
        report(&htm, &format!("write {lines} lines of one set"), write);
    }
    for kib in [8, 16, 24, 32, 40, 44, 48, 64] {
        let write = || {
            for line in 0..kib * 1024 / 64 {
                arena[line * LINE_WORDS].store(2, Ordering::Relaxed);
            }
        };
        report(&htm, &format!("write {kib} KiB in a row"), write);
    }
    for kib in [1, 2, 4, 8, 12, 16, 24] {
        let write = || {
            for &line in &order[..kib * 1024 / 64] {
                arena[line * LINE_WORDS].store(2, Ordering::Relaxed);
            }
        };
        report(&htm, &format!("write {kib} KiB at random lines"), write);
    }
    for kib in [32, 64, 96, 128, 192, 256, 1024] {
        let read = || {
            for line in 0..kib * 1024 / 64 {
                black_box(arena[line * LINE_WORDS].load(Ordering::Relaxed));
            }
        };
        report(&htm, &format!("read {kib} KiB in a row"), read);
    }
    for kib in [16, 32, 48, 64, 96, 128, 256] {
        let read = || {
            for &line in &order[..kib * 1024 / 64] {
                black_box(arena[line * LINE_WORDS].load(Ordering::Relaxed));
            }
        };
        report(&htm, &format!("read {kib} KiB at random lines"), read);
    }
    for steps in [1_000, 10_000, 100_000, 1_000_000, 4_000_000] {
        let spin = || {
            for step in 0..steps {
                black_box(step);
            }
        };
        report(&htm, &format!("{steps} steps of a loop"), spin);
    }
}

/// The price of a region that writes one word, beside the same store alone.
fn empty(htm: &Htm) {
    const ROUNDS: u32 = 1_000_000;
    let (regions, word) = (Regions::new(htm), Word::new(0));
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let _ = regions.run(|_| black_box(&word).store(1, Ordering::Relaxed), || false);
    }
    let in_regions = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        black_box(&word).store(1, Ordering::Relaxed);
    }
    let alone = begun.elapsed();
    println!(
        "one store: {:.1} ns in a region, {:.1} ns alone",
        in_regions.as_secs_f64() * 1e9 / f64::from(ROUNDS),
        alone.as_secs_f64() * 1e9 / f64::from(ROUNDS)
    );
}

fn report(htm: &Htm, name: &str, body: impl Fn()) {
    body(); // the first touch of each page
    let regions = Regions::new(htm);
    let begun = Instant::now();
    for _ in 0..TRIES {
        let _ = regions.run(|_| body(), || false);
    }
    let microseconds = begun.elapsed().as_secs_f64() * 1e6 / TRIES as f64;
    let counted = regions.statistics();
    let percent = |count: u64| count as f64 * 100.0 / TRIES as f64;
    println!(
        "{name:32} {microseconds:9.2} µs  committed {:6.2} %  capacity {:6.2} %  conflict {:5.2} %  \
         system {:5.2} %",
        percent(counted.committed),
        percent(counted.aborted_capacity),
        percent(counted.aborted_conflict),
        percent(counted.aborted_system_event),
    );
}

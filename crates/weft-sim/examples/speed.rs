//! Measures how fast the simulation itself is: accesses per second of the host's time.
//!
//! `cargo run --release -p weft-sim --example speed`

use std::time::Instant;

use weft_sim::region::attempt;
use weft_sim::sync::{AtomicU64, Ordering};
use weft_sim::{Machine, Options, Profile, Program, run};

const ACCESSES: u64 = 4_000_000;

fn main() {
    let words: Vec<AtomicU64> = (0..1 << 20).map(|_| AtomicU64::new(0)).collect();
    let profile = Profile::named("today-64c").expect("it is one of them");
    let mut machine = Machine::new(profile, 1);
    let start = Instant::now();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..ACCESSES {
        let address = random.u64(0..8 << 20);
        machine.access(0, address, weft_sim::Access::Load).expect("in no region");
    }
    report("the model alone, 8 MiB at random", ACCESSES, start);
    for cores in [1, 8, 64] {
        for hot_percent in [0, 10] {
            let per_core = ACCESSES / cores;
            let program = |core: u64| {
                let words = &words;
                move || {
                    let mut random = fastrand::Rng::with_seed(core);
                    for _ in 0..per_core {
                        let hot = random.u64(0..100) < hot_percent;
                        let word = &words[random.usize(..if hot { 64 } else { words.len() })];
                        match random.u8(..) {
                            0..26 => _ = word.fetch_add(1, Ordering::Relaxed),
                            _ => _ = word.load(Ordering::Relaxed),
                        }
                    }
                }
            };
            let programs = (0..cores).map(|core| Box::new(program(core)) as Program<'_>).collect();
            let start = Instant::now();
            run(&Options::new(profile, 1), programs).expect("it ends");
            report(
                &format!("{cores} cores, {hot_percent} % of accesses to 64 words"),
                ACCESSES,
                start,
            );
        }
        let program = |core: u64| {
            let words = &words;
            move || {
                let mut random = fastrand::Rng::with_seed(core);
                for _ in 0..ACCESSES / 20 / cores {
                    let first = random.usize(..words.len() - 1024);
                    let _ = attempt(|| {
                        (0..20).for_each(|k| {
                            _ = words[first + 50 * k].fetch_add(1, Ordering::Relaxed)
                        });
                    });
                }
            }
        };
        let programs = (0..cores).map(|core| Box::new(program(core)) as Program<'_>).collect();
        let start = Instant::now();
        let report_of_run = run(&Options::new(profile, 1), programs).expect("it ends");
        let accesses = report_of_run.counts.iter().map(|counts| counts.accesses).sum();
        report(&format!("{cores} cores, regions of 20 written words"), accesses, start);
    }
}

fn report(what: &str, accesses: u64, start: Instant) {
    let rate = accesses as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{what}: {rate:.1} million accesses per second");
}

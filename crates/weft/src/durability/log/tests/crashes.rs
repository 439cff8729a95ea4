//! The power goes off at every change of the disk. What was acknowledged as durable is still there,
//! and each epoch is there completely or not at all.

use super::*;

/// What a run did until the power went off.
#[derive(Default)]
struct Run {
    appended: Rows,
    /// The greatest durable epoch that the log has reported.
    acknowledged: u64,
    /// The epoch that a checkpoint holds.
    base: u64,
}

/// Appends, steps, sometimes removes segments, and shuts down, as the seed decides.
fn run(disk: &SimulatedDisk, loggers: usize, seed: u64) -> Run {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut run = Run::default();
    let clock = Clock::starting_at(1);
    let options = match seed % 3 {
        0 => small(loggers),
        // Some of the groups are small enough to be written into zeros.
        sort => LogOptions { segment_bytes: 2000, reserve_bytes: 1000 * sort, ..small(loggers) },
    };
    let Ok(log) = start(disk, options, clock.clone(), 1, &[]) else { return run };
    for serial in 0u64.. {
        let epoch = clock.now();
        if epoch > 12 {
            break;
        }
        let is_idle = random.u8(..4) == 0;
        for part in 0..if is_idle { 0 } else { random.u64(1..5) } {
            let mut row = (serial << 8 | part).to_be_bytes().to_vec();
            row.resize(random.usize(8..300), 7);
            append_row(&log, random.usize(..4), epoch, &row);
            run.appended.entry(epoch).or_default().insert(row);
        }
        let stepped = log.step();
        run.acknowledged = log.durable_epoch();
        if stepped.is_err() {
            break;
        }
        if random.u8(..4) == 0 {
            run.base = run.acknowledged - random.u64(..3).min(run.acknowledged - run.base);
            // An error means that the power is off.
            let _ = log.remove_segments_up_to(run.base);
        }
    }
    if log.shutdown().is_ok() {
        run.acknowledged = log.durable_epoch();
    }
    run
}

/// Checks what is left after a crash. Returns how many epochs are there that were not acknowledged.
fn check(run: &Run, disk: &SimulatedDisk, loggers: usize, name: &str) -> u64 {
    let found = find(disk, loggers, run.base).unwrap_or_else(|error| panic!("{name}: {error}"));
    let of = |from: u64, to: u64| {
        let rows = run.appended.iter().filter(|(epoch, _)| (from..=to).contains(*epoch));
        rows.map(|(epoch, rows)| (*epoch, rows.clone())).collect::<Rows>()
    };
    assert_eq!(found.rows, of(run.base + 1, found.epoch), "{name}: not the whole epochs");
    assert!(of(found.epoch + 1, run.acknowledged).is_empty(), "{name}: lost what was durable");
    found.epoch.saturating_sub(run.acknowledged)
}

fn power_goes_off_everywhere(loggers: usize, seeds: std::ops::Range<u64>) {
    let (mut crashes, mut more) = (0, 0);
    for seed in seeds {
        let disk = SimulatedDisk::new(seed);
        let complete = run(&disk, loggers, seed);
        check(&complete, &disk.crash(seed), loggers, &format!("seed {seed}, complete"));
        assert!(complete.acknowledged >= 12);
        for operation in 1..=disk.operations() {
            let disk = SimulatedDisk::new(seed);
            disk.stop_at(operation);
            let run = run(&disk, loggers, seed);
            for crash in 0..4 {
                let name =
                    format!("{loggers} loggers, seed {seed}, off at {operation}, crash {crash}");
                more += check(&run, &disk.crash(crash), loggers, &name).min(1);
                crashes += 1;
            }
        }
    }
    assert!(crashes > 1000, "{crashes} crashes");
    assert!(more > 0, "some crashes keep more than was acknowledged");
}

#[test]
fn power_goes_off_at_every_change_one_logger() {
    power_goes_off_everywhere(1, 0..12);
}

#[test]
fn power_goes_off_at_every_change_two_loggers() {
    power_goes_off_everywhere(2, 100..108);
}

#[test]
fn power_goes_off_at_every_change_three_loggers() {
    power_goes_off_everywhere(3, 200..204);
}

/// The power may also go off between two changes.
#[test]
fn a_crash_after_any_step() {
    for seed in 0..100 {
        let disk = SimulatedDisk::new(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = Clock::starting_at(1);
        let log = start(&disk, small(2), clock.clone(), 1, &[]).unwrap();
        let mut done = Run::default();
        for serial in 0..30u64 {
            let epoch = clock.now();
            for slot in 0..random.usize(..3) {
                let row = [serial.to_be_bytes(), slot.to_be_bytes()].concat();
                append_row(&log, slot, epoch, &row);
                done.appended.entry(epoch).or_default().insert(row);
            }
            done.acknowledged = log.step().unwrap();
            check(&done, &disk.crash(seed ^ serial), 2, &format!("seed {seed}, step {serial}"));
        }
    }
}

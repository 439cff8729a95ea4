use super::*;
use weft::htm::{Choice, Htm};

/// Protects users who paste a size from a result into an option: every size that is written can be read.
#[test]
fn sizes_are_read_as_they_are_written() {
    for edges in [Edges::HASWELL, Edges { first_level_bytes: 48 << 10, first_level_ways: 12 }] {
        for kind in Kind::ALL {
            let sizes = Size::of_machine(kind, &edges);
            assert!(sizes.len() > 1, "{kind}");
            for size in sizes {
                assert_eq!(Size::parse(kind, &size.to_string()), Ok(size), "{kind}");
            }
            assert_eq!(kind.name().parse(), Ok(kind));
        }
    }
    let written = |size: u64| Size::Bytes(size).to_string();
    assert_eq!([448, 31 << 10, 4 << 20, 1536 << 10].map(written), ["448", "31K", "4M", "1536K"]);
}

#[test]
fn sizes_that_mean_nothing_are_refused() {
    for (kind, text) in [
        (Kind::Writes, "0"),
        (Kind::Writes, "17M"),
        (Kind::Writes, "K"),
        (Kind::Reads, "99999999999999999999M"),
        (Kind::Reads, "4m"),
        (Kind::OneSet, "31K"),
        (Kind::ReadsFirst, "3M"),
        (Kind::ReadsFirst, "16M+1K"),
        (Kind::Duration, "4"),
        (Kind::Duration, "61000ms"),
        (Kind::Price, ""),
    ] {
        let refused = Size::parse(kind, text).expect_err(text);
        assert!(refused.contains(kind.name()) && refused.contains("expected"), "{refused}");
    }
    assert!("write".parse::<Kind>().unwrap_err().contains("random-writes"));
    assert!(Point::all(&[Kind::Reads, Kind::OneSet], &["4M".to_owned()], &Edges::HASWELL).is_err());
}

/// Protects the placement: first one thread per core, then threads that share a core. Unavailable cores are
/// refused.
#[test]
fn threads_have_cores_of_their_own_first() {
    let haswell: Topology = (0..4).map(|core| vec![core, core + 4]).collect();
    let place = |text: &str| text.parse::<Threads>().expect(text).place(&haswell);
    assert_eq!(place("1"), Ok(vec![0]));
    assert_eq!(place("4"), Ok(vec![0, 1, 2, 3]));
    assert_eq!(place("6"), Ok(vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(place("1x2"), Ok(vec![0, 4]));
    assert_eq!(place("4x2"), Ok(vec![0, 4, 1, 5, 2, 6, 3, 7]));
    for refused in ["9", "5x1", "1x3"] {
        assert!(place(refused).unwrap_err().contains("4 cores"), "{refused}");
    }
    for text in ["0", "x", "2x", "1x0", "-1", "one"] {
        assert!(text.parse::<Threads>().is_err(), "{text}");
    }
    let names = |topology: &Topology| -> Vec<String> {
        Threads::of_machine(topology).iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&haswell), ["1", "1x2", "4", "4x2"]);
    assert_eq!(names(&vec![vec![0], vec![1]]), ["1", "2"]);
    assert_eq!(names(&vec![vec![0]]), ["1"]);
}

/// A clock that stands still.
struct StoppedClock;

impl Clock for StoppedClock {
    fn seconds(&self) -> f64 {
        0.0
    }

    fn compute(&self, nanoseconds: u64) {
        std::hint::black_box(nanoseconds);
    }
}

/// Every experiment runs at every size, and counts the result of every try: with hardware regions, and without
/// (then nothing aborts).
#[test]
fn every_try_is_counted() {
    const SEED: u64 = 1;
    for (choice, same_place) in
        [(Choice::Auto, false), (Choice::Auto, true), (Choice::Software, false)]
    {
        let htm = Htm::open(choice, once()).expect("both are always available");
        let mut client = Client::new(&htm, SEED, 0, same_place);
        for point in Point::all(&Kind::ALL, &[], &Edges::HASWELL).expect("its own sizes") {
            client.touch_pages();
            let share = client.run(&point, 3, &StoppedClock);
            let measured = Measurement::new(&point, Threads::Spread(1), SEED, &[share, share]);
            let aborted = measured.aborted_capacity
                + measured.aborted_conflict
                + measured.aborted_system_event;
            assert_eq!((measured.tries, measured.committed + aborted), (6, 6), "{point}");
            assert_eq!(measured.same_place, same_place);
            let is_region = point.size != Size::Alone && choice != Choice::Software;
            let has_hardware = htm.unavailable().is_none();
            let started = if is_region && has_hardware { 3 } else { 0 };
            assert_eq!(share.regions.started, started, "{point}, {choice:?}");
        }
    }
}

/// Protects the number of tries: it has a minimum and a maximum, and is smaller if a try takes more work.
#[test]
fn tries_follow_the_work() {
    let budget = Budget {
        tries_min: 10,
        tries_max: 100,
        accesses: 64_000,
        nanoseconds: 20_000_000,
        prices: 1_000,
    };
    let tries = |kind, text: &str| {
        budget.tries(&Point { kind, size: Size::parse(kind, text).expect(text) })
    };
    assert_eq!(tries(Kind::Writes, "448"), 100);
    assert_eq!(tries(Kind::Reads, "128K"), 31);
    assert_eq!(tries(Kind::Reads, "4M"), 10);
    assert_eq!(tries(Kind::ReadsFirst, "64K+64K"), 31);
    assert_eq!(tries(Kind::Duration, "1ms"), 20);
    assert_eq!(tries(Kind::Price, "alone"), 1_000);
}

/// Protects the clients' twins: what an aborted region did is repeated without a region.
#[test]
fn twins_repeat_aborted_regions() {
    // Without hardware every region asks for its twin.
    let htm = Htm::open(Choice::Software, once()).expect("it is always available");
    let point = Point { kind: Kind::Writes, size: Size::Bytes(64) };
    let written = |client: &Client| {
        let addresses = client.addresses();
        assert!(
            addresses.start.is_multiple_of(4096) && addresses.end - addresses.start == MEMORY_BYTES
        );
        client.written_pages()
    };
    let mut without = Client::new(&htm, 1, 0, true);
    without.run(&point, 3, &StoppedClock);
    let mut with = Client::new(&htm, 1, 0, true).with_twins();
    with.run(&point, 3, &StoppedClock);
    assert_eq!((written(&without), written(&with)), (0, 1));
}

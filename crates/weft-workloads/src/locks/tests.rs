//! Every structure under every lock, elided and not, with more threads than cores.

use std::thread;

use weft::htm::Choice;
use weft::htm::lock::{Lock, Mcs, OccRwLock, SrwLock, Tatas};

use super::{Kinds, Locks, Parameters, Probe, Register, StorageManager, Structure, Unlocked};
use crate::workload::{Condition, LoadOptions};

const THREADS: usize = 4;
const TRANSACTIONS_PER_THREAD: u32 = 1_500;

fn load<S: Structure>(parameters: &Parameters, fill: impl FnOnce(u32) -> S) -> Locks<S> {
    let htm = Choice::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Choice::Auto);
    let options = LoadOptions { htm, ..LoadOptions::default() };
    Locks::load(parameters, &options, |subscribers| Ok(fill(subscribers))).expect("loads")
}

fn broken(conditions: &[Condition]) -> Vec<String> {
    assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect()
}

/// Runs clients, checks the invariants, and returns how often each type of transaction ended.
fn run<S: Structure>(locks: &Locks<S>, context: &str) -> [u32; 2] {
    const SEED: u64 = 61;
    let mut ended = [0; 2];
    thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut client, mut ended) = (locks.client(SEED, thread), [0; 2]);
                    for number in 0..TRANSACTIONS_PER_THREAD {
                        ended[locks.execute(&mut client).transaction] += 1;
                        if number % 8 == 0 {
                            // So often that the others come between, also where cores are few.
                            thread::yield_now();
                        }
                    }
                    ended
                })
            })
            .collect();
        for client in clients {
            let of_client = client.join().expect("no client panics");
            ended.iter_mut().zip(of_client).for_each(|(sum, count)| *sum += count);
        }
    });
    assert_eq!(broken(&locks.verify()), [""; 0], "{context}, seed {SEED}");
    let counted = locks.statistics();
    assert!(locks.htm_backend().is_some() || counted.started == 0, "{context}: {counted:?}");
    ended
}

fn every_structure<L: Lock>() {
    for is_elided in [false, true] {
        let context = format!("{}, elided: {is_elided}", L::NAME);
        let parameters = Parameters { subscribers: 5, updates: 50 };
        let register = load(&parameters, |count| Register::<L>::new(count, is_elided));
        let [read, updated] = run(&register, &context);
        assert!(read > 1_000 && updated > 1_000, "{context}: {read} and {updated}");
        let parameters = Parameters { subscribers: 500, updates: 0 };
        let probe = load(&parameters, |count| Probe::<L>::new(count, is_elided).expect("loads"));
        assert_eq!(run(&probe, &context)[1], 0);
    }
}

#[test]
fn every_lock_keeps_the_invariants() {
    every_structure::<Tatas>();
    every_structure::<Mcs>();
    every_structure::<OccRwLock>();
    every_structure::<SrwLock>();
    let parameters = Parameters { subscribers: 500, updates: 0 };
    let probe = load(&parameters, |count| Probe::<Unlocked>::new(count, false).expect("loads"));
    run(&probe, "none");
}

/// Of one page of rows, of some, and of as many as take a third level of the tree.
#[test]
fn every_choice_of_kinds_keeps_the_invariants() {
    let kinds = |bits: u32| Kinds {
        occ_rwlock: bits & 1 != 0,
        tatas: bits & 2 != 0,
        mcs: bits & 4 != 0,
        srwlock: bits & 8 != 0,
    };
    for (subscribers, bits) in [(1, 0), (65, 7), (1_000, 15), (5_000, 15), (5_000, 8)] {
        for coarse in [false, true] {
            let parameters = Parameters { subscribers, updates: 0 };
            let manager =
                load(&parameters, |count| StorageManager::new(count, kinds(bits), coarse));
            assert_eq!(manager.htm_backend().is_some(), bits != 0);
            run(&manager, &format!("{subscribers} subscribers, {:?}, {coarse}", kinds(bits)));
        }
    }
}

/// What goes wrong, and that verification tells: updates without a lock get lost, or are seen half
/// done.
#[test]
fn verification_finds_lost_updates() {
    let parameters = Parameters { subscribers: 5, updates: 100 };
    let register = load(&parameters, |count| Register::<Tatas>::new(count, false));
    register.structure.update(&weft::htm::Regions::new(&weft::htm::Htm::software()), 3);
    let conditions = register.verify();
    assert!(conditions[0].holds && !conditions[1].holds, "{conditions:?}");
    register.structure.rows()[3].fill(9, 1);
    assert!(!register.verify()[0].holds);
}

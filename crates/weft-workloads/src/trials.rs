//! What the tests of several workloads share: loading, clients on threads, and the conditions that do not hold.

use std::thread;

use weft::htm::Choice as Htm;
use weft::protocol::{Protocol, ProtocolDescription};

use crate::workload::{LoadOptions, Outcome, Workload};

const THREADS: usize = 4;

/// Returns the options for loading, with the HTM backend that the environment names.
pub(crate) fn options(seed: u64) -> LoadOptions<'static> {
    let htm = Htm::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Htm::Auto);
    LoadOptions { seed, htm: Some(htm), ..LoadOptions::default() }
}

/// Loads a workload.
pub(crate) fn load<P: Protocol, W: Workload<P>>(parameters: &W::Parameters, seed: u64) -> W {
    W::load(parameters, &options(seed)).expect("loads")
}

/// The protocols of the tests. By default these are the ones that a workload's own code can tell apart: it blocks, its
/// procedures are repaired, its operations are split or its requests set aside, it runs in pieces, or only its single
/// accesses are atomic. The feature `all-protocols` adds all others. (Each is compiled with every workload once more.
/// The short benchmarks of `.ci/run` verify all workloads under all protocols.)
#[cfg(not(feature = "all-protocols"))]
macro_rules! tested_protocols {
    ($then:ident, $($arguments:tt)*) => {
        weft_protocols::$then! {
            [Dbx, TwoPhaseLocking, Htcc, Doppel, DbxTc, Adaptive, Atomic] $($arguments)*
        }
    };
}
#[cfg(feature = "all-protocols")]
macro_rules! tested_protocols {
    ($then:ident, $($arguments:tt)*) => { weft_protocols::protocol_list!($then, $($arguments)*) };
}

/// The names and properties of [the protocols of the tests](tested_protocols).
pub(crate) const PROTOCOLS: &[ProtocolDescription] = tested_protocols!(describe_protocols,);

/// As [`weft_protocols::with_protocol`], for [the protocols of the tests](tested_protocols).
macro_rules! with_protocol {
    ($name:expr, |$parameter:ident| $body:expr) => {
        $crate::trials::tested_protocols!(match_protocol, $name, $parameter, $body)
    };
}
pub(crate) use {tested_protocols, with_protocol};

/// Returns the names of the protocols under which transactions of several rows are atomic.
pub(crate) fn runnable_protocols() -> Vec<&'static str> {
    let runnable = PROTOCOLS.iter().filter(|protocol| !protocol.single_key);
    let runnable: Vec<_> = runnable.map(|protocol| protocol.name).collect();
    assert!(!runnable.is_empty());
    runnable
}

/// Returns the conditions that do not hold, in words.
pub(crate) fn broken<P: Protocol, W: Workload<P>>(workload: &W) -> Vec<String> {
    let conditions = workload.verify(&|_, _| {}).expect("verification reads every row");
    assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect()
}

/// Runs clients on as many threads as the protocol allows, each for `transactions`, and asserts that the invariants
/// hold. Returns for each transaction type how many succeeded, and how many did not.
pub(crate) fn run<P: Protocol, W: Workload<P>>(
    workload: &W,
    transactions: u32,
    seed: u64,
) -> Vec<[u32; 2]> {
    let threads = THREADS.min(P::WORKERS_MAX);
    let mut counts = vec![[0; 2]; W::TRANSACTIONS.len()];
    thread::scope(|scope| {
        let client = |thread| {
            move || {
                let mut client = workload.client(seed, thread, threads);
                let mut outcomes: Vec<Outcome> = Vec::new();
                for number in 0..transactions {
                    outcomes.push(workload.execute(&mut client).expect("it runs to its end"));
                    if number % 8 == 0 {
                        // Yield so often that other threads run in between, even if there are few cores.
                        thread::yield_now();
                    }
                }
                workload.finish(&mut client).expect("requests that were set aside run");
                outcomes
            }
        };
        let clients: Vec<_> = (0..threads).map(|thread| scope.spawn(client(thread))).collect();
        for client in clients {
            for outcome in client.join().expect("no client panics") {
                counts[outcome.transaction][usize::from(outcome.rolled_back)] += 1;
            }
        }
    });
    assert_eq!(broken(workload), [""; 0], "{}, seed {seed}", P::NAME);
    counts
}

//! How scripts scale, without sockets: `cargo test --release -p weft-server --lib measurement -- --ignored --nocapture`

use std::time::{Duration, Instant};

use weft::htm::word::Ordering;

use crate::reply::Reply;
use crate::server::{Options, Server};
use crate::session::Session;

const SECONDS: f64 = 2.0;
const TRANSFER: &str = "
    local from, to = tonumber(redis.call('GET', KEYS[1])), tonumber(redis.call('GET', KEYS[2]))
    redis.call('SET', KEYS[1], from - 1)
    redis.call('SET', KEYS[2], to + 1)
    return 1";

fn run(session: &mut Session, command: &[&str], reply: &mut Reply) {
    let arguments: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
    session.run(&arguments, reply);
    assert!(!reply.bytes().starts_with(b"-"), "{}", String::from_utf8_lossy(reply.bytes()));
    reply.clear();
}

/// Returns how long this thread has used a processor, in seconds.
fn processor_time() -> f64 {
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = scheduled.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok());
    nanos.unwrap_or(f64::NAN) / 1e9
}

/// Returns how many transfers so many threads make in a second, between accounts of their own or of all, and how many in a
/// second of processor time each. The second is what two free cores would make, whatever else the machine does.
fn rates(threads: usize, is_shared: bool) -> (f64, f64) {
    let server = Server::open(Options::default()).unwrap();
    // Names have different hashes, as they do outside of unit tests.
    server.store.hash_shift.store(0, Ordering::Relaxed);
    let work = |thread: usize| {
        let mut session = Session::of_a_test(&server);
        let mut reply = Reply::new(1 << 20);
        let names: Vec<String> = (0..10_000)
            .map(|account| format!("account:{}:{account}", if is_shared { 0 } else { thread }))
            .collect();
        for name in &names {
            run(&mut session, &["SET", name, "1000"], &mut reply);
        }
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let (begun, used, mut count) = (Instant::now(), processor_time(), 0_u32);
        while begun.elapsed() < Duration::from_secs_f64(SECONDS) {
            for _ in 0..100 {
                let (from, to) = (random.usize(..names.len()), random.usize(..names.len()));
                let command = ["EVAL", TRANSFER, "2", &names[from], &names[to]];
                run(&mut session, &command, &mut reply);
                count += 1;
            }
        }
        let used = processor_time() - used;
        (f64::from(count) / begun.elapsed().as_secs_f64(), f64::from(count) / used)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let rates = threads.into_iter().map(|thread| thread.join().unwrap());
        rates.fold((0.0, 0.0), |sum, rates| (sum.0 + rates.0, sum.1 + rates.1))
    })
}

#[test]
#[ignore = "a measurement"]
fn transfers_by_one_and_by_two_threads() {
    for is_shared in [false, true] {
        let [one, two, again] = [1, 2, 1].map(|threads| rates(threads, is_shared));
        let ratios = (2.0 * two.0 / (one.0 + again.0), 2.0 * two.1 / (one.1 + again.1));
        println!(
            "shared {is_shared}: 1 thread {:.0} and {:.0} a second, 2 threads {:.0}, ratio {:.2}; by processor time {:.0}, \
             {:.0} and {:.0}, ratio {:.2}",
            one.0, again.0, two.0, ratios.0, one.1, again.1, two.1, ratios.1
        );
    }
}

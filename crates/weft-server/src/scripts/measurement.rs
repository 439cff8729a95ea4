//! How scripts scale, without sockets: `cargo test --release -p weft-server --lib measurement -- --ignored --nocapture`

use std::time::{Duration, Instant};

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

/// Returns how many transfers so many threads make in a second, between accounts of their own or of all.
fn rate(threads: usize, is_shared: bool) -> f64 {
    let server = Server::open(Options::default()).unwrap();
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
        let (begun, mut count) = (Instant::now(), 0_u32);
        while begun.elapsed() < Duration::from_secs_f64(SECONDS) {
            for _ in 0..100 {
                let (from, to) = (random.usize(..names.len()), random.usize(..names.len()));
                let command = ["EVAL", TRANSFER, "2", &names[from], &names[to]];
                run(&mut session, &command, &mut reply);
                count += 1;
            }
        }
        f64::from(count) / begun.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
#[ignore = "a measurement"]
fn transfers_by_one_and_by_two_threads() {
    for is_shared in [false, true] {
        let [one, two, again] = [1, 2, 1].map(|threads| rate(threads, is_shared));
        println!(
            "shared {is_shared}: 1 thread {one:.0} and {again:.0} a second, 2 threads {two:.0}, ratio {:.2}",
            2.0 * two / (one + again)
        );
    }
}

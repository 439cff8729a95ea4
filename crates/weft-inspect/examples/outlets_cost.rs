//! Measures what the outlets cost: the throughput of two threads in turns, without outlets, and with a server that a scraper
//! asks every second, a page that follows the events, and a flight recorder.
//!
//! `cargo run --release -p weft-inspect --features serve,flight --example outlets_cost -- [ROUNDS] [SECONDS]`

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weft::{Database, Error, Record, Table};
use weft_inspect::{FlightRecorder, InspectBuilder, serve};

const ROWS: u64 = 100_000;
const THREADS: u64 = 2;

#[derive(Clone, Record)]
struct Row {
    #[record(key)]
    id: u64,
    value: u64,
}

/// Commits transactions of four reads and two updates, one in ten of which is of a hot row. Returns how many.
fn work(database: &Database, rows: &Table<Row>, seed: u64, time: Duration) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time {
        for _ in 0..64 {
            let keys: [u64; 6] = std::array::from_fn(|_| random.u64(..ROWS));
            let hot = if random.u32(..10) == 0 { 0 } else { keys[4] };
            let done = database.transact(|tx| {
                let mut sum = 0_u64;
                for key in &keys[..4] {
                    sum = sum.wrapping_add(tx.get(rows, key)?.map_or(0, |row| row.value));
                }
                tx.update(rows, &hot, |row| row.value = sum.wrapping_add(1))?;
                tx.update(rows, &keys[5], |row| row.value = row.value.wrapping_add(1))?;
                Ok::<_, Error>(())
            });
            done.expect("the transaction commits");
            count += 1;
        }
    }
    count
}

/// Returns the throughput of all threads.
fn round(database: &Database, rows: &Table<Row>, time: Duration) -> f64 {
    let count: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || work(database, rows, seed, time)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    count as f64 / time.as_secs_f64()
}

fn request(address: SocketAddr, path: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes())?;
    Ok(stream)
}

/// Asks for the metrics every second, and follows the events on another thread, until the server stops.
fn watch(address: SocketAddr) {
    std::thread::spawn(move || {
        if let Ok(mut events) = request(address, "/events") {
            let _ = std::io::copy(&mut events, &mut std::io::sink());
        }
    });
    std::thread::spawn(move || {
        while let Ok(mut metrics) = request(address, "/metrics") {
            let _ = metrics.read_to_end(&mut Vec::new());
            std::thread::sleep(Duration::from_secs(1));
        }
    });
}

/// Returns the processor time of the threads of this process that have a name, in seconds.
fn thread_seconds(name: &str) -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let seconds = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let called = std::fs::read_to_string(path.join("comm")).ok()?;
        let times = std::fs::read_to_string(path.join("schedstat")).ok()?;
        (called.trim() == name).then(|| times.split(' ').next()?.parse::<f64>().ok())?
    });
    seconds.sum::<f64>() / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let rounds = arguments.next().unwrap_or(7);
    let time = Duration::from_secs(arguments.next().unwrap_or(3));
    let database = Database::builder().table::<Row>().inspect().open().expect("it opens");
    let rows = database.table::<Row>().expect("it is declared");
    for id in 0..ROWS {
        let inserted = database.transact(|tx| tx.insert(&rows, Row { id, value: 0 }));
        inserted.expect("it is new");
    }
    round(&database, &rows, time);
    let mut ratios = Vec::new();
    for number in 1..=rounds {
        let without = round(&database, &rows, time);
        let server = serve(&database, "127.0.0.1:0").expect("the address is free");
        let recorder = FlightRecorder::start(&database).expect("it has memory");
        watch(server.address());
        let with = round(&database, &rows, time);
        let [serving, recording] = ["weft-inspect", "weft-flight"].map(thread_seconds);
        drop((server, recorder));
        ratios.push(with / without);
        let percent = 100.0 / time.as_secs_f64();
        println!(
            "round {number}: {without:.0}/s without, {with:.0}/s with, ratio {:.4}; of a core: server {:.2} %, recorder {:.2} %",
            with / without,
            serving * percent,
            recording * percent
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.4}", ratios[ratios.len() / 2]);
}

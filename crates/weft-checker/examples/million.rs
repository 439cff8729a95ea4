//! Measures how long a check of a million transactions takes, and how much memory it needs.
//!
//! ```text
//! cargo run --release -p weft-checker --example million -- [TRANSACTIONS] [FILE]
//! ```
//!
//! It makes up a strictly serializable history: 10 operations in each transaction on 100,000 keys, with mixed
//! reads and writes, some deletes and some scans of ten keys. Sixteen transactions are in progress at any time.
//! With a file, a first call makes the file and the next call reads and checks it. The history is not checked
//! in the process that made it up, so that the peak of memory is that of reading and checking.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::time::Instant;

use weft_checker::format::{self, weft};
use weft_checker::{History, HistoryBuilder, Key, Observed, Options, check};

const KEYS: u64 = 100_000;
const OPERATIONS: u64 = 10;
const SCAN_KEYS: u64 = 10;
/// Nanoseconds between two points of serialization, and how far a transaction extends around its own.
const PACE_NS: u64 = 1_000;
const REACH_NS: u64 = 8_000;

/// The random numbers of SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Makes up a history of this many transactions.
fn make_up(transactions: u64) -> History {
    let mut random = Random(1);
    let mut builder = HistoryBuilder::new();
    let table = builder.table("records");
    // The version of each key, and whether it is a row. At first two of three are.
    let mut state: Vec<(u64, bool)> = (0..KEYS).map(|key| (0, key % 3 != 0)).collect();
    for number in 1..=transactions {
        let point_ns = REACH_NS + number * PACE_NS;
        let invoke_ns = point_ns - random.below(REACH_NS);
        let session = (number % 16) as u32;
        let mut transaction = builder.transaction(number, session, invoke_ns);
        for operation in 0..OPERATIONS {
            let key = random.below(KEYS);
            let (version, is_row) = state[key as usize];
            let new = (number << 16) | operation;
            match random.below(100) {
                0..50 => {
                    let seen = if is_row { Observed::Version(version) } else { Observed::Absent };
                    transaction.read(table, key, seen);
                }
                50..90 => {
                    transaction.write(table, key, new);
                    state[key as usize] = (new, true);
                }
                90..93 => {
                    transaction.delete(table, key, new);
                    state[key as usize] = (new, false);
                }
                _ => {
                    let end = (key + SCAN_KEYS).min(KEYS);
                    let rows = (key..end).map(|key| (key, state[key as usize]));
                    let rows = rows.filter(|(_, (_, is_row))| *is_row);
                    let rows = rows.map(|(key, (version, _))| (key, version));
                    transaction.scan(table, Key::from(key)..Key::from(end), rows);
                }
            }
        }
        transaction.committed(point_ns + random.below(REACH_NS));
    }
    builder.build()
}

/// Returns the peak memory use of the process in MiB, if the system tells it.
fn peak_mib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or("unknown".to_owned(), |kib| format!("{} MiB", kib / 1024))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let transactions = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let Some(path) = arguments.next() else {
        let started = Instant::now();
        let history = make_up(transactions);
        println!("made up: {:.2} s, peak {}", started.elapsed().as_secs_f64(), peak_mib());
        return judge(&history);
    };
    if !std::path::Path::new(&path).exists() {
        let mut writer = BufWriter::new(File::create(&path)?);
        weft::write(&make_up(transactions), &mut writer)?;
        writer.flush()?;
        println!("written: {} MiB; call again to read it", std::fs::metadata(&path)?.len() >> 20);
        return Ok(());
    }
    let started = Instant::now();
    let reader = BufReader::with_capacity(1 << 20, File::open(&path)?);
    let history = format::read(reader, None, &mut |_| {})?.history;
    println!("read: {:.2} s, peak {}", started.elapsed().as_secs_f64(), peak_mib());
    judge(&history)
}

fn judge(history: &History) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let report = check(history, &Options::default());
    println!("checked: {:.2} s, peak {}", started.elapsed().as_secs_f64(), peak_mib());
    print!("{report}");
    if report.is_ok() { Ok(()) } else { Err("the history was made up to be serializable".into()) }
}

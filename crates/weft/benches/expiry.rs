//! Measures what the removal of rows that have expired costs other transactions: a million sessions expire at the same
//! moment, while threads run transactions on accounts and sessions.
//!
//! ```text
//! cargo bench -p weft --bench expiry -- [THREADS] [SESSIONS] [hook]
//! ```
//!
//! Prints the latencies before the sessions expire, and from that moment until all of them are removed, and the ratio of
//! the 99th percentiles. Both are measured in rounds of the same length, so that the machine's other load is seen, too.
//! With `hook`, the sessions have a hook that changes an account.

use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record, Table, Timestamp, column_of};

#[derive(Clone, Copy, Record)]
struct Account {
    #[record(key)]
    id: u32,
    balance: i64,
}

#[derive(Clone, Copy, Record)]
#[record(expires = until)]
struct Session {
    #[record(key)]
    id: u64,
    user: u32,
    until: Timestamp,
}

#[derive(Clone, Copy, Record)]
#[record(expires(until, hook))]
struct Reservation {
    #[record(key)]
    id: u64,
    user: u32,
    until: Timestamp,
}

const ACCOUNTS: u32 = 100_000;

/// Sessions that do not expire, and that the load reads.
const LASTING: u64 = 100_000;

/// How long a round lasts.
const ROUND: Duration = Duration::from_secs(1);

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let threads = arguments.next().map_or(2, |text| text.parse().expect("a number of threads"));
    let rows = arguments.next().map_or(1_000_000, |text| text.parse().expect("a number of rows"));
    let has_hook = arguments.next().is_some();
    let database =
        Database::builder().table::<Account>().table::<Session>().table::<Reservation>().open()?;
    let (accounts, sessions) = (database.table::<Account>()?, database.table::<Session>()?);
    let reservations = database.table::<Reservation>()?;
    let credited = accounts.clone();
    database.on_expiry(&reservations, move |tx, row| {
        tx.add(&credited, &(row.user % ACCOUNTS), column_of!(Account.balance), 1)
    })?;
    database.transact(|tx| {
        tx.insert_many(&accounts, (0..ACCOUNTS).map(|id| Account { id, balance: 0 }))
    })?;
    let expires = Timestamp::from(std::time::SystemTime::now()) + fill_time(rows) + 6 * ROUND;
    insert(&database, rows, |tx, id| match has_hook {
        true => tx.insert(&reservations, Reservation { id, user: id as u32, until: expires }),
        false => tx.insert(&sessions, Session { id, user: id as u32, until: expires }),
    })?;
    let later = expires + Duration::from_secs(100_000);
    insert(&database, LASTING, |tx, id| {
        let id = rows + id;
        tx.insert(&sessions, Session { id, user: id as u32, until: later })
    })?;

    let is_over = Word::new(0);
    let begin = Instant::now();
    // Latencies in nanoseconds, with the time of the transaction's end since the beginning.
    let measured: Vec<Vec<(Duration, u32)>> = std::thread::scope(|scope| {
        let load = |thread: u64| {
            let (database, accounts, sessions, is_over) =
                (&database, &accounts, &sessions, &is_over);
            scope.spawn(move || {
                let mut random = thread * 2 + 1;
                let mut latencies = Vec::with_capacity(20_000_000);
                while is_over.load(Ordering::Relaxed) == 0 {
                    let started = Instant::now();
                    transaction(database, accounts, sessions, rows, &mut random)
                        .expect("no failure");
                    let took = started.elapsed().as_nanos().min(u32::MAX.into()) as u32;
                    latencies.push((begin.elapsed(), took));
                }
                latencies
            })
        };
        let running: Vec<_> = (0..threads).map(load).collect();
        let removed = || database.metrics().expiry.expect("rows expire").removed;
        while removed() < rows {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(1, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let now = Timestamp::from(std::time::SystemTime::now());
    let expired_at = begin.elapsed().saturating_sub(now - expires);
    println!("{rows} rows were removed in {:?}", begin.elapsed() - expired_at);
    let p99 = |from: Duration, to: Duration| {
        let within = measured.iter().flatten().filter(|(at, _)| (from..to).contains(at));
        let mut latencies: Vec<u32> = within.map(|(_, latency)| *latency).collect();
        latencies.sort_unstable();
        let at = |part: usize| latencies.get(latencies.len() * part / 1000).copied().unwrap_or(0);
        println!(
            "from {from:5.1?} to {to:5.1?}: {:>8} transactions/s, p50 {:>6} ns, p99 {:>6} ns, p99.9 {:>7} ns",
            (latencies.len() as f64 / (to - from).as_secs_f64()) as u64,
            at(500),
            at(990),
            at(999)
        );
        f64::from(at(990))
    };
    let rounds = |from: Duration, to: Duration| {
        let rounds = ((to - from).as_secs_f64() / ROUND.as_secs_f64()).floor().max(1.0) as u32;
        let mut all: Vec<f64> = (0..rounds)
            .map(|round| p99(from + ROUND * round, from + ROUND * (round + 1)))
            .collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let before = rounds(ROUND, expired_at);
    let beside = rounds(expired_at, begin.elapsed());
    println!(
        "p99 beside the removal is {:.2} times that before (medians of rounds)",
        beside / before
    );
    Ok(())
}

/// About how long it takes to insert so many rows.
fn fill_time(rows: u64) -> Duration {
    Duration::from_micros(4 * rows) + ROUND
}

fn insert(
    database: &Database,
    rows: u64,
    insert: impl Fn(&weft::Transaction<'_>, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut next = 0;
    while next < rows {
        let end = rows.min(next + 1000);
        database.transact(|tx| (next..end).try_for_each(|id| insert(tx, id)))?;
        next = end;
    }
    Ok(())
}

/// Changes an account, and reads three others and a session that does not expire.
fn transaction(
    database: &Database,
    accounts: &Table<Account>,
    sessions: &Table<Session>,
    first: u64,
    random: &mut u64,
) -> Result<(), Error> {
    let mut draw = || {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    };
    let ids: [u32; 4] = std::array::from_fn(|_| (draw() % u64::from(ACCOUNTS)) as u32);
    let session = first + draw() % LASTING;
    database.transact(|tx| {
        let session = tx.get(sessions, &session)?.expect("it does not expire");
        let mut sum = i64::from(session.user);
        for id in &ids[1..] {
            sum += tx.get(accounts, id)?.expect("there is no gap").balance;
        }
        tx.update(accounts, &ids[0], |account| account.balance += sum & 1)?;
        Ok(())
    })
}

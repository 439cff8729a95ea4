//! Makes a report of what the workers have observed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::time::SystemTime;

use hdrhistogram::Histogram;
use weft::commit::{ContentionAction, ContentionPoint};
use weft::encoding::EncodedKey;
use weft::htm::word::Ordering;
use weft::protocol::Protocol;
use weft::store::record::newest;
use weft::store::record::version::VersionHeader;
use weft::store::table::TableRef;
use weft::store::worker::{PinnedWorker, WorkerMemory, contain};
use weft::{Database, Failure, TransactionOptions};

use crate::INSIDE;
use crate::advice::{self, Evidence};
use crate::labels::{FAILURES, Times};
use crate::observer::{Hub, LabelState, PERIOD_NS, hold};
use crate::report::{
    Action, Count, Extent, LabelOrigin, LabelReport, PointLabel, PointReport, Quantiles, Report,
    Sampling, Totals,
};
use crate::sketch::{self, POINTS_MAX, Point};
use crate::totals::{by_cause, nanoseconds};

/// How many points a report has at most, apart from those at which the protocol acts. It has all of these.
const REPORTED_MAX: usize = 32;

pub(crate) fn report<P: Protocol>(database: &Database<P>) -> Result<Report, Failure> {
    let claim = database.claim_worker(&TransactionOptions::new(), INSIDE)?;
    let worker = claim.worker();
    if worker.active.get() {
        return Err(Failure::NestedTransaction);
    }
    let engine = database.open_engine(INSIDE);
    engine.shared.check_open()?;
    let taken = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut report = Report {
        taken_unix_ms: taken.map_or(0, |time| time.as_millis() as u64),
        protocol: P::NAME.to_owned(),
        totals: Totals::of(&database.metrics()),
        ..Report::default()
    };
    let mut points = Points::default();
    let hub = engine.shared.observer.as_ref().and_then(Hub::of);
    if let Some(hub) = hub {
        report.is_observed = true;
        report.observed_ns = nanoseconds(hub.began.elapsed());
        (report.labels, report.sampling) = labels(hub);
        for worker in hold(&hub.workers).iter() {
            let sketch = hold(&worker.sketch);
            report.sampling.lost_ns_error += sketch.error();
            sketch.points().iter().for_each(|point| points.add(point));
            hold(&worker.writes).iter().for_each(|point| points.add(point));
        }
    }
    for ContentionPoint { table, key, action, lasted } in P::contention_points(&engine.protocol) {
        points.act(table, key, action, nanoseconds(lasted));
    }
    let _pinned = PinnedWorker::new(worker);
    // SAFETY: the worker is pinned.
    let mut points = unsafe { points.name(&worker.memory) };
    select(&mut points);
    // Copied, because the user's code runs next, which may need the lock.
    let names = hub.map(|hub| hold(&hub.labels).all().to_vec()).unwrap_or_default();
    report.points = points.into_iter().map(|named| named.report(&names, &report.labels)).collect();
    Ok(report)
}

/// Sorts the points by the time lost, and leaves out those that a report does not have. Points that have lost the same
/// time have a fixed order, so two reports of the same counts have the same points.
fn select(points: &mut Vec<Named>) {
    points.retain(|named| named.acts() || named.merged.point.weight > 0);
    points.sort_by_cached_key(|named| {
        let point = &named.merged.point;
        let core = point.table.core();
        let key = point.key.as_ref().map(bytes_of);
        (Reverse(point.weight), core.name, core.index, key, named.extent as u8)
    });
    let mut rank = 0;
    points.retain(|named| {
        rank += 1;
        rank <= REPORTED_MAX || named.acts()
    });
}

/// Returns what transactions did, by label.
fn labels(hub: &Hub) -> (Vec<LabelReport>, Sampling) {
    /// The sums of all workers for a label.
    struct Sums {
        report: LabelReport,
        aborts: sketch::ByReason,
        failures: [u64; FAILURES.len()],
        times: Times,
    }
    let known = hold(&hub.labels).all().to_vec();
    let mut sums: Vec<Sums> = known
        .into_iter()
        .map(|(label, origin)| Sums {
            report: LabelReport { label, origin, ..LabelReport::default() },
            aborts: Default::default(),
            failures: Default::default(),
            times: Times::new(),
        })
        .collect();
    for worker in hold(&hub.workers).iter() {
        for state in hold(&worker.labels).iter() {
            let LabelState { number, committed, counts, times, .. } = &**state;
            // A label that is newer than the list of labels is in the next report.
            let Some(Sums { report, aborts, failures, times: sum }) = sums.get_mut(*number) else {
                continue;
            };
            // Relaxed: counters that need not be consistent with each other.
            let load = |word: &weft::htm::word::Word| word.load(Ordering::Relaxed);
            report.committed += load(&committed.committed);
            report.rows_read += load(&committed.rows_read);
            report.rows_written += load(&committed.rows_written);
            report.logged_bytes += load(&committed.logged_bytes);
            report.repairs += load(&counts.repairs);
            report.lost_ns += load(&counts.lost_ns);
            report.waiting_ns += load(&counts.waiting_ns);
            aborts.iter_mut().zip(&counts.aborts).for_each(|(sum, word)| *sum += load(word));
            failures.iter_mut().zip(&counts.failures).for_each(|(sum, word)| *sum += load(word));
            sum.merge(&hold(times));
        }
    }
    let log_ns = hold(&hub.log_ns).clone();
    let mut sampling =
        Sampling { period_ns: PERIOD_NS, points_max: POINTS_MAX as u64, ..Sampling::default() };
    let mut reports: Vec<LabelReport> = Vec::new();
    for (number, Sums { mut report, aborts, failures, times }) in sums.into_iter().enumerate() {
        sampling.transactions += report.committed;
        sampling.timed += times.timed;
        sampling.represented += times.latency.len();
        // A transaction that was refused has either begun no attempt, or its attempts were aborted.
        let [error, panic, dropped, ..] = failures;
        report.attempts = report.committed + aborts.iter().sum::<u64>() + error + panic + dropped;
        report.aborts = by_cause(&aborts);
        let failures = FAILURES.iter().zip(failures).filter(|(_, count)| *count > 0);
        report.failures =
            failures.map(|(name, count)| Count { name: (*name).to_owned(), count }).collect();
        report.closure_ns = times.closure_ns;
        report.commit_ns = times.commit_ns;
        report.log_ns = log_ns.get(number).copied().unwrap_or(0);
        report.latency = quantiles(&times.latency, times.timed, times.latency_ns);
        if report.attempts > 0 || !report.failures.is_empty() {
            reports.push(report);
        }
    }
    sampling.relative_error = 1.0 / (sampling.timed.max(1) as f64).sqrt();
    reports.sort_by_key(|report| Reverse(report.latency.sum_ns));
    (reports, sampling)
}

fn quantiles(latency: &Histogram<u64>, samples: u64, sum_ns: u64) -> Quantiles {
    Quantiles {
        samples,
        sum_ns,
        p50_ns: latency.value_at_quantile(0.5),
        p99_ns: latency.value_at_quantile(0.99),
        p999_ns: latency.value_at_quantile(0.999),
        max_ns: latency.max(),
    }
}

/// A point of all workers.
struct Merged {
    point: Point,
    action: Action,
    lasted_ns: Option<u64>,
}

/// The points of all workers, by table and key.
#[derive(Default)]
struct Points(HashMap<(usize, Option<Vec<u8>>), Merged>);

/// Returns a key as bytes.
fn bytes_of(key: &EncodedKey) -> Vec<u8> {
    match key {
        EncodedKey::Words1(word) => word.to_be_bytes().to_vec(),
        EncodedKey::Words2(words) => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
        EncodedKey::Long(key) => key.as_bytes().to_vec(),
    }
}

impl Points {
    fn at(&mut self, table: TableRef, key: Option<EncodedKey>) -> &mut Merged {
        let place = (sketch::address_of(table), key.as_ref().map(bytes_of));
        self.0.entry(place).or_insert_with(|| Merged {
            point: Point::new(table, key),
            action: Action::Nothing,
            lasted_ns: None,
        })
    }

    fn add(&mut self, point: &Point) {
        self.at(point.table, point.key.clone()).point.merge(point);
    }

    fn act(
        &mut self,
        table: TableRef,
        key: Option<EncodedKey>,
        action: ContentionAction,
        lasted_ns: u64,
    ) {
        let merged = self.at(table, key);
        merged.lasted_ns = Some(lasted_ns);
        merged.action = match action {
            ContentionAction::Order => Action::Queued,
            ContentionAction::Split => Action::Split,
            _ => Action::Trial,
        };
    }

    /// Finds the rows, and formats their keys. The points of rows that are gone become part of their table's range, since
    /// transactions that meet at rows which are inserted and deleted meet at the range.
    ///
    /// # Safety
    /// The worker is pinned, for as long as the result is used.
    unsafe fn name(self, memory: &WorkerMemory) -> Vec<Named> {
        let mut named = Vec::new();
        let mut gone = Points::default();
        for (_, merged) in self.0 {
            let (table, core) = (merged.point.table, merged.point.table.core());
            let key = &merged.point.key;
            // SAFETY: by this function's contract.
            let record = key.as_ref().and_then(|key| unsafe { table.find(key) });
            // SAFETY: the index holds addresses of its records, and the worker is pinned.
            let row = record.and_then(|record| unsafe { newest(record) });
            // SAFETY: as above.
            let is_there = |row: &NonNull<u8>| unsafe { !VersionHeader::of(*row).is_deleted() };
            let Some(row) = row.filter(is_there) else {
                match key {
                    None => named.push(Named { merged, key: None, extent: Extent::Range }),
                    Some(_) => gone.at(table, None).point.merge(&merged.point),
                }
                continue;
            };
            let mut text = None;
            contain(|| {
                // SAFETY: a row of the table, and the worker is pinned.
                text = Some(memory.in_user_code(|| unsafe { (core.format_key)(row) }));
            });
            named.push(Named { merged, key: text, extent: Extent::Record });
        }
        let many = take_many(&mut named);
        for (points, extent) in [(gone, Extent::GoneRecords), (many, Extent::ManyRecords)] {
            let points = points.0.into_values();
            named.extend(points.map(|merged| Named { merged, key: None, extent }));
        }
        named
    }
}

/// A table has many points with few conflicts if it has at least so many, each with fewer conflicts.
const MANY_MIN: usize = 8;
const FEW_CONFLICTS: u64 = 3;

/// Takes the points with few conflicts out of the tables that have many of them, and makes one point of each such table.
fn take_many(named: &mut Vec<Named>) -> Points {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    let has_few = |named: &Named| {
        named.extent == Extent::Record
            && !named.acts()
            && named.merged.point.conflicts < FEW_CONFLICTS
    };
    for named in named.iter().filter(|named| has_few(named)) {
        *counts.entry(sketch::address_of(named.merged.point.table)).or_default() += 1;
    }
    let mut many = Points::default();
    named.retain(|named| {
        let table = named.merged.point.table;
        let is_one = has_few(named) && counts[&sketch::address_of(table)] >= MANY_MIN;
        if is_one {
            many.at(table, None).point.merge(&named.merged.point);
        }
        !is_one
    });
    many
}

/// A point with its key for people.
struct Named {
    merged: Merged,
    key: Option<String>,
    extent: Extent,
}

impl Named {
    /// Returns whether the protocol acts at the point.
    fn acts(&self) -> bool {
        self.merged.lasted_ns.is_some()
    }

    fn report(self, names: &[(String, LabelOrigin)], labels: &[LabelReport]) -> PointReport {
        let Named { merged: Merged { point, action, lasted_ns }, key, extent } = self;
        let core = point.table.core();
        let mut description = None;
        // Evaluates the defaults of the columns, which are the user's code.
        contain(|| description = (core.description)(core.name));
        let evidence = Evidence::of(&point, description.as_ref());
        let mut at: Vec<_> = point.labels.iter().collect();
        at.sort_by_key(|at| Reverse((at.lost_ns, at.writes)));
        let name_of =
            |number: usize| names.get(number).map_or(String::new(), |(label, _)| label.clone());
        let mut report = PointReport {
            table: core.name.to_owned(),
            index: core.index.map(str::to_owned),
            is_range: extent != Extent::Record,
            extent,
            key,
            columns: evidence.columns.clone(),
            lost_ns: point.weight - point.error,
            aborts: by_cause(&point.aborts()),
            waits: point.waits,
            waiting_ns: point.waiting_ns,
            repairs: point.repairs,
            action,
            action_lasted_ns: lasted_ns,
            labels: at
                .into_iter()
                .map(|at| PointLabel {
                    label: name_of(at.label),
                    aborts: at.aborts.iter().sum(),
                    lost_ns: at.lost_ns,
                    writes: at.writes,
                })
                .collect(),
            ..PointReport::default()
        };
        report.advice = advice::advise(&report, &point, &evidence, labels, &name_of);
        report
    }
}

#[cfg(test)]
mod tests {
    use weft::Record;

    use super::*;

    #[derive(Clone, Record)]
    struct Page {
        #[record(key)]
        id: u64,
    }

    fn point(table: TableRef, id: u64, weight: u64, acts: bool) -> Named {
        let mut point = Point::new(table, Some(EncodedKey::Words1(id)));
        point.weight = weight;
        let (action, lasted_ns) =
            if acts { (Action::Split, Some(1)) } else { (Action::Nothing, None) };
        Named { merged: Merged { point, action, lasted_ns }, key: None, extent: Extent::Record }
    }

    fn selected(mut points: Vec<Named>) -> Vec<EncodedKey> {
        select(&mut points);
        points.into_iter().map(|named| named.merged.point.key.expect("a record")).collect()
    }

    fn ids(range: std::ops::Range<u64>) -> Vec<EncodedKey> {
        range.map(EncodedKey::Words1).collect()
    }

    /// Fault: points at which the protocol acts were cut off if 32 others had lost more time, in an order that changed
    /// from report to report. So `trace_events` told of decisions that were not made.
    #[test]
    fn points_at_which_the_protocol_acts_are_all_reported() {
        let database = Database::builder().table::<Page>().open().unwrap();
        let table = *database.open_engine(INSIDE).shared.first_table.get().unwrap();

        let acting = (0..40).rev().map(|id| point(table, id, 0, true)).collect();
        assert_eq!(selected(acting), ids(0..40));

        let mut points: Vec<Named> = (0..33).rev().map(|id| point(table, id, 100, false)).collect();
        points.insert(7, point(table, 50, 1, true));
        points.push(point(table, 51, 0, false));
        let mut expected = ids(0..32);
        expected.push(EncodedKey::Words1(50));
        assert_eq!(selected(points), expected);
    }
}

//! The invariants of TATP, checked on a database at rest.
//!
//! A run changes little: one bit and the location of subscribers, one column of special facilities, and the set of
//! call forwardings. Everything else must be as it was loaded; it is drawn again for the comparison. This covers
//! the benchmark's referential integrity: rows of access and of facilities belong to subscribers because the loaded
//! ones do. The number of call forwardings must match the committed insertions and deletions, so one that was lost
//! or done twice breaks it.

use weft::{Failure, Snapshot};

use super::Tables;
use super::client::Ledgers;
use super::load::Family;
use super::schema::{AccessInfo, START_TIMES, SpecialFacility, Subscriber, TYPES, number_of};
use crate::finding::Finding;
use crate::walk;
use crate::workload::{Condition, Progress};

/// A database at rest, and what it should contain.
pub(super) struct DatabaseAtRest<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) tables: &'a Tables,
    pub(super) subscribers: u32,
    /// The seed of the load.
    pub(super) seed: u64,
    pub(super) ledgers: &'a Ledgers,
}

/// Checks every invariant.
pub(super) fn verify(
    tatp: &DatabaseAtRest<'_>,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let subscribers = tatp.subscribers;
    let report = |part: u64, done: u32| {
        if done.is_multiple_of(4096) {
            progress(part * u64::from(subscribers) + u64::from(done), 4 * u64::from(subscribers));
        }
    };
    let findings = [
        subscribers_as_loaded(tatp, |done| report(0, done))?,
        numbers_lead_to_subscribers(tatp, |done| report(1, done))?,
        access_as_loaded(tatp, |done| report(2, done))?,
        facilities_as_loaded(tatp)?,
    ];
    let (forwardings, forwardings_loaded) = forwardings_belong(tatp, |done| report(3, done))?;
    let count = forwardings_counted(tatp, forwardings.checked, forwardings_loaded);
    let findings = findings.into_iter().chain([forwardings, count]);
    Ok(findings.map(Finding::into_condition).collect())
}

/// Checks SUBSCRIBER, except for the columns that are updated, and that no other subscribers exist.
fn subscribers_as_loaded(
    tatp: &DatabaseAtRest<'_>,
    report: impl Fn(u32),
) -> Result<Finding, Failure> {
    let mut finding = Finding::new(
        "SUBSCRIBER: each exists once, with the number of its S_ID, and is as loaded except for BIT_1 \
         and VLR_LOCATION",
    );
    let last = tatp.subscribers;
    walk::keys(tatp.snapshot, &tatp.tables.subscriber, 0..=last + 1, |s_id, row| {
        report(s_id);
        let is_one = (1..=last).contains(&s_id);
        let expected = is_one.then(|| Family::draw(tatp.seed, s_id).subscriber);
        let holds = match (row, expected) {
            (Some(row), Some(loaded)) => {
                let changed = Subscriber { vlr_location: row.vlr_location, ..loaded };
                let mut bit = changed.bit;
                bit[0] = row.bit[0];
                row.sub_nbr == number_of(s_id)
                    && row.vlr_location > 0
                    && *row == Subscriber { bit, ..changed }
            }
            (row, expected) => row.is_none() && expected.is_none(),
        };
        finding.check(holds, format_args!("S_ID {s_id}: {row:?}"));
    })?;
    Ok(finding)
}

/// Checks the unique index of SUBSCRIBER.
fn numbers_lead_to_subscribers(
    tatp: &DatabaseAtRest<'_>,
    report: impl Fn(u32),
) -> Result<Finding, Failure> {
    let mut finding =
        Finding::new("SUB_NBR: the number of each subscriber leads to it; no other number exists");
    let last = tatp.subscribers;
    for s_id in 0..=last + 1 {
        report(s_id);
        let sub_nbr = number_of(s_id);
        let row = tatp.snapshot.get_by(&tatp.tables.subscriber, Subscriber::SUB_NBR, &sub_nbr)?;
        let found = row.map(|row| row.s_id);
        let expected = (1..=last).contains(&s_id).then_some(s_id);
        finding.check(found == expected, format_args!("{sub_nbr} leads to {found:?}"));
    }
    Ok(finding)
}

/// Checks ACCESS_INFO, which never changes.
fn access_as_loaded(tatp: &DatabaseAtRest<'_>, report: impl Fn(u32)) -> Result<Finding, Failure> {
    let mut finding =
        Finding::new("ACCESS_INFO: one to four rows for each subscriber, all of them as loaded");
    let subscribers = 0..=tatp.subscribers + 1;
    let keys = subscribers.flat_map(|s_id| (0..=TYPES + 1).map(move |ai_type| (s_id, ai_type)));
    let mut family = Family::draw(tatp.seed, 1);
    walk::keys(tatp.snapshot, &tatp.tables.access_info, keys, |key, row| {
        let (s_id, ai_type) = key;
        if family.subscriber.s_id != s_id {
            report(s_id);
            family = Family::draw(tatp.seed, s_id);
        }
        let is_one = (1..=tatp.subscribers).contains(&s_id);
        let mut loaded = family.access.iter().filter(|_| is_one);
        let loaded: Option<&AccessInfo> = loaded.find(|loaded| loaded.ai_type == ai_type);
        finding.check(row == loaded, format_args!("{key:?}: {row:?}, not {loaded:?}"));
    })?;
    Ok(finding)
}

/// Checks SPECIAL_FACILITY, except for the column that is updated.
fn facilities_as_loaded(tatp: &DatabaseAtRest<'_>) -> Result<Finding, Failure> {
    let mut finding = Finding::new(
        "SPECIAL_FACILITY: one to four rows for each subscriber, as loaded except for DATA_A, and no \
         others",
    );
    let rows = tatp.snapshot.rows(&tatp.tables.special_facility);
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let mut rows = rows.into_iter().peekable();
    for s_id in 1..=tatp.subscribers {
        let mut loaded = Family::draw(tatp.seed, s_id).facilities;
        loaded.sort_unstable_by_key(|facility| facility.sf_type);
        for facility in loaded {
            let found = rows.next_if(|row| (row.s_id, row.sf_type) == (s_id, facility.sf_type));
            let holds = found.is_some_and(|found| {
                *found == SpecialFacility { data_a: found.data_a, ..facility }
            });
            finding.check(holds, format_args!("{found:?}, not {facility:?}"));
        }
    }
    let left = rows.next();
    finding.check(left.is_none(), format_args!("no such facility was loaded: {left:?}"));
    Ok(finding)
}

/// Checks CALL_FORWARDING against SPECIAL_FACILITY, and returns the number of loaded forwardings.
fn forwardings_belong(
    tatp: &DatabaseAtRest<'_>,
    report: impl Fn(u32),
) -> Result<(Finding, u64), Failure> {
    let mut finding = Finding::new(
        "CALL_FORWARDING: each belongs to a row of SPECIAL_FACILITY, starts at 0, 8 or 16 and has a \
         number of 15 digits",
    );
    let mut loaded = 0;
    let rows = tatp.snapshot.rows(&tatp.tables.call_forwarding);
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let mut rows = rows.into_iter().peekable();
    for s_id in 0..=tatp.subscribers + 1 {
        report(s_id);
        let family = (1..=tatp.subscribers).contains(&s_id).then(|| Family::draw(tatp.seed, s_id));
        loaded += family.as_ref().map_or(0, |family| family.forwardings.len() as u64);
        while let Some(row) = rows.next_if(|row| row.s_id == s_id) {
            let has_facility = family.as_ref().is_some_and(|family| {
                family.facilities.iter().any(|facility| facility.sf_type == row.sf_type)
            });
            let holds = has_facility
                && START_TIMES.contains(&row.start_time)
                && (1..=24).contains(&row.end_time)
                && row.numberx.len() == 15
                && row.numberx.bytes().all(|byte| byte.is_ascii_digit());
            finding.check(holds, format_args!("{row:?}"));
        }
    }
    for row in rows {
        finding.check(false, format_args!("no such subscriber: {row:?}"));
    }
    Ok((finding, loaded))
}

/// Checks the number of rows of CALL_FORWARDING against the clients' accounts.
fn forwardings_counted(tatp: &DatabaseAtRest<'_>, found: u64, loaded: u64) -> Finding {
    let mut finding = Finding::new(
        "CALL_FORWARDING: as many as were loaded and inserted, less those that were deleted",
    );
    let (inserted, deleted) = tatp.ledgers.inserted_and_deleted();
    finding.check(
        found + deleted == loaded + inserted,
        format_args!("{found} rows; {loaded} loaded, {inserted} inserted, {deleted} deleted"),
    );
    finding
}

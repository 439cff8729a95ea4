//! Which records are about to become hot or cold (§3.1), and the thread of its own that decides it.
//!
//! The list holds the addresses of records between transactions. So a record on it must stay: a worker puts it there while it
//! holds the lock of the record's version and has seen that the record has a row. From then on a flag in the record's heat
//! says so, and the collector of deleted records passes over it until it is off the list.
//!
//! Without a thread of its own the list has only records that are turning, and workers complete their flip.

use std::any::Any;

use weft::commit::access_set::TidHeader;
use weft::commit::optimistic::stored;
use weft::protocol::Protocol;
use weft::store::record::RecordPointer;
use weft::sync::reclaim::GracePeriods;
use weft::{Database, Failure};
use weft_htm::word::{Ordering, Word};

use super::heat::HeatHeader;
use super::options::HtccOptions;
use super::{Htcc, HtccShared};
use crate::INSIDE;
use crate::coordinated::{CoordinatedDatabase, wait};
use crate::turn::TurnLock;

/// How often the thread looks whether grace periods have passed, as a part of a period.
const LOOKS_PER_PERIOD: u64 = 8;

/// After so many periods in which a hot record was accessed less than it has to be contended to become hot, it is cold.
const QUIET_PERIODS: u32 = 25;

/// A record on the list.
struct ListedRecord {
    record: RecordPointer<HeatHeader>,
    stage: Stage,
}

// SAFETY: the record is shared by all threads, and stays while it is on the list.
unsafe impl Send for ListedRecord {}

/// How far the flip of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is cold, and its conflicts are counted.
    Counted,
    /// It has just become one that is turning.
    Turned,
    /// It is turning, until the grace period with this tag has passed.
    Turning(u64),
    /// It is hot. It has been accessed little for so many periods.
    Hot(u32),
}

#[derive(Default)]
struct List {
    records: Vec<ListedRecord>,
    /// How many threads of their own look after the list.
    threads: usize,
}

/// The list of records that become hot or cold.
#[derive(Default)]
pub struct Flips {
    list: TurnLock<List>,
    /// How many records are turning for which workers have to look. A hint.
    awaited: Word,
}

impl std::fmt::Debug for Flips {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Flips").finish_non_exhaustive()
    }
}

impl Flips {
    /// Puts a record on the list, unless it is there, has no row, or another thread uses the list or the record just now.
    /// A later conflict puts it there in that case.
    #[cold]
    pub fn list(
        &self,
        record: RecordPointer<HeatHeader>,
        options: &HtccOptions,
        grace: &GracePeriods,
    ) {
        let Some(mut list) = self.list.try_take() else { return };
        if options.background && list.threads == 0 {
            return;
        }
        let header = &stored(record).header;
        let tid = header.tid().load();
        if tid.is_locked() || tid.is_absent() || header.tid().lock_at(tid).is_err() {
            return;
        }
        let is_new = header.heat.list();
        header.tid().unlock(tid);
        if !is_new {
            return;
        }
        let stage = match options.background {
            true => Stage::Counted,
            false => {
                header.heat.turn();
                // Relaxed: a hint.
                self.awaited.fetch_add(1, Ordering::Relaxed);
                Stage::Turning(seal(options, grace))
            }
        };
        list.records.push(ListedRecord { record, stage });
    }

    /// Completes the flip of records whose grace period has passed. Called by a worker that begins a transaction.
    #[inline(always)]
    pub fn complete_as_worker(&self, grace: &GracePeriods, epoch: impl FnOnce() -> u64) {
        // Relaxed: a hint.
        if self.awaited.load(Ordering::Relaxed) > 0 {
            self.complete(grace, epoch());
        }
    }

    #[cold]
    fn complete(&self, grace: &GracePeriods, epoch: u64) {
        let Some(mut list) = self.list.try_take() else { return };
        let horizon = grace.horizon();
        list.records.retain(|listed| match listed.stage {
            Stage::Turning(tag) if tag <= horizon => {
                let heat = &heat_of(listed);
                heat.complete_turn(epoch);
                heat.unlist();
                self.awaited.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
                false
            }
            _ => true,
        });
    }

    /// Looks after the list, as the thread of its own. `ends_period` says whether a period is over.
    fn look(&self, options: &HtccOptions, grace: &GracePeriods, epoch: u64, ends_period: bool) {
        let mut list = self.list.take();
        let horizon = grace.horizon();
        list.records.retain_mut(|listed| listed.advance(options, (horizon, epoch), ends_period));
        let turned = list.records.iter_mut().filter(|listed| listed.stage == Stage::Turned);
        // One grace period for all that have turned.
        let mut tag = None;
        for listed in turned {
            listed.stage = Stage::Turning(*tag.get_or_insert_with(|| seal(options, grace)));
        }
    }
}

/// Begins a grace period for records that are turning, and returns its tag.
fn seal(options: &HtccOptions, grace: &GracePeriods) -> u64 {
    #[cfg(feature = "canary")]
    if options.has_flaw(super::options::HtccFlaw::TurnedAtOnce) {
        return 0;
    }
    let _ = options;
    grace.seal()
}

/// Returns the heat of a record on the list.
fn heat_of(listed: &ListedRecord) -> &super::heat::HeatWord {
    // SAFETY: the collector passes over a record that is on the list, so nothing frees it.
    unsafe { &listed.record.get().header.heat }
}

impl ListedRecord {
    /// Takes the next step of the record's flip, if it is due. Returns whether the record stays on the list.
    fn advance(
        &mut self,
        options: &HtccOptions,
        (horizon, epoch): (u64, u64),
        ends_period: bool,
    ) -> bool {
        let heat = heat_of(self);
        match self.stage {
            Stage::Turning(tag) if tag <= horizon => {
                heat.complete_turn(epoch);
                self.stage = Stage::Hot(0);
            }
            Stage::Counted if ends_period => match heat.take_count() {
                0 => {
                    heat.unlist();
                    return false;
                }
                count if count < u64::from(options.hot_at) => {}
                _ if options.two_phase_flip => {
                    heat.turn();
                    self.stage = Stage::Turned;
                }
                _ => {
                    heat.heat(epoch);
                    self.stage = Stage::Hot(0);
                }
            },
            Stage::Hot(quiet) if ends_period => self.stage = self.cooled(options, quiet),
            _ => {}
        }
        true
    }

    /// Returns the stage of a hot record at the end of a period.
    fn cooled(&self, options: &HtccOptions, quiet: u32) -> Stage {
        let heat = heat_of(self);
        if heat.take_count() >= u64::from(options.hot_at) {
            return Stage::Hot(0);
        }
        let needed = if weft::store::RECLAIMS_EARLY { 1 } else { QUIET_PERIODS };
        if quiet + 1 < needed {
            return Stage::Hot(quiet + 1);
        }
        let is_cold = match options.two_phase_flip {
            true => heat.cool_if_free(),
            false => {
                heat.cool();
                true
            }
        };
        if is_cold { Stage::Counted } else { Stage::Hot(quiet) }
    }
}

/// Counts a thread that looks after the list, as long as it does.
struct Registration<'a>(&'a HtccShared);

impl<'a> Registration<'a> {
    fn begin(shared: &'a HtccShared) -> Self {
        shared.flips.list.take().threads += 1;
        Registration(shared)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut list = self.0.flips.list.take();
        list.threads -= 1;
        if list.threads > 0 {
            return;
        }
        // A record that is turning can be cold again at any time, since it is validated. One that is hot stays hot while a
        // transaction holds its lock; then the next thread finds it by its conflicts.
        for listed in list.records.drain(..) {
            let heat = heat_of(&listed);
            match listed.stage {
                Stage::Hot(_) => {
                    heat.cool_if_free();
                }
                _ => heat.cool(),
            }
            heat.unlist();
        }
    }
}

impl CoordinatedDatabase for Database<Htcc> {
    fn coordinate(&self, goes_on: &dyn Fn() -> bool) -> Result<(), Failure> {
        let engine = self.open_engine(INSIDE);
        let shared = &*engine.protocol;
        if !shared.options.background {
            return Ok(());
        }
        let _registered = Registration::begin(shared);
        let period = shared.options.period.as_nanos() as u64;
        let is_hasty = weft::store::RECLAIMS_EARLY;
        let now = || shared.clock.now();
        let mut period_end = now() + period;
        while goes_on() {
            engine.shared.check_open()?;
            let ends_period = is_hasty || now() >= period_end;
            if ends_period {
                period_end = now() + period;
            }
            let (grace, epoch) = (&engine.shared.grace, engine.shared.clock.epoch());
            shared.flips.look(&shared.options, grace, epoch, ends_period);
            wait(now, now() + period / LOOKS_PER_PERIOD, is_hasty);
        }
        Ok(())
    }

    fn can_do_without(&self) -> bool {
        false
    }
}

/// Returns the database if a thread of its own makes records hot and cold, by its options.
pub(crate) fn background_of<P: Protocol>(
    database: &Database<P>,
) -> Option<&(dyn CoordinatedDatabase + Sync)> {
    let any: &dyn Any = database;
    let database = any.downcast_ref::<Database<Htcc>>()?;
    let options = &database.open_engine(INSIDE).protocol.options;
    (options.background && options.hot == super::HotRecords::Automatic).then_some(database as _)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::BuilderExt;
    use weft::{ConflictReason, Error, Record, Table, TransactionOptions};

    #[derive(Clone, Record)]
    struct Account {
        #[record(key)]
        number: u32,
        cents: i64,
    }

    const CONTENDED: u32 = 1;
    const OTHER: u32 = 2;

    fn open(options: HtccOptions) -> (Database<Htcc>, Table<Account>) {
        let builder = Database::builder().protocol::<Htcc>().table::<Account>().htcc(options);
        let database = builder.open().unwrap();
        let accounts = database.table::<Account>().unwrap();
        for number in [CONTENDED, OTHER] {
            let account = Account { number, cents: 0 };
            database.transact(|tx| tx.insert(&accounts, account.clone())).unwrap();
        }
        (database, accounts)
    }

    /// Changes the contended record in another thread, in one attempt.
    fn add(database: &Database<Htcc>, accounts: &Table<Account>) -> Result<(), Error> {
        let once = TransactionOptions::new().retries_max(0);
        let add = || {
            database.transact_with(&once, |tx| {
                tx.update(accounts, &CONTENDED, |account| account.cents += 1).map(drop)
            })
        };
        std::thread::scope(|scope| scope.spawn(add).join().unwrap())
    }

    /// Makes one transaction fail because the contended record has changed.
    fn conflict(database: &Database<Htcc>, accounts: &Table<Account>) {
        let open = database.begin().unwrap();
        open.get(accounts, &CONTENDED).unwrap();
        open.update(accounts, &OTHER, |account| account.cents += 1).unwrap();
        add(database, accounts).unwrap();
        open.commit().unwrap_err();
    }

    #[test]
    fn a_contended_record_is_hot_after_a_grace_period_until_it_is_left_alone() {
        let options = HtccOptions::new().binding_locks(true).two_phase_flip(true).background(true);
        let (database, accounts) = open(options.hot_at(1));
        let engine = database.open_engine(INSIDE);
        let shared = &*engine.protocol;
        let stages = || -> Vec<Stage> {
            shared.flips.list.take().records.iter().map(|listed| listed.stage).collect()
        };
        let look = || shared.flips.look(&shared.options, &engine.shared.grace, 1, true);
        conflict(&database, &accounts);
        assert_eq!(stages(), [], "no thread looks after the list");
        let registered = Registration::begin(shared);
        conflict(&database, &accounts);
        assert_eq!(stages(), [Stage::Counted]);
        let earlier = database.begin().unwrap();
        look();
        look();
        assert!(
            matches!(stages()[..], [Stage::Turning(_)]),
            "a transaction may have found it cold"
        );
        drop(earlier);
        look();
        assert_eq!(stages(), [Stage::Hot(0)]);

        // The lock binds: a transaction that does not get it aborts.
        let holder = database.begin().unwrap();
        holder.get(&accounts, &CONTENDED).unwrap();
        let denied = add(&database, &accounts).unwrap_err();
        assert!(
            matches!(&denied, Error::Failure(Failure::RetriesExhausted { last, .. })
                if last.reason == ConflictReason::LockDenied),
            "{denied:?}"
        );
        (0..2 * QUIET_PERIODS).for_each(|_| look());
        assert!(matches!(stages()[..], [Stage::Hot(_)]), "its lock is held");
        drop(holder);
        look();
        assert_eq!(stages(), [Stage::Counted]);
        add(&database, &accounts).unwrap();

        look();
        assert_eq!(stages(), [], "a cold record without conflicts is off the list");
        conflict(&database, &accounts);
        drop(registered);
        assert_eq!(stages(), []);
        add(&database, &accounts).unwrap();
    }
}

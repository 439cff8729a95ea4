//! The queue of a pool: jobs that wait for a thread, in order of priority, and the labels of those under way.
//!
//! A job that must wait for another one is in the queue, too, but set apart until [`Queue::admit`] is called for it.
//!
//! A job is in the queue until one of three callers removes it, each under the lock: a thread that runs it
//! ([`Queue::take`]), the submitter who no longer wants it ([`Queue::cancel`]), or a caller that shuts the pool down
//! ([`Queue::shut_down`]). Only the caller that removes a job owns it. So a job is never both run and cancelled, and no
//! job's code runs under the lock.
//!
//! **Priorities.** Each priority has a queue of its own, first in, first out. A thread takes the job that has waited
//! longest in the highest priority. Whenever a lower priority is passed over, this is counted. One that was passed over
//! [`PASSED_OVER_MAX`] times comes next. So of `PASSED_OVER_MAX + 2` jobs that threads of all priorities take, at least
//! one is of each priority that has jobs, and none waits for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::thread::yield_now;
use std::time::{Duration, Instant};

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use weft_htm::blocking::{Condvar, Mutex, MutexGuard};
use weft_htm::word::{Ordering, Word};

/// How often a priority is passed over before one of its jobs comes next.
pub const PASSED_OVER_MAX: u32 = 16;

/// How often a thread looks for a job again before it sleeps, since to be woken costs more than a short transaction.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 4 };

/// How soon a pool runs a submitted transaction.
///
/// A thread takes a submission of high priority before all others in the queue, and one of low priority after all
/// others. But of any 18 submissions that the pool's [threads](super::PoolOptions::threads) take, at least one is of
/// each priority that has submissions in the queue. So a stream of submissions of high priority delays the others, and
/// does not stop them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others. The pool's [urgent threads](super::PoolOptions::urgent_threads) run nothing else.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others.
    Low,
}

const PRIORITIES: usize = Priority::Low as usize + 1;

/// A job's place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    priority: Priority,
    number: u64,
}

/// What a thread gets from the queue.
#[derive(Debug)]
pub enum Taken<J> {
    /// A job, which is under way until [`Queue::end`] is called with this number.
    Job(u64, J),
    /// There is no job at present.
    Nothing,
    /// There will be no job any more.
    ShutDown,
}

/// The threads that sleep while there is no job for them.
#[derive(Clone, Copy)]
enum Group {
    /// Threads that take jobs of all priorities.
    Ordinary,
    /// Threads that take only jobs of high priority.
    Urgent,
}

/// The queue of one pool.
pub struct Queue<J> {
    state: Mutex<State<J>>,
    /// How many turns were given out.
    submitted: Word,
    /// Wakes the threads of each group.
    wake: [Condvar; 2],
    /// Wakes callers of [`Queue::wait_until_ended`].
    ended: Condvar,
}

struct State<J> {
    /// The jobs of each priority, by number.
    waiting: [BTreeMap<u64, Waiting<J>>; PRIORITIES],
    /// The jobs that must wait for another one.
    apart: BTreeMap<Turn, Waiting<J>>,
    /// How often each priority was passed over since one of its jobs was taken.
    passed_over: [u32; PRIORITIES],
    /// The deadlines of the jobs that wait.
    deadlines: BTreeSet<(Instant, Turn)>,
    /// The labels of the jobs under way, by number.
    running: BTreeMap<u64, &'static str>,
    /// How many threads of each group sleep.
    asleep: [usize; 2],
    is_shut_down: bool,
}

struct Waiting<J> {
    job: J,
    label: &'static str,
    deadline: Option<Instant>,
}

impl<J> State<J> {
    /// Chooses the next job of the priorities down to `least`, and counts the priorities that are passed over.
    fn choose(&mut self, least: Priority) -> Option<Turn> {
        let first = |priority: Priority| {
            let (&number, _) = self.waiting[priority as usize].first_key_value()?;
            Some(Turn { priority, number })
        };
        let mut firsts = [Priority::High, Priority::Normal, Priority::Low].map(first);
        firsts[least as usize + 1..].fill(None);
        let is_due = |turn: &&Turn| self.passed_over[turn.priority as usize] >= PASSED_OVER_MAX;
        let highest = firsts.iter().flatten().next()?;
        let chosen = *firsts.iter().flatten().find(is_due).unwrap_or(highest);
        self.passed_over[chosen.priority as usize] = 0;
        for turn in firsts.iter().flatten().filter(|turn| turn.priority > chosen.priority) {
            self.passed_over[turn.priority as usize] += 1;
        }
        Some(chosen)
    }

    /// Removes a job, if it is still in the queue.
    fn remove(&mut self, turn: Turn) -> Option<Waiting<J>> {
        let waiting = self.waiting[turn.priority as usize].remove(&turn.number);
        let waiting = waiting.or_else(|| self.apart.remove(&turn))?;
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, turn));
        }
        Some(waiting)
    }
}

impl<J> std::fmt::Debug for Queue<J> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Queue").field("length", &self.length()).finish_non_exhaustive()
    }
}

impl<J> Queue<J> {
    pub fn new() -> Self {
        let state = State {
            waiting: Default::default(),
            apart: BTreeMap::new(),
            passed_over: [0; PRIORITIES],
            deadlines: BTreeSet::new(),
            running: BTreeMap::new(),
            asleep: [0; 2],
            is_shut_down: false,
        };
        let wake = [Condvar::new(), Condvar::new()];
        Queue { state: Mutex::new(state), submitted: Word::new(0), wake, ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of a job that is submitted now.
    pub fn turn(&self, priority: Priority) -> Turn {
        // Relaxed: the number alone counts.
        Turn { priority, number: self.submitted.fetch_add(1, Ordering::Relaxed) }
    }

    /// Adds a job. If it `waits`, no thread takes it before its deadline, until [`Queue::admit`] is called.
    ///
    /// # Errors
    /// Returns the job if the queue was shut down.
    pub fn push(
        &self,
        turn: Turn,
        label: &'static str,
        deadline: Option<Instant>,
        waits: bool,
        job: J,
    ) -> Result<(), J> {
        let mut state = self.lock();
        if state.is_shut_down {
            return Err(job);
        }
        let waiting = Waiting { job, label, deadline };
        match waits {
            true => state.apart.insert(turn, waiting),
            false => state.waiting[turn.priority as usize].insert(turn.number, waiting),
        };
        let is_first = deadline.is_some_and(|deadline| {
            state.deadlines.insert((deadline, turn));
            state.deadlines.first() == Some(&(deadline, turn))
        });
        self.wake_for(turn, is_first, state);
        Ok(())
    }

    /// Lets threads take a job that waits, if it is still in the queue.
    pub fn admit(&self, turn: Turn) {
        let mut state = self.lock();
        if let Some(waiting) = state.apart.remove(&turn) {
            state.waiting[turn.priority as usize].insert(turn.number, waiting);
            self.wake_for(turn, false, state);
        }
    }

    /// Wakes the threads that may take a job, or whose sleep is too long for its deadline, since this is the first.
    fn wake_for(&self, turn: Turn, is_first: bool, state: MutexGuard<'_, State<J>>) {
        let wakes_ordinary = state.asleep[Group::Ordinary as usize] > 0;
        // An earlier deadline than the ones before ends their sleep earlier. They may wake in vain, if an ordinary
        // thread takes the job.
        let is_urgent = is_first || turn.priority == Priority::High;
        let wakes_urgent = is_urgent && state.asleep[Group::Urgent as usize] > 0;
        drop(state);
        if wakes_ordinary {
            self.wake[Group::Ordinary as usize].notify_one();
        }
        if wakes_urgent {
            self.wake[Group::Urgent as usize].notify_all();
        }
    }

    /// Takes a job whose deadline has passed, or else the next job of the priorities down to `least`. If there is no
    /// job, waits for one if the caller `may_wait`.
    pub fn take(&self, least: Priority, may_wait: bool) -> Taken<J> {
        let mut state = self.lock();
        let mut looks = 0;
        loop {
            let first_deadline = state.deadlines.first().copied();
            let left = first_deadline
                .map(|(deadline, turn)| (deadline.saturating_duration_since(Instant::now()), turn));
            let late = left.filter(|(left, _)| left.is_zero()).map(|(_, turn)| turn);
            if let Some(turn) = late.or_else(|| state.choose(least)) {
                let waiting = state.remove(turn).expect("the job was found under this lock");
                state.running.insert(turn.number, waiting.label);
                return Taken::Job(turn.number, waiting.job);
            }
            if !may_wait {
                return Taken::Nothing;
            }
            if state.is_shut_down {
                return Taken::ShutDown;
            }
            let group = if least == Priority::High { Group::Urgent } else { Group::Ordinary };
            if looks < LOOKS && matches!(group, Group::Ordinary) {
                looks += 1;
                drop(state);
                yield_now();
                state = self.lock();
                continue;
            }
            state = self.sleep(state, group, left.map(|(left, _)| left));
        }
    }

    /// Waits until a job is submitted, or the time has passed.
    fn sleep<'q>(
        &self,
        mut state: MutexGuard<'q, State<J>>,
        group: Group,
        limit: Option<Duration>,
    ) -> MutexGuard<'q, State<J>> {
        let wake = &self.wake[group as usize];
        state.asleep[group as usize] += 1;
        let mut state = match limit {
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                wake.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.asleep[group as usize] -= 1;
        state
    }

    /// Removes a job that no thread has taken yet.
    pub fn cancel(&self, turn: Turn) -> Option<J> {
        self.lock().remove(turn).map(|waiting| waiting.job)
    }

    /// Notes that a job which was taken has ended.
    pub fn end(&self, number: u64) {
        let mut state = self.lock();
        state.running.remove(&number);
        if state.is_shut_down && state.running.is_empty() {
            drop(state);
            self.ended.notify_all();
        }
    }

    /// Ends the queue: no job can be added any more, and threads that have nothing to do are told so. Returns the jobs
    /// that no thread has taken.
    pub fn shut_down(&self) -> Vec<J> {
        let mut state = self.lock();
        state.is_shut_down = true;
        state.deadlines.clear();
        let waiting = std::mem::take(&mut state.waiting);
        let apart = std::mem::take(&mut state.apart);
        drop(state);
        self.wake.iter().for_each(Condvar::notify_all);
        let waiting = waiting.into_iter().flat_map(BTreeMap::into_values);
        waiting.chain(apart.into_values()).map(|waiting| waiting.job).collect()
    }

    /// Waits until all jobs that were taken have ended, or the time has passed. Returns the labels of those that have
    /// not ended.
    pub fn wait_until_ended(&self, limit: Duration) -> Vec<&'static str> {
        let deadline = Instant::now().checked_add(limit);
        let mut state = self.lock();
        while !state.running.is_empty() {
            state = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let woken = self.ended.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.running.values().copied().collect()
    }

    /// Returns whether there is a job of the priorities down to `least`.
    pub fn has_job(&self, least: Priority) -> bool {
        self.lock().waiting[..=least as usize].iter().any(|waiting| !waiting.is_empty())
    }

    /// Returns how many jobs no thread has taken yet.
    pub fn length(&self) -> usize {
        let state = self.lock();
        state.waiting.iter().map(BTreeMap::len).sum::<usize>() + state.apart.len()
    }

    /// Returns the labels of the jobs that were taken and have not ended.
    pub fn running(&self) -> Vec<&'static str> {
        self.lock().running.values().copied().collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(3600);

    fn push(queue: &Queue<u32>, priority: Priority, job: u32) -> Turn {
        push_with(queue, priority, None, job)
    }

    fn push_with(
        queue: &Queue<u32>,
        priority: Priority,
        deadline: Option<Instant>,
        job: u32,
    ) -> Turn {
        let turn = queue.turn(priority);
        queue.push(turn, "a job", deadline, false, job).expect("the queue is open");
        turn
    }

    fn take(queue: &Queue<u32>, least: Priority) -> Option<u32> {
        match queue.take(least, false) {
            Taken::Job(number, job) => {
                queue.end(number);
                Some(job)
            }
            Taken::Nothing | Taken::ShutDown => None,
        }
    }

    #[test]
    fn higher_priorities_come_first_and_equal_ones_in_order() {
        let queue = Queue::new();
        for (job, priority) in [Priority::Low, Priority::Normal, Priority::High].iter().enumerate()
        {
            push(&queue, *priority, job as u32);
            push(&queue, *priority, job as u32 + 10);
        }
        assert_eq!(take(&queue, Priority::High), Some(2));
        assert_eq!(take(&queue, Priority::Low), Some(12));
        assert_eq!(take(&queue, Priority::High), None);
        assert!(!queue.has_job(Priority::High) && queue.has_job(Priority::Normal));
        let rest = std::iter::from_fn(|| take(&queue, Priority::Low));
        assert_eq!(rest.collect::<Vec<_>>(), [1, 11, 0, 10]);
    }

    /// However many jobs of higher priority arrive, each priority gets its turn.
    #[test]
    fn no_priority_starves() {
        let queue = Queue::new();
        for job in 0..100 {
            push(&queue, Priority::Normal, 100 + job);
            push(&queue, Priority::Low, 200 + job);
        }
        let (mut since, mut taken) = ([0; 3], [0; 3]);
        for _ in 0..1000 {
            push(&queue, Priority::High, 0);
            let job = take(&queue, Priority::Low).expect("there are jobs");
            since.iter_mut().for_each(|since| *since += 1);
            since[job as usize / 100] = 0;
            taken[job as usize / 100] += 1;
            assert!(since.iter().all(|&since| since < PASSED_OVER_MAX + 2), "{since:?}");
        }
        assert!(taken.iter().all(|&taken| taken >= 50) && taken[0] > 800, "{taken:?}");
    }

    #[test]
    fn a_passed_deadline_comes_before_every_priority() {
        let queue = Queue::new();
        push(&queue, Priority::High, 1);
        let past = Instant::now();
        push_with(&queue, Priority::Low, Some(past), 2);
        push_with(&queue, Priority::Low, Some(past + LATER), 3);
        assert_eq!(take(&queue, Priority::High), Some(2));
        assert_eq!(take(&queue, Priority::High), Some(1));
        assert_eq!(take(&queue, Priority::High), None);
        assert_eq!(take(&queue, Priority::Low), Some(3));
    }

    #[test]
    fn a_cancelled_job_is_not_taken() {
        let queue = Queue::new();
        let turn = push_with(&queue, Priority::Normal, Some(Instant::now()), 1);
        assert_eq!((queue.length(), queue.cancel(turn)), (1, Some(1)));
        assert_eq!((queue.length(), queue.cancel(turn)), (0, None));
        assert_eq!(take(&queue, Priority::Low), None);
        let turn = push(&queue, Priority::Normal, 2);
        assert_eq!(take(&queue, Priority::Low), Some(2));
        assert_eq!(queue.cancel(turn), None, "it was taken");
    }

    #[test]
    fn a_job_that_waits_is_taken_when_it_is_admitted_or_late() {
        let queue = Queue::new();
        let [first, late, cancelled, left] = [1, 2, 3, 4].map(|job| {
            let turn = queue.turn(Priority::Normal);
            let deadline = (job == 2).then(Instant::now);
            queue.push(turn, "a job", deadline, true, job).expect("the queue is open");
            turn
        });
        push(&queue, Priority::Normal, 5);
        assert_eq!(take(&queue, Priority::Low), Some(2), "its deadline has passed");
        queue.admit(late);
        queue.admit(first);
        assert_eq!(take(&queue, Priority::Low), Some(1), "it keeps its turn");
        assert_eq!(queue.cancel(cancelled), Some(3));
        queue.admit(cancelled);
        assert_eq!((take(&queue, Priority::Low), take(&queue, Priority::Low)), (Some(5), None));
        assert_eq!((queue.length(), queue.shut_down()), (1, vec![4]));
        queue.admit(left);
    }

    #[test]
    fn a_queue_that_was_shut_down_gives_its_jobs_back() {
        let queue = Queue::new();
        push(&queue, Priority::Low, 1);
        let Taken::Job(number, 1) = queue.take(Priority::Low, true) else { panic!("no job") };
        push(&queue, Priority::Low, 2);
        push(&queue, Priority::High, 3);
        assert_eq!(queue.shut_down(), [3, 2]);
        assert_eq!(queue.push(queue.turn(Priority::High), "a job", None, false, 4), Err(4));
        assert!(matches!(queue.take(Priority::Low, true), Taken::ShutDown));
        assert_eq!(queue.wait_until_ended(Duration::from_millis(1)), ["a job"]);
        assert_eq!(queue.running(), ["a job"]);
        queue.end(number);
        assert!(queue.wait_until_ended(LATER).is_empty());
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn push(queue: &Queue<u32>, job: u32) -> Result<Turn, u32> {
        let turn = queue.turn(Priority::Normal);
        queue.push(turn, "a job", None, false, job).map(|()| turn)
    }

    /// A job that is cancelled while a thread looks for one is either run or cancelled. The thread does not miss the
    /// end of the queue.
    #[test]
    fn loom_a_job_is_run_or_cancelled() {
        loom::model(|| {
            let queue = Arc::new(Queue::new());
            let turn = push(&queue, 1).unwrap();
            let thread = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || match queue.take(Priority::Low, true) {
                    Taken::Job(number, job) => {
                        queue.end(number);
                        Some(job)
                    }
                    Taken::Nothing | Taken::ShutDown => None,
                })
            };
            let cancelled = queue.cancel(turn);
            assert!(queue.shut_down().is_empty());
            let ran = thread.join().unwrap();
            assert_eq!((cancelled.is_some(), ran.is_none()), (ran.is_none(), cancelled.is_some()));
        });
    }

    /// Two jobs that are submitted while two threads look for one are run, or given back by the shutdown, which waits for
    /// those that run.
    #[test]
    fn loom_every_job_is_run_or_given_back() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(|| {
            let queue = Arc::new(Queue::new());
            let threads = [Priority::Low, Priority::High].map(|least| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let mut ran = 0;
                    while let Taken::Job(number, _) = queue.take(least, true) {
                        ran += 1;
                        queue.end(number);
                    }
                    ran
                })
            });
            push(&queue, 1).unwrap();
            queue.push(queue.turn(Priority::High), "urgent", None, false, 2).unwrap();
            let given_back = queue.shut_down().len();
            assert!(push(&queue, 3).is_err());
            assert!(queue.wait_until_ended(Duration::MAX).is_empty());
            let ran: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(ran + given_back, 2);
        });
    }

    /// A job that waits is admitted while a thread looks for one, and is run, or given back by the shutdown.
    #[test]
    fn loom_an_admitted_job_is_run_or_given_back() {
        loom::model(|| {
            let queue = Arc::new(Queue::new());
            let turn = queue.turn(Priority::Normal);
            let thread = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    queue.admit(turn);
                    let Taken::Job(number, _) = queue.take(Priority::Low, true) else { return 0 };
                    queue.end(number);
                    1
                })
            };
            queue.push(turn, "a job", None, true, 1).unwrap();
            queue.admit(turn);
            let given_back = queue.shut_down().len();
            assert_eq!(thread.join().unwrap() + given_back, 1);
        });
    }

    /// A submitted job wakes a thread that sleeps, without anything else happening.
    #[test]
    fn loom_a_submission_wakes_a_thread() {
        loom::model(|| {
            let queue = Arc::new(Queue::new());
            let thread = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || matches!(queue.take(Priority::Low, true), Taken::Job(_, 1)))
            };
            push(&queue, 1).unwrap();
            assert!(thread.join().unwrap());
        });
    }
}

//! Members of a replicated database and a log that fails, in an order that a seed decides.
//!
//! What every run checks:
//!
//! - *One history.* A member applies an epoch only in the state in which it was written. So any two members agree, up to
//!   where they are.
//! - *Nothing acknowledged is lost*: a new primary has it, and so has a reader of the whole log in the end. (Only if the log
//!   itself kept its promise. In some runs it loses its end.)
//! - *Reads of a primary are strict*: what was acknowledged by anyone before the read began is in what it returns.
//! - *The protocol goes on*: if the log kept its promise, no member has stopped. When the faults end, a primary
//!   acknowledges another epoch, and all members apply it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::{Event, Member, Request, Role};
use crate::flaw::Flaw;
use crate::reader::{Fault, ReplicationToken};

const LEASE: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_millis(150);
/// After this time a member gives up what it wants to append, and begins again as a standby.
const DEADLINE: Duration = Duration::from_millis(300);
const MEMBERS: usize = 3;
/// A run writes at most this many epochs, and some more after the faults, so that a set of them fits in a number.
const EPOCHS_MAX: usize = 120;

/// What goes wrong with a call of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It fails, and has no effect.
    Lost,
    /// It fails, and has its effect all the same.
    Unanswered,
    /// It fails, and has its effect later.
    Late,
    /// The record is appended twice, the second time a little later.
    Doubled,
}

const TROUBLES: [Trouble; 4] =
    [Trouble::Lost, Trouble::Unanswered, Trouble::Late, Trouble::Doubled];

/// How a run is disturbed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    flaw: Flaw,
    /// Whether calls fail at random.
    is_troubled: bool,
    /// The one call that fails, and how.
    trouble_at: Option<(usize, Trouble)>,
    /// Whether the log loses its end from time to time.
    loses_tail: bool,
}

/// An append on its way.
struct Flight {
    bytes: Arc<[u8]>,
    began: Duration,
    trouble: Option<Trouble>,
    /// The offset, once the record is in the log.
    landed: Option<u64>,
}

/// A read of the primary's state by a client.
struct ClientRead {
    /// What had been acknowledged when it began.
    acknowledged: u128,
    /// What it has read, and when.
    read: Option<(u128, Duration)>,
}

struct Node {
    member: Member,
    /// The epochs in its state, in order, and as a set.
    applied: Vec<u32>,
    applied_set: u128,
    token: ReplicationToken,
    /// The epochs that it has written as the primary and that are not acknowledged.
    written: Vec<u32>,
    last_epoch: u64,
    flight: Option<Flight>,
    stopped: Option<Fault>,
    /// When nothing waited to be appended.
    was_idle: Duration,
    /// It does nothing before this step.
    paused_until: usize,
    client: Option<ClientRead>,
    /// For a planted bug: what the lease was when it was looked at last.
    lease_before: bool,
}

struct Run {
    plan: Plan,
    rng: Rng,
    now: Duration,
    step: usize,
    calls: usize,
    log: Vec<Arc<[u8]>>,
    /// Records that may be appended late.
    limbo: Vec<Arc<[u8]>>,
    nodes: Vec<Node>,
    next_node: u64,
    /// For each epoch, the epoch in whose state it was written, and its content.
    epochs: Vec<(Option<u32>, Vec<u8>)>,
    acknowledged: u128,
    /// The same, each with its generation.
    generations: Vec<(u32, u64)>,
    has_lost_tail: bool,
    is_healed: bool,
    /// How often things have happened, to see that they do.
    seen: HashMap<&'static str, usize>,
}

type Outcome = Result<(), String>;

fn set_of(epochs: &[u32]) -> u128 {
    epochs.iter().fold(0, |set, epoch| set | 1 << epoch)
}

impl Node {
    fn new(number: u64, now: Duration, flaw: Flaw) -> Node {
        let mut member = Member::new(number, LEASE, now);
        member.prepare(flaw);
        Node {
            member,
            applied: Vec::new(),
            applied_set: 0,
            token: ReplicationToken::default(),
            written: Vec::new(),
            last_epoch: 0,
            flight: None,
            stopped: None,
            was_idle: now,
            paused_until: 0,
            client: None,
            lease_before: false,
        }
    }

    fn serves(&self, now: Duration) -> bool {
        self.stopped.is_none()
            && self.member.role() == Role::Primary
            && now >= self.member.serves_from()
    }

    fn add(&mut self, epoch: u32, token: ReplicationToken, written_after: Option<u32>) -> Outcome {
        if self.applied.last().copied() != written_after {
            let state = self.applied.last();
            return Err(format!(
                "epoch {epoch} was written after {written_after:?} and applied after {state:?}"
            ));
        }
        if token <= self.token {
            return Err(format!("{token:?} came after {:?}", self.token));
        }
        self.token = token;
        self.applied.push(epoch);
        self.applied_set |= 1 << epoch;
        Ok(())
    }
}

impl Run {
    fn new(plan: Plan) -> Run {
        let mut run = Run {
            plan,
            rng: Rng::with_seed(plan.seed),
            now: Duration::from_secs(1),
            step: 0,
            calls: 0,
            log: Vec::new(),
            limbo: Vec::new(),
            nodes: Vec::new(),
            next_node: 0,
            epochs: Vec::new(),
            acknowledged: 0,
            generations: Vec::new(),
            has_lost_tail: false,
            is_healed: false,
            seen: HashMap::new(),
        };
        for _ in 0..MEMBERS {
            let node = run.new_node();
            run.nodes.push(node);
        }
        run
    }

    fn new_node(&mut self) -> Node {
        self.next_node += 1;
        Node::new(self.next_node, self.now, self.plan.flaw)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Returns the trouble of the next call of the log.
    fn trouble(&mut self) -> Option<Trouble> {
        self.calls += 1;
        if self.is_healed {
            return None;
        }
        if let Some((at, trouble)) = self.plan.trouble_at
            && at == self.calls
        {
            return Some(trouble);
        }
        (self.plan.is_troubled && self.chance(15))
            .then(|| TROUBLES[self.rng.usize(..TROUBLES.len())])
    }

    fn run(&mut self) -> Outcome {
        for _ in 0..self.rng.usize(100..400) {
            self.disturb();
            let node = self.rng.usize(..MEMBERS);
            if self.step >= self.nodes[node].paused_until {
                self.act(node)?;
            }
        }
        self.heal()
    }

    /// Lets the outside world do something.
    fn disturb(&mut self) {
        self.step += 1;
        self.now += Duration::from_millis(self.rng.u64(..8));
        if !self.limbo.is_empty() && self.chance(8) {
            let late = self.rng.usize(..self.limbo.len());
            let late = self.limbo.swap_remove(late);
            self.log.push(late);
            self.saw("late record");
        }
        let node = self.rng.usize(..MEMBERS);
        if self.chance(3) {
            self.nodes[node].paused_until = self.step + self.rng.usize(..80);
        }
        if self.chance(1) {
            self.restart(node);
            self.saw("crash");
        }
        if self.plan.loses_tail && self.chance(1) && !self.log.is_empty() {
            let lost = self.rng.usize(1..=self.log.len().min(4));
            self.log.truncate(self.log.len() - lost);
            self.has_lost_tail = true;
        }
    }

    fn restart(&mut self, node: usize) {
        let old = self.nodes[node].flight.take();
        self.limbo.extend(old.filter(|flight| flight.landed.is_none()).map(|flight| flight.bytes));
        let paused_until = self.nodes[node].paused_until;
        self.nodes[node] = self.new_node();
        self.nodes[node].paused_until = paused_until;
    }

    /// Lets a node take a step.
    fn act(&mut self, at: usize) -> Outcome {
        if self.nodes[at].stopped.is_some() {
            return Ok(());
        }
        if self.nodes[at].member.is_idle() {
            self.nodes[at].was_idle = self.now;
        } else if self.now > self.nodes[at].was_idle + DEADLINE {
            self.saw("deadline");
            self.restart(at);
        }
        self.act_for_client(at)?;
        let (now, node) = (self.now, &self.nodes[at]);
        let (role, serves) = (node.member.role(), node.serves(now));
        let is_silent = now > node.member.heard() + SILENCE;
        if node.flight.is_some() {
            return self.fly(at);
        }
        if role == Role::Standby && (is_silent || !self.is_healed && self.chance(2)) {
            self.saw("candidate");
            self.nodes[at].member.stand(b"how to read");
        }
        if serves && !self.is_healed && self.epochs.len() < EPOCHS_MAX && self.chance(30) {
            self.write(at);
        }
        if role == Role::Primary && self.chance(20) {
            self.nodes[at].member.beat();
        }
        let appended = match self.nodes[at].member.request() {
            Request::Nothing => return Ok(()),
            Request::Read(from) => return self.read(at, from),
            Request::Append(bytes) => Arc::from(bytes),
        };
        let trouble = self.trouble();
        let flight = Flight { bytes: appended, began: now, trouble, landed: None };
        self.nodes[at].flight = Some(flight);
        Ok(())
    }

    /// Writes an epoch at the primary, and returns its number.
    fn write(&mut self, at: usize) -> u32 {
        let epoch = self.epochs.len() as u32;
        let mut content = epoch.to_le_bytes().to_vec();
        content.extend((0..self.rng.usize(..60)).map(|_| self.rng.u8(..)));
        let node = &mut self.nodes[at];
        let before = node.written.last().or(node.applied.last()).copied();
        node.last_epoch += self.rng.u64(1..3);
        node.member.write(node.last_epoch, &content);
        node.written.push(epoch);
        self.epochs.push((before, content));
        epoch
    }

    /// Brings an append further.
    fn fly(&mut self, at: usize) -> Outcome {
        let must_land = !matches!(
            self.nodes[at].flight.as_ref().and_then(|flight| flight.trouble),
            Some(Trouble::Lost | Trouble::Late)
        );
        let flight = self.nodes[at].flight.as_mut().expect("it flies");
        if must_land && flight.landed.is_none() {
            flight.landed = Some(self.log.len() as u64);
            self.log.push(Arc::clone(&flight.bytes));
            if flight.trouble == Some(Trouble::Doubled) {
                self.limbo.push(Arc::clone(&flight.bytes));
            }
            return Ok(());
        }
        let flight = self.nodes[at].flight.take().expect("it flies");
        let offset = match (flight.trouble, flight.landed) {
            (None | Some(Trouble::Doubled), Some(offset)) => offset,
            (Some(Trouble::Late), _) => {
                self.limbo.push(flight.bytes);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let is_behind = offset < self.nodes[at].member.next_offset();
        let event = self.nodes[at].member.appended(offset, flight.began, self.now);
        if is_behind && event.is_ok() {
            return Err("a member went on although the log had lost its end".to_owned());
        }
        self.handle(at, event)
    }

    fn read(&mut self, at: usize, from: u64) -> Outcome {
        if self.trouble().is_some() {
            return Ok(());
        }
        if from > self.log.len() as u64 {
            let fault = Fault::LostTail { offset: self.log.len() as u64, next: from };
            return self.handle(at, Err(fault));
        }
        let count = self.rng.usize(1..5);
        let records: Vec<_> =
            (from..).zip(self.log[from as usize..].to_vec()).take(count).collect();
        for (offset, bytes) in records {
            let number = self.nodes[at].member.node;
            let event = self.nodes[at].member.read(offset, &bytes, self.now);
            self.handle(at, event)?;
            if self.nodes[at].member.node != number || self.nodes[at].stopped.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn handle(&mut self, at: usize, event: Result<Option<Event>, Fault>) -> Outcome {
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(fault) if self.has_lost_tail => {
                self.saw("stop");
                self.nodes[at].stopped = Some(fault);
                return Ok(());
            }
            Err(fault) => return Err(format!("a member stopped: {fault}")),
        };
        let node = &mut self.nodes[at];
        match event {
            Event::Follows { body, .. } if body == b"how to read" => {}
            Event::Follows { .. } => return Err("the fence's body changed".to_owned()),
            Event::SteppedDown => {
                self.saw("step down");
                self.restart(at);
            }
            Event::Won => {
                node.last_epoch = 0;
                // A candidate that was paused may have won long ago. It has what was acknowledged until then.
                let generation = node.member.token().generation;
                let before = self.generations.iter().filter(|it| it.1 < generation);
                let due = before.fold(0, |set, (epoch, _)| set | 1 << epoch);
                let missing = due & !node.applied_set;
                if missing != 0 && !self.has_lost_tail {
                    return Err(format!(
                        "a new primary lacks the acknowledged epochs {missing:#b}"
                    ));
                }
                self.saw("promotion");
            }
            Event::Apply { token, content } => {
                let number = content.first_chunk().map_or(u32::MAX, |it| u32::from_le_bytes(*it));
                let Some((before, written)) = self.epochs.get(number as usize) else {
                    return Err(format!("epoch {number} was never written"));
                };
                if *written != content {
                    return Err(format!("epoch {number} has another content"));
                }
                node.add(number, token, *before)?;
            }
            Event::Acknowledged(token) => {
                let epoch = node.written.remove(0);
                node.add(epoch, token, self.epochs[epoch as usize].0)?;
                self.acknowledged |= 1 << epoch;
                self.generations.push((epoch, token.generation));
                self.saw("acknowledgement");
            }
        }
        Ok(())
    }

    /// Brings a read of a client further: it begins, reads, and ends when it is certain.
    fn act_for_client(&mut self, at: usize) -> Outcome {
        let (now, acknowledged) = (self.now, self.acknowledged);
        let node = &mut self.nodes[at];
        if !node.serves(now) {
            node.client = None;
            return Ok(());
        }
        let is_flawed = self.plan.flaw == Flaw::LeaseBeforeRead;
        let Some(client) = &mut node.client else {
            if self.rng.u32(..100) < 30 {
                node.client = Some(ClientRead { acknowledged, read: None });
            } else {
                node.lease_before = node.member.was_only_primary(now, now);
            }
            return Ok(());
        };
        let Some((read, ended)) = client.read else {
            client.read = Some((node.applied_set | set_of(&node.written), now));
            return Ok(());
        };
        let is_certain = match is_flawed {
            true => node.lease_before,
            false => node.member.was_only_primary(ended, now),
        };
        // What it has read must be replicated, too.
        if !is_certain || read & !node.applied_set != 0 {
            return Ok(());
        }
        let missing = client.acknowledged & !read;
        node.client = None;
        self.saw("read");
        if missing != 0 && !self.has_lost_tail {
            return Err(format!("a read lacks the acknowledged epochs {missing:#b}"));
        }
        Ok(())
    }

    /// Ends all faults, and checks that the members go on.
    fn heal(&mut self) -> Outcome {
        self.is_healed = true;
        let mut last: Option<u32> = None;
        for _ in 0..2000 {
            self.now += Duration::from_millis(3);
            self.step += 100;
            for at in 0..MEMBERS {
                self.act(at)?;
            }
            let has = |node: &Node| last.is_some_and(|last| node.applied.contains(&last));
            let is_stopped = self.nodes.iter().any(|node| node.stopped.is_some());
            if self.nodes.iter().all(has) || is_stopped {
                return self.check_log();
            }
            // The last epoch of the run, and another one if its primary had been replaced and did not know.
            let is_open = last.is_some_and(|last| {
                self.nodes.iter().any(|node| has(node) || node.written.contains(&last))
            });
            let can_write = |node: &Node| node.serves(self.now) && node.member.is_idle();
            if let Some(at) = self.nodes.iter().position(can_write).filter(|_| !is_open) {
                last = Some(self.write(at));
            }
        }
        Err("the members do not go on after the faults".to_owned())
    }

    /// Checks that a reader of the whole log finds everything that was acknowledged.
    fn check_log(&mut self) -> Outcome {
        if self.has_lost_tail {
            return Ok(());
        }
        let node = self.new_node();
        self.nodes[0] = node;
        let length = self.log.len() as u64;
        while self.nodes[0].member.next_offset() < length {
            self.read(0, self.nodes[0].member.next_offset())?;
        }
        match self.acknowledged & !self.nodes[0].applied_set {
            0 => Ok(()),
            missing => Err(format!("the log lacks the acknowledged epochs {missing:#b}")),
        }
    }
}

/// Returns how many times as much as a usual test is wanted.
fn stress() -> u64 {
    let stress = std::env::var("WEFT_STRESS");
    stress.map_or(1, |stress| stress.parse().expect("WEFT_STRESS is a number"))
}

fn random_plan(seed: u64, flaw: Flaw) -> Plan {
    let loses_tail = seed % 4 == 3;
    Plan { seed, flaw, is_troubled: true, trouble_at: None, loses_tail }
}

#[test]
fn members_agree_and_lose_nothing() {
    let mut seen: HashMap<&'static str, usize> = HashMap::new();
    for seed in 0..4_000 * stress() {
        let plan = random_plan(seed, Flaw::None);
        let mut run = Run::new(plan);
        if let Err(error) = run.run() {
            panic!("{plan:?}: {error}");
        }
        for (what, count) in run.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    let expected = [
        "late record",
        "crash",
        "candidate",
        "promotion",
        "step down",
        "deadline",
        "acknowledgement",
        "read",
        "stop",
    ];
    for what in expected {
        assert!(seen.get(what).is_some_and(|&count| count > 10), "{what}: {seen:?}");
    }
}

#[test]
fn every_call_of_the_log_fails_once() {
    let mut runs = 0;
    for seed in 0..5 * stress() {
        let calm = Plan {
            seed,
            flaw: Flaw::None,
            is_troubled: false,
            trouble_at: None,
            loses_tail: false,
        };
        let mut run = Run::new(calm);
        run.run().unwrap_or_else(|error| panic!("{calm:?}: {error}"));
        for call in 1..=run.calls {
            for trouble in TROUBLES {
                let plan = Plan { trouble_at: Some((call, trouble)), ..calm };
                if let Err(error) = Run::new(plan).run() {
                    panic!("{plan:?}: {error}");
                }
                runs += 1;
            }
        }
    }
    assert!(runs > 1000, "{runs}");
}

/// Runs with a planted bug until a check finds it, and returns the seed and what was found.
fn find(flaw: Flaw) -> (u64, String) {
    for seed in 0..50_000 {
        // A run that panics has found the bug, too.
        let outcome = std::panic::catch_unwind(|| Run::new(random_plan(seed, flaw)).run());
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return (seed, error),
            Err(_) => return (seed, "an assertion failed".to_owned()),
        }
    }
    panic!("no run finds {flaw:?}");
}

#[test]
fn planted_bugs_are_found() {
    for flaw in [
        Flaw::PositionUnchecked,
        Flaw::FenceNotReadBack,
        Flaw::LastFenceWins,
        Flaw::OldGenerationCounts,
        Flaw::FenceKeepsUnfinished,
        Flaw::ChainUnchecked,
        Flaw::LostTailIgnored,
        Flaw::FirstPartAcknowledges,
        Flaw::LeaseFromAnswer,
        Flaw::LeaseBeforeRead,
        Flaw::LeaseNotAwaited,
    ] {
        let (seed, error) = find(flaw);
        println!("{flaw:?}: seed {seed}: {error}");
    }
}

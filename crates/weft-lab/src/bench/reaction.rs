//! `cargo lab bench shift --reaction`: how long after the hot spot has moved `adaptive` decides something about the new one.
//!
//! Clients run as in a benchmark. The calling thread asks the database every two milliseconds at which points something
//! is done or tried, and since when. The moment of the decision is the database's own, so looking late delays nothing.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft_bench::arguments::BenchArguments;
use weft_bench::harness::{JsonTarget, Spread, numeric};
use weft_bench::stop::Stop;
use weft_inspect::InspectDatabase;
use weft_inspect::report::{Action, PointReport};
use weft_protocols::Adaptive;
use weft_workloads::adaptive::options_of;
use weft_workloads::incr::Change;
use weft_workloads::shift::{Kind, Parameters, Shift, hot_spot};
use weft_workloads::variants::protocol_of;
use weft_workloads::{LoadOptions, Workload};

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The names of the tables with the hot spots.
const SPOTS: &str = "shift_spots";
const LINE: &str = "shift_line";

const LEGEND: &str = "\
Milliseconds from each change of the hot spot to the first decision about the new one: that order is
tried or kept there, or that it is split. Not decided: nothing was until the next change.";

/// The reactions to hot spots of one kind, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Reactions {
    kind: &'static str,
    changes: usize,
    not_decided: usize,
    median_ms: Option<f64>,
    greatest_ms: Option<f64>,
}

/// The reactions of one contender.
#[derive(Serialize)]
struct ContenderReactions<'a> {
    protocol: &'a str,
    threads: usize,
    seed: u64,
    change_seconds: f64,
    reactions: Vec<Reactions>,
}

/// A change of the hot spot, and how long after it something was decided about the new one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reaction {
    turn: u64,
    after: Option<Duration>,
}

impl Reactions {
    /// Returns what the reactions sum up to.
    fn of(kind: &'static str, reactions: &[Reaction]) -> Reactions {
        let decided = reactions.iter().filter_map(|reaction| reaction.after);
        let not_decided = reactions.len() - decided.clone().count();
        let spread = Spread::of(decided.map(|after| after.as_secs_f64() * 1e3));
        Reactions {
            kind,
            changes: reactions.len(),
            not_decided,
            median_ms: spread.map(|spread| spread.median),
            greatest_ms: spread.map(|spread| spread.max),
        }
    }

    /// Returns the reactions by kind, and then those to all.
    fn by_kind(reactions: &[Reaction]) -> Vec<Reactions> {
        let kinds = [(Kind::Counter, "add"), (Kind::Row, "modify"), (Kind::Oldest, "take")];
        let of_kind = |(kind, name)| {
            let of = reactions.iter().filter(|reaction| hot_spot(reaction.turn).0 == kind);
            Reactions::of(name, &of.copied().collect::<Vec<_>>())
        };
        kinds.into_iter().map(of_kind).chain([Reactions::of("all", reactions)]).collect()
    }
}

/// Returns whether something is done or tried at the hot spot after `turn` changes.
fn is_about(point: &PointReport, turn: u64) -> bool {
    let (kind, spot) = hot_spot(turn);
    let is_there = match kind {
        Kind::Counter | Kind::Row => {
            point.table == SPOTS && point.key.as_deref() == Some(&spot.key().to_string())
        }
        Kind::Oldest => point.table == LINE,
    };
    is_there && point.action != Action::Nothing
}

/// The changes of the hot spot that have been seen.
struct Watch {
    change: Change,
    reactions: Vec<Reaction>,
}

impl Watch {
    /// Notes what a look at `now` has found.
    fn look(&mut self, now: Instant, points: &[PointReport]) {
        let turn = self.change.count(now);
        if self.reactions.last().is_none_or(|reaction| reaction.turn != turn) {
            self.reactions.push(Reaction { turn, after: None });
        }
        let reaction = self.reactions.last_mut().expect("it was pushed");
        if reaction.after.is_some() {
            return;
        }
        let lasted = points.iter().filter(|point| is_about(point, turn));
        let longest = lasted.filter_map(|point| point.action_lasted_ns).max();
        // What was decided before the change, and holds, needs no time.
        let since_change = now.saturating_duration_since(self.change.since).as_nanos()
            % self.change.every.as_nanos();
        reaction.after = longest.map(|lasted| {
            Duration::from_nanos(since_change as u64).saturating_sub(Duration::from_nanos(lasted))
        });
    }

    /// Returns the reactions to all changes but the first and the last, which were not watched from end to end.
    fn whole(&self) -> &[Reaction] {
        let reactions = self.reactions.get(1..).unwrap_or_default();
        reactions.split_last().map_or(&[], |(_, whole)| whole)
    }
}

/// Runs the clients of one contender, and returns its reactions.
fn measure(
    name: &str,
    arguments: &BenchArguments,
    parameters: &Parameters,
) -> Result<Vec<Reaction>, Stop> {
    let adaptive = options_of(name);
    let options = LoadOptions {
        seed: arguments.seed,
        threads: arguments.threads,
        htm: arguments.htm,
        phase_length: arguments.phase_length(),
        adaptive: adaptive.as_ref(),
        ..LoadOptions::default()
    };
    let failed = |failure: weft::Failure| Stop::Failed(format!("{name}: {failure}"));
    let shift = Shift::<Adaptive>::load(parameters, &options).map_err(failed)?;
    let stopped = Word::new(0);
    // Relaxed: the threads are joined.
    let is_stopped = || stopped.load(Ordering::Relaxed) != 0;
    let client = |thread| {
        let mut client = shift.client(arguments.seed, thread, arguments.threads);
        while !is_stopped() {
            shift.execute(&mut client)?;
        }
        shift.finish(&mut client)
    };
    let begun = Instant::now() + Duration::from_secs_f64(arguments.warmup);
    let length = Duration::from_secs_f64(arguments.seconds * arguments.rounds as f64);
    let mut watch = Watch { change: parameters.change, reactions: Vec::new() };
    let ended = thread::scope(|scope| {
        let clients: Vec<_> =
            (0..arguments.threads).map(|thread| scope.spawn(move || client(thread))).collect();
        thread::sleep(begun.saturating_duration_since(Instant::now()));
        let mut watched = Ok(());
        while watched.is_ok() && begun.elapsed() < length {
            watched = shift.database().contention().map(|report| {
                watch.look(Instant::now(), &report.points);
            });
            thread::sleep(LOOK_INTERVAL);
        }
        stopped.store(1, Ordering::Relaxed);
        let ended = clients.into_iter().map(|client| client.join().expect("no client panics"));
        ended.fold(watched, Result::and)
    });
    ended.map_err(failed)?;
    Ok(watch.whole().to_vec())
}

/// Measures the reactions of each contender, one after the other.
///
/// # Errors
/// A contender is no variant of `adaptive`, the engine failed, or the results cannot be written.
pub fn run(arguments: &BenchArguments, parameters: &Parameters) -> Result<(), Stop> {
    if let Some(other) =
        arguments.protocol.iter().find(|name| protocol_of(name) != <Adaptive as Protocol>::NAME)
    {
        return Err(Stop::Usage(format!(
            "--reaction measures what `adaptive` decides, and '{other}' decides nothing: give \
             --protocol adaptive, or variants of it"
        )));
    }
    let json = arguments.json.as_deref().map(JsonTarget::check).transpose()?;
    let mut all = Vec::new();
    for name in &arguments.protocol {
        // Each contender begins with the first hot spot.
        let change = Change { since: Instant::now(), ..parameters.change };
        let reactions = measure(name, arguments, &Parameters { change, ..*parameters })?;
        all.push(ContenderReactions {
            protocol: name,
            threads: arguments.threads,
            seed: arguments.seed,
            change_seconds: change.every.as_secs_f64(),
            reactions: Reactions::by_kind(&reactions),
        });
    }
    let mut out = io::stdout();
    if let Some(json) = &json {
        json.write(&all, &mut out)?;
    }
    if !json.is_some_and(|json| json.is_standard_output()) {
        let mut table = numeric(
            &["protocol", "hot spot"],
            &["changes", "not decided", "median ms", "greatest ms"],
        );
        for contender in &all {
            for reactions in &contender.reactions {
                let shown = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
                table.add_row([
                    contender.protocol.to_owned(),
                    reactions.kind.to_owned(),
                    reactions.changes.to_string(),
                    reactions.not_decided.to_string(),
                    shown(reactions.median_ms),
                    shown(reactions.greatest_ms),
                ]);
            }
        }
        writeln!(out, "{table}\n{LEGEND}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    fn point(table: &str, key: &str, action: Action, lasted_ms: u64) -> PointReport {
        let mut point = PointReport::default();
        (point.table, point.key) = (table.to_owned(), Some(key.to_owned()));
        (point.action, point.action_lasted_ns) = (action, Some(lasted_ms * 1_000_000));
        point
    }

    #[test]
    fn reaction_is_the_time_from_the_change_to_the_first_decision_there() {
        let since = Instant::now();
        let mut watch = Watch { change: Change { since, every: EVERY }, reactions: Vec::new() };
        let at = |ms| since + Duration::from_millis(ms);
        watch.look(at(50), &[]);
        // The second hot spot is the row 1. What is done at row 0 is not about it.
        watch.look(at(110), &[point(SPOTS, "0", Action::Split, 80)]);
        watch.look(at(140), &[point(SPOTS, "1", Action::Trial, 10)]);
        watch.look(at(190), &[point(SPOTS, "1", Action::Queued, 1)]);
        // The third is the line, which was decided about before the change.
        watch.look(at(210), &[point(LINE, "7", Action::Queued, 60)]);
        // Nothing is decided about the fourth, and the fifth is not seen to its end.
        watch.look(at(310), &[point(SPOTS, "3", Action::Nothing, 5)]);
        watch.look(at(410), &[]);
        let after = |turn, ms: Option<u64>| Reaction { turn, after: ms.map(Duration::from_millis) };
        assert_eq!(watch.whole(), [after(1, Some(30)), after(2, Some(0)), after(3, None)]);
        let all = Reactions::by_kind(watch.whole()).pop().expect("those of all");
        let expected = Reactions {
            kind: "all",
            changes: 3,
            not_decided: 1,
            median_ms: Some(15.0),
            greatest_ms: Some(30.0),
        };
        assert_eq!(all, expected);
    }
}

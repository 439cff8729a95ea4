//! The analysis: finds the conflicts, what is deferred, and the pieces of each procedure.

use std::collections::{BTreeMap, BTreeSet};

use super::Options;
use super::conflict::{Sight, meeting};
use super::defer::Deferral;
use super::graph::Graph;
use super::order::{Before, Why, constraints};
use super::outline::{Outline, OutlineAccess, OutlineStep, Outlines};
use super::partition::Partition;
use super::result::{
    Chopped, Chopping, Conflict, Merge, NotDeferred, Piece, PieceKind, Reason, Standing, StepNumber,
};
use weft::OutlineError;

/// Chops procedures that run beside each other: finds the pieces of each.
///
/// # Errors
/// The outlines are not [possible](Outlines::check).
pub fn chop(outlines: &Outlines, options: Options) -> Result<Chopping, OutlineError> {
    outlines.check()?;
    Ok(Analysis::of(outlines, options).run())
}

struct Analysis<'a> {
    outlines: &'a Outlines,
    options: Options,
    /// For each procedure, whether it reads from snapshots, and is not in the graph.
    on_snapshot: Vec<bool>,
    static_tables: BTreeSet<&'a str>,
    /// The tables whose rows are guarded by tokens, each with the table of its tokens.
    tokens: BTreeMap<&'a str, &'a str>,
    without_token: Vec<(String, String)>,
    conflicts: Vec<Conflict>,
}

impl<'a> Analysis<'a> {
    fn of(outlines: &'a Outlines, options: Options) -> Self {
        let on_snapshot: Vec<bool> =
            outlines.procedures.iter().map(|it| options.snapshots && it.is_read_only()).collect();
        let steps = || outlines.procedures.iter().flat_map(|outline| &outline.steps);
        let changed: BTreeSet<&str> =
            steps().filter(|step| step.changes()).map(|step| step.table.as_str()).collect();
        let all = steps().map(|step| step.table.as_str());
        let static_tables = all.filter(|table| !changed.contains(table)).collect();
        let mut analysis = Analysis {
            outlines,
            options,
            on_snapshot,
            static_tables,
            tokens: BTreeMap::new(),
            without_token: Vec::new(),
            conflicts: Vec::new(),
        };
        analysis.apply_tokens();
        analysis.find_conflicts();
        analysis
    }

    /// Returns the procedures in the graph.
    fn in_graph(&self) -> impl Iterator<Item = (usize, &'a Outline)> {
        let all = self.outlines.procedures.iter().enumerate();
        all.filter(|&(number, _)| !self.on_snapshot[number])
    }

    /// Finds the tables whose rows are guarded by tokens in all procedures of the graph.
    fn apply_tokens(&mut self) {
        let declared = self.outlines.tokens.iter().filter(|_| self.options.tokens);
        let pairs =
            declared.flat_map(|token| token.tables.iter().map(|table| (&token.table, table)));
        let pairs: Vec<_> = pairs.collect();
        for (token, table) in pairs {
            let against = self.in_graph().find_map(|(_, it)| passes_by(it, token, table));
            match against {
                Some(why) => self.without_token.push((table.clone(), why)),
                None => drop(self.tokens.insert(table, token)),
            }
        }
    }

    fn find_conflicts(&mut self) {
        let sight =
            Sight { columns: self.options.columns, commutativity: self.options.commutativity };
        let steps: Vec<_> = self
            .in_graph()
            .flat_map(|(procedure, outline)| {
                let each = outline.steps.iter().enumerate();
                each.map(move |(step, touched)| (StepNumber { procedure, step }, touched))
            })
            .collect();
        for (position, &(one, touched)) in steps.iter().enumerate() {
            for &(other, its) in &steps[position..] {
                let Some(meeting) = meeting(touched, its, sight) else { continue };
                let standing = match self.tokens.contains_key(touched.table.as_str()) {
                    true => Standing::ByToken,
                    false => Standing::Edge,
                };
                self.conflicts.push(Conflict { one, other, meeting, standing });
            }
        }
    }

    fn run(mut self) -> Chopping {
        // Step 4 of the analysis, as listed in `chopping`. Steps 5 to 7 depend on it, and may refuse a deferred
        // step.
        let mut deferral = match self.options.deferral {
            true => Deferral::candidates(self.outlines, &self.conflicts),
            false => Deferral::default(),
        };
        let procedures = loop {
            deferral.settle(self.outlines, &mut self.conflicts);
            let graph = Graph::new(self.outlines, &self.conflicts);
            let all: Vec<Chopped> = (0..self.outlines.procedures.len())
                .map(|procedure| self.chop_one(procedure, &graph, &deferral))
                .collect();
            // A deferred step must be in a piece of its own, or is not deferred.
            let mixed = all.iter().enumerate().find_map(|(procedure, chopped)| {
                let deferred = |&step: &usize| deferral.contains(StepNumber { procedure, step });
                let is_mixed = |piece: &&Piece| {
                    piece.steps.iter().any(deferred) && !piece.steps.iter().all(deferred)
                };
                let piece = chopped.pieces.iter().find(is_mixed)?;
                let step = piece.steps.iter().copied().find(deferred)?;
                Some(StepNumber { procedure, step })
            });
            match mixed {
                Some(step) => deferral.refuse(step, NotDeferred::InPiece),
                None => break all,
            }
        };
        Chopping {
            outlines: self.outlines.clone(),
            options: self.options,
            procedures,
            conflicts: self.conflicts,
            static_tables: self.static_tables.into_iter().map(str::to_owned).collect(),
            not_deferred: deferral.refused,
            without_token: self.without_token,
        }
    }

    /// Chops a procedure in program order, or in another order if that makes more pieces.
    fn chop_one(&self, procedure: usize, graph: &Graph<'_>, deferral: &Deferral) -> Chopped {
        if self.on_snapshot[procedure] {
            let steps = (0..self.outlines.procedures[procedure].steps.len()).collect();
            let pieces = vec![Piece { steps, kind: PieceKind::Reading }];
            let merges = Vec::new();
            return Chopped { on_snapshot: true, pieces, merges, is_as_written: true };
        }
        let as_written = self.chop_in_order(procedure, graph, deferral, false);
        if !self.options.reordering {
            return as_written;
        }
        let reordered = self.chop_in_order(procedure, graph, deferral, true);
        let is_better = reordered.pieces.len() > as_written.pieces.len();
        if is_better { reordered } else { as_written }
    }

    fn chop_in_order(
        &self,
        procedure: usize,
        graph: &Graph<'_>,
        deferral: &Deferral,
        reorder: bool,
    ) -> Chopped {
        let outline = &self.outlines.procedures[procedure];
        let number = |step| StepNumber { procedure, step };
        let mut before = constraints(outline, reorder);
        before.extend(self.token_constraints(outline));
        let mut partition = Partition::new(outline.steps.len(), before);
        let mut merges = Vec::new();
        let mut merge = |partition: &mut Partition, one: usize, other: usize, reason: Reason| {
            if partition.merge(one, other) {
                merges.push(Merge { one, other, reason });
            }
        };

        // Step 5: merge the steps on SC-cycles.
        let mut conflicting =
            (0..outline.steps.len()).filter(|&step| graph.has_edges(number(step)));
        let first = conflicting.next();
        let mut last = first;
        for step in conflicting {
            let from = last.replace(step).expect("there is a first");
            if let Some(way) = graph.way(procedure, from, step) {
                merge(&mut partition, from, step, Reason::Cycle(way));
            }
        }

        // Subscribers read what is deferred in their conflicting piece.
        let subscribes = |step: usize| {
            self.conflicts.iter().any(|conflict| match conflict.standing {
                Standing::Deferred { publisher } => {
                    conflict.across(publisher) == Some(number(step))
                }
                _ => false,
            })
        };
        let subscribing: Vec<usize> = (0..outline.steps.len())
            .filter(|&step| !deferral.contains(number(step)) && subscribes(step))
            .collect();
        let moment = first.or(subscribing.first().copied());
        for &step in &subscribing {
            merge(&mut partition, moment.expect("there is one"), step, Reason::Subscribes);
        }

        // Steps 6 and 7: the order, and the first piece.
        let rollbacks: Vec<usize> =
            (0..outline.steps.len()).filter(|&step| outline.steps[step].may_roll_back).collect();
        if let Some((&first, rest)) = rollbacks.split_first() {
            for &step in rest {
                merge(&mut partition, first, step, Reason::Rollback { step });
            }
        }
        loop {
            if let Some(circle) = partition.circle() {
                for before in &circle {
                    let reason = Reason::Order(circle.clone());
                    merge(&mut partition, before.first, before.then, reason);
                }
                continue;
            }
            let Some(&step) = rollbacks.first() else { break };
            match partition.before(partition.group(step)) {
                Some(before) => {
                    let reason =
                        Reason::Rollback { step: rollback_after(&partition, &before, &rollbacks) };
                    merge(&mut partition, before.first, before.then, reason);
                }
                None => break,
            }
        }

        let first = rollbacks.first().map(|&step| partition.group(step));
        let pieces: Vec<Piece> = partition
            .in_order(first)
            .into_iter()
            .map(|steps| {
                let kind = self.kind_of(procedure, &steps, graph, deferral, &subscribing);
                Piece { steps, kind }
            })
            .collect();
        let as_written = pieces.iter().flat_map(|piece| piece.steps.iter().copied());
        let is_as_written = as_written.eq(0..outline.steps.len())
            && pieces.windows(2).all(|two| {
                let (last, next) = (two[0].steps.last(), two[1].steps.first());
                let (Some(&last), Some(&next)) = (last, next) else { return false };
                !outline.share_a_loop(last, next)
            });
        Chopped { on_snapshot: false, pieces, merges, is_as_written }
    }

    /// Returns the constraints by tokens: a token is inserted after its rows, and deleted before they are
    /// touched.
    fn token_constraints(&self, outline: &'a Outline) -> Vec<Before> {
        let mut all = Vec::new();
        for (of_row, row) in outline.steps.iter().enumerate() {
            let Some(&token) = self.tokens.get(row.table.as_str()) else { continue };
            for (of_token, step) in outline.steps.iter().enumerate() {
                if step.table != token {
                    continue;
                }
                match step.access {
                    OutlineAccess::Insert => {
                        all.push(Before { first: of_row, then: of_token, why: Why::Token });
                    }
                    OutlineAccess::Delete => {
                        all.push(Before { first: of_token, then: of_row, why: Why::Token });
                    }
                    _ => {}
                }
            }
        }
        all
    }

    fn kind_of(
        &self,
        procedure: usize,
        steps: &[usize],
        graph: &Graph<'_>,
        deferral: &Deferral,
        subscribing: &[usize],
    ) -> PieceKind {
        let number = |step: usize| StepNumber { procedure, step };
        let outline = |step: usize| &self.outlines.procedures[procedure].steps[step];
        let any = |holds: &dyn Fn(usize) -> bool| steps.iter().any(|&step| holds(step));
        if any(&|step| deferral.contains(number(step))) {
            PieceKind::Deferred
        } else if any(&|step| graph.has_edges(number(step)) || subscribing.contains(&step)) {
            PieceKind::Conflicting
        } else if any(&|step| self.tokens.contains_key(outline(step).table.as_str())) {
            PieceKind::Exclusive
        } else if any(&|step| outline(step).changes()) {
            PieceKind::Commutative
        } else if self.options.static_tables
            && !any(&|step| !self.static_tables.contains(outline(step).table.as_str()))
        {
            PieceKind::Static
        } else {
            PieceKind::Reading
        }
    }
}

/// Returns the last of the steps that may roll back among those that the first piece has so far.
fn rollback_after(partition: &Partition, before: &Before, rollbacks: &[usize]) -> usize {
    let group = partition.group(before.then);
    let within = rollbacks.iter().copied().filter(|&step| partition.group(step) == group);
    within.max().expect("it is their piece")
}

/// Returns why the rows of a table are not guarded by tokens in a procedure, if they are not.
fn passes_by(outline: &Outline, token: &str, table: &str) -> Option<String> {
    use OutlineAccess::{Delete, Insert, Upsert};
    let of = |name: &str| -> Vec<&OutlineStep> {
        outline.steps.iter().filter(|step| step.table == name).collect()
    };
    let (rows, tokens) = (of(table), of(token));
    let does = |access| tokens.iter().any(|step| step.access == access);
    let name = &outline.name;
    if rows.is_empty() {
        return None;
    }
    if does(Upsert) {
        return Some(format!("{name} upserts rows of {token}, and may replace others"));
    }
    let (has, wrong) = match (does(Insert), does(Delete)) {
        (true, true) => return Some(format!("{name} both inserts and deletes rows of {token}")),
        (false, false) => {
            return Some(format!("{name} neither inserts nor deletes rows of {token}"));
        }
        (true, false) => ("inserts", rows.iter().find(|step| step.access != Insert)),
        (false, true) => {
            let changes_rows = |access| matches!(access, Insert | Upsert | Delete);
            ("deletes", rows.iter().find(|step| changes_rows(step.access)))
        }
    };
    wrong.map(|step| {
        format!("{name} {has} rows of {token}, but its step on {table} is '{}'", step.word())
    })
}

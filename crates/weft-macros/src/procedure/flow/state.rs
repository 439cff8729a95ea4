//! What the analysis knows of variables at a point of the body.

use std::collections::{BTreeMap, BTreeSet};

/// The steps from whose results something is computed. If it also comes from results of earlier iterations of a
/// loop, the step's entry has the depth of the outermost such loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origins(pub BTreeMap<usize, Option<usize>>);

impl Origins {
    pub fn of_step(step: usize) -> Origins {
        Origins(BTreeMap::from([(step, None)]))
    }

    pub fn add(&mut self, other: &Origins) {
        for (&step, &carried) in &other.0 {
            let known = self.0.entry(step).or_insert(carried);
            *known = match (*known, carried) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
    }

    pub fn and(mut self, other: &Origins) -> Origins {
        self.add(other);
        self
    }

    /// Turns the origins into those that the next iteration of a loop finds: results of the loop's steps are
    /// then those of an earlier iteration.
    pub fn carry(&mut self, depth: usize, steps: &impl Fn(usize) -> bool) {
        for (_, carried) in self.0.iter_mut().filter(|(step, _)| steps(**step)) {
            *carried = Some(carried.map_or(depth, |outer| outer.min(depth)));
        }
    }

    /// Turns the origins into those after a loop. They come from all iterations, which need not be noted.
    fn leave(&mut self, depth: usize) {
        for carried in self.0.values_mut() {
            *carried = carried.filter(|&outer| outer < depth);
        }
    }
}

/// A variable, numbered by its declaration. A declaration that is analysed twice gets two numbers.
pub type Variable = usize;

/// What a variable may hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    pub whole: Origins,
    /// The origins of what was written to single fields.
    pub fields: BTreeMap<String, Origins>,
    /// The variables that can be changed through it.
    pub aliases: BTreeSet<Variable>,
}

impl Held {
    /// Returns the origins of the whole value.
    pub fn all(&self) -> Origins {
        self.fields.values().fold(self.whole.clone(), Origins::and)
    }

    pub fn field(&self, name: &str) -> Origins {
        let of_field = self.fields.get(name).cloned().unwrap_or_default();
        self.whole.clone().and(&of_field)
    }

    fn each(&mut self, change: impl Fn(&mut Origins)) {
        change(&mut self.whole);
        self.fields.values_mut().for_each(change);
    }
}

/// What is known of all variables at a point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State(pub BTreeMap<Variable, Held>);

impl State {
    /// Joins the state of another path that leads to the same point.
    pub fn join(&mut self, other: &State) {
        for (variable, held) in &other.0 {
            let own = self.0.entry(*variable).or_default();
            own.whole.add(&held.whole);
            for (name, origins) in &held.fields {
                own.fields.entry(name.clone()).or_default().add(origins);
            }
            own.aliases.extend(&held.aliases);
        }
    }

    /// Forgets variables that have gone out of scope.
    pub fn forget(&mut self, gone: &BTreeSet<Variable>) {
        self.0.retain(|variable, _| !gone.contains(variable));
        for held in self.0.values_mut() {
            held.aliases.retain(|alias| !gone.contains(alias));
        }
    }

    pub fn carry(&mut self, depth: usize, steps: impl Fn(usize) -> bool) {
        let carry = |origins: &mut Origins| origins.carry(depth, &steps);
        self.0.values_mut().for_each(|held| held.each(carry));
    }

    pub fn leave(&mut self, depth: usize) {
        self.0.values_mut().for_each(|held| held.each(|origins| origins.leave(depth)));
    }
}

/// What is known of the value of an expression.
#[derive(Clone, Debug, Default)]
pub struct Value {
    pub origins: Origins,
    /// The variables that can be changed through it.
    pub aliases: BTreeSet<Variable>,
}

impl Value {
    pub fn of(origins: Origins) -> Value {
        Value { origins, aliases: BTreeSet::new() }
    }

    pub fn and(mut self, other: &Value) -> Value {
        self.origins.add(&other.origins);
        self.aliases.extend(&other.aliases);
        self
    }
}

//! How an invariant is checked: in many places, of which the first that is wrong is reported.

use std::fmt;

use crate::workload::Condition;

/// One invariant, and what has been found of it so far.
#[derive(Debug)]
pub(crate) struct Finding {
    name: &'static str,
    pub(crate) checked: u64,
    pub(crate) violation: Option<String>,
}

impl Finding {
    /// Nothing yet of the invariant that `name` says in words.
    pub(crate) fn new(name: &'static str) -> Finding {
        Finding { name, checked: 0, violation: None }
    }

    /// Notes that it was checked in one more place; `violation` describes it if it does not hold
    /// there.
    #[inline]
    pub(crate) fn check(&mut self, holds: bool, violation: fmt::Arguments<'_>) {
        self.checked += 1;
        if !holds && self.violation.is_none() {
            self.violation = Some(violation.to_string());
        }
    }

    /// What became of the invariant.
    pub(crate) fn into_condition(self) -> Condition {
        Condition {
            name: self.name.to_owned(),
            holds: self.violation.is_none(),
            checked: self.checked,
            detail: self.violation,
        }
    }
}

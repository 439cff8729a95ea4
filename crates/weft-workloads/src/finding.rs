//! The check of an invariant: in many places, of which the first violation is reported.

use std::fmt;

use crate::workload::Condition;

/// An invariant, and the results of checking it so far.
#[derive(Debug)]
pub(crate) struct Finding {
    name: &'static str,
    pub(crate) checked: u64,
    pub(crate) violation: Option<String>,
}

impl Finding {
    /// Creates a finding without checks. `name` is the invariant in words.
    pub(crate) fn new(name: &'static str) -> Finding {
        Finding { name, checked: 0, violation: None }
    }

    /// Records a check in one more place. `violation` describes the violation if the invariant does not hold there.
    #[inline]
    pub(crate) fn check(&mut self, holds: bool, violation: fmt::Arguments<'_>) {
        self.checked += 1;
        if !holds && self.violation.is_none() {
            self.violation = Some(violation.to_string());
        }
    }

    /// Returns the result for the invariant.
    pub(crate) fn into_condition(self) -> Condition {
        Condition {
            name: self.name.to_owned(),
            holds: self.violation.is_none(),
            checked: self.checked,
            detail: self.violation,
        }
    }
}

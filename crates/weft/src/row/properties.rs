//! Properties of many types, whose runner is compiled once. proptest's own macro compiles it for each property: this was the
//! most of what compiling the unit tests took.

use std::fmt::{self, Debug};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

/// A generated value, and what is checked of it.
trait Case: Debug {
    fn check(&self) -> TestCaseResult;
}

struct Checked<T> {
    value: T,
    check: fn(&T) -> TestCaseResult,
}

impl<T: Debug> Debug for Checked<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(formatter)
    }
}

impl<T: Debug> Case for Checked<T> {
    fn check(&self) -> TestCaseResult {
        (self.check)(&self.value)
    }
}

/// Checks generated values. If one fails, prints the smallest that was found, and notes its seed, which is tried first the
/// next time.
pub fn check_property<T: Debug + 'static>(
    source: &'static str,
    values: impl Strategy<Value = T> + 'static,
    check: fn(&T) -> TestCaseResult,
) {
    let case = move |value| Arc::new(Checked { value, check }) as Arc<dyn Case>;
    run(source, &values.prop_map(case).boxed());
}

fn run(source: &'static str, cases: &BoxedStrategy<Arc<dyn Case>>) {
    let mut runner = TestRunner::new(Config { source_file: Some(source), ..Config::default() });
    if let Err(error) = runner.run(cases, |case| case.check()) {
        panic!("{error}\n{runner}");
    }
}

#[test]
fn a_property_that_does_not_hold_fails_with_the_smallest_value() {
    let cases = any::<u32>().prop_map(|value| {
        let check = |value: &u32| {
            prop_assert!(*value < 1000);
            Ok(())
        };
        Arc::new(Checked { value, check }) as Arc<dyn Case>
    });
    let config = Config { failure_persistence: None, ..Config::default() };
    let error = TestRunner::new(config).run(&cases.boxed(), |case| case.check()).unwrap_err();
    assert!(error.to_string().contains("minimal failing input: 1000"), "{error}");
}

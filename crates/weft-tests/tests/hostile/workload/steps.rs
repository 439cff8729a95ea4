//! A step of the workload: a transaction, and what it is expected to leave.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use weft::protocol::Protocol;
use weft::{Error, Transaction};

use super::{Model, OTHERS, PAIR, TOUCHED, World, options};
use crate::hook::{Answer, Misbehaved, Operation, called, with_transaction};
use crate::live::violation;
use crate::types::Refusal;

/// As [`Step`], with a function that lets another thread run.
type StepBeside<'a, P> =
    &'a dyn Fn(&Transaction<'_, P>, &mut Model, &dyn Fn()) -> Result<(), Refusal>;

type Step<'a, P> = &'a dyn Fn(&Transaction<'_, P>, &mut Model) -> Result<(), Refusal>;

/// Reports a panic that this suite has not caused.
pub(super) fn judge(panic: &(dyn Any + Send), is_truthful: bool, step: &str) {
    if panic.is::<Misbehaved>() {
        return;
    }
    let text = match panic.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => panic.downcast_ref::<&str>().copied().unwrap_or("something"),
    };
    // A transaction whose body has caught a panic ends with this message.
    if is_truthful && !text.contains("was left half done") {
        violation(format!("step '{step}': the engine panicked: {text}"));
    }
}

impl<P: Protocol> World<P> {
    /// Runs a transaction. If it is acknowledged, the model that its body has updated becomes the expected state.
    pub(super) fn step(&self, name: &str, body: Step<'_, P>) -> bool {
        let number = self.acknowledged.steps.fetch_add(1, SeqCst) + 1;
        let before = self.acknowledged.model.lock().unwrap().clone();
        let draft = RefCell::new(before.clone());
        let run = |tx: &Transaction<'_, P>| -> Result<(), Refusal> {
            let mut model = before.clone();
            let use_transaction = || self.use_transaction(tx);
            with_transaction(&use_transaction, || {
                if called(Operation::TransactionBody) == Answer::Lie {
                    return Err(Refusal::Refused);
                }
                if !P::SINGLE_KEY {
                    // A single thread writes these two rows, so they differ only if half a transaction is visible.
                    if self.pair(tx, PAIR[0])? != self.pair(tx, PAIR[1])? {
                        violation("half a transaction is visible".to_owned());
                    }
                    self.change_pair(tx, PAIR[0], &|pair| pair.value = number)?;
                }
                body(tx, &mut model)?;
                if !P::SINGLE_KEY {
                    self.change_pair(tx, PAIR[1], &|pair| pair.value = number)?;
                    model.pair = number;
                }
                Ok(())
            })?;
            *draft.borrow_mut() = model;
            Ok(())
        };
        match catch_unwind(AssertUnwindSafe(|| self.database.transact_with(&options(), run))) {
            Ok(Ok(())) => {
                *self.acknowledged.model.lock().unwrap() = draft.into_inner();
                true
            }
            Ok(Err(_)) => false,
            Err(panic) => {
                judge(&*panic, self.is_truthful, name);
                false
            }
        }
    }

    /// The action of user code that uses the current transaction.
    fn use_transaction(&self, tx: &Transaction<'_, P>) {
        if let Some((rows, _)) = &self.indexed {
            let _ = Self::get(tx, rows, 1);
            let _ = Self::update(tx, rows, 2, &|_| ());
            let _ = tx.range(rows, ..).filter(|row| row.is_ok()).count();
        }
        let _ = self.change_pair(tx, TOUCHED, &|pair| pair.value += 1);
        let _ = self.change_bare(tx, 1, &|_| ());
        let _ = self.add(tx, 0);
    }

    pub(super) fn on_a_thread(&self, run: impl FnOnce() + Send) {
        if P::WORKERS_MAX > 1 {
            thread::scope(|scope| {
                let ended = scope.spawn(|| catch_unwind(AssertUnwindSafe(run))).join().unwrap();
                let _ =
                    ended.map_err(|panic| judge(&*panic, self.is_truthful, "on another thread"));
            });
        } else {
            run();
        }
    }

    /// Takes a step, and lets another thread run a transaction while it calls `let_other_run`, if the protocol allows
    /// that.
    pub(super) fn step_beside(
        &self,
        name: &str,
        other: &(dyn Fn(&Transaction<'_, P>) -> Result<(), Error> + Sync),
        body: StepBeside<'_, P>,
    ) {
        if P::WORKERS_MAX == 1 {
            return;
        }
        let is_over = AtomicBool::new(false);
        let run_other = || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                self.transact(&|tx| {
                    other(tx)?;
                    self.change_pair(tx, OTHERS, &|pair| pair.value += 1).map(drop)
                })
            }));
            match ended {
                Ok(Ok(())) => drop(self.acknowledged.others.fetch_add(1, SeqCst)),
                Ok(Err(_)) => {}
                Err(panic) => judge(&*panic, self.is_truthful, "the other thread"),
            }
            is_over.store(true, SeqCst);
        };
        thread::scope(|scope| {
            let running = Cell::new(None);
            let let_other_run = || match running.take() {
                None => {
                    running.set(Some(scope.spawn(run_other)));
                    let until = Instant::now() + Duration::from_millis(1);
                    while !is_over.load(SeqCst) && Instant::now() < until {
                        thread::yield_now();
                    }
                }
                some => running.set(some),
            };
            self.step(name, &|tx, model| body(tx, model, &let_other_run));
            if let Some(running) = running.take() {
                running.join().expect("the thread catches panics");
            }
        });
    }
}

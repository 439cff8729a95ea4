//! Who takes part when locks are compared: which of them, around what, taken and elided.
//!
//! The names of what can be chosen are those of the options, which every program calls alike.

use weft::Failure;
use weft::htm::lock::{Lock, Mcs, OccRwLock, SrwLock, Tatas};

use super::{Kinds, Locks, Map, Parameters, Probe, Register, StorageManager, Structure, Unlocked};
use crate::workload::LoadOptions;

/// What is added to the name of a lock that is elided.
const ELIDED: &str = "+elided";

/// What is added instead where the tree has one latch.
const COARSE: &str = "+coarse";

/// The storage manager's name among the locks.
const MANAGER: &str = "manager";

/// The map's.
const MAP: &str = "map";

/// What the locks protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protected {
    /// Rows, under one lock: [`Register`].
    Rows,
    /// A B+-tree, under one latch: [`Probe`].
    Tree,
    /// The parts of a [`StorageManager`].
    Manager,
    /// A [`Map`]: all of it by one lock that is elided, or each record by its own.
    Map,
}

impl Protected {
    /// All of them.
    pub const ALL: [Protected; 4] =
        [Protected::Rows, Protected::Tree, Protected::Manager, Protected::Map];

    /// The workload's name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Protected::Rows => "getsubdata",
            Protected::Tree => "probe",
            Protected::Manager => MANAGER,
            Protected::Map => MAP,
        }
    }
}

/// A comparison of locks.
#[derive(Clone, Debug)]
pub struct Contest {
    /// What they protect.
    pub protected: Protected,
    /// The locks' names; of a storage manager, those of the kinds that are elided.
    pub locks: Vec<String>,
    /// Whether they are elided, one after the other.
    pub elisions: Vec<bool>,
    /// Whether the tree of a storage manager is probed under one latch.
    pub is_coarse: bool,
    /// How long each section of a storage manager's page computes: see [`StorageManager::working`].
    pub work: u64,
    /// Size of what they protect.
    pub parameters: Parameters,
}

/// Is handed what was loaded, whatever type it has.
pub trait Visitor {
    /// What the visitor makes of it.
    type Result;

    /// Gets to know it.
    fn visit<S: Structure + 'static>(self, locks: Locks<S>) -> Self::Result;
}

impl Contest {
    /// The names of the locks.
    pub const LOCKS: [&'static str; 5] =
        [Unlocked::NAME, OccRwLock::NAME, Tatas::NAME, Mcs::NAME, SrwLock::NAME];

    /// Checks what depends on more than one option.
    ///
    /// # Errors
    /// What does not go together, and what does.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_manager = self.protected == Protected::Manager;
        let is_unlocked = self.is_among(Unlocked::NAME);
        if self.is_coarse && !is_manager {
            return Err(
                "--coarse is for --workload manager; --workload probe has one latch anyway",
            );
        }
        if self.work > 0 && !is_manager {
            return Err("--work is for --workload manager: there are its pages");
        }
        if is_manager && is_unlocked {
            return Err("--workload manager has all of its locks: --lock names those to be elided");
        }
        let has_updates = self.parameters.updates > 0;
        if has_updates && (self.protected != Protected::Rows || is_unlocked) {
            return Err("--updates needs --workload getsubdata, and a lock: not --lock none");
        }
        if self.parameters.mix != Parameters::default().mix && !is_manager {
            return Err("--mix is for --workload manager: the others have one transaction");
        }
        if self.parameters.theta > 0.0 && self.protected != Protected::Map {
            return Err("--theta is for --workload map: the others draw as TATP does");
        }
        Ok(())
    }

    /// What is compared, in words.
    pub fn title(&self) -> String {
        match (self.protected, self.parameters.updates) {
            (Protected::Rows, 0) => "Locks around the rows of subscribers".to_owned(),
            (Protected::Rows, updates) => {
                format!("Locks around the rows of subscribers, {updates} % updated")
            }
            (Protected::Tree, _) => "Locks around a B+-tree of subscribers".to_owned(),
            (Protected::Manager, _) => {
                let Parameters { mix, .. } = self.parameters;
                format!("A storage manager, mix {mix}; elided: {}", self.locks.join(", "))
            }
            (Protected::Map, _) => {
                let Parameters { theta, .. } = self.parameters;
                format!("Ten updates of a hash map's records, theta {theta}")
            }
        }
    }

    /// What there are `subscribers` of.
    pub fn size_of(&self) -> &'static str {
        if self.protected == Protected::Map { "record" } else { "subscriber" }
    }

    /// The names of those who take part, in order.
    pub fn names(&self) -> Vec<String> {
        let itself = [self.protected.name().to_owned()];
        let locks = match self.protected {
            Protected::Manager | Protected::Map => &itself,
            Protected::Rows | Protected::Tree => self.locks.as_slice(),
        };
        let elided = if self.is_coarse { COARSE } else { ELIDED };
        let mut names = Vec::new();
        for lock in locks {
            for &is_elided in &self.elisions {
                if !is_elided {
                    names.push(lock.clone());
                } else if lock != Unlocked::NAME {
                    names.push(format!("{lock}{elided}"));
                } else if self.elisions == [true] {
                    // No lock is not elided: it takes part once.
                    names.push(lock.clone());
                }
            }
        }
        names
    }

    /// Loads one of those who take part.
    ///
    /// # Errors
    /// See [`Locks::load`].
    ///
    /// # Panics
    /// `name` is none of [`names`](Self::names).
    pub fn load<V: Visitor>(
        &self,
        name: &str,
        options: &LoadOptions<'_>,
        visitor: V,
    ) -> Result<V::Result, Failure> {
        let (lock, is_elided) = match name.split_once('+') {
            Some((lock, _)) => (lock, true),
            None => (name, false),
        };
        match lock {
            Unlocked::NAME => self.load_kind::<Unlocked, V>(is_elided, options, visitor),
            OccRwLock::NAME => self.load_kind::<OccRwLock, V>(is_elided, options, visitor),
            Tatas::NAME => self.load_kind::<Tatas, V>(is_elided, options, visitor),
            Mcs::NAME => self.load_kind::<Mcs, V>(is_elided, options, visitor),
            SrwLock::NAME => self.load_kind::<SrwLock, V>(is_elided, options, visitor),
            MANAGER => {
                let kinds = if is_elided { self.kinds() } else { Kinds::default() };
                let is_coarse = name.ends_with(COARSE);
                let Parameters { mix, .. } = self.parameters;
                let fill = |count| {
                    Ok(StorageManager::new(count, mix, kinds, is_coarse).working(self.work))
                };
                Ok(visitor.visit(Locks::load(&self.parameters, options, fill)?))
            }
            MAP => {
                let Parameters { theta, .. } = self.parameters;
                let fill = |count| Ok(Map::new(count, theta, options.seed, is_elided));
                Ok(visitor.visit(Locks::load(&self.parameters, options, fill)?))
            }
            _ => panic!("nobody who takes part is called {name}"),
        }
    }

    fn load_kind<L: Lock, V: Visitor>(
        &self,
        is_elided: bool,
        options: &LoadOptions<'_>,
        visitor: V,
    ) -> Result<V::Result, Failure> {
        let parameters = &self.parameters;
        Ok(if self.protected == Protected::Tree {
            let fill = |count| Probe::<L>::new(count, is_elided);
            visitor.visit(Locks::load(parameters, options, fill)?)
        } else {
            let fill = |count| Ok(Register::<L>::new(count, is_elided));
            visitor.visit(Locks::load(parameters, options, fill)?)
        })
    }

    /// The kinds of a storage manager's locks that are elided.
    fn kinds(&self) -> Kinds {
        Kinds {
            occ_rwlock: self.is_among(OccRwLock::NAME),
            tatas: self.is_among(Tatas::NAME),
            mcs: self.is_among(Mcs::NAME),
            srwlock: self.is_among(SrwLock::NAME),
        }
    }

    fn is_among(&self, name: &str) -> bool {
        self.locks.iter().any(|lock| lock == name)
    }
}

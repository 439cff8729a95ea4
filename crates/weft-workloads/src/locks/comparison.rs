//! The choices in a comparison of locks: the structure that they protect, the locks, and whether they are elided.
//!
//! The names of the choices are those of the options, which are the same in every program.

use weft::Failure;
use weft::htm::lock::{Lock, Mcs, OccRwLock, SrwLock, Tatas};

use super::{
    Kinds, Locks, Map, NoLock, Parameters, Part, Parts, Probe, Register, StorageManager, Structure,
};
use crate::workload::LoadOptions;

/// The suffix of the name of an elided lock.
const ELIDED: &str = "+elided";

/// The suffix instead of [`ELIDED`] if the tree has one latch.
const COARSE: &str = "+coarse";

/// The storage manager's name in place of a lock's.
const MANAGER: &str = "manager";

/// The map's name in place of a lock's.
const MAP: &str = "map";

/// The structure that the locks protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedStructure {
    /// Rows under one lock: [`Register`].
    Rows,
    /// A B+-tree under one latch: [`Probe`].
    Tree,
    /// The parts of a [`StorageManager`].
    Manager,
    /// A [`Map`]: one elided lock protects all of it, or each record has its own lock.
    Map,
}

impl ProtectedStructure {
    /// All structures.
    pub const ALL: [ProtectedStructure; 4] = [
        ProtectedStructure::Rows,
        ProtectedStructure::Tree,
        ProtectedStructure::Manager,
        ProtectedStructure::Map,
    ];

    /// Returns the workload's name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            ProtectedStructure::Rows => "getsubdata",
            ProtectedStructure::Tree => "probe",
            ProtectedStructure::Manager => MANAGER,
            ProtectedStructure::Map => MAP,
        }
    }
}

/// A comparison of locks.
#[derive(Clone, Debug)]
pub struct LockComparison {
    /// The structure that the locks protect.
    pub protected: ProtectedStructure,
    /// The locks' names. For a storage manager, these are the kinds of locks to elide.
    pub locks: Vec<String>,
    /// Whether the locks are elided: each value is measured in turn.
    pub elisions: Vec<bool>,
    /// Whether one latch protects the tree of a storage manager.
    pub is_coarse: bool,
    /// The parts that a storage manager does not have.
    pub absent: Vec<Part>,
    /// The size of the structure, and its transactions.
    pub parameters: Parameters,
}

/// A function that is generic over the loaded structure.
pub trait Visitor {
    /// The result of the function.
    type Result;

    /// Calls the function with the loaded structure.
    fn visit<S: Structure + 'static>(self, locks: Locks<S>) -> Self::Result;
}

impl LockComparison {
    /// The names of the locks.
    pub const LOCKS: [&'static str; 5] =
        [NoLock::NAME, OccRwLock::NAME, Tatas::NAME, Mcs::NAME, SrwLock::NAME];

    /// Checks the options that depend on each other.
    ///
    /// # Errors
    /// A message that says which options cannot be combined.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_manager = self.protected == ProtectedStructure::Manager;
        let is_unlocked = self.is_among(NoLock::NAME);
        if self.is_coarse && !is_manager {
            return Err(
                "--coarse needs --workload manager; --workload probe has one latch in any case",
            );
        }
        if !self.absent.is_empty() && !is_manager {
            return Err("--without needs --workload manager: the other workloads have no parts");
        }
        if is_manager && is_unlocked {
            return Err("--workload manager uses all locks: name the locks to elide with --lock");
        }
        let has_updates = self.parameters.updates > 0;
        if has_updates && (self.protected != ProtectedStructure::Rows || is_unlocked) {
            return Err("--updates needs --workload getsubdata and a lock other than none");
        }
        if self.parameters.mix != Parameters::default().mix && !is_manager {
            return Err("--mix needs --workload manager: the others have one transaction");
        }
        if self.parameters.theta > 0.0 && self.protected != ProtectedStructure::Map {
            return Err("--theta needs --workload map: the others draw like TATP");
        }
        Ok(())
    }

    /// Returns a title for the comparison.
    pub fn title(&self) -> String {
        match (self.protected, self.parameters.updates) {
            (ProtectedStructure::Rows, 0) => "Locks around the rows of subscribers".to_owned(),
            (ProtectedStructure::Rows, updates) => {
                format!("Locks around the rows of subscribers, {updates} % updated")
            }
            (ProtectedStructure::Tree, _) => "Locks around a B+-tree of subscribers".to_owned(),
            (ProtectedStructure::Manager, _) => {
                let Parameters { mix, .. } = self.parameters;
                let names: Vec<&str> = self.absent.iter().map(|part| part.name()).collect();
                let without = match names.as_slice() {
                    [] => String::new(),
                    names => format!(", without {}", names.join(", ")),
                };
                format!("A storage manager{without}, mix {mix}; elided: {}", self.locks.join(", "))
            }
            (ProtectedStructure::Map, _) => {
                let Parameters { theta, .. } = self.parameters;
                format!("Ten updates of a hash map's records, theta {theta}")
            }
        }
    }

    /// Returns what `subscribers` counts.
    pub fn size_of(&self) -> &'static str {
        if self.protected == ProtectedStructure::Map { "record" } else { "subscriber" }
    }

    /// Returns the names of the contenders, in order.
    pub fn names(&self) -> Vec<String> {
        let itself = [self.protected.name().to_owned()];
        let locks = match self.protected {
            ProtectedStructure::Manager | ProtectedStructure::Map => &itself,
            ProtectedStructure::Rows | ProtectedStructure::Tree => self.locks.as_slice(),
        };
        let elided = if self.is_coarse { COARSE } else { ELIDED };
        let mut names = Vec::new();
        for lock in locks {
            for &is_elided in &self.elisions {
                if !is_elided {
                    names.push(lock.clone());
                } else if lock != NoLock::NAME {
                    names.push(format!("{lock}{elided}"));
                } else if self.elisions == [true] {
                    // `none` cannot be elided. It is a contender once.
                    names.push(lock.clone());
                }
            }
        }
        names
    }

    /// Loads one of the contenders.
    ///
    /// # Errors
    /// See [`Locks::load`].
    ///
    /// # Panics
    /// [`names`](Self::names) does not contain `name`.
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
            NoLock::NAME => self.load_kind::<NoLock, V>(is_elided, options, visitor),
            OccRwLock::NAME => self.load_kind::<OccRwLock, V>(is_elided, options, visitor),
            Tatas::NAME => self.load_kind::<Tatas, V>(is_elided, options, visitor),
            Mcs::NAME => self.load_kind::<Mcs, V>(is_elided, options, visitor),
            SrwLock::NAME => self.load_kind::<SrwLock, V>(is_elided, options, visitor),
            MANAGER => {
                let kinds = if is_elided { self.kinds() } else { Kinds::default() };
                let is_coarse = name.ends_with(COARSE);
                let Parameters { mix, .. } = self.parameters;
                let fill = |count| {
                    let parts = Parts::all_but(&self.absent);
                    Ok(StorageManager::new(count, mix, kinds, is_coarse, parts))
                };
                Ok(visitor.visit(Locks::load(&self.parameters, options, fill)?))
            }
            MAP => {
                let Parameters { theta, .. } = self.parameters;
                let fill = |count| Ok(Map::new(count, theta, options.seed, is_elided));
                Ok(visitor.visit(Locks::load(&self.parameters, options, fill)?))
            }
            _ => panic!("no contender has the name {name}"),
        }
    }

    fn load_kind<L: Lock, V: Visitor>(
        &self,
        is_elided: bool,
        options: &LoadOptions<'_>,
        visitor: V,
    ) -> Result<V::Result, Failure> {
        let parameters = &self.parameters;
        Ok(if self.protected == ProtectedStructure::Tree {
            let fill = |count| Probe::<L>::new(count, is_elided);
            visitor.visit(Locks::load(parameters, options, fill)?)
        } else {
            let fill = |count| Ok(Register::<L>::new(count, is_elided));
            visitor.visit(Locks::load(parameters, options, fill)?)
        })
    }

    /// Returns the kinds of a storage manager's locks that are elided.
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

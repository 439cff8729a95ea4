//! The procedures that a database knows, and the pieces in which they run beside each other.

use std::sync::{Arc, PoisonError};

use weft_htm::word::{Mutex, Ordering, Word};

use crate::procedure::chopping::{
    Chopping, NotAdmitted, Options, Outline, OutlineError, Outlines, Token, admit, chop,
};
use crate::procedure::{Pieces, Shape};

/// What `dbx-tc` knows of procedures when a database is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DbxTcOptions {
    /// The procedures that run in pieces.
    pub procedures: Vec<&'static Shape>,
    /// Which tables' rows go by [tokens](Token).
    pub tokens: Vec<Token>,
    /// What the analysis makes use of: all that the protocol can follow, by default. It runs procedures as they
    /// are written and defers nothing, so that [reordering](Options::reordering) and
    /// [deferral](Options::deferral) are off, whatever is said here. With [snapshots](Options::snapshots),
    /// procedures that only read are left out, and no piece is larger for their sake; in return they are kept
    /// apart from procedures that are between two pieces, as everything is that is not registered.
    pub chopping: Options,
}

impl Default for DbxTcOptions {
    fn default() -> Self {
        DbxTcOptions { procedures: Vec::new(), tokens: Vec::new(), chopping: Options::ALL }
    }
}

impl DbxTcOptions {
    /// No procedures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`DbxTcOptions::procedures`].
    pub fn procedures(mut self, procedures: impl IntoIterator<Item = &'static Shape>) -> Self {
        self.procedures = procedures.into_iter().collect();
        self
    }

    /// Sets [`DbxTcOptions::tokens`].
    pub fn tokens(mut self, tokens: impl IntoIterator<Item = Token>) -> Self {
        self.tokens = tokens.into_iter().collect();
        self
    }

    /// Sets [`DbxTcOptions::chopping`].
    pub fn chopping(mut self, chopping: Options) -> Self {
        self.chopping = chopping;
        self
    }

    /// Chops the procedures.
    pub(crate) fn chop(&self) -> Result<Registered, OutlineError> {
        let options = Options { reordering: false, deferral: false, ..self.chopping };
        let outlines = Outlines {
            tokens: self.tokens.clone(),
            ..Outlines::of(self.procedures.iter().copied())
        };
        let chopping = chop(&outlines, options)?;
        Ok(Registered::new(self.procedures.iter().map(|shape| shape.name).collect(), chopping))
    }
}

/// Procedures in pieces.
#[derive(Clone, Debug)]
pub struct Registered {
    pub chopping: Chopping,
    /// In the order of the chopping's procedures.
    names: Vec<&'static str>,
    /// `None` for those that only read, and are left out.
    pieces: Vec<Option<Pieces>>,
}

impl Registered {
    fn new(names: Vec<&'static str>, chopping: Chopping) -> Registered {
        let pieces = names
            .iter()
            .zip(&chopping.procedures)
            .map(|(name, chopped)| (!chopped.on_snapshot).then(|| Pieces::of(name, chopped)));
        Registered { pieces: pieces.collect(), chopping, names }
    }

    /// The position of the procedure with this shape, if it is among them. Another with the same name is not.
    fn position(&self, shape: &'static Shape) -> Option<usize> {
        let position = self.names.iter().position(|name| *name == shape.name)?;
        (self.chopping.outlines.procedures[position] == Outline::of(shape)).then_some(position)
    }

    fn pieces_of(&self, shape: &'static Shape) -> Option<Pieces> {
        self.pieces[self.position(shape)?].clone()
    }
}

/// The procedures of a database, of which there may come more.
#[derive(Debug)]
pub struct Procedures {
    registered: Mutex<Arc<Registered>>,
    /// How often some have come.
    changes: Word,
}

impl Procedures {
    pub fn new(registered: Registered) -> Procedures {
        Procedures { registered: Mutex::new(Arc::new(registered)), changes: Word::new(0) }
    }

    pub fn get(&self) -> Arc<Registered> {
        Arc::clone(&self.registered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds one, if those that are there stay in their pieces.
    pub fn admit(&self, shape: &'static Shape) -> Result<(), NotAdmitted> {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.position(shape).is_some() {
            return Ok(());
        }
        let Chopping { outlines, options, .. } = &registered.chopping;
        let chopping = admit(outlines, &Outline::of(shape), *options)?;
        let names = registered.names.iter().copied().chain([shape.name]).collect();
        *registered = Arc::new(Registered::new(names, chopping));
        // Relaxed: whoever sees it too late runs the procedure as a stranger once more.
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// What a worker knows of procedures: by the address of the shape. What it hands out is its own, so that workers
/// do not count references on one line.
#[derive(Debug, Default)]
pub struct Known {
    changes: u64,
    pieces: Vec<(*const Shape, Option<Arc<Pieces>>)>,
}

// SAFETY: shapes are static.
unsafe impl Send for Known {}

impl Known {
    /// The pieces of a procedure, if it is registered, and not left out.
    #[inline]
    pub fn pieces_of(
        &mut self,
        shape: &'static Shape,
        procedures: &Procedures,
    ) -> Option<&Arc<Pieces>> {
        let changes = procedures.changes.load(Ordering::Relaxed);
        if changes != self.changes {
            (self.changes, self.pieces) = (changes, Vec::new());
        }
        let known = self.pieces.iter().position(|(known, _)| std::ptr::eq(*known, shape));
        let position = known.unwrap_or_else(|| {
            let pieces = procedures.get().pieces_of(shape);
            self.pieces.push((shape, pieces.map(Arc::new)));
            self.pieces.len() - 1
        });
        self.pieces[position].1.as_ref()
    }
}

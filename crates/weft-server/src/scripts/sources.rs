//! The scripts that clients have sent, by their SHA-1.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use weft::htm::word::{Ordering, Word};

use crate::stop::Done;
use crate::tables::Text;

/// The SHA-1 of a script.
pub type Digest = [u8; 20];

/// How many scripts are kept that came with `EVAL`. Those of `SCRIPT LOAD` are kept until `SCRIPT FLUSH`.
const EVALUATED_MAX: usize = 500;

/// A script, or the code of a library.
#[derive(Debug)]
pub struct Script {
    /// Its SHA-1.
    pub digest: Digest,
    /// Its text.
    pub code: Text,
    /// Whether its first line says that it does not write.
    pub is_read_only: bool,
}

/// The scripts of a server.
#[derive(Debug)]
pub struct Sources {
    kept: RwLock<Kept>,
    /// Changes when scripts are forgotten. No two servers of a process have the same number.
    generation: Word,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    scripts: FxHashMap<Digest, (Arc<Script>, Origin)>,
    /// Those that came with `EVAL`, the oldest first.
    evaluated: VecDeque<Digest>,
    bytes: usize,
}

/// Where a script came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `EVAL`.
    Evaluated,
    /// `SCRIPT LOAD`.
    Loaded,
}

/// The scripts that a thread has used, so that it shares no lock with others.
struct Recent {
    generation: u64,
    scripts: FxHashMap<Digest, Arc<Script>>,
}

thread_local! {
    static RECENT: RefCell<Recent> =
        RefCell::new(Recent { generation: u64::MAX, scripts: FxHashMap::default() });
}

static GENERATIONS: Word = Word::new(0);

fn next_generation() -> u64 {
    // Only the number itself matters.
    GENERATIONS.fetch_add(1, Ordering::Relaxed)
}

/// Returns the SHA-1 of a script.
pub fn digest(code: &[u8]) -> Digest {
    sha1_smol::Sha1::from(code).digest().bytes()
}

impl Script {
    /// Creates a script.
    ///
    /// # Errors
    /// Its first line asks for something that the server does not have.
    pub fn new(code: &[u8], digest: Digest) -> Done<Self> {
        let is_read_only = read_only_of(code)?;
        Ok(Script { digest, code: code.into(), is_read_only })
    }
}

/// Returns the first line of a script after `#!`, and the rest with the end of that line.
pub fn shebang(code: &[u8]) -> Option<(String, &[u8])> {
    let rest = code.strip_prefix(b"#!")?;
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (line, rest) = rest.split_at(end);
    Some((String::from_utf8_lossy(line).trim_end_matches('\r').to_owned(), rest))
}

/// Returns whether the first line of a script says that it does not write.
fn read_only_of(code: &[u8]) -> Done<bool> {
    let Some((line, _)) = shebang(code) else { return Ok(false) };
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or("");
    if engine != "lua" {
        return Err(format!("ERR Unexpected engine in script shebang: #!{engine}").into());
    }
    let mut is_read_only = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}").into());
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            if !FLAGS.contains(&flag) {
                return Err(format!("ERR Unexpected flag in script shebang: {flag}").into());
            }
            is_read_only |= flag == FLAGS[0];
        }
    }
    Ok(is_read_only)
}

/// The flags of scripts and functions. Only the first means something here.
pub const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

impl Sources {
    /// Creates a place for up to `bytes_max` bytes of scripts.
    pub fn new(bytes_max: usize) -> Self {
        Sources { kept: RwLock::default(), generation: Word::new(next_generation()), bytes_max }
    }

    /// Returns a script.
    pub fn get(&self, digest: &Digest) -> Option<Arc<Script>> {
        let generation = self.generation.load(Ordering::Acquire);
        RECENT.with_borrow_mut(|recent| {
            if recent.generation != generation || recent.scripts.len() > EVALUATED_MAX {
                *recent = Recent { generation, scripts: FxHashMap::default() };
            }
            if let Some(script) = recent.scripts.get(digest) {
                return Some(Arc::clone(script));
            }
            let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
            let script = Arc::clone(&kept.scripts.get(digest)?.0);
            recent.scripts.insert(*digest, Arc::clone(&script));
            Some(script)
        })
    }

    /// Keeps a script.
    ///
    /// # Errors
    /// Its first line is wrong, or there are too many scripts.
    pub fn add(&self, code: &[u8], digest: Digest, origin: Origin) -> Done<Arc<Script>> {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((script, known)) = kept.scripts.get_mut(&digest) {
            let script = Arc::clone(script);
            if origin == Origin::Loaded && *known == Origin::Evaluated {
                *known = Origin::Loaded;
                kept.evaluated.retain(|evaluated| *evaluated != digest);
            }
            return Ok(script);
        }
        let script = Arc::new(Script::new(code, digest)?);
        while kept.bytes + code.len() > self.bytes_max || kept.evaluated.len() >= EVALUATED_MAX {
            let Some(oldest) = kept.evaluated.pop_front() else {
                return Err("ERR the scripts are too long together; use SCRIPT FLUSH".into());
            };
            if let Some((removed, _)) = kept.scripts.remove(&oldest) {
                kept.bytes -= removed.code.len();
            }
        }
        kept.bytes += code.len();
        if origin == Origin::Evaluated {
            kept.evaluated.push_back(digest);
        }
        kept.scripts.insert(digest, (Arc::clone(&script), origin));
        Ok(script)
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        *kept = Kept::default();
        self.generation.store(next_generation(), Ordering::Release);
    }
}

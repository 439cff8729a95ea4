//! A disk in memory that behaves as badly as disks may, for tests of what survives a crash.
//!
//! The disk keeps two states of everything: as the running process sees it, and as it would be
//! found after a crash. Between the two are the *changes* that have not been synced.
//! [`SimulatedDisk::crash`] makes a disk that each of these changes may or may not have reached:
//!
//! - Writes reach the disk sector by sector (512 bytes), in any order: all, none, or any of them.
//!   The length that a write gives to its file may reach the disk without the bytes, which are
//!   zeros then.
//! - Names that were created, renamed or removed are the old ones or the new ones. A rename is one
//!   change.
//!
//! A process can also be stopped in the middle. Every change that it requests has a number, and
//! [`SimulatedDisk::stop_at`] turns the power off at one of them, which may happen in part. And the
//! disk can be made to fill up, to fail a sync, and to rot.
//!
//! Seeds decide everything, so that the same test on one thread always has the same outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use weft_htm::blocking::{Mutex, MutexGuard};

use super::backend::{Backend, File, LockError, LockGuard};

/// How many bytes reach the disk together or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A disk in memory. Its clones are handles of the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// All files that ever existed. Names refer to them by their position here.
    files: Vec<Contents>,
    /// The names as the process sees them, without the root.
    names: BTreeMap<PathBuf, Node>,
    /// The names that a crash leaves if no change of names has reached the disk.
    synced_names: BTreeMap<PathBuf, Node>,
    /// Changes of names that are not synced, in order.
    name_changes: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    random: fastrand::Rng,
    /// How many changes have been requested so far.
    operations: u64,
    stop_at: Option<u64>,
    /// How many syncs of files there have been so far.
    syncs: u64,
    fail_sync: Option<u64>,
    capacity_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Create { path: PathBuf, node: Node },
    Rename { from: PathBuf, to: PathBuf, node: Node },
    Remove { path: PathBuf },
}

impl NameChange {
    /// Returns whether a sync of `directory` syncs this change.
    fn is_in(&self, directory: &Path) -> bool {
        let path = match self {
            NameChange::Create { path, .. } | NameChange::Remove { path } => path,
            NameChange::Rename { to, .. } => to,
        };
        path.parent() == Some(directory)
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            NameChange::Create { path, node } => {
                names.insert(path.clone(), *node);
            }
            NameChange::Rename { from, to, node } => {
                // The old name may belong to another file by now, through changes that have reached
                // the disk although this one had not.
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
            NameChange::Remove { path } => {
                names.remove(path);
            }
        }
    }
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
struct Contents {
    /// As the process sees them.
    current: Vec<u8>,
    /// As a crash leaves them if no change has reached the disk.
    synced: Vec<u8>,
    /// Changes that are not synced, in order.
    changes: Vec<Change>,
    /// How many bytes are reserved for the file.
    allocated: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write(contents, *offset, bytes),
            Change::Truncate { length } => contents.resize(*length, 0),
        }
    }
}

fn write(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset..end].copy_from_slice(bytes);
}

impl Contents {
    /// Lets some of the changes reach the disk, and forgets the others.
    fn settle_some(&mut self, random: &mut fastrand::Rng) {
        // All changes of one file may reach the disk, and none of another.
        let likelihood = [0.0, 0.1, 0.5, 0.9, 1.0][random.usize(..5)];
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Truncate { length } => {
                    if random.f64() < likelihood {
                        self.synced.resize(length, 0);
                    }
                }
                Change::Write { offset, bytes } => {
                    let mut at = offset;
                    for sector in sectors(offset, &bytes) {
                        if random.f64() < likelihood {
                            write(&mut self.synced, at, sector);
                        }
                        at += sector.len();
                    }
                    let grows = self.synced.len() < at;
                    if grows && random.f64() < likelihood {
                        self.synced.resize(at, 0);
                    }
                }
            }
        }
    }

    fn settle(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.synced);
        }
    }
}

/// Returns the parts of a write that lie in different sectors.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(bytes.len());
    let (first, rest) = bytes.split_at(first);
    std::iter::once(first).chain(rest.chunks(SECTOR_BYTES))
}

/// How far an operation gets.
enum Progress {
    All,
    /// The power goes off in the middle of the operation.
    Part,
}

impl State {
    /// Counts a change that the process requests.
    fn operation(&mut self) -> io::Result<Progress> {
        self.check_power()?;
        self.operations += 1;
        if self.stop_at == Some(self.operations) { Ok(Progress::Part) } else { Ok(Progress::All) }
    }

    fn check_power(&self) -> io::Result<()> {
        match self.stop_at {
            Some(stop) if self.operations >= stop => Err(power_off()),
            _ => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.parent().is_none()
            || path.as_os_str().is_empty()
            || self.names.get(path) == Some(&Node::Directory)
    }

    fn children<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.names.keys().map(PathBuf::as_path).filter(move |path| path.parent() == Some(directory))
    }

    /// Makes a change of names. If the power goes off here, it may not happen.
    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        if matches!(self.operation()?, Progress::Part) && self.random.bool() {
            return Err(power_off());
        }
        change.apply(&mut self.names);
        self.name_changes.push(change);
        self.check_power()
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.check_parent(path)?;
        let file = self.files.len();
        self.files.push(Contents::default());
        self.change_name(NameChange::Create { path: path.to_owned(), node: Node::File(file) })?;
        Ok(file)
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if self.is_directory(parent) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns how many bytes all files with a name have.
    fn used_bytes(&self) -> u64 {
        let files = self.names.values().filter_map(|node| match node {
            Node::File(file) => {
                let contents = &self.files[*file];
                Some(contents.allocated.max(contents.current.len() as u64))
            }
            Node::Directory => None,
        });
        files.sum()
    }

    fn free(&self, capacity: u64) -> usize {
        usize::try_from(capacity.saturating_sub(self.used_bytes())).unwrap_or(usize::MAX)
    }

    fn allocate(&mut self, file: usize, bytes: u64) -> io::Result<()> {
        let progress = self.operation()?;
        let present = self.files[file].allocated.max(self.files[file].current.len() as u64);
        if let Some(capacity) = self.capacity_bytes
            && bytes.saturating_sub(present) > self.free(capacity) as u64
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match progress {
            Progress::All => self.files[file].allocated = bytes,
            Progress::Part => return Err(power_off()),
        }
        Ok(())
    }

    fn write_at(&mut self, file: usize, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut length = bytes.len();
        let mut outcome = Ok(());
        if matches!(self.operation()?, Progress::Part) {
            length = self.random.usize(..=length);
            outcome = Err(power_off());
        }
        let offset = usize::try_from(offset).expect("simulated files are small");
        if let Some(capacity) = self.capacity_bytes {
            let present = self.files[file].current.len();
            let room = present.saturating_add(self.free(capacity)).saturating_sub(offset);
            if room < length {
                // Write as much as fits, or less.
                length = if self.random.bool() { room } else { self.random.usize(..=room) };
                outcome = outcome.and(Err(io::ErrorKind::StorageFull.into()));
            }
        }
        if length > 0 {
            self.change(file, Change::Write { offset, bytes: bytes[..length].to_vec() });
        }
        outcome
    }

    fn change(&mut self, file: usize, change: Change) {
        let contents = &mut self.files[file];
        change.apply(&mut contents.current);
        contents.changes.push(change);
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        let progress = self.operation()?;
        self.syncs += 1;
        let contents = &mut self.files[file];
        if matches!(progress, Progress::Part) {
            // What does not reach the disk now does not reach it through the crash either.
            contents.settle_some(&mut self.random);
            return Err(power_off());
        }
        if self.fail_sync == Some(self.syncs) {
            contents.settle_some(&mut self.random);
            return Err(io::Error::other("simulated input/output error"));
        }
        contents.settle();
        Ok(())
    }

    fn sync_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.check_power()?;
        if !self.is_directory(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let progress = self.operation()?;
        let State { name_changes, synced_names, random, .. } = self;
        name_changes.retain(|change| {
            let settles =
                change.is_in(directory) && (matches!(progress, Progress::All) || random.bool());
            if settles {
                change.apply(synced_names);
            }
            !settles
        });
        self.check_power()
    }

    /// Returns the state after a crash.
    fn crash(&self, seed: u64) -> State {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut names = self.synced_names.clone();
        let likelihood = [0.0, 0.5, 1.0][random.usize(..3)];
        for change in &self.name_changes {
            if random.f64() < likelihood {
                change.apply(&mut names);
            }
        }
        let mut files = self.files.clone();
        for contents in &mut files {
            contents.settle_some(&mut random);
        }
        State::found(files, names, random)
    }

    /// Returns a disk as a new process finds it: everything is synced.
    fn found(
        mut files: Vec<Contents>,
        mut names: BTreeMap<PathBuf, Node>,
        random: fastrand::Rng,
    ) -> State {
        // A directory that is lost takes its contents along.
        let all = names.clone();
        names.retain(|path, _| {
            path.ancestors().skip(1).all(|above| {
                above.parent().is_none()
                    || above.as_os_str().is_empty()
                    || all.get(above) == Some(&Node::Directory)
            })
        });
        for contents in &mut files {
            contents.changes.clear();
            contents.current.clone_from(&contents.synced);
        }
        State { files, synced_names: names.clone(), names, random, ..State::default() }
    }
}

fn power_off() -> io::Error {
    io::Error::other("simulated power loss")
}

impl SimulatedDisk {
    /// Returns an empty disk. The seed decides which part of an operation happens when the disk
    /// fails.
    pub fn new(seed: u64) -> SimulatedDisk {
        let random = fastrand::Rng::with_seed(seed);
        SimulatedDisk::with(State { random, ..State::default() })
    }

    fn with(state: State) -> SimulatedDisk {
        SimulatedDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the disk as it may be found after a crash at this moment. This disk stays as it is.
    pub fn crash(&self, seed: u64) -> SimulatedDisk {
        SimulatedDisk::with(self.state().crash(seed))
    }

    /// Returns the disk with everything that was written, synced or not. This disk stays as it is.
    pub fn snapshot(&self) -> SimulatedDisk {
        let state = self.state();
        let mut files = state.files.clone();
        files.iter_mut().for_each(Contents::settle);
        for contents in &mut files {
            // After a failed sync the two may differ.
            contents.synced.clone_from(&contents.current);
        }
        SimulatedDisk::with(State::found(files, state.names.clone(), state.random.clone()))
    }

    /// Returns how many changes were requested: of names, of files, and syncs of both.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Turns the power off at the `operation`-th requested change, counted from 1 since the disk
    /// was made. This change may happen in part, and fails, as does everything after it.
    pub fn stop_at(&self, operation: u64) {
        self.state().stop_at = Some(operation);
    }

    /// Returns how many syncs of files were requested.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Makes the `sync`-th sync of a file fail, counted from 1 since the disk was made. A part of
    /// what it had to sync reaches the disk. The rest never does, although later syncs succeed and
    /// the process still sees it. Linux behaves like this.
    pub fn fail_sync(&self, sync: u64) {
        self.state().fail_sync = Some(sync);
    }

    /// Limits the bytes of all files together. A write beyond the limit fails, and may happen in
    /// part.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity_bytes = bytes;
    }

    /// Returns the bytes of all files together.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Returns the paths of all files, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.state();
        let files = state.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// Returns a file's bytes, as the process sees them.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn contents(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let state = self.state();
        let file = state.file(path.as_ref()).expect("the file is there");
        state.files[file].current.clone()
    }

    /// Changes a file without the process's knowledge: `damage` gets its bytes, and the result is
    /// on the disk at once.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn damage(&self, path: impl AsRef<Path>, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let file = state.file(path.as_ref()).expect("the file is there");
        let contents = &mut state.files[file];
        contents.settle();
        damage(&mut contents.current);
        contents.synced.clone_from(&contents.current);
    }

    /// Flips a bit of a file: bit `bit % 8` of byte `bit / 8`.
    ///
    /// # Panics
    /// If there is no such file, or it is shorter.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) {
        self.damage(path, |bytes| bytes[(bit / 8) as usize] ^= 1 << (bit % 8));
    }

    /// Cuts a file to a length in bytes.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn cut(&self, path: impl AsRef<Path>, length: u64) {
        self.damage(path, |bytes| bytes.truncate(length as usize));
    }
}

impl Backend for SimulatedDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.check_parent(path)?;
        state.change_name(NameChange::Create { path: path.to_owned(), node: Node::Directory })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        state.check_power()?;
        if !state.is_directory(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let names = state.children(directory).filter_map(Path::file_name);
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        state.check_power()?;
        let file = state.create(path)?;
        Ok(Box::new(OpenFile { disk: self.clone(), file, writable: true }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let state = self.state();
        state.check_power()?;
        Ok(Box::new(OpenFile { disk: self.clone(), file: state.file(path)?, writable: true }))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let state = self.state();
        state.check_power()?;
        Ok(Box::new(OpenFile { disk: self.clone(), file: state.file(path)?, writable: false }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        state.check_power()?;
        Ok(state.is_directory(path) || state.names.contains_key(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        let node = Node::File(state.file(from)?);
        state.check_parent(to)?;
        if state.names.get(to) == Some(&Node::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        state.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), node })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        state.file(path)?;
        state.change_name(NameChange::Remove { path: path.to_owned() })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        if state.names.get(path) != Some(&Node::Directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.children(path).next().is_some() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change_name(NameChange::Remove { path: path.to_owned() })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.state().sync_directory(path)
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        let mut state = self.state();
        state.check_power()?;
        if state.locks.contains(path) {
            return Err(LockError::AlreadyLocked);
        }
        if !state.names.contains_key(path) {
            state.create(path)?;
        }
        state.locks.insert(path.to_owned());
        Ok(Box::new(LockedPath { disk: self.clone(), path: path.to_owned() }))
    }
}

#[derive(Debug)]
struct LockedPath {
    disk: SimulatedDisk,
    path: PathBuf,
}

impl LockGuard for LockedPath {}

impl Drop for LockedPath {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: SimulatedDisk,
    file: usize,
    writable: bool,
}

impl OpenFile {
    fn writable(&self) -> io::Result<MutexGuard<'_, State>> {
        if self.writable {
            Ok(self.disk.state())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

impl File for OpenFile {
    fn length(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.files[self.file].current.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        state.check_power()?;
        let contents = &state.files[self.file].current;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let length = buffer.len().min(contents.len() - start);
        buffer[..length].copy_from_slice(&contents[start..start + length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?.write_at(self.file, bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.writable()?.allocate(self.file, bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.write_at(&vec![0; bytes as usize], offset)?;
        Ok(true)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.writable()?;
        if matches!(state.operation()?, Progress::Part) && state.random.bool() {
            return Err(power_off());
        }
        let length = usize::try_from(length).expect("simulated files are small");
        state.change(self.file, Change::Truncate { length });
        state.check_power()
    }

    fn sync(&self) -> io::Result<()> {
        self.writable()?.sync(self.file)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

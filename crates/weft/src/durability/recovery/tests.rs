//! Recovery against a simulated disk. A small engine with a real log has maps for tables, and
//! remembers the state at the end of every epoch.

mod crash;
mod damage;
mod points;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::*;
use crate::durability::checkpoint::{CheckpointOptions, CheckpointSource, write_checkpoint};
use crate::durability::format::WriteKind;
use crate::durability::log::{Epochs, Log, LogOptions};
use crate::durability::manifest::Manifest;
use crate::durability::{SimulatedDisk, format};
use crate::row::column::{ColumnValue, write_text};
use crate::row::description::{ColumnDescription, RowChange, TypeDescription};
use crate::row::schema::Storage;

const DIRECTORY: &str = "/db";

/// The rows of all tables: from key to text.
type State = Vec<BTreeMap<u64, String>>;

/// Describes a table with an id, a text, and the columns that were added later.
pub(in crate::durability) fn describe(
    name: &str,
    added: &[(&str, Option<u8>)],
) -> TableDescription {
    let column = |name: &str, type_of, default| ColumnDescription {
        default,
        ..ColumnDescription::new(name.to_owned(), type_of)
    };
    let mut columns = vec![
        column("id", TypeDescription::U64, None),
        column("text", TypeDescription::String, None),
    ];
    for (name, default) in added {
        columns.push(column(name, TypeDescription::U8, default.map(|default| vec![default])));
    }
    let indexes = Vec::new();
    TableDescription {
        name: name.to_owned(),
        storage: Storage::Ordered,
        columns,
        key: vec![0],
        indexes,
        ..TableDescription::default()
    }
}

/// A table in memory: encoded rows by their keys.
#[derive(Debug)]
struct MapTable {
    description: TableDescription,
    rows: Mutex<BTreeMap<u64, Vec<u8>>>,
    indexes_built: Mutex<Vec<(usize, usize)>>,
}

impl MapTable {
    fn new(description: TableDescription) -> Arc<MapTable> {
        Arc::new(MapTable { description, rows: Mutex::default(), indexes_built: Mutex::default() })
    }

    fn texts(&self) -> BTreeMap<u64, String> {
        let rows = self.rows.lock().unwrap();
        rows.iter().map(|(key, row)| (*key, text_of(row))).collect()
    }
}

fn text_of(row: &[u8]) -> String {
    let mut rest = &row[8..];
    String::read(&mut rest).unwrap()
}

fn encode(key: u64, text: &str) -> Vec<u8> {
    let mut row = key.to_le_bytes().to_vec();
    write_text(text, &mut row);
    row
}

impl StoredTable for MapTable {
    fn description(&self) -> &TableDescription {
        &self.description
    }

    fn put(&self, row: &[u8]) -> Result<(), DecodeError> {
        let mut rest = row;
        let key = u64::read(&mut rest)?;
        String::read(&mut rest)?;
        for _ in 2..self.description.columns.len() {
            u8::read(&mut rest)?;
        }
        assert!(rest.is_empty(), "a row is handed over whole");
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).insert(key, row.to_vec());
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), DecodeError> {
        let key = u64::read(&mut &key[..])?;
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        Ok(())
    }

    fn change(&self, key: &[u8], change: &RowChange<'_>) -> Result<bool, DecodeError> {
        let key = u64::read(&mut &key[..])?;
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(row) = rows.get_mut(&key) else { return Ok(false) };
        let mut changed = Vec::new();
        change.apply(&self.description, row, &mut changed)?;
        *row = changed;
        Ok(true)
    }

    fn build_indexes(&self, part: usize, parts: usize) -> Result<(), StorageError> {
        self.indexes_built.lock().unwrap().push((part, parts));
        Ok(())
    }

    fn encode_rows(
        &self,
        (part, parts): (usize, usize),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let rows = self.rows.lock().unwrap();
        rows.values().skip(part).step_by(parts).try_for_each(|row| sink(row))
    }

    fn rows(&self) -> u64 {
        self.rows.lock().unwrap().len() as u64
    }
}

/// Returns new tables, and the same tables in the form that recovery takes.
fn tables(descriptions: &[TableDescription]) -> (Vec<Arc<MapTable>>, Vec<Arc<dyn StoredTable>>) {
    let tables: Vec<_> = descriptions.iter().cloned().map(MapTable::new).collect();
    let stored = tables.iter().map(|table| Arc::clone(table) as Arc<dyn StoredTable>).collect();
    (tables, stored)
}

fn default_tables() -> Vec<TableDescription> {
    vec![describe("accounts", &[]), describe("orders", &[])]
}

/// Recovers the default tables from `disk`.
fn recover_all(
    disk: &SimulatedDisk,
    options: &RecoveryOptions<'_>,
) -> Result<(RecoveryReport, State), StorageError> {
    let (tables, stored) = tables(&default_tables());
    let recovered = recover(disk, Path::new(DIRECTORY), &stored, options)?;
    Ok((recovered, tables.iter().map(|table| table.texts()).collect()))
}

/// Recovers, and leaves the disk as it is.
fn look(disk: &SimulatedDisk) -> Result<(RecoveryReport, State), StorageError> {
    recover_all(disk, &RecoveryOptions { dry_run: true, ..RecoveryOptions::default() })
}

/// The epoch of the small engine.
#[derive(Debug)]
struct Clock(Mutex<u64>);

impl Clock {
    fn epoch(&self) -> u64 {
        *self.0.lock().unwrap()
    }
}

impl Epochs for Clock {
    fn close_epoch(&self) -> Option<u64> {
        let mut epoch = self.0.lock().unwrap();
        *epoch += 1;
        Some(*epoch - 1)
    }
}

/// What is true of a database, across all of its runs. Recovery is judged by it.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The state after the last write in each epoch in which something was written.
    states: BTreeMap<u64, State>,
    /// The last epoch with writes that was acknowledged as durable.
    acknowledged: u64,
}

impl Model {
    fn state_at(&self, epoch: u64) -> State {
        let last = self.states.range(..=epoch).next_back();
        last.map_or_else(|| vec![BTreeMap::new(); 2], |(_, state)| state.clone())
    }

    /// Asserts that `recovered` has everything that was acknowledged, and exactly the state that it
    /// claims.
    #[track_caller]
    fn check(&self, recovered: &RecoveryReport, state: &State, circumstances: &str) {
        assert!(
            recovered.epoch >= self.acknowledged,
            "epoch {} was acknowledged, and {} is recovered: {circumstances}",
            self.acknowledged,
            recovered.epoch
        );
        assert_eq!(
            *state,
            self.state_at(recovered.epoch),
            "not the recovered epoch's state: {circumstances}"
        );
        assert!(recovered.next_epoch > recovered.epoch, "{circumstances}");
    }

    /// Forgets what was lost.
    fn settle(&mut self, recovered: &RecoveryReport) {
        self.states.retain(|&epoch, _| epoch <= recovered.epoch);
        self.acknowledged = self.states.keys().next_back().copied().unwrap_or(0);
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    loggers: usize,
    threads: usize,
    segment_bytes: u64,
    frame_bytes: usize,
    reserve_bytes: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { loggers: 2, threads: 1, segment_bytes: 1500, frame_bytes: 200, reserve_bytes: 1500 }
    }
}

const WORKERS: usize = 3;

/// A run of the small engine.
struct Engine {
    disk: SimulatedDisk,
    manifest: Mutex<Manifest>,
    numbers: Vec<u32>,
    log: Log,
    clock: Arc<Clock>,
    state: State,
    versions: u64,
    shape: Shape,
}

impl Engine {
    /// Recovers, checks against the model, and begins a run.
    fn open(disk: &SimulatedDisk, model: &mut Model, shape: Shape) -> Result<Engine, StorageError> {
        let options = RecoveryOptions {
            threads: shape.threads,
            loggers: shape.loggers as u32,
            ..RecoveryOptions::default()
        };
        let (recovered, state) = recover_all(disk, &options)?;
        model.check(&recovered, &state, "when opened");
        model.settle(&recovered);
        let clock = Arc::new(Clock(Mutex::new(recovered.next_epoch)));
        let log = Log::start(
            Arc::new(disk.clone()),
            &Path::new(DIRECTORY).join("log"),
            LogOptions {
                loggers: shape.loggers,
                segment_bytes: shape.segment_bytes,
                frame_bytes: shape.frame_bytes,
                reserve_bytes: shape.reserve_bytes,
                manual: true,
                ..LogOptions::default()
            },
            WORKERS,
            Arc::clone(&clock) as Arc<dyn Epochs>,
            recovered.next_epoch,
            &recovered.next_segments,
        )?;
        Ok(Engine {
            disk: disk.clone(),
            manifest: Mutex::new(recovered.manifest),
            numbers: recovered.table_numbers,
            log,
            clock,
            state,
            versions: 0,
            shape,
        })
    }

    /// Runs a transaction that writes a few rows, which have few different keys.
    fn transact(&mut self, random: &mut fastrand::Rng, model: &mut Model) {
        let slot = random.usize(..WORKERS);
        let (state, versions, numbers) = (&mut self.state, &mut self.versions, &self.numbers);
        let epoch = self.clock.epoch();
        self.log.append(slot, epoch, |buffer| {
            format::push_transaction(buffer);
            for _ in 0..random.usize(1..5) {
                let (table, key) = (random.usize(..numbers.len()), random.u64(..24));
                *versions += 1;
                let number = numbers[table];
                let text = format!("{versions}{}", "x".repeat(random.usize(..60)));
                let kind = match random.u8(..4) {
                    0 => WriteKind::Delete,
                    1 if state[table].contains_key(&key) => WriteKind::Change,
                    _ => WriteKind::Put,
                };
                format::push_write(buffer, kind, number, *versions, |buffer| match kind {
                    WriteKind::Put => buffer.extend_from_slice(&encode(key, &text)),
                    WriteKind::Operation => unreachable!("texts have no operations"),
                    WriteKind::Delete => key.write(buffer),
                    WriteKind::Change => {
                        key.write(buffer);
                        buffer.push(1 << 1);
                        write_text(&text, buffer);
                    }
                });
                match kind {
                    WriteKind::Operation => unreachable!("texts have no operations"),
                    WriteKind::Delete => state[table].remove(&key),
                    WriteKind::Put | WriteKind::Change => state[table].insert(key, text),
                };
            }
        });
        model.states.insert(epoch, self.state.clone());
    }

    /// Ends an epoch, and records in the model what is acknowledged then.
    fn step(&self, model: &mut Model) -> Result<(), StorageError> {
        let durable = self.log.step()?;
        if let Some((&epoch, _)) = model.states.range(..=durable).next_back() {
            model.acknowledged = model.acknowledged.max(epoch);
        }
        Ok(())
    }

    /// Writes a checkpoint of the last epoch that has ended.
    fn checkpoint(&self, model: &Model) -> Result<(), StorageError> {
        self.checkpoint_of(self.clock.epoch() - 1, model)
    }

    /// Writes a checkpoint of an epoch that ended some time ago, as if it had taken this long.
    fn checkpoint_of(&self, epoch: u64, model: &Model) -> Result<(), StorageError> {
        let source =
            Snapshot { epoch, state: model.state_at(epoch), numbers: self.numbers.clone() };
        let options =
            CheckpointOptions { threads: self.shape.threads, ..CheckpointOptions::default() };
        let written =
            write_checkpoint(&self.disk, Path::new(DIRECTORY), &self.manifest, &source, &options)?;
        match written.not_removed {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Ends the run in an orderly way.
    fn close(self, model: &mut Model) -> Result<(), StorageError> {
        self.log.shutdown()?;
        let epoch = self.log.durable_epoch();
        if let Some((&last, _)) = model.states.range(..=epoch).next_back() {
            model.acknowledged = model.acknowledged.max(last);
        }
        let mut manifest = self.manifest.into_inner().unwrap();
        end_run(&self.disk, Path::new(DIRECTORY), &mut manifest, epoch)
    }
}

/// A state from which a checkpoint is written.
struct Snapshot {
    epoch: u64,
    state: State,
    numbers: Vec<u32>,
}

impl CheckpointSource for Snapshot {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn rows(
        &self,
        table: u32,
        part: u32,
        parts: u32,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let position = self.numbers.iter().position(|&number| number == table).unwrap();
        for (key, text) in &self.state[position] {
            if *key as u32 % parts == part {
                sink(&encode(*key, text))?;
            }
        }
        Ok(())
    }
}

/// Works for `epochs` epochs, with a checkpoint from time to time, until something fails.
fn work(
    engine: &mut Engine,
    random: &mut fastrand::Rng,
    model: &mut Model,
    epochs: usize,
) -> Result<(), StorageError> {
    for _ in 0..epochs {
        // Some epochs are idle.
        for _ in 0..[0, 0, 1, 2, 6][random.usize(..5)] {
            engine.transact(random, model);
        }
        engine.step(model)?;
        if random.u8(..6) == 0 {
            let last = engine.clock.epoch() - 1;
            engine.checkpoint_of(last.saturating_sub(random.u64(..4)).max(1), model)?;
        }
    }
    Ok(())
}

fn new_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed)
}

fn log_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    disk.files().into_iter().filter(|path| path.starts_with("/db/log")).collect()
}

//! The manifest: one small file that says what a database's directory holds, and is replaced as a
//! whole.
//!
//! Everything else in the directory counts only if the manifest says so. A checkpoint exists if the
//! manifest names it. A file that the manifest does not name is left from something that a crash
//! interrupted. So each change of the directory's contents (a new database, a run that begins or
//! ends, a checkpoint that replaces another) is one replacement of the manifest:
//!
//! ```text
//!   write MANIFEST.new;  sync it;  rename it to MANIFEST;  sync the directory
//! ```
//!
//! The file is one frame ([`format`](super::format)) with this payload, in the encoding of
//! [columns](crate::column#the-format):
//!
//! ```text
//!   version: u32             of this layout
//!   database: [u8; 16]       drawn at random when the database was created
//!   run: u64                 how often it has been opened
//!   first epoch: u64         of the run; all that was committed earlier has a smaller one
//!   recovered epoch: u64     where the run began: the state at the end of this epoch
//!   loggers: u32             that write in this run
//!   list of, for each logger that there is or was
//!     needed from: u64       the first segment that recovery reads; those before are leftovers
//!     run from: u64          the first segment of this run
//!     sealed: list of u64    lengths in bytes of the segments from the one to the other
//!   option of                the checkpoint
//!     epoch: u64
//!     files: list of (table u32, part u32, rows u64, length in bytes u64)
//!   list of                  the tables: a table's number is its position
//!     table description      (description::TableDescription)
//!   dropped: list of u32     the numbers of tables that a program has dropped
//!   schema: u32              the version of the schema that a program has declared
//!   oldest schema: u32       the version of the oldest programs that may open the directory
//!   time: u64                the greatest time of a transaction in the checkpoint and the sealed segments, in
//!                            milliseconds since 1970
//! ```
//!
//! Version 3 of the layout ends with the oldest schema, and its descriptions do not have the next key. Version 2 ends
//! with what was dropped. Version 1 ends with the tables, whose descriptions end with their indexes.
//!
//! **Sealed segments.** When a run begins, the log that it has recovered from is known to be
//! complete, and nothing will be appended to it. From then on the manifest has the lengths of its
//! segments. So a lost end is found even if it was lost between two frames. Only the segments of
//! the last run may have a torn tail.
//!
//! **Numbers of tables.** The log and checkpoints name tables by number. A table gets another
//! number when the encoding of its rows changes (because a column was added), since rows in both
//! encodings exist until the next checkpoint. The last number of a name is the current one. If a
//! table is renamed, all its numbers get the new name. A number is never used again, nor is that of
//! a dropped table. Different tables have different names, unless all but one of them were dropped.

use std::path::Path;

use super::backend::Backend;
use super::checkpoint::CheckpointSource;
use super::directory;
use super::format::FrameKind;
use crate::error::StorageError;
use crate::row::column::{ColumnValue, DecodeError, read_leb128, write_leb128};
use crate::row::description::TableDescription;

/// The version of the manifest's layout.
pub const MANIFEST_VERSION: u32 = 4;

/// What a database's directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Identifies the database. Copies of a directory share it, backups do not.
    pub database: [u8; 16],
    /// How often the database has been opened.
    pub run: u64,
    /// The first epoch of this run.
    pub first_epoch: u64,
    /// The epoch at whose end the state was with which this run began.
    pub recovered_epoch: u64,
    /// How many loggers write in this run.
    pub loggers: u32,
    /// The segments of each logger that has any, or writes in this run.
    pub segments: Vec<LoggerSegments>,
    /// The current checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The tables, by number.
    pub tables: Vec<TableDescription>,
    /// The numbers of tables that a program has dropped.
    pub dropped: Vec<u32>,
    /// The version of the schema; 0 if no program has declared one.
    pub schema: u32,
    /// The version of the oldest programs that may open the directory.
    pub oldest_schema: u32,
    /// The greatest time of a transaction in the checkpoint and the sealed segments, in milliseconds since 1970.
    pub time: u64,
}

/// The segments of one logger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggerSegments {
    /// The sequence number of the first segment that recovery needs.
    pub needed_from: u64,
    /// The sequence number of the first segment of this run.
    pub run_from: u64,
    /// The lengths, in bytes, of the segments that earlier runs have left, from `needed_from` on.
    pub sealed: Vec<u64>,
}

/// A checkpoint: all rows as they were at the end of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The epoch.
    pub epoch: u64,
    /// Its files.
    pub files: Vec<CheckpointFile>,
}

/// A file of a checkpoint: a part of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    /// The table's number.
    pub table: u32,
    /// The number of the part of the table.
    pub part: u32,
    /// How many rows it holds.
    pub rows: u64,
    /// Its length, in bytes.
    pub length_bytes: u64,
}

impl Checkpoint {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Returns the length of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length_bytes).sum()
    }
}

impl LoggerSegments {
    /// Returns the length of a segment that an earlier run has left; `None` for any other segment.
    pub(super) fn sealed_length(&self, sequence: u64) -> Option<u64> {
        let position = sequence.checked_sub(self.needed_from)?;
        self.sealed.get(usize::try_from(position).ok()?).copied()
    }
}

impl Manifest {
    /// Returns the manifest of a new database, with an identity of its own.
    pub fn empty() -> Manifest {
        Manifest {
            database: fastrand::u128(..).to_le_bytes(),
            run: 0,
            first_epoch: crate::sync::clock::FIRST_EPOCH,
            recovered_epoch: crate::sync::clock::FIRST_EPOCH - 1,
            loggers: 0,
            segments: Vec::new(),
            checkpoint: None,
            tables: Vec::new(),
            dropped: Vec::new(),
            schema: 0,
            oldest_schema: 0,
            time: 0,
        }
    }

    /// Returns the number of the table with this name, in the current encoding of its rows.
    pub fn table_number(&self, name: &str) -> Option<u32> {
        let mut numbers = (0..self.tables.len() as u32).rev();
        numbers.find(|number| {
            self.tables[*number as usize].name == name && !self.dropped.contains(number)
        })
    }

    /// Returns the numbers of all tables, in the current encodings of their rows.
    pub fn current_tables(&self) -> Vec<u32> {
        (0..self.tables.len() as u32)
            .filter(|&number| self.table_number(&self.tables[number as usize].name) == Some(number))
            .collect()
    }

    /// Returns all numbers of the table that has the number `number` now, in ascending order.
    pub(super) fn lineage(&self, number: u32) -> Vec<u32> {
        let name = &self.tables[number as usize].name;
        (0..=number)
            .filter(|other| {
                self.tables[*other as usize].name == *name && !self.dropped.contains(other)
            })
            .collect()
    }

    /// Returns the epoch to whose end the checkpoint and the sealed segments lead.
    pub(crate) fn base_epoch(&self) -> u64 {
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.epoch);
        self.recovered_epoch.max(checkpoint)
    }

    /// Notes how far the generated keys of the tables have come.
    pub(crate) fn note_keys(&mut self, source: &dyn CheckpointSource) {
        for (number, table) in (0..).zip(&mut self.tables) {
            table.next_key = table.next_key.max(source.next_key(number));
        }
    }

    /// Reads the manifest of `directory`. Returns `None` if the directory does not exist or holds
    /// nothing yet.
    ///
    /// # Errors
    /// If the manifest cannot be read, or if there are other files but no manifest.
    pub fn read(backend: &dyn Backend, directory: &Path) -> Result<Option<Manifest>, StorageError> {
        let path = directory::manifest_path(directory);
        if !directory::exists(backend, &path)? {
            directory::expect_new(backend, directory)?;
            return Ok(None);
        }
        let payload = directory::read_single_frame(backend, &path, FrameKind::Manifest)?;
        match Self::decode(&payload) {
            Ok(DecodedManifest::Manifest(manifest)) => Ok(Some(*manifest)),
            Ok(DecodedManifest::UnknownVersion(version)) => {
                Err(StorageError::UnknownVersion { path, version })
            }
            Err(error) => Err(StorageError::damaged(
                &path,
                0,
                format_args!("the manifest is not well-formed: {}", error.within(payload.len())),
            )),
        }
    }

    /// Makes this the manifest of `directory`. Once it returns, this is the manifest, even after a
    /// crash. Until then, the previous manifest is.
    ///
    /// # Errors
    /// Those of the file system. It is then unknown which of the two is the manifest. A later one
    /// may be written, but nothing may be removed that either of the two needs.
    pub(super) fn write(
        &self,
        backend: &dyn Backend,
        directory: &Path,
    ) -> Result<(), StorageError> {
        let (path, new) =
            (directory::manifest_path(directory), directory::new_manifest_path(directory));
        directory::remove_if_there(backend, &new)?;
        let mut payload = Vec::new();
        self.encode(&mut payload);
        directory::write_single_frame(backend, &new, FrameKind::Manifest, &payload)?;
        backend.rename(&new, &path).map_err(|error| StorageError::io("rename", &new, &error))?;
        directory::sync(backend, directory)
    }

    /// Makes sure that this is the manifest after a crash, although an attempt to replace it has begun and failed.
    pub(crate) fn restore(
        &self,
        backend: &dyn Backend,
        directory: &Path,
    ) -> Result<(), StorageError> {
        match Self::read(backend, directory)? {
            Some(current) if current == *self => Ok(()),
            _ => self.write(backend, directory),
        }
    }

    fn encode(&self, output: &mut Vec<u8>) {
        MANIFEST_VERSION.write(output);
        self.database.write(output);
        self.run.write(output);
        self.first_epoch.write(output);
        self.recovered_epoch.write(output);
        self.loggers.write(output);
        write_list(&self.segments, output, |segments, output| {
            (segments.needed_from, segments.run_from).write(output);
            segments.sealed.write(output);
        });
        self.checkpoint.is_some().write(output);
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.epoch.write(output);
            write_list(&checkpoint.files, output, |file, output| {
                (file.table, file.part, file.rows, file.length_bytes).write(output);
            });
        }
        write_list(&self.tables, output, TableDescription::write);
        self.dropped.write(output);
        (self.schema, self.oldest_schema).write(output);
        self.time.write(output);
    }

    fn decode(payload: &[u8]) -> Result<DecodedManifest, DecodeError> {
        let input = &mut &payload[..];
        let version = u32::read(input)?;
        if !(1..=MANIFEST_VERSION).contains(&version) {
            return Ok(DecodedManifest::UnknownVersion(version));
        }
        let form = [1, 2, 2, 3][version as usize - 1];
        let mut manifest = Manifest {
            database: <[u8; 16]>::read(input)?,
            run: u64::read(input)?,
            first_epoch: u64::read(input)?,
            recovered_epoch: u64::read(input)?,
            loggers: u32::read(input)?,
            segments: read_list(input, |input| {
                let (needed_from, run_from) = <(u64, u64)>::read(input)?;
                let start = *input;
                let sealed = Vec::<u64>::read(input)?;
                if !sealed.is_empty()
                    && needed_from.checked_add(sealed.len() as u64) != Some(run_from)
                {
                    return Err(DecodeError::new(
                        start,
                        "the sealed segments do not reach the run's",
                    ));
                }
                Ok(LoggerSegments { needed_from, run_from, sealed })
            })?,
            checkpoint: match bool::read(input)? {
                true => Some(Checkpoint {
                    epoch: u64::read(input)?,
                    files: read_list(input, |input| {
                        let (table, part, rows, length_bytes) = ColumnValue::read(input)?;
                        Ok(CheckpointFile { table, part, rows, length_bytes })
                    })?,
                }),
                false => None,
            },
            tables: read_list(input, |input| TableDescription::read_form(form, input))?,
            dropped: if version > 1 { Vec::read(input)? } else { Vec::new() },
            schema: 0,
            oldest_schema: 0,
            time: 0,
        };
        if version > 2 {
            (manifest.schema, manifest.oldest_schema) = ColumnValue::read(input)?;
        }
        if version > 3 {
            manifest.time = u64::read(input)?;
        }
        let unknown_table = manifest
            .checkpoint
            .iter()
            .flat_map(|checkpoint| &checkpoint.files)
            .any(|file| file.table as usize >= manifest.tables.len());
        if unknown_table || manifest.segments.len() < manifest.loggers as usize {
            return Err(DecodeError::new(input, "a table or a logger is missing"));
        }
        match input.is_empty() {
            true => Ok(DecodedManifest::Manifest(Box::new(manifest))),
            false => Err(DecodeError::new(input, "more bytes follow")),
        }
    }
}

enum DecodedManifest {
    Manifest(Box<Manifest>),
    UnknownVersion(u32),
}

fn write_list<T>(items: &[T], output: &mut Vec<u8>, mut write: impl FnMut(&T, &mut Vec<u8>)) {
    write_leb128(items.len() as u64, output);
    for item in items {
        write(item, output);
    }
}

fn read_list<T>(
    input: &mut &[u8],
    mut read: impl FnMut(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let length = read_leb128(input)?;
    let mut items = Vec::new();
    for _ in 0..length {
        items.push(read(input)?);
    }
    Ok(items)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::durability::SimulatedDisk;
    use crate::durability::recovery::tests::describe;

    fn manifest() -> Manifest {
        Manifest {
            run: 3,
            first_epoch: 40,
            recovered_epoch: 38,
            loggers: 1,
            segments: vec![
                LoggerSegments { needed_from: 4, run_from: 6, sealed: vec![100, 0] },
                LoggerSegments { needed_from: 2, run_from: 2, sealed: Vec::new() },
            ],
            checkpoint: Some(Checkpoint {
                epoch: 30,
                files: vec![CheckpointFile { table: 1, part: 0, rows: 5, length_bytes: 300 }],
            }),
            tables: vec![describe("a", &[]), describe("b", &[]), describe("a", &[("c", Some(1))])],
            dropped: vec![],
            ..Manifest::empty()
        }
    }

    #[test]
    fn a_manifest_round_trips() {
        let (disk, directory) = (SimulatedDisk::new(0), Path::new("/db"));
        directory::create_directory(&disk, directory).unwrap();
        assert_eq!(Manifest::read(&disk, directory), Ok(None));
        for manifest in [Manifest::empty(), manifest()] {
            manifest.write(&disk, directory).unwrap();
            assert_eq!(Manifest::read(&disk.crash(1), directory), Ok(Some(manifest)));
        }
    }

    /// Even without the checksum of the frame, no bytes make the decoder panic, and it takes
    /// neither too few nor too many bytes.
    #[test]
    fn any_payload_is_decoded_or_refused() {
        let mut payload = Vec::new();
        manifest().encode(&mut payload);
        for length in 0..payload.len() {
            assert!(Manifest::decode(&payload[..length]).is_err(), "cut to {length} bytes");
        }
        let longer = [&payload[..], &[0]].concat();
        assert!(Manifest::decode(&longer).is_err());
        for bit in 0..payload.len() * 8 {
            let mut flipped = payload.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(DecodedManifest::Manifest(decoded)) = Manifest::decode(&flipped) {
                assert_ne!(*decoded, manifest(), "bit {bit} has no meaning");
            }
        }
    }

    #[test]
    fn older_layouts_are_read() {
        let manifest = Manifest { tables: vec![describe("a", &[])], ..Manifest::empty() };
        let mut payload = Vec::new();
        manifest.encode(&mut payload);
        // Version 3 does not have the time, nor the next key, which precedes the dropped tables and the two versions of the
        // schema.
        payload.truncate(payload.len() - size_of::<u64>());
        assert_eq!(payload.remove(payload.len() - 10), 0);
        for (version, cut) in [(3, 0), (2, 8)] {
            payload[0] = version;
            let Ok(DecodedManifest::Manifest(read)) =
                Manifest::decode(&payload[..payload.len() - cut])
            else {
                panic!("version {version} is refused");
            };
            assert_eq!(*read, manifest);
        }
    }

    #[test]
    fn a_table_has_the_last_number_of_its_name() {
        let manifest = manifest();
        assert_eq!(manifest.table_number("a"), Some(2));
        assert_eq!(manifest.table_number("b"), Some(1));
        assert_eq!(manifest.table_number("c"), None);
        assert_eq!(manifest.current_tables(), [1, 2]);
    }
}

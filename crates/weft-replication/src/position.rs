//! A position in the log, as a file.

use std::io;
use std::path::Path;

use weft::durability::Backend;

use crate::reader::Position;

/// The first bytes of the file. The last one is the version of the format.
const MAGIC: [u8; 4] = *b"WRP\x01";

/// Where in the log the rows of a base or a backup are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredPosition {
    /// The identity of the log.
    pub log: String,
    pub position: Position,
    /// The body of the last fence before the position, which says how to read the epochs behind it.
    pub body: Vec<u8>,
}

impl StoredPosition {
    /// Returns the contents of the file: numbers are little-endian, and the last four bytes are the CRC-32C of the others.
    pub fn encode(&self) -> Vec<u8> {
        let Position { next, counted, generation, primary, epoch, chain } = self.position;
        let mut bytes = MAGIC.to_vec();
        for number in [next, counted, generation, primary, epoch, chain.into()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for text in [self.log.as_bytes(), &self.body] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the contents of the file; `None` if they are damaged.
    pub fn decode(bytes: &[u8]) -> Option<StoredPosition> {
        let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let mut number = || Some(u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?));
        let (next, counted, generation) = (number()?, number()?, number()?);
        let (primary, epoch, chain) = (number()?, number()?, number()?);
        let mut text = || {
            let length = u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?);
            Some(rest.split_off(..usize::try_from(length).ok()?)?.to_vec())
        };
        let (log, body) = (String::from_utf8(text()?).ok()?, text()?);
        let chain = u32::try_from(chain).ok()?;
        let position = Position { next, counted, generation, primary, epoch, chain };
        rest.is_empty().then_some(StoredPosition { log, position, body })
    }

    /// Reads a file; `None` if there isn't one.
    ///
    /// # Errors
    /// Those of the file system, and damage.
    pub fn read(backend: &dyn Backend, path: &Path) -> io::Result<Option<StoredPosition>> {
        if !backend.exists(path)? {
            return Ok(None);
        }
        let damaged = || io::Error::other(format!("{} is damaged", path.display()));
        StoredPosition::decode(&read_file(backend, path)?).ok_or_else(damaged).map(Some)
    }
}

/// Reads a whole file.
///
/// # Errors
/// Those of the file system.
pub fn read_file(backend: &dyn Backend, path: &Path) -> io::Result<Vec<u8>> {
    let file = backend.open_read_only(path)?;
    let mut bytes = vec![0; file.length()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Writes a file that appears as a whole.
///
/// # Errors
/// Those of the file system.
pub fn write_file(
    backend: &dyn Backend,
    directory: &Path,
    name: &str,
    bytes: &[u8],
) -> io::Result<()> {
    let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
    if backend.exists(&new)? {
        backend.remove(&new)?;
    }
    let file = backend.create_new(&new)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    backend.rename(&new, &path)?;
    backend.sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_read_as_it_was_written_and_damage_is_noticed() {
        let position =
            Position { next: 1, counted: 6, generation: 2, primary: 3, epoch: 4, chain: 5 };
        let (log, body) = ("cluster/topic".to_owned(), b"tables".to_vec());
        let stored = StoredPosition { log, position, body };
        let bytes = stored.encode();
        assert_eq!(StoredPosition::decode(&bytes), Some(stored));
        for length in 0..bytes.len() {
            assert_eq!(StoredPosition::decode(&bytes[..length]), None, "{length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(StoredPosition::decode(&changed), None, "bit {bit}");
        }
    }
}

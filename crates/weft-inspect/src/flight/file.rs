//! The flight recorder's file: a ring of records, each with a checksum.
//!
//! ```text
//!   file     header, then records, each at a multiple of 8 bytes
//!   header   magic 8 | version u32 | zero u32                                              little-endian
//!   record   magic 8 | CRC-32C of what follows u32 | length u32 | number u64 | time u64 | payload | zeros
//! ```
//!
//! `number` counts the records from 1, and `time` is in microseconds of the Unix epoch. A record that does not fit before
//! the end of the file goes to the beginning. A new record always begins where the record before it ends, so it overwrites
//! the header of each old record that it reaches. The magic has a byte that is not in any payload, because payloads are
//! text. So a reader finds the records by their magic and checksum, wherever the writer stopped.

use std::io::{self, Read};
use std::ops::Range;

/// The first bytes of the file.
const FILE_MAGIC: [u8; 8] = *b"weftflt\xff";
const VERSION: u32 = 1;
/// The first bytes of each record.
const RECORD_MAGIC: [u8; 8] = *b"\xffrecord\xff";
const FILE_HEADER_BYTES: usize = 16;
const CHECKSUM: Range<usize> = 8..12;
const LENGTH: Range<usize> = 12..16;
const NUMBER: Range<usize> = 16..24;
const TIME: Range<usize> = 24..32;
const RECORD_HEADER_BYTES: usize = 32;
const ALIGNMENT: usize = 8;

/// The smallest file: it has space for a record of about 1 KiB.
pub const BYTES_MIN: usize = 4096;

/// Writes records into the bytes of a file.
pub struct Ring<B> {
    bytes: B,
    position: usize,
    number: u64,
}

impl<B: AsMut<[u8]> + AsRef<[u8]>> Ring<B> {
    /// Makes an empty ring of `bytes`, which must be zeros, and at least [`BYTES_MIN`].
    pub fn new(mut bytes: B) -> Self {
        let header = bytes.as_mut();
        header[..8].copy_from_slice(&FILE_MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        Ring { bytes, position: FILE_HEADER_BYTES, number: 0 }
    }

    /// Appends a record, which overwrites the oldest ones. Returns false if the payload is larger than a quarter of the
    /// file: it would leave too little of what was recorded before.
    pub fn append(&mut self, time: u64, payload: &str) -> bool {
        let bytes = self.bytes.as_mut();
        let end = RECORD_HEADER_BYTES + payload.len();
        if end > bytes.len() / 4 {
            return false;
        }
        let space = end.next_multiple_of(ALIGNMENT);
        if self.position + space > bytes.len() {
            self.position = FILE_HEADER_BYTES;
        }
        self.number += 1;
        let record = &mut bytes[self.position..][..space];
        let mut header = [0; RECORD_HEADER_BYTES];
        header[LENGTH].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[NUMBER].copy_from_slice(&self.number.to_le_bytes());
        header[TIME].copy_from_slice(&time.to_le_bytes());
        let checksum = crc32c::crc32c(&header[LENGTH.start..]);
        let checksum = crc32c::crc32c_append(checksum, payload.as_bytes());
        header[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        header[..8].copy_from_slice(&RECORD_MAGIC);
        // If the process is killed in between, the checksum does not match.
        record[..RECORD_HEADER_BYTES].copy_from_slice(&header);
        record[RECORD_HEADER_BYTES..end].copy_from_slice(payload.as_bytes());
        record[end..].fill(0);
        self.position += space;
        true
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Returns whether a file begins as a ring does. A file of which only the zeros were written does not.
///
/// # Errors
/// If the file cannot be read.
pub fn is_recording(file: impl Read) -> io::Result<bool> {
    let mut magic = Vec::new();
    file.take(FILE_MAGIC.len() as u64).read_to_end(&mut magic)?;
    Ok(magic == FILE_MAGIC)
}

/// A record of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts the records from 1.
    pub number: u64,
    /// When it was written, in microseconds of the Unix epoch.
    pub time: u64,
    /// What was recorded.
    pub payload: String,
}

/// Returns the records of a file, the oldest first, and a message for each one that is torn or damaged.
///
/// # Errors
/// A message if this is no file of a flight recorder.
pub fn read(bytes: &[u8]) -> Result<(Vec<Record>, Vec<String>), String> {
    if bytes.len() < FILE_HEADER_BYTES || bytes[..8] != FILE_MAGIC {
        return Err("this is not a file of a flight recorder".to_owned());
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
    if version != VERSION {
        return Err(format!("the file has version {version}, and this program reads {VERSION}"));
    }
    let (mut records, mut skipped) = (Vec::new(), Vec::new());
    let mut position = FILE_HEADER_BYTES;
    while position + RECORD_HEADER_BYTES <= bytes.len() {
        let mut next = position + ALIGNMENT;
        if bytes[position..].starts_with(&RECORD_MAGIC) {
            match read_record(&bytes[position..]) {
                Some(record) => {
                    let end = position + RECORD_HEADER_BYTES + record.payload.len();
                    next = end.next_multiple_of(ALIGNMENT);
                    records.push(record);
                }
                None => skipped.push(format!(
                    "the record at byte {position} is torn or damaged: its checksum does not match"
                )),
            }
        }
        position = next;
    }
    records.sort_by_key(|record| record.number);
    Ok((records, skipped))
}

fn read_record(bytes: &[u8]) -> Option<Record> {
    let u32_at =
        |range: Range<usize>| u32::from_le_bytes(bytes[range].try_into().expect("4 bytes"));
    let u64_at =
        |range: Range<usize>| u64::from_le_bytes(bytes[range].try_into().expect("8 bytes"));
    let end = RECORD_HEADER_BYTES.checked_add(u32_at(LENGTH) as usize)?;
    let checked = bytes.get(LENGTH.start..end)?;
    if crc32c::crc32c(checked) != u32_at(CHECKSUM) {
        return None;
    }
    let payload = String::from_utf8(bytes[RECORD_HEADER_BYTES..end].to_vec()).ok()?;
    Some(Record { number: u64_at(NUMBER), time: u64_at(TIME), payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(bytes: &[u8]) -> Vec<String> {
        let (records, skipped) = read(bytes).unwrap();
        assert_eq!(skipped, [""; 0]);
        records.into_iter().map(|record| record.payload).collect()
    }

    fn ring(bytes: usize) -> Ring<Vec<u8>> {
        Ring::new(vec![0; bytes])
    }

    #[test]
    fn records_come_back_in_their_order() {
        let mut ring = ring(BYTES_MIN);
        assert_eq!(payloads(ring.bytes()), [""; 0]);
        assert!(ring.append(5, "one") && ring.append(6, "") && ring.append(7, "three"));
        let (records, _) = read(ring.bytes()).unwrap();
        let times: Vec<_> = records.iter().map(|record| (record.number, record.time)).collect();
        assert_eq!(times, [(1, 5), (2, 6), (3, 7)]);
        assert_eq!(payloads(ring.bytes()), ["one", "", "three"]);
    }

    /// Every position at which the writer can stop, with records of random lengths.
    #[test]
    fn the_newest_records_stay_however_often_the_ring_is_full() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut ring = ring(BYTES_MIN);
            for number in 1..=200_u64 {
                let payload = "x".repeat(random.usize(..900));
                assert!(ring.append(number, &payload));
                let (records, skipped) = read(ring.bytes()).unwrap();
                assert_eq!(skipped, [""; 0], "seed {seed}");
                let newest = records.last().unwrap();
                assert_eq!((newest.number, &newest.payload), (number, &payload), "seed {seed}");
                assert!(
                    number < 3 || records[records.len() - 2].number == number - 1,
                    "seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_record_that_is_torn_anywhere_is_skipped_with_a_message() {
        let mut ring = ring(BYTES_MIN);
        for payload in ["first", "the second", "third"] {
            ring.append(1, payload);
        }
        let second = FILE_HEADER_BYTES + 40;
        for byte in second + 8..second + RECORD_HEADER_BYTES + "the second".len() {
            let mut bytes = ring.bytes().to_vec();
            bytes[byte] ^= 0x10;
            let (records, skipped) = read(&bytes).unwrap();
            let payloads: Vec<_> = records.iter().map(|record| &*record.payload).collect();
            assert_eq!(payloads, ["first", "third"], "byte {byte}");
            assert_eq!(skipped.len(), 1, "byte {byte}");
            assert!(skipped[0].contains(&format!("byte {second}")), "{}", skipped[0]);
        }
        // A file that ends within the last record.
        let end = second + 48 + RECORD_HEADER_BYTES + 2;
        let (records, skipped) = read(&ring.bytes()[..end]).unwrap();
        assert_eq!((records.len(), skipped.len()), (2, 1));
    }

    #[test]
    fn a_payload_larger_than_a_quarter_of_the_file_is_refused() {
        let mut ring = ring(BYTES_MIN);
        assert!(ring.append(1, &"x".repeat(BYTES_MIN / 4 - RECORD_HEADER_BYTES)));
        assert!(!ring.append(1, &"x".repeat(BYTES_MIN / 4)));
        assert_eq!(payloads(ring.bytes()).len(), 1);
    }

    #[test]
    fn other_files_are_refused() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for length in [0, 15, 16, 4096] {
            let bytes: Vec<_> = (0..length).map(|_| random.u8(..)).collect();
            assert!(read(&bytes).is_err(), "seed {seed}");
        }
        let mut bytes = ring(BYTES_MIN).bytes().to_vec();
        bytes[8] = 2;
        assert_eq!(read(&bytes).unwrap_err(), "the file has version 2, and this program reads 1");
    }

    /// Random bytes behind valid magics: nothing panics, and no record is invented.
    #[test]
    fn random_bytes_are_no_records() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let mut bytes = ring(BYTES_MIN).bytes().to_vec();
            for byte in &mut bytes[FILE_HEADER_BYTES..] {
                *byte = random.u8(..);
            }
            for _ in 0..10 {
                let position = random.usize(2..500) * ALIGNMENT;
                bytes[position..][..8].copy_from_slice(&RECORD_MAGIC);
            }
            assert_eq!(read(&bytes).unwrap().0, [], "seed {seed}");
        }
    }
}

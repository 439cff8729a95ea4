//! The interface that every compared system implements, and the rows that all of them hold.
//!
//! Every system holds the same table: the keys are the integers from 0, in ascending order, and each value has 100
//! bytes. A system that knows columns stores the two parts of a value as columns; the others store its bytes.
//!
//! ```text
//!    key        value, 100 bytes
//!   +---------+---------+------------------------------------------+
//!   | 8 bytes | number  | payload: 92 bytes that depend on the key |
//!   +---------+---------+------------------------------------------+
//! ```

/// What the functions of a store return. The program ends at the first error, so its type doesn't matter.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The size of a value's payload.
pub const PAYLOAD_BYTES: usize = 92;

/// The size of a value: a number and the payload.
pub const VALUE_BYTES: usize = NUMBER_BYTES + PAYLOAD_BYTES;

const NUMBER_BYTES: usize = size_of::<i64>();

/// A system that holds rows and runs three kinds of transactions on them.
///
/// Every function is one transaction: all threads see all of it or none of it, as if the transactions ran one after
/// the other. If the system refuses a transaction because of a conflict, the function runs it again until it
/// commits. Systems keep nothing on a disk.
pub trait Store: Sized + Sync {
    /// Opens the system and inserts rows with the keys `0..rows`. Their numbers are 0, and their payloads are those
    /// of [`payload`].
    fn open(rows: u64) -> Result<Self>;

    /// Adds 1 to the number of a row.
    fn add_one(&self, key: u64) -> Result<()>;

    /// Subtracts 1 from the number of row `from` and adds 1 to that of another row, `to`. Returns the new numbers
    /// of the two rows.
    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)>;

    /// Performs operations in their order, and returns the sum of the checksums of the payloads that it has read.
    fn perform(&self, operations: &[Operation]) -> Result<u32>;

    /// Does the same as [`perform`](Store::perform), in any order. A system that can fetch several rows at once does it
    /// here.
    fn perform_together(&self, operations: &[Operation]) -> Result<u32> {
        self.perform(operations)
    }

    /// Returns the numbers of all rows in the order of their keys.
    fn numbers(&self) -> Result<Vec<i64>>;
}

/// An operation of a longer transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the row with this key, the whole payload included.
    Read(u32),
    /// Adds 1 to the number of the row with this key.
    Update(u32),
}

impl Operation {
    /// Returns the key of the row that is read, if the operation is a read.
    pub fn read_key(&self) -> Option<u64> {
        match *self {
            Operation::Read(key) => Some(key.into()),
            Operation::Update(_) => None,
        }
    }

    /// Returns the key of the row that is updated, if the operation is an update.
    pub fn update_key(&self) -> Option<u64> {
        match *self {
            Operation::Read(_) => None,
            Operation::Update(key) => Some(key.into()),
        }
    }
}

/// Returns whether none of the operations is an update. Some systems have cheaper transactions for this case.
pub fn are_reads(operations: &[Operation]) -> bool {
    operations.iter().all(|operation| matches!(operation, Operation::Read(_)))
}

/// Returns the payload of the row with this key.
pub fn payload(key: u64) -> [u8; PAYLOAD_BYTES] {
    let word = (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    std::array::from_fn(|position| word[position % word.len()])
}

/// Returns the sum of a payload's 4-byte words: a reader that computes it has read every byte.
///
/// # Panics
/// The payload has another size than [`PAYLOAD_BYTES`].
#[inline]
pub fn checksum(payload: &[u8]) -> u32 {
    let payload: &[u8; PAYLOAD_BYTES] = payload.try_into().expect("a payload has 92 bytes");
    let (words, []) = payload.as_chunks::<4>() else { unreachable!("92 is a multiple of 4") };
    words.iter().map(|word| u32::from_le_bytes(*word)).fold(0, u32::wrapping_add)
}

/// Returns the checksum of the payload of the row with this key, without making the payload.
#[inline]
pub fn payload_checksum(key: u64) -> u32 {
    let word = (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (low, high) = (word as u32, (word >> 32) as u32);
    low.wrapping_mul(12).wrapping_add(high.wrapping_mul(11))
}

/// Values as bytes, for systems without columns.
pub mod bytes {
    use super::{NUMBER_BYTES, VALUE_BYTES};

    /// Returns the value of the row with this key when it is inserted.
    pub fn inserted(key: u64) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        value[NUMBER_BYTES..].copy_from_slice(&super::payload(key));
        value
    }

    /// Returns the number of a value.
    ///
    /// # Panics
    /// The value is shorter than a number.
    #[inline]
    pub fn number(value: &[u8]) -> i64 {
        i64::from_le_bytes(*value.first_chunk().expect("a value begins with its number"))
    }

    /// Returns a copy of a value, with `addend` added to its number.
    ///
    /// # Panics
    /// The value has another size than [`VALUE_BYTES`].
    #[inline]
    pub fn with_added(value: &[u8], addend: i64) -> [u8; VALUE_BYTES] {
        let mut changed: [u8; VALUE_BYTES] = value.try_into().expect("a value has 100 bytes");
        changed[..NUMBER_BYTES].copy_from_slice(&(number(value) + addend).to_le_bytes());
        changed
    }

    /// Returns the checksum of a value's payload.
    ///
    /// # Panics
    /// The value has another size than [`VALUE_BYTES`].
    #[inline]
    pub fn checksum(value: &[u8]) -> u32 {
        super::checksum(&value[NUMBER_BYTES..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_known_without_the_payload() {
        for key in [0, 1, 7, 1_000_000] {
            assert_eq!(payload_checksum(key), checksum(&payload(key)));
        }
    }
}

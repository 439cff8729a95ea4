//! HyperLogLogs: estimates of how many different elements there were, in strings of Redis's format.
//!
//! ```text
//!   "HYLL"  encoding  3 unused  8 bytes of a remembered count  registers
//!           0 dense: 16,384 numbers of 6 bits, the lowest bits first
//!           1 sparse: runs   00nnnnnn            n + 1 zeros
//!                            01nnnnnn nnnnnnnn   n + 1 zeros
//!                            1vvvvvnn            n + 1 times the value v + 1
//! ```
//!
//! The highest bit of the remembered count says that it is out of date. `PFCOUNT` uses a count that is remembered, but
//! remembers none, so that it only reads. `PFADD` of elements that change no register only reads, too: two clients that add to
//! the same HyperLogLog disturb each other less the fuller it is.

use crate::call::Call;
use crate::reply::Reply;
use crate::stop::Done;
use crate::store::{Key, Value};
use crate::tables::{Head, Kind};

const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// How many bits of the hash are counted. A register is at most one more than this.
const COUNTED_BITS: usize = 64 - INDEX_BITS as usize;
const REGISTER_BITS: usize = 6;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// A sparse form that would be longer becomes dense: Redis's setting `hll-sparse-max-bytes`.
const SPARSE_BYTES_MAX: usize = 3000;
/// The greatest register that the sparse form can have.
const SPARSE_MAX: u8 = 32;
/// Says that the remembered count is out of date.
const STALE: u8 = 1 << 7;

const NOT_ONE: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const CORRUPTED: &str = "INVALIDOBJ Corrupted HLL object detected";

/// The registers, and what else a string has.
struct Sketch {
    registers: Box<[u8; REGISTERS]>,
    is_dense: bool,
    remembered: [u8; 8],
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch { registers: Box::new([0; REGISTERS]), is_dense: false, remembered: [0; 8] }
    }
}

impl Sketch {
    /// Reads a string. A key that is not there is a sketch of no elements.
    fn read(head: Option<&Head>) -> Done<Self> {
        let Some(head) = head else { return Ok(Self::default()) };
        let bytes = head.bytes();
        let header = bytes.first_chunk::<HEADER_BYTES>().filter(|header| {
            header.starts_with(b"HYLL")
                && header[4] < 2
                && (header[4] == 1 || bytes.len() == DENSE_BYTES)
        });
        let header = header.ok_or(NOT_ONE)?;
        let mut sketch = Sketch { is_dense: header[4] == 0, ..Self::default() };
        sketch.remembered.copy_from_slice(&header[8..]);
        let body = &bytes[HEADER_BYTES..];
        if sketch.is_dense {
            for (number, register) in sketch.registers.iter_mut().enumerate() {
                let (at, shift) = (number * REGISTER_BITS / 8, number * REGISTER_BITS % 8);
                let next = u16::from(body.get(at + 1).copied().unwrap_or(0));
                let pair = u16::from(body[at]) | next << 8;
                *register = (pair >> shift) as u8 & 0x3f;
            }
        } else {
            sketch.read_runs(body).ok_or(CORRUPTED)?;
        }
        Ok(sketch)
    }

    /// Reads the sparse form. Returns `None` if it has too few or too many registers.
    fn read_runs(&mut self, body: &[u8]) -> Option<()> {
        let (mut bytes, mut rest) = (body.iter(), &mut self.registers[..]);
        while let Some(byte) = bytes.next().copied() {
            let (value, length) = match byte >> 6 {
                0 => (0, usize::from(byte) + 1),
                1 => (0, (usize::from(byte & 0x3f) << 8 | usize::from(*bytes.next()?)) + 1),
                _ => ((byte >> 2 & 0x1f) + 1, usize::from(byte & 3) + 1),
            };
            let (run, others) = rest.split_at_mut_checked(length)?;
            run.fill(value);
            rest = others;
        }
        rest.is_empty().then_some(())
    }

    /// Returns the sketch as a string, which becomes dense if it has to.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"HYLL\x01\0\0\0".to_vec();
        bytes.extend(self.remembered);
        let is_sparse = !self.is_dense && self.registers.iter().all(|value| *value <= SPARSE_MAX);
        if is_sparse && self.write_runs(&mut bytes) {
            return bytes;
        }
        bytes[4] = 0;
        bytes.resize(HEADER_BYTES, 0);
        bytes.resize(DENSE_BYTES, 0);
        for (number, value) in self.registers.iter().enumerate() {
            let (at, shift) = (number * REGISTER_BITS / 8, number * REGISTER_BITS % 8);
            let pair = (u16::from(*value) << shift).to_le_bytes();
            bytes[HEADER_BYTES + at] |= pair[0];
            if pair[1] != 0 {
                bytes[HEADER_BYTES + at + 1] |= pair[1];
            }
        }
        bytes
    }

    /// Writes the sparse form. Returns false if it is too long.
    fn write_runs(&self, bytes: &mut Vec<u8>) -> bool {
        for run in self.registers.chunk_by(|one, other| one == other) {
            match (run[0], run.len()) {
                (0, length @ ..=64) => bytes.push(length as u8 - 1),
                (0, length) => bytes.extend((0x4000 | (length - 1) as u16).to_be_bytes()),
                (value, _) => {
                    let parts = run.chunks(4);
                    bytes
                        .extend(parts.map(|part| 0x80 | (value - 1) << 2 | (part.len() as u8 - 1)));
                }
            }
            if bytes.len() > HEADER_BYTES + SPARSE_BYTES_MAX {
                return false;
            }
        }
        true
    }

    /// Adds an element. Returns whether a register has changed.
    fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur(element);
        let register = &mut self.registers[hash as usize % REGISTERS];
        // The bit above those that are counted ends the count.
        let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
        let zeros = counted.trailing_zeros() as u8 + 1;
        let changes = zeros > *register;
        *register = zeros.max(*register);
        changes
    }

    fn merge(&mut self, other: &Sketch) {
        self.is_dense |= other.is_dense;
        for (register, value) in self.registers.iter_mut().zip(other.registers.iter()) {
            *register = (*register).max(*value);
        }
    }

    /// Returns the estimate: O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6.
    fn count(&self) -> u64 {
        let mut of_value = [0_u32; 1 << REGISTER_BITS];
        self.registers.iter().for_each(|value| of_value[usize::from(*value)] += 1);
        let all = REGISTERS as f64;
        let mut sum = all * tau((all - f64::from(of_value[COUNTED_BITS + 1])) / all);
        for count in of_value[1..=COUNTED_BITS].iter().rev() {
            sum = (sum + f64::from(*count)) * 0.5;
        }
        sum += all * sigma(f64::from(of_value[0]) / all);
        (0.5 / std::f64::consts::LN_2 * all * all / sum).round() as u64
    }
}

/// Corrects for registers that are zero.
fn sigma(mut part: f64) -> f64 {
    if part == 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, part);
    loop {
        part *= part;
        let before = sum;
        sum += part * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

/// Corrects for registers that are as great as they can be.
fn tau(mut part: f64) -> f64 {
    if part == 0.0 || part == 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - part);
    loop {
        part = part.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - part) * (1.0 - part) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// Returns the hash that Redis has for elements: MurmurHash64A.
fn murmur(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xadc8_3b19;
    let mix = |word: u64| {
        let word = word.wrapping_mul(FACTOR);
        (word ^ word >> 47).wrapping_mul(FACTOR)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    for word in words {
        hash = (hash ^ mix(u64::from_le_bytes(*word))).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(FACTOR);
    hash ^ hash >> 47
}

fn write(call: &Call<'_>, key: &Key<'_>, head: Option<&Head>, mut sketch: Sketch) -> Done {
    sketch.remembered[7] |= STALE;
    call.effects.name_event("pfadd");
    let expires_at = head.map_or(0, |head| head.expires_at);
    call.write_text(key, Value::new(&sketch.bytes()), expires_at)
}

/// `PFADD`
pub fn pfadd(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let head = call.expect(&key, Kind::Text)?;
    let mut sketch = Sketch::read(head)?;
    let mut changes = head.is_none();
    for element in call.rest(2) {
        changes |= sketch.add(element);
    }
    reply.flag(changes);
    if changes { write(call, &key, head, sketch) } else { Ok(()) }
}

/// `PFCOUNT`
pub fn pfcount(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut all = Sketch::default();
    for name in call.rest(1) {
        let sketch = Sketch::read(call.expect(&call.key_of(name), Kind::Text)?)?;
        let remembered = u64::from_le_bytes(sketch.remembered);
        if call.len() == 2 && remembered != 0 && sketch.remembered[7] & STALE == 0 {
            reply.integer(i64::try_from(remembered).unwrap_or(i64::MAX));
            return Ok(());
        }
        all.merge(&sketch);
    }
    reply.integer(i64::try_from(all.count()).unwrap_or(i64::MAX));
    Ok(())
}

/// `PFMERGE`
pub fn pfmerge(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let head = call.expect(&key, Kind::Text)?;
    let mut all = Sketch::read(head)?;
    for name in call.rest(2) {
        all.merge(&Sketch::read(call.expect(&call.key_of(name), Kind::Text)?)?);
    }
    reply.ok();
    write(call, &key, head, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> Head {
        let text = Some(bytes.into());
        let (space, slot, collection, expires_at, number) = (0, 0, 0, 0, 0);
        Head { space, slot, key: [].into(), kind: Kind::Text, collection, expires_at, number, text }
    }

    #[test]
    fn both_forms_keep_all_registers_and_estimates_are_close() {
        for count in [0, 1, 10, 500, 3000, 100_000_u64] {
            let mut sketch = Sketch::default();
            for number in 0..count {
                sketch.add(format!("element {number}").as_bytes());
            }
            let bytes = sketch.bytes();
            assert_eq!(bytes[4], u8::from(count < 3000), "{count}");
            let read = Sketch::read(Some(&head(&bytes))).ok().unwrap();
            assert_eq!(read.registers, sketch.registers);
            // The standard error is 0.81 %.
            let error = read.count().abs_diff(count);
            assert!(error * 25 <= count, "{count}: {error}");
        }
    }

    #[test]
    fn strings_that_are_wrong_are_refused() {
        let whole = Sketch::default().bytes();
        for cut in 0..whole.len() {
            assert!(Sketch::read(Some(&head(&whole[..cut]))).is_err(), "{cut}");
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            bytes.extend((0..random.usize(..40)).map(|_| random.u8(..)));
            let at = random.usize(HEADER_BYTES..bytes.len());
            bytes[at] = random.u8(..);
            // No panic: it is right, or refused.
            let _ = Sketch::read(Some(&head(&bytes)));
        }
    }
}

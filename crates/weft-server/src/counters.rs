//! The numbers that the server counts, and how fast three of them grow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};

/// Over which time the rates are measured, as in Redis.
const RATES_SPAN: Duration = Duration::from_millis(1600);
/// How many codes of errors are counted one by one, as in Redis.
const CODES_MAX: usize = 128;
/// How long a code is at most.
const CODE_BYTES_MAX: usize = 32;
/// The code of most errors. Errors without a code count as this one.
const ERR: &str = "ERR";

/// Numbers that the server counts.
#[derive(Debug)]
pub struct Counters {
    /// Commands that were run.
    pub commands: Word,
    /// Connections that were accepted.
    pub accepted: Word,
    /// Connections that were refused.
    pub refused: Word,
    /// Error replies.
    pub errors: Word,
    /// Bytes received.
    pub input_bytes: Word,
    /// Bytes sent.
    pub output_bytes: Word,
    /// Keys that have expired and were removed in the background.
    pub expired: Word,
    /// Error replies by their code. Errors are rare, so all threads share the lock.
    codes: Mutex<BTreeMap<String, u64>>,
    /// The last samples of three counters, the oldest first.
    samples: Mutex<VecDeque<Sample>>,
}

/// The counters whose rates `INFO` shows, at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
}

/// How fast counters grow, in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Commands that are run.
    pub commands: f64,
    /// Bytes that are received.
    pub input_bytes: f64,
    /// Bytes that are sent.
    pub output_bytes: f64,
}

impl Counters {
    /// Returns counters that are all zero.
    pub fn new() -> Self {
        let [commands, accepted, refused, errors, input_bytes, output_bytes, expired] =
            std::array::from_fn(|_| Word::new(0));
        let (codes, samples) = (Mutex::default(), Mutex::default());
        Counters {
            commands,
            accepted,
            refused,
            errors,
            input_bytes,
            output_bytes,
            expired,
            codes,
            samples,
        }
    }

    /// Sets all numbers to zero.
    pub fn reset(&self) {
        let words = [
            &self.commands,
            &self.accepted,
            &self.refused,
            &self.errors,
            &self.input_bytes,
            &self.output_bytes,
            &self.expired,
        ];
        words.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.lock_codes().clear();
        self.lock_samples().clear();
    }

    fn lock_codes(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the code of an error reply: its first word, if this is in capitals.
    pub fn note_code(&self, error: &str) {
        let is_code = |word: &str| {
            let is_plain = |byte: u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-');
            (1..=CODE_BYTES_MAX).contains(&word.len()) && word.bytes().all(is_plain)
        };
        let code = error.split(' ').next().filter(|word| is_code(word)).unwrap_or(ERR);
        let mut codes = self.lock_codes();
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
            return;
        }
        // Scripts and procedures can return any codes, which must not fill the memory.
        let code = if codes.len() < CODES_MAX { code } else { ERR };
        *codes.entry(code.to_owned()).or_default() += 1;
    }

    /// Returns the codes of error replies, each with how often it was sent.
    pub fn codes(&self) -> BTreeMap<String, u64> {
        self.lock_codes().clone()
    }

    /// Takes a sample of the counters for the rates.
    pub fn sample(&self, at: Instant) {
        let sample = Sample {
            at,
            commands: self.commands.load(Ordering::Relaxed),
            input_bytes: self.input_bytes.load(Ordering::Relaxed),
            output_bytes: self.output_bytes.load(Ordering::Relaxed),
        };
        let mut samples = self.lock_samples();
        samples.push_back(sample);
        // The first sample is the one from which the rates count, so it may be older than the span.
        while samples.get(1).is_some_and(|second| at - second.at >= RATES_SPAN) {
            samples.pop_front();
        }
    }

    /// Returns the rates between the first and the last sample. They are 0 if there are fewer than two samples.
    pub fn rates(&self) -> Rates {
        let samples = self.lock_samples();
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return Rates::default();
        };
        let seconds = (last.at - first.at).as_secs_f64();
        if seconds == 0.0 {
            return Rates::default();
        }
        // An operator may have set the counters to zero while a sample was taken.
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        Rates {
            commands: rate(first.commands, last.commands),
            input_bytes: rate(first.input_bytes, last.input_bytes),
            output_bytes: rate(first.output_bytes, last.output_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_samples() {
        let counters = Counters::new();
        let start = Instant::now();
        counters.sample(start);
        assert_eq!(counters.rates(), Rates::default());
        // A busy second, and then a quiet time.
        counters.commands.store(1000, Ordering::Relaxed);
        counters.input_bytes.store(4096, Ordering::Relaxed);
        counters.sample(start + Duration::from_secs(1));
        let rates = Rates { commands: 1000.0, input_bytes: 4096.0, output_bytes: 0.0 };
        assert_eq!(counters.rates(), rates);
        for tenth in 11..40 {
            counters.sample(start + tenth * Duration::from_millis(100));
        }
        assert_eq!(counters.rates(), Rates::default());
        assert!(counters.lock_samples().len() < 20);
    }

    #[test]
    fn only_words_in_capitals_are_codes() {
        let counters = Counters::new();
        for error in ["ERR one", "WRONGTYPE two", "oops three", "", "MY_ERR: four", "ERR"] {
            counters.note_code(error);
        }
        let codes: Vec<_> = counters.codes().into_iter().collect();
        assert_eq!(codes, [("ERR".to_owned(), 5), ("WRONGTYPE".to_owned(), 1)]);
        counters.reset();
        for number in 0..1000 {
            counters.note_code(&format!("CODE{number} x"));
        }
        let codes = counters.codes();
        assert_eq!(codes.values().sum::<u64>(), 1000);
        assert_eq!(codes.len(), CODES_MAX + 1);
    }
}

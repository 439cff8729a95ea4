//! The log: a ring of words, into which records are copied under one lock.

use weft::htm::lock::{Elidable, Mcs, Tatas};
use weft::htm::word::Word;

use super::Kinds;
use super::protected::Protected;
use super::thread::{Counter, Session, get, increment, set};

/// The words of the buffer: 128 KiB, the default of Shore-MT's option `sm_logbufsize`.
const BUFFER_WORDS: usize = 128 * 1024 / 8;

/// The words of a record's header: Shore-MT's has 40 bytes.
const HEADER_WORDS: usize = 5;

/// The most words of a record: the header, and a row before and after its change.
pub(super) const RECORD_WORDS_MAX: usize = HEADER_WORDS + 2 * super::rows::ROW_WORDS_MAX;

/// What a log record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A change of a row.
    Row = 1,
    /// A change of a leaf.
    Leaf,
    /// A commit frees what the transaction has reserved.
    FreeingSpace,
    /// The end of a transaction.
    End,
}

#[derive(Debug, Default)]
struct Tail {
    /// The position of the next record, in bytes from the beginning of the log.
    position: Word,
    /// The end of the buffer's current segment.
    epoch: Word,
    /// The number of changes of rows among the records.
    changes: Word,
}

#[derive(Debug, Default)]
struct Flushed {
    requested: Word,
    requests: Word,
}

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    insert: Elidable<Protected<Mcs, Tail>>,
    flush: Elidable<Protected<Tatas, Flushed>>,
    buffer: Box<[Word]>,
}

impl Log {
    pub(super) fn new(has_fences: bool, kinds: Kinds) -> Log {
        Log {
            insert: Protected::new(has_fences, kinds.mcs),
            flush: Protected::new(has_fences, kinds.tatas),
            buffer: (0..BUFFER_WORDS).map(|_| Word::new(0)).collect(),
        }
    }

    /// Returns how many changes of rows are in the log.
    pub(super) fn changes(&self) -> u64 {
        get(&self.insert.lock().data.changes)
    }

    /// Appends a record about `page`, whose body has `body` words. `word` returns the words of the body. Returns the
    /// position of the record.
    #[inline]
    pub(super) fn append(
        &self,
        session: Session<'_>,
        kind: Kind,
        page: u64,
        body: usize,
        word: impl Fn(usize) -> u64,
    ) -> u64 {
        session.enter();
        session.alone(&session.thread.log, || {
            // The record is built in the transaction's own buffer, and then copied.
            let record = &session.thread.record[..HEADER_WORDS + body];
            let header = [(record.len() as u64 * 8) | ((kind as u64) << 32), page, 0, 0];
            record.iter().zip(header).for_each(|(word, value)| set(word, value));
            set(&record[2], session.thread.transaction.number());
            record[HEADER_WORDS..].iter().enumerate().for_each(|(at, to)| set(to, word(at)));
            session.count(Counter::RecordsLogged);
            self.insert(session, kind, record)
        })
    }

    #[inline]
    fn insert(&self, session: Session<'_>, kind: Kind, record: &[Word]) -> u64 {
        session.alone(&self.insert, || {
            let tail = &self.insert.lock().data;
            let position = get(&tail.position);
            let start = position as usize / 8;
            for (at, word) in record.iter().enumerate() {
                set(&self.buffer[(start + at) % BUFFER_WORDS], get(word));
            }
            set(&self.buffer[(start + HEADER_WORDS - 1) % BUFFER_WORDS], position);
            let end = position + record.len() as u64 * 8;
            set(&tail.position, end);
            set(&tail.epoch, end - end % (BUFFER_WORDS as u64 * 8));
            if kind == Kind::Row {
                increment(&tail.changes, 1);
            }
            position
        })
    }

    /// Asks for the log to be written up to `position`.
    #[inline]
    pub(super) fn request_flush(&self, session: Session<'_>, position: u64) {
        session.alone(&self.flush, || {
            let flushed = &self.flush.lock().data;
            if get(&flushed.requested) < position {
                set(&flushed.requested, position);
            }
            increment(&flushed.requests, 1);
        });
    }
}

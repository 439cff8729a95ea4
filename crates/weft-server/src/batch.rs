//! Requests that have arrived together.

use std::ops::Range;

use smallvec::SmallVec;

use crate::commands::{self, Command};
use crate::request::{Parsed, Parser, RANGES_KEPT};
use crate::session::{EXEC, MULTI, Session};

/// The most requests of a batch. One that ends between `MULTI` and `EXEC` goes on up to `EXEC`, if that is not far.
pub const BATCH_REQUESTS: usize = 16;
const BATCH_REQUESTS_TO_EXEC: usize = 4 * BATCH_REQUESTS;

/// Requests that are complete and were not run yet.
#[derive(Default)]
pub struct Batch {
    /// The next one is the last.
    pub requests: SmallVec<[Request; BATCH_REQUESTS]>,
    /// Where the arguments of the requests are.
    pub ranges: Vec<Range<usize>>,
    /// The command of the last request.
    last: Option<&'static Command>,
    /// Why what follows cannot be read.
    failure: Option<String>,
}

/// A request of a batch.
pub struct Request {
    /// The command, unless the server does not have it or it is a procedure.
    pub command: Option<&'static Command>,
    /// Where the batch says where the arguments are.
    pub arguments: Range<usize>,
    /// Whether it is a line of words, which the parser has.
    pub is_line: bool,
    /// Where it ends in the input.
    pub end: usize,
}

impl Batch {
    /// Returns whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes the next request, or the reason why it cannot be read.
    pub fn next(&mut self) -> Option<Result<Request, String>> {
        self.requests.pop().map(Ok).or_else(|| self.failure.take().map(Err))
    }

    /// Reads requests from a place in the input on.
    pub fn fill(&mut self, parser: &mut Parser, input: &[u8], start: usize, session: &Session) {
        if self.failure.is_some() {
            return;
        }
        // What strangers may send depends on the commands that come before.
        let requests_max = if session.is_known { BATCH_REQUESTS } else { 1 };
        let mut start = start;
        self.ranges.clear();
        if self.ranges.capacity() > RANGES_KEPT {
            // Requests of so many arguments are rare.
            self.ranges.shrink_to(RANGES_KEPT);
        }
        let mut is_in_queue = false;
        while start < input.len()
            && (self.requests.len() < requests_max
                || (is_in_queue && self.requests.len() < BATCH_REQUESTS_TO_EXEC))
        {
            match parser.parse(&input[start..], session.is_known) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Complete(length)) => {
                    let (first, is_line) = (self.ranges.len(), parser.is_line());
                    let offset = if is_line { 0 } else { start };
                    if first == 0 && offset == 0 {
                        parser.move_ranges(&mut self.ranges);
                    } else {
                        let ranges = parser.ranges().iter();
                        let moved = ranges.map(|range| offset + range.start..offset + range.end);
                        self.ranges.extend(moved);
                    }
                    start += length;
                    let bytes = if is_line { parser.words() } else { input };
                    let name = self.ranges.get(first).map(|range| &bytes[range.clone()]);
                    let command = name.and_then(|name| match self.last {
                        // The command before is often the next one, too.
                        Some(last) if name.eq_ignore_ascii_case(last.name.as_bytes()) => Some(last),
                        _ => commands::find(name),
                    });
                    self.last = command;
                    is_in_queue = match command.map(|command| command.name) {
                        Some(MULTI) => session.is_known,
                        Some(EXEC) => false,
                        _ => is_in_queue,
                    };
                    let arguments = first..self.ranges.len();
                    self.requests.push(Request { command, arguments, is_line, end: start });
                    if is_line {
                        // The parser has the words until it reads on.
                        break;
                    }
                }
                Err(text) => {
                    self.failure = Some(text);
                    break;
                }
            }
        }
        self.requests.reverse();
    }
}

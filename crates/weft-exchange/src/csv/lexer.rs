//! A lexer that splits CSV into records and fields (RFC 4180).
//!
//! Libraries for this do not report whether a field was in quotes. Here that distinguishes no value from an
//! empty string. The rest of the grammar is small:
//!
//! ```text
//!               +---- other ----+
//!               v               |      ,  or end of line: the field ends
//!   begin --> unquoted ---------+      "  is an error
//!     |
//!     | "
//!     v               "
//!   quoted <---------------+
//!     |  ^                 |
//!     |  +-- other: kept   |
//!     | "                  |
//!     +-------------> after a quote    ,  or end of line: the field ends
//!                                      else an error
//! ```
//!
//! A line ends with `\n` or `\r\n`. The last one may lack its end.

use std::io::{self, BufRead, BufReader, Read};

/// The largest size of a record. A longer one means a file with a quote too many.
const RECORD_BYTES_MAX: usize = 256 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One record: its unescaped fields.
#[derive(Debug, Default)]
pub struct Record {
    /// The fields' bytes, one after the other.
    bytes: Vec<u8>,
    fields: Vec<FieldEnd>,
    /// The line on which it begins, counted from 1.
    pub line: u64,
}

#[derive(Debug)]
struct FieldEnd {
    position: usize,
    quoted: bool,
}

/// One field, unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The contents.
    pub bytes: &'a [u8],
    /// Whether it was in quotes.
    pub quoted: bool,
}

impl Record {
    /// Returns how many fields there are. A record from [`Lexer::read`] has at least one.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns the field at `index`, if it exists.
    pub fn get(&self, index: usize) -> Option<Field<'_>> {
        let end = self.fields.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.fields[before].position);
        Some(Field { bytes: &self.bytes[begin..end.position], quoted: end.quoted })
    }

    /// Returns all fields.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns whether this is an empty line.
    pub fn is_blank(&self) -> bool {
        self.get(0) == Some(Field { bytes: b"", quoted: false }) && self.len() == 1
    }

    fn end_field(&mut self, quoted: bool) {
        self.fields.push(FieldEnd { position: self.bytes.len(), quoted });
    }
}

/// Why there is no next record.
#[derive(Debug)]
pub enum LexerError {
    /// The reader failed.
    Io(io::Error),
    /// The input is not CSV.
    Syntax {
        /// The line of the offending byte, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a field.
    Begin,
    Unquoted,
    Quoted,
    /// After a quote within a quoted field: it is the first of two quotes, or the closing one.
    AfterQuote,
    /// Between `\r` and `\n`.
    CarriageReturn,
}

/// Reads records from bytes, with only one record in memory.
pub struct Lexer<R> {
    input: BufReader<R>,
    line: u64,
    bytes_read: u64,
    /// The most memory that a record may take.
    record_bytes_max: usize,
}

impl<R: Read> Lexer<R> {
    /// Makes a lexer of the whole `input`.
    pub fn new(input: R) -> Self {
        let input = BufReader::with_capacity(1 << 16, input);
        Lexer { input, line: 1, bytes_read: 0, record_bytes_max: RECORD_BYTES_MAX }
    }

    /// Returns how many bytes the records so far have taken.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Skips a byte order mark. Call this before the first [`Lexer::read`].
    pub fn skip_byte_order_mark(&mut self) -> io::Result<()> {
        // One call fills the buffer of an ordinary file. If a pipe delivers the mark byte by byte, the mark is
        // read as text, and the first column is then reported as unknown.
        if self.input.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            self.consume(BYTE_ORDER_MARK.len());
        }
        Ok(())
    }

    /// Reads the next record into `record`. Returns `false` if there are no more records.
    pub fn read(&mut self, record: &mut Record) -> Result<bool, LexerError> {
        record.bytes.clear();
        record.fields.clear();
        record.line = self.line;
        let mut state = State::Begin;
        let mut quoted = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(LexerError::Io(error)),
            };
            if chunk.is_empty() {
                return self.end_of_input(record, state, quoted);
            }
            for (index, &byte) in chunk.iter().enumerate() {
                let problem = match (state, byte) {
                    (State::CarriageReturn, b'\n')
                    | (State::Begin | State::Unquoted | State::AfterQuote, b'\n') => {
                        record.end_field(quoted);
                        self.line += 1;
                        self.consume(index + 1);
                        return Ok(true);
                    }
                    (State::CarriageReturn, _) => "a carriage return without a line feed",
                    (State::Begin | State::Unquoted | State::AfterQuote, b'\r') => {
                        state = State::CarriageReturn;
                        continue;
                    }
                    (State::Begin | State::Unquoted | State::AfterQuote, b',') => {
                        record.end_field(quoted);
                        (state, quoted) = (State::Begin, false);
                        continue;
                    }
                    (State::Begin, b'"') => {
                        (state, quoted) = (State::Quoted, true);
                        continue;
                    }
                    (State::Quoted, b'"') => {
                        state = State::AfterQuote;
                        continue;
                    }
                    (State::AfterQuote, b'"') => {
                        record.bytes.push(byte);
                        state = State::Quoted;
                        continue;
                    }
                    (State::AfterQuote, _) => "text after a closing quote",
                    (State::Unquoted, b'"') => "a quote inside a field without quotes",
                    (State::Quoted, _) => {
                        record.bytes.push(byte);
                        self.line += u64::from(byte == b'\n');
                        continue;
                    }
                    (State::Begin | State::Unquoted, _) => {
                        record.bytes.push(byte);
                        state = State::Unquoted;
                        continue;
                    }
                };
                return Err(LexerError::Syntax { line: self.line, problem: problem.to_owned() });
            }
            let length = chunk.len();
            self.consume(length);
            // Empty fields have no bytes, but take memory as well.
            let fields_bytes = record.fields.len() * size_of::<FieldEnd>();
            if record.bytes.len() + fields_bytes > self.record_bytes_max {
                return Err(LexerError::Syntax {
                    line: record.line,
                    problem: format!(
                        "this record has more than {} MiB; is a closing quote missing?",
                        self.record_bytes_max >> 20
                    ),
                });
            }
        }
    }

    fn end_of_input(
        &mut self,
        record: &mut Record,
        state: State,
        quoted: bool,
    ) -> Result<bool, LexerError> {
        if state == State::Quoted {
            return Err(LexerError::Syntax {
                line: record.line,
                problem: "the file ends within a quoted field of this record".to_owned(),
            });
        }
        if state == State::Begin && record.fields.is_empty() {
            return Ok(false);
        }
        record.end_field(quoted);
        Ok(true)
    }

    fn consume(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.bytes_read += bytes as u64;
    }
}

/// Appends a field to a line, in quotes if it needs them. An empty text gets quotes, because an empty field
/// without quotes means no value; see [`super`].
pub fn write_field(text: &str, output: &mut Vec<u8>) {
    let plain =
        !text.is_empty() && !text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n'));
    if plain {
        return output.extend_from_slice(text.as_bytes());
    }
    output.push(b'"');
    for (index, part) in text.split('"').enumerate() {
        if index > 0 {
            output.extend_from_slice(b"\"\"");
        }
        output.extend_from_slice(part.as_bytes());
    }
    output.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all records. Fields that were in quotes are shown in angle brackets.
    fn records(text: &[u8]) -> Result<Vec<Vec<String>>, String> {
        let mut lexer = Lexer::new(text);
        let mut record = Record::default();
        let mut all = Vec::new();
        loop {
            match lexer.read(&mut record) {
                Ok(true) => all.push(
                    record
                        .iter()
                        .map(|field| {
                            let text = String::from_utf8_lossy(field.bytes);
                            if field.quoted { format!("<{text}>") } else { text.into_owned() }
                        })
                        .collect(),
                ),
                Ok(false) => {
                    assert_eq!(lexer.bytes_read(), text.len() as u64);
                    return Ok(all);
                }
                Err(LexerError::Syntax { line, problem }) => {
                    return Err(format!("line {line}: {problem}"));
                }
                Err(LexerError::Io(error)) => panic!("memory cannot fail: {error}"),
            }
        }
    }

    #[test]
    fn text_is_split_into_fields_and_records() {
        let cases: [(&str, &[&[&str]]); 8] = [
            ("", &[]),
            ("\n", &[&[""]]),
            ("a,b\nc,d", &[&["a", "b"], &["c", "d"]]),
            ("a,b\r\nc,d\r\n", &[&["a", "b"], &["c", "d"]]),
            (",\"\",\n", &[&["", "<>", ""]]),
            ("\"a\"\"b\",\"c,d\"\n", &[&["<a\"b>", "<c,d>"]]),
            ("\"a\r\nb\"\r\nc", &[&["<a\r\nb>"], &["c"]]),
            ("a\n\nb\r", &[&["a"], &[""], &["b"]]),
        ];
        for (text, expected) in cases {
            assert_eq!(records(text.as_bytes()).as_deref(), Ok(to_strings(expected).as_slice()));
        }
    }

    fn to_strings(records: &[&[&str]]) -> Vec<Vec<String>> {
        records.iter().map(|fields| fields.iter().map(|&field| field.into()).collect()).collect()
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("a\nb\"c\"\n", "line 2: a quote inside a field without quotes"),
            ("a\n\"b\nc\"d\n", "line 3: text after a closing quote"),
            ("a\n\"b\nc", "line 2: the file ends within a quoted field of this record"),
            ("a\rb\n", "line 1: a carriage return without a line feed"),
        ];
        for (text, expected) in cases {
            assert_eq!(records(text.as_bytes()), Err(expected.to_owned()), "{text:?}");
        }
    }

    /// Fault: only the bytes of fields were limited, so a file of nothing but commas took any amount of memory.
    #[test]
    fn records_of_many_fields_are_limited_too() {
        let mut lexer = Lexer::new(io::repeat(b',').take(1 << 20));
        lexer.record_bytes_max = 1 << 20;
        let refused = lexer.read(&mut Record::default());
        let Err(LexerError::Syntax { line, problem }) = refused else { panic!("{refused:?}") };
        assert_eq!((line, problem.starts_with("this record has more than 1 MiB")), (1, true));
    }

    #[test]
    fn written_fields_are_read_back() {
        for text in ["", "a", " a ", "\"", "\"\"", ",", "\r\n", "a\"b,c\nd"] {
            let mut line = Vec::new();
            write_field(text, &mut line);
            line.extend_from_slice(b",x\r\n");
            let read = records(&line).expect("it is well-formed");
            assert_eq!(read.len(), 1, "{text:?}");
            assert_eq!(read[0][0].trim_start_matches('<').trim_end_matches('>'), text);
        }
    }
}

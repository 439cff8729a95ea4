//! A reader of EDN that also accepts JSON.
//!
//! EDN is the notation of Clojure's data: `{:type :ok, :value [[:append 3 1]]}`. JSON is EDN except for its `:`
//! after a key and its `null`, so one reader handles both. It reads its text line by line, so that it needs
//! only as much memory as the longest event, whatever the size of the file.

use std::io::BufRead;

use super::excerpt::excerpt;
use super::values::Value;
use super::{EVENT_BYTES_MAX, FormatError, Lines};

/// The largest depth of nested values.
const DEPTH_MAX: usize = 64;

/// Reads values, one after the other.
pub(super) struct Reader<'a, R> {
    lines: &'a mut Lines<R>,
    text: Vec<u8>,
    position: usize,
    line: u64,
    /// The number of bytes of the lines before this one.
    bytes_before: u64,
    /// Where the event that is being read begins.
    event: Option<EventStart>,
}

#[derive(Clone, Copy)]
struct EventStart {
    line: u64,
    /// The number of bytes before it.
    bytes: u64,
}

impl<'a, R: BufRead> Reader<'a, R> {
    pub(super) fn new(lines: &'a mut Lines<R>) -> Self {
        Reader { lines, text: Vec::new(), position: 0, line: 1, bytes_before: 0, event: None }
    }

    /// Returns the number of the line that is being read.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the next top-level value, or `None` at the end of the file. Skips brackets around the values and
    /// commas between them.
    pub(super) fn next_value(&mut self) -> Result<Option<Value>, FormatError> {
        while let Some(byte) = self.peek()? {
            if !b"[]()".contains(&byte) {
                self.event = Some(EventStart { line: self.line, bytes: self.bytes_read() });
                let value = self.value(0)?;
                self.event = None;
                return Ok(Some(value));
            }
            self.position += 1;
        }
        Ok(None)
    }

    /// Returns how many bytes have been read.
    fn bytes_read(&self) -> u64 {
        self.bytes_before + self.position as u64
    }

    /// Returns an error if the event is too long. Brackets, comments and spaces between events have no limit.
    fn check_length(&self) -> Result<(), FormatError> {
        let Some(EventStart { line, bytes }) = self.event else { return Ok(()) };
        match self.bytes_read() - bytes > EVENT_BYTES_MAX as u64 {
            true => Err(FormatError::EventTooLong { line, bytes_max: EVENT_BYTES_MAX }),
            false => Ok(()),
        }
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, FormatError> {
        let message = format!("{} (column {})", message.into(), self.position + 1);
        Err(FormatError::syntax(self.line, message))
    }

    /// Returns the next byte that is not a space, a comma or part of a comment, on this line or a later one.
    fn peek(&mut self) -> Result<Option<u8>, FormatError> {
        loop {
            match self.text.get(self.position) {
                Some(b';') => self.position = self.text.len(),
                Some(byte) if byte.is_ascii_whitespace() || *byte == b',' => self.position += 1,
                Some(&byte) => return Ok(Some(byte)),
                None => {
                    self.check_length()?;
                    let Some((line, text)) = self.lines.next_line()? else { return Ok(None) };
                    self.bytes_before += self.text.len() as u64;
                    self.line = line;
                    self.text.clear();
                    self.text.extend_from_slice(text);
                    self.position = 0;
                }
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, FormatError> {
        if depth > DEPTH_MAX {
            return self.error(format!("values are nested more than {DEPTH_MAX} deep"));
        }
        self.check_length()?;
        match self.peek()? {
            None => self.error("the file ends within a value"),
            Some(b'{') => self.map(depth),
            Some(b'[') => self.list(b']', depth),
            Some(b'(') => self.list(b')', depth),
            Some(b'"') => self.string(),
            Some(b'#') => self.tagged(depth),
            Some(byte @ (b'}' | b']' | b')')) => {
                self.error(format!("'{}' closes nothing", char::from(byte)))
            }
            Some(_) => self.atom(),
        }
    }

    fn list(&mut self, close: u8, depth: usize) -> Result<Value, FormatError> {
        self.position += 1;
        let mut elements = Vec::new();
        loop {
            match self.peek()? {
                Some(byte) if byte == close => {
                    self.position += 1;
                    return Ok(Value::List(elements));
                }
                None => {
                    return self.error(format!("the file ends before '{}'", char::from(close)));
                }
                Some(_) => elements.push(self.value(depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, FormatError> {
        self.position += 1;
        let mut entries = Vec::new();
        loop {
            match self.peek()? {
                Some(b'}') => {
                    self.position += 1;
                    return Ok(Value::Map(entries));
                }
                None => return self.error("the file ends before '}'"),
                Some(first) => {
                    let key = self.value(depth + 1)?;
                    // A JSON colon. In EDN it would begin a keyword.
                    if first == b'"' && self.peek()? == Some(b':') {
                        self.position += 1;
                    }
                    if self.peek()? == Some(b'}') {
                        return self.error(format!("the key {} has no value", excerpt(&key)));
                    }
                    entries.push((key, self.value(depth + 1)?));
                }
            }
        }
    }

    fn tagged(&mut self, depth: usize) -> Result<Value, FormatError> {
        self.position += 1;
        match self.text.get(self.position) {
            Some(b'{') => self.list_of_set(depth),
            Some(b'_') => {
                self.position += 1;
                self.value(depth + 1)?;
                self.value(depth + 1)
            }
            _ => {
                self.atom()?;
                self.value(depth + 1)
            }
        }
    }

    fn list_of_set(&mut self, depth: usize) -> Result<Value, FormatError> {
        self.list(b'}', depth)
    }

    fn string(&mut self) -> Result<Value, FormatError> {
        self.position += 1;
        let mut text = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.position) else {
                return self.error("the line ends within a text");
            };
            self.position += 1;
            match byte {
                b'"' => break,
                b'\\' => self.escape(&mut text)?,
                _ => text.push(byte),
            }
        }
        match String::from_utf8(text) {
            Ok(text) => Ok(Value::Name(text)),
            Err(_) => self.error("a text is not UTF-8"),
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), FormatError> {
        let Some(&byte) = self.text.get(self.position) else {
            return self.error("the line ends within a text");
        };
        self.position += 1;
        text.push(match byte {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'"' | b'\\' | b'/' => byte,
            b'u' => {
                let unit = self.hexadecimal()?;
                let mut units = vec![unit];
                let is_high = (0xD800..0xDC00).contains(&unit);
                if is_high && self.text[self.position..].starts_with(b"\\u") {
                    self.position += 2;
                    units.push(self.hexadecimal()?);
                }
                let decoded = String::from_utf16_lossy(&units);
                text.extend_from_slice(decoded.as_bytes());
                return Ok(());
            }
            _ => return self.error(format!("'\\{}' is not an escape", char::from(byte))),
        });
        Ok(())
    }

    fn hexadecimal(&mut self) -> Result<u16, FormatError> {
        let digits = self.text.get(self.position..self.position + 4);
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.map(|digits| u16::from_str_radix(digits, 16)) {
            Some(Ok(unit)) => {
                self.position += 4;
                Ok(unit)
            }
            _ => self.error("'\\u' takes four hexadecimal digits"),
        }
    }

    /// Reads a number, a keyword, or a symbol.
    fn atom(&mut self) -> Result<Value, FormatError> {
        let start = self.position;
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",;\"{}[]()".contains(byte);
        let length = self.text[start..].iter().position(ends);
        let end = length.map_or(self.text.len(), |length| start + length);
        let Ok(word) = std::str::from_utf8(&self.text[start..end]) else {
            return self.error("the text is not UTF-8");
        };
        let value = match word {
            "nil" | "null" => Value::Nil,
            "" | ":" => return self.error("expected a value"),
            _ if word.starts_with(':') => Value::Name(word[1..].to_owned()),
            _ => match word.strip_suffix('N').unwrap_or(word).parse() {
                Ok(number) => Value::Integer(number),
                Err(_) if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                    Value::Other(word.to_owned())
                }
                Err(_) => Value::Name(word.to_owned()),
            },
        };
        self.position = end;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Value>, String> {
        let mut lines = Lines::new(text.as_bytes());
        Reader::new(&mut lines).next_value().map_err(|error| error.to_string())
    }

    fn shown(text: &str) -> String {
        read(text).expect("it is well-formed").expect("there is a value").to_string()
    }

    #[test]
    fn edn_and_json_are_equivalent() {
        let edn = "{:type :ok, :value [[:append 3 1] [:r 3 [1 2]] [:r \"a\\u00e9\" nil]]}";
        let json = r#"{"type":"ok","value":[["append",3,1],["r",3,[1,2]],["r","aé",null]]}"#;
        assert_eq!(read(edn), read(json));
        assert_eq!(shown(edn), "{type ok, value [[append 3 1] [r 3 [1 2]] [r aé nil]]}");
    }

    #[test]
    fn tags_comments_and_line_ends_are_skipped() {
        let text = "; a comment\n#jepsen.history.Op{:a #{1 2N}\n :b #_ 3 -4, :c (1.5)}";
        assert_eq!(shown(text), "{a [1 2], b -4, c [1.5]}");
    }

    #[test]
    fn malformed_edn_is_an_error_with_its_place() {
        let cases = [
            ("{:a", "line 1: the file ends within a value"),
            ("{:a 1", "the file ends before '}'"),
            ("{:a}", "the key a has no value"),
            ("{:a 1\n:b ]}", "line 2: ']' closes nothing (column 4)"),
            ("{\"a", "the line ends within a text"),
            ("{\"a\\x\"", "'\\x' is not an escape"),
            ("{\"a\\u12\"", "four hexadecimal digits"),
            ("{\"a\\u12", "four hexadecimal digits"),
            ("{\"a\\ud83d\\u12\"", "four hexadecimal digits"),
            ("{:a :}", "expected a value"),
            ("#", "expected a value"),
        ];
        for (text, expected) in cases {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let deep = format!("{{:a {}", "[".repeat(100_000));
        assert!(read(&deep).expect_err("too deep").contains("nested more than 64 deep"));
    }
}

//! Replies: from values to bytes, in either version of the protocol.

/// The versions of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, with which every connection begins.
    #[default]
    Two,
    /// RESP3, which knows maps, sets, numbers with a fraction, and a single null.
    Three,
}

impl Version {
    /// Returns the number of the version.
    pub fn number(self) -> i64 {
        match self {
            Version::Two => 2,
            Version::Three => 3,
        }
    }
}

/// Most replies are shorter.
const SHORT_BYTES: usize = 128;

/// Where commands write their replies: the output of a connection that was not sent yet.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    version: Version,
    /// The most bytes that may wait.
    bytes_max: usize,
    /// How many bytes were dropped since one did not fit any more. They follow those that wait.
    dropped: usize,
}

impl Reply {
    /// Creates an empty output that holds up to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Reply { bytes: Vec::new(), version: Version::Two, bytes_max, dropped: 0 }
    }

    /// As [`Reply::new`], with room for a short reply.
    pub fn with_room(bytes_max: usize) -> Self {
        Reply { bytes: Vec::with_capacity(SHORT_BYTES), ..Reply::new(bytes_max) }
    }

    /// Returns the version of the protocol.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the version of the protocol for what follows.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Returns what waits to be sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many bytes were written. All of them wait to be sent, unless the output is too long.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.dropped
    }

    /// Returns how many bytes of memory the output holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether more was written than may wait. The rest was dropped, so the connection must be closed.
    pub fn is_too_long(&self) -> bool {
        self.dropped > 0
    }

    /// Drops all that was written after the first `length` bytes. If some of these bytes were dropped already, the output stays
    /// too long.
    pub fn truncate(&mut self, length: usize) {
        self.dropped = self.dropped.min(length.saturating_sub(self.bytes.len()));
        self.bytes.truncate(length);
    }

    /// Forgets the first bytes, which were sent.
    pub fn forget(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
    }

    /// Forgets what was sent. Gives memory back that only one long reply has needed.
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > 64 << 10 {
            self.bytes.shrink_to(64 << 10);
        }
    }

    /// Moves what another output holds to the end of this one. If that one was too long, this one is, too.
    pub fn append(&mut self, other: &mut Reply) {
        self.push(&other.bytes);
        self.dropped += other.dropped;
        other.clear();
    }

    fn push(&mut self, bytes: &[u8]) {
        // What follows a gap is dropped, too.
        if self.is_too_long() || self.bytes.len() + bytes.len() > self.bytes_max {
            self.dropped += bytes.len();
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn header(&mut self, kind: u8, number: i64) {
        let mut digits = itoa::Buffer::new();
        self.push(&[kind]);
        self.push(digits.format(number).as_bytes());
        self.push(b"\r\n");
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.header(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// Writes `OK`.
    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// Writes a word.
    pub fn simple(&mut self, text: &str) {
        self.push(b"+");
        self.push(text.as_bytes());
        self.push(b"\r\n");
    }

    /// Writes an error. Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.push(b"-");
        self.push(text.replace(['\r', '\n'], " ").as_bytes());
        self.push(b"\r\n");
    }

    /// Writes an integer.
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Writes a count.
    pub fn count(&mut self, count: usize) {
        self.length(b':', count);
    }

    /// Writes 1 or 0.
    pub fn flag(&mut self, flag: bool) {
        self.integer(i64::from(flag));
    }

    /// Writes a byte string.
    pub fn text(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.length(b'$', bytes.len());
        self.push(bytes);
        self.push(b"\r\n");
    }

    /// Writes text that is shown as it is, such as that of `INFO`.
    pub fn verbatim(&mut self, text: &str) {
        self.verbatim_as(b"txt", text.as_bytes());
    }

    /// Writes bytes that are shown as they are, with the three letters of their format.
    pub fn verbatim_as(&mut self, format: &[u8], bytes: &[u8]) {
        match self.version {
            Version::Two => self.text(bytes),
            Version::Three => {
                let mut three = *b"txt";
                three.iter_mut().zip(format).for_each(|(letter, given)| *letter = *given);
                self.length(b'=', bytes.len() + 4);
                self.push(&three);
                self.push(b":");
                self.push(bytes);
                self.push(b"\r\n");
            }
        }
    }

    /// Writes yes or no.
    pub fn boolean(&mut self, flag: bool) {
        match self.version {
            Version::Two => self.flag(flag),
            Version::Three => self.push(if flag { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Writes an integer of any length.
    pub fn big_number(&mut self, digits: &str) {
        match self.version {
            Version::Two => self.text(digits),
            Version::Three => {
                self.push(b"(");
                self.push(digits.as_bytes());
                self.push(b"\r\n");
            }
        }
    }

    /// Writes an integer as a byte string.
    pub fn digits(&mut self, number: i64) {
        let mut digits = itoa::Buffer::new();
        self.text(digits.format(number));
    }

    /// Writes a number with a fraction.
    pub fn double(&mut self, number: f64) {
        let text = double_text(number);
        match self.version {
            Version::Two => self.text(text),
            Version::Three => {
                self.push(b",");
                self.push(text.as_bytes());
                self.push(b"\r\n");
            }
        }
    }

    /// Writes that there is no value.
    pub fn null(&mut self) {
        self.push(if self.version == Version::Two { b"$-1\r\n" } else { b"_\r\n" });
    }

    /// Writes that there is no list of values.
    pub fn null_array(&mut self) {
        self.push(if self.version == Version::Two { b"*-1\r\n" } else { b"_\r\n" });
    }

    /// Writes a byte string, or a null.
    pub fn optional(&mut self, text: Option<impl AsRef<[u8]>>) {
        match text {
            Some(text) => self.text(text),
            None => self.null(),
        }
    }

    /// Begins a list of so many values, which the caller writes next.
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a set of so many values.
    pub fn set(&mut self, length: usize) {
        self.length(if self.version == Version::Two { b'*' } else { b'~' }, length);
    }

    /// Begins a message of so many values, which answers no command.
    pub fn push_header(&mut self, length: usize) {
        self.length(if self.version == Version::Two { b'*' } else { b'>' }, length);
    }

    /// Begins a map of so many pairs, which the caller writes next: a name and a value in turn.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.length(b'*', 2 * pairs),
            Version::Three => self.length(b'%', pairs),
        }
    }

    /// Writes a list of byte strings.
    pub fn texts<T: AsRef<[u8]>>(&mut self, texts: impl ExactSizeIterator<Item = T>) {
        self.array(texts.len());
        texts.for_each(|text| self.text(text));
    }
}

/// Returns a number with a fraction as Redis writes it: with as few digits as identify it.
pub fn double_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    if number.fract() == 0.0 && number.abs() < 1e17 {
        return format!("{number:.0}");
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_have_their_forms() {
        let write = |version| {
            let mut reply = Reply::new(1000);
            reply.set_version(version);
            reply.map(1);
            reply.text("a");
            reply.double(1.5);
            reply.null();
            reply.set(0);
            reply.error("ERR two\r\nlines");
            String::from_utf8(reply.bytes().to_vec()).unwrap()
        };
        let rest = "-ERR two  lines\r\n";
        let two = format!("*2\r\n$1\r\na\r\n$3\r\n1.5\r\n$-1\r\n*0\r\n{rest}");
        assert_eq!(write(Version::Two), two);
        assert_eq!(write(Version::Three), format!("%1\r\n$1\r\na\r\n,1.5\r\n_\r\n~0\r\n{rest}"));
    }

    #[test]
    fn numbers_have_as_few_digits_as_they_need() {
        for (number, text) in [
            (3.0, "3"),
            (-0.5, "-0.5"),
            (3.25, "3.25"),
            (0.1, "0.1"),
            (1e20, "1e+20"),
            (1.5e-7, "1.5e-7"),
            (f64::NEG_INFINITY, "-inf"),
            (1e16, "10000000000000000"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }

    #[test]
    fn an_output_is_bounded() {
        let mut reply = Reply::new(10);
        reply.text("0123456789");
        assert!(reply.is_too_long() && reply.bytes().len() <= 10);
        reply.truncate(0);
        assert!(!reply.is_too_long());
    }

    #[test]
    fn an_output_stays_too_long_until_the_gap_is_dropped() {
        let ok = "+OK\r\n".len();
        for bytes_max in ok..ok + 16 {
            let mut reply = Reply::new(bytes_max);
            reply.ok();
            reply.text("0123456789");
            assert!(reply.is_too_long());
            let after = reply.len();
            reply.error("e");
            reply.truncate(after);
            assert!(reply.is_too_long(), "{bytes_max}");
            reply.truncate(ok);
            assert!(!reply.is_too_long() && reply.bytes() == b"+OK\r\n", "{bytes_max}");
        }
    }

    #[test]
    fn a_gap_is_kept_when_outputs_are_joined() {
        let (mut reply, mut other) = (Reply::new(100), Reply::new(3));
        reply.ok();
        other.text("0123456789");
        reply.append(&mut other);
        reply.truncate(reply.len());
        assert!(reply.is_too_long());
        reply.truncate("+OK\r\n".len());
        assert!(!reply.is_too_long());
    }
}

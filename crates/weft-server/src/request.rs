//! Requests: from bytes to the arguments of commands.
//!
//! A request is an array of byte strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`), or a line of words, for people who type
//! (`GET k\r\n`). The parser remembers how far it has come, so each byte is looked at once however slowly a request
//! arrives. It allocates for what has arrived, and never for a length that was only announced.

use std::ops::Range;

use memchr::memchr;

/// The longest line of words, and the longest line with a length, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The most arguments of a request.
const ARGUMENTS_MAX: i64 = 1 << 20;
/// How many arguments memory is kept for between requests.
pub const RANGES_KEPT: usize = 1024;
/// What a client may send that has not given the password: this many arguments of so many bytes.
const STRANGERS_ARGUMENTS_MAX: i64 = 10;
const STRANGERS_BYTES_MAX: i64 = 16 << 10;

/// Reads requests.
#[derive(Debug)]
pub struct Parser {
    /// The longest request in bytes.
    request_bytes_max: usize,
    /// How far the request has been parsed.
    position: usize,
    /// How many arguments are missing. `None` if the request has not begun.
    missing: Option<usize>,
    /// The length of the argument that is read next.
    length: Option<usize>,
    /// Where the arguments are: in the buffer, or, if the request is a line of words, in `words`.
    arguments: Vec<Range<usize>>,
    words: Vec<u8>,
    is_line: bool,
}

/// Whether a request is complete.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// A request takes this many bytes. Its arguments can be had until the next call of [`Parser::parse`].
    Complete(usize),
}

impl Parser {
    /// Creates a parser of requests of up to `request_bytes_max` bytes.
    pub fn new(request_bytes_max: usize) -> Self {
        Parser {
            request_bytes_max,
            position: 0,
            missing: None,
            length: None,
            arguments: Vec::new(),
            words: Vec::new(),
            is_line: false,
        }
    }

    /// Goes on with a request that begins at the start of `input`. `is_known` says whether the client has given the
    /// password, if there is one.
    ///
    /// # Errors
    /// The error of a request that cannot be read, as Redis says it. The connection must then be closed.
    pub fn parse(&mut self, input: &[u8], is_known: bool) -> Result<Parsed, String> {
        if self.missing.is_none() {
            self.arguments.clear();
            if self.arguments.capacity() > RANGES_KEPT {
                // Requests of so many arguments are rare.
                self.arguments.shrink_to(RANGES_KEPT);
            }
            self.position = 0;
            self.length = None;
            match input.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => match self.count(input, is_known)? {
                    None => return Ok(Parsed::Incomplete),
                    Some(0) => return Ok(Parsed::Complete(self.position)),
                    Some(count) => self.missing = Some(count),
                },
                Some(_) => return self.line(input),
            }
            self.is_line = false;
        }
        while let Some(missing @ 1..) = self.missing {
            if !self.argument(input, is_known)? {
                return Ok(Parsed::Incomplete);
            }
            self.missing = Some(missing - 1);
        }
        self.missing = None;
        Ok(Parsed::Complete(self.position))
    }

    /// Returns whether the request that is complete is a line of words.
    pub fn is_line(&self) -> bool {
        self.is_line
    }

    /// Returns where the arguments of the request that is complete are: in the input, or in the words of its line.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.arguments
    }

    /// Moves what [`Parser::ranges`] returns into a vector that is empty.
    pub fn move_ranges(&mut self, ranges: &mut Vec<Range<usize>>) {
        std::mem::swap(&mut self.arguments, ranges);
    }

    /// Returns how many bytes of memory the parser keeps to say where arguments are.
    pub fn ranges_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<Range<usize>>()
    }

    /// Returns the words of the line that is complete.
    pub fn words(&self) -> &[u8] {
        &self.words
    }

    /// Returns the arguments of the request that is complete. `input` is what [`Parser::parse`] got.
    pub fn arguments<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let bytes = if self.is_line { &self.words[..] } else { input };
        self.arguments.iter().map(move |range| &bytes[range.clone()])
    }

    /// Reads a line that ends with CR LF and begins at the position, and advances behind it.
    fn header<'a>(&mut self, input: &'a [u8], what: &str) -> Result<Option<&'a [u8]>, String> {
        let rest = &input[self.position..];
        // Nearly all of these lines are as short as this.
        if let [_, digit, b'\r', b'\n', ..] = rest {
            self.position += 4;
            return Ok(Some(std::slice::from_ref(digit)));
        }
        if let [_, _, _, b'\r', b'\n', ..] = rest
            && !rest[1..3].contains(&b'\n')
        {
            self.position += 5;
            return Ok(Some(&rest[1..3]));
        }
        let Some(end) = memchr(b'\n', &rest[..rest.len().min(LINE_BYTES_MAX)]) else {
            if rest.len() >= LINE_BYTES_MAX {
                return Err(format!("Protocol error: too big {what} string"));
            }
            return Ok(None);
        };
        self.position += end + 1;
        Ok(Some(rest[1..end].strip_suffix(b"\r").unwrap_or(&rest[1..end])))
    }

    /// Reads how many arguments the request has.
    fn count(&mut self, input: &[u8], is_known: bool) -> Result<Option<usize>, String> {
        let Some(line) = self.header(input, "mbulk count")? else { return Ok(None) };
        let count = parse_integer(line).filter(|count| *count <= ARGUMENTS_MAX);
        let count = count.ok_or("Protocol error: invalid multibulk length")?;
        if !is_known && count > STRANGERS_ARGUMENTS_MAX {
            return Err("Protocol error: unauthenticated multibulk length".to_owned());
        }
        Ok(Some(usize::try_from(count).unwrap_or(0)))
    }

    /// Reads an argument. Returns false if more bytes are needed.
    fn argument(&mut self, input: &[u8], is_known: bool) -> Result<bool, String> {
        let length = match self.length {
            Some(length) => length,
            None => {
                match input.get(self.position) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => {
                        let other = char::from(*other).escape_default();
                        return Err(format!("Protocol error: expected '$', got '{other}'"));
                    }
                }
                let Some(line) = self.header(input, "bulk count")? else { return Ok(false) };
                let length = parse_integer(line).filter(|length| *length >= 0);
                let length = length.ok_or("Protocol error: invalid bulk length")?;
                if !is_known && length > STRANGERS_BYTES_MAX {
                    return Err("Protocol error: unauthenticated bulk length".to_owned());
                }
                let room = self.request_bytes_max.saturating_sub(self.position);
                let length = usize::try_from(length).ok().filter(|length| *length <= room);
                let length = length.ok_or_else(|| self.too_long())?;
                self.length = Some(length);
                length
            }
        };
        if input.len() < self.position + length + 2 {
            return Ok(false);
        }
        self.arguments.push(self.position..self.position + length);
        self.position += length + 2;
        self.length = None;
        Ok(true)
    }

    fn too_long(&self) -> String {
        format!(
            "Protocol error: invalid bulk length: a request may have {} bytes; start the server with a larger \
             --request-bytes",
            self.request_bytes_max
        )
    }

    /// Reads a line of words.
    fn line(&mut self, input: &[u8]) -> Result<Parsed, String> {
        let Some(end) = memchr(b'\n', &input[..input.len().min(LINE_BYTES_MAX)]) else {
            if input.len() >= LINE_BYTES_MAX {
                return Err("Protocol error: too big inline request".to_owned());
            }
            return Ok(Parsed::Incomplete);
        };
        self.is_line = true;
        self.words.clear();
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let mut rest = line;
        loop {
            let start = rest.iter().position(|byte| !byte.is_ascii_whitespace());
            let Some(start) = start else { return Ok(Parsed::Complete(end + 1)) };
            let begin = self.words.len();
            rest =
                self.word(&rest[start..]).ok_or("Protocol error: unbalanced quotes in request")?;
            self.arguments.push(begin..self.words.len());
        }
    }

    /// Reads a word, perhaps in quotes, and returns what follows. `None` if the quotes are not balanced.
    fn word<'a>(&mut self, mut input: &'a [u8]) -> Option<&'a [u8]> {
        let quote = match input[0] {
            quote @ (b'"' | b'\'') => {
                input = &input[1..];
                Some(quote)
            }
            _ => None,
        };
        loop {
            input = match (quote, input) {
                (None, []) => return Some(input),
                (None, [byte, ..]) if byte.is_ascii_whitespace() => return Some(input),
                (Some(_), []) => return None,
                (Some(quote), [byte, rest @ ..]) if *byte == quote => {
                    let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
                    return ends.then_some(rest);
                }
                (Some(b'"'), [b'\\', b'x', high, low, rest @ ..])
                    if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                {
                    self.words.push(hex_digit(*high) << 4 | hex_digit(*low));
                    rest
                }
                (Some(b'"'), [b'\\', escaped, rest @ ..]) => {
                    self.words.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => *other,
                    });
                    rest
                }
                (Some(b'\''), [b'\\', b'\'', rest @ ..]) => {
                    self.words.push(b'\'');
                    rest
                }
                (_, [byte, rest @ ..]) => {
                    self.words.push(*byte);
                    rest
                }
            };
        }
    }
}

/// Returns the words of a line, as those of a request: perhaps in quotes. `None` if the quotes are not balanced.
pub fn split_words(line: &str) -> Option<Vec<String>> {
    let mut parser = Parser::new(usize::MAX);
    let line = format!("{line}\n").into_bytes();
    parser.line(&line).ok()?;
    let words = parser.arguments(&line).map(|word| String::from_utf8_lossy(word).into_owned());
    Some(words.collect())
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Returns the number that these bytes are, if they are exactly how a number is written: no spaces, no `+`, no zeros
/// at the front.
pub fn parse_integer(bytes: &[u8]) -> Option<i64> {
    // The length of nearly every argument is one digit.
    if let [digit @ b'0'..=b'9'] = bytes {
        return Some(i64::from(digit - b'0'));
    }
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] if !is_negative => return Some(0),
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut number: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        number = number.checked_mul(10)?;
        // The least number has no positive counterpart, so negative numbers are summed up below zero.
        number =
            if is_negative { number.checked_sub(digit)? } else { number.checked_add(digit)? };
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_all(input: &[u8], request_bytes_max: usize) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let mut parser = Parser::new(request_bytes_max);
        let mut requests = Vec::new();
        let mut rest = input;
        while let Parsed::Complete(bytes) = parser.parse(rest, true)? {
            requests.push(parser.arguments(rest).map(<[u8]>::to_vec).collect());
            rest = &rest[bytes..];
        }
        Ok(requests)
    }

    #[test]
    fn arrays_and_lines_of_words_are_requests() {
        let requests = parse_all(
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nSET  k \"a\\x41\\n\" 'it\\'s'\r\n\r\n*0\r\nPING\n",
            1000,
        );
        let expected: Vec<Vec<&[u8]>> = vec![
            vec![b"GET", b"k"],
            vec![b"SET", b"k", b"aA\n", b"it's"],
            vec![],
            vec![],
            vec![b"PING"],
        ];
        assert_eq!(requests.unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_said_as_redis_says_it() {
        for (input, message) in [
            (&b"*1048577\r\n"[..], "Protocol error: invalid multibulk length"),
            (b"*x\r\n", "Protocol error: invalid multibulk length"),
            (b"*1\r\n:5\r\n", "Protocol error: expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
            (b"SET \"k\r\n", "Protocol error: unbalanced quotes in request"),
            (b"SET \"k\"x\r\n", "Protocol error: unbalanced quotes in request"),
        ] {
            assert_eq!(parse_all(input, 1000).unwrap_err(), message);
        }
        assert!(parse_all(&[b'a'; LINE_BYTES_MAX], 1000).unwrap_err().contains("too big inline"));
        assert!(parse_all(b"*1\r\n$2000\r\n", 1000).unwrap_err().contains("--request-bytes"));
    }

    #[test]
    fn announced_lengths_allocate_nothing() {
        let mut parser = Parser::new(1 << 40);
        let input = b"*1048576\r\n$536870912\r\nabc";
        assert_eq!(parser.parse(input, true), Ok(Parsed::Incomplete));
        assert!(parser.arguments.capacity() < 100 && parser.words.capacity() == 0);
    }

    #[test]
    fn clients_without_the_password_may_send_little() {
        for input in [&b"*11\r\n"[..], b"*2\r\n$16385\r\n"] {
            let refused = Parser::new(1 << 20).parse(input, false).unwrap_err();
            assert!(refused.contains("unauthenticated"), "{refused}");
        }
    }

    #[test]
    fn integers_have_one_form() {
        for (text, number) in [
            ("0", Some(0)),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("1.0", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), number, "{text:?}");
        }
    }

    /// Parses all of the input, in one piece or in random ones. Returns the requests, and the error that ended them.
    fn parse_pieces(
        input: &[u8],
        mut random: Option<&mut fastrand::Rng>,
    ) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
        let mut parser = Parser::new(1 << 20);
        let (mut start, mut end, mut requests) = (0, 0, Vec::new());
        loop {
            end = match &mut random {
                Some(random) => (end + random.usize(1..8)).min(input.len()),
                None => input.len(),
            };
            loop {
                match parser.parse(&input[start..end], true) {
                    Ok(Parsed::Incomplete) => break,
                    Ok(Parsed::Complete(length)) => {
                        let arguments = parser.arguments(&input[start..end]);
                        requests.push(arguments.map(<[u8]>::to_vec).collect());
                        start += length;
                    }
                    Err(error) => return (requests, Some(error)),
                }
            }
            // Nothing is kept for what was only announced.
            assert!(parser.arguments.capacity() <= 2 * input.len() + 8);
            if end == input.len() {
                return (requests, None);
            }
        }
    }

    /// Returns bytes that are requests in parts.
    fn hostile_input(random: &mut fastrand::Rng) -> Vec<u8> {
        let alphabet = b"*$+-:\r\n0123456789 getsexpmulti\"'\\\0\xff";
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..4) {
            match random.u8(..4) {
                0 => {
                    let text = (0..random.usize(..30)).map(|_| random.choice(alphabet).unwrap());
                    bytes.extend(text);
                }
                1 => {
                    let announced = [0, 1, 2, 1 << 20, i64::MAX, -1, random.i64(..)];
                    let announced = announced[random.usize(..announced.len())];
                    let kind = ["*", "$", "*1\r\n$"][random.usize(..3)];
                    bytes.extend(format!("{kind}{announced}\r\n").bytes());
                }
                _ => {
                    let mut request = Vec::new();
                    for _ in 0..random.usize(..4) {
                        request.push((0..random.usize(..9)).map(|_| random.u8(..)).collect());
                    }
                    bytes.extend(encoded(&[request]));
                }
            }
        }
        // A mistake in the transmission.
        if random.bool() && !bytes.is_empty() {
            let position = random.usize(..bytes.len());
            bytes[position] = random.u8(..);
        }
        bytes
    }

    #[test]
    fn hostile_input_is_the_same_however_it_is_cut() {
        let inputs = std::env::var("WEFT_SERVER_INPUTS").map_or(20_000, |n| n.parse().unwrap());
        let first = fastrand::u64(..);
        eprintln!("seed {first}");
        for number in 0..inputs {
            let seed = first.wrapping_add(number);
            let mut random = fastrand::Rng::with_seed(seed);
            let input = hostile_input(&mut random);
            let whole = parse_pieces(&input, None);
            let cut = parse_pieces(&input, Some(&mut random));
            assert_eq!(whole, cut, "seed {seed}: {}", input.escape_ascii());
        }
    }

    fn encoded(requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(format!("*{}\r\n", request.len()).bytes());
            for argument in request {
                bytes.extend(format!("${}\r\n", argument.len()).bytes());
                bytes.extend(argument);
                bytes.extend(b"\r\n");
            }
        }
        bytes
    }

    /// Fault: after a request of a million arguments the parser kept 16 MiB for as long as the connection was there.
    #[test]
    fn memory_for_many_arguments_is_given_back() {
        let mut parser = Parser::new(1 << 20);
        let request = encoded(&[vec![b"x".to_vec(); 20_000]]);
        assert_eq!(parser.parse(&request, true), Ok(Parsed::Complete(request.len())));
        assert!(parser.ranges_bytes() >= 20_000 * size_of::<Range<usize>>());
        assert_eq!(parser.parse(b"", true), Ok(Parsed::Incomplete));
        assert!(parser.ranges_bytes() <= RANGES_KEPT * size_of::<Range<usize>>());
    }

    proptest! {
        #[test]
        fn a_request_is_the_same_however_it_is_cut(
            requests in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 1..5),
            cut in 1_usize..30,
        ) {
            let bytes = encoded(&requests);
            let mut parser = Parser::new(1 << 20);
            let (mut start, mut end, mut parsed) = (0, 0, Vec::new());
            while start < bytes.len() {
                end = (end + cut).min(bytes.len());
                while let Parsed::Complete(length) = parser.parse(&bytes[start..end], true).unwrap() {
                    let arguments = parser.arguments(&bytes[start..end]);
                    parsed.push(arguments.map(<[u8]>::to_vec).collect::<Vec<_>>());
                    start += length;
                    if start == end { break }
                }
            }
            prop_assert_eq!(parsed, requests);
        }

        #[test]
        fn any_bytes_give_requests_or_an_error(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(&b"*$\r\n0123456789-\"'\\x "[..])], 0..200),
        ) {
            let mut rest = &bytes[..];
            let mut parser = Parser::new(4096);
            while let Ok(Parsed::Complete(length)) = parser.parse(rest, true) {
                prop_assert!(length > 0 && length <= rest.len());
                prop_assert!(parser.arguments(rest).map(<[u8]>::len).sum::<usize>() <= length);
                rest = &rest[length..];
            }
            prop_assert!(parser.arguments.capacity() <= 4096);
        }
    }
}

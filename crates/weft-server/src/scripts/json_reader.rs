//! Reads JSON for `cjson.decode`: from bytes to Lua values.
//!
//! The grammar and the texts of errors are those of lua-cjson. It reads strings as bytes, which need not be UTF-8, and takes a
//! zero byte for the end. It also reads numbers that JSON does not have: `nan`, `inf`, hexadecimal ones, and ones that begin
//! with `+` or with zeros.

use mlua::{Lua, Value};

use super::json::{DEPTH_MAX, Settings};
use super::raise;

/// What a text is made of.
enum Token {
    BeginObject,
    EndObject,
    BeginArray,
    EndArray,
    Colon,
    Comma,
    End,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    /// What is wrong.
    Wrong(&'static str),
}

impl Token {
    /// Returns what an error calls it.
    fn name(&self) -> &'static str {
        match self {
            Token::BeginObject => "T_OBJ_BEGIN",
            Token::EndObject => "T_OBJ_END",
            Token::BeginArray => "T_ARR_BEGIN",
            Token::EndArray => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Wrong(text) => text,
        }
    }
}

/// Makes Lua values while it reads. So the state's limit of memory holds for all of them.
struct Reader<'r> {
    lua: &'r Lua,
    text: &'r [u8],
    at: usize,
    /// Where the last token begins, or, if it is wrong, where the mistake is.
    token_at: usize,
    depth: u32,
    depth_max: u32,
    settings: Settings,
}

/// Returns the value that a text stands for.
///
/// # Errors
/// The text is not JSON, or there is not enough memory.
pub fn read(lua: &Lua, text: &[u8], settings: Settings) -> mlua::Result<Value> {
    if let [0, _, ..] | [_, 0, ..] = text {
        return raise(lua, "JSON parser does not support UTF-16 or UTF-32");
    }
    let depth_max = settings.decode_depth_max.min(DEPTH_MAX);
    let mut reader = Reader { lua, text, at: 0, token_at: 0, depth: 0, depth_max, settings };
    let first = reader.token();
    let value = reader.value(first)?;
    match reader.token() {
        Token::End => Ok(value),
        token => reader.unexpected("the end", &token),
    }
}

impl Reader<'_> {
    /// Returns the byte at a distance from the position: zero behind the end.
    fn peek(&self, distance: usize) -> u8 {
        self.text.get(self.at + distance).copied().unwrap_or(0)
    }

    fn unexpected<T>(&self, expected: &str, token: &Token) -> mlua::Result<T> {
        let (found, character) = (token.name(), self.token_at + 1);
        raise(self.lua, format!("Expected {expected} but found {found} at character {character}"))
    }

    /// Begins an object or an array.
    fn descend(&mut self) -> mlua::Result<()> {
        self.depth += 1;
        if self.depth <= self.depth_max {
            return Ok(());
        }
        let (depth, at) = (self.depth, self.at);
        let text = format!("Found too many nested data structures ({depth}) at character {at}");
        raise(self.lua, text)
    }

    fn value(&mut self, first: Token) -> mlua::Result<Value> {
        match first {
            Token::Text(text) => Ok(Value::String(self.lua.create_string(text)?)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(flag) => Ok(Value::Boolean(flag)),
            Token::Null => Ok(Value::NULL),
            Token::BeginObject => self.object(),
            Token::BeginArray => self.array(),
            other => self.unexpected("value", &other),
        }
    }

    fn object(&mut self) -> mlua::Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if !matches!(token, Token::EndObject) {
            loop {
                let Token::Text(name) = token else {
                    return self.unexpected("object key string", &token);
                };
                let name = self.lua.create_string(name)?;
                match self.token() {
                    Token::Colon => {}
                    token => return self.unexpected("colon", &token),
                }
                let first = self.token();
                table.raw_set(name, self.value(first)?)?;
                match self.token() {
                    Token::EndObject => break,
                    Token::Comma => token = self.token(),
                    token => return self.unexpected("comma or object end", &token),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> mlua::Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if !matches!(token, Token::EndArray) {
            for position in 1_i64.. {
                table.raw_set(position, self.value(token)?)?;
                match self.token() {
                    Token::EndArray => break,
                    Token::Comma => token = self.token(),
                    token => return self.unexpected("comma or array end", &token),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    /// Takes the next token.
    fn token(&mut self) -> Token {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.token_at = self.at;
        let single = match self.peek(0) {
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return self.number(),
            b'{' => Token::BeginObject,
            b'}' => Token::EndObject,
            b'[' => Token::BeginArray,
            b']' => Token::EndArray,
            b':' => Token::Colon,
            b',' => Token::Comma,
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let (length, token) = if rest.starts_with(b"true") {
            (4, Token::Boolean(true))
        } else if rest.starts_with(b"false") {
            (5, Token::Boolean(false))
        } else if rest.starts_with(b"null") {
            (4, Token::Null)
        } else if self.settings.decodes_invalid_numbers && is_only_of_c(rest) {
            return self.number();
        } else {
            return Token::Wrong("invalid token");
        };
        self.at += length;
        token
    }

    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let is_refused = !self.settings.decodes_invalid_numbers && is_only_of_c(rest);
        match number(rest).filter(|_| !is_refused) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = self.peek(0);
            let wrong = match byte {
                b'"' => {
                    self.at += 1;
                    return Token::Text(text);
                }
                b'\\' => self.escape(&mut text).err(),
                0 => Some("unexpected end of string"),
                _ => {
                    text.push(byte);
                    self.at += 1;
                    None
                }
            };
            if let Some(wrong) = wrong {
                self.token_at = self.at;
                return Token::Wrong(wrong);
            }
        }
    }

    /// Takes a backslash, and what it stands for.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match self.peek(1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (letter, length) = self.letter().ok_or("invalid unicode escape code")?;
                text.extend(letter.encode_utf8(&mut [0; 4]).bytes());
                self.at += length;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        text.push(byte);
        self.at += 2;
        Ok(())
    }

    /// Returns the letter that four hexadecimal digits stand for, or twice four, and the length of the escape.
    fn letter(&self) -> Option<(char, usize)> {
        const ONE: usize = "\\u0000".len();
        let digits = |start: usize| {
            (start..start + 4).try_fold(0, |number, distance| {
                Some(number << 4 | char::from(self.peek(distance)).to_digit(16)?)
            })
        };
        let first = digits(2)?;
        if let Some(letter) = char::from_u32(first) {
            return Some((letter, ONE));
        }
        // The first half of a pair of surrogates.
        let is_pair = first < 0xdc00 && self.peek(ONE) == b'\\' && self.peek(ONE + 1) == b'u';
        let second =
            digits(ONE + 2).filter(|second| is_pair && (0xdc00..0xe000).contains(second))?;
        let letter = char::from_u32(0x1_0000 + ((first & 0x3ff) << 10 | (second & 0x3ff)))?;
        Some((letter, 2 * ONE))
    }
}

/// Returns whether a text begins with a number that C reads, and JSON does not have.
fn is_only_of_c(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    match unsigned {
        _ if text.starts_with(b"+") => true,
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        _ => begins_with(unsigned, "inf") || begins_with(unsigned, "nan"),
    }
}

fn begins_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

/// Returns the number that a text begins with, as `strtod` of C reads it, and its length. (Hexadecimal numbers have no
/// fraction here.)
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let signed = |number: f64| if text[0] == b'-' { -number } else { number };
    let unsigned = &text[sign..];
    for (word, number) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if begins_with(unsigned, word) {
            return Some((signed(number), sign + word.len()));
        }
    }
    let digits = |from: usize| -> usize {
        let rest = unsigned.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    if let [b'0', b'x' | b'X', rest @ ..] = unsigned {
        let digits = rest.iter().map_while(|digit| char::from(*digit).to_digit(16));
        let (number, length) = digits.fold((0.0, 0), |(number, length), digit| {
            (number * 16.0 + f64::from(digit), length + 1)
        });
        if length > 0 {
            return Some((signed(number), sign + 2 + length));
        }
    }
    let mut length = digits(0);
    let mut count = length;
    if unsigned.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        count += fraction;
        length += 1 + fraction;
    }
    if count == 0 {
        return None;
    }
    if let Some(b'e' | b'E') = unsigned.get(length) {
        let exponent_sign = usize::from(matches!(unsigned.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + exponent_sign);
        if exponent > 0 {
            length += 1 + exponent_sign + exponent;
        }
    }
    let number = std::str::from_utf8(&unsigned[..length]).ok()?.parse().ok()?;
    Some((signed(number), sign + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("1", Some((1.0, 1))),
            ("-0.25,", Some((-0.25, 5))),
            ("+1", Some((1.0, 2))),
            ("01", Some((1.0, 2))),
            ("1.", Some((1.0, 2))),
            ("1e5]", Some((1e5, 3))),
            ("1e+x", Some((1.0, 1))),
            ("1E-2", Some((0.01, 4))),
            ("0x1F", Some((31.0, 4))),
            ("0xg", Some((0.0, 1))),
            ("-Infinity", Some((f64::NEG_INFINITY, 9))),
            ("info", Some((f64::INFINITY, 3))),
            ("1e400", Some((f64::INFINITY, 5))),
            ("-", None),
            ("-.", None),
            ("", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
        assert!(number(b"NaN").is_some_and(|(number, length)| number.is_nan() && length == 3));
    }
}

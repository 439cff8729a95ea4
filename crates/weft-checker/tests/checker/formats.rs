//! Files: what is read and written, and that bad input gives an error with a line, never a panic.

use std::io::{self, BufReader, Read};

use proptest::prelude::*;
use weft_checker::format::{self, Format, FormatError, weft};
use weft_checker::{HistoryBuilder, Key, Observed, Options, Status, check};

const HEADER: &str = "{\"format\":\"weft-history\",\"version\":1}\n";

fn error(text: &str) -> String {
    match format::read(text.as_bytes(), None, &mut |_| {}) {
        Ok(_) => panic!("{text:?} was read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn malformed_histories_are_errors_that_name_the_line() {
    let one = |line: &str| format!("{HEADER}\n{line}\n");
    let transaction = |operations: &str| {
        one(&format!("{{\"id\":1,\"status\":\"committed\",\"ops\":{operations}}}"))
    };
    let cases = [
        (String::new(), "line 1: the file is empty"),
        (" \n\n".to_owned(), "the file is empty"),
        ("{\"format\":\"weft-history\",\"version\":2}".to_owned(), "version 2 of the format"),
        ("\u{1}\u{2}".to_owned(), "line 1: "),
        ("hello".to_owned(), "expected an event"),
        (one("{"), "line 3: EOF"),
        (one("[]"), "line 3: invalid type: sequence, expected a transaction"),
        (one("{\"id\":1}"), "missing field `status`"),
        (one("{\"id\":1,\"status\":\"committed\"}"), "missing field `ops`"),
        (one("{\"status\":\"committed\",\"ops\":[]}"), "missing field `id`"),
        (one("{\"id\":-1,\"status\":\"committed\",\"ops\":[]}"), "invalid value: integer `-1`"),
        (one("{\"id\":1,\"status\":\"done\",\"ops\":[]}"), "unknown variant `done`"),
        (one("{\"id\":1,\"id\":2,\"status\":\"committed\",\"ops\":[]}"), "duplicate field `id`"),
        (
            one("{\"id\":1,\"nonce\":2,\"status\":\"committed\",\"ops\":[]}"),
            "unknown field `nonce`",
        ),
        (
            one("{\"id\":1,\"invoke\":5,\"complete\":4,\"status\":\"committed\",\"ops\":[]}"),
            "complete before it is invoked",
        ),
        (one("{\"id\":1,\"status\":\"aborted\",\"ops\":[]} x"), "trailing characters (column 38)"),
        (transaction("[[]]"), "invalid length 0, expected four elements"),
        (transaction("[[\"reed\",\"t\",1,2]]"), "unknown variant `reed`"),
        (transaction("[[\"read\",\"t\",1]]"), "invalid length 3"),
        (transaction("[[\"read\",\"t\",1,2,3]]"), "invalid length 5"),
        (transaction("[[\"read\",\"t\",1.5,2]]"), "expected a key"),
        (transaction("[[\"read\",\"t\",null,2]]"), "expected a key"),
        (transaction("[[\"read\",\"t\",[1,{\"a\":2}],2]]"), "expected a key"),
        (transaction(&format!("[[\"read\",\"t\",{}0,2]]", i128::MAX)), "-2^127 to 2^127 - 1"),
        (transaction("[[\"read\",\"t\",\"\\ud800\",2]]"), "an escape that is not a character"),
        (transaction("[[\"read\",7,1,2]]"), "expected a string"),
        (transaction("[[\"write\",\"t\",1,null]]"), "not null"),
        (transaction("[[\"write\",\"t\",1,0]]"), "version 0 is the state before the history"),
        (transaction("[[\"delete\",\"t\",1,0]]"), "version 0 is the state before the history"),
        (transaction("[[\"scan\",\"t\",{\"form\":1},[]]]"), "unknown field `form`"),
        (transaction("[[\"scan\",\"t\",{\"from\":1,\"after\":1},[]]]"), "'from' and 'after'"),
        (transaction("[[\"scan\",\"t\",{},[[1]]]]"), "invalid length 1"),
        (transaction(&format!("[[\"read\",\"t\",{}", "[".repeat(1000))), "expected value"),
        (
            transaction(&format!(
                "[[\"read\",\"t\",{}{},2]]",
                "[".repeat(100_000),
                "]".repeat(100_000)
            )),
            "nested more than 100 deep",
        ),
    ];
    for (text, expected) in cases {
        let message = error(&text);
        assert!(message.contains(expected), "{text:?}\n  gives {message:?}, not {expected:?}");
        assert!(message.starts_with("line "), "{message}");
    }
    let twice = "{\"id\":1,\"status\":\"aborted\",\"ops\":[]}\n";
    assert!(
        error(&format!("{HEADER}{twice}{twice}")).starts_with("line 3: there is a transaction 1")
    );
}

#[test]
fn malformed_events_are_errors_that_name_the_line() {
    let cases = [
        ("{:process 0}", "an event has a :type"),
        ("{:type :maybe, :process 0}", "an event has a :type"),
        ("{:type :ok}", "an event has a :process"),
        ("{:type :ok, :process -1}", "a :process is a whole number"),
        ("{:type :ok, :process 0, :time -1}", "a :time is a whole number"),
        ("{:type :ok, :process 0, :value 7}", "the :value of a transaction is a vector"),
        ("{:type :ok, :process 0, :value [7]}", "7 is not a step"),
        ("{:type :ok, :process 0, :value [[:r 1]]}", "[r 1] is not a step"),
        ("{:type :ok, :process 0, :value [[:cas 1 2]]}", "[cas 1 2] is not a step"),
        ("{:type :ok, :process 0, :value [[:r nil 2]]}", "a key is a whole number"),
        ("{:type :ok, :process 0, :value [[:w 1 nil]]}", "nil cannot be written"),
        ("{:type :ok, :process 0, :value [[:append 1 2] [:w 1 2]]}", "has no :w steps"),
        ("{:type :ok, :process 0, :value [[:append 1 2] [:r 1 2]]}", "2 is not a list"),
        ("{:type :ok, :process 0, :value [[:w 1 2] [:append 1 2]]}", "has no :append steps"),
        ("{:type :ok, :process 0, :value [[:w 1 2] [:w 1 2]]}", "twice, also in line 1"),
        ("{:type :ok, :process 0, :value [[:append 1 2] [:append 1 2]]}", "twice, also in line 1"),
        ("{:type :ok, :process 0, :value [[:r 1 nil]]}", "cannot tell list-append from"),
        ("{:type :info, :process :nemesis}", "there are no transactions"),
        (
            "{:type :invoke, :process 0, :value []}\n{:type :invoke, :process 0, :value []}",
            "line 2: process 0 invokes a transaction, but that of line 1 has not ended",
        ),
        (
            "{:type :invoke, :process 0, :value [], :time 5}\n\
             {:type :ok, :process 0, :value [[:w 1 1]], :time 4}",
            "line 2: the transaction is complete before it is invoked",
        ),
    ];
    for (text, expected) in cases {
        let message = error(text);
        assert!(message.contains(expected), "{text:?}\n  gives {message:?}, not {expected:?}");
    }
}

#[test]
fn history_round_trips() {
    let mut builder = HistoryBuilder::new();
    let (one, other) = (builder.table("one"), builder.table("o\"ther"));
    let mut transaction = builder.transaction(9, 3, 10);
    let tuple: Key = vec![Key::from(-1), Key::from("é\n\u{0}"), vec![].into()].into();
    transaction.read(one, &tuple, Observed::Version(0)).write(other, u64::MAX, u64::MAX);
    transaction.read(one, "gone", Observed::Absent).delete(one, i64::MIN, 7);
    transaction.scan(other, Key::from(1)..=Key::from("z"), [(1, 5), (2, 6)]);
    transaction.scan(one, .., std::iter::empty::<(Key, u64)>());
    transaction.committed(20);
    builder.transaction(10, 0, 15).aborted(16);
    builder.transaction(11, 0, 17).unknown();
    let history = builder.build();

    let mut text = Vec::new();
    weft::write(&history, &mut text).expect("memory can be written");
    let read = format::read(text.as_slice(), None, &mut |_| {}).expect("it was just written");
    assert_eq!(read.format, Format::Weft);
    let mut again = Vec::new();
    weft::write(&read.history, &mut again).expect("memory can be written");
    assert_eq!(String::from_utf8(text).ok(), String::from_utf8(again).ok());
    let statuses: Vec<Status> = read.history.transactions().map(|one| one.status()).collect();
    assert_eq!(statuses, [Status::Committed, Status::Aborted, Status::Unknown]);
    let first = read.history.transactions().next().expect("three transactions");
    assert_eq!((first.id(), first.session(), first.complete_ns()), (9, 3, Some(20)));
    assert_eq!(first.operations().len(), 6);
}

/// Fault: integers of more than 64 bits were read as floats, so the checker refused recordings of tables with `u128` and
/// `i128` keys, and of prefix scans up to the key after `u64::MAX`.
#[test]
fn keys_of_128_bits_round_trip() {
    let mut builder = HistoryBuilder::new();
    let table = builder.table("wide");
    let keys = [
        Key::Integer(1 << 64),
        Key::Integer(i128::MIN),
        Key::Integer(i128::MAX),
        vec![Key::Integer(-(1 << 64)), vec![].into(), Key::from("a\\\"],[é\n"), Key::from(0)]
            .into(),
    ];
    let mut transaction = builder.transaction(1, 0, 10);
    for key in &keys {
        transaction.read(table, key, Observed::Absent).write(table, key, 1);
    }
    let range = Key::from(u64::MAX)..Key::Integer(1 << 64);
    transaction.scan(table, range, std::iter::empty::<(Key, u64)>());
    transaction.committed(20);
    let mut text = Vec::new();
    weft::write(&builder.build(), &mut text).expect("memory can be written");
    let history = format::read(text.as_slice(), None, &mut |_| {}).expect("it was just written");
    assert!(check(&history.history, &Options::default()).is_ok());
    let mut again = Vec::new();
    weft::write(&history.history, &mut again).expect("memory can be written");
    assert_eq!(String::from_utf8(text).ok(), String::from_utf8(again).ok());
}

#[test]
fn keys_may_have_spaces_and_escapes() {
    let line = "{\"id\":1,\"status\":\"committed\",\"ops\":[[\"read\",\"t\", [ 1 ,\t[ ] , \"\\u00e9\\\\\" ] ,0]]}";
    let text = format!("{HEADER}{line}\n");
    let read = format::read(text.as_bytes(), None, &mut |_| {}).expect("it is well-formed");
    let mut written = Vec::new();
    weft::write(&read.history, &mut written).expect("memory can be written");
    let written = String::from_utf8(written).expect("JSON is text");
    assert!(written.contains(r#"[1,[],"é\\"]"#), "{written}");
}

#[test]
fn formats_are_detected_unless_given() {
    let read = |text: &str, format| {
        format::read(text.as_bytes(), format, &mut |_| {}).map(|read| read.format)
    };
    let append = "[{:type :ok, :process 0, :value [[:append 1 2]]}]";
    let register = "[{\"type\": \"ok\", \"process\": 0, \"value\": [[\"w\", 1, 2]]},\n\
                     {\"type\": \"ok\", \"process\": 1, \"value\": [[\"r\", 1, 2]]}]";
    assert_eq!(read(HEADER, None).ok(), Some(Format::Weft));
    assert_eq!(read(append, None).ok(), Some(Format::ListAppend));
    assert_eq!(read(register, None).ok(), Some(Format::RwRegister));
    let reads = "{:type :ok, :process 0, :value [[:r 1 nil]]}";
    assert_eq!(read(reads, Some(Format::RwRegister)).ok(), Some(Format::RwRegister));
    assert!(read(append, Some(Format::RwRegister)).is_err());
    assert!(read(append, Some(Format::Weft)).is_err());
}

#[test]
fn only_numbered_versions_can_be_written() {
    let text = "{:type :ok, :process 0, :value [[:append 1 2]]}";
    let read = format::read(text.as_bytes(), None, &mut |_| {}).expect("it is well-formed");
    assert!(!read.history.is_order_known());
    assert!(weft::write(&read.history, Vec::new()).is_err());
}

/// A file that repeats a text without end. It panics when a reader has taken far more than any limit.
struct Endless {
    /// The text, repeated some times.
    block: Vec<u8>,
    position: usize,
    taken_bytes: usize,
}

impl Endless {
    fn new(text: &str) -> BufReader<Endless> {
        let block = text.repeat((1 << 20) / text.len()).into_bytes();
        BufReader::with_capacity(1 << 20, Endless { block, position: 0, taken_bytes: 0 })
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.block.len() - self.position);
        buffer[..length].copy_from_slice(&self.block[self.position..][..length]);
        self.position = (self.position + length) % self.block.len();
        self.taken_bytes += length;
        assert!(self.taken_bytes < 300 << 20, "the reader takes an endless file into memory");
        Ok(length)
    }
}

#[test]
fn line_without_end_is_refused() {
    for format in [None, Some(Format::Weft), Some(Format::ListAppend)] {
        let history = HEADER.as_bytes().chain(Endless::new("\0"));
        let error = format::read(history, format, &mut |_| {}).expect_err("it has no end");
        let message = error.to_string();
        if format == Some(Format::ListAppend) {
            // The header is not an event.
            assert_eq!(error.line(), 1, "{message}");
            continue;
        }
        let FormatError::LineTooLong { line, bytes_max } = error else { panic!("{message}") };
        assert_eq!((line, bytes_max), (2, format::LINE_BYTES_MAX));
        assert!(message.starts_with("line 2: ") && message.contains("268435456"), "{message}");
    }
    let error = format::read(Endless::new("\0"), None, &mut |_| {}).expect_err("it has no end");
    assert!(matches!(error, FormatError::LineTooLong { line: 1, .. }), "{error}");
}

#[test]
fn event_without_end_is_refused() {
    for endless in ["[1 2 3]\n", "; comment\n", "1 ", "[[[] [] []]]"] {
        let start = "{:type :ok, :process 0, :value [[:append 1 2]]}\n{:type :ok, :value [\n";
        let history = start.as_bytes().chain(Endless::new(endless));
        let error = format::read(history, None, &mut |_| {}).expect_err("it has no end");
        let message = error.to_string();
        let is_one_line = !endless.ends_with('\n');
        match error {
            FormatError::EventTooLong { line: 2, bytes_max: format::EVENT_BYTES_MAX } => {}
            FormatError::LineTooLong { line: 3, .. } if is_one_line => {}
            other => panic!("{endless:?}: {other}"),
        }
        assert!(message.starts_with("line "), "{message}");
    }
}

#[test]
fn line_of_the_longest_length_is_read() {
    let mut text = vec![b' '; format::LINE_BYTES_MAX];
    text[..HEADER.len() - 1].copy_from_slice(&HEADER.as_bytes()[..HEADER.len() - 1]);
    assert!(format::read(&text[..], None, &mut |_| {}).is_ok());
    text.push(b'\n');
    assert!(format::read(&text[..], None, &mut |_| {}).is_ok());
    text.insert(0, b' ');
    let error = format::read(&text[..], None, &mut |_| {}).expect_err("one byte too long");
    assert!(matches!(error, FormatError::LineTooLong { line: 1, .. }), "{error}");
}

#[test]
fn messages_quote_little_of_a_huge_line() {
    let huge = "x".repeat(1 << 20);
    let list = "[1 2]".repeat(1 << 18);
    let events = |steps: &str| format!("{{:type :ok, :process 0, :value [{steps}]}}");
    let operations =
        |text: &str| format!("{HEADER}{{\"id\":1,\"status\":\"committed\",\"ops\":[{text}]}}\n");
    let cases = [
        (huge.clone(), "expected an event"),
        (events(&huge), "is not a step"),
        (events(&format!("[{list}]")), "is not a step"),
        (events(&format!("[:{huge} 1 2]")), "is not a step"),
        (events(&format!("[:append 1 2] [:w {huge} 2]")), "has no :w steps"),
        (events(&format!("[:append {huge} {huge}] [:append {huge} {huge}]")), "twice"),
        (events(&format!("[:w {huge} {huge}] [:w {huge} {huge}]")), "twice"),
        (events(&format!("[:append 1 1] [:r 1 {huge}]")), "is not a list"),
        (format!("{{\"{huge}\"}}"), "has no value"),
        (operations(&format!("[\"{huge}\",\"t\",1,2]")), "expected one of `read`, `write`"),
        (operations(&format!("[\"read\",\"t\",1,\"{huge}\"]")), "expected u64 (column"),
        (operations(&format!("[\"scan\",\"t\",{{\"{huge}\":1}},[]]")), "expected one of `from`"),
        (format!("{HEADER}{{\"{huge}\":1}}"), "expected one of `id`"),
    ];
    for (text, expected) in cases {
        let message = error(&text);
        let start: String = message.chars().take(200).collect();
        assert!(message.contains(expected), "{start} does not say {expected:?}");
        assert!(message.len() <= 600, "{} bytes: {start}", message.len());
    }
}

/// Generates files that are nearly well-formed, from snippets.
fn near_misses() -> impl Strategy<Value = String> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "(",
        "#",
        "#{",
        "\"",
        ":",
        ",",
        "\n",
        " ",
        ";",
        "-",
        "1",
        "0",
        "nil",
        ":type ",
        ":ok ",
        ":invoke ",
        ":fail ",
        ":info ",
        ":process ",
        ":value ",
        ":r ",
        ":w ",
        ":append ",
        "\\u12",
        "18446744073709551616",
        "1e9",
        "é",
        "{:type :ok :process 0 :value [[:append 1 2]]}\n",
        "{:type :ok :process 0 :value [[:r 1 [2]]]}\n",
        "{\"id\":1,",
        "\"status\":\"committed\",",
        "\"ops\":[",
        "[\"read\",\"t\",1,2]",
        "[\"scan\",\"t\",{},[]]",
    ];
    let piece = prop::sample::select(pieces.to_vec());
    let body = prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat());
    (any::<bool>(), body)
        .prop_map(|(headed, body)| if headed { format!("{HEADER}{body}") } else { body })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn no_input_causes_a_panic(text in near_misses()) {
        for format in [None, Some(Format::Weft), Some(Format::ListAppend), Some(Format::RwRegister)] {
            match format::read(text.as_bytes(), format, &mut |_| {}) {
                Ok(read) => {
                    let report = check(&read.history, &Options::default());
                    let told = report.to_string();
                    prop_assert!(told.contains("serializable"), "{told}");
                }
                Err(error) => prop_assert!(error.line() >= 1, "{error}"),
            }
        }
    }
}

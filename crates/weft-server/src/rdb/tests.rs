use super::input::ELEMENT_BYTES;
use super::read::TimedField;
use super::*;
use crate::stream_tables::encode;

/// Reads a value that ends where the bytes end.
fn read_all(bytes: &[u8], room: usize) -> Read<Value> {
    let (kind, mut rest) = bytes.split_first().ok_or(Fault::Damaged("no type"))?;
    let value = read::value(&mut Input::new(&mut rest, room), *kind)?;
    if rest.is_empty() { Ok(value) } else { Err(Fault::Damaged("more follows")) }
}

fn list(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn pairs(texts: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    texts
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

/// Returns a packed collection as a string in a value: each has less than 64 bytes here.
fn string(packed: &[u8]) -> Vec<u8> {
    [&[u8::try_from(packed.len()).unwrap()], packed].concat()
}

/// Returns a ziplist of these entries, each without the length of the one before.
fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let body: Vec<u8> = entries.iter().flat_map(|entry| [&[0], *entry].concat()).collect();
    let (length, count) = (u32::try_from(11 + body.len()).unwrap(), entries.len() as u8);
    [&length.to_le_bytes()[..], &[0, 0, 0, 0, count, 0], &body, &[0xff]].concat()
}

fn timed_field(name: &str, value: &str, expires_at: u64) -> TimedField {
    TimedField { name: name.into(), value: value.into(), expires_at }
}

#[test]
fn fields_that_have_expired_are_left_out() {
    let fields = [timed_field("a", "1", 0), timed_field("b", "2", 10), timed_field("c", "3", 20)];
    for (now, expected, expiring) in [(5, "abc", 2), (10, "ac", 1), (30, "a", 0)] {
        let (value, found) = Value::TimedHash(fields.to_vec()).at(now);
        let Value::Hash(left) = value else { panic!("{value:?}") };
        let names: Vec<u8> = left.into_iter().flat_map(|(name, _)| name).collect();
        assert_eq!((names.as_slice(), found), (expected.as_bytes(), expiring), "at {now}");
    }
}

#[test]
fn forms_of_other_versions_are_read() {
    let texts = ziplist(&[b"\x02ab", b"\xf3", b"\xfe\x80", b"\xc0\xff\x7f"]);
    let quick = [&[1][..], &string(&texts)].concat();
    let listpack = b"\x0d\0\0\0\x02\0\x81a\x02\x07\x01\xff".to_vec();
    let listpack = [&[12, 0, 0, 0][..], &listpack[4..]].concat();
    let timed = b"\x0f\0\0\0\x03\0\x81a\x02\x81b\x02\0\x01\xff";
    let timed = [&[15, 0, 0, 0][..], &timed[4..]].concat();
    let elements = list(&["ab", "2", "-128", "32767"]);
    for (kind, bytes, expected) in [
        (types::LIST_ZIPLIST, string(&texts), Value::List(elements.clone())),
        (types::LIST_QUICKLIST, quick, Value::List(elements)),
        (
            types::HASH_ZIPLIST,
            string(&ziplist(&[b"\x01a", b"\x01b"])),
            Value::Hash(pairs(&[("a", "b")])),
        ),
        (
            types::HASH_ZIPMAP,
            string(b"\x01\x01a\x01\x02b..\xff"),
            Value::Hash(pairs(&[("a", "b")])),
        ),
        (
            types::ZSET_ZIPLIST,
            string(&ziplist(&[b"\x01a", b"\x031.5"])),
            Value::SortedSet(vec![(b"a".to_vec(), 1.5)]),
        ),
        (
            types::ZSET,
            b"\x02\x01a\x032.5\x01b\xff".to_vec(),
            Value::SortedSet(vec![(b"a".to_vec(), 2.5), (b"b".to_vec(), f64::NEG_INFINITY)]),
        ),
        (
            types::SET_INTSET,
            string(b"\x02\0\0\0\x02\0\0\0\x01\0\xff\xff"),
            Value::Set(list(&["1", "-1"])),
        ),
        (types::SET_LISTPACK, string(&listpack), Value::Set(list(&["a", "7"]))),
        (
            types::HASH_METADATA,
            b"\x01\0\0\0\0\0\0\0\x02\x05\x01a\x01b\0\x01c\x01d".to_vec(),
            Value::TimedHash(vec![timed_field("a", "b", 5), timed_field("c", "d", 0)]),
        ),
        (
            types::HASH_LISTPACK_EX,
            [&[1, 0, 0, 0, 0, 0, 0, 0][..], &string(&timed)].concat(),
            Value::TimedHash(vec![timed_field("a", "b", 0)]),
        ),
    ] {
        let bytes = [&[kind][..], &bytes].concat();
        assert_eq!(read_all(&bytes, 1000).unwrap(), expected, "{kind}");
        for end in 0..bytes.len() {
            assert!(read_all(&bytes[..end], 1000).is_err(), "{kind}, cut off at {end}");
        }
    }
}

#[test]
fn the_checksum_is_that_of_redis() {
    assert_eq!(CHECKSUM.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let payload = write::dump(&Value::Text(b"text".to_vec()));
    assert_eq!(payload[..6], *b"\0\x04text");
    assert_eq!(unseal(&payload), Some(&b"\0\x04text"[..]));
    for position in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[position] ^= 1;
        assert_eq!(unseal(&damaged), None, "{position}");
    }
}

#[test]
fn lengths_behind_elements_are_those_of_redis() {
    let back = |length| packed::back_length(length).to_vec();
    assert_eq!((back(0), back(127), back(128)), (vec![0], vec![127], vec![1, 0x80]));
    assert_eq!((back(16_382), back(16_383)), (vec![127, 254], vec![0, 0xff, 0xff]));
    assert_eq!(back(2_097_151), [0, 0xff, 0xff, 0xff]);
    assert_eq!(back(268_435_455).len(), 5);
}

fn random_text(random: &mut fastrand::Rng) -> Vec<u8> {
    let numbers = [0, 1, -1, 127, -128, 4095, -4096, 1 << 20, -(1 << 40), i64::MAX, i64::MIN];
    match random.u8(..8) {
        0 => random.choice(numbers).unwrap().to_string().into_bytes(),
        1 => vec![b'x'; random.usize(..5000)],
        _ => (0..random.usize(..9)).map(|_| random.u8(..)).collect(),
    }
}

fn random_id(random: &mut fastrand::Rng, after: Id) -> Id {
    match random.bool() {
        true => Id { number: after.number + random.u64(1..3), ..after },
        false => Id { millis: after.millis + random.u64(1..1 << 40), number: random.u64(..3) },
    }
}

fn random_stream(random: &mut fastrand::Rng) -> StreamValue {
    let mut last = Id::MIN;
    let mut entries = Vec::new();
    let names = [random_text(random), random_text(random)];
    for _ in 0..random.usize(..250) {
        last = random_id(random, last);
        let other = random_text(random);
        let name = if random.u8(..4) == 0 { &other } else { &names[0] };
        let value = random_text(random);
        entries.push((last, encode(&[name, &value, &names[1], &value])));
    }
    let groups = (0..random.u8(..3)).map(|name| {
        let consumers: Vec<(Text, u64)> =
            (0..random.u8(..3)).map(|name| ([name].into(), random.u64(..))).collect();
        let mut id = Id::MIN;
        let count = if consumers.is_empty() { 0 } else { random.usize(..9) };
        let pending = (0..count).map(|_| {
            id = random_id(random, id);
            let consumer = random.usize(..consumers.len());
            PendingValue { id, consumer, delivered_at: random.u64(..), deliveries: random.u64(..) }
        });
        let pending = pending.collect();
        GroupValue { name: [name].into(), last, read: random.i64(-1..9), consumers, pending }
    });
    let groups = groups.collect();
    let added = entries.len() as u64 + random.u64(..3);
    StreamValue { entries, last, deleted: Id::MIN, added, groups }
}

fn random_value(random: &mut fastrand::Rng) -> Value {
    let count = random.usize(1..20);
    let texts =
        |random: &mut fastrand::Rng| (0..count).map(|_| random_text(random)).collect::<Vec<_>>();
    match random.u8(..6) {
        0 => Value::Text(random_text(random)),
        1 => Value::List(texts(random)),
        2 => Value::Set(texts(random)),
        3 => Value::Hash(texts(random).into_iter().zip(texts(random)).collect()),
        4 => Value::SortedSet(
            texts(random).into_iter().map(|text| (text, random.f64() - 0.5)).collect(),
        ),
        _ => Value::Stream(Box::new(random_stream(random))),
    }
}

/// How many inputs each random test has.
fn inputs(default: u64) -> u64 {
    std::env::var("WEFT_SERVER_INPUTS").map_or(default, |inputs| inputs.parse().unwrap())
}

#[test]
fn values_are_read_as_they_were_written() {
    let first = fastrand::u64(..);
    eprintln!("seed {first}");
    for number in 0..inputs(500).min(100_000) {
        let seed = first.wrapping_add(number);
        let value = random_value(&mut fastrand::Rng::with_seed(seed));
        let payload = write::dump(&value);
        let read = read_all(unseal(&payload).unwrap(), usize::MAX).unwrap();
        assert_eq!(read, value, "seed {seed}");
    }
}

/// Returns the bytes of a value with mistakes in them.
fn hostile_bytes(random: &mut fastrand::Rng) -> Vec<u8> {
    let payload = write::dump(&random_value(random));
    let mut bytes = unseal(&payload).unwrap().to_vec();
    for _ in 0..random.usize(..4) {
        let position = random.usize(..bytes.len());
        match random.u8(..4) {
            0 => bytes[position] = random.u8(..),
            // Another type.
            1 => bytes[0] = random.u8(..27),
            2 => bytes.truncate(position.max(1)),
            _ => bytes.insert(position, random.choice([0, 0x81, 0xc3, 0xf0, 0xff]).unwrap()),
        }
    }
    bytes
}

/// Returns a payload with mistakes in it, and with the right checksum.
pub fn hostile_payload(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut payload = hostile_bytes(random);
    seal(&mut payload);
    payload
}

/// Bytes that are nearly a value, or no value at all: they are refused, or they are a value which can be written, within the
/// memory that it may need.
#[test]
fn hostile_input_is_no_value_or_one_that_can_be_written() {
    const ROOM: usize = 1 << 16;
    let first = fastrand::u64(..);
    eprintln!("seed {first}");
    let mut values = 0;
    for number in 0..inputs(3000).min(1_000_000) {
        let seed = first.wrapping_add(number);
        let random = &mut fastrand::Rng::with_seed(seed);
        let bytes = hostile_bytes(random);
        let Ok(value) = read_all(&bytes, ROOM) else { continue };
        values += 1;
        let again = write::dump(&value);
        // The value, written again, needs no more than its elements may.
        assert!(again.len() <= ROOM + bytes.len() + 64 * ELEMENT_BYTES, "seed {seed}");
        let again = read_all(unseal(&again).unwrap(), usize::MAX);
        // The times of fields are not written.
        let (value, _) = value.at(0);
        assert_eq!(again.unwrap(), value, "seed {seed}: {}", bytes.escape_ascii());
    }
    assert!(values > 0, "none of the inputs was a value");
}

#[test]
fn files_are_read_part_by_part() {
    let head = b"REDIS0010\xfa\x03abc\x01x\xfe\x02\xfb\x01\0\xf5\x04code";
    let key = b"\xfc\x01\0\0\0\0\0\0\0\xf8\x05\xf9\x01\0\x01k\x01v";
    let module = b"\x07\x01m\x81\0\0\0\0\0\0\0\x01\x02\x05\x05\x01x\x04........\x03....\0";
    let mut file = [&head[..], key, module, b"\xff"].concat();
    let sum = CHECKSUM.checksum(&file);
    let read = |file: &[u8]| {
        let mut reader = file::File::open(file)?;
        let mut parts = Vec::new();
        while let Some(part) = reader.next()? {
            parts.push(part);
        }
        Ok::<_, Fault>(parts)
    };
    file.extend(sum.to_le_bytes());
    let expected = [
        file::Part::Space(2),
        file::Part::Library(b"code".to_vec()),
        file::Part::Key(b"k".to_vec(), Some(Value::Text(b"v".to_vec())), Some(1)),
        file::Part::Key(b"m".to_vec(), None, None),
    ];
    assert_eq!(read(&file).unwrap(), expected);
    let length = file.len();
    file[length - 1] ^= 1;
    assert!(read(&file).unwrap_err().to_string().contains("checksum"));
    // Redis was told to write no checksum.
    file.splice(length - 8.., [0; 8]);
    assert_eq!(read(&file).unwrap(), expected);
    for end in 0..length - 1 {
        assert!(read(&file[..end]).is_err(), "cut off at {end}");
    }
    assert!(read(b"REDIS0099").unwrap_err().to_string().contains("newer"));
}

//! Tests of the format: what was written is read again, and nothing else is accepted.

use proptest::prelude::*;

use super::*;
use crate::durability::backend::Backend;
use crate::durability::simulated_disk::SimulatedDisk;

const PATH: &str = "/f";

fn header(position: usize, epoch: u64, synced: usize) -> FrameHeader {
    FrameHeader {
        logger: 3,
        number: 1,
        epoch,
        previous_epoch: epoch - 1,
        durable_epoch: epoch - 1,
        closes_epoch: true,
        synced: synced as u64,
        ..FrameHeader::new(FrameKind::Log, position as u64)
    }
}

/// Returns a file of frames with these payloads, each synced before the next, and the positions at
/// which they begin.
fn file_of(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for (index, payload) in payloads.iter().enumerate() {
        let start = bytes.len();
        starts.push(start);
        write_frame(&mut bytes, &header(start, 1 + index as u64, start), payload);
    }
    (bytes, starts)
}

/// Returns what a reader makes of a file: the payloads of its frames, and the damage at its end, if
/// there is any.
fn read(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Option<Damage>), StorageError> {
    let disk = SimulatedDisk::new(0);
    let file = disk.create_new(Path::new(PATH)).unwrap();
    file.write_at(bytes, 0).unwrap();
    let mut reader = FrameReader::new(&*file, Path::new(PATH)).unwrap();
    let mut payloads = Vec::new();
    loop {
        match reader.next()? {
            Next::Frame(frame) => payloads.push(frame.payload.to_vec()),
            Next::End => return Ok((payloads, None)),
            Next::Damage(damage) => return Ok((payloads, Some(damage))),
        }
    }
}

#[test]
fn header_bytes_match_the_diagram() {
    let mut bytes = vec![0xaa; 2];
    let header = FrameHeader {
        kind: FrameKind::Log,
        closes_epoch: true,
        logger: 0x0102,
        number: 0x0304,
        epoch: 0x05,
        previous_epoch: 0x06,
        durable_epoch: 0x07,
        position: 0x08,
        synced: 0x09,
    };
    write_frame(&mut bytes, &header, b"payload");
    let frame = &bytes[2..];
    let mut expected = b"\xf5WFT\x01\0\x01\x01\x02\x01\0\0\x04\x03\0\0".to_vec();
    for number in 5..10u64 {
        expected.extend(number.to_le_bytes());
    }
    expected.extend(7u32.to_le_bytes());
    assert_eq!(frame[..60], expected);
    let mut whole = frame[..60].to_vec();
    whole.extend(b"payload");
    assert_eq!(frame[60..64], crc32c::crc32c(&whole).to_le_bytes());
    assert_eq!(frame[64..], *b"payload");

    let mut pieces = vec![0xaa; 2];
    let start = begin_frame(&mut pieces);
    pieces.extend(b"payload");
    end_frame(&mut pieces, start, &header);
    assert_eq!(pieces, bytes, "both ways to write a frame");
}

#[test]
fn entry_bytes_match_the_diagram() {
    let mut bytes = Vec::new();
    push_transaction(&mut bytes);
    push_write(&mut bytes, WriteKind::Put, 300, 5, |buffer| buffer.extend(b"row"));
    push_write(&mut bytes, WriteKind::Delete, 1, 128, |_| ());
    push_write(&mut bytes, WriteKind::Change, 1, 1, |buffer| buffer.push(9));
    let (put, delete) = (b"\x02\xac\x02\x05\x83\0row", b"\x03\x01\x80\x01\x80\0");
    let change = b"\x04\x01\x01\x81\0\x09";
    assert_eq!(bytes, [&b"\x01"[..], put, delete, change].concat());
    let mut time = Vec::new();
    push_time(&mut time, 300);
    assert_eq!(time, b"\x06\xac\x02");
    assert_eq!(Entries::new(&time).next(), Some(Ok(LogEntry::Time(300))));
}

#[test]
fn unknown_kinds_are_refused() {
    let error = |bytes: &[u8]| Entries::new(bytes).next().unwrap().unwrap_err().what;
    assert_eq!(error(&[TIME + 1]), "an entry of unknown kind");
    assert_eq!(error(&[77]), "an entry of unknown kind");

    let patched = |at: usize, value: u8| {
        let mut bytes = file_of(&[b"x".to_vec()]).0;
        bytes[at] = value;
        let sum = checksum(&bytes[..HEADER_BYTES], &bytes[HEADER_BYTES..]);
        bytes[field::CHECKSUM..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        read(&bytes)
    };
    let what = |at, value| patched(at, value).unwrap().1.unwrap().what;
    assert_eq!(what(field::KIND, 9), "a frame of unknown kind 9");
    assert_eq!(what(field::FLAGS, 3), "a frame with unknown flags 0x03");
    assert_eq!(what(field::POSITION, 64), "a frame that was written for byte 64");
    let newer = patched(field::VERSION, 2).unwrap_err();
    assert_eq!(newer, StorageError::UnknownVersion { path: PATH.into(), version: 2 });
}

#[test]
fn frames_longer_than_the_read_buffer_are_read() {
    let payloads = [1, READ_BYTES - HEADER_BYTES, READ_BYTES, 3 * READ_BYTES + 7, 0, 5];
    let payloads = payloads.map(|length| vec![length as u8; length]);
    let (bytes, starts) = file_of(&payloads);
    assert_eq!(read(&bytes).unwrap(), (payloads.to_vec(), None));

    // A torn frame of this length. The next frame lies far behind it and straddles a window.
    let mut torn = bytes.clone();
    torn[starts[2] + HEADER_BYTES + 9] ^= 1;
    let (before, damage) = read(&torn).unwrap();
    let damage = damage.unwrap();
    assert_eq!((before.len(), damage.offset, damage.torn), (2, starts[2] as u64, false));
    assert_eq!(damage.follows.unwrap().position, starts[3] as u64);
}

#[test]
fn a_frame_inside_a_payload_is_ignored() {
    let inner = file_of(&[b"a row that is a log".to_vec()]).0;
    let (mut bytes, starts) = file_of(&[b"first".to_vec(), inner]);
    bytes[starts[1] + field::EPOCH] ^= 1;
    let damage = read(&bytes).unwrap().1.unwrap();
    assert_eq!((damage.torn, damage.follows), (true, None));
}

/// The second frame of a group may have reached the disk without the first.
#[test]
fn a_frame_of_the_same_group_does_not_make_a_torn_tail_damage() {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, &header(0, 1, 0), b"durable");
    let group = bytes.len();
    write_frame(&mut bytes, &header(group, 2, group), b"first of two");
    let second = bytes.len();
    write_frame(&mut bytes, &header(second, 2, group), b"second of two");
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        read(&bytes).unwrap().1.unwrap()
    };
    let damage = flipped(group);
    assert!(damage.torn, "no frame says that it was synced");
    assert_eq!(damage.follows.unwrap().position, second as u64);
    let damage = flipped(0);
    assert!(!damage.torn, "the group was written after the first frame was synced");
    assert_eq!(damage.follows.unwrap().position, group as u64);
}

/// The log of an open database cuts off zeros that it has reserved, while others read what is before them.
#[test]
fn a_file_may_lose_its_zeros_while_it_is_read() {
    let payloads = [vec![1; 300], vec![2; 70], vec![3; 5]];
    let (bytes, starts) = file_of(&payloads);
    let path = Path::new("/file");
    for zeros in [1, 100, 3 * READ_BYTES] {
        for damage in [false, true] {
            let disk = SimulatedDisk::new(1);
            let file = disk.create_new(path).unwrap();
            file.write_at(&bytes, 0).unwrap();
            assert!(file.reserve(bytes.len() as u64, zeros as u64).unwrap());
            if damage {
                disk.flip_bit(path, starts[2] as u64 * 8 + 7);
            }
            let mut reader = FrameReader::new(&*file, path).unwrap();
            disk.cut(path, bytes.len() as u64);
            for payload in &payloads[..if damage { 2 } else { 3 }] {
                let Next::Frame(frame) = reader.next().unwrap() else { panic!("a frame is there") };
                assert_eq!(frame.payload, payload);
            }
            match reader.next().unwrap() {
                Next::End => assert!(!damage),
                Next::Damage(found) => {
                    let place = (found.offset as usize, found.torn, found.follows);
                    assert_eq!((damage, place), (true, (starts[2], true, None)));
                }
                Next::Frame(_) => panic!("no frame is left"),
            }
        }
    }
}

#[test]
fn segment_names_are_formatted_and_parsed() {
    assert_eq!(segment_name(2, 17), "2-0000000017.log");
    assert_eq!(parse_segment_name("2-0000000017.log"), Some((2, 17)));
    for name in ["2-17.log", "+2-0000000017.log", "02-0000000017.log", "2-0000000017", "x", ""] {
        assert_eq!(parse_segment_name(name), None, "{name}");
    }
}

/// An entry that owns its bytes: a transaction, or a write.
type OwnedEntry = Option<(WriteKind, u32, u64, Vec<u8>)>;

fn push(entry: &OwnedEntry, buffer: &mut Vec<u8>) {
    match entry {
        None => push_transaction(buffer),
        Some((kind, table, version, bytes)) => {
            push_write(buffer, *kind, *table, *version, |buffer| buffer.extend(bytes));
        }
    }
}

fn borrowed(entry: &OwnedEntry) -> LogEntry<'_> {
    match *entry {
        None => LogEntry::Transaction,
        Some((kind, table, version, ref bytes)) => {
            LogEntry::Write(LogWrite { kind, table, version, bytes })
        }
    }
}

fn entry() -> impl Strategy<Value = OwnedEntry> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        (16_380usize..16_390).prop_map(|length| vec![7; length]),
    ];
    let kind = prop_oneof![
        Just(WriteKind::Put),
        Just(WriteKind::Delete),
        Just(WriteKind::Change),
        Just(WriteKind::Operation)
    ];
    let version = prop_oneof![0..200u64, any::<u64>()];
    proptest::option::weighted(0.75, (kind, any::<u32>(), version, bytes))
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Bytes of the magic are frequent, to mislead the search for frames.
    let byte = prop_oneof![any::<u8>(), proptest::sample::select(MAGIC.to_vec())];
    proptest::collection::vec(proptest::collection::vec(byte, 0..300), 1..8)
}

proptest! {
    #[test]
    fn entries_round_trip(entries in proptest::collection::vec(entry(), 0..8)) {
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| push(entry, &mut bytes));
        let read: Result<Vec<_>, _> = Entries::new(&bytes).collect();
        prop_assert_eq!(read.unwrap(), entries.iter().map(borrowed).collect::<Vec<_>>());
    }

    /// For any bytes there are some entries, at most one error, which is the last item, and an end.
    #[test]
    fn any_bytes_end_in_at_most_one_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let read = Entries::new(&bytes).collect::<Vec<_>>();
        prop_assert!(read.len() <= bytes.len());
        prop_assert!(read.iter().rev().skip(1).all(Result::is_ok));
    }

    #[test]
    fn numbers_round_trip(number: u64, shift in 0..64) {
        let number = number >> shift;
        let mut bytes = Vec::new();
        push_number(&mut bytes, number);
        bytes.push(9);
        let mut rest = bytes.as_slice();
        prop_assert_eq!(take_number(&mut rest), Some(number));
        prop_assert_eq!(rest, [9]);
        let mut cut = &bytes[..bytes.len() - 2];
        prop_assert_eq!(take_number(&mut cut), None);
    }

    /// All frames before the flipped bit are read, and none from there on. A later frame shows that
    /// this is not a torn tail.
    #[test]
    fn every_flipped_bit_is_found(payloads in payloads(), at: prop::sample::Index) {
        let (mut bytes, starts) = file_of(&payloads);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let hit = starts.partition_point(|start| *start <= bit / 8) - 1;
        let (read, damage) = read(&bytes).unwrap();
        let damage = damage.expect("the bit is found");
        prop_assert_eq!(&read[..], &payloads[..hit]);
        prop_assert_eq!(damage.offset, starts[hit] as u64);
        prop_assert_eq!(damage.torn, hit + 1 == payloads.len());
        let follows = damage.follows.map(|header| header.position as usize);
        prop_assert_eq!(follows, starts.get(hit + 1).copied());
    }

    /// If a file is cut anywhere, what is complete is read, and the rest is a torn tail.
    #[test]
    fn every_cut_is_a_torn_tail(payloads in payloads(), at: prop::sample::Index) {
        let (mut bytes, starts) = file_of(&payloads);
        let length = at.index(bytes.len());
        bytes.truncate(length);
        let whole = starts.iter().skip(1).filter(|start| **start <= length).count();
        let (read, damage) = read(&bytes).unwrap();
        prop_assert_eq!(&read[..], &payloads[..whole]);
        match damage {
            Some(damage) => {
                prop_assert_eq!(damage.offset, starts[whole] as u64);
                prop_assert!(damage.torn && damage.follows.is_none());
            }
            None => prop_assert_eq!(starts[whole], length),
        }
    }

    /// If bytes are overwritten anywhere, nothing is read that was not written.
    #[test]
    fn nothing_invalid_is_accepted(
        payloads in payloads(),
        at: prop::sample::Index,
        junk in proptest::collection::vec(any::<u8>(), 1..600),
    ) {
        let (original, starts) = file_of(&payloads);
        let mut bytes = original.clone();
        let at = at.index(bytes.len());
        let end = bytes.len().min(at + junk.len());
        bytes[at..end].copy_from_slice(&junk[..end - at]);
        let changed = original.iter().zip(&bytes).position(|(before, after)| before != after);
        let (read, damage) = read(&bytes).unwrap();
        match changed {
            None => prop_assert_eq!((read, damage), (payloads, None)),
            Some(changed) => {
                let hit = starts.partition_point(|start| *start <= changed) - 1;
                prop_assert_eq!(&read[..], &payloads[..hit]);
                prop_assert_eq!(damage.expect("found").offset, starts[hit] as u64);
            }
        }
    }
}

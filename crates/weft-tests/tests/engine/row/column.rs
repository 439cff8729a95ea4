//! Tests of the stored form: round trips of every type, the promised bytes, and bytes that are not
//! a value.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::num::NonZero;
use std::sync::Arc;

use arrayvec::{ArrayString, ArrayVec};
use proptest::prelude::*;

use weft::ColumnValue;
use weft::column::*;
use weft::description::TypeDescription;

#[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
enum Suit {
    Clubs,
    Hearts = 7,
    r#Spades,
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Price {
    amount: i64,
    r#type: Option<Suit>,
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Pair<T, const N: usize>(T, [u8; N])
where
    T: Clone;

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Nothing;

pub(super) fn encoding(value: &impl ColumnValue) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    bytes
}

/// Reads `bytes` as one whole value.
pub(super) fn decode<T: ColumnValue>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut rest = bytes;
    let value = T::read(&mut rest).map_err(|error| error.within(bytes.len()))?;
    if rest.is_empty() { Ok(value) } else { Err(DecodeError::goes_on(rest, "the value")) }
}

/// Checks every promise about a value, and that its bytes are refused when they are cut short.
/// Bytes after the value are left alone. Returns the value that was read.
pub(super) fn check<T: ColumnValue>(value: &T) -> Result<T, TestCaseError> {
    let bytes = encoding(value);
    let followed = [&bytes[..], b"more"].concat();
    let mut rest = &followed[..];
    let read = T::read(&mut rest).expect("it was written");
    prop_assert_eq!(rest, b"more");
    prop_assert_eq!(encoding(&read), &bytes[..], "it has one encoding");
    prop_assert!(bytes.len() >= T::TYPE.width_min_bytes());
    prop_assert_eq!(value.stored_bytes(), bytes.len());

    let type_of = TypeDescription::from(T::TYPE);
    prop_assert!(type_of.width_bytes().is_none_or(|width_bytes| width_bytes == bytes.len()));
    prop_assert_eq!(type_of.width_min_bytes(), T::TYPE.width_min_bytes());
    let mut rest = &followed[..];
    type_of.skip(&mut rest).expect("a value can be skipped");
    prop_assert_eq!(rest, b"more");
    let mut rest = &followed[..];
    let dynamic = type_of.read_value(&mut rest).expect("and read without its Rust type");
    prop_assert_eq!(rest, b"more");
    let mut again = Vec::new();
    dynamic.write(&type_of, &mut again).expect("it is a value of this type");
    prop_assert_eq!(again, &bytes[..]);

    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        prop_assert!(T::read(&mut &*cut).is_err(), "{} of {} bytes", length, bytes.len());
        prop_assert!(type_of.skip(&mut &*cut).is_err());
        prop_assert!(type_of.read_value(&mut &*cut).is_err());
    }
    Ok(read)
}

/// Declares one test for each type: values of `$strategy` come back equal, and two of them are the
/// same exactly if their bytes are.
macro_rules! round_trips {
    ($($test:ident: $type_of:ty = $strategy:expr;)*) => {$(
        proptest! {
            #[test]
            fn $test((value, other) in ($strategy, $strategy)) {
                let (value, other): ($type_of, $type_of) = (value, other);
                let read = check(&value)?;
                prop_assert!(read.is_same(&value));
                prop_assert_eq!(value.is_same(&other), encoding(&value) == encoding(&other));
                prop_assert_eq!(read, value);
            }
        }
    )*};
}

round_trips! {
    a_bool_comes_back: bool = any::<bool>();
    an_i8_comes_back: i8 = any::<i8>();
    an_i16_comes_back: i16 = any::<i16>();
    an_i32_comes_back: i32 = any::<i32>();
    an_i64_comes_back: i64 = any::<i64>();
    an_i128_comes_back: i128 = any::<i128>();
    a_u8_comes_back: u8 = any::<u8>();
    a_u16_comes_back: u16 = any::<u16>();
    a_u32_comes_back: u32 = any::<u32>();
    a_u64_comes_back: u64 = any::<u64>();
    a_u128_comes_back: u128 = any::<u128>();
    a_non_zero_comes_back: NonZero<i32> = any::<NonZero<i32>>();
    a_char_comes_back: char = any::<char>();
    a_string_comes_back: String = any::<String>();
    a_boxed_str_comes_back: Box<str> = any::<String>().prop_map(Box::from);
    a_shared_str_comes_back: Arc<str> = any::<String>().prop_map(Arc::from);
    an_array_string_comes_back: ArrayString<12> =
        "[a-zä]{0,6}".prop_map(|text| ArrayString::from(&text).unwrap());
    bytes_come_back: Vec<u8> = any::<Vec<u8>>();
    shared_bytes_come_back: Arc<[u8]> = any::<Vec<u8>>().prop_map(Arc::from);
    an_array_vec_comes_back: ArrayVec<u16, 4> =
        prop::collection::vec(any::<u16>(), 0..=4).prop_map(ArrayVec::from_iter);
    a_list_comes_back: Vec<String> = prop::collection::vec(any::<String>(), 0..9);
    a_boxed_list_comes_back: Box<[i32]> = any::<Vec<i32>>().prop_map(Box::from);
    an_array_of_bytes_comes_back: [u8; 7] = any::<[u8; 7]>();
    an_array_comes_back: [Option<u16>; 3] = any::<[Option<u16>; 3]>();
    an_empty_array_comes_back: [u8; 0] = Just([]);
    an_option_comes_back: Option<Option<String>> = any::<Option<Option<String>>>();
    a_unit_comes_back: () = Just(());
    a_tuple_comes_back: (u8, (String,), [i64; 2]) = any::<(u8, (String,), [i64; 2])>();
    a_long_tuple_comes_back: (u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, bool) =
        any::<([u8; 11], bool)>().prop_map(|([a, b, c, d, e, f, g, h, i, j, k], l)| {
            (a, b, c, d, e, f, g, h, i, j, k, l)
        });
    an_enum_comes_back: Suit = suits();
    a_struct_comes_back: Price = prices();
    a_generic_tuple_struct_comes_back: Pair<Vec<Price>, 2> =
        (prop::collection::vec(prices(), 0..5), any::<[u8; 2]>()).prop_map(|(a, b)| Pair(a, b));
    an_empty_struct_comes_back: Nothing = Just(Nothing);
    a_map_comes_back: BTreeMap<u16, String> =
        prop::collection::btree_map(any::<u16>(), "[a-z]{0,3}", 0..6);
    a_hash_map_comes_back: HashMap<i8, Price> =
        prop::collection::hash_map(any::<i8>(), prices(), 0..6);
    a_set_comes_back: BTreeSet<String> = prop::collection::btree_set("[a-z]{0,3}", 0..6);
    a_hash_set_comes_back: HashSet<(bool, i64)> =
        prop::collection::hash_set(any::<(bool, i64)>(), 0..6);
    an_enum_with_fields_comes_back: Shape = shapes();
}

proptest! {
    /// Maps of both kinds have one form, whatever order their entries were inserted in.
    #[test]
    fn the_form_of_a_map_does_not_depend_on_its_kind(entries: Vec<(u16, i8)>) {
        let ordered: BTreeMap<_, _> = entries.iter().rev().copied().collect();
        let hashed: HashMap<_, _> = entries.into_iter().rev().collect();
        prop_assert_eq!(encoding(&ordered), encoding(&hashed));
        let ordered: BTreeSet<_> = ordered.into_keys().collect();
        let hashed: HashSet<_> = hashed.into_keys().collect();
        prop_assert_eq!(encoding(&ordered), encoding(&hashed));
    }
}

#[test]
fn a_map_that_is_not_in_order_is_refused() {
    for keys in [[2_u16, 1], [1, 1]] {
        let message = "the entries of a map or set are not in ascending order";
        let entries = encoding(&keys.map(|key| (key, true)).to_vec());
        assert_eq!(decode::<BTreeMap<u16, bool>>(&entries).unwrap_err().what(), message);
        assert_eq!(decode::<HashMap<u16, bool>>(&entries).unwrap_err().what(), message);
        let values = encoding(&keys.to_vec());
        assert_eq!(decode::<BTreeSet<u16>>(&values).unwrap_err().what(), message);
        assert_eq!(decode::<HashSet<u16>>(&values).unwrap_err().what(), message);
    }
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
enum Shape {
    Point,
    Circle(u8),
    Polygon { name: String, corners: Vec<(i8, i8)> },
    Empty {},
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Point),
        any::<u8>().prop_map(Shape::Circle),
        ("[a-z]{0,3}", prop::collection::vec(any::<(i8, i8)>(), 0..3))
            .prop_map(|(name, corners)| Shape::Polygon { name, corners }),
        Just(Shape::Empty {}),
    ]
}

#[test]
fn an_enum_with_fields_is_stored_as_its_variants_one_of_which_is_there() {
    assert_eq!(encoding(&Shape::Circle(7)), [0, 1, 7, 0, 0]);
    assert_eq!(
        Shape::TYPE.to_string(),
        "Shape { Point: bool, Circle: Option<Circle(u8)>, Polygon: Option<Polygon { name: String, \
         corners: Vec<(i8, i8)> }>, Empty: bool }"
    );
    let error = |bytes: &[u8]| decode::<Shape>(bytes).unwrap_err().what().to_owned();
    assert_eq!(error(&[0, 0, 0, 0]), "a value of Shape has none of its variants");
    assert_eq!(error(&[1, 0, 0, 1]), "a value of Shape has two of its variants");
    assert_eq!(error(&[2, 0, 0, 0]), "a bool is 2, and not 0 or 1");
}

fn suits() -> impl Strategy<Value = Suit> {
    prop::sample::select(vec![Suit::Clubs, Suit::Hearts, Suit::Spades])
}

fn prices() -> impl Strategy<Value = Price> {
    (any::<i64>(), prop::option::of(suits())).prop_map(|(amount, r#type)| Price { amount, r#type })
}

proptest! {
    #[test]
    fn f32_bits_round_trip(bits: u32) {
        let value = f32::from_bits(bits);
        prop_assert_eq!(decode::<f32>(&encoding(&value)).unwrap().to_bits(), bits);
        prop_assert_eq!(decode::<[f32; 2]>(&encoding(&[value; 2])).unwrap()[1].to_bits(), bits);
    }

    #[test]
    fn f64_bits_round_trip(bits: u64) {
        prop_assert_eq!(check(&f64::from_bits(bits))?.to_bits(), bits);
    }

    #[test]
    fn leb128_numbers_round_trip(value: u64, shift in 0..64_u32) {
        let value = value >> shift;
        let mut bytes = Vec::new();
        write_leb128(value, &mut bytes);
        prop_assert_eq!(bytes.len(), (64 - value.leading_zeros()).div_ceil(7).max(1) as usize);
        let mut rest = &bytes[..];
        prop_assert_eq!(read_leb128(&mut rest).unwrap(), value);
        prop_assert!(rest.is_empty());
    }
}

proptest! {
    #[test]
    fn sums_are_exact(all: [u64; 3], bits in 1..=64_u32) {
        let [onto, after, before] = all.map(|value| value >> (64 - bits));
        let sum = |[onto, after, before]: [i128; 3]| onto + (after - before);
        let unsigned = [onto, after, before].map(i128::from);
        prop_assert_eq!(
            onto.add_difference(&after, &before),
            u64::try_from(sum(unsigned)).ok()
        );
        let [onto, after, before] = all.map(|value| value as i64 >> (64 - bits));
        let signed = [onto, after, before].map(i128::from);
        prop_assert_eq!(onto.add_difference(&after, &before), i64::try_from(sum(signed)).ok());
        let [onto, after, before] = all.map(|value| value as u8);
        let narrow = [onto, after, before].map(i128::from);
        prop_assert_eq!(onto.add_difference(&after, &before), u8::try_from(sum(narrow)).ok());
    }
}

#[test]
fn sums_at_the_limits_are_exact_or_none() {
    assert_eq!(i128::MAX.add_difference(&i128::MIN, &i128::MAX), Some(i128::MIN));
    assert_eq!(0_i128.add_difference(&i128::MAX, &i128::MIN), None);
    assert_eq!((-1_i128).add_difference(&i128::MAX, &0), Some(i128::MAX - 1));
    assert_eq!(u128::MAX.add_difference(&1, &0), None);
    assert_eq!(7_u128.add_difference(&5, &5), Some(7));
    assert_eq!(1.0_f64.add_difference(&3.0, &2.0), None);
    assert_eq!(Some(1_i32).add_difference(&Some(3), &Some(2)), None);
    let [one, two] = [1_u8, 2].map(|number| NonZero::new(number).unwrap());
    assert_eq!(one.add_difference(&two, &one), None);
}

#[test]
fn extreme_values_round_trip() {
    for bits in [f64::NAN, -f64::NAN, f64::INFINITY, -0.0, f64::MIN_POSITIVE].map(f64::to_bits) {
        let signalling = bits ^ 1;
        for bits in [bits, signalling] {
            assert_eq!(decode::<f64>(&encoding(&f64::from_bits(bits))).unwrap().to_bits(), bits);
        }
    }
    assert_eq!(decode::<i128>(&encoding(&i128::MIN)).unwrap(), i128::MIN);
    assert_eq!(decode::<char>(&encoding(&char::MAX)).unwrap(), char::MAX);
    assert_eq!(decode::<String>(&encoding(&"ä".repeat(70_000))).unwrap().len(), 140_000);
}

/// The format is a promise: a change here makes stored databases unreadable.
#[test]
fn stored_bytes_match_the_documentation() {
    fn assert_bytes(value: impl ColumnValue, expected: &[u8]) {
        assert_eq!(encoding(&value), expected, "{}", std::any::type_name_of_val(&value));
    }
    assert_bytes(true, &[1]);
    assert_bytes(-2_i8, &[0xFE]);
    assert_bytes(0x0102_u16, &[2, 1]);
    assert_bytes(-2_i32, &[0xFE, 0xFF, 0xFF, 0xFF]);
    assert_bytes(0x0102_0304_0506_0708_u64, &[8, 7, 6, 5, 4, 3, 2, 1]);
    assert_bytes(1_u128 << 120, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_bytes(NonZero::new(5_u16).unwrap(), &[5, 0]);
    assert_bytes(1.0_f32, &[0, 0, 0x80, 0x3F]);
    assert_bytes(-2.0_f64, &[0, 0, 0, 0, 0, 0, 0, 0xC0]);
    assert_bytes('€', &[0xAC, 0x20, 0, 0]);
    assert_bytes("Zoë".to_owned(), &[4, b'Z', b'o', 0xC3, 0xAB]);
    assert_bytes(ArrayString::<20>::from("ab").unwrap(), &[2, b'a', b'b']);
    assert_bytes(vec![7_u8; 300], &[&[0xAC, 0x02][..], &[7; 300]].concat());
    assert_bytes(vec![1_u16, 2], &[2, 1, 0, 2, 0]);
    assert_bytes([1_u16, 2], &[1, 0, 2, 0]);
    assert_bytes(None::<u16>, &[0]);
    assert_bytes(Some(1_u16), &[1, 1, 0]);
    assert_bytes((), &[]);
    assert_bytes((1_u8, 'a', Some(false)), &[1, b'a', 0, 0, 0, 1, 0]);
    assert_bytes(Suit::Hearts, &[1]);
    assert_bytes(Price { amount: 1, r#type: Some(Suit::Spades) }, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_bytes(Pair(3_u8, [4, 5]), &[3, 4, 5]);
    let mut bytes = Vec::new();
    write_leb128(u64::MAX, &mut bytes);
    assert_eq!(bytes, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]);
}

#[test]
fn types_are_printed_as_in_source() {
    fn assert_printed<T: ColumnValue>(expected: &str) {
        assert_eq!(T::TYPE.to_string(), expected);
    }
    assert_printed::<Option<NonZero<u32>>>("Option<u32>");
    assert_printed::<Box<str>>("String");
    assert_printed::<Arc<[[f64; 3]]>>("Vec<[f64; 3]>");
    assert_printed::<()>("()");
    assert_printed::<(u8,)>("(u8,)");
    assert_printed::<(bool, Vec<char>)>("(bool, Vec<char>)");
    assert_printed::<Suit>("Suit { Clubs, Hearts, Spades }");
    assert_printed::<Price>("Price { amount: i64, type: Option<Suit { Clubs, Hearts, Spades }> }");
    assert_printed::<Pair<i128, 2>>("Pair(i128, [u8; 2])");
    assert_printed::<Nothing>("Nothing");
}

#[test]
fn errors_say_what_and_where() {
    fn assert_refused<T: ColumnValue + Debug>(bytes: &[u8], expected: &str) {
        assert_eq!(decode::<T>(bytes).expect_err("no value").to_string(), expected);
    }
    assert_refused::<bool>(&[2], "byte 0: a bool is 2, and not 0 or 1");
    assert_refused::<(u8, u32)>(&[1, 2, 3], "byte 3: the bytes end within u32");
    assert_refused::<NonZero<u8>>(&[0], "byte 0: a number that cannot be zero is zero");
    assert_refused::<char>(&[0, 0xD8, 0, 0], "byte 0: a char is 0xD800, which is no character");
    assert_refused::<(u8, String)>(&[1, 3, b'a', 0xFF, b'b'], "byte 3: a text is not in UTF-8");
    assert_refused::<String>(&[3, b'a'], "byte 1: a text has 3 bytes, and only 1 are left");
    assert_refused::<ArrayString<1>>(&[2, 97, 98], "byte 0: a text has 2 bytes, and room for 1");
    assert_refused::<ArrayVec<u8, 1>>(
        &[2, 97, 98],
        "byte 0: a list has 2 elements, and room for 1",
    );
    assert_refused::<Vec<u16>>(
        &[2, 0, 0, 0],
        "byte 0: a list has 2 elements, more than 3 bytes can hold",
    );
    assert_refused::<Option<u8>>(&[3], "byte 0: an option begins with 3, and not 0 or 1");
    assert_refused::<[u8; 4]>(&[3], "byte 1: the bytes end within an array of bytes");
    assert_refused::<Suit>(&[3], "byte 0: Suit has 3 variants, and none with the number 3");
    assert_refused::<String>(&[0x80, 0], "byte 0: a length has more bytes than it needs");
    assert_refused::<String>(&[0x80], "byte 1: the bytes end within a length");
    for overlong in [[0xFF; 10], [0xFF, 255, 255, 255, 255, 255, 255, 255, 255, 2]] {
        assert_refused::<String>(&overlong, "byte 0: a length does not fit in 64 bits");
    }
    assert_eq!(
        bool::read(&mut &[9][..]).unwrap_err().to_string(),
        "1 bytes before the end: a bool is 9, and not 0 or 1"
    );
}

/// A length that the input cannot hold costs no memory and no time.
#[test]
fn lengths_beyond_the_input_are_refused_at_once() {
    for length in [1_u64 << 20, 1 << 40, u64::MAX] {
        let mut bytes = Vec::new();
        write_leb128(length, &mut bytes);
        bytes.extend([0; 100]);
        assert!(decode::<Vec<u8>>(&bytes).is_err());
        assert!(decode::<Vec<Option<[u64; 100]>>>(&bytes).is_err());
        assert!(decode::<Vec<Vec<String>>>(&bytes).is_err());
        assert!(decode::<ArrayVec<String, 9>>(&bytes).is_err());
        assert!(decode::<Box<str>>(&bytes).is_err());
    }
}

/// Reads `bytes` as a `T`. If they are a value, they are exactly its encoding.
fn check_any_bytes<T: ColumnValue>(bytes: &[u8]) -> Result<(), TestCaseError> {
    let type_of = TypeDescription::from(T::TYPE);
    let (mut rest, mut dynamic_rest, mut skipped_rest) = (bytes, bytes, bytes);
    let dynamic = type_of.read_value(&mut dynamic_rest);
    let skipped = type_of.skip(&mut skipped_rest);
    if let Ok(value) = T::read(&mut rest) {
        prop_assert_eq!(encoding(&value), &bytes[..bytes.len() - rest.len()]);
        prop_assert!(dynamic.is_ok() && dynamic_rest.len() == rest.len());
    }
    if dynamic.is_ok() {
        prop_assert!(skipped.is_ok() && skipped_rest.len() == dynamic_rest.len());
    }
    Ok(())
}

/// Generates bytes that are sometimes a value: small numbers are lengths, tags and letters.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => 0_u8..5, 1 => any::<u8>()];
    prop::collection::vec(byte, 0..64)
}

proptest! {
    #[test]
    fn any_bytes_decode_to_a_value_or_an_error(bytes in any_bytes()) {
        check_any_bytes::<bool>(&bytes)?;
        check_any_bytes::<char>(&bytes)?;
        check_any_bytes::<(u128, f32, i16)>(&bytes)?;
        check_any_bytes::<NonZero<u8>>(&bytes)?;
        check_any_bytes::<String>(&bytes)?;
        check_any_bytes::<ArrayString<3>>(&bytes)?;
        check_any_bytes::<Vec<u8>>(&bytes)?;
        check_any_bytes::<Vec<Vec<Option<bool>>>>(&bytes)?;
        check_any_bytes::<ArrayVec<String, 2>>(&bytes)?;
        check_any_bytes::<[Vec<u16>; 2]>(&bytes)?;
        check_any_bytes::<Pair<Option<Price>, 3>>(&bytes)?;
        check_any_bytes::<Vec<Suit>>(&bytes)?;
    }
}

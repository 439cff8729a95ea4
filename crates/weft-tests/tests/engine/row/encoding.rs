//! Tests of the promises about encodings, on random values: see the head of the module. Values come
//! from small alphabets that contain the terminator, the escape and the extremes, so that equal
//! beginnings and escapes are common. A failing test prints the seed that repeats it, and the
//! smallest pair of values that it found.

use std::ops::RangeBounds;

use std::sync::Arc;

use arrayvec::{ArrayString, ArrayVec};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use weft::encoding::*;
use weft::index::LongKey;

fn bytes_of(key: &impl Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// Checks the three promises for two values, in every form that fits their type.
pub(super) fn check_pair<K: Key + Ord>(left: &K, right: &K) {
    let (left_bytes, right_bytes) = (bytes_of(left), bytes_of(right));
    let context = format!("{left:?} as {left_bytes:x?}, {right:?} as {right_bytes:x?}");
    assert_eq!(left_bytes.cmp(&right_bytes), left.cmp(right), "{context}");
    if left != right {
        assert!(!left_bytes.starts_with(&right_bytes), "one begins the other: {context}");
        assert!(!right_bytes.starts_with(&left_bytes), "one begins the other: {context}");
    }
    check_order_in::<LongKey, K>(left, right);
    let Some(width_bytes) = K::WIDTH_BYTES else { return };
    assert_eq!((left_bytes.len(), right_bytes.len()), (width_bytes, width_bytes), "{context}");
    if width_bytes <= 8 {
        check_order_in::<u64, K>(left, right);
        assert_eq!(u64::from_key(left).to_be_bytes(), left_aligned(&left_bytes), "{context}");
    }
    if width_bytes <= 16 {
        check_order_in::<u128, K>(left, right);
        assert_eq!(u128::from_key(left).to_be_bytes(), left_aligned(&left_bytes), "{context}");
    }
}

fn check_order_in<F: KeyForm, K: Key + Ord>(left: &K, right: &K) {
    let (left_form, right_form) = (F::from_key(left), F::from_key(right));
    let context = format!("{left:?} as {left_form:?}, {right:?} as {right_form:?}");
    assert_eq!(left_form.cmp(&right_form), left.cmp(right), "{context}");
}

/// Returns the bytes of a word that begins with `bytes`.
fn left_aligned<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut word = [0; N];
    word[..bytes.len()].copy_from_slice(bytes);
    word
}

fn bytes(length_max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(select(vec![0, 1, 2, b'a', 0xFE, 0xFF]), 0..=length_max)
}

fn text(length_max: usize) -> impl Strategy<Value = String> {
    // The text is shorter than `length_max` bytes if a wide character would cross that limit.
    vec(select(vec!['\0', '\u{1}', '\u{2}', 'a', 'é', '\u{10FFFF}']), 0..=length_max).prop_map(
        move |characters| {
            let mut text = String::new();
            for character in characters {
                if text.len() + character.len_utf8() <= length_max {
                    text.push(character);
                }
            }
            text
        },
    )
}

fn short_text<const N: usize>() -> impl Strategy<Value = ArrayString<N>> {
    text(N.min(20)).prop_map(|text| ArrayString::from(&text).expect("no longer than N"))
}

fn short_bytes<const N: usize>() -> impl Strategy<Value = ArrayVec<u8, N>> {
    bytes(N.min(20)).prop_map(|bytes| bytes.into_iter().collect())
}

/// Generates any integer, or one near a value at which an encoding could go wrong.
macro_rules! near {
    ($integer:ident) => {
        prop_oneof![
            any::<$integer>(),
            (
                select(vec![
                    0,
                    $integer::MIN,
                    $integer::MAX,
                    $integer::MAX / 2,
                    0xFF_u8 as $integer
                ]),
                select(vec![0, 1, 0_i8.wrapping_sub(1) as $integer]),
            )
                .prop_map(|(base, step)| base.wrapping_add(step)),
        ]
    };
}

macro_rules! pairs_keep_the_promises {
    ($($name:ident: $type:ty = $strategy:expr;)*) => {
        proptest! {$(
            #[test]
            fn $name(left in $strategy, right in $strategy) {
                check_pair::<$type>(&left, &right);
                check_pair::<$type>(&left, &left);
            }
        )*}
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, weft::Key)]
struct Number(i16);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, weft::Key)]
struct Place {
    country: [u8; 2],
    town: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, weft::Key)]
enum Rank {
    Low = -3,
    Middle,
    High = 100,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, weft::Key)]
enum Due {
    Overdue,
    OnDay(i16),
    Between { first: u16, last: u16 },
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, weft::Key)]
enum Contact<T> {
    Telephone(T),
    Letter(Place, bool),
}

fn places() -> impl Strategy<Value = Place> {
    (select(vec![*b"is", [0, 1]]), text(3)).prop_map(|(country, town)| Place { country, town })
}

fn dues() -> impl Strategy<Value = Due> {
    prop_oneof![
        Just(Due::Overdue),
        near!(i16).prop_map(Due::OnDay),
        (0..3_u16, near!(u16)).prop_map(|(first, last)| Due::Between { first, last }),
        Just(Due::Never),
    ]
}

fn contacts() -> impl Strategy<Value = Contact<Option<u8>>> {
    prop_oneof![
        any::<Option<u8>>().prop_map(Contact::Telephone),
        (places(), any::<bool>()).prop_map(|(place, is_old)| Contact::Letter(place, is_old)),
    ]
}

#[test]
fn derived_keys_have_the_width_of_their_parts() {
    assert_eq!((Number::WIDTH_BYTES, Rank::WIDTH_BYTES), (Some(2), Some(1)));
    assert_eq!((Due::WIDTH_BYTES, Place::WIDTH_BYTES), (Some(5), None));
    assert_eq!(Contact::<u8>::WIDTH_BYTES, None);
    assert_eq!(bytes_of(&Due::OnDay(-1)), [1, 0x7F, 0xFF, 0, 0]);
    assert_eq!((bytes_of(&Rank::High), Rank::IS_COLUMN, Number::IS_COLUMN), (vec![2], true, true));
}

pairs_keep_the_promises! {
    newtype_keys: Number = near!(i16).prop_map(Number);
    struct_keys: (Place, u8) = (places(), any::<u8>());
    enum_keys: Rank = select(vec![Rank::Low, Rank::Middle, Rank::High]);
    keys_of_enums_with_fields: (Due, u8) = (dues(), any::<u8>());
    keys_of_generic_enums: Contact<Option<u8>> = contacts();
    u8_keys: u8 = near!(u8);
    u16_keys: u16 = near!(u16);
    u32_keys: u32 = near!(u32);
    u64_keys: u64 = near!(u64);
    u128_keys: u128 = near!(u128);
    i8_keys: i8 = near!(i8);
    i16_keys: i16 = near!(i16);
    i32_keys: i32 = near!(i32);
    i64_keys: i64 = near!(i64);
    i128_keys: i128 = near!(i128);
    bool_keys: bool = any::<bool>();
    char_keys: char = any::<char>();
    unit_keys: () = Just(());
    string_keys: String = text(6);
    box_str_keys: Box<str> = text(6).prop_map(String::into_boxed_str);
    arc_str_keys: Arc<str> = text(6).prop_map(Arc::from);
    byte_string_keys: Vec<u8> = bytes(6);
    long_byte_string_keys: Vec<u8> = bytes(200);
    byte_array_keys: [u8; 5] = any::<[u8; 5]>();
    wide_byte_array_keys: [u8; 20] = any::<[u8; 20]>();
    padded_text_keys: ArrayString<7> = short_text();
    widest_padded_text_keys: ArrayString<15> = short_text();
    terminated_text_keys: ArrayString<16> = short_text();
    padded_byte_keys: ArrayVec<u8, 4> = short_bytes();
    empty_padded_byte_keys: ArrayVec<u8, 0> = short_bytes();
    terminated_byte_keys: ArrayVec<u8, 40> = short_bytes();
    optional_number_keys: Option<i16> = proptest::option::of(near!(i16));
    optional_string_keys: Option<String> = proptest::option::of(text(3));
    nested_optional_keys: Option<Option<u8>> = proptest::option::of(proptest::option::of(0_u8..3));

    one_element: (i16,) = (near!(i16),);
    two_strings: (String, String) = (text(3), text(3));
    two_byte_strings: (Vec<u8>, Vec<u8>) = (bytes(3), bytes(3));
    string_and_array: (ArrayString<3>, [u8; 2]) = (short_text(), any::<[u8; 2]>());
    a_word: (u16, u8, u32, u8) = (0_u16..3, 0_u8..3, near!(u32), any::<u8>());
    two_words: (i32, ArrayString<6>, bool, i8) = (-1..2, short_text(), any::<bool>(), any::<i8>());
    number_between_strings: (String, i16, Vec<u8>) = (text(2), -1_i16..2, bytes(2));
    options_in_a_row: (Option<u8>, Option<String>, Option<(u8, bool)>) = (
        proptest::option::of(0_u8..2),
        proptest::option::of(text(1)),
        proptest::option::of((0_u8..2, any::<bool>())),
    );
    five_elements: (u8, (), i8, char, bool) =
        (0_u8..2, Just(()), -1_i8..2, any::<char>(), any::<bool>());
    six_elements: (u8, u8, u8, u8, u8, u8) =
        (0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2, any::<u8>());
    seven_elements: (u8, u8, u8, u8, u8, u8, i16) =
        (0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2, near!(i16));
    eight_elements: (u8, i8, u16, bool, String, (u8, u8), [u8; 1], u128) = (
        0_u8..2, -1_i8..1, 0_u16..2, any::<bool>(), text(1), (0_u8..2, 0_u8..2),
        any::<[u8; 1]>(), near!(u128),
    );
}

/// Checks whether the range of `prefix` contains `key`: it must exactly if the key begins with the
/// prefix.
fn check_prefix_in<F: KeyForm, K: Key>(prefix: &impl KeyPrefix<K>, key: &K, begins: bool) {
    let range = F::prefix_range(prefix);
    let key_form = F::from_key(key);
    assert_eq!(range.contains(&key_form), begins, "{key:?} as {key_form:?} in {range:?}");
}

/// Generates bytes from an alphabet in which prefixes without a successor byte (`FF`), or without a
/// predecessor (`00`), are frequent.
fn edge() -> impl Strategy<Value = u8> {
    select(vec![0, 1, 0xFE, 0xFF])
}

fn edges() -> impl Strategy<Value = (u8, u8, u8)> {
    (edge(), edge(), edge())
}

proptest! {
    #[test]
    fn a_prefix_range_holds_exactly_the_words_with_the_prefix(prefix in edges(), key in edges()) {
        fn check_in<F: KeyForm>(prefix: (u8, u8, u8), key: (u8, u8, u8)) {
            let begins_with_one = prefix.0 == key.0;
            let begins_with_two = begins_with_one && prefix.1 == key.1;
            check_prefix_in::<F, _>(&prefix.0, &key, begins_with_one);
            check_prefix_in::<F, _>(&(prefix.0,), &key, begins_with_one);
            check_prefix_in::<F, _>(&(prefix.0, prefix.1), &key, begins_with_two);
            check_prefix_in::<F, _>(&prefix, &key, prefix == key);
        }
        check_in::<u64>(prefix, key);
        check_in::<u128>(prefix, key);
        check_in::<LongKey>(prefix, key);
    }

    #[test]
    fn a_prefix_range_holds_exactly_the_strings_with_the_prefix(
        prefix in (text(2), bytes(2)),
        key in (text(2), bytes(2), edge()),
    ) {
        check_prefix_in::<LongKey, _>(&prefix.0, &key, prefix.0 == key.0);
        check_prefix_in::<LongKey, _>(&(prefix.0.clone(),), &key, prefix.0 == key.0);
        let begins = prefix.0 == key.0 && prefix.1 == key.1;
        check_prefix_in::<LongKey, _>(&prefix, &key, begins);
    }

    #[test]
    fn a_full_word_prefix_matches_one_key(prefix in any::<u64>(), key in near!(u64)) {
        check_prefix_in::<u64, u64>(&prefix, &key, prefix == key);
        check_prefix_in::<u64, u64>(&key, &key, true);
        check_prefix_in::<u128, (u64, u64)>(&(prefix,), &(key, prefix), prefix == key);
        check_prefix_in::<u128, u128>(&u128::from(prefix), &u128::from(key), prefix == key);
    }
}

/// The format is on disk, so it must not change: this test has the bytes of the table at the head
/// of the module.
#[test]
fn encodings_match_the_documentation() {
    assert_eq!(bytes_of(&0x1234_u16), [0x12, 0x34]);
    assert_eq!(bytes_of(&-1_i16), [0x7F, 0xFF]);
    assert_eq!(bytes_of(&1_i128)[..2], [0x80, 0]);
    assert_eq!(bytes_of(&true), [1]);
    assert_eq!(bytes_of(&'a'), [0, 0, 0x61]);
    assert_eq!(bytes_of(&[7_u8, 0]), [7, 0]);
    assert_eq!(bytes_of(&ArrayString::<4>::from("ab").unwrap()), [0x61, 0x62, 0, 0, 2]);
    assert_eq!(bytes_of(&ArrayString::<16>::from("ab").unwrap()), [0x61, 0x62, 0]);
    assert_eq!(bytes_of(&"a\0\u{1}\u{2}".to_string()), [0x61, 1, 1, 1, 2, 2, 0]);
    assert_eq!(bytes_of(&vec![0xFF_u8]), [0xFF, 0]);
    assert_eq!(bytes_of(&None::<u16>), [0, 0, 0]);
    assert_eq!(bytes_of(&Some(7_u16)), [1, 0, 7]);
    assert_eq!(bytes_of(&None::<String>), [0]);
    assert_eq!(bytes_of(&(7_u16, (), "a")), [0, 7, 0x61, 0]);
    assert_eq!(u64::from_key(&(7_u16, 1_u8)), 0x0007_0100_0000_0000);
}

#[test]
fn a_varying_width_makes_the_sum_vary() {
    assert_eq!(<(u16, u8, u32, u8)>::WIDTH_BYTES, Some(8));
    assert_eq!(<(Option<u32>, char, ArrayString<15>)>::WIDTH_BYTES, Some(5 + 3 + 16));
    assert_eq!(<(u16, String)>::WIDTH_BYTES, None);
    assert_eq!(Option::<ArrayString<16>>::WIDTH_BYTES, None);
}

/// A key type whose encoding is wider than it declares, in one of three ways.
#[derive(Clone, Debug, PartialEq)]
enum Liar {
    Number,
    Wide,
    Slice,
}

impl Key for Liar {
    const WIDTH_BYTES: Option<usize> = Some(1);

    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push(1, 1);
        match self {
            Liar::Number => encoder.push(1, 8),
            Liar::Wide => encoder.push_wide(1),
            Liar::Slice => encoder.push_slice(&[0; 16]),
        }
    }
}

/// If the end of the key were dropped instead, two rows would share one key.
#[test]
fn a_key_that_overflows_its_form_panics() {
    for liar in [Liar::Number, Liar::Wide, Liar::Slice] {
        let encode = || u64::from_key(&liar);
        assert!(std::panic::catch_unwind(encode).is_err(), "{liar:?} in a u64");
        if !matches!(liar, Liar::Number) {
            let encode = || u128::from_key(&liar);
            assert!(std::panic::catch_unwind(encode).is_err(), "{liar:?} in a u128");
        }
    }
}

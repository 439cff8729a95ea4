//! Tests of the types of other libraries: their values come back from the stored form, damaged bytes are refused, and
//! their keys keep the order.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::sample::select;

use super::column::{check, decode, encoding};
use super::encoding::check_pair;
use weft::column::*;
use weft::encoding::*;

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

/// Checks two values as columns and as keys. Values near each other are equal in their first parts.
fn check_both<T: ColumnValue + Key + Ord>(left: T, right: T) -> Result<(), TestCaseError> {
    prop_assert_eq!(&check(&left)?, &left);
    prop_assert_eq!(left.is_same(&right), encoding(&left) == encoding(&right));
    check_pair(&left, &right);
    check_pair(&(left.clone(), 1_u8), &(left.clone(), 2_u8));
    check_pair(&Some(left), &None);
    Ok(())
}

/// Reads any bytes as a value. They are refused, or the value has them as its form.
fn check_bytes<T: ColumnValue>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(value) = decode::<T>(bytes) {
        prop_assert_eq!(&encoding(&value)[..], bytes);
    }
    Ok(())
}

fn durations() -> impl Strategy<Value = Duration> {
    let seconds = prop_oneof![0..3_u64, any::<u64>(), Just(u64::MAX)];
    let nanoseconds = prop_oneof![0..3_u32, 0..NANOSECONDS_PER_SECOND];
    (seconds, nanoseconds).prop_map(|(seconds, rest)| Duration::new(seconds, rest))
}

fn system_times() -> impl Strategy<Value = SystemTime> {
    (durations(), any::<bool>()).prop_map(|(since, is_before)| {
        // As far from 1970 as every platform has times.
        let since = Duration::new(since.as_secs() >> 31, since.subsec_nanos() / 100 * 100);
        match is_before {
            true => SystemTime::UNIX_EPOCH - since,
            false => SystemTime::UNIX_EPOCH + since,
        }
    })
}

proptest! {
    #[test]
    fn durations_come_back_in_order(left in durations(), right in durations()) {
        check_both(left, right)?;
    }

    #[test]
    fn system_times_come_back_in_order(left in system_times(), right in system_times()) {
        check_both(left, right)?;
    }

    #[test]
    fn any_bytes_of_a_time_are_read_or_refused(bytes: [u8; 12]) {
        check_bytes::<Duration>(&bytes)?;
        check_bytes::<SystemTime>(&bytes)?;
    }
}

#[test]
fn a_time_before_1970_has_positive_nanoseconds() {
    let time = SystemTime::UNIX_EPOCH - Duration::from_millis(250);
    assert_eq!(encoding(&time), encoding(&(-1_i64, 750_000_000_u32)));
    assert_eq!(SystemTime::TYPE.to_string(), "SystemTime { seconds: i64, nanoseconds: u32 }");
}

#[test]
fn a_whole_second_in_nanoseconds_is_refused() {
    let message = "its parts are not those of a Duration";
    let bytes = encoding(&(7_u64, NANOSECONDS_PER_SECOND));
    assert_eq!(decode::<Duration>(&bytes).unwrap_err().what(), message);
    assert!(decode::<SystemTime>(&encoding(&(7_i64, NANOSECONDS_PER_SECOND))).is_err());
}

mod of_jiff {
    use jiff::Timestamp;
    use jiff::civil::{Date, DateTime, Time};

    use super::*;

    fn timestamps() -> impl Strategy<Value = Timestamp> {
        let ends = Timestamp::MIN.as_nanosecond()..=Timestamp::MAX.as_nanosecond();
        let near = select(vec![*ends.start(), -1_000_000_000, -1, 0, 1, *ends.end()]);
        prop_oneof![ends, near].prop_map(|it| Timestamp::from_nanosecond(it).unwrap())
    }

    fn dates() -> impl Strategy<Value = Date> {
        (-9999..=9999_i16, 1..=12_i8, 1..=28_i8).prop_map(|(y, m, d)| Date::new(y, m, d).unwrap())
    }

    fn times() -> impl Strategy<Value = Time> {
        (0..24_i8, 0..60_i8, 0..60_i8, 0..1_000_000_000)
            .prop_map(|(h, m, s, rest)| Time::new(h, m, s, rest).unwrap())
    }

    proptest! {
        #[test]
        fn timestamps_come_back_in_order(left in timestamps(), right in timestamps()) {
            check_both(left, right)?;
        }

        #[test]
        fn civil_times_come_back_in_order(left in (dates(), times()), right in (dates(), times())) {
            check_both(left.0, right.0)?;
            check_both(left.1, right.1)?;
            let whole = |(date, time)| DateTime::from_parts(date, time);
            check_both(whole(left), whole(right))?;
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: [u8; 12]) {
            check_bytes::<Timestamp>(&bytes)?;
            check_bytes::<Date>(&bytes[..4])?;
            check_bytes::<Time>(&bytes[..7])?;
            check_bytes::<DateTime>(&bytes[..11])?;
        }
    }

    #[test]
    fn a_timestamp_is_stored_as_a_system_time() {
        let time = SystemTime::UNIX_EPOCH - Duration::from_nanos(1_500);
        let timestamp = Timestamp::from_nanosecond(-1_500).unwrap();
        assert_eq!(encoding(&timestamp), encoding(&time));
    }

    #[test]
    fn a_day_that_does_not_exist_is_refused() {
        assert!(decode::<Date>(&encoding(&(2025_i16, 2_i8, 29_i8))).is_err());
    }
}

mod of_uuid {
    use uuid::Uuid;

    use super::*;

    proptest! {
        #[test]
        fn uuids_come_back_in_order(left: u128, right: u128, bits in 0..128_u32) {
            check_both(Uuid::from_u128(left), Uuid::from_u128(left ^ right >> bits))?;
        }
    }
}

mod of_rust_decimal {
    use rust_decimal::Decimal;

    use super::*;

    fn decimals() -> impl Strategy<Value = Decimal> {
        let mantissas = prop_oneof![
            -20..20_i128,
            Decimal::MIN.mantissa()..=Decimal::MAX.mantissa(),
            select(vec![Decimal::MIN.mantissa(), Decimal::MAX.mantissa()]),
        ];
        let scales = prop_oneof![0..3_u32, 0..=Decimal::MAX_SCALE];
        (mantissas, scales).prop_map(|(it, scale)| Decimal::from_i128_with_scale(it, scale))
    }

    proptest! {
        #[test]
        fn decimals_come_back_and_sort_by_value(left in decimals(), right in decimals()) {
            let read = check(&left)?;
            prop_assert_eq!((read.mantissa(), read.scale()), (left.mantissa(), left.scale()));
            prop_assert_eq!(left.is_same(&right), encoding(&left) == encoding(&right));
            check_pair(&left, &right);
            check_pair(&left, &left.normalize());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: [u8; 17]) {
            check_bytes::<Decimal>(&bytes)?;
            let mut small = bytes;
            small[12..16].fill(0);
            small[16] %= 40;
            check_bytes::<Decimal>(&small)?;
        }
    }

    #[test]
    fn a_decimal_keeps_its_scale_and_its_key_does_not() {
        let (short, long) = (Decimal::new(15, 1), Decimal::new(1500, 3));
        assert_ne!(encoding(&short), encoding(&long));
        check_pair(&short, &long);
        let zero = -Decimal::ZERO;
        assert_eq!(encoding(&zero), encoding(&Decimal::ZERO));
    }
}

mod of_bytes {
    use bytes::Bytes;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_back_in_order(left: Vec<u8>, right: Vec<u8>) {
            prop_assert_eq!(encoding(&Bytes::from(left.clone())), encoding(&left));
            check_both(Bytes::from(left), Bytes::from(right))?;
        }
    }

    #[test]
    fn a_copy_shares_the_bytes() {
        let value = decode::<Bytes>(&encoding(&vec![7_u8; 100])).unwrap();
        assert_eq!(value.clone().as_ptr(), value.as_ptr());
    }
}

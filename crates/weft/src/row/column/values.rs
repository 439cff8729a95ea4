//! The stored forms of Rust's own types, and of `arrayvec`'s types that hold text or lists.

use std::num::NonZero;
use std::sync::Arc;

use arrayvec::{ArrayString, ArrayVec};

use super::{
    ColumnType, ColumnValue, DecodeError, allocation_bytes, leb128_bytes, read_is_some,
    read_list_length, read_text, write_leb128, write_text,
};

// Numbers.

/// Reads the next `N` bytes, of a value of the type `name`.
#[inline]
fn read_bytes<const N: usize>(input: &mut &[u8], name: &str) -> Result<[u8; N], DecodeError> {
    let Some((bytes, rest)) = input.split_first_chunk::<N>() else {
        return Err(DecodeError::ends_within(input, name));
    };
    *input = rest;
    Ok(*bytes)
}

/// [`ColumnValue::add_difference`] and [`ColumnValue::has_room`] of an integer.
macro_rules! exact_sum {
    () => {
        #[inline]
        fn add_difference(&self, after: &Self, before: &Self) -> Option<Self> {
            let sum = self.wrapping_add(after.wrapping_sub(*before));
            // The difference is smaller than the amount by which a sum wraps around. So a sum that
            // has wrapped lies on the wrong side of `self`.
            ((after >= before) == (sum >= *self)).then_some(sum)
        }

        #[inline]
        fn has_room(&self, after: &Self, before: &Self) -> bool {
            let quarter = Self::MAX / 4 - Self::MIN / 4;
            let (greater, lesser) = if after >= before { (after, before) } else { (before, after) };
            // 4096 sums of at most this size add up to at most a quarter of the range.
            let small = quarter.checked_shr(12).unwrap_or(0);
            greater.checked_sub(*lesser).is_some_and(|by| by <= small)
                && match after >= before {
                    true => *self <= Self::MAX - quarter,
                    false => *self >= Self::MIN + quarter,
                }
        }
    };
}

/// [`ColumnValue::add_difference`] of a number whose sums depend on the order of additions: the
/// default.
macro_rules! no_sum {
    () => {};
}

macro_rules! numbers {
    ($sum:ident: $($number:ident $type_of:ident)*) => {$(
        impl ColumnValue for $number {
            const TYPE: ColumnType = ColumnType::$type_of;

            #[inline]
            fn write(&self, output: &mut Vec<u8>) {
                output.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                read_bytes(input, stringify!($number)).map($number::from_le_bytes)
            }

            #[inline]
            fn stored_bytes(&self) -> usize {
                size_of::<Self>()
            }

            #[inline]
            fn all_stored_bytes(values: &[Self]) -> usize {
                size_of_val(values)
            }

            #[inline]
            fn is_same(&self, other: &Self) -> bool {
                self.to_le_bytes() == other.to_le_bytes()
            }

            $sum!();
        }
    )*};
}

numbers! {
    exact_sum:
    i8 I8  i16 I16  i32 I32  i64 I64  i128 I128
    u16 U16  u32 U32  u64 U64  u128 U128
}

numbers! { no_sum: f32 F32  f64 F64 }

impl ColumnValue for u8 {
    const TYPE: ColumnType = ColumnType::U8;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        output.push(*self);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let [byte] = read_bytes(input, "u8")?;
        Ok(byte)
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        1
    }

    #[inline]
    fn all_stored_bytes(values: &[Self]) -> usize {
        size_of_val(values)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    exact_sum!();

    #[inline]
    fn are_same(values: &[Self], others: &[Self]) -> bool {
        values == others
    }

    #[inline]
    fn write_all(values: &[Self], output: &mut Vec<u8>) {
        output.extend_from_slice(values);
    }

    #[inline]
    fn read_many(count: usize, input: &mut &[u8]) -> Result<Vec<Self>, DecodeError> {
        match input.split_off(..count) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(DecodeError::ends_within(input, "a list of bytes")),
        }
    }

    #[inline]
    fn read_array<const N: usize>(input: &mut &[u8]) -> Result<[Self; N], DecodeError> {
        read_bytes(input, "an array of bytes")
    }
}

macro_rules! non_zero_numbers {
    ($($number:ident)*) => {$(
        impl ColumnValue for NonZero<$number> {
            const TYPE: ColumnType = $number::TYPE;

            #[inline]
            fn write(&self, output: &mut Vec<u8>) {
                self.get().write(output);
            }

            #[inline]
            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                let start = *input;
                NonZero::new($number::read(input)?)
                    .ok_or_else(|| DecodeError::new(start, "a number that cannot be zero is zero"))
            }

            #[inline]
            fn stored_bytes(&self) -> usize {
                size_of::<Self>()
            }

            #[inline]
            fn all_stored_bytes(values: &[Self]) -> usize {
                size_of_val(values)
            }

            #[inline]
            fn is_same(&self, other: &Self) -> bool {
                self == other
            }
        }
    )*};
}

non_zero_numbers!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128);

impl ColumnValue for bool {
    const TYPE: ColumnType = ColumnType::Bool;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        output.push(u8::from(*self));
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        match read_bytes(input, "bool")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(DecodeError::new(start, format!("a bool is {byte}, and not 0 or 1"))),
        }
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        1
    }

    #[inline]
    fn all_stored_bytes(values: &[Self]) -> usize {
        size_of_val(values)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl ColumnValue for char {
    const TYPE: ColumnType = ColumnType::Char;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        u32::from(*self).write(output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let code = u32::from_le_bytes(read_bytes(input, "char")?);
        char::from_u32(code).ok_or_else(|| {
            DecodeError::new(start, format!("a char is {code:#X}, which is no character"))
        })
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        4
    }

    #[inline]
    fn all_stored_bytes(values: &[Self]) -> usize {
        size_of_val(values)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

// Texts.

macro_rules! texts {
    ($($text:ty, $room:ident;)*) => {$(
        impl ColumnValue for $text {
            const TYPE: ColumnType = ColumnType::String;

            #[inline]
            fn write(&self, output: &mut Vec<u8>) {
                write_text(self, output);
            }

            #[inline]
            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                read_text(input).map(Self::from)
            }

            #[inline]
            fn stored_bytes(&self) -> usize {
                leb128_bytes(self.len() as u64) + self.len()
            }

            #[inline]
            fn heap_bytes(&self) -> usize {
                allocation_bytes(self.$room())
            }

            #[inline]
            fn is_same(&self, other: &Self) -> bool {
                self == other
            }
        }
    )*};
}

texts!(String, capacity; Box<str>, len; Arc<str>, len;);

impl<const N: usize> ColumnValue for ArrayString<N> {
    const TYPE: ColumnType = ColumnType::String;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        write_text(self, output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let text = read_text(input)?;
        ArrayString::from(text).map_err(|_| {
            let length = text.len();
            DecodeError::new(start, format!("a text has {length} bytes, and room for {N}"))
        })
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        leb128_bytes(self.len() as u64) + self.len()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

// Lists.

impl<T: ColumnValue> ColumnValue for Vec<T> {
    const TYPE: ColumnType = ColumnType::List(&T::TYPE.as_element());

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        write_list(self, output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let length = read_list_length(T::TYPE.width_min_bytes(), input)?;
        T::read_many(length, input)
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        list_bytes(self)
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.capacity() * size_of::<T>()) + all_heap_bytes(self)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        lists_are_same(self, other)
    }
}

macro_rules! boxed_lists {
    ($($list:ident)*) => {$(
        impl<T: ColumnValue> ColumnValue for $list<[T]> {
            const TYPE: ColumnType = Vec::<T>::TYPE;

            #[inline]
            fn write(&self, output: &mut Vec<u8>) {
                write_list(self, output);
            }

            #[inline]
            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                Vec::read(input).map(Self::from)
            }

            #[inline]
            fn stored_bytes(&self) -> usize {
                list_bytes(self)
            }

            #[inline]
            fn heap_bytes(&self) -> usize {
                allocation_bytes(size_of_val(&**self)) + all_heap_bytes(self)
            }

            #[inline]
            fn is_same(&self, other: &Self) -> bool {
                lists_are_same(self, other)
            }
        }
    )*};
}

boxed_lists!(Box Arc);

impl<T: ColumnValue, const N: usize> ColumnValue for ArrayVec<T, N> {
    const TYPE: ColumnType = Vec::<T>::TYPE;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        write_list(self, output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let length = read_list_length(T::TYPE.width_min_bytes(), input)?;
        if length > N {
            let message = format!("a list has {length} elements, and room for {N}");
            return Err(DecodeError::new(start, message));
        }
        let mut values = ArrayVec::new();
        for _ in 0..length {
            values.push(T::read(input)?);
        }
        Ok(values)
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        list_bytes(self)
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        all_heap_bytes(self)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        lists_are_same(self, other)
    }
}

#[inline]
fn write_list<T: ColumnValue>(values: &[T], output: &mut Vec<u8>) {
    write_leb128(values.len() as u64, output);
    T::write_all(values, output);
}

/// Returns how many bytes the values own.
#[inline]
fn all_heap_bytes<T: ColumnValue>(values: &[T]) -> usize {
    if std::mem::needs_drop::<T>() { values.iter().map(T::heap_bytes).sum() } else { 0 }
}

#[inline]
fn list_bytes<T: ColumnValue>(values: &[T]) -> usize {
    leb128_bytes(values.len() as u64) + T::all_stored_bytes(values)
}

#[inline]
fn lists_are_same<T: ColumnValue>(values: &[T], others: &[T]) -> bool {
    values.len() == others.len() && T::are_same(values, others)
}

impl<T: ColumnValue, const N: usize> ColumnValue for [T; N] {
    const TYPE: ColumnType = ColumnType::Array(&T::TYPE.as_element(), N);

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        T::write_all(self, output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        T::read_array(input)
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        T::all_stored_bytes(self)
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        all_heap_bytes(self)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        T::are_same(self, other)
    }
}

// Options and tuples.

impl<T: ColumnValue> ColumnValue for Option<T> {
    const TYPE: ColumnType = ColumnType::Option(&T::TYPE);

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        output.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.write(output);
        }
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        if read_is_some(input)? { T::read(input).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        1 + self.as_ref().map_or(0, T::stored_bytes)
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(value), Some(other)) => value.is_same(other),
            (None, None) => true,
            _ => false,
        }
    }
}

macro_rules! tuples {
    ($($element:ident $position:tt),*) => {
        impl<$($element: ColumnValue),*> ColumnValue for ($($element,)*) {
            const TYPE: ColumnType = ColumnType::Tuple(&[$($element::TYPE),*]);

            #[inline]
            #[allow(unused_variables, reason = "nothing is written for ()")]
            fn write(&self, output: &mut Vec<u8>) {
                $(self.$position.write(output);)*
            }

            #[inline]
            #[allow(unused_variables, reason = "nothing is read for ()")]
            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(($($element::read(input)?,)*))
            }

            #[inline]
            fn stored_bytes(&self) -> usize {
                0 $(+ self.$position.stored_bytes())*
            }

            #[inline]
            fn heap_bytes(&self) -> usize {
                0 $(+ self.$position.heap_bytes())*
            }

            #[inline]
            #[allow(unused_variables, reason = "() has nothing to compare")]
            fn is_same(&self, other: &Self) -> bool {
                true $(&& self.$position.is_same(&other.$position))*
            }
        }
    };
}

tuples!();
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

//! Commutative operations on stored rows, as the log holds them. They do to the stored form of a
//! column what [`operation`](crate::operation) does to the column in memory. The table's
//! description gives the types.

use std::cmp::Ordering;

use super::conversion::{Conversion, Obstacles};
use super::{ColumnDescription, RowChange, TableDescription, TypeDescription};
use crate::row::column::{
    ColumnValue, DecodeError, read_is_some, read_leb128, read_list_length, write_leb128,
};
use crate::row::operation::OperationKind;

/// An operation on a column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOperation<'a> {
    /// The column's position.
    pub(super) column: usize,
    /// The type that the column had.
    type_of: &'a TypeDescription,
    kind: OperationKind,
    operand: &'a [u8],
    /// The type to which the operand was converted, and the result.
    converted: Option<(TypeDescription, Vec<u8>)>,
}

impl TableDescription {
    /// Takes a stored operation apart: returns the row's encoded key, and the operation.
    /// ([`format`](crate::durability::format) draws it.)
    ///
    /// # Errors
    /// If `operation` is not exactly a key, a column outside the key, and an operation on columns
    /// of that column's type.
    pub fn read_operation<'a>(
        &'a self,
        operation: &'a [u8],
    ) -> Result<(&'a [u8], RowChange<'a>), DecodeError> {
        let length_bytes = operation.len();
        let mut rest = operation;
        for &position in &self.key {
            self.skip_column(position, &mut rest, length_bytes)?;
        }
        let key = &operation[..length_bytes - rest.len()];
        let at_column = rest;
        let column = read_leb128(&mut rest).map_err(|error| error.within(length_bytes))?;
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        if column >= self.columns.len() || self.key.contains(&column) {
            let what = format!("an operation is on column {column}, which no operation can change");
            return Err(DecodeError::new(at_column, what).within(length_bytes));
        }
        let at_kind = rest;
        let kind = u8::read(&mut rest).map_err(|error| error.within(length_bytes))?;
        let Some(kind) = OperationKind::of_number(kind) else {
            let error = DecodeError::new(at_kind, format!("there is no operation {kind}"));
            return Err(error.within(length_bytes));
        };
        let operand = rest;
        let name = || self.columns[column].name.clone();
        let skipped = skip_operand(&self.columns[column].type_of, kind, &mut rest);
        skipped.map_err(|error| error.in_column(name(), length_bytes))?;
        let type_of = &self.columns[column].type_of;
        let read = StoredOperation { column, type_of, kind, operand, converted: None };
        match rest.is_empty() {
            true => Ok((key, RowChange::Operation(read))),
            false => Err(DecodeError::goes_on(rest, "an operation").within(length_bytes)),
        }
    }
}

impl<'a> StoredOperation<'a> {
    /// Returns the column's position.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns what is done to the column.
    pub fn kind(&self) -> OperationKind {
        self.kind
    }

    /// Returns the operand's form in the log, which [`format`](crate::durability::format) describes.
    pub fn operand(&self) -> &'a [u8] {
        self.operand
    }
}

impl StoredOperation<'_> {
    /// Appends to `output` the row that this operation makes of `row`, a stored row of `table`.
    ///
    /// # Errors
    /// If `row` does not consist of the table's columns, or if the result is outside the range of
    /// the column's type.
    pub(super) fn apply(
        &self,
        table: &TableDescription,
        row: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        table.for_each_column(row, |position, value| {
            if position != self.column {
                output.extend_from_slice(value);
                return Ok(());
            }
            let column = &table.columns[position];
            let (type_of, operand) = self.type_and_operand();
            let applied = if column.type_of.is_stored_as(type_of) {
                apply(type_of, self.kind, value, operand, output)
            } else {
                self.apply_to_converted(&column.type_of, value, output)
            };
            applied.map_err(|error| error.in_column(column.name.clone(), row.len()))
        })
    }

    /// Converts an ordered tuple, if the operand is one, as the values of the column are converted to
    /// type `current`. So the operation applies to the converted column.
    ///
    /// The other operands are numbers. They stay as they are, and so does a tuple if the operation
    /// does not exist for type `current`.
    pub(super) fn convert_tuple(
        &mut self,
        conversion: &Conversion,
        current: &TypeDescription,
    ) -> Result<(), DecodeError> {
        let (type_of, operand) = self.type_and_operand();
        let mut tuple = operand;
        match self.kind {
            OperationKind::OrderedPut => {}
            OperationKind::TopKInsert => {
                read_leb128(&mut tuple)?;
                bool::read(&mut tuple)?;
            }
            _ => return Ok(()),
        }
        if *conversion == Conversion::Keep || operand_of(current, self.kind, operand).is_err() {
            return Ok(());
        }
        // A column with this tuple alone, an option or a list, is the byte 1 and the tuple.
        let alone = [&[1], tuple].concat();
        let mut converted = Vec::new();
        conversion
            .convert_stored(&alone, (type_of, current), &mut converted)
            .map_err(|what| DecodeError::new(operand, what))?;
        let options = &operand[..operand.len() - tuple.len()];
        self.converted = Some((current.clone(), [options, &converted[1..]].concat()));
        Ok(())
    }

    /// Returns the type of the columns to which the operation applies, and the operand for this type.
    fn type_and_operand(&self) -> (&TypeDescription, &[u8]) {
        match &self.converted {
            Some((type_of, operand)) => (type_of, operand),
            None => (self.type_of, self.operand),
        }
    }

    /// Applies the operation to a value that was converted to type `current`: converts it back to
    /// the type that the operation is for, and the result to `current` again.
    fn apply_to_converted(
        &self,
        current: &TypeDescription,
        value: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let (type_of, operand) = self.type_and_operand();
        let convert = |value: &[u8], from: &TypeDescription, to: &TypeDescription| {
            let mut obstacles = Obstacles { dropped: None, found: Vec::new() };
            let conversion = Conversion::new("", from, to, &mut obstacles);
            let mut converted = Vec::new();
            match conversion {
                Some((it, _)) => it.convert_stored(value, (from, to), &mut converted),
                None => Err(obstacles.found.join("; ")),
            }
            .map_err(|what| DecodeError::new(operand, what))
            .map(|()| converted)
        };
        let mut applied = Vec::new();
        let stored = convert(value, current, type_of)?;
        apply(type_of, self.kind, &stored, operand, &mut applied)?;
        output.append(&mut convert(&applied, type_of, current)?);
        Ok(())
    }
}

/// The operand of an operation, by the type of the column.
enum Operand<'a> {
    /// An integer, for operations on integers and on bits.
    Integer,
    /// A `bool`, for operations on bits.
    Bool,
    /// An ordered tuple of the first type, which is put. The fields are its order, value and stamp.
    Ordered(&'a TypeDescription, &'a [ColumnDescription; 3]),
    /// An ordered tuple, with types as above, which is inserted.
    TopK(&'a TypeDescription, &'a [ColumnDescription; 3]),
    /// Elements of this type, which are added.
    Set(&'a TypeDescription),
}

/// Returns the operand that an operation of kind `kind` has on a column of type `type_of`. `input`
/// is the place of a possible error.
fn operand_of<'a>(
    type_of: &'a TypeDescription,
    kind: OperationKind,
    input: &[u8],
) -> Result<Operand<'a>, DecodeError> {
    use OperationKind as Kind;
    use TypeDescription as Type;
    let is_bits = matches!(kind, Kind::Or | Kind::And);
    let is_numbers =
        is_bits || matches!(kind, Kind::Add | Kind::Take | Kind::Mul | Kind::Max | Kind::Min);
    match type_of {
        Type::Bool if is_bits => return Ok(Operand::Bool),
        _ if is_integer(type_of) && is_numbers => return Ok(Operand::Integer),
        Type::Option(tuple) if kind == Kind::OrderedPut => {
            if let Some(fields) = fields_of(tuple) {
                return Ok(Operand::Ordered(tuple, fields));
            }
        }
        Type::List(tuple) if kind == Kind::TopKInsert => {
            if let Some(fields) = fields_of(tuple) {
                return Ok(Operand::TopK(tuple, fields));
            }
        }
        Type::List(element) if kind == Kind::Union && is_order(element) => {
            return Ok(Operand::Set(element));
        }
        _ => {}
    }
    Err(DecodeError::new(
        input,
        format!("there is no operation {kind} on a column of type {type_of}"),
    ))
}

fn is_integer(type_of: &TypeDescription) -> bool {
    use TypeDescription as Type;
    matches!(
        type_of,
        Type::I8
            | Type::I16
            | Type::I32
            | Type::I64
            | Type::I128
            | Type::U8
            | Type::U16
            | Type::U32
            | Type::U64
            | Type::U128
    )
}

/// Returns whether values of the type can be compared in their stored form: see
/// [`Order`](crate::operation::Order).
fn is_order(type_of: &TypeDescription) -> bool {
    match type_of {
        TypeDescription::Bool => true,
        TypeDescription::Tuple(elements) => elements.iter().all(is_order),
        _ => is_integer(type_of),
    }
}

/// Returns the fields of an ordered tuple, if `tuple` is the type of ordered tuples.
fn fields_of(tuple: &TypeDescription) -> Option<&[ColumnDescription; 3]> {
    let TypeDescription::Struct { fields, .. } = tuple else { return None };
    let fields: &[_; 3] = fields[..].try_into().ok()?;
    let [order, _, stamp] = fields;
    (is_order(&order.type_of) && stamp.type_of == TypeDescription::U64).then_some(fields)
}

/// Advances `input` past an operand.
fn skip_operand(
    type_of: &TypeDescription,
    kind: OperationKind,
    input: &mut &[u8],
) -> Result<(), DecodeError> {
    match operand_of(type_of, kind, input)? {
        Operand::Integer | Operand::Bool => type_of.skip(input),
        Operand::Ordered(tuple, _) => tuple.skip(input),
        Operand::TopK(tuple, _) => {
            read_leb128(input)?;
            bool::read(input)?;
            tuple.skip(input)
        }
        Operand::Set(_) => {
            read_leb128(input)?;
            type_of.skip(input)
        }
    }
}

/// Appends the result of an operation on a stored value.
fn apply(
    type_of: &TypeDescription,
    kind: OperationKind,
    value: &[u8],
    operand: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    match operand_of(type_of, kind, operand)? {
        Operand::Integer => apply_to_integer(type_of, kind, value, operand, output),
        Operand::Bool => {
            apply_to::<bool>(kind, value, operand, output, |kind, value, operand| match kind {
                OperationKind::Or => Some(value | operand),
                _ => Some(value & operand),
            })
        }
        Operand::Ordered(_, fields) => {
            let mut rest = value;
            let replaces = !read_is_some(&mut rest)? || comes_before(fields, operand, rest)?;
            if replaces {
                output.push(1);
                output.extend_from_slice(operand);
            } else {
                output.extend_from_slice(value);
            }
            Ok(())
        }
        Operand::TopK(tuple, fields) => {
            let mut inserted = operand;
            let most = usize::try_from(read_leb128(&mut inserted)?).unwrap_or(usize::MAX);
            let is_one_per_value = bool::read(&mut inserted)?;
            let mut tuples = elements_of(tuple, value)?;
            let (mut at, mut same) = (0, None);
            for (position, other) in tuples.iter().enumerate() {
                // Tuples are in descending order. Find the place of the inserted one.
                if at == position && !comes_before(fields, inserted, other)? {
                    at += 1;
                }
                if is_one_per_value && value_of(fields, other)? == value_of(fields, inserted)? {
                    same = Some(position);
                }
            }
            match same {
                Some(same) if same < at => {}
                same => {
                    same.map(|same| tuples.remove(same));
                    tuples.insert(at, inserted);
                    tuples.truncate(most);
                }
            }
            write_elements(&tuples, output);
            Ok(())
        }
        Operand::Set(element) => {
            let mut added = operand;
            let most = read_leb128(&mut added)?;
            let mut elements = elements_of(element, value)?;
            for new in elements_of(element, added)? {
                // Elements are in ascending order. Insert the new one at its place, unless it is
                // there already.
                let mut position = 0;
                while position < elements.len()
                    && compare_orders(element, elements[position], new)? == Ordering::Less
                {
                    position += 1;
                }
                if elements.get(position) != Some(&new) {
                    elements.insert(position, new);
                }
            }
            if elements.len() as u64 > most {
                let what = format!("a set has {} elements, more than {most}", elements.len());
                return Err(DecodeError::new(operand, what));
            }
            write_elements(&elements, output);
            Ok(())
        }
    }
}

/// Applies an operation to a value of type `V`.
fn apply_to<V: ColumnValue>(
    kind: OperationKind,
    mut value: &[u8],
    operand: &[u8],
    output: &mut Vec<u8>,
    apply: impl FnOnce(OperationKind, V, V) -> Option<V>,
) -> Result<(), DecodeError> {
    let (value, operand_value) = (V::read(&mut value)?, V::read(&mut { operand })?);
    match apply(kind, value, operand_value) {
        Some(value) => {
            value.write(output);
            Ok(())
        }
        None => Err(DecodeError::new(operand, format!("the result of {kind} is out of range"))),
    }
}

fn apply_to_integer(
    type_of: &TypeDescription,
    kind: OperationKind,
    value: &[u8],
    operand: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    use TypeDescription as Type;
    macro_rules! integers {
        ($($type_of:ident $integer:ident)*) => {
            match type_of {
                $(Type::$type_of => {
                    apply_to::<$integer>(kind, value, operand, output, |kind, value, operand| {
                        match kind {
                            OperationKind::Add => value.checked_add(operand),
                            OperationKind::Take => value.checked_sub(operand),
                            OperationKind::Mul => value.checked_mul(operand),
                            OperationKind::Max => Some(value.max(operand)),
                            OperationKind::Min => Some(value.min(operand)),
                            OperationKind::Or => Some(value | operand),
                            _ => Some(value & operand),
                        }
                    })
                })*
                _ => unreachable!("only integers have these operands"),
            }
        };
    }
    integers!(I8 i8 I16 i16 I32 i32 I64 i64 I128 i128 U8 u8 U16 u16 U32 u32 U64 u64 U128 u128)
}

/// Compares the orders with which two tuples begin.
fn compare_orders(
    order: &TypeDescription,
    mut one: &[u8],
    mut other: &[u8],
) -> Result<Ordering, DecodeError> {
    compare(order, &mut one, &mut other)
}

/// Returns whether the first of two tuples has the greater order, or the same order and the lesser stamp.
fn comes_before(
    [order, value, _]: &[ColumnDescription; 3],
    mut one: &[u8],
    mut other: &[u8],
) -> Result<bool, DecodeError> {
    let of_orders = compare(&order.type_of, &mut one, &mut other)?;
    value.type_of.skip(&mut one)?;
    value.type_of.skip(&mut other)?;
    let of_stamps = u64::read(&mut other)?.cmp(&u64::read(&mut one)?);
    Ok(of_orders.then(of_stamps) == Ordering::Greater)
}

/// Returns the stored value of a tuple.
fn value_of<'a>(
    [order, value, _]: &[ColumnDescription; 3],
    mut tuple: &'a [u8],
) -> Result<&'a [u8], DecodeError> {
    order.type_of.skip(&mut tuple)?;
    let start = tuple;
    value.type_of.skip(&mut tuple)?;
    Ok(&start[..start.len() - tuple.len()])
}

/// Compares two stored values of a type that has an order, and advances past them.
fn compare(
    type_of: &TypeDescription,
    one: &mut &[u8],
    other: &mut &[u8],
) -> Result<Ordering, DecodeError> {
    use TypeDescription as Type;
    macro_rules! numbers {
        ($($type_of:ident $number:ident)*) => {
            match type_of {
                $(Type::$type_of => Ok($number::read(one)?.cmp(&$number::read(other)?)),)*
                Type::Tuple(elements) => {
                    let mut order = Ordering::Equal;
                    for element in elements {
                        order = order.then(compare(element, one, other)?);
                    }
                    Ok(order)
                }
                _ => unreachable!("only types that have an order are compared"),
            }
        };
    }
    numbers!(
        Bool bool I8 i8 I16 i16 I32 i32 I64 i64 I128 i128 U8 u8 U16 u16 U32 u32 U64 u64 U128 u128
    )
}

/// Returns the elements of a stored list.
fn elements_of<'a>(
    element: &TypeDescription,
    mut list: &'a [u8],
) -> Result<Vec<&'a [u8]>, DecodeError> {
    let length = read_list_length(element.width_min_bytes(), &mut list)?;
    let mut elements = Vec::with_capacity(length + 1);
    for _ in 0..length {
        let start = list;
        element.skip(&mut list)?;
        elements.push(&start[..start.len() - list.len()]);
    }
    Ok(elements)
}

fn write_elements(elements: &[&[u8]], output: &mut Vec<u8>) {
    write_leb128(elements.len() as u64, output);
    elements.iter().for_each(|element| output.extend_from_slice(element));
}

//! [`Conversion`]: the conversion of stored values into values of the type that a column has now.

use super::{ColumnDescription, TypeDescription as Type, Value};

/// How well the values of a stored type fit the type that a program has in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// Values are stored in the same way.
    Same,
    /// Every value can be converted.
    Always,
    /// Some values can be converted, others cannot: a number that is too large, `None`, a variant
    /// that the program does not have.
    Perhaps,
}

/// The conversion of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Conversion {
    /// The value stays as it is.
    Keep,
    /// It becomes an integer, signed if the flag says so. That it is outside the range of the type
    /// is found when it is [written](Value::write).
    Integer(bool),
    /// It becomes `Some`.
    Wrap(Box<Conversion>),
    /// It is taken out of its `Some`.
    Unwrap(Box<Conversion>),
    /// It is converted inside its `Some`.
    Inside(Box<Conversion>),
    /// The elements are converted, and are bytes in the end if the flag says so.
    Elements(Box<Conversion>, bool),
    /// The elements of a tuple are converted.
    Tuple(Vec<Conversion>),
    /// The fields of a struct come from these sources. The flag says that every stored field is one
    /// of them.
    Fields(Vec<FieldSource>, bool),
    /// The variants have these positions; `None` for a variant that does not exist any more, with
    /// their names.
    Variants(Vec<Result<usize, String>>),
    /// The value becomes an `f64`, or an `f32`.
    Float,
}

/// Where a field of a struct comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldSource {
    Stored(usize, Conversion),
    Default(Value),
}

/// Collects why stored values cannot be converted.
pub(super) struct Obstacles<'a> {
    /// The names of what was dropped on purpose; `None` if everything may be dropped.
    pub dropped: Option<&'a [String]>,
    pub found: Vec<String>,
}

impl Obstacles<'_> {
    pub fn is_dropped(&self, name: &str) -> bool {
        self.dropped.is_none_or(|dropped| dropped.iter().any(|dropped| dropped == name))
    }
}

/// Something that has a name, and may have had other ones.
pub(super) trait Named {
    fn name(&self) -> &str;
    fn was(&self) -> &[String];
}

/// Returns, for each column, field or table of `current`, the position in `stored` of the one that
/// it was. It is the one of the same name, unless a `was` says otherwise.
///
/// The `was` of a current item leads to an earlier name, from an older directory to a newer
/// program. The `was` of a stored item leads back, from a newer directory to an older program.
pub(super) fn sources_of<N: Named>(stored: &[N], current: &[N]) -> Vec<Option<usize>> {
    let forward = renamed(stored, current);
    let mut back = vec![None; current.len()];
    for (source, position) in renamed(current, stored).into_iter().enumerate() {
        if let Some(position) = position
            && !forward.contains(&Some(source))
        {
            back[position] = back[position].or(Some(source));
        }
    }
    let is_free = |same: &usize| !forward.contains(&Some(*same)) && !back.contains(&Some(*same));
    let source = |(position, item): (usize, &N)| {
        let same = named(stored, item.name()).filter(is_free);
        forward[position].or(back[position]).or(same)
    };
    current.iter().enumerate().map(source).collect()
}

/// Returns, for each item of `newer`, the position in `older` of the item that it has renamed, if it
/// has renamed one. The `was` of an item counts if `older` has no item of its name. It also counts if
/// that item is now another one, so that a name can be given up and used again in the same program.
fn renamed<N: Named>(older: &[N], newer: &[N]) -> Vec<Option<usize>> {
    let mut sources = vec![None; newer.len()];
    loop {
        let mut is_done = true;
        for (position, item) in newer.iter().enumerate() {
            let is_renamed = sources[position].is_none()
                && !item.was().is_empty()
                && named(older, item.name()).is_none_or(|same| sources.contains(&Some(same)));
            if is_renamed {
                sources[position] = item.was().iter().find_map(|name| named(older, name));
                is_done &= sources[position].is_none();
            }
        }
        if is_done {
            return sources;
        }
    }
}

/// Returns the position of the item with this name.
fn named<N: Named>(items: &[N], name: &str) -> Option<usize> {
    items.iter().position(|item| item.name() == name)
}

impl Type {
    /// Returns the width of an integer in bits, and whether it is signed.
    fn integer(&self) -> Option<(usize, bool)> {
        let is_signed = matches!(self, Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::I128);
        let is_unsigned = matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::U128);
        (is_signed || is_unsigned).then_some((self.width_bytes()? * 8, is_signed))
    }

    /// Returns whether all integers of this type, or only some, are integers of the type `current`,
    /// and whether that is signed; `None` if neither type has all of the other's.
    fn integer_fit(&self, current: &Type) -> Option<(bool, bool)> {
        let holds = |(bits, is_signed): (usize, bool), (other_bits, other_signed)| {
            bits > other_bits && is_signed || bits >= other_bits && is_signed == other_signed
        };
        let (stored, current) = (self.integer()?, current.integer()?);
        let is_total = holds(current, stored);
        (is_total || holds(stored, current)).then_some((is_total, current.1))
    }
}

impl Conversion {
    /// Returns the conversion of values of type `stored` into values of type `current`, and how
    /// well they fit. If there isn't one, notes why, and returns `None`. `path` is the name of the
    /// column or field for messages.
    pub fn new(
        path: &str,
        stored: &Type,
        current: &Type,
        obstacles: &mut Obstacles<'_>,
    ) -> Option<(Conversion, Fit)> {
        let converted = |(inner, fit): (Conversion, Fit), conversion: fn(Box<_>) -> Conversion| {
            (conversion(Box::new(inner)), fit.max(Fit::Always))
        };
        Some(match (stored, current) {
            _ if current.is_stored_as(stored) => (Conversion::Keep, Fit::Same),
            (Type::Option(inner), Type::Option(now)) => {
                converted(Self::new(path, inner, now, obstacles)?, Conversion::Inside)
            }
            (value, Type::Option(now)) => {
                converted(Self::new(path, value, now, obstacles)?, Conversion::Wrap)
            }
            (Type::Option(inner), value) => {
                let (inner, _) = Self::new(path, inner, value, obstacles)?;
                (Conversion::Unwrap(Box::new(inner)), Fit::Perhaps)
            }
            (Type::List(inner), Type::List(now)) => Self::elements(path, inner, now, obstacles)?,
            (Type::Array(inner, length), Type::Array(now, length_now)) if length == length_now => {
                Self::elements(path, inner, now, obstacles)?
            }
            (Type::Tuple(elements), Type::Tuple(now)) if elements.len() == now.len() => {
                let mut worst = Fit::Always;
                let mut conversions = Vec::new();
                for (element, now) in elements.iter().zip(now) {
                    let (conversion, fit) = Self::new(path, element, now, obstacles)?;
                    worst = worst.max(fit);
                    conversions.push(conversion);
                }
                (Conversion::Tuple(conversions), worst)
            }
            (Type::Struct { fields, .. }, Type::Struct { fields: now, .. }) => {
                Self::fields(path, fields, now, obstacles)?
            }
            (Type::Enum { variants, .. }, Type::Enum { variants: now, .. }) => {
                let place = |variant: &String| {
                    now.iter().position(|now| now == variant).ok_or_else(|| variant.clone())
                };
                let places: Vec<_> = variants.iter().map(place).collect();
                let is_total = places.iter().all(Result::is_ok);
                let fit = if is_total { Fit::Always } else { Fit::Perhaps };
                (Conversion::Variants(places), fit)
            }
            (Type::F32, Type::F64) => (Conversion::Float, Fit::Always),
            (Type::F64, Type::F32) => (Conversion::Float, Fit::Perhaps),
            _ => match stored.integer_fit(current) {
                Some((is_total, is_signed)) => {
                    let fit = if is_total { Fit::Always } else { Fit::Perhaps };
                    (Conversion::Integer(is_signed), fit)
                }
                None => {
                    obstacles.found.push(format!(
                        "column `{path}` is stored as {stored}, and is {current} now: give the \
                         new column another name, and compute it from the old one with \
                         `#[record(computed = …)]`"
                    ));
                    return None;
                }
            },
        })
    }

    fn elements(
        path: &str,
        stored: &Type,
        current: &Type,
        obstacles: &mut Obstacles<'_>,
    ) -> Option<(Conversion, Fit)> {
        let (element, fit) = Self::new(path, stored, current, obstacles)?;
        let are_bytes = *current == Type::U8;
        Some((Conversion::Elements(Box::new(element), are_bytes), fit.max(Fit::Always)))
    }

    fn fields(
        path: &str,
        stored: &[ColumnDescription],
        current: &[ColumnDescription],
        obstacles: &mut Obstacles<'_>,
    ) -> Option<(Conversion, Fit)> {
        let found_before = obstacles.found.len();
        let mut worst = Fit::Always;
        let mut sources = Vec::new();
        let mut is_used = vec![false; stored.len()];
        for (field, source) in current.iter().zip(sources_of(stored, current)) {
            let path = format!("{path}.{}", field.name);
            if let Some(source) = source {
                is_used[source] = true;
                let type_of = &stored[source].type_of;
                let made = Self::new(&path, type_of, &field.type_of, obstacles);
                let Some((conversion, fit)) = made else { continue };
                worst = worst.max(fit);
                sources.push(FieldSource::Stored(source, conversion));
            } else if let Some(default) = &field.default {
                let value = field.type_of.read_value(&mut &default[..]);
                sources.push(FieldSource::Default(value.expect("a default is a value")));
            } else {
                obstacles.found.push(format!(
                    "field `{path}` is new, and has no default for the rows that are stored: give \
                     it one with `#[column(default = …)]`"
                ));
            }
        }
        let is_whole = is_used.iter().all(|is_used| *is_used);
        for (field, _) in stored.iter().zip(is_used).filter(|(_, is_used)| !is_used) {
            let path = format!("{path}.{}", field.name);
            if !obstacles.is_dropped(&path) {
                obstacles.found.push(format!(
                    "field `{path}` is stored, and the program does not have it; a part of a \
                     column cannot be kept for a newer program. If the field is not needed any \
                     more, say so on the row: `#[record(dropped({path}))]`"
                ));
            }
        }
        let is_possible = obstacles.found.len() == found_before;
        is_possible.then_some((Conversion::Fields(sources, is_whole), worst))
    }

    /// Returns whether different values stay different.
    pub fn is_injective(&self) -> bool {
        match self {
            Conversion::Fields(sources, is_whole) => {
                let is_injective = |source: &FieldSource| match source {
                    FieldSource::Stored(_, conversion) => conversion.is_injective(),
                    FieldSource::Default(_) => true,
                };
                *is_whole && sources.iter().all(is_injective)
            }
            Conversion::Wrap(inner)
            | Conversion::Unwrap(inner)
            | Conversion::Inside(inner)
            | Conversion::Elements(inner, _) => inner.is_injective(),
            Conversion::Tuple(elements) => elements.iter().all(Conversion::is_injective),
            _ => true,
        }
    }

    /// Converts a value.
    ///
    /// # Errors
    /// Why it has no counterpart, in words.
    pub fn convert(&self, value: Value) -> Result<Value, String> {
        Ok(match (self, value) {
            (Conversion::Integer(true), Value::Unsigned(number)) => {
                let signed = i128::try_from(number);
                Value::Signed(signed.map_err(|_| format!("{number} is too large"))?)
            }
            (Conversion::Integer(false), Value::Signed(number)) => {
                let unsigned = u128::try_from(number);
                Value::Unsigned(unsigned.map_err(|_| format!("{number} is negative"))?)
            }
            (Conversion::Wrap(inner), value) => {
                Value::Option(Some(Box::new(inner.convert(value)?)))
            }
            (Conversion::Unwrap(inner), Value::Option(value)) => match value {
                Some(value) => inner.convert(*value)?,
                None => return Err("it is `None`".to_owned()),
            },
            (Conversion::Inside(inner), Value::Option(value)) => {
                let value = value.map(|value| inner.convert(*value)).transpose()?;
                Value::Option(value.map(Box::new))
            }
            (Conversion::Elements(element, are_bytes), value) => {
                let values = match value {
                    Value::Bytes(bytes) => {
                        bytes.into_iter().map(|byte| Value::Unsigned(byte.into())).collect()
                    }
                    Value::List(values) => values,
                    other => return Ok(other),
                };
                let values = values.into_iter().map(|value| element.convert(value));
                if *are_bytes {
                    let byte = |value| match value? {
                        Value::Unsigned(number) => u8::try_from(number)
                            .map_err(|_| format!("the unsigned number {number} is no u8")),
                        other => Err(format!("{other} is no u8")),
                    };
                    Value::Bytes(values.map(byte).collect::<Result<_, _>>()?)
                } else {
                    Value::List(values.collect::<Result<_, _>>()?)
                }
            }
            (Conversion::Tuple(elements), Value::Tuple(values)) => {
                let converted = elements.iter().zip(values).map(|(it, value)| it.convert(value));
                Value::Tuple(converted.collect::<Result<_, _>>()?)
            }
            (Conversion::Fields(sources, _), Value::Tuple(values)) => {
                let field = |source: &FieldSource| match source {
                    FieldSource::Stored(position, it) => it.convert(values[*position].clone()),
                    FieldSource::Default(value) => Ok(value.clone()),
                };
                Value::Tuple(sources.iter().map(field).collect::<Result<_, _>>()?)
            }
            (Conversion::Variants(places), Value::Enum(variant)) => match &places[variant] {
                Ok(place) => Value::Enum(*place),
                Err(name) => return Err(format!("the variant `{name}` is not known")),
            },
            (Conversion::Float, Value::F32(number)) => Value::F64(number.into()),
            (Conversion::Float, Value::F64(number)) => {
                let narrow = number as f32;
                if f64::from(narrow).to_bits() != number.to_bits() {
                    return Err(format!("{number} is no f32"));
                }
                Value::F32(narrow)
            }
            (_, value) => value,
        })
    }

    /// Converts a stored value of type `stored` into one of type `current`, which it appends to
    /// `output`.
    ///
    /// # Errors
    /// Why the value cannot be read, or converted.
    pub fn convert_stored(
        &self,
        mut value: &[u8],
        (stored, current): (&Type, &Type),
        output: &mut Vec<u8>,
    ) -> Result<(), String> {
        let value = stored.read_value(&mut value).map_err(|error| error.to_string())?;
        self.convert(value)?.write(current, output).map_err(|mismatch| mismatch.to_string())
    }
}

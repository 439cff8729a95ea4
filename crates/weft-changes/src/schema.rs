//! The tables as the log has them, and as the program has them.

use std::any::TypeId;
use std::borrow::Cow;
use std::sync::OnceLock;

use weft::column::DecodeError;
use weft::description::{Adaptation, TableDescription};
use weft::durability::Manifest;
use weft::durability::format::WriteKind;
use weft::{Record, Table};

use crate::error::ChangesError;

/// The tables that the log names, by number.
#[derive(Debug)]
pub struct Schema {
    /// The tables as their rows are logged. A table has several numbers if its form has changed.
    pub tables: Vec<TableDescription>,
    dropped: Vec<u32>,
    /// The types of the rows of tables with a name of their own, as far as the program has said them.
    row_types: Vec<OnceLock<TypeId>>,
    /// Where the keys are, by the number of the table.
    keys: Vec<KeyPlace>,
    /// The conversions that were needed so far, by the number of the table.
    conversions: Vec<OnceLock<Box<Conversion>>>,
}

/// The place of the key in what is logged of a row.
#[derive(Debug)]
struct KeyPlace {
    /// Whether rows begin with it. Everything else does.
    leads_row: bool,
    width_bytes: Option<usize>,
}

/// The conversion of what was logged of a table to the present form of its rows.
#[derive(Debug)]
pub struct Conversion {
    row_type: TypeId,
    pub current: TableDescription,
    pub adaptation: Adaptation,
    /// The conversion to another row type of the same table.
    next: OnceLock<Box<Conversion>>,
}

impl Schema {
    pub fn new(manifest: &Manifest) -> Schema {
        let tables = manifest.tables.iter().map(|table| table.written().into_owned());
        Schema::of(tables.collect(), manifest.dropped.clone())
    }

    pub fn of(tables: Vec<TableDescription>, dropped: Vec<u32>) -> Schema {
        let keys = tables.iter().map(|table| {
            let mut types = table.key.iter().map(|&column| &table.columns[column].type_of);
            KeyPlace {
                leads_row: table.key.iter().enumerate().all(|(place, &column)| place == column),
                width_bytes: types.try_fold(0, |sum: usize, it| sum.checked_add(it.width_bytes()?)),
            }
        });
        let keys = keys.collect();
        let conversions = tables.iter().map(|_| OnceLock::new()).collect();
        let row_types = tables.iter().map(|_| OnceLock::new()).collect();
        Schema { tables, dropped, row_types, keys, conversions }
    }

    /// Returns whether the rows of a table are of type `T`, in this or an earlier form.
    pub fn is<T: Record>(&self, table: u32) -> bool {
        let said = self.row_types[table as usize].get();
        self.is_named(table, T::TABLE) || said.is_some_and(|said| *said == TypeId::of::<T>())
    }

    /// Returns whether a number is that of this table. From then on, [`Schema::is`] knows the type of its rows.
    pub fn is_of<T: Record>(&self, number: u32, table: &Table<T>) -> bool {
        let is_it = self.is_named(number, table.name());
        if is_it {
            let _ = self.row_types[number as usize].set(TypeId::of::<T>());
        }
        is_it
    }

    fn is_named(&self, table: u32, name: &str) -> bool {
        self.tables[table as usize].name == name && !self.dropped.contains(&table)
    }

    /// Returns the numbers of the table's forms.
    pub fn numbers_of<T: Record>(&self, table: &Table<T>) -> Vec<u32> {
        (0..self.tables.len() as u32).filter(|&number| self.is_of(number, table)).collect()
    }

    /// Returns the stored key of the row that a write with these bytes is on.
    pub fn key_of<'a>(
        &self,
        table: u32,
        kind: WriteKind,
        bytes: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, DecodeError> {
        let (place, table) = (&self.keys[table as usize], &self.tables[table as usize]);
        if kind != WriteKind::Put || place.leads_row {
            if let Some(key) = place.width_bytes.and_then(|width| bytes.get(..width)) {
                return Ok(Cow::Borrowed(key));
            }
            let mut rest = bytes;
            for &column in &table.key {
                table.columns[column].type_of.skip(&mut rest)?;
            }
            return Ok(Cow::Borrowed(&bytes[..bytes.len() - rest.len()]));
        }
        // The key's columns can be anywhere in a row, and in another order.
        let (mut columns, mut rest) = (Vec::with_capacity(table.columns.len()), bytes);
        for column in &table.columns {
            let start = rest;
            column.type_of.skip(&mut rest)?;
            columns.push(&start[..start.len() - rest.len()]);
        }
        Ok(Cow::Owned(table.key.iter().flat_map(|&column| columns[column]).copied().collect()))
    }

    /// Returns the conversion of what was logged of a table to rows of type `T`.
    pub fn conversion<T: Record>(&self, table: u32) -> Result<&Conversion, ChangesError> {
        let mut known = &self.conversions[table as usize];
        loop {
            match known.get() {
                Some(it) if it.row_type == TypeId::of::<T>() => return Ok(it),
                Some(it) => known = &it.next,
                None => {
                    let made = Box::new(self.make_conversion::<T>(table)?);
                    // If another thread was faster, its conversion may be one to another type.
                    let _ = known.set(made);
                }
            }
        }
    }

    fn make_conversion<T: Record>(&self, table: u32) -> Result<Conversion, ChangesError> {
        if !self.is::<T>(table) {
            let found = self.tables[table as usize].name.clone();
            return Err(ChangesError::OtherTable { table: T::TABLE, found });
        }
        let Some(current) = TableDescription::of::<T>() else {
            return Err(ChangesError::Volatile { table: T::TABLE });
        };
        // The table's forms since then, and the program's.
        let numbers = table..self.tables.len() as u32;
        let name = &self.tables[table as usize].name;
        let forms = numbers.filter(|number| self.is_named(*number, name));
        let mut chain: Vec<_> = forms.map(|number| &self.tables[number as usize]).collect();
        if !chain.last().is_some_and(|last| last.is_stored_as(&current)) {
            chain.push(&current);
        }
        let adaptation = Adaptation::new(&chain, None).map_err(|obstacles| {
            ChangesError::Schema { table: T::TABLE, message: obstacles.join("; ") }
        })?;
        Ok(Conversion { row_type: TypeId::of::<T>(), current, adaptation, next: OnceLock::new() })
    }
}

/// Decodes a value that takes up all of `bytes`.
pub fn decode<V>(
    bytes: &[u8],
    table: &str,
    read: impl FnOnce(&mut &[u8]) -> Result<V, DecodeError>,
) -> Result<V, ChangesError> {
    let mut rest = bytes;
    let decoded = read(&mut rest).and_then(|value| match rest.is_empty() {
        true => Ok(value),
        false => Err(DecodeError::new(rest, "there are bytes behind the end")),
    });
    decoded.map_err(|source| ChangesError::Decode { table: table.to_owned(), source })
}

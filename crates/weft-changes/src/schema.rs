//! The tables of the log, and how what was logged becomes rows of the program's types.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use weft::Record;
use weft::column::DecodeError;
use weft::description::{Adaptation, TableDescription};
use weft::durability::Manifest;

use crate::error::ChangesError;

/// The tables that the log names, by number.
pub struct Schema {
    /// The tables as their rows are logged. A table has several numbers if its form has changed.
    pub tables: Vec<TableDescription>,
    dropped: Vec<u32>,
    /// The conversions that were needed so far, by the number of the table and the row type.
    conversions: RwLock<HashMap<(u32, TypeId), Arc<Conversion>>>,
}

/// The conversion of what was logged of a table to the present form of its rows.
pub struct Conversion {
    pub current: TableDescription,
    pub adaptation: Adaptation,
}

impl Schema {
    pub fn new(manifest: &Manifest) -> Schema {
        Schema {
            tables: manifest.tables.iter().map(|table| table.written().into_owned()).collect(),
            dropped: manifest.dropped.clone(),
            conversions: RwLock::default(),
        }
    }

    /// Returns whether the rows of a table are of type `T`, in this or an earlier form.
    pub fn is<T: Record>(&self, table: u32) -> bool {
        self.tables[table as usize].name == T::TABLE && !self.dropped.contains(&table)
    }

    /// Returns the conversion of what was logged of a table to rows of type `T`.
    pub fn conversion<T: Record>(&self, table: u32) -> Result<Arc<Conversion>, ChangesError> {
        let key = (table, TypeId::of::<T>());
        let known = self.conversions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(conversion) = known.get(&key) {
            return Ok(Arc::clone(conversion));
        }
        drop(known);
        let conversion = Arc::new(self.make_conversion::<T>(table)?);
        let mut known = self.conversions.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, Arc::clone(&conversion));
        Ok(conversion)
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
        let forms = numbers.filter(|number| self.is::<T>(*number));
        let mut chain: Vec<_> = forms.map(|number| &self.tables[number as usize]).collect();
        if !chain.last().is_some_and(|last| last.is_stored_as(&current)) {
            chain.push(&current);
        }
        let adaptation = Adaptation::new(&chain, None).map_err(|obstacles| {
            ChangesError::Schema { table: T::TABLE, message: obstacles.join("; ") }
        })?;
        Ok(Conversion { current, adaptation })
    }
}

/// Decodes a value that takes up all of `bytes`.
pub fn decode<V>(
    bytes: &[u8],
    table: &'static str,
    read: impl FnOnce(&mut &[u8]) -> Result<V, DecodeError>,
) -> Result<V, ChangesError> {
    let mut rest = bytes;
    let decoded = read(&mut rest).and_then(|value| match rest.is_empty() {
        true => Ok(value),
        false => Err(DecodeError::new(rest, "there are bytes behind the end")),
    });
    decoded.map_err(|source| ChangesError::Decode { table: table.to_owned(), source })
}

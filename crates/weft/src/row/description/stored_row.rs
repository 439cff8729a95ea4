//! [`StoredRow`]: a row in its stored form, for the program's code that makes new rows of old ones.

use super::conversion::{Conversion, Obstacles};
use super::{TableDescription, TypeDescription, Value};
use crate::row::column::ColumnValue;
use crate::row::schema::Violation;

/// A row as it is stored, in a directory that another version of the program has written.
#[derive(Clone, Copy, Debug)]
pub struct StoredRow<'a> {
    table: &'a TableDescription,
    row: &'a [u8],
}

impl<'a> StoredRow<'a> {
    /// Returns a row of `table`.
    pub fn new(table: &'a TableDescription, row: &'a [u8]) -> StoredRow<'a> {
        StoredRow { table, row }
    }

    /// Returns the description of the row's table as it was stored.
    pub fn table(&self) -> &'a TableDescription {
        self.table
    }

    /// Returns the value of a column, by the name that it had when it was stored. `T` may be a wider
    /// type than that of the stored column.
    ///
    /// # Errors
    /// If there is no such column, or if its value is no `T`. Pass the error on: it names the column.
    pub fn get<T: ColumnValue>(&self, column: &str) -> Result<T, Violation> {
        let position = self.table.columns.iter().position(|stored| stored.name == column);
        let position = position.ok_or_else(|| format!("there is no stored column `{column}`"))?;
        let stored = &self.table.columns[position].type_of;
        let mut value = &[][..];
        let visited = self.table.for_each_column(self.row, |at, stored| {
            if at == position {
                value = stored;
            }
            Ok(())
        });
        visited.map_err(|error| error.to_string())?;
        Ok(read_as(&format!("column `{column}`"), stored, value)?)
    }

    /// Returns all values, in the order of the stored columns.
    ///
    /// # Errors
    /// If the row's bytes are damaged.
    pub fn values(&self) -> Result<Vec<Value>, Violation> {
        Ok(self.table.read_row(self.row).map_err(|error| error.to_string())?)
    }
}

/// Reads a value of type `stored` as a `T`, to which it is converted as a column would be. `name` is that of the value.
///
/// # Errors
/// If values of type `stored` are not converted, or this one does not fit.
pub(crate) fn read_as<T: ColumnValue>(
    name: &str,
    stored: &TypeDescription,
    value: &[u8],
) -> Result<T, String> {
    let wanted = TypeDescription::from(T::TYPE);
    let mut obstacles = Obstacles { dropped: None, found: Vec::new() };
    let Some((conversion, _)) = Conversion::new(name, stored, &wanted, &mut obstacles) else {
        return Err(format!("{name} is stored as {stored}, and is no {wanted}"));
    };
    let mut converted = Vec::new();
    conversion
        .convert_stored(value, (stored, &wanted), &mut converted)
        .map_err(|what| format!("the value of {name} does not fit: {what}"))?;
    let value = T::read(&mut &converted[..]);
    value.map_err(|error| format!("the value of {name} does not fit: {error}"))
}

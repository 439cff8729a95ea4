//! A row type as its attributes describe it, with all names resolved and all rules checked.

use std::collections::HashSet;

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Expr, Fields, FieldsNamed, Ident, Path, Result, Type, Visibility,
};

use crate::attributes::{
    BoundOption, CheckOption, ExpiresOption, FieldOptions, IndexOption, KeyOption, Storage,
    StructOptions,
};

/// The most columns of a key or an index: the longest tuple that implements `Key`.
const COLUMNS_MAX: usize = 8;

/// A struct that derives `Record`.
pub(crate) struct Row<'a> {
    pub name: &'a Ident,
    pub visibility: &'a Visibility,
    pub table: String,
    pub storage: Storage,
    pub columns: Vec<Column<'a>>,
    /// Positions in `columns`.
    pub key: Vec<usize>,
    /// Where the key is declared.
    pub key_span: Span,
    /// Whether the database generates the key.
    pub is_generated: bool,
    pub indexes: Vec<Index>,
    pub checks: Vec<Check>,
    pub volatile: bool,
    pub was: Vec<String>,
    pub dropped: Vec<String>,
    pub migrate: Option<Path>,
    pub expiry: Option<Expiry>,
}

/// How rows expire.
pub(crate) struct Expiry {
    /// The position of the column in `Row::columns`.
    pub column: usize,
    /// The position of its index in `Row::indexes`.
    pub index: usize,
    pub has_hook: bool,
}

/// A named field of the struct.
pub(crate) struct Column<'a> {
    pub field: &'a Ident,
    pub name: String,
    pub type_of: &'a Type,
    /// The column's value in rows that were stored before the column existed.
    pub default: Option<Expr>,
    /// The names that the column had earlier.
    pub was: Vec<String>,
    /// The function that computes the column for such rows.
    pub computed: Option<Path>,
    /// Its least and its greatest value, as far as they are declared.
    pub min: Option<BoundOption>,
    pub max: Option<BoundOption>,
}

/// A check of rows.
pub(crate) struct Check {
    pub path: Path,
    /// The columns that it reads, as positions in `Row::columns`, if not the whole row.
    pub columns: Option<Vec<usize>>,
}

/// A secondary index.
pub(crate) struct Index {
    pub name: String,
    pub name_span: Span,
    /// Positions in `Row::columns`.
    pub columns: Vec<usize>,
    pub unique: bool,
}

impl<'a> Row<'a> {
    pub(crate) fn from_input(input: &'a DeriveInput) -> Result<Row<'a>> {
        let fields = named_fields(input)?;
        let options = StructOptions::parse(&input.attrs)?;
        let mut columns: Vec<Column<'a>> = fields.named.iter().map(Column::from_field).collect();
        let mut field_options = fields
            .named
            .iter()
            .map(|field| FieldOptions::parse(&field.attrs))
            .collect::<Result<Vec<_>>>()?;
        let key_span = options.key.as_ref().map_or(input.ident.span(), |key| key.span);
        let key = resolve_key(&input.ident, options.key, &columns, &field_options)?;
        let is_generated = resolve_generated(&key, &field_options)?;
        let mut indexes = resolve_indexes(options.indexes, &columns, &field_options)?;
        let expiry =
            options.expires.map(|expires| resolve_expiry(expires, &columns, &key, &mut indexes));
        let expiry = expiry.transpose()?;
        let volatile = options.volatile.is_some();
        resolve_bounds(&mut columns, &mut field_options, &key)?;
        let checks = options.checks.into_iter().map(|check| resolve_check(check, &columns));
        let checks = checks.collect::<Result<_>>()?;
        resolve_defaults(&mut columns, &mut field_options, &key, volatile)?;
        let name = input.ident.unraw().to_string();
        let table = options.table.map_or_else(|| snake_case(&name), |table| table.value());
        Ok(Row {
            name: &input.ident,
            visibility: &input.vis,
            table,
            storage: options.storage.unwrap_or(Storage::Ordered),
            columns,
            key,
            key_span,
            is_generated,
            indexes,
            checks,
            volatile,
            was: options.was,
            dropped: options.dropped,
            migrate: options.migrate,
            expiry,
        })
    }
}

impl<'a> Column<'a> {
    fn from_field(field: &'a syn::Field) -> Column<'a> {
        let ident = field.ident.as_ref().expect("the fields are named");
        Column {
            field: ident,
            name: ident.unraw().to_string(),
            type_of: &field.ty,
            default: None,
            was: Vec::new(),
            computed: None,
            min: None,
            max: None,
        }
    }

    /// Returns the column's type as people write it.
    pub(crate) fn type_name(&self) -> String {
        closed_up(&self.type_of.to_token_stream().to_string())
    }
}

fn named_fields(input: &DeriveInput) -> Result<&FieldsNamed> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) | Data::Union(_) => {
            return Err(Error::new(
                input.ident.span(),
                "a row is a struct with named fields, its columns: \
                 make this type a column of one",
            ));
        }
    };
    let Fields::Named(fields) = fields else {
        return Err(Error::new(
            input.ident.span(),
            "a row is a struct with named fields, since columns have names: \
             write `struct Row { id: u64, … }`",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new(
            input.generics.span(),
            "a row cannot be generic, since a table holds rows of one type: \
             declare one struct per table, without borrowed data",
        ));
    }
    Ok(fields)
}

fn resolve_key(
    row: &Ident,
    on_struct: Option<KeyOption>,
    columns: &[Column<'_>],
    on_fields: &[FieldOptions],
) -> Result<Vec<usize>> {
    let marked: Vec<usize> =
        (0..columns.len()).filter(|&column| on_fields[column].key.is_some()).collect();
    match on_struct {
        Some(key) if !marked.is_empty() => Err(Error::new(
            key.span,
            "the primary key is given twice: \
             either list its columns here, or mark the fields with `#[record(key)]`",
        )),
        Some(key) => resolve_columns("the primary key", key.span, &key.columns, columns),
        None if marked.is_empty() => Err(Error::new(
            row.span(),
            format!(
                "`{row}` has no primary key: mark its columns with `#[record(key)]`, \
                 or list them on the struct with `#[record(key(…, …))]`"
            ),
        )),
        None => {
            check_count("the primary key", row.span(), marked.len())?;
            Ok(marked)
        }
    }
}

/// Returns whether the database generates the key.
fn resolve_generated(key: &[usize], on_fields: &[FieldOptions]) -> Result<bool> {
    let generated = on_fields
        .iter()
        .enumerate()
        .find_map(|(position, options)| options.generated.map(|span| (position, span)));
    match generated {
        None => Ok(false),
        Some((position, _)) if key == [position] => Ok(true),
        Some((position, span)) if key.contains(&position) => Err(Error::new(
            span,
            "a generated key is the whole primary key: make it the only column of the key, and \
             give the others an index",
        )),
        Some((_, span)) => Err(Error::new(
            span,
            "only the primary key is generated: write `#[record(key, generated)]`",
        )),
    }
}

fn resolve_indexes(
    on_struct: Vec<IndexOption>,
    columns: &[Column<'_>],
    on_fields: &[FieldOptions],
) -> Result<Vec<Index>> {
    let mut indexes = Vec::new();
    for option in on_struct {
        let name = option.name.unraw().to_string();
        let what = format!("index `{name}`");
        let columns = resolve_columns(&what, option.name.span(), &option.columns, columns)?;
        let name_span = option.name.span();
        indexes.push(Index { name, name_span, columns, unique: option.unique });
    }
    for (position, options) in on_fields.iter().enumerate() {
        let (name_span, unique) = match (options.index, options.unique) {
            (None, None) => continue,
            (Some(_), Some(span)) => {
                return Err(Error::new(span, "`unique` makes an index already: drop `index`"));
            }
            (Some(span), None) => (span, false),
            (None, Some(span)) => (span, true),
        };
        let name = columns[position].name.clone();
        indexes.push(Index { name, name_span, columns: vec![position], unique });
    }
    let mut constants = HashSet::new();
    for index in &indexes {
        if !constants.insert(index.name.to_uppercase()) {
            let message = format!("there is already an index named `{}`", index.name);
            return Err(Error::new(index.name_span, message));
        }
    }
    Ok(indexes)
}

/// Finds the column by which rows expire, and the index that is ordered by it. Adds the index if the row type does not
/// declare it.
fn resolve_expiry(
    ExpiresOption { column, has_hook }: ExpiresOption,
    columns: &[Column<'_>],
    key: &[usize],
    indexes: &mut Vec<Index>,
) -> Result<Expiry> {
    let span = column.span();
    let position = resolve_columns("`expires`", span, &[column], columns)?[0];
    if key.contains(&position) {
        return Err(Error::new(
            span,
            "the time at which a row expires cannot be in its primary key, since it could not be changed",
        ));
    }
    let own = |index: &Index| index.columns == [position] && !index.unique;
    let index = indexes.iter().position(own).unwrap_or(indexes.len());
    if index == indexes.len() {
        let name = columns[position].name.clone();
        if indexes.iter().any(|index| index.name.eq_ignore_ascii_case(&name)) {
            let message = format!(
                "rows that expire have an index named after the column, and there is already an index named `{name}`"
            );
            return Err(Error::new(span, message));
        }
        indexes.push(Index { name, name_span: span, columns: vec![position], unique: false });
    }
    Ok(Expiry { column: position, index, has_hook })
}

/// Moves the defaults to their columns, with what computes columns and their former names, and
/// refuses those that a column cannot have.
fn resolve_defaults(
    columns: &mut [Column<'_>],
    on_fields: &mut [FieldOptions],
    key: &[usize],
    volatile: bool,
) -> Result<()> {
    for (position, (column, options)) in columns.iter_mut().zip(on_fields).enumerate() {
        column.was = std::mem::take(&mut options.was);
        column.computed = options.computed.take();
        if let Some(path) = column.computed.as_ref().filter(|_| volatile || key.contains(&position))
        {
            return Err(Error::new(
                path.span(),
                "only a column that is stored, and is not in the primary key, is computed from rows \
                 that were stored before it was there",
            ));
        }
        let Some(default) = options.default.take() else { continue };
        if key.contains(&position) {
            return Err(Error::new(
                default.span,
                "a column of the primary key has no default: it cannot be added to a table \
                 that has rows",
            ));
        }
        if volatile {
            return Err(Error::new(
                default.span,
                "a default is for rows that were stored before the column was there, \
                 and a volatile table's rows are never stored",
            ));
        }
        column.default = Some(default.value);
    }
    Ok(())
}

/// Moves the bounds to their columns, and refuses those that a column cannot have.
fn resolve_bounds(
    columns: &mut [Column<'_>],
    on_fields: &mut [FieldOptions],
    key: &[usize],
) -> Result<()> {
    for (position, (column, options)) in columns.iter_mut().zip(on_fields).enumerate() {
        (column.min, column.max) = (options.min.take(), options.max.take());
        let Some(bound) = column.max.as_ref().or(column.min.as_ref()) else { continue };
        if key.contains(&position) {
            let message = "a column of the primary key has no bounds, since it cannot be changed: use a \
                           `check`";
            return Err(Error::new(bound.span, message));
        }
        if let (Some(min), Some(max)) = (&column.min, &column.max)
            && min.number > max.number
        {
            return Err(Error::new(
                max.span,
                "`max` is less than `min`, so no row could be written",
            ));
        }
    }
    Ok(())
}

fn resolve_check(check: CheckOption, columns: &[Column<'_>]) -> Result<Check> {
    let CheckOption { path, columns: names } = check;
    let resolve = |names: Vec<Ident>| resolve_columns("a check", path.span(), &names, columns);
    let columns = names.map(resolve).transpose()?;
    Ok(Check { path, columns })
}

/// Returns the positions of the columns in `names`. `what` is what messages call the list.
fn resolve_columns(
    what: &str,
    span: Span,
    names: &[Ident],
    columns: &[Column<'_>],
) -> Result<Vec<usize>> {
    check_count(what, span, names.len())?;
    let mut positions = Vec::new();
    for name in names {
        let plain = name.unraw().to_string();
        let Some(position) = columns.iter().position(|column| column.name == plain) else {
            let known: Vec<_> = columns.iter().map(|column| format!("`{}`", column.name)).collect();
            let message = format!(
                "{what} names a column `{plain}`, but the columns are {}",
                known.join(", ")
            );
            return Err(Error::new(name.span(), message));
        };
        if positions.contains(&position) {
            let message = format!("{what} names the column `{plain}` twice");
            return Err(Error::new(name.span(), message));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn check_count(what: &str, span: Span, count: usize) -> Result<()> {
    if count > COLUMNS_MAX {
        let message = format!("{what} has {count} columns, but can have at most {COLUMNS_MAX}");
        return Err(Error::new(span, message));
    }
    Ok(())
}

/// Turns `OrderLine` into `order_line`, and `HTTPLog2` into `http_log2`.
fn snake_case(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let mut result = String::new();
    for (position, &character) in characters.iter().enumerate() {
        let is_lowercase_at = |at: usize| characters.get(at).is_some_and(|it| it.is_lowercase());
        let starts_word = character.is_uppercase()
            && position > 0
            && characters[position - 1] != '_'
            && (!characters[position - 1].is_uppercase() || is_lowercase_at(position + 1));
        if starts_word {
            result.push('_');
        }
        result.extend(character.to_lowercase());
    }
    result
}

/// Removes the spaces from printed tokens, except those that separate two words or follow a comma.
pub(crate) fn closed_up(tokens: &str) -> String {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut result = String::new();
    let mut characters = tokens.chars().peekable();
    while let Some(character) = characters.next() {
        let keeps_space = match (result.chars().next_back(), characters.peek()) {
            (Some(before), Some(&after)) => {
                matches!(before, ',' | ';') || (is_word(before) && is_word(after))
            }
            _ => false,
        };
        if character != ' ' || keeps_space {
            result.push(character);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_after_structs() {
        for (name, table) in [
            ("Customer", "customer"),
            ("OrderLine", "order_line"),
            ("HTTPLog2", "http_log2"),
            ("Item2Bin", "item2_bin"),
            ("Odd_Name", "odd_name"),
            ("X", "x"),
        ] {
            assert_eq!(snake_case(name), table);
        }
    }

    #[test]
    fn types_are_printed_as_written() {
        for written in [
            "u8",
            "Option<ArrayString<16>>",
            "[u8; 4]",
            "(u8, Vec<u8>)",
            "&'static str",
            "std::sync::Arc<str>",
            "Box<dyn Send>",
        ] {
            let parsed: Type = syn::parse_str(written).unwrap();
            assert_eq!(closed_up(&parsed.to_token_stream().to_string()), written);
        }
    }
}

//! [`compare`], which compares the stored tables with the program's, and the adaptation of rows
//! where they differ.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

use super::conversion::{Conversion, Fit, Obstacles, sources_of};
use super::{ColumnDescription, RowChange, StoredRow, TableDescription, TypeDescription};
use crate::row::column::DecodeError;
use crate::row::schema::Violation;

/// The conversion of rows from one description of a table to the next.
#[derive(Clone, Debug)]
pub struct Step {
    stored: TableDescription,
    /// The types of the current columns.
    types: Vec<TypeDescription>,
    /// The source of each current column.
    sources: Vec<Source>,
    /// What has to be appended to a stored row, if all else stays as it is.
    appended: Option<Vec<u8>>,
    /// The conversion of each column of the key.
    key: Vec<(Conversion, TypeDescription)>,
    fit: Fit,
}

/// Where a column comes from.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// From the stored column at this position.
    Stored(usize, Conversion),
    /// The column was not stored. This is the default's encoding.
    Default(Vec<u8>),
    /// The column was not stored. The program computes it from the stored row.
    Computed,
}

/// Why a row is not a row of the current table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowFault {
    /// Its bytes are not a row of the stored table.
    Undecodable(DecodeError),
    /// The value of a column does not fit, or the program refuses the row.
    Misfit(Violation),
}

impl From<DecodeError> for RowFault {
    fn from(error: DecodeError) -> RowFault {
        RowFault::Undecodable(error)
    }
}

impl From<Violation> for RowFault {
    fn from(violation: Violation) -> RowFault {
        RowFault::Misfit(violation)
    }
}

/// What becomes of a stored table.
#[derive(Clone, Debug)]
pub enum TableMatch {
    /// The program does not have it. Its rows stay as they are.
    Kept,
    /// The program has dropped it.
    Dropped,
    /// It has become a table of the program.
    Opened(Box<OpenedTable>),
}

/// What has to be done with the rows of a stored table.
#[derive(Clone, Debug)]
pub struct OpenedTable {
    /// The position of the table that it has become among the tables of the program.
    pub current: usize,
    /// The conversion of the stored columns; `None` if the program's migration makes the rows.
    pub step: Option<Step>,
    /// The positions of the stored columns that the program does not have, and that are kept.
    pub kept: Vec<usize>,
}

/// The error for stored tables that cannot be opened as the program declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaMismatch {
    /// Everything that stands in the way, table by table.
    pub differences: Vec<Difference>,
}

/// Something that differs between a stored table and the program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The table's name.
    pub table: String,
    /// What differs, in words, and what to do.
    pub what: String,
}

/// Compares the stored tables with those of the program, which has dropped the tables `dropped`.
/// The result has one entry for each stored table, in the order of `stored`. Tables that are only
/// in `current` are new.
///
/// # Errors
/// Everything that stands in the way, in one error.
pub fn compare(
    stored: &[TableDescription],
    current: &[TableDescription],
    dropped: &[String],
) -> Result<Vec<TableMatch>, SchemaMismatch> {
    let mut differences = Vec::new();
    let sources = sources_of(stored, current);
    let mut matches = Vec::with_capacity(stored.len());
    for (number, table) in stored.iter().enumerate() {
        let mut becomes = (0..current.len()).filter(|&position| sources[position] == Some(number));
        let mut found = Vec::new();
        let difference = |what| Difference { table: table.name.clone(), what };
        let Some(position) = becomes.next() else {
            let is_dropped = dropped.contains(&table.name);
            // Two tables of one name could not be told apart.
            let same = current.iter().position(|other| other.name == table.name);
            if let Some(source) = same.and_then(|same| sources[same])
                && !is_dropped
            {
                differences.push(difference(format!(
                    "a newer program has renamed the program's table of this name to `{}`, and \
                     this is another table, which cannot be kept under the same name: open the \
                     directory with the newer program",
                    stored[source].name
                )));
            }
            matches.push(if is_dropped { TableMatch::Dropped } else { TableMatch::Kept });
            continue;
        };
        if let Some(other) = becomes.next() {
            found.push(format!(
                "the tables `{}` and `{}` of the program both had this name: remove `was` from one \
                 of them",
                current[position].name, current[other].name
            ));
        }
        if dropped.contains(&current[position].name) {
            found.push("the program opens it, and drops it: leave out one of the two".to_owned());
        }
        match OpenedTable::new(table, &current[position], position) {
            Ok(opened) => matches.push(TableMatch::Opened(Box::new(opened))),
            Err(more) => found.extend(more),
        }
        differences.extend(found.into_iter().map(difference));
    }
    if differences.is_empty() { Ok(matches) } else { Err(SchemaMismatch { differences }) }
}

impl OpenedTable {
    fn new(
        stored: &TableDescription,
        current: &TableDescription,
        position: usize,
    ) -> Result<OpenedTable, Vec<String>> {
        let mut obstacles = Obstacles { dropped: Some(&current.dropped), found: Vec::new() };
        let step = Step::new(stored, current, &mut obstacles);
        step.expect_different_sources(current, &mut obstacles);
        let is_migrated = !obstacles.found.is_empty() && current.is_migrated;
        if is_migrated {
            obstacles.found.clear();
        }
        let is_source = |position: usize| {
            let mut sources = step.sources.iter();
            sources.any(|source| matches!(source, Source::Stored(it, _) if *it == position))
        };
        let is_kept = |position: &usize| {
            !is_migrated
                && !is_source(*position)
                && !obstacles.is_dropped(&stored.columns[*position].name)
        };
        let kept: Vec<usize> = (0..stored.columns.len()).filter(is_kept).collect();
        let mut found = Vec::new();
        for column in kept.iter().map(|&position| &stored.columns[position]) {
            let name = &column.name;
            if current.columns.iter().any(|other| other.name == *name) {
                found.push(format!(
                    "a newer program has renamed the program's column `{name}`, and has another \
                     column of this name, which cannot be kept under the same name: open the \
                     directory with the newer program"
                ));
            } else if column.default.is_none() {
                found.push(format!(
                    "column `{name}` is stored, and the program does not have it. If it is not \
                     needed any more, say so: `#[record(dropped({name}))]`. If the program is \
                     older than the directory: rows that it inserts need a value for the column, \
                     and the newer program has declared no default for it"
                ));
            }
        }
        let mut constraint = |kind: &str, name: &str| {
            if !obstacles.is_dropped(name) {
                let is_name = name.chars().all(|it| it.is_alphanumeric() || it == '_');
                let quoted = if is_name { name.to_owned() } else { format!("{name:?}") };
                found.push(format!(
                    "{kind} `{name}` holds for the stored rows, and the program does not have it, \
                     so it could write rows that break it. If it was dropped on purpose, say so: \
                     `#[record(dropped({quoted}))]`. If the program is older than the directory, \
                     open the directory with the newer one"
                ));
            }
        };
        for index in stored.indexes.iter().filter(|index| index.unique) {
            let stored_column = |position: &usize| match step.sources.get(*position) {
                Some(Source::Stored(stored, _)) => index.columns.contains(stored),
                _ => false,
            };
            let mut indexes = current.indexes.iter().filter(|index| index.unique);
            if !indexes.any(|index| index.columns.iter().all(stored_column)) {
                constraint("the unique index", &index.name);
            }
        }
        let is_lost =
            |check: &&String| !current.checks.contains(check) && !follows_from(check, current);
        for check in stored.checks.iter().filter(is_lost) {
            constraint("the check", check);
        }
        found.splice(0..0, obstacles.found);
        let step = (!is_migrated).then_some(step);
        if found.is_empty() {
            Ok(OpenedTable { current: position, step, kept })
        } else {
            Err(found)
        }
    }

    /// Returns the description of the rows that the program writes: its own columns, and after
    /// them those that it keeps.
    pub fn full(&self, stored: &TableDescription, current: &TableDescription) -> TableDescription {
        let mut full = current.clone();
        full.columns.extend(self.kept.iter().map(|&position| stored.columns[position].clone()));
        full.kept += self.kept.len();
        full
    }

    /// Returns whether code of the program makes rows, or columns of rows.
    pub fn needs_code(&self) -> bool {
        self.step.as_ref().is_none_or(|step| step.sources.contains(&Source::Computed))
    }

    /// Returns whether each stored row can be converted alone, by what the descriptions say.
    pub fn is_simple(&self) -> bool {
        self.step.as_ref().is_some_and(|step| {
            step.fit < Fit::Perhaps && !step.sources.contains(&Source::Computed)
        })
    }

    /// Describes what becomes of the columns of a stored row, in words, without those that stay as
    /// they are.
    pub fn in_words(&self, stored: &TableDescription, current: &TableDescription) -> Vec<String> {
        let mut words = Vec::new();
        let Some(step) = &self.step else {
            return vec!["the program's migration makes its rows from the stored ones".to_owned()];
        };
        for (column, source) in current.columns.iter().zip(&step.sources) {
            let ColumnDescription { name, type_of, .. } = column;
            match source {
                Source::Stored(position, conversion) => {
                    let before = &stored.columns[*position];
                    if before.name != *name {
                        words.push(format!("column `{name}` was `{}`", before.name));
                    }
                    if *conversion != Conversion::Keep {
                        let before = &before.type_of;
                        words.push(format!(
                            "column `{name}` is stored as {before}, and becomes {type_of}"
                        ));
                    }
                }
                Source::Default(_) => words.push(format!("column `{name}` gets its default")),
                Source::Computed => words.push(format!("column `{name}` is computed from the row")),
            }
        }
        let order = |sources: &[Source]| {
            let position = |source: &Source| match source {
                Source::Stored(position, _) => Some(*position),
                _ => None,
            };
            sources.iter().filter_map(position).is_sorted()
        };
        if !order(&step.sources) {
            words.push("the columns have another order".to_owned());
        }
        for (position, column) in stored.columns.iter().enumerate() {
            let is_source =
                |source: &Source| matches!(source, Source::Stored(it, _) if *it == position);
            if self.kept.contains(&position) {
                let name = &column.name;
                words.push(format!("column `{name}` is kept for a newer program"));
            } else if !step.sources.iter().any(is_source) {
                words.push(format!("column `{}` is dropped", column.name));
            }
        }
        words
    }
}

impl Step {
    /// Returns the conversion of rows of `stored` into rows of `current`, and notes what stands in
    /// its way.
    pub(super) fn new(
        stored: &TableDescription,
        current: &TableDescription,
        obstacles: &mut Obstacles<'_>,
    ) -> Step {
        let (columns, now) = (&stored.columns, &current.columns);
        let mut fit = Fit::Same;
        let mut sources = Vec::with_capacity(now.len());
        for (column, source) in now.iter().zip(sources_of(columns, now)) {
            sources.push(match (source, &column.default) {
                (Some(source), _) => {
                    let types = (&columns[source].type_of, &column.type_of);
                    let made = Conversion::new(&column.name, types.0, types.1, obstacles);
                    let (conversion, column_fit) = made.unwrap_or((Conversion::Keep, Fit::Same));
                    fit = fit.max(column_fit);
                    Source::Stored(source, conversion)
                }
                (None, _) if column.is_computed => Source::Computed,
                (None, Some(default)) => Source::Default(default.clone()),
                (None, None) => {
                    obstacles.found.push(format!(
                        "column `{}` is new, and has no default for the rows that are stored: \
                         give it one with `#[record(default = …)]`, or compute it from the row \
                         with `#[record(computed = …)]`",
                        column.name
                    ));
                    Source::Computed
                }
            });
        }
        let key = current.key.iter().map(|&position| match &sources[position] {
            Source::Stored(source, conversion) => {
                Some((*source, conversion.clone(), now[position].type_of.clone()))
            }
            _ => None,
        });
        let key: Vec<_> = key.flatten().collect();
        let same_key = key.len() == current.key.len()
            && key.iter().map(|(source, ..)| source).eq(&stored.key)
            && key.iter().all(|(_, conversion, _)| conversion.is_injective());
        if !same_key {
            obstacles.found.push(format!(
                "the primary key is stored as {}, and is {} now: make the new rows from the stored \
                 ones in a function, and name it with `#[record(migrate = …)]`",
                key_in_words(stored),
                key_in_words(current)
            ));
        }
        let key = key.into_iter().map(|(_, conversion, type_of)| (conversion, type_of)).collect();
        let types = now.iter().map(|column| column.type_of.clone()).collect();
        let appended = appended(columns.len(), &sources);
        Step { stored: stored.clone(), types, sources, appended, key, fit }
    }

    /// Notes the columns of `current` that come from the same stored column. A logged change of the
    /// stored column would reach only one of them.
    fn expect_different_sources(&self, current: &TableDescription, obstacles: &mut Obstacles<'_>) {
        for (position, source) in self.sources.iter().enumerate() {
            let Source::Stored(from, _) = source else { continue };
            if let Some((first, ..)) = self.target(*from)
                && first < position
            {
                obstacles.found.push(format!(
                    "the columns `{}` and `{}` both were the stored column `{}`: remove `was` from \
                     one of them, and compute it from the row with `#[record(computed = …)]`",
                    current.columns[first].name,
                    current.columns[position].name,
                    self.stored.columns[*from].name
                ));
            }
        }
    }

    /// Returns what the stored column at `from` becomes: the position of the current column, the
    /// conversion of its values, and their current type.
    fn target(&self, from: usize) -> Option<(usize, &Conversion, &TypeDescription)> {
        self.sources.iter().enumerate().find_map(|(position, source)| match source {
            Source::Stored(it, conversion) if *it == from => {
                Some((position, conversion, &self.types[position]))
            }
            _ => None,
        })
    }

    /// Returns whether the rows of both tables are stored in the same way.
    fn is_identity(&self) -> bool {
        self.stored.columns.len() == self.sources.len() && self.appended.is_some()
    }

    /// Appends to `output` what a stored row becomes. `compute` appends the value of a computed
    /// column.
    ///
    /// # Errors
    /// If `stored` does not consist of the stored columns, if a value does not fit the type that
    /// its column has now, and those of `compute`. If columns were only appended, the row is not
    /// looked at, as one whose form is the same.
    pub fn row(
        &self,
        stored: &[u8],
        compute: impl Fn(usize, &StoredRow<'_>, &mut Vec<u8>) -> Result<(), Violation>,
        output: &mut Vec<u8>,
    ) -> Result<(), RowFault> {
        if let Some(appended) = &self.appended {
            output.extend_from_slice(stored);
            output.extend_from_slice(appended);
            return Ok(());
        }
        let mut values: SmallVec<[&[u8]; 16]> = SmallVec::new();
        self.stored.for_each_column(stored, |_, value| {
            values.push(value);
            Ok(())
        })?;
        for (position, source) in self.sources.iter().enumerate() {
            match source {
                Source::Stored(from, conversion) => {
                    self.value(*from, (conversion, &self.types[position]), values[*from], output)?;
                }
                Source::Default(value) => output.extend_from_slice(value),
                Source::Computed => {
                    compute(position, &StoredRow::new(&self.stored, stored), output)?;
                }
            }
        }
        Ok(())
    }

    /// As [`Step::row`], for a step that can convert every row, and computes nothing.
    fn simple_row(&self, stored: &[u8], output: &mut Vec<u8>) -> Result<(), DecodeError> {
        let computed = |_, _: &StoredRow<'_>, _: &mut Vec<u8>| Err("it is computed".into());
        self.row(stored, computed, output).map_err(|fault| match fault {
            RowFault::Undecodable(error) => error,
            RowFault::Misfit(violation) => DecodeError::new(&[], violation.message),
        })
    }

    /// Appends what the value of a stored column becomes.
    fn value(
        &self,
        position: usize,
        (conversion, current): (&Conversion, &TypeDescription),
        value: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        if *conversion == Conversion::Keep {
            output.extend_from_slice(value);
            return Ok(());
        }
        let ColumnDescription { name, type_of, .. } = &self.stored.columns[position];
        let converted = conversion.convert_stored(value, (type_of, current), output);
        converted
            .map_err(|what| format!("the value of column `{name}` does not fit: {what}").into())
    }
}

/// Returns what has to be appended to a row of `stored` columns, if the sources are these columns as they are, and then
/// defaults.
fn appended(stored: usize, sources: &[Source]) -> Option<Vec<u8>> {
    let (kept, added) = sources.split_at_checked(stored)?;
    let is_kept = |(position, source): (usize, &Source)| matches!(source, Source::Stored(from, Conversion::Keep) if *from == position);
    let default = |source: &Source| match source {
        Source::Default(value) => Some(value.clone()),
        _ => None,
    };
    let added: Option<Vec<_>> = added.iter().map(default).collect();
    added.filter(|_| kept.iter().enumerate().all(is_kept)).map(|added| added.concat())
}

/// The conversion of stored rows, keys and changes through any number of steps, each of which can
/// convert every row.
#[derive(Clone, Debug, Default)]
pub struct Adaptation {
    steps: Vec<Step>,
}

impl Adaptation {
    /// Returns the adaptation that leads through the descriptions `chain` of a table, from the
    /// oldest to the newest, each of which was made from the one before, and then takes the step
    /// `last`.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn new(
        chain: &[&TableDescription],
        last: Option<&Step>,
    ) -> Result<Adaptation, Vec<String>> {
        let mut obstacles = Obstacles { dropped: None, found: Vec::new() };
        let pairs = chain.iter().zip(chain.get(1..).unwrap_or(&[]));
        let mut steps: Vec<Step> =
            pairs.map(|(stored, current)| Step::new(stored, current, &mut obstacles)).collect();
        steps.extend(last.cloned());
        if !obstacles.found.is_empty() {
            return Err(obstacles.found);
        }
        steps.retain(|step| !step.is_identity());
        let convertible =
            |step: &Step| step.fit < Fit::Perhaps && !step.sources.contains(&Source::Computed);
        match steps.iter().all(convertible) {
            true => Ok(Adaptation { steps }),
            false => Err(vec!["rows of an older form are left".to_owned()]),
        }
    }

    /// Returns whether rows are stored exactly as the current table has them.
    pub fn is_identity(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns whether keys are.
    pub fn keeps_keys(&self) -> bool {
        let mut key = self.steps.iter().flat_map(|step| &step.key);
        key.all(|(conversion, _)| *conversion == Conversion::Keep)
    }

    /// Returns the current form of a stored row.
    ///
    /// # Errors
    /// If `stored` does not consist of the stored columns.
    pub fn row<'r>(&self, stored: &'r [u8]) -> Result<Cow<'r, [u8]>, DecodeError> {
        self.fold(stored, Step::simple_row)
    }

    /// As [`Adaptation::row`], with a buffer whose memory is used again.
    pub(crate) fn row_in<'r>(
        &self,
        stored: &'r [u8],
        buffer: &'r mut Vec<u8>,
    ) -> Result<&'r [u8], DecodeError> {
        match &self.steps[..] {
            [] => return Ok(stored),
            [step] => {
                buffer.clear();
                step.simple_row(stored, buffer)?;
            }
            _ => *buffer = self.row(stored)?.into_owned(),
        }
        Ok(buffer)
    }

    /// Returns the current form of a stored key.
    ///
    /// # Errors
    /// If `stored` does not consist of the columns of the key.
    pub fn key<'r>(&self, stored: &'r [u8]) -> Result<Cow<'r, [u8]>, DecodeError> {
        if self.keeps_keys() {
            return Ok(stored.into());
        }
        self.fold(stored, |step, key, output| {
            let mut rest = key;
            for (&position, (conversion, type_of)) in step.stored.key.iter().zip(&step.key) {
                let start = rest;
                step.stored.skip_column(position, &mut rest, key.len())?;
                let value = &start[..start.len() - rest.len()];
                let converted = step.value(position, (conversion, type_of), value, output);
                converted.map_err(|violation| DecodeError::new(rest, violation.message))?;
            }
            Ok(())
        })
    }

    fn fold<'r>(
        &self,
        stored: &'r [u8],
        convert: impl Fn(&Step, &[u8], &mut Vec<u8>) -> Result<(), DecodeError>,
    ) -> Result<Cow<'r, [u8]>, DecodeError> {
        let mut adapted = Cow::Borrowed(stored);
        for step in &self.steps {
            let mut output = Vec::with_capacity(adapted.len());
            convert(step, &adapted, &mut output)?;
            adapted = Cow::Owned(output);
        }
        Ok(adapted)
    }

    /// Turns a stored change into a change of the current row. What it does to columns that do not
    /// exist any more is left out.
    ///
    /// # Errors
    /// If a column's value, or an operation's operand, is not one of its stored type.
    pub fn change(&self, change: &mut RowChange<'_>) -> Result<(), DecodeError> {
        for step in &self.steps {
            if let RowChange::Operation(operation) = change
                && let Some((_, conversion, current)) = step.target(operation.column)
            {
                operation.convert_tuple(conversion, current)?;
            }
            change.move_columns(|from, value| {
                let Some((position, conversion, current)) = step.target(from) else {
                    return Ok(None);
                };
                if let Some(value) = value
                    && *conversion != Conversion::Keep
                {
                    let mut converted = Vec::new();
                    let to = (conversion, current);
                    let outcome = step.value(from, to, value, &mut converted);
                    outcome.map_err(|violation| DecodeError::new(&[], violation.message))?;
                    *value = Cow::Owned(converted);
                }
                Ok(Some(position))
            })?;
        }
        Ok(())
    }
}

/// Returns whether a stored bound of a column (`stock >= 0`) follows from the column's present bounds.
fn follows_from(check: &str, current: &TableDescription) -> bool {
    let Some((name, sign, number)) = bound(check) else { return false };
    let is_it =
        |column: &&ColumnDescription| column.name == name || column.was.iter().any(|it| it == name);
    let Some(column) = current.columns.iter().find(is_it) else { return false };
    let mut bounds = current.checks.iter().filter_map(|check| bound(check));
    bounds.any(|(its, of, present)| {
        let is_tighter = if sign == ">=" { present >= number } else { present <= number };
        its == column.name && of == sign && is_tighter
    })
}

/// Reads the name of a bound: the column, the sign and the number.
fn bound(check: &str) -> Option<(&str, &str, i128)> {
    let mut words = check.split(' ');
    let (name, sign, number) = (words.next()?, words.next()?, words.next()?);
    let is_sign = matches!(sign, ">=" | "<=");
    Some((name, sign, number.parse().ok()?)).filter(|_| is_sign && words.next().is_none())
}

fn key_in_words(table: &TableDescription) -> String {
    let columns = table.key.iter().map(|&position| &table.columns[position].name);
    let columns: Vec<_> = columns.map(|name| format!("`{name}`")).collect();
    format!("({})", columns.join(", "))
}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = None;
        for difference in &self.differences {
            match table.replace(&difference.table) {
                Some(before) if *before == difference.table => formatter.write_str("; ")?,
                Some(_) => write!(formatter, "; table `{}`: ", difference.table)?,
                None => write!(formatter, "table `{}`: ", difference.table)?,
            }
            formatter.write_str(&difference.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for SchemaMismatch {}

//! Reading outlines from text.

use std::collections::{HashMap, HashSet};
use std::iter::Enumerate;
use std::str::{FromStr, Lines};

use super::TextError;
use crate::chopping::excerpt::excerpt;
use crate::chopping::outline::{
    Columns, Names, Outline, OutlineAccess, OutlineLoop, OutlineStep, Outlines, Token,
};
use weft::operation::OperationKind;

/// How deeply loops may be nested in a text.
const LOOPS_NESTED_MAX: usize = 64;

/// The words for what steps do, except for operations.
const ACCESSES: [&str; 7] = ["read", "scan", "write", "update", "insert", "upsert", "delete"];

impl FromStr for Outlines {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        Reader { lines: text.lines().enumerate(), last: 1 }.file()
    }
}

/// A word or a sign, with its position.
#[derive(Clone, Copy, Debug)]
struct Mark<'t> {
    text: &'t str,
    line: usize,
    column: usize,
}

impl Mark<'_> {
    fn is_name(&self) -> bool {
        self.text.chars().all(is_of_name)
    }

    fn error(&self, what: String) -> TextError {
        TextError { line: self.line, column: self.column, what }
    }
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '-'
}

/// Splits a line into its words and signs.
fn marks(line: usize, whole: &str) -> Result<Vec<Mark<'_>>, TextError> {
    let mut marks = Vec::new();
    let mut rest = whole.split('#').next().unwrap_or_default();
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            name if is_of_name(name) => rest.find(|it| !is_of_name(it)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let mark = Mark { text: &rest[..length], line, column };
        rest = &rest[length..];
        column += mark.text.chars().count();
        if first.is_whitespace() {
            continue;
        }
        if !is_of_name(first) && !"(),;:*".contains(first) {
            return Err(mark.error(format!("'{first}' has no meaning here")));
        }
        marks.push(mark);
    }
    Ok(marks)
}

/// The rest of a line.
struct Line<'l, 't> {
    marks: &'l [Mark<'t>],
    /// The position after the last word or sign.
    end: Mark<'t>,
}

impl<'t> Line<'_, 't> {
    fn of<'l>(marks: &'l [Mark<'t>]) -> Line<'l, 't> {
        let last = marks.last().expect("empty lines are left out");
        let column = last.column + last.text.chars().count();
        Line { marks, end: Mark { text: "", line: last.line, column } }
    }

    fn peek(&self) -> &'t str {
        self.marks.first().map_or("", |mark| mark.text)
    }

    fn is_over(&self) -> bool {
        self.marks.is_empty()
    }

    fn take(&mut self) -> Mark<'t> {
        match self.marks.split_first() {
            Some((first, rest)) => {
                self.marks = rest;
                *first
            }
            None => self.end,
        }
    }

    /// Takes the next word or sign if it is `text`. Returns whether it was.
    fn takes(&mut self, text: &str) -> bool {
        let is_it = self.peek() == text;
        if is_it {
            self.take();
        }
        is_it
    }

    /// Takes the next word or sign, which has to be `text`.
    fn expect(&mut self, text: &str) -> Result<(), TextError> {
        let mark = self.take();
        match mark.text == text {
            true => Ok(()),
            false => Err(unexpected(mark, &format!("'{text}'"))),
        }
    }

    fn name(&mut self, what: &str) -> Result<Mark<'t>, TextError> {
        let mark = self.take();
        match !mark.text.is_empty() && mark.is_name() {
            true => Ok(mark),
            false => Err(unexpected(mark, what)),
        }
    }

    fn names(&mut self, what: &str) -> Result<Vec<Mark<'t>>, TextError> {
        let mut names = vec![self.name(what)?];
        while self.takes(",") {
            names.push(self.name(what)?);
        }
        Ok(names)
    }

    fn end(&mut self, expected: &str) -> Result<(), TextError> {
        match self.is_over() {
            true => Ok(()),
            false => Err(unexpected(self.take(), expected)),
        }
    }
}

fn unexpected(mark: Mark<'_>, expected: &str) -> TextError {
    match mark.text {
        "" => mark.error(format!("the line ends where {expected} should be")),
        text => mark.error(format!("'{}' stands where {expected} should be", excerpt(text))),
    }
}

/// A step whose dependencies are not resolved.
struct UnresolvedStep<'t> {
    step: OutlineStep,
    keys: Vec<Mark<'t>>,
    values: Vec<Mark<'t>>,
    guards: Vec<Mark<'t>>,
}

struct Reader<'t> {
    lines: Enumerate<Lines<'t>>,
    /// The number of the last line that was read.
    last: usize,
}

impl<'t> Reader<'t> {
    /// Returns the words and signs of the next line that has any.
    fn next_line(&mut self) -> Result<Option<Vec<Mark<'t>>>, TextError> {
        for (number, line) in self.lines.by_ref() {
            self.last = number + 1;
            let marks = marks(self.last, line)?;
            if !marks.is_empty() {
                return Ok(Some(marks));
            }
        }
        Ok(None)
    }

    fn file(mut self) -> Result<Outlines, TextError> {
        let mut outlines = Outlines::default();
        let mut names = Names::default();
        while let Some(marks) = self.next_line()? {
            let mut line = Line::of(&marks);
            let start = line.take();
            match start.text {
                "token" => {
                    let table = line.name("a table")?.text.to_owned();
                    line.expect("for")?;
                    let tables = line.names("a table")?;
                    line.end("','")?;
                    let tables = tables.iter().map(|mark| mark.text.to_owned()).collect();
                    let token = Token { table, tables };
                    names.add_token(&token).map_err(|error| start.error(error.to_string()))?;
                    outlines.tokens.push(token);
                }
                "procedure" => {
                    let procedure = self.procedure(&mut line)?;
                    let added = names.add_procedure(&procedure);
                    added.map_err(|error| start.error(error.to_string()))?;
                    outlines.procedures.push(procedure);
                }
                _ => return Err(unexpected(start, "'procedure' or 'token'")),
            }
        }
        Ok(outlines)
    }

    fn procedure(&mut self, line: &mut Line<'_, 't>) -> Result<Outline, TextError> {
        let name = line.name("the procedure's name")?;
        line.end("the line's end")?;
        let mut steps: Vec<(Mark<'t>, UnresolvedStep<'t>)> = Vec::new();
        let mut loops: Vec<(OutlineLoop, Vec<Mark<'t>>)> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut labels: HashSet<String> = HashSet::new();
        loop {
            let Some(marks) = self.next_line()? else {
                let what = format!("'end' is missing, of 'procedure {}'", excerpt(name.text));
                return Err(TextError { line: self.last, column: 1, what });
            };
            let mut line = Line::of(&marks);
            let is_labelled = marks.get(1).is_some_and(|mark| mark.text == ":");
            match line.peek() {
                "end" if !is_labelled => {
                    let end = line.take();
                    line.end("the line's end")?;
                    let Some(number) = open.pop() else { break };
                    loops[number].0.end = steps.len();
                    if loops[number].0.first == steps.len() {
                        return Err(end.error("there is no step in this loop".to_owned()));
                    }
                }
                "loop" if !is_labelled => {
                    let start = line.take();
                    if open.len() == LOOPS_NESTED_MAX {
                        let what = format!("loops are nested more than {LOOPS_NESTED_MAX} deep");
                        return Err(start.error(what));
                    }
                    let over = match line.takes("over") {
                        true => line.names("a label")?,
                        false => Vec::new(),
                    };
                    line.end("'over', or the line's end,")?;
                    open.push(loops.len());
                    let first = steps.len();
                    loops.push((OutlineLoop { first, end: usize::MAX, over: Vec::new() }, over));
                }
                "procedure" if !is_labelled => {
                    let what = format!("'end' is missing before this, of '{}'", excerpt(name.text));
                    return Err(line.take().error(what));
                }
                _ => {
                    let start = marks[0];
                    let step = step(&mut line)?;
                    let label = &step.step.label;
                    if !labels.insert(label.clone()) {
                        let what = format!(
                            "a step before this is called '{}': give one of them another label, as in \
                             'second: {} …'",
                            excerpt(label),
                            step.step.word()
                        );
                        return Err(start.error(what));
                    }
                    steps.push((start, step));
                }
            }
        }
        resolved(name.text, steps, loops)
    }
}

/// Replaces the labels by the numbers of the steps that they name.
fn resolved<'t>(
    name: &str,
    steps: Vec<(Mark<'t>, UnresolvedStep<'t>)>,
    loops: Vec<(OutlineLoop, Vec<Mark<'t>>)>,
) -> Result<Outline, TextError> {
    let numbers: HashMap<String, usize> = steps
        .iter()
        .enumerate()
        .map(|(number, (_, step))| (step.step.label.clone(), number))
        .collect();
    let find = |marks: Vec<Mark<'t>>| {
        let each = marks.into_iter().map(|mark| {
            numbers.get(mark.text).copied().ok_or_else(|| {
                let (name, label) = (excerpt(name), excerpt(mark.text));
                mark.error(format!("no step of '{name}' is called '{label}'"))
            })
        });
        let mut numbers = each.collect::<Result<Vec<usize>, TextError>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    };
    let mut outline = Outline { name: name.to_owned(), steps: Vec::new(), loops: Vec::new() };
    for (around, over) in loops {
        outline.loops.push(OutlineLoop { over: find(over)?, ..around });
    }
    let mut starts = Vec::new();
    for (start, step) in steps {
        let UnresolvedStep { step, keys, values, guards } = step;
        let (keys, values, guards) = (find(keys)?, find(values)?, find(guards)?);
        outline.steps.push(OutlineStep { keys, values, guards, ..step });
        starts.push(start);
    }
    let end_of_loops = outline.check_loops().expect("'loop' and 'end' are in pairs");
    if let Some((number, on)) = outline.late_dependency(&end_of_loops) {
        let label = excerpt(&outline.steps[on].label);
        return Err(starts[number].error(format!("it depends on '{label}', which runs later")));
    }
    Ok(outline)
}

/// The operations that commute. (A `take` does not, because it can leave too little for another.)
fn operations() -> impl Iterator<Item = OperationKind> {
    OperationKind::ALL.into_iter().filter(|kind| *kind != OperationKind::Take)
}

/// Returns the operation with a name.
fn operation(word: &str) -> Option<OperationKind> {
    operations().find(|kind| kind.name() == word)
}

fn step<'t>(line: &mut Line<'_, 't>) -> Result<UnresolvedStep<'t>, TextError> {
    let label = match line.marks.get(1) {
        Some(mark) if mark.text == ":" => {
            let label = line.name("a label")?;
            line.take();
            Some(label)
        }
        _ => None,
    };
    let word = line.take();
    let access = match word.text {
        "read" => OutlineAccess::Read,
        "scan" => OutlineAccess::Scan,
        "write" | "update" => OutlineAccess::Update,
        "insert" => OutlineAccess::Insert,
        "upsert" => OutlineAccess::Upsert,
        "delete" => OutlineAccess::Delete,
        other if operation(other).is_some() => OutlineAccess::Update,
        _ => {
            let operations = operations().map(OperationKind::name).collect::<Vec<_>>().join(", ");
            let accesses = ACCESSES.join(", ");
            let what = format!("a step ({accesses}, {operations}), 'loop' or 'end'");
            return Err(unexpected(word, &what));
        }
    };
    let table = line.name("a table")?;
    let mut step = OutlineStep::new(label.unwrap_or(table).text, access, table.text);
    if line.takes("by") {
        step.index = Some(line.name("an index")?.text.to_owned());
    }
    if word.text == "write" {
        step.reads = Columns::NONE;
    }
    let has_columns = line.peek() == "(";
    if has_columns {
        let bracket = line.take();
        if matches!(word.text, "insert" | "upsert" | "delete") {
            let what = format!("'{}' is about whole rows, and has no columns", word.text);
            return Err(bracket.error(what));
        }
        columns(line, word.text, &mut step)?;
        line.expect(")")?;
    } else if operation(word.text).is_some() {
        return Err(unexpected(line.take(), "'(' with the column that it changes"));
    }
    let mut unresolved =
        UnresolvedStep { step, keys: Vec::new(), values: Vec::new(), guards: Vec::new() };
    while line.takes(";") {
        let clause = line.take();
        match clause.text {
            "key" => {
                line.expect("from")?;
                unresolved.keys.extend(line.names("a label")?);
            }
            "values" => {
                line.expect("from")?;
                unresolved.values.extend(line.names("a label")?);
            }
            "if" => unresolved.guards.extend(line.names("a label")?),
            "may" => {
                line.expect("roll")?;
                line.expect("back")?;
                unresolved.step.may_roll_back = true;
            }
            "at" => {
                line.expect("once")?;
                unresolved.step.at_once = true;
            }
            _ => {
                let what = "'key from', 'values from', 'if', 'may roll back' or 'at once'";
                return Err(unexpected(clause, what));
            }
        }
    }
    line.end("';', or the line's end,")?;
    Ok(unresolved)
}

/// Reads the contents of the brackets after the table.
fn columns(line: &mut Line<'_, '_>, word: &str, step: &mut OutlineStep) -> Result<(), TextError> {
    let is_part = |line: &Line<'_, '_>| {
        let word = line.peek();
        let goes_on = line.marks.get(1).is_some_and(|mark| mark.is_name() || mark.text == "*");
        goes_on && (word == "reads" || word == "writes" || operation(word).is_some())
    };
    if let Some(kind) = operation(word) {
        (step.reads, step.writes) = (Columns::NONE, Columns::NONE);
        let names = line.names("a column")?;
        step.operations = names.iter().map(|name| (name.text.to_owned(), kind)).collect();
    } else if word == "update" && is_part(line) {
        (step.reads, step.writes) = (Columns::NONE, Columns::NONE);
        loop {
            let part = line.take();
            match part.text {
                "reads" => step.reads = names(line)?,
                "writes" => step.writes = names(line)?,
                _ => {
                    let Some(kind) = operation(part.text) else {
                        return Err(unexpected(part, "'reads', 'writes' or an operation"));
                    };
                    let names = line.names("a column")?;
                    let operations = names.iter().map(|name| (name.text.to_owned(), kind));
                    step.operations.extend(operations);
                }
            }
            if !line.takes(";") {
                break;
            }
        }
    } else {
        let columns = match line.peek() {
            ")" => Columns::NONE,
            _ => names(line)?,
        };
        match word {
            "write" => step.writes = columns,
            "update" => (step.reads, step.writes) = (columns.clone(), columns),
            _ => step.reads = columns,
        }
    }
    Ok(())
}

fn names(line: &mut Line<'_, '_>) -> Result<Columns, TextError> {
    if line.takes("*") {
        return Ok(Columns::Any);
    }
    Ok(Columns::these(line.names("a column")?.iter().map(|mark| mark.text)))
}

//! Writing outlines as text.

use std::fmt;

use crate::chopping::outline::{Columns, Outline, OutlineAccess, OutlineStep, Outlines};

impl fmt::Display for Outlines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.tokens {
            writeln!(formatter, "token {} for {}", token.table, token.tables.join(", "))?;
        }
        for (position, procedure) in self.procedures.iter().enumerate() {
            if position > 0 || !self.tokens.is_empty() {
                writeln!(formatter)?;
            }
            procedure.fmt(formatter)?;
        }
        Ok(())
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "procedure {}", self.name)?;
        let labels = |steps: &[usize]| {
            let labels = steps.iter().map(|&step| self.steps[step].label.as_str());
            labels.collect::<Vec<_>>().join(", ")
        };
        for (number, step) in self.steps.iter().enumerate() {
            let mut depth = self.loops_around(number).count();
            let begin = self.loops.iter().filter(|around| around.first == number);
            depth -= begin.clone().count();
            for around in begin {
                let indent = "    ".repeat(depth + 1);
                match &around.over[..] {
                    [] => writeln!(formatter, "{indent}loop")?,
                    over => writeln!(formatter, "{indent}loop over {}", labels(over))?,
                }
                depth += 1;
            }
            write!(formatter, "{}", "    ".repeat(depth + 1))?;
            if step.label != step.table {
                write!(formatter, "{}: ", step.label)?;
            }
            step.fmt(formatter)?;
            let clauses =
                [("key from", &step.keys), ("values from", &step.values), ("if", &step.guards)];
            for (words, steps) in clauses.into_iter().filter(|(_, steps)| !steps.is_empty()) {
                write!(formatter, "; {words} {}", labels(steps))?;
            }
            formatter.write_str(if step.may_roll_back { "; may roll back" } else { "" })?;
            writeln!(formatter, "{}", if step.at_once { "; at once" } else { "" })?;
            for _ in self.loops.iter().filter(|around| around.end == number + 1) {
                writeln!(formatter, "{}end", "    ".repeat(depth))?;
                depth -= 1;
            }
        }
        writeln!(formatter, "end")
    }
}

/// Writes the access, the table and the columns.
impl fmt::Display for OutlineStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.word(), self.table)?;
        if let Some(index) = &self.index {
            write!(formatter, " by {index}")?;
        }
        match self.access {
            OutlineAccess::Insert | OutlineAccess::Upsert | OutlineAccess::Delete => Ok(()),
            OutlineAccess::Read | OutlineAccess::Scan => bracketed(formatter, &self.reads),
            OutlineAccess::Update => match self.word() {
                "write" => bracketed(formatter, &self.writes),
                "update" => self.write_parts(formatter),
                _ => {
                    let names = self.operations.iter().map(|(name, _)| name.as_str());
                    write!(formatter, " ({})", names.collect::<Vec<_>>().join(", "))
                }
            },
        }
    }
}

fn bracketed(formatter: &mut fmt::Formatter<'_>, columns: &Columns) -> fmt::Result {
    match columns {
        Columns::Any => Ok(()),
        Columns::These(_) => write!(formatter, " ({})", list(columns)),
    }
}

fn list(columns: &Columns) -> String {
    match columns {
        Columns::Any => "*".to_owned(),
        Columns::These(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

impl OutlineStep {
    fn write_parts(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |columns: &Columns| *columns == Columns::Any;
        if any(&self.reads) && any(&self.writes) && self.operations.is_empty() {
            return Ok(());
        }
        let mut parts = Vec::new();
        for (word, columns) in [("reads", &self.reads), ("writes", &self.writes)] {
            if !columns.is_none() {
                parts.push(format!("{word} {}", list(columns)));
            }
        }
        let mut last = None;
        for (name, kind) in &self.operations {
            match parts.last_mut().filter(|_| last == Some(kind)) {
                Some(part) => *part += &format!(", {name}"),
                None => parts.push(format!("{} {name}", kind.name())),
            }
            last = Some(kind);
        }
        write!(formatter, " ({})", parts.join("; "))
    }
}

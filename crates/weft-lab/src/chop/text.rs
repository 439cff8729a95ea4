//! A chopping as text.

use std::fmt::Write;

use weft_procedures::chopping::{Chopping, Options, Standing, StepNumber};

use super::names;

/// The longest line, in characters, unless a single word is longer.
const WIDTH: usize = 100;

/// Returns the pieces of each procedure, then the conflicts.
pub fn text(chopping: &Chopping) -> String {
    let mut text = String::new();
    write_wrapped(&mut text, "", &title(chopping));
    for (number, (outline, chopped)) in chopping.each().enumerate() {
        let pieces = match (chopped.on_snapshot, chopped.pieces.len()) {
            (true, _) => "on a snapshot".to_owned(),
            (false, 1) => "1 piece".to_owned(),
            (false, pieces) => format!("{pieces} pieces"),
        };
        let order =
            if chopped.is_as_written { "" } else { ", in another order than it is written" };
        let _ = writeln!(text, "\n{}: {pieces}{order}", outline.name);
        for (position, piece) in chopped.pieces.iter().enumerate() {
            let labels = piece.steps.iter().map(|&step| outline.steps[step].label.as_str());
            let labels = labels.collect::<Vec<_>>().join(", ");
            write_wrapped(&mut text, &format!("  {}  {:11}  ", position + 1, piece.kind), &labels);
            for merge in chopped.merges.iter().filter(|merge| piece.steps.contains(&merge.one)) {
                let label = |step: usize| &outline.steps[step].label;
                let (one, other) = (label(merge.one), label(merge.other));
                let why = format!("{one} with {other}: {}", chopping.explain(number, merge));
                write_wrapped(&mut text, "       ", &why);
            }
        }
    }
    write_conflicts(&mut text, chopping);
    let list = |text: &mut String, title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}");
            lines.iter().for_each(|line| write_wrapped(text, "  ", line));
        }
    };
    let refused = chopping.not_deferred.iter();
    let refused = refused.map(|(step, why)| {
        format!("{}: {}", chopping.name(*step), chopping.explain_not_deferred(why))
    });
    list(&mut text, "Not deferred:", refused.collect());
    let without = chopping.without_token.iter();
    let without = without.map(|(table, why)| format!("{table}: {why}"));
    list(&mut text, "Not by token:", without.collect());
    if chopping.options.static_tables && !chopping.static_tables.is_empty() {
        list(&mut text, "Static tables:", vec![chopping.static_tables.join(", ")]);
    }
    text
}

/// Returns the number of procedures and the optimizations in use.
pub fn title(chopping: &Chopping) -> String {
    let names = names(chopping.options);
    let procedures = match chopping.procedures.len() {
        1 => "1 procedure".to_owned(),
        number => format!("{number} procedures"),
    };
    let which = match chopping.options {
        Options::ALL => "all optimizations: ",
        Options::CONVENTIONAL => "conventional: ",
        Options::NONE => "no optimizations",
        _ => "",
    };
    format!("{procedures}, {which}{}", names.join(", "))
}

fn write_conflicts(text: &mut String, chopping: &Chopping) {
    let of = |wanted: fn(Standing) -> bool| {
        let all = chopping.conflicts.iter().filter(move |conflict| wanted(conflict.standing));
        all.map(|conflict| match conflict.standing {
            Standing::Deferred { publisher } => {
                let reader = conflict.across(publisher).unwrap_or(publisher);
                let table = &chopping.step(publisher).table;
                let (one, other) = (chopping.name(publisher), chopping.name(reader));
                format!("{one}, for {other}: {table} ({})", conflict.meeting)
            }
            _ => chopping.in_words(conflict),
        })
        .collect::<Vec<_>>()
    };
    let sorts: [(&str, Vec<String>); 3] = [
        ("Conflicts (C-edges):", of(|standing| standing == Standing::Edge)),
        ("Deferred:", of(|standing| matches!(standing, Standing::Deferred { .. }))),
        ("Decided by tokens:", of(|standing| standing == Standing::ByToken)),
    ];
    for (title, lines) in sorts.iter().filter(|(_, lines)| !lines.is_empty()) {
        let _ = writeln!(text, "\n{title}");
        lines.iter().for_each(|line| write_wrapped(text, "  ", line));
    }
}

/// Returns the label of a step in pictures: what it does, and on which table.
pub fn label(chopping: &Chopping, number: StepNumber) -> String {
    let step = chopping.step(number);
    match step.label == step.table {
        true => format!("{} {}", step.word(), step.table),
        false => format!("{}: {} {}", step.label, step.word(), step.table),
    }
}

/// Writes words after `start`, and breaks lines at `WIDTH`.
fn write_wrapped(text: &mut String, start: &str, words: &str) {
    let indent = start.chars().count();
    let mut line = start.to_owned();
    let mut is_first = true;
    for word in words.split(' ') {
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(indent + 2);
            is_first = true;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
        is_first = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

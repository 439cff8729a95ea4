//! Random sequences of changes of a table. A model of one row follows them.

use super::*;

/// A version of a program: its table, and the row's values by what each column is, whatever its name.
#[derive(Clone, Debug)]
struct Version {
    table: TableDescription,
    /// What each column is: a number that it keeps under every name.
    identities: Vec<usize>,
    values: Vec<Value>,
}

impl Version {
    fn first(draw: &mut fastrand::Rng) -> Version {
        let status = TypeDescription::Enum {
            name: "Status".to_owned(),
            variants: vec!["A".to_owned(), "B".to_owned()],
        };
        let column = |name: &str, type_of| ColumnDescription::new(name.to_owned(), type_of);
        let columns = vec![
            column("id", TypeDescription::U16),
            column("status", status),
            column("count", TypeDescription::U8),
            column("text", TypeDescription::String),
        ];
        let values = columns.iter().map(|column| value_of(&column.type_of, draw)).collect();
        let name = "table".to_owned();
        let table = TableDescription { name, columns, key: vec![0], ..TableDescription::default() };
        Version { table, identities: vec![0, 1, 2, 3], values }
    }

    /// Makes a change, with new names and columns that are numbered with `number`.
    fn change(&mut self, number: usize, draw: &mut fastrand::Rng) {
        let place = draw.usize(..self.table.columns.len());
        let is_key = self.identities[place] == 0;
        let column = &mut self.table.columns[place];
        match draw.u8(..7) {
            0 => {
                let default = Some(vec![draw.u8(..)]);
                let value = Value::Unsigned(default.as_ref().unwrap()[0].into());
                // The name of a column that was dropped or renamed may come back.
                let name = ["count", "text", "status", "new"][draw.usize(..4)].to_owned();
                if self.table.columns.iter().all(|other| other.name != name) {
                    let type_of = TypeDescription::U8;
                    let added =
                        ColumnDescription { default, ..ColumnDescription::new(name, type_of) };
                    self.table.columns.push(added);
                    self.identities.push(number);
                    self.values.push(value);
                }
            }
            1 if !is_key => {
                self.table.dropped.push(column.name.clone());
                self.table.columns.remove(place);
                self.identities.remove(place);
                self.values.remove(place);
            }
            2 => {
                let new = format!("column{number}");
                column.was = vec![std::mem::replace(&mut column.name, new)];
            }
            3 => {
                let other = draw.usize(..self.table.columns.len());
                self.table.columns.swap(place, other);
                self.identities.swap(place, other);
                self.values.swap(place, other);
            }
            4 => {
                let wider = match &column.type_of {
                    TypeDescription::U8 => TypeDescription::U16,
                    TypeDescription::U16 => TypeDescription::U64,
                    other => other.clone(),
                };
                if let (Some(default), TypeDescription::U8) = (&mut column.default, &column.type_of)
                {
                    default.push(0);
                } else if wider != column.type_of {
                    column.default = None;
                }
                column.type_of = wider;
            }
            5 if !is_key => {
                column.default = None;
                column.type_of = TypeDescription::Option(Box::new(column.type_of.clone()));
                let value = std::mem::replace(&mut self.values[place], Value::Option(None));
                self.values[place] = Value::Option(Some(Box::new(value)));
            }
            _ => {
                if let (TypeDescription::Enum { variants, .. }, Value::Enum(variant)) =
                    (&mut column.type_of, &mut self.values[place])
                {
                    variants.insert(0, format!("V{number}"));
                    *variant += 1;
                }
            }
        }
        let key = self.identities.iter().position(|identity| *identity == 0);
        self.table.key = vec![key.expect("the key stays")];
    }

    fn row(&self) -> Vec<u8> {
        let mut row = Vec::new();
        for (column, value) in self.table.columns.iter().zip(&self.values) {
            value.write(&column.type_of, &mut row).unwrap();
        }
        row
    }
}

/// The row of a program that is stored with the columns of a newer one, as recovery stores it.
fn full_row(stored: &Version, older: &TableDescription, opened: &OpenedTable) -> Option<Vec<u8>> {
    let computed = |_, _: &StoredRow<'_>, _: &mut Vec<u8>| unreachable!("no column is computed");
    let mut row = Vec::new();
    opened.step.as_ref()?.row(&stored.row(), computed, &mut row).ok()?;
    older.read_row(&row).expect("it is a row of the older program");
    for &position in &opened.kept {
        let column = &stored.table.columns[position];
        stored.values[position].write(&column.type_of, &mut row).unwrap();
    }
    Some(row)
}

/// A row goes through all versions as the model does. Opened by an older version, it comes back unchanged.
#[test]
fn random_sequences_of_changes_follow_a_model() {
    let mut returned = 0;
    for seed in 0..3000 {
        let mut draw = fastrand::Rng::with_seed(seed);
        let mut versions = vec![Version::first(&mut draw)];
        for number in 0..draw.usize(1..8) {
            let mut next = versions.last().unwrap().clone();
            next.table.dropped.clear();
            next.table.columns.iter_mut().for_each(|column| column.was.clear());
            next.change(number + 10, &mut draw);
            versions.push(next);
        }
        let last = versions.last().unwrap();
        let chain: Vec<_> = versions.iter().map(|version| &version.table).collect();
        for (position, version) in versions.iter().enumerate() {
            let adaptation = Adaptation::new(&chain[position..], None);
            let adaptation = adaptation.unwrap_or_else(|what| panic!("seed {seed}: {what:?}"));
            let row = version.row();
            let adapted = adaptation.row(&row).unwrap();
            assert_eq!(*adapted, last.row(), "seed {seed}, version {position}: {versions:#?}");
        }
        // Back by one version, and forward again.
        let mut older = versions[versions.len() - 2].table.clone();
        // A name that was dropped and has come back would be dropped again.
        older.dropped.clear();
        let older = &older;
        let Ok(opened) = matched(&last.table, older) else { continue };
        let Some(row) = full_row(last, older, &opened) else { continue };
        let full = opened.full(&last.table, older);
        let again =
            matched(&full, &last.table).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert!(again.kept.is_empty(), "seed {seed}");
        let adaptation = Adaptation::new(&[&full], again.step.as_ref());
        let same = match adaptation {
            Ok(adaptation) => adaptation.row(&row).unwrap().into_owned(),
            Err(what) => panic!("seed {seed}: {what:?}"),
        };
        assert_eq!(same, last.row(), "seed {seed}");
        returned += 1;
    }
    assert!(returned > 1000, "only {returned} sequences came back");
}

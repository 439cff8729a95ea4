//! Random small sets of procedures.

use weft::operation::OperationKind;
use weft_procedures::chopping::{Columns, Options, OutlineAccess, OutlineStep, Token};

use super::program::{COLUMNS, KeyOf, Program, Set};

pub struct Generator {
    pub random: fastrand::Rng,
}

/// Returns random options: half of the time all of them, otherwise most of them.
pub fn options(random: &mut fastrand::Rng) -> Options {
    if random.bool() {
        return Options::ALL;
    }
    let mut any = || random.u8(..4) > 0;
    Options {
        columns: any(),
        commutativity: any(),
        reordering: any(),
        snapshots: any(),
        deferral: any(),
        tokens: any(),
        static_tables: any(),
    }
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns a random set of two or three procedures, most of them with two to four steps.
    pub fn set(&mut self) -> Set {
        match self.random.u8(..4) {
            0 => self.with_tokens(),
            1 => self.with_a_publisher(),
            _ => {
                let number = self.random.usize(2..=3);
                let programs = (0..number).map(|number| {
                    let mut program = Program::new(&format!("procedure_{number}"));
                    for _ in 0..self.random.usize(2..=4) {
                        self.push(&mut program, &["x", "y", "z"]);
                    }
                    self.finish(&mut program);
                    program
                });
                Set { programs: programs.collect(), tokens: Vec::new() }
            }
        }
    }

    /// Returns a set in which one procedure inserts rows with a token, and another deletes the token and accesses
    /// the rows.
    fn with_tokens(&mut self) -> Set {
        use OutlineAccess::{Delete, Insert, Read, Scan, Update};
        let mut producer = Program::new("producer");
        let mut consumer = Program::new("consumer");
        self.maybe_push(&mut producer, &["x", "y"]);
        let tables = if self.random.u8(..4) > 0 { ["row", "token"] } else { ["token", "row"] };
        for table in tables {
            producer.push(Insert, table, KeyOf::Own);
        }
        self.maybe_push(&mut producer, &["x", "y"]);

        self.maybe_push(&mut consumer, &["x", "y"]);
        let found = consumer.outline.steps.len();
        consumer.push(Scan, "token", KeyOf::Shared).reads = Columns::NONE;
        consumer.push(Delete, "token", KeyOf::Found(found));
        self.maybe_push(&mut consumer, &["x", "y"]);
        for _ in 0..self.random.usize(1..=2) {
            let access = if self.random.bool() { Update } else { Read };
            let step = consumer.push(access, "row", KeyOf::Found(found));
            self.choose_columns(step);
        }
        let token = Token { table: "token".to_owned(), tables: vec!["row".to_owned()] };
        Set { programs: vec![producer, consumer], tokens: vec![token] }
    }

    /// Returns a set in which one procedure adds to a row that another reads. Usually they conflict nowhere else.
    fn with_a_publisher(&mut self) -> Set {
        let tables = if self.random.u8(..4) > 0 { [["x"], ["y"]] } else { [["x"], ["x"]] };
        let mut publisher = Program::new("publisher");
        let mut subscriber = Program::new("subscriber");
        self.push(&mut publisher, &tables[0]);
        let add = publisher.push(OutlineAccess::Update, "z", KeyOf::Shared);
        (add.reads, add.writes) = (Columns::NONE, Columns::NONE);
        add.operations = vec![("a".to_owned(), OperationKind::Add)];
        let first = self.random.usize(..2);
        for position in 0..3 {
            match position == first {
                true => {
                    let is_update = self.random.bool();
                    let access =
                        if is_update { OutlineAccess::Update } else { OutlineAccess::Read };
                    subscriber.push(access, "z", KeyOf::Shared);
                }
                false => self.maybe_push(&mut subscriber, &tables[1]),
            }
        }
        // Sometimes there is the same relation in the other direction.
        if self.random.u8(..4) == 0 {
            let add = subscriber.push(OutlineAccess::Update, "w", KeyOf::Shared);
            (add.reads, add.writes) = (Columns::NONE, Columns::NONE);
            add.operations = vec![("a".to_owned(), OperationKind::Add)];
            publisher.push(OutlineAccess::Read, "w", KeyOf::Shared);
        }
        self.maybe_push(&mut publisher, &tables[0]);
        Set { programs: vec![publisher, subscriber], tokens: Vec::new() }
    }

    fn maybe_push(&mut self, program: &mut Program, tables: &[&str]) {
        if self.random.bool() {
            self.push(program, tables);
        }
    }

    fn push(&mut self, program: &mut Program, tables: &[&str]) {
        use OutlineAccess::{Delete, Insert, Read, Scan, Update};
        let table = tables[self.random.usize(..tables.len())];
        let (access, key) = match self.random.u8(..20) {
            0..5 => (Read, KeyOf::Shared),
            5 => (Scan, KeyOf::Shared),
            6 | 7 => (Insert, KeyOf::Own),
            8 => (Delete, KeyOf::Shared),
            _ => (Update, KeyOf::Shared),
        };
        let number = program.outline.steps.len();
        // A procedure inserts at most one row with its own key into a table.
        let is_second =
            program.outline.steps.iter().any(|it| it.access == Insert && it.table == table);
        let (access, key) = if is_second { (Read, KeyOf::Shared) } else { (access, key) };
        let dependencies: [Vec<usize>; 3] =
            std::array::from_fn(|_| (0..number).filter(|_| self.random.u8(..4) == 0).collect());
        let may_roll_back = self.random.u8(..10) == 0;
        let step = program.push(access, table, key);
        if key == KeyOf::Shared {
            [step.keys, step.values, step.guards] = dependencies;
        }
        step.may_roll_back = may_roll_back && !matches!(access, Insert);
        self.choose_columns(step);
    }

    fn choose_columns(&mut self, step: &mut OutlineStep) {
        let some = |random: &mut fastrand::Rng| match random.u8(..5) {
            0 => Columns::Any,
            _ => Columns::these(COLUMNS.into_iter().filter(|_| random.bool())),
        };
        match step.access {
            OutlineAccess::Read | OutlineAccess::Scan => step.reads = some(&mut self.random),
            OutlineAccess::Update if self.random.bool() => {
                (step.reads, step.writes) = (some(&mut self.random), some(&mut self.random));
            }
            OutlineAccess::Update => {
                (step.reads, step.writes) = (Columns::NONE, Columns::NONE);
                let kinds = [
                    OperationKind::Add,
                    OperationKind::Add,
                    OperationKind::Mul,
                    OperationKind::Max,
                ];
                for name in COLUMNS {
                    if step.operations.is_empty() || self.random.u8(..3) == 0 {
                        let kind = kinds[self.random.usize(..4)];
                        step.operations.push((name.to_owned(), kind));
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a loop to some procedures, and to some of these a dependency on the loop's earlier iteration.
    fn finish(&mut self, program: &mut Program) {
        let steps = program.outline.steps.len();
        if self.random.u8(..4) == 0 && steps >= 2 {
            let first = self.random.usize(..steps - 1);
            let end = self.random.usize(first + 1..=steps);
            let inserts = program.outline.steps[first..end]
                .iter()
                .any(|it| it.access == OutlineAccess::Insert);
            if !inserts {
                program.add_loop(first, end);
                if end - first > 1 && self.random.bool() {
                    program.outline.steps[first].values.push(end - 1);
                }
            }
        }
    }
}

//! Crashes at random moments while procedures commit in pieces. Each procedure survives with all of its pieces or
//! with none, and with everything that it depends on.

use weft::durability::SimulatedDisk;
use weft::{Acknowledge, Database, DurabilityOptions, Error, TransactionOptions};
use weft_procedures::Execute;
use weft_protocols::DbxTc;
use weft_tests::office::{Office, Work};
use weft_tests::{Seed, stress};

use super::concurrent::{Workplace, rounds};
use super::place;

struct OfficeDatabase {
    database: Database<DbxTc>,
    office: Office,
}

impl Workplace for OfficeDatabase {
    type Protocol = DbxTc;

    fn open(disk: &SimulatedDisk, options: DurabilityOptions, manual: bool) -> Self {
        let (database, office) = Office::open(|builder| place(builder, disk, options, manual));
        OfficeDatabase { database, office }
    }

    fn database(&self) -> &Database<DbxTc> {
        &self.database
    }

    fn fill(&self) {
        self.office.fill(&self.database);
    }

    fn step(
        &self,
        writer: usize,
        acknowledge: Acknowledge,
        random: &mut fastrand::Rng,
    ) -> Option<u64> {
        let mut work = Work::new(&self.office, writer as u32);
        if writer > 0 && acknowledge == Acknowledge::Durable {
            return Some(self.database.execute(&mut work).unwrap());
        }
        let options = TransactionOptions::new();
        let (number, token) = self.database.execute_with_token(&options, &mut work).unwrap();
        let waits = writer == 0 || random.u8(..8) == 0;
        waits.then(|| {
            self.database.wait_durable(token).unwrap();
            number
        })
    }

    fn check(&self, circumstances: &str) -> Vec<u64> {
        let Office { board, tallies, slips } = &self.office;
        let seen = self.database.snapshot(|snapshot| {
            let works = snapshot.get(board, &0)?.expect("the board exists").works.clone();
            for id in [0, 1] {
                let sum = snapshot.get(tallies, &id)?.expect("the tally exists").sum;
                let all: u64 = works.iter().sum();
                assert_eq!(sum, all as i64, "{works:?}: {circumstances}");
            }
            for (writer, &count) in works.iter().enumerate() {
                let slips = snapshot.prefix(slips, &(writer as u32));
                let numbers =
                    slips.map(|slip| Ok(slip?.key.1)).collect::<Result<Vec<_>, Error>>()?;
                let expected: Vec<u64> = (1..=count).collect();
                assert_eq!(numbers, expected, "writer {writer}: {circumstances}");
            }
            Ok::<_, Error>(works)
        });
        let metrics = self.database.metrics();
        assert!(metrics.committed < 1000 || metrics.committed_in_pieces > 0, "{metrics:?}");
        seen.unwrap()
    }
}

#[test]
fn procedures_in_pieces_survive_crashes_as_whole_transactions() {
    rounds::<OfficeDatabase>(&Seed::draw(), 18 * stress());
}

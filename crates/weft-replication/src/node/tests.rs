use std::sync::Arc;
use std::time::Duration;

use weft::htm::word::{Ordering, Word};
use weft::{Database, Record};

use super::*;
use crate::SimulatedLog;
use crate::base::{BackupSource, FoundBackup};

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    id: u32,
    cents: i64,
}

/// A store without backups, which does not always answer.
struct Store {
    is_down: Word,
}

impl BackupSource for Store {
    fn newest(
        &self,
        _log: &str,
        _first: u64,
        _until: Option<ReplicationToken>,
    ) -> Result<(Option<FoundBackup>, Vec<String>), String> {
        match self.is_down.load(Ordering::SeqCst) {
            0 => Ok((None, Vec::new())),
            _ => Err("no answer".to_owned()),
        }
    }
}

/// Fault: if the store with the backups did not answer when a node began again, the node stopped for good.
#[test]
fn node_begins_again_when_the_store_with_the_backups_answers() {
    let log = SimulatedLog::new(1);
    let options = Options {
        lease: Duration::ZERO,
        silence: None,
        poll: Duration::from_millis(1),
        ..Options::default()
    };
    let builder =
        || NodeBuilder::new(Database::builder).table::<Account>().options(options.clone());
    let store = Arc::new(Store { is_down: Word::new(0) });
    let with_store = || builder().backup_source(Arc::clone(&store) as _).start(log.connect());
    let one = with_store().unwrap();
    let other = builder().start(log.connect()).unwrap();
    one.promote(LONG).unwrap();
    store.is_down.store(1, Ordering::SeqCst);
    assert!(matches!(with_store(), Err(ReplicationError::BackupStore(_))));
    let primary = other.promote(LONG).unwrap();
    let accounts = primary.database().table::<Account>().unwrap();
    let inserted = primary.transact(|tx| {
        Ok::<_, ReplicationError>(tx.insert(&accounts, Account { id: 1, cents: 1 })?)
    });
    let token = inserted.unwrap().1;
    let expected = Trouble::BackupStore("no answer".to_owned());
    while one.trouble().as_ref() != Some(&expected) {
        assert_eq!(one.fault(), None);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(one.role(), NodeRole::Standby);
    store.is_down.store(0, Ordering::SeqCst);
    one.wait_for(token, LONG).unwrap();
    assert_eq!((one.role(), one.fault(), one.trouble()), (NodeRole::Standby, None, None));
}

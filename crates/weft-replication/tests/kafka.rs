//! Nodes on a real topic. `.ci/kafka` starts a broker and runs these tests. Without `WEFT_KAFKA`, the address of a broker,
//! they do nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rskafka::client::ClientBuilder;
use weft::{Database, Record};
use weft_replication::kafka::{KafkaLog, KafkaLogin, KafkaMechanism, KafkaOptions, KafkaTls};
use weft_replication::{LogError, Node, NodeBuilder, Options, ReplicatedLog, ReplicationError};

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Record)]
struct Account {
    #[record(key)]
    id: u32,
    cents: i64,
}

/// Returns a connection with a topic.
fn connect(broker: &str, topic: &str) -> Result<KafkaLog, LogError> {
    // There is one broker.
    KafkaLog::open(&KafkaOptions { insync_replicas_min: 1, ..KafkaOptions::new(&[broker], topic) })
}

/// Makes a topic, and returns the broker's address and the topic's name. Returns `None` if there is no broker.
fn topic(partitions: i32) -> Option<(String, String)> {
    let Ok(broker) = std::env::var("WEFT_KAFKA") else {
        eprintln!("skipped: WEFT_KAFKA is not set");
        return None;
    };
    let name = format!("weft-{:016x}", fastrand::u64(..));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = ClientBuilder::new(vec![broker.clone()]).build().await.expect("it answers");
        let controller = client.controller_client().expect("there is a controller");
        controller.create_topic(&name, partitions, 1, 10_000).await.expect("it is made");
        // The broker learns of it a moment later.
        while !client.list_topics().await.expect("it answers").iter().any(|it| it.name == name) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    Some((broker, name))
}

#[test]
fn records_are_read_at_their_offsets() {
    let Some((broker, topic)) = topic(1) else { return };
    let log = connect(&broker, &topic).expect("the topic is there");
    let (_, end) = log.range().expect("the broker answers");
    assert!(log.read(end, Duration::from_millis(10)).expect("it answers").is_empty());
    let long = vec![7; weft_replication::RECORD_BYTES_MAX];
    for (at, record) in (end..).zip([&b"one"[..], b"two", &long]) {
        assert_eq!(log.append(record), Ok(at));
        let read = log.read(at, Duration::from_secs(1)).expect("it answers");
        assert_eq!((read[0].offset, &*read[0].bytes), (at, record));
    }
    let beyond = log.read(end + 100, Duration::from_millis(10));
    assert_eq!(beyond, Err(LogError::OutOfRange { offset: end + 100, first: 0, end: end + 3 }));
}

#[test]
fn other_topics_are_refused() {
    let Some((broker, topic)) = topic(2) else { return };
    for (topic, what) in [(format!("{topic}-missing"), "does not exist"), (topic, "2 partitions")] {
        let refused = connect(&broker, &topic).expect_err("it is refused");
        assert!(refused.to_string().contains(what), "{refused}");
    }
}

#[test]
fn topics_with_unsafe_settings_are_refused() {
    let Some((broker, topic)) = topic(1) else { return };
    let refused = KafkaLog::open(&KafkaOptions::new(&[&broker], &topic)).expect_err("one broker");
    assert!(refused.to_string().contains("`min.insync.replicas=1`"), "{refused}");
    // `.ci/kafka` makes this topic.
    let refused = connect(&broker, "weft-short").expect_err("its records disappear");
    assert!(refused.to_string().contains("`retention.ms=1000`"), "{refused}");
}

#[test]
fn records_before_an_offset_are_removed() {
    let Some((broker, topic)) = topic(1) else { return };
    let log = connect(&broker, &topic).expect("the topic is there");
    for record in 0..5_u8 {
        log.append(&[record]).expect("it is appended");
    }
    log.truncate_before(3).expect("they are removed");
    assert_eq!(log.range(), Ok((3, 5)));
    let gone = log.read(2, Duration::from_millis(10));
    assert_eq!(gone, Err(LogError::OutOfRange { offset: 2, first: 3, end: 5 }));
    assert_eq!(log.append(&[5]), Ok(5));
}

#[test]
fn topics_have_identities() {
    let (Some((broker, one)), Some((_, other))) = (topic(1), topic(1)) else { return };
    let identity = |topic: &str| connect(&broker, topic).and_then(|log| log.identity());
    let expected = identity(&one).expect("the topic is there");
    assert_eq!(identity(&one).as_ref(), Ok(&expected));
    let options = KafkaOptions {
        insync_replicas_min: 1,
        identity: Some(expected.clone()),
        ..KafkaOptions::new(&[&broker], &other)
    };
    let refused = KafkaLog::open(&options).expect_err("it is another topic").to_string();
    assert!(refused.contains(&expected) && refused.contains("another cluster"), "{refused}");
}

#[test]
fn connections_are_encrypted_and_log_in() {
    let Some((_, topic)) = topic(1) else { return };
    let variable = |name: &str| std::env::var(name).expect("`.ci/kafka` sets it");
    let (broker, files) = (variable("WEFT_KAFKA_SECURE"), variable("WEFT_KAFKA_CERTIFICATES"));
    let tls = |authority: &str| {
        let authorities = PathBuf::from(&files).join(authority);
        Some(KafkaTls { authorities, client: None })
    };
    let login = |mechanism, password: &str| {
        let (user, password) = ("weft".to_owned(), password.to_owned());
        Some(KafkaLogin { mechanism, user, password })
    };
    let open = |tls, login| {
        let options = KafkaOptions {
            insync_replicas_min: 1,
            timeout: Duration::from_secs(5),
            tls,
            login,
            ..KafkaOptions::new(&[&broker], &topic)
        };
        assert!(!format!("{options:?}").contains("secret"));
        KafkaLog::open(&options)
    };
    use KafkaMechanism::{Plain, ScramSha256, ScramSha512};
    for (offset, mechanism) in (0..).zip([Plain, ScramSha256, ScramSha512]) {
        let log = open(tls("authority.pem"), login(mechanism, "secret")).expect("it opens");
        assert_eq!(log.append(b"record"), Ok(offset), "{mechanism:?}");
        let refused = open(tls("authority.pem"), login(mechanism, "wrong")).expect_err("no");
        let (user, name) = ("does not let user `weft` in", mechanism.name());
        assert!(matches!(refused, LogError::Misconfigured(_)), "{refused:?}");
        let refused = refused.to_string();
        assert!(refused.contains(user) && refused.contains(name), "{refused}");
        println!("{refused}");
    }
    let right = || login(ScramSha512, "secret");
    for (tls, login, expected) in [
        (tls("other.pem"), right(), "no encrypted connection"),
        (tls("missing.pem"), right(), "cannot read a certificate or key from"),
        (tls("broker.key"), right(), "cannot read a certificate or key from"),
        (tls("authority.pem"), None, "it may want TLS or a password"),
        (None, right(), "it may want TLS or a password"),
    ] {
        let refused = open(tls, login).expect_err("it is refused").to_string();
        println!("{refused}");
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn nodes_take_over_from_each_other() {
    let Some((broker, topic)) = topic(1) else { return };
    let options = Options {
        silence: None,
        lease: Duration::from_millis(200),
        heartbeat: Duration::from_millis(50),
        ..Options::default()
    };
    let start = || -> Node<_> {
        let log = Arc::new(connect(&broker, &topic).expect("the topic is there"));
        let builder = NodeBuilder::new(|| Database::builder().workers_max(4)).table::<Account>();
        builder.options(options.clone()).start(log).expect("the node starts")
    };
    let nodes = [start(), start()];
    for round in 0..4_u32 {
        let node = &nodes[round as usize % 2];
        let primary = node.promote(LONG).expect("it becomes the primary");
        let accounts = primary.database().table::<Account>().expect("it is there");
        let mut token = Default::default();
        for _ in 0..25 {
            let added = primary.transact(|tx| {
                let cents = tx.get(&accounts, &1)?.map_or(0, |account| account.cents);
                Ok::<_, ReplicationError>(
                    tx.upsert(&accounts, Account { id: 1, cents: cents + 1 })?,
                )
            });
            token = added.expect("it commits").1;
        }
        for node in &nodes {
            node.wait_for(token, LONG).expect("it follows");
        }
        let view = nodes[(round as usize + 1) % 2].snapshot().expect("it is there");
        let accounts = view.table::<Account>().expect("it is there");
        let row = view.snapshot().get(&accounts, &1).expect("it can be read");
        assert_eq!(row.map(|account| account.cents), Some(25 * (i64::from(round) + 1)));
    }
}

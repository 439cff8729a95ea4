//! A network between the nodes and the brokers, and between the brokers, in which links can be cut.
//!
//! Each broker has a listener for each node, which advertises the address of a proxy. So a node reaches a broker only
//! through the proxy of that pair. The brokers reach each other through one proxy for each destination, which learns from
//! the first request who is asking: it has the name of the client.
//!
//! A link that is cut keeps its connections, as a cable that was pulled does: bytes wait, and arrive when it is whole again.

use std::collections::HashSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    Node(usize),
    Broker(usize),
    Other,
}

/// A way from a party to a broker.
pub type Link = (Party, usize);

/// The network.
pub struct Network {
    runtime: Runtime,
    cuts: Arc<watch::Sender<HashSet<Link>>>,
}

impl Network {
    pub fn new() -> Network {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let cuts = Arc::new(watch::Sender::new(HashSet::new()));
        Network { runtime: runtime.expect("a runtime"), cuts }
    }

    /// Makes a proxy to a broker's port, and returns the proxy's port. `from` is `None` if many parties use it.
    pub fn proxy(&self, from: Option<Party>, broker: usize, target: u16) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = self.runtime.block_on(listener).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let cuts = Arc::clone(&self.cuts);
        self.runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connection = connect(client, from, broker, target, Arc::clone(&cuts));
                tokio::spawn(connection);
            }
        });
        port
    }

    /// Cuts links.
    pub fn cut(&self, links: impl IntoIterator<Item = Link>) {
        self.cuts.send_modify(|cuts| cuts.extend(links));
    }

    /// Makes all links whole again.
    pub fn heal(&self) {
        self.cuts.send_modify(HashSet::clear);
    }
}

async fn connect(
    mut client: TcpStream,
    from: Option<Party>,
    broker: usize,
    target: u16,
    cuts: Arc<watch::Sender<HashSet<Link>>>,
) -> io::Result<()> {
    let (mut begin, mut from) = (Vec::new(), from);
    if from.is_none() {
        (begin, from) = introduce(&mut client).await.map(|(bytes, party)| (bytes, Some(party)))?;
    }
    let link = (from.unwrap_or(Party::Other), broker);
    open(&cuts, link).await;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    server.write_all(&begin).await?;
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    // When one direction ends, both do.
    tokio::select! {
        ended = copy(from_client, to_server, &cuts, link) => ended,
        ended = copy(from_server, to_client, &cuts, link) => ended,
    }
}

/// Reads the beginning of the first request. Its header is the length (4 bytes), the kind (2), the version (2), a number (4),
/// and the client's name behind its length (2).
async fn introduce(client: &mut TcpStream) -> io::Result<(Vec<u8>, Party)> {
    let mut bytes = vec![0; 14];
    client.read_exact(&mut bytes).await?;
    let length = u16::from_be_bytes([bytes[12], bytes[13]]);
    let mut name = vec![0; usize::from(if length == u16::MAX { 0 } else { length })];
    client.read_exact(&mut name).await?;
    bytes.extend_from_slice(&name);
    // Brokers call themselves `broker-1-fetcher-0`, `raft-client-1`, or `1`.
    let name = String::from_utf8_lossy(&name);
    let digits = name.split(|character: char| !character.is_ascii_digit());
    let number = digits.filter_map(|digits| digits.parse().ok()).next();
    Ok((bytes, number.map_or(Party::Other, Party::Broker)))
}

/// Waits until a link is whole.
async fn open(cuts: &watch::Sender<HashSet<Link>>, link: Link) {
    let mut cuts = cuts.subscribe();
    // An error would mean that the network is gone.
    let _ = cuts.wait_for(|cuts| !cuts.contains(&link)).await;
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    cuts: &watch::Sender<HashSet<Link>>,
    link: Link,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        open(cuts, link).await;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
    }
}

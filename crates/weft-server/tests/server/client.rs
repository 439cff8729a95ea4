//! A server within the test, and a client that sees every byte of its replies.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use weft_server::{Listeners, Options, Server};

/// A server on a free port, in memory unless the options say otherwise.
pub struct TestServer {
    pub address: SocketAddr,
    /// Where it listens if it has a certificate.
    pub tls_address: SocketAddr,
    http_address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let has_certificate = options.listen.tls.certificate.is_some();
        Self::of_with_tls(Server::open(options).unwrap(), has_certificate)
    }

    pub fn of(server: Arc<Server>) -> Self {
        Self::of_with_tls(server, false)
    }

    fn of_with_tls(server: Arc<Server>, has_certificate: bool) -> Self {
        let [listener, tls, http] = std::array::from_fn(|_| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let address = listener.local_addr().unwrap();
        let tls_address = tls.local_addr().unwrap();
        let http_address = http.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let tls = has_certificate.then_some(tls).into_iter();
                let tls = tls.map(|tls| tokio::net::TcpListener::from_std(tls).unwrap()).collect();
                let stop = async { drop(stopped.await) };
                let http = vec![tokio::net::TcpListener::from_std(http).unwrap()];
                let tcp = vec![listener];
                let listeners = Listeners { tcp, tls, http, ..Listeners::default() };
                server.serve(listeners, stop).await.unwrap();
            });
        });
        TestServer { address, tls_address, http_address, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks for a page. Returns the status and the text.
    pub fn page(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http_address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Runs `work` with so many clients at the same time, each on a thread of its own, and with the number of each.
    pub fn with_clients(&self, clients: usize, work: impl Fn(usize, Client) + Sync) {
        std::thread::scope(|scope| {
            for number in 0..clients {
                let work = &work;
                scope.spawn(move || work(number, self.client()));
            }
        });
    }

    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Stops the server, which says that it cannot make its last commits durable.
    pub fn stop_with_failed_log(mut self) {
        drop(self.stop.take());
        assert!(self.thread.take().is_some_and(|thread| thread.join().is_err()));
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A line: a word, an error, an integer, a number with a fraction, a null of RESP3. The kind is in front.
    Line(String),
    Text(Vec<u8>),
    Null,
    /// The kind, and the elements.
    List(char, Vec<Value>),
}

impl Value {
    /// Returns the reply as one line.
    pub fn shown(&self) -> String {
        match self {
            Value::Line(line) => line.clone(),
            Value::Text(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            Value::Null => "null".to_owned(),
            Value::List(kind, values) => {
                let values: Vec<_> = values.iter().map(Value::shown).collect();
                format!("{kind}[{}]", values.join(", "))
            }
        }
    }

    /// Sorts the elements of a list.
    pub fn sorted(mut self) -> Self {
        if let Value::List(_, values) = &mut self {
            values.sort_by_key(Value::shown);
        }
        self
    }
}

/// How long a client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection of either kind.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A client.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: BufReader::new(Box::new(stream)) }
    }

    /// A client of a server on a Unix socket.
    pub fn local(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: BufReader::new(Box::new(stream)) }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        // If the server has closed the connection, the next read says so.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends a line of words, and returns the reply.
    pub fn line(&mut self, line: &str) -> Value {
        self.send(format!("{line}\r\n").as_bytes());
        self.read().expect("the server replies")
    }

    /// Sends a line of words, and returns the reply as one line.
    pub fn say(&mut self, line: &str) -> String {
        self.line(line).shown()
    }

    /// Sends arguments, and returns the reply.
    pub fn call(&mut self, arguments: &[&[u8]]) -> Value {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(*argument);
            bytes.extend(b"\r\n");
        }
        self.send(&bytes);
        self.read().expect("the server replies")
    }

    /// Reads a reply. `None` if the connection has ended.
    pub fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => {
                // An error of this kind says that the time is over.
                let waits = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!waits, "the server neither replies nor closes the connection");
                return None;
            }
        }
        // A server that is killed may have sent a part of a line.
        let line = line.strip_suffix("\r\n")?;
        let (kind, rest) = (line.chars().next()?, &line[1..]);
        match kind {
            '$' | '=' if rest == "-1" => Some(Value::Null),
            '*' if rest == "-1" => Some(Value::Null),
            '$' | '=' => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                Some(Value::Text(bytes))
            }
            '*' | '~' | '%' | '>' => {
                let length = rest.parse::<usize>().unwrap() * if kind == '%' { 2 } else { 1 };
                let values: Option<Vec<_>> = (0..length).map(|_| self.read()).collect();
                Some(Value::List(kind, values?))
            }
            _ => Some(Value::Line(line.to_owned())),
        }
    }
}

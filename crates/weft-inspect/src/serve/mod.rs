//! The page of a database, and its reports, over HTTP.
//!
//! | path | what it has |
//! | --- | --- |
//! | `/` | the page, for a browser |
//! | `/report` | the newest [report](crate::Report), as JSON |
//! | `/metrics` | the same as metrics, in the OpenMetrics text format that Prometheus reads |
//! | `/events` | a report every second, as server-sent events, beginning with those of the last minutes |
//!
//! One thread, `weft-inspect`, makes the reports and serves all connections. What strangers can make it do is bounded:
//!
//! - There are at most [`CONNECTIONS_MAX`] connections, and the server closes further ones as soon as it has accepted them.
//! - A connection is closed if it does not send its request, or does not read its answer, within [`PATIENCE`].
//! - A report is made at most ten times a second, and all connections share its bytes.
//! - Requests cannot change anything.

mod feed;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Either;
use http_body_util::{Full, channel::Channel};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};
use tokio_io_timeout::TimeoutStream;
use weft::Database;
use weft::protocol::Protocol;

use crate::openmetrics;
use crate::source::Source;
use feed::Feed;

/// The most connections at a time.
pub const CONNECTIONS_MAX: usize = 128;

/// The most connections at a time that follow the events: the others are left to scrapers.
pub const FOLLOWERS_MAX: usize = 32;

/// How long a client may take to send a request, and to read a part of an answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How much of a request a connection keeps, in bytes, and how much of an answer that the client has not read.
const BUFFER_BYTES: usize = 16 * 1024;

/// How long the server waits until it tries again to accept a connection, when it could not. This happens if the process has
/// too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves the page and the reports of a database, at a loopback address.
///
/// ```
/// # use weft::{Database, Record};
/// # #[derive(Clone, Record)]
/// # struct Page { #[record(key)] id: u32, views: u64 }
/// # fn main() -> std::io::Result<()> {
/// # let database = Database::builder().table::<Page>().open().unwrap();
/// let server = weft_inspect::serve(&database, "127.0.0.1:0")?;
/// println!("http://{}", server.address());
/// # Ok(())
/// # }
/// ```
///
/// The server stops when the returned value is dropped. Until then it keeps the database open, like a handle.
///
/// # Errors
/// If the address is not one of this machine, is in use, or is not a loopback address. Other addresses need a
/// [token](ServeOptions::token).
pub fn serve<P: Protocol>(
    database: &Database<P>,
    address: impl ToSocketAddrs,
) -> io::Result<Server> {
    ServeOptions::new().serve(database, address)
}

/// Options of a server.
#[derive(Clone, Debug)]
#[must_use]
pub struct ServeOptions {
    token: Option<String>,
    interval: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions { token: None, interval: Duration::from_secs(1) }
    }
}

impl ServeOptions {
    /// Returns the default options: no token, and a report every second.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a secret that clients must send: `Authorization: Bearer TOKEN`. A browser opens `http://ADDRESS/#TOKEN`, and the
    /// page sends it. The connection is not encrypted, so in a network that others use, put a proxy with TLS before it.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the time between two reports of `/events` (1 second by default).
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Starts to serve.
    ///
    /// # Errors
    /// If the address is not one of this machine, or is in use. If it is not a loopback address and there is no token,
    /// or the token is empty.
    pub fn serve<P: Protocol>(
        &self,
        database: &Database<P>,
        address: impl ToSocketAddrs,
    ) -> io::Result<Server> {
        let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let addresses: Vec<_> = address.to_socket_addrs()?.collect();
        if self.token.as_ref().is_some_and(String::is_empty) {
            return refused("the token is empty: set a secret that cannot be guessed".to_owned());
        }
        if self.token.is_none()
            && let Some(address) = addresses.iter().find(|address| !address.ip().is_loopback())
        {
            return refused(format!(
                "{address} can be reached from other machines: set ServeOptions::token, or use a \
                 loopback address such as 127.0.0.1"
            ));
        }
        let listener = TcpListener::bind(&*addresses)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let site = Arc::new(Site {
            token: self.token.clone(),
            feed: Feed::new(Source::of(database)),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let interval = self.interval.max(Duration::from_millis(1));
        let thread =
            std::thread::Builder::new().name("weft-inspect".to_owned()).spawn(move || {
                let fed = Arc::clone(&site);
                runtime.spawn(async move { fed.feed.run(interval).await });
                runtime.spawn(async move { accept(listener, &site).await });
                // The other end is dropped with the server, and the connections with the runtime.
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }
}

/// A server, which stops when this is dropped.
#[derive(Debug)]
#[must_use = "the server stops when it is dropped"]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Returns the address at which it serves. It has the port that the system chose, if it was asked for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

/// What the connections share.
struct Site {
    token: Option<String>,
    feed: Feed,
    /// A permit for each connection that may follow the events.
    followers: Arc<Semaphore>,
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// Accepts connections, and serves each in a task of its own.
async fn accept(listener: TcpListener, site: &Arc<Site>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else { continue };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(PATIENCE));
        let site = Arc::clone(site);
        let answer = service_fn(move |request| {
            let site = Arc::clone(&site);
            async move { Ok::<_, Infallible>(site.answer(&request)) }
        });
        tokio::spawn(async move {
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            server.max_buf_size(BUFFER_BYTES);
            // A client that breaks the protocol, or goes away, is not of interest.
            let _ = server.serve_connection(TokioIo::new(Box::pin(stream)), answer).await;
            drop(permit);
        });
    }
}

impl Site {
    fn answer(self: &Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = message(StatusCode::METHOD_NOT_ALLOWED, "only GET is possible");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if self.token.is_none() && !is_addressed_by_number(request) {
            // A page of a stranger could have let its own name point to this machine.
            return message(StatusCode::FORBIDDEN, "use 127.0.0.1 or localhost as the address");
        }
        let path = request.uri().path();
        // The page has no data. It asks for the token if it has none.
        if path != "/" && !self.is_allowed(request) {
            let mut response =
                message(StatusCode::UNAUTHORIZED, "send the token: Authorization: Bearer TOKEN");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        match path {
            "/" => self.page(),
            "/report" => match self.feed.report() {
                Ok(report) => full("application/json", report.json),
                Err(error) => message(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            },
            "/metrics" => match self.feed.report() {
                Ok(report) => full(openmetrics::CONTENT_TYPE, openmetrics::text(&report.report)),
                Err(error) => message(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            },
            "/events" => self.follow(request),
            _ => message(StatusCode::NOT_FOUND, "there are /, /report, /metrics and /events"),
        }
    }

    fn page(&self) -> Response<Body> {
        let page = crate::page::live(self.token.is_some());
        let mut response = full("text/html; charset=utf-8", page);
        let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        response
    }

    /// Returns whether a request has the token, if there is one.
    fn is_allowed(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let sent = sent.and_then(|sent| sent.strip_prefix(b"Bearer ")).unwrap_or_default();
        // The time that this takes does not depend on how many bytes are right.
        let differing = sent.iter().zip(token.as_bytes()).map(|(left, right)| left ^ right);
        sent.len() == token.len() && differing.fold(0, |all, byte| all | byte) == 0
    }

    fn follow(self: &Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        let (mut sender, body) = Channel::new(1);
        if request.method() == Method::GET {
            let Ok(permit) = Arc::clone(&self.followers).try_acquire_owned() else {
                let mut response = message(StatusCode::SERVICE_UNAVAILABLE, "too many followers");
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
                return response;
            };
            let site = Arc::clone(self);
            tokio::spawn(async move {
                let mut follower = site.feed.follow();
                while let Some(event) = follower.next().await {
                    if sender.send_data(event).await.is_err() {
                        break;
                    }
                }
                drop(permit);
            });
        }
        respond(StatusCode::OK, "text/event-stream", Either::Right(body))
    }
}

/// Returns whether the browser has opened this address by its number, or as `localhost`. Programs that send no host are no
/// browsers.
fn is_addressed_by_number(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.contains(']'))
        .map_or(host, |(host, _)| host);
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

fn message(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let body = Full::new(Bytes::from(text.into() + "\n"));
    respond(status, "text/plain; charset=utf-8", Either::Left(body))
}

fn full(content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    respond(StatusCode::OK, content_type, Either::Left(Full::new(body.into())))
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

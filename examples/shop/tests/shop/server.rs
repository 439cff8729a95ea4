//! A shop that serves requests, and its clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weft::{Database, ManualClock};
use weft_shop::http;
use weft_shop::shop::Shop;

/// A directory of a test, which is removed at its end.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weft-shop-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A shop that serves requests.
pub struct Server {
    pub address: SocketAddr,
    pub shop: Shop,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Server {
    pub async fn start(directory: &Path) -> Server {
        Server::serve(Shop::open(directory).unwrap()).await
    }

    /// Starts a shop whose time is that of a clock.
    pub async fn start_at(directory: &Path, clock: &ManualClock) -> Server {
        let builder = Database::builder().directory(directory).clock(clock);
        Server::serve(Shop::open_with(builder).unwrap()).await
    }

    async fn serve(shop: Shop) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let served = http::serve(listener, shop.clone(), stopped);
        let served = tokio::spawn(async { served.await.unwrap() });
        Server { address, shop, stop, served }
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap();
    }

    /// Sends a request with a key, and returns the answer.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        key: &str,
        body: Option<Value>,
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "shop");
        if !key.is_empty() {
            request = request.header("idempotency-key", key);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        client.send_request(request).await.unwrap()
    }

    /// Sends a request with a key, and returns the status and the body.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        key: &str,
        body: Option<Value>,
    ) -> (StatusCode, String) {
        let answer = self.request(method, path, key, body).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, "", None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub async fn put(&self, path: &str, body: Value) {
        let (status, answer) = self.send(Method::PUT, path, "", Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    }

    pub async fn post(&self, path: &str, key: &str, body: Option<Value>) -> (StatusCode, String) {
        self.send(Method::POST, path, key, body).await
    }

    /// Opens an account with money and an item, of which ten pieces are there and three are in the cart.
    pub async fn furnish(&self) {
        self.put("/accounts/1", json!({"owner": "Ada"})).await;
        let (status, _) =
            self.post("/accounts/1/payments", "p1", Some(json!({"cents": 10_000}))).await;
        assert_eq!(status, StatusCode::OK);
        self.put("/items/7", json!({"name": "Lamp", "price_cents": 2_000, "left": 10})).await;
        self.put("/accounts/1/cart/7", json!({"pieces": 3})).await;
    }

    /// Says how many pieces of item 7 are in the cart of an account, and returns the status and the message.
    pub async fn put_in_cart(&self, account: u64, pieces: i64) -> (StatusCode, String) {
        let path = format!("/accounts/{account}/cart/7");
        self.send(Method::PUT, &path, "", Some(json!({"pieces": pieces}))).await
    }

    /// Returns how many pieces of item 7 are left.
    pub async fn left(&self) -> i64 {
        self.get("/items").await[0]["left"].as_i64().unwrap()
    }
}

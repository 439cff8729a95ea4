//! The stream of what changes.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::server::{Directory, Server};

/// A browser that shows auction 1.
struct Browser {
    body: Incoming,
    updates: VecDeque<Value>,
}

impl Browser {
    async fn open(server: &Server) -> Browser {
        let answer = server.request(Method::GET, "/live/1", "", None).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Browser { body: answer.into_body(), updates: VecDeque::new() }
    }

    /// Returns the next update, or `None` if the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        let mut bytes = Vec::new();
        while self.updates.is_empty() {
            bytes.extend(self.body.frame().await?.unwrap().into_data().unwrap());
            if bytes.ends_with(b"\n\n") {
                let text = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
                // The other lines are comments, which keep the connection alive.
                let updates = text.lines().filter_map(|line| line.strip_prefix("data: "));
                self.updates.extend(updates.map(|it| serde_json::from_str::<Value>(it).unwrap()));
            }
        }
        self.updates.pop_front()
    }

    /// Waits for an update that fulfils a condition.
    async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let update = self.next().await.expect("the shop is open");
            if is_it(&update) {
                return update;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_see_what_the_others_do() {
    let directory = Directory::new("live");
    let server = Server::start(&directory.0).await;
    server.furnish().await;
    server.put("/auctions/1", json!({"name": "Painting"})).await;
    server.put("/auctions/2", json!({"name": "Vase"})).await;
    let (mut first, mut second) = (Browser::open(&server).await, Browser::open(&server).await);
    for browser in [&mut first, &mut second] {
        // At the beginning a browser gets everything.
        let update = browser.next().await.unwrap();
        let lamp = json!({"id": 7, "name": "Lamp", "price_cents": 2_000, "left": 7});
        let auction = json!({"name": "Painting", "bids": 0, "leaders": []});
        assert_eq!(update, json!({"missed": 0, "items": [lamp], "auction": auction}));
    }
    let bid = Some(json!({"account": 1, "cents": 500}));
    // The browsers do not show the second auction.
    assert_eq!(server.post("/auctions/2/bids", "", bid.clone()).await.0, StatusCode::OK);
    assert_eq!(server.post("/auctions/1/bids", "", bid).await.0, StatusCode::OK);
    for browser in [&mut first, &mut second] {
        let update = browser.until(|update| update["auction"]["bids"] == 1).await;
        let auction =
            json!({"name": "Painting", "bids": 1, "leaders": [{"owner": "Ada", "cents": 500}]});
        assert_eq!(update["auction"], auction);
    }
    server.put_in_cart(1, 5).await;
    for browser in [&mut first, &mut second] {
        browser.until(|update| update["items"][0]["left"] == 5).await;
    }
    server.stop().await;
    for mut browser in [first, second] {
        while browser.next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_browser_is_told_so_and_delays_nothing() {
    const ITEMS: u64 = 400;
    // Other items than those with the long names, which the slow browser must still find when it is told of them.
    const FIRST: u64 = 101;
    let directory = Directory::new("slow");
    let server = Server::start(&directory.0).await;
    let mut slow = Browser::open(&server).await;
    let mut quick = Browser::open(&server).await;
    fill_buffers(&server).await;
    for id in FIRST..FIRST + ITEMS {
        server.put(&format!("/items/{id}"), item("Lamp", 1)).await;
        if id % 100 == 0 {
            let is_it = |one: &Value| one["id"] == id;
            let update = quick.until(|it| it["items"].as_array().unwrap().iter().any(is_it)).await;
            assert_eq!(update["missed"], 0);
        }
    }
    let update = slow.until(|update| update["missed"] != 0).await;
    assert_eq!(update["items"].as_array().unwrap().len() as u64, LONG_NAMES + ITEMS);
    server.put("/items/1", item("Desk", 3)).await;
    slow.until(|update| {
        update["items"] == json!([{"id": 1, "name": "Desk", "price_cents": 1, "left": 3}])
    })
    .await;
    server.stop().await;
}

/// The body of a request that adds an item.
fn item(name: &str, left: i64) -> Value {
    json!({"name": name, "price_cents": 1, "left": left})
}

/// How many items have long names.
const LONG_NAMES: u64 = 20;

/// Makes changes that are larger than the buffers of a connection.
async fn fill_buffers(server: &Server) {
    let name = "Lamp".repeat(250_000);
    for id in 1..=LONG_NAMES {
        server.put(&format!("/items/{id}"), item(&name, 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_reads_nothing_does_not_keep_the_shop_open() {
    let directory = Directory::new("reads-nothing");
    let server = Server::start(&directory.0).await;
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"GET /live/1 HTTP/1.1\r\nHost: shop\r\n\r\n").unwrap();
    fill_buffers(&server).await;
    server.stop().await;
    drop(stream);
}

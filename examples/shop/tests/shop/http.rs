//! The requests.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use weft::{Database, Record};
use weft_shop::limits::CALLS_MAX;
use weft_shop::orders::{Order, Sold};
use weft_shop::stock::Item;

use crate::server::{Directory, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_order_is_one_order_across_a_restart() {
    let directory = Directory::new("orders");
    let server = Server::start(&directory.0).await;
    server.furnish().await;
    let order = |key: &'static str| server.post("/accounts/1/orders", key, None);
    let (first, second) = tokio::join!(order("o1"), order("o1"));
    assert_eq!((first.0, &first.1), (StatusCode::OK, &r#"{"number":1,"cents":6000}"#.to_owned()));
    assert_eq!(first, second);
    server.stop().await;

    let server = Server::start(&directory.0).await;
    assert_eq!(server.post("/accounts/1/orders", "o1", None).await, first);
    let empty = server.post("/accounts/1/orders", "o2", None).await;
    assert_eq!(empty, (StatusCode::CONFLICT, "the cart is empty".to_owned()));
    // The key of a payment is no key of an order.
    let (status, message) = server.post("/accounts/1/orders", "p1", None).await;
    assert_eq!(status, StatusCode::CONFLICT, "{message}");
    assert_eq!(server.get("/accounts/1").await["cents"], 4_000);
    assert_eq!(server.left().await, 7);
    assert_eq!(server.get("/accounts/1/orders").await.as_array().unwrap().len(), 1);
    let report = server.get("/report").await;
    assert_eq!(report["sales"], json!([{"item": 7, "pieces": 3, "cents": 6_000}]));
    assert_eq!(report["is_right"], true);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_money_nor_stock_goes_below_zero() {
    let directory = Directory::new("bounds");
    let server = Server::start(&directory.0).await;
    server.furnish().await;
    server.put("/accounts/1/cart/7", json!({"pieces": 6})).await;
    let (status, message) = server.post("/accounts/1/orders", "o1", None).await;
    assert_eq!((status, &*message), (StatusCode::CONFLICT, "not enough: cents of accounts"));
    let (status, message) = server.put_in_cart(1, 11).await;
    assert_eq!((status, &*message), (StatusCode::CONFLICT, "not enough: left of items"));
    let (status, message) = server.put_in_cart(1, -1).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{message}");
    let (status, message) = server.post("/accounts/1/orders", "", None).await;
    assert_eq!((status, &*message), (StatusCode::BAD_REQUEST, "give an Idempotency-Key"));
    // None of these has changed anything, nor used the key up.
    assert_eq!(server.left().await, 4);
    server.put("/accounts/1/cart/7", json!({"pieces": 5})).await;
    let (status, _) = server.post("/accounts/1/orders", "o1", None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(server.get("/accounts/1").await["cents"], 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leaderboard_has_the_best_bid_of_each_bidder() {
    let directory = Directory::new("bids");
    let server = Server::start(&directory.0).await;
    server.put("/accounts/1", json!({"owner": "Ada"})).await;
    server.put("/accounts/2", json!({"owner": "Ben"})).await;
    server.put("/auctions/1", json!({"name": "Painting"})).await;
    for (account, cents) in [(1, 500), (2, 700), (1, 900), (2, 600)] {
        let bid = Some(json!({"account": account, "cents": cents}));
        assert_eq!(server.post("/auctions/1/bids", "", bid).await.0, StatusCode::OK);
    }
    let board = server.get("/auctions/1").await;
    assert_eq!(board["bids"], 4);
    let leaders = json!([{"owner": "Ada", "cents": 900}, {"owner": "Ben", "cents": 700}]);
    assert_eq!(board["leaders"], leaders);
    let nothing = Some(json!({"account": 1, "cents": 0}));
    assert_eq!(server.post("/auctions/1/bids", "", nothing).await.0, StatusCode::BAD_REQUEST);
    let nobody = Some(json!({"account": 3, "cents": 1}));
    assert_eq!(server.post("/auctions/1/bids", "", nobody).await.0, StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_makes_a_limited_number_of_requests() {
    let directory = Directory::new("limits");
    let server = Server::start(&directory.0).await;
    server.put("/accounts/1", json!({"owner": "Ada"})).await;
    server.put("/auctions/1", json!({"name": "Painting"})).await;
    let mut refused = false;
    // One second at least has more requests than are allowed, unless the machine stands still.
    for _ in 0..100 * CALLS_MAX {
        let bid = Some(json!({"account": 1, "cents": 5}));
        refused = server.post("/auctions/1/bids", "", bid).await.0 == StatusCode::TOO_MANY_REQUESTS;
        if refused {
            break;
        }
    }
    assert!(refused);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_health_and_metrics_are_served() {
    let directory = Directory::new("pages");
    let server = Server::start(&directory.0).await;
    let (status, page) = server.send(Method::GET, "/", "", None).await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("<title>Weft shop</title>") && !page.contains("http://"));
    assert_eq!(server.get("/health").await, Value::Null);
    let (_, metrics) = server.send(Method::GET, "/metrics", "", None).await;
    for line in metrics.lines() {
        let is_comment = line.starts_with("# TYPE shop_");
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse::<u64>().ok());
        assert!(is_comment || line.starts_with("shop_") && value.is_some(), "{line}");
    }
    assert!(metrics.contains("shop_transactions_committed_total"));
    server.stop().await;
}

/// The carts of version 1 reserved nothing.
#[derive(Clone, Record)]
#[record(table = "carts", key(account, item))]
struct OldCartLine {
    account: u64,
    item: u64,
    pieces: i64,
}

/// Version 1 of the shop had no table of sales.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_version_1_is_migrated() {
    let directory = Directory::new("version-1");
    let builder = Database::builder().table::<Item>().table::<OldCartLine>().table::<Order>();
    let database = builder.directory(&directory.0).version(1).open().unwrap();
    let items = database.table::<Item>().unwrap();
    let carts = database.table::<OldCartLine>().unwrap();
    let orders = database.table::<Order>().unwrap();
    let sold = |item, pieces| Sold { item, pieces, cents: 100 * pieces };
    database
        .transact(|tx| {
            for id in [7, 8] {
                let name = "Lamp".to_owned();
                tx.insert(&items, Item { id, name, price_cents: 100, left: 10 })?;
            }
            tx.insert(&carts, OldCartLine { account: 1, item: 7, pieces: 4 })?;
            tx.insert(
                &orders,
                Order { account: 1, number: 1, sold: vec![sold(7, 2), sold(8, 1)] },
            )?;
            tx.insert(&orders, Order { account: 2, number: 1, sold: vec![sold(7, 3)] })
        })
        .unwrap();
    database.close().unwrap();
    drop((database, items, carts, orders));
    let server = Server::start(&directory.0).await;
    let report = server.get("/report").await;
    let sales = json!([
        {"item": 7, "pieces": 5, "cents": 500},
        {"item": 8, "pieces": 1, "cents": 100},
    ]);
    assert_eq!(report["sales"], sales);
    assert_eq!(report["is_right"], true);
    assert_eq!(server.get("/accounts/1/cart").await, json!([]));
    assert_eq!(server.left().await, 10);
    server.stop().await;
}

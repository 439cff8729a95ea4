//! Carts reserve what is in them, and expire.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;
use weft::{ManualClock, Timestamp};
use weft_shop::carts::RESERVED;

use crate::server::{Directory, Server};

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_millis(1_800_000_000_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_reserves_its_pieces_until_it_expires() {
    let (directory, clock) = (Directory::new("expiry"), clock());
    let server = Server::start_at(&directory.0, &clock).await;
    server.furnish().await;
    assert_eq!(server.left().await, 7);
    // Only the difference is taken from the stock, or given back.
    server.put_in_cart(1, 5).await;
    assert_eq!(server.left().await, 5);
    server.put_in_cart(1, 0).await;
    assert_eq!(server.left().await, 10);
    server.put_in_cart(1, 2).await;
    let until = (clock.time() + RESERVED).as_millis();
    let cart = json!([{"account": 1, "item": 7, "pieces": 2, "until": until}]);
    assert_eq!(server.get("/accounts/1/cart").await, cart);

    clock.advance(RESERVED - Duration::from_millis(1));
    assert_eq!(server.shop.database.remove_expired().unwrap(), 0);
    assert_eq!(server.left().await, 8);
    // The customer comes back in time.
    server.put_in_cart(1, 3).await;
    clock.advance(RESERVED - Duration::from_millis(1));
    assert_eq!(server.shop.database.remove_expired().unwrap(), 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(server.shop.database.remove_expired().unwrap(), 1);
    assert_eq!(server.left().await, 10);
    assert_eq!(server.get("/accounts/1/cart").await, json!([]));
    let (status, message) = server.post("/accounts/1/orders", "o1", None).await;
    assert_eq!((status, &*message), (StatusCode::CONFLICT, "the cart is empty"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_gets_what_an_expired_cart_has_reserved() {
    let (directory, clock) = (Directory::new("expired"), clock());
    let server = Server::start_at(&directory.0, &clock).await;
    server.furnish().await;
    server.put("/accounts/2", json!({"owner": "Ben"})).await;
    let (status, message) = server.put_in_cart(2, 8).await;
    assert_eq!((status, &*message), (StatusCode::CONFLICT, "not enough: left of items"));
    clock.advance(RESERVED);
    // There is enough without the expired cart, which stays until its pieces are needed.
    assert_eq!(server.put_in_cart(2, 7).await.0, StatusCode::OK);
    assert_eq!(server.put_in_cart(1, 3).await.0, StatusCode::OK);
    clock.advance(RESERVED);
    assert_eq!(server.put_in_cart(2, 9).await.0, StatusCode::OK);
    assert_eq!(server.left().await, 1);
    assert_eq!(server.get("/accounts/1/cart").await, json!([]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn carts_expire_across_a_restart() {
    let (directory, clock) = (Directory::new("expired-restart"), clock());
    let server = Server::start_at(&directory.0, &clock).await;
    server.furnish().await;
    server.stop().await;
    let server = Server::start_at(&directory.0, &clock).await;
    assert_eq!(server.left().await, 7);
    assert_eq!(server.shop.database.remove_expired().unwrap(), 0);
    server.stop().await;
    clock.advance(RESERVED);
    let server = Server::start_at(&directory.0, &clock).await;
    assert_eq!(server.shop.database.remove_expired().unwrap(), 1);
    assert_eq!(server.left().await, 10);
    server.stop().await;
}

/// Customers want more than there is, change their minds, order, and carts expire, all at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn no_piece_is_lost_or_sold_twice() {
    const PIECES: i64 = 12;
    let (directory, clock) = (Directory::new("pieces"), clock());
    let server = Server::start_at(&directory.0, &clock).await;
    server.put("/items/7", json!({"name": "Lamp", "price_cents": 1, "left": PIECES})).await;
    for account in 1..=4 {
        server.put(&format!("/accounts/{account}"), json!({"owner": "Ada"})).await;
        let payment = Some(json!({"cents": 1_000}));
        server.post(&format!("/accounts/{account}/payments"), "p", payment).await;
    }
    let customer = async |account: u64| {
        for round in 0..12 {
            server.put_in_cart(account, round % 5).await;
            if account == 1 {
                clock.advance(RESERVED / 3);
            }
            if round % 6 == 5 {
                let key = round.to_string();
                server.post(&format!("/accounts/{account}/orders"), &key, None).await;
            }
        }
    };
    tokio::join!(customer(1), customer(2), customer(3), customer(4));
    let mut reserved = 0;
    for account in 1..=4 {
        for line in server.get(&format!("/accounts/{account}/cart")).await.as_array().unwrap() {
            reserved += line["pieces"].as_i64().unwrap();
        }
    }
    let report = server.get("/report").await;
    let sold = report["sales"][0]["pieces"].as_i64().unwrap();
    assert_eq!(report["is_right"], true);
    assert_eq!(server.left().await + reserved + sold, PIECES, "reserved {reserved}, sold {sold}");
    clock.advance(RESERVED);
    server.shop.database.remove_expired().unwrap();
    assert_eq!(server.left().await + sold, PIECES);
    server.stop().await;
}

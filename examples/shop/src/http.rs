//! The requests over HTTP. Each is a transaction of a topic.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use weft::{Priority, SubmitOptions};

use crate::accounts::{self, Account};
use crate::auctions::{self, Leaderboard};
use crate::carts::{self, CartLine};
use crate::live::Live;
use crate::orders::{self, Order, Receipt};
use crate::refused::Refused;
use crate::report::{self, Report};
use crate::shop::Shop;
use crate::stock::{self, Item};
use crate::{limits, metrics};

/// The result of a request.
type Answer<T> = Result<Json<T>, Refused>;

/// How long a request may take after the shop was told to stop. Transactions have shorter deadlines.
const PATIENCE: Duration = Duration::from_secs(3);

/// Serves requests until `stop`, and closes the shop.
///
/// # Errors
/// If the shop's changes cannot be followed, and those of [`Shop::close`].
pub async fn serve(
    listener: TcpListener,
    shop: Shop,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let live = Live::start(&shop)?;
    let router = router(shop.clone(), live.clone());
    let stopping = Arc::new(Notify::new());
    let stop = {
        let stopping = Arc::clone(&stopping);
        async move {
            stop.await;
            // Otherwise the streams of the browsers would never end.
            live.stop();
            stopping.notify_one();
        }
    };
    let is_late = async {
        stopping.notified().await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        served = axum::serve(listener, router).with_graceful_shutdown(stop).into_future() => served?,
        // Someone does not read an answer.
        () = is_late => {}
    }
    Ok(shop.close().await?)
}

/// Returns the requests of a shop.
fn router(shop: Shop, live: Live) -> Router {
    let follow = async move |State(shop): State<Shop>, Path(auction): Path<u64>| {
        Sse::new(live.stream(shop, auction)).keep_alive(KeepAlive::default())
    };
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/accounts/{account}", get(show_account).put(open_account))
        .route("/accounts/{account}/payments", post(pay_in))
        .route("/accounts/{account}/cart", get(show_cart))
        .route("/accounts/{account}/cart/{item}", put(put_in_cart))
        .route("/accounts/{account}/orders", get(list_orders).post(place_order))
        .route("/items", get(list_items))
        .route("/items/{item}", put(put_item))
        .route("/items/{item}/stock", post(restock))
        .route("/auctions/{auction}", get(show_auction).put(open_auction))
        .route("/auctions/{auction}/bids", post(bid))
        .route("/live/{auction}", get(follow))
        .route("/report", get(make_report))
        .route("/health", get(health))
        .route("/metrics", get(async |State(shop): State<Shop>| metrics::text(&shop)))
        .with_state(shop)
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self {
            Refused::NotFound(_) => StatusCode::NOT_FOUND,
            Refused::Invalid(_) => StatusCode::BAD_REQUEST,
            Refused::NotEnough(_) | Refused::Conflict(_) => StatusCode::CONFLICT,
            Refused::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Refused::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Refused::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.to_string()).into_response()
    }
}

/// Returns the key of a request that may arrive twice. Each account has keys of its own.
fn request_key(headers: &HeaderMap, account: u64) -> Result<String, Refused> {
    let key = headers.get("Idempotency-Key").and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| Refused::Invalid("give an Idempotency-Key".to_owned()))?;
    Ok(format!("{account}/{key}"))
}

/// The body of a request that opens an account.
#[derive(Deserialize)]
struct Owner {
    owner: String,
}

async fn open_account(
    State(shop): State<Shop>,
    Path(account): Path<u64>,
    Json(body): Json<Owner>,
) -> Answer<()> {
    let done = shop
        .run("open account", move |tx, tables| accounts::open(tx, tables, account, &body.owner));
    done.await.map(Json)
}

async fn show_account(State(shop): State<Shop>, Path(account): Path<u64>) -> Answer<Account> {
    let done = shop.run("show account", move |tx, tables| accounts::show(tx, tables, account));
    done.await.map(Json)
}

/// The body of a payment.
#[derive(Deserialize)]
struct Payment {
    cents: i64,
}

async fn pay_in(
    State(shop): State<Shop>,
    Path(account): Path<u64>,
    headers: HeaderMap,
    Json(body): Json<Payment>,
) -> Answer<()> {
    let key = request_key(&headers, account)?;
    let done = shop.run_once("pay in", &key, move |tx, tables| {
        accounts::pay_in(tx, tables, account, body.cents)
    });
    done.await.map(Json)
}

/// The body of a request that names pieces of an item.
#[derive(Deserialize)]
struct Pieces {
    pieces: i64,
}

async fn put_in_cart(
    State(shop): State<Shop>,
    Path((account, item)): Path<(u64, u64)>,
    Json(body): Json<Pieces>,
) -> Answer<()> {
    let done = shop
        .run("put in cart", move |tx, tables| carts::put(tx, tables, account, item, body.pieces));
    done.await.map(Json)
}

async fn show_cart(State(shop): State<Shop>, Path(account): Path<u64>) -> Answer<Vec<CartLine>> {
    let done = shop.run("show cart", move |tx, tables| carts::show(tx, tables, account));
    done.await.map(Json)
}

async fn place_order(
    State(shop): State<Shop>,
    Path(account): Path<u64>,
    headers: HeaderMap,
) -> Answer<Receipt> {
    let key = request_key(&headers, account)?;
    shop.run("count calls", move |tx, tables| limits::count(tx, tables, account)).await?;
    let done = shop.run_once("order", &key, move |tx, tables| orders::place(tx, tables, account));
    done.await.map(Json)
}

async fn list_orders(State(shop): State<Shop>, Path(account): Path<u64>) -> Answer<Vec<Order>> {
    let done = shop.run("list orders", move |tx, tables| orders::list(tx, tables, account));
    done.await.map(Json)
}

async fn list_items(State(shop): State<Shop>) -> Answer<Vec<Item>> {
    shop.run("list items", stock::list).await.map(Json)
}

/// The body of a request that adds or replaces an item.
#[derive(Deserialize)]
struct NewItem {
    name: String,
    price_cents: i64,
    left: i64,
}

async fn put_item(
    State(shop): State<Shop>,
    Path(id): Path<u64>,
    Json(NewItem { name, price_cents, left }): Json<NewItem>,
) -> Answer<()> {
    let item = Item { id, name, price_cents, left };
    let done = shop.run("put item", move |tx, tables| stock::put(tx, tables, item.clone()));
    done.await.map(Json)
}

async fn restock(
    State(shop): State<Shop>,
    Path(item): Path<u64>,
    Json(body): Json<Pieces>,
) -> Answer<()> {
    let done = shop.run("restock", move |tx, tables| stock::restock(tx, tables, item, body.pieces));
    done.await.map(Json)
}

/// The body of a request that opens an auction.
#[derive(Deserialize)]
struct Name {
    name: String,
}

async fn open_auction(
    State(shop): State<Shop>,
    Path(auction): Path<u64>,
    Json(body): Json<Name>,
) -> Answer<()> {
    let done =
        shop.run("open auction", move |tx, tables| auctions::open(tx, tables, auction, &body.name));
    done.await.map(Json)
}

/// The body of a bid.
#[derive(Deserialize)]
struct Bid {
    account: u64,
    cents: i64,
}

async fn bid(
    State(shop): State<Shop>,
    Path(auction): Path<u64>,
    Json(Bid { account, cents }): Json<Bid>,
) -> Answer<()> {
    shop.run("count calls", move |tx, tables| limits::count(tx, tables, account)).await?;
    let done =
        shop.run("bid", move |tx, tables| auctions::bid(tx, tables, auction, account, cents));
    done.await.map(Json)
}

async fn show_auction(State(shop): State<Shop>, Path(auction): Path<u64>) -> Answer<Leaderboard> {
    let done = shop.run("show auction", move |tx, tables| auctions::find(tx, tables, auction));
    done.await?.map(Json).ok_or(Refused::NotFound("auctions"))
}

async fn make_report(State(shop): State<Shop>) -> Answer<Report> {
    // A report takes long, so it runs on a thread of its own.
    let made = tokio::task::spawn_blocking(move || {
        shop.database.snapshot(|snapshot| report::make(snapshot, &shop.tables))
    });
    Ok(Json(made.await.map_err(|panic| Refused::Internal(panic.to_string()))??))
}

async fn health(State(shop): State<Shop>) -> Answer<()> {
    let options = SubmitOptions::new().priority(Priority::High);
    shop.pool.submit_with(&options, |_tx| Ok(())).await.map(Json)
}

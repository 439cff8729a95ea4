//! The shop's page in Chromium, as narrow as a telephone and as wide as a screen.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weft_shop::refused::Refused;
use weft_shop::shop::Shop;
use weft_shop::stock::Item;
use weft_shop::{accounts, auctions, http, stock};
use weft_shop_browser::{Driver, Page};

const NARROW: u32 = 390;
const WIDE: u32 = 1_200;

/// A shop that serves the page.
struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Server {
    /// Starts a shop with two customers, three items and an auction.
    async fn start(directory: &Path) -> Server {
        let shop = Shop::open(directory).unwrap();
        let tables = &shop.tables;
        let furnish = shop.database.transact(|tx| {
            for (account, owner) in [(1, "Ada"), (2, "Ben")] {
                accounts::open(tx, tables, account, owner)?;
                accounts::pay_in(tx, tables, account, 10_000)?;
            }
            let long = "Extraordinarily".repeat(5);
            for (id, name, price_cents) in
                [(7, "Lamp", 2_000), (8, "Desk", 9_900), (9, &*long, 100_000_000)]
            {
                stock::put(
                    tx,
                    tables,
                    Item { id, name: name.to_owned(), price_cents, left: 1_000_000 },
                )?;
            }
            auctions::open(tx, tables, 1, "Painting")
        });
        furnish.unwrap();
        Server::serve(shop, "127.0.0.1:0".parse().unwrap()).await
    }

    async fn serve(shop: Shop, address: SocketAddr) -> Server {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let served =
            tokio::spawn(async move { http::serve(listener, shop, stopped).await.unwrap() });
        Server { address, stop, served }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap();
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// A directory of a test, which is removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
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

/// Waits until a page shows so many pieces of item 7.
async fn until_left(page: &Page, left: &str) {
    page.until(&format!(
        "document.querySelector('#item-7 td:nth-child(3)')?.textContent === '{left}'"
    ))
    .await;
}

/// Waits until an element of a page has a text.
async fn until_text(page: &Page, id: &str, text: &str) {
    page.until(&format!("document.getElementById('{id}').innerText.includes('{text}')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_browsers_see_live_what_the_other_does() {
    let directory = Directory::new("browsers");
    let (server, driver) = (Server::start(&directory.0).await, Driver::start());
    let ada = driver.open(&server.url(), NARROW).await;
    let ben = driver.open(&server.url(), WIDE).await;
    for page in [&ada, &ben] {
        until_left(page, "1000000").await;
        until_text(page, "money", "Ada: 100.00").await;
    }
    ben.fill("[name=account]", "2").await;
    until_text(&ben, "money", "Ben: 100.00").await;

    // An item in Ada's cart is no longer among those that are left.
    ada.click("#item-7 button").await;
    until_text(&ada, "cart", "1 in the cart, reserved until").await;
    for page in [&ada, &ben] {
        until_left(page, "999999").await;
    }
    ada.click("#order").await;
    until_text(&ada, "message", "Order 1 has cost 20.00").await;
    until_text(&ada, "money", "Ada: 80.00").await;
    until_text(&ada, "cart", "The cart is empty").await;

    ben.fill("[name=euros]", "7.50").await;
    ben.click("#bid button").await;
    for page in [&ada, &ben] {
        until_text(page, "leaders", "Ben\\t7.50").await;
    }
    ada.fill("[name=euros]", "9").await;
    ada.click("#bid button").await;
    for page in [&ada, &ben] {
        until_text(page, "leaders", "Ada\\t9.00\\nBen\\t7.50").await;
        page.check_width().await;
        page.picture("shop").await;
    }
    ada.close().await;
    ben.close().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_shown() {
    let directory = Directory::new("refusals");
    let (server, driver) = (Server::start(&directory.0).await, Driver::start());
    let page = driver.open(&server.url(), NARROW).await;
    until_left(&page, "1000000").await;
    page.click("#order").await;
    until_text(&page, "message", "the cart is empty").await;
    page.fill("[name=account]", "3").await;
    until_text(&page, "money", "no such account").await;
    page.click("#bid button").await;
    until_text(&page, "message", "there is no such row in the table accounts").await;
    page.check_width().await;
    page.picture("refusal").await;
    page.close().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_goes_on_when_the_shop_is_back() {
    let directory = Directory::new("back");
    let (server, driver) = (Server::start(&directory.0).await, Driver::start());
    let page = driver.open(&server.url(), WIDE).await;
    until_left(&page, "1000000").await;
    let address = server.address;
    server.stop().await;
    until_text(&page, "message", "The connection is lost").await;
    // The directory is free when the last connection has ended.
    let shop = loop {
        match Shop::open(&directory.0) {
            Ok(shop) => break shop,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let tables = &shop.tables;
    let restock = shop.database.transact(|tx| stock::restock(tx, tables, 7, 5));
    restock.unwrap_or_else(|error: Refused| panic!("{error}"));
    let server = Server::serve(shop, address).await;
    until_left(&page, "1000005").await;
    page.until("document.getElementById('message').textContent === ''").await;
    page.close().await;
    server.stop().await;
}

//! The page of `weft_inspect` in Chromium, as narrow as a telephone and as wide as a screen.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use weft::{Database, Error, Record, Table, TransactionOptions};
use weft_inspect::{Flight, FlightOptions, InspectBuilder, ServeOptions, page};
use weft_shop_browser::{Driver, Page};

const NARROW: u32 = 390;
const WIDE: u32 = 1_200;

#[derive(Clone, Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    owner: String,
    cents: i64,
}

/// A database in which two threads change the same row, until this is dropped.
struct Busy {
    database: Database,
    stop: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start(directory: &std::path::Path) -> Busy {
        let database = Database::builder().table::<Account>().inspect().directory(directory);
        let database = database.open().unwrap();
        let accounts = database.table::<Account>().unwrap();
        let owner = "a customer whose name ".to_owned() + &"goes on ".repeat(10);
        let open = |tx: &weft::Transaction<'_>| {
            tx.insert(&accounts, Account { owner: owner.clone(), cents: 0 })
        };
        database.transact(open).unwrap();
        let (stop, stopped) = mpsc::channel();
        let stopped = Arc::new(std::sync::Mutex::new(stopped));
        let threads = (0..2).map(|_| {
            let (database, accounts) = (database.clone(), accounts.clone());
            let (stopped, owner) = (Arc::clone(&stopped), owner.clone());
            std::thread::spawn(move || {
                while stopped.lock().unwrap().try_recv() != Err(TryRecvError::Disconnected) {
                    pay_in(&database, &accounts, &owner);
                }
            })
        });
        let threads = threads.collect();
        Busy { database, stop: Some(stop), threads }
    }
}

fn pay_in(database: &Database, accounts: &Table<Account>, owner: &str) {
    let options = TransactionOptions::new().label("pay in <b>");
    let paid = database.transact_with(&options, |tx| {
        let cents = tx.get(accounts, owner)?.unwrap().cents;
        // So that the other thread comes in between.
        std::thread::sleep(Duration::from_millis(1));
        tx.update(accounts, owner, |account| account.cents = cents + 1)?;
        Ok::<_, Error>(())
    });
    paid.unwrap();
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

struct Directory(std::path::PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weft-page-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until the page shows a hot point and all charts.
async fn until_drawn(page: &Page) {
    page.until(
        "document.querySelector('#points h3')?.textContent.includes('accounts \"a customer')",
    )
    .await;
    for chart in ["throughput", "latency", "aborts", "oldest", "log"] {
        page.until(&format!(
            "document.querySelector('#{chart} svg path')?.getAttribute('d').includes('L') === true"
        ))
        .await;
    }
    // Text of labels is text.
    page.until("document.getElementById('labels').innerText.includes('pay in <b>')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_live_narrow_and_wide_light_and_dark() {
    let directory = Directory::new("live");
    let busy = Busy::start(&directory.0);
    let options = ServeOptions::new().interval(Duration::from_millis(200));
    let server = options.serve(&busy.database, "127.0.0.1:0").unwrap();
    let (url, driver) = (format!("http://{}/", server.address()), Driver::start());
    for width in [NARROW, WIDE] {
        let page = driver.open(&url, width).await;
        until_drawn(&page).await;
        page.until("document.getElementById('state').textContent === 'live'").await;
        page.check_width().await;
        page.picture("inspect-light").await;
        page.prefer("dark").await;
        page.check_width().await;
        page.picture("inspect-dark").await;
        page.check_console().await;
        page.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_show_another_time_and_pause() {
    let directory = Directory::new("keys");
    let busy = Busy::start(&directory.0);
    let options = ServeOptions::new().interval(Duration::from_millis(100));
    let server = options.serve(&busy.database, "127.0.0.1:0").unwrap();
    let driver = Driver::start();
    let page = driver.open(&format!("http://{}/", server.address()), WIDE).await;
    until_drawn(&page).await;
    // The first thing that Tab reaches is the button.
    page.press("body", "\u{e004}").await;
    assert_eq!(page.value("document.activeElement.id").await, "pause");
    page.press("#pause", " ").await;
    page.until("document.getElementById('pause').textContent === 'Continue'").await;
    page.press("#throughput svg", "\u{e012}").await;
    page.until("document.getElementById('about').textContent.includes(' at ')").await;
    page.until("document.querySelectorAll('svg .cursor').length >= 4").await;
    page.press("#throughput svg", "\u{e00c}").await;
    page.until("document.querySelectorAll('svg .cursor').length === 0").await;
    page.check_console().await;
    page.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_asks_for_the_token() {
    let directory = Directory::new("token");
    let busy = Busy::start(&directory.0);
    let server = ServeOptions::new().token("a secret").serve(&busy.database, "0.0.0.0:0").unwrap();
    let driver = Driver::start();
    let url = format!("http://127.0.0.1:{}/", server.address().port());
    let page = driver.open(&url, NARROW).await;
    page.until("!document.getElementById('ask').hidden").await;
    page.check_width().await;
    page.press("[name=token]", "a secret\u{e007}").await;
    until_drawn(&page).await;
    page.check_console().await;
    page.close().await;
    let page = driver.open(&format!("{url}#a%20secret"), NARROW).await;
    until_drawn(&page).await;
    page.check_console().await;
    page.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_goes_on_when_the_program_is_back() {
    let directory = Directory::new("back");
    let busy = Busy::start(&directory.0);
    let options = ServeOptions::new().interval(Duration::from_millis(100));
    let server = options.serve(&busy.database, "127.0.0.1:0").unwrap();
    let (address, driver) = (server.address(), Driver::start());
    let page = driver.open(&format!("http://{address}/"), WIDE).await;
    until_drawn(&page).await;
    drop(server);
    page.until("document.getElementById('state').textContent.includes('is lost')").await;
    let _server = options.serve(&busy.database, address).unwrap();
    page.until("document.getElementById('state').textContent === 'live'").await;
    page.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_a_page_in_one_file() {
    let directory = Directory::new("recording");
    let busy = Busy::start(&directory.0);
    let recorder = FlightOptions::new().interval(Duration::from_millis(20)).start(&busy.database);
    let recorder = recorder.unwrap();
    let file = recorder.file().unwrap().to_owned();
    let flight = loop {
        let flight = Flight::read(&file).unwrap();
        if flight.reports().count() > 30 {
            break flight;
        }
    };
    let html = directory.0.join("page.html");
    std::fs::write(&html, page::of_recorded(flight.reports(), &["a panic".to_owned()])).unwrap();
    let driver = Driver::start();
    let url = format!("file://{}", html.display());
    let page = driver.open(&url, NARROW).await;
    until_drawn(&page).await;
    page.until("document.getElementById('notes').innerText === 'a panic'").await;
    page.check_width().await;
    page.picture("recording").await;
    page.check_console().await;
    page.close().await;
}

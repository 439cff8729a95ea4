//! Chromium without a window, for tests of pages. It needs `chromedriver`, which starts Chromium.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// How long a page may take until it shows what a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `chromedriver`.
pub struct Driver {
    process: Child,
    port: u16,
}

impl Driver {
    /// Starts `chromedriver`, on a port that it chooses.
    ///
    /// # Panics
    /// If it isn't installed, or does not start.
    pub fn start() -> Driver {
        let mut command = Command::new("chromedriver");
        let mut process = command.arg("--port=0").stdout(Stdio::piped()).spawn().expect(
            "chromedriver starts; Debian has it in the packages chromium and chromium-driver",
        );
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut lines = output.lines().map(|line| line.expect("chromedriver speaks"));
        let port = lines.find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        Driver { process, port: port.expect("chromedriver says its port") }
    }

    /// Opens a page in a browser of its own, whose window is so wide.
    ///
    /// # Panics
    /// If Chromium does not start.
    pub async fn open(&self, url: &str, width: u32) -> Page {
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ];
        let metrics =
            json!({"width": width, "height": 844, "pixelRatio": 1, "mobile": width < 600});
        let options = json!({"args": arguments, "mobileEmulation": {"deviceMetrics": metrics}});
        let capabilities =
            json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let Value::Object(capabilities) = capabilities else {
            unreachable!("it is an object");
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{}", self.port))
            .await
            .expect("Chromium starts");
        client.goto(url).await.expect("the page is served");
        Page { client, width }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It ends the browsers that were not closed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command that only ChromeDriver has.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

/// A page in a browser.
pub struct Page {
    client: Client,
    width: u32,
}

impl Page {
    /// Returns the value of an expression in JavaScript.
    ///
    /// # Panics
    /// If it throws an error.
    pub async fn value(&self, expression: &str) -> Value {
        let done = self.client.execute(&format!("return {expression};"), Vec::new()).await;
        done.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression in JavaScript is true.
    ///
    /// # Panics
    /// If it is not true in time.
    pub async fn until(&self, expression: &str) {
        let start = Instant::now();
        while self.value(expression).await != json!(true) {
            if start.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText").await;
                panic!("{expression} does not become true; the page is {text}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Clicks on the element that a CSS selector selects.
    ///
    /// # Panics
    /// If there isn't one, or it cannot be clicked.
    pub async fn click(&self, selector: &str) {
        let element = self.client.find(Locator::Css(selector)).await.expect(selector);
        element.click().await.expect(selector);
    }

    /// Types a text into a field, in place of what it has, and leaves the field.
    ///
    /// # Panics
    /// If there isn't such a field.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.client.find(Locator::Css(selector)).await.expect(selector);
        element.clear().await.expect(selector);
        element.send_keys(text).await.expect(selector);
        self.click("h1").await;
    }

    /// Checks that the window is as wide as it was opened, and that no element reaches beyond its right edge.
    ///
    /// # Panics
    /// If one does.
    pub async fn check_width(&self) {
        assert_eq!(self.value("window.innerWidth").await, json!(self.width));
        let beyond = "[...document.body.querySelectorAll('*')]
            .filter(element => element.getBoundingClientRect().right > window.innerWidth)
            .map(element => element.outerHTML)";
        assert_eq!(self.value(beyond).await, json!([]), "at a width of {}", self.width);
        let whole = "document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(self.value(whole).await, json!(true), "at a width of {}", self.width);
    }

    /// Writes a picture of the page to `NAME-WIDTH.png` in the directory that the variable `SCREENSHOTS` names, if it is
    /// set.
    ///
    /// # Panics
    /// If it cannot be written.
    pub async fn picture(&self, name: &str) {
        if let Some(directory) = std::env::var_os("SCREENSHOTS") {
            let picture = self.client.screenshot().await.expect("a picture");
            let file = Path::new(&directory).join(format!("{name}-{}.png", self.width));
            std::fs::write(file, picture).expect("it can be written");
        }
    }

    /// Types keys while the element that a CSS selector selects has the focus.
    ///
    /// # Panics
    /// If there isn't one.
    pub async fn press(&self, selector: &str, keys: &str) {
        let element = self.client.find(Locator::Css(selector)).await.expect(selector);
        element.send_keys(keys).await.expect(selector);
    }

    /// Lets the user prefer dark colours, or light ones.
    ///
    /// # Panics
    /// If the browser does not know that.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        let done = self.client.issue_cmd(Extension { path: "goog/cdp/execute", body }).await;
        done.expect("the browser knows colour schemes");
    }

    /// Checks that the browser has nothing on its console.
    ///
    /// # Panics
    /// If it has a message there.
    pub async fn check_console(&self) {
        let body = json!({"type": "browser"});
        let messages = self.client.issue_cmd(Extension { path: "se/log", body }).await;
        assert_eq!(messages.expect("there is a console"), json!([]));
    }

    /// Closes the browser.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn close(self) {
        self.client.close().await.expect("it closes");
    }
}

//! Asks a server for reports.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ureq::Agent;
use weft_inspect::Report;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest report that is read.
const REPORT_BYTES_MAX: u64 = 16 << 20;

/// A server of reports.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    url: String,
    token: Option<String>,
}

impl Client {
    /// Returns a client of the server at an address such as `127.0.0.1:7070`.
    pub fn new(address: &str, token: Option<String>) -> Self {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE));
        let agent = config.http_status_as_error(false).build().new_agent();
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        Client { agent, url: format!("http://{address}/report"), token }
    }

    /// Returns the newest report.
    ///
    /// # Errors
    /// A message that says what to do.
    pub fn report(&self) -> Result<Report, String> {
        let mut request = self.agent.get(&self.url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|error| {
            let url = &self.url;
            format!(
                "no answer from {url}: is the program running, and does it call \
                 weft_inspect::serve? ({error})"
            )
        })?;
        let body = response.body_mut().with_config().limit(REPORT_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| format!("{}: {error}", self.url))?;
        match response.status().as_u16() {
            200 => serde_json::from_str(&body)
                .map_err(|error| format!("{} is no server of a Weft database: {error}", self.url)),
            401 => {
                Err("the server needs a token: give it with --token, or in WEFT_TOKEN".to_owned())
            }
            status => {
                Err(format!("{}: the answer has the status {status}: {}", self.url, body.trim()))
            }
        }
    }

    /// Asks for a report after each interval, on a thread that ends with the receiver.
    pub fn follow(self, interval: Duration) -> Receiver<Result<Report, String>> {
        let (sender, reports) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            loop {
                let asked = Instant::now();
                if sender.send(self.report()).is_err() {
                    break;
                }
                std::thread::sleep(interval.saturating_sub(asked.elapsed()));
            }
        });
        reports
    }
}

//! What the server answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weft::{Database, TransactionOptions};
use weft_inspect::{InspectBuilder, Report, ServeOptions, Server, serve};

use crate::{Page, open, view};

/// Sends bytes, and returns all that comes back until the server closes the connection.
pub fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may have answered and closed before everything is sent.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Returns the head and the body of an answer to a request.
pub fn get(address: SocketAddr, path: &str, header: &str) -> (String, String) {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n");
    let answer = exchange(address, &request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {head:?}"))
}

fn report(server: &Server) -> Report {
    let (head, body) = get(server.address(), "/report", "");
    assert_eq!(status(&head), "200");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn the_report_is_served_as_json_and_is_fresh() {
    let (database, pages) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    let before = report(&server).totals.committed;
    for id in 0..10 {
        view(&database, &pages, id);
    }
    while report(&server).totals.committed < before + 10 {}
    assert_eq!(report(&server).protocol, "dbx");
}

#[test]
fn events_are_reports_beginning_with_those_before() {
    let (database, _) = open();
    let options = ServeOptions::new().interval(Duration::from_millis(5));
    let server = options.serve(&database, "127.0.0.1:0").unwrap();
    let connect = || {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.filter_map(|line| {
            let json = line.strip_prefix("data: ")?;
            Some(serde_json::from_str::<Report>(json).unwrap().taken_unix_ms)
        })
    };
    let first: Vec<_> = connect().take(5).collect();
    assert!(first.is_sorted(), "{first:?}");
    // A second browser begins with the same reports.
    assert_eq!(connect().take(5).collect::<Vec<_>>(), first);
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let (database, _) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    let (head, body) = get(server.address(), "/", "");
    assert_eq!(status(&head), "200");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(body.starts_with("<!doctype html>"));
    for elsewhere in ["http:", "https:", "src=", "@import", "url("] {
        // The name space of SVG is a name, and nothing is loaded from there.
        let rest = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(elsewhere), "the page has {elsewhere}");
    }
}

#[test]
fn metrics_are_in_the_format_of_open_metrics() {
    let database = Database::builder().table::<Page>().inspect().open().unwrap();
    let pages = database.table::<Page>().unwrap();
    let options = TransactionOptions::new().label("a \"new\"\n\\ page");
    let page = Page { id: 1, views: 0 };
    database.transact_with(&options, |tx| tx.insert(&pages, page.clone())).unwrap();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    let (head, body) = get(server.address(), "/metrics", "");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    for line in [
        "# TYPE weft_transactions_committed counter",
        "weft_transactions_committed_total 1.0",
        "# UNIT weft_memory_used_bytes bytes",
        "weft_table_records{table=\"pages\",index=\"\"} 1.0",
        "weft_oldest_transaction_seconds 0.0",
        r#"weft_label_transactions_committed_total{label="a \"new\"\n\\ page"} 1.0"#,
        "# EOF",
    ] {
        assert!(body.lines().any(|other| other == line), "{line} is missing in\n{body}");
    }
    // A sample for the check with Prometheus's own parser.
    if let Some(file) = std::env::var_os("WEFT_METRICS_SAMPLE") {
        std::fs::write(file, body).unwrap();
    }
}

#[test]
fn other_addresses_than_loopback_need_a_token() {
    let (database, _) = open();
    let error = serve(&database, "0.0.0.0:0").unwrap_err();
    assert!(error.to_string().contains("set ServeOptions::token"), "{error}");
    let error = ServeOptions::new().token("").serve(&database, "127.0.0.1:0").unwrap_err();
    assert!(error.to_string().contains("the token is empty"), "{error}");

    let server = ServeOptions::new().token("a secret").serve(&database, "0.0.0.0:0").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    for wrong in [
        "",
        "Authorization: Bearer a secre",
        "Authorization: a secret",
        "Authorization: Bearer a secreT",
    ] {
        for path in ["/report", "/metrics", "/events"] {
            let header = if wrong.is_empty() { String::new() } else { format!("{wrong}\r\n") };
            assert_eq!(status(&get(address, path, &header).0), "401", "{path} {wrong}");
        }
    }
    assert_eq!(status(&get(address, "/report", "Authorization: Bearer a secret\r\n").0), "200");
    // The page has no data, and asks for the token.
    let (head, page) = get(address, "/", "");
    assert_eq!(status(&head), "200");
    assert!(page.contains("data-token>"));
}

/// A page of a stranger could let its own name point to this machine, to read what is served here.
#[test]
fn a_browser_that_uses_another_name_is_refused() {
    let (database, _) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    for (host, expected) in [
        ("example.com", "403"),
        ("localhost.example.com:80", "403"),
        ("127.0.0.1.example.com", "403"),
        ("localhost", "200"),
        ("localhost:8080", "200"),
        ("127.0.0.1:1", "200"),
        ("[::1]:1", "200"),
        ("[::1]", "200"),
    ] {
        let request = format!("GET /report HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&exchange(server.address(), &request)), expected, "{host}");
    }
}

#[test]
fn a_closed_database_is_said_to_be_closed() {
    let (database, _) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    database.close().unwrap();
    // The newest report is served for a moment.
    let (head, body) = loop {
        let (head, body) = get(server.address(), "/report", "");
        if status(&head) != "200" {
            break (head, body);
        }
    };
    assert_eq!(status(&head), "503");
    assert!(body.contains("closed"), "{body}");
}

#[test]
fn a_server_that_is_dropped_gives_its_address_back() {
    let (database, _) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    let address = server.address();
    let mut follower = TcpStream::connect(address).unwrap();
    write!(follower, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut begin = [0; 64];
    follower.read_exact(&mut begin).unwrap();
    drop(server);
    let _ = follower.read_to_end(&mut Vec::new());
    let server = serve(&database, address).unwrap();
    assert_eq!(report(&server).totals.committed, 0);
}

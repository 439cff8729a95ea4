//! Measures how often clients can change one key: `cargo run --release -p weft-server --example hot_key PORT CONNECTIONS WAY`
//!
//! The way is `script`, or `watch`: `WATCH`, `GET`, and a `SET` between `MULTI` and `EXEC`, again and again until no other
//! client was faster. Works with any server that speaks Redis's protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const SECONDS: f64 = 3.0;
const SCRIPT: &str = "return redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]) + 1)";

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    fn send(&mut self, commands: &[&[&str]]) -> io::Result<()> {
        let mut bytes = String::new();
        for command in commands {
            bytes += &format!("*{}\r\n", command.len());
            command.iter().for_each(|part| bytes += &format!("${}\r\n{part}\r\n", part.len()));
        }
        self.0.get_mut().write_all(bytes.as_bytes())
    }

    /// Reads a reply, and returns its line, or its text.
    fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        if let Some(length) = line.strip_prefix('$').filter(|length| *length != "-1") {
            let mut bytes = vec![0; length.parse::<usize>().map_err(io::Error::other)? + 2];
            self.0.read_exact(&mut bytes)?;
            return Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        }
        if let Some(length) = line.strip_prefix('*').and_then(|length| length.parse::<usize>().ok())
        {
            for _ in 0..length {
                self.read()?;
            }
        }
        Ok(line)
    }

    /// Changes the key once, however many attempts that takes.
    fn change(&mut self, script: Option<&str>) -> io::Result<()> {
        if let Some(script) = script {
            self.send(&[&["EVALSHA", script, "1", "hot"]])?;
            return self.read().map(drop);
        }
        loop {
            self.send(&[&["WATCH", "hot"], &["GET", "hot"]])?;
            self.read()?;
            let value: u64 = self.read()?.parse().map_err(io::Error::other)?;
            let next = (value + 1).to_string();
            self.send(&[&["MULTI"], &["SET", "hot", &next], &["EXEC"]])?;
            self.read()?;
            self.read()?;
            if self.read()? != "*-1" {
                return Ok(());
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, connections, way] = arguments.as_slice() else {
        return Err("usage: hot_key PORT CONNECTIONS script|watch".into());
    };
    let (port, connections) = (port.parse::<u16>()?, connections.parse::<usize>()?);
    let mut client = Client::connect(port)?;
    client.send(&[&["SCRIPT", "LOAD", SCRIPT]])?;
    let digest = client.read()?;
    let script = (way == "script").then_some(digest.as_str());
    client.send(&[&["SET", "hot", "0"]])?;
    client.read()?;
    let begun = Instant::now();
    let change = || -> io::Result<u64> {
        let mut client = Client::connect(port)?;
        let mut changes = 0;
        while begun.elapsed() < Duration::from_secs_f64(SECONDS) {
            client.change(script)?;
            changes += 1;
        }
        Ok(changes)
    };
    let changes = thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(change)).collect();
        let changes = threads
            .into_iter()
            .map(|thread| Ok(thread.join().map_err(|_| "a client has failed")??));
        changes.sum::<Result<u64, Box<dyn std::error::Error>>>()
    })?;
    let rate = changes as f64 / begun.elapsed().as_secs_f64();
    client.send(&[&["GET", "hot"]])?;
    assert_eq!(client.read()?, changes.to_string(), "a change was lost");
    println!("{way}, {connections} connections: {rate:.0} changes a second");
    Ok(())
}

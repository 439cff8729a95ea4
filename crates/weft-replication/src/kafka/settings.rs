//! The settings of a topic, asked for with Kafka's own protocol: the client that this crate uses cannot.
//!
//! The request is DescribeConfigs (key 32) in version 1, which brokers from 1.1 to 4 know. Numbers are big-endian. A string
//! is its length in two bytes, and its bytes; an absent one has the length -1.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const DESCRIBE_CONFIGS: i16 = 32;
const VERSION: i16 = 1;
/// The type of a resource that is a topic.
const TOPIC: i8 = 2;
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Asks a broker for all settings of a topic.
pub fn ask(
    broker: &str,
    topic: &str,
    timeout: Duration,
) -> io::Result<HashMap<String, Option<String>>> {
    let mut addresses = broker.to_socket_addrs()?;
    let address = addresses.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(&request(topic))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(io::Error::other("the answer is too long"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    let mut answer = Answer(&answer);
    answer.settings()?.map_err(|code| io::Error::other(format!("error {code} of the broker")))
}

fn request(topic: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&DESCRIBE_CONFIGS.to_be_bytes());
    body.extend_from_slice(&VERSION.to_be_bytes());
    // The number of the request, and the name of the client.
    body.extend_from_slice(&1_i32.to_be_bytes());
    put_string(&mut body, "weft");
    // One resource, with all of its settings, and without where they come from.
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&TOPIC.to_be_bytes());
    put_string(&mut body, topic);
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.push(0);
    let mut request = (body.len() as u32).to_be_bytes().to_vec();
    request.append(&mut body);
    request
}

fn put_string(output: &mut Vec<u8>, string: &str) {
    output.extend_from_slice(&(string.len() as u16).to_be_bytes());
    output.extend_from_slice(string.as_bytes());
}

/// The rest of an answer.
struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    /// Returns the settings, or the code of an error.
    fn settings(&mut self) -> io::Result<Result<HashMap<String, Option<String>>, i16>> {
        // The number of the request, how long the client is to wait, and the number of resources.
        self.take(12)?;
        let code = i16::from_be_bytes(self.array()?);
        self.string()?;
        self.take(1)?;
        self.string()?;
        if code != 0 {
            return Ok(Err(code));
        }
        let mut settings = HashMap::new();
        for _ in 0..u32::from_be_bytes(self.array()?) {
            let name = self.string()?.unwrap_or_default();
            settings.insert(name, self.string()?);
            // Whether it can be changed, where it comes from, whether it is secret.
            self.take(3)?;
            for _ in 0..u32::from_be_bytes(self.array()?) {
                self.string()?;
                self.string()?;
                self.take(1)?;
            }
        }
        Ok(Ok(settings))
    }

    fn take(&mut self, count: usize) -> io::Result<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes"))
    }

    fn string(&mut self) -> io::Result<Option<String>> {
        let Ok(length) = usize::try_from(i16::from_be_bytes(self.array()?)) else {
            return Ok(None);
        };
        Ok(Some(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_cut_off_are_errors() {
        let mut answer = vec![0; 11];
        answer.push(1);
        answer.extend_from_slice(&[0, 0, 0xff, 0xff, 2, 0, 1, b't', 0, 0, 0, 2]);
        answer.extend_from_slice(&[0, 1, b'a', 0, 2, b'-', b'1', 0, 5, 0, 0, 0, 0, 0]);
        answer.extend_from_slice(&[0, 1, b'b', 0xff, 0xff, 0, 5, 0, 0, 0, 0, 0]);
        let settings = Answer(&answer).settings().expect("it is whole").expect("no error");
        assert_eq!(settings.len(), 2);
        assert_eq!(settings["a"].as_deref(), Some("-1"));
        assert_eq!(settings["b"], None);
        for length in 0..answer.len() {
            assert!(Answer(&answer[..length]).settings().is_err(), "{length} bytes");
        }
        // Error 3: an unknown topic.
        answer[13] = 3;
        assert_eq!(Answer(&answer).settings().expect("it is whole"), Err(3));
    }
}

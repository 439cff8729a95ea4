//! The settings of a topic, asked for with Kafka's own protocol: the client that this crate uses cannot.
//!
//! The request is DescribeConfigs (key 32) in version 1, which brokers from 1.1 to 4 know. Numbers are big-endian. A string
//! is its length in two bytes, and its bytes; an absent one has the length -1.

use std::collections::HashMap;
use std::io;

use super::wire::{Answer, Wire, put_string};
use crate::log::LogError;

const DESCRIBE_CONFIGS: i16 = 32;
const VERSION: i16 = 1;
/// The type of a resource that is a topic.
const TOPIC: i8 = 2;

/// The settings of a topic.
pub type Settings = HashMap<String, Option<String>>;

/// Asks a broker for all settings of a topic.
pub fn ask(wire: &mut Wire, topic: &str) -> Result<Settings, LogError> {
    let answer = wire.ask((DESCRIBE_CONFIGS, VERSION), &request(topic))?;
    let read = settings(&mut Answer(&answer)).map_err(|error| wire.unavailable(&error))?;
    read.map_err(|code| LogError::Misconfigured(match code {
        // "Topic authorization failed", and "cluster authorization failed".
        29 | 31 => format!(
            "the brokers do not let this user read the settings of topic `{topic}`: allow it with kafka-acls (operation DescribeConfigs)"
        ),
        3 => format!("topic `{topic}` does not exist; create it with one partition"),
        code => format!("the brokers refuse to show the settings of topic `{topic}`: error {code}"),
    }))
}

fn request(topic: &str) -> Vec<u8> {
    let mut body = Vec::new();
    // One resource, with all of its settings, and without where they come from.
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&TOPIC.to_be_bytes());
    put_string(&mut body, topic);
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.push(0);
    body
}

/// Returns the settings in an answer, or the code of an error.
fn settings(answer: &mut Answer<'_>) -> io::Result<Result<Settings, i16>> {
    // How long the client is to wait, and the number of resources.
    answer.take(8)?;
    let code = i16::from_be_bytes(answer.array()?);
    answer.string()?;
    answer.take(1)?;
    answer.string()?;
    if code != 0 {
        return Ok(Err(code));
    }
    let mut settings = HashMap::new();
    for _ in 0..u32::from_be_bytes(answer.array()?) {
        let name = answer.string()?.unwrap_or_default();
        settings.insert(name, answer.string()?);
        // Whether it can be changed, where it comes from, whether it is secret.
        answer.take(3)?;
        for _ in 0..u32::from_be_bytes(answer.array()?) {
            answer.string()?;
            answer.string()?;
            answer.take(1)?;
        }
    }
    Ok(Ok(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_cut_off_are_errors() {
        let mut answer = vec![0; 7];
        answer.push(1);
        answer.extend_from_slice(&[0, 0, 0xff, 0xff, 2, 0, 1, b't', 0, 0, 0, 2]);
        answer.extend_from_slice(&[0, 1, b'a', 0, 2, b'-', b'1', 0, 5, 0, 0, 0, 0, 0]);
        answer.extend_from_slice(&[0, 1, b'b', 0xff, 0xff, 0, 5, 0, 0, 0, 0, 0]);
        let read = settings(&mut Answer(&answer)).expect("it is whole").expect("no error");
        assert_eq!(read.len(), 2);
        assert_eq!(read["a"].as_deref(), Some("-1"));
        assert_eq!(read["b"], None);
        for length in 0..answer.len() {
            assert!(settings(&mut Answer(&answer[..length])).is_err(), "{length} bytes");
        }
        // Error 3: an unknown topic.
        answer[9] = 3;
        assert_eq!(settings(&mut Answer(&answer)).expect("it is whole"), Err(3));
    }
}

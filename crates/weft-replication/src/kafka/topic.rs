//! What brokers know of a topic: its identity, and how many partitions it has.
//!
//! The request is Metadata (key 3) in version 10, which brokers from 2.8 on know. It is one of the *flexible* ones: the
//! lengths of strings and arrays are numbers of seven bits a byte, and fields that both sides need not know may follow.

use std::io;

use super::wire::{Answer, Wire};
use crate::log::LogError;

const METADATA: (i16, i16) = (3, 10);
const UNKNOWN_TOPIC: i16 = 3;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a broker knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicState {
    /// The cluster's identifier, a slash, and the topic's identifier.
    pub identity: String,
    /// How many partitions the topic has; 0 if it does not exist.
    pub partitions: usize,
    /// The addresses of all brokers.
    pub brokers: Vec<String>,
}

/// Asks a broker for a topic.
pub fn ask(wire: &mut Wire, topic: &str) -> Result<TopicState, LogError> {
    let answer = wire.ask(METADATA, &request(topic))?;
    let (code, state) = read(&mut Answer(&answer)).map_err(|error| wire.unavailable(&error))?;
    match code {
        0 | UNKNOWN_TOPIC => Ok(state),
        29 => Err(LogError::Misconfigured(format!(
            "the brokers do not let this user see topic `{topic}`: allow it with kafka-acls (operations Describe, Read and Write)"
        ))),
        code => Err(LogError::Unavailable(format!("topic `{topic}`: error {code} of the broker"))),
    }
}

fn request(topic: &str) -> Vec<u8> {
    // No further fields in the header; one topic, without its identifier, by its name.
    let mut body = vec![0, 2];
    body.extend_from_slice(&[0; 16]);
    put_short_number(&mut body, topic.len() + 1);
    body.extend_from_slice(topic.as_bytes());
    // No further fields; not to be created, and without who may do what; no further fields.
    body.extend_from_slice(&[0, 0, 0, 0, 0]);
    body
}

fn put_short_number(output: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        output.push(number as u8 | 0x80);
        number >>= 7;
    }
    output.push(number as u8);
}

/// Returns the code of an error, and what the answer says.
fn read(answer: &mut Answer<'_>) -> io::Result<(i16, TopicState)> {
    skip_fields(answer)?;
    // How long the client is to wait.
    answer.take(4)?;
    let mut brokers = Vec::new();
    for _ in 1..answer.short_number()? {
        answer.take(4)?;
        let host = answer.short_string()?.unwrap_or_default();
        let port = i32::from_be_bytes(answer.array()?);
        answer.short_string()?;
        skip_fields(answer)?;
        brokers.push(format!("{host}:{port}"));
    }
    let cluster = answer.short_string()?.unwrap_or_default();
    // The controller, and the number of topics.
    answer.take(4)?;
    answer.short_number()?;
    let code = i16::from_be_bytes(answer.array()?);
    answer.short_string()?;
    let topic = identifier(answer.array()?);
    // Whether it is one of Kafka's own.
    answer.take(1)?;
    let partitions = answer.short_number()?.saturating_sub(1);
    let partitions = if code == 0 { partitions } else { 0 };
    Ok((code, TopicState { identity: format!("{cluster}/{topic}"), partitions, brokers }))
}

fn skip_fields(answer: &mut Answer<'_>) -> io::Result<()> {
    for _ in 0..answer.short_number()? {
        answer.short_number()?;
        let length = answer.short_number()?;
        answer.take(length)?;
    }
    Ok(())
}

/// Writes an identifier as Kafka's tools do: six bits a character.
fn identifier(bytes: [u8; 16]) -> String {
    let number = u128::from_be_bytes(bytes);
    let digit = |place: u32| {
        // 22 characters have four bits more than the number.
        let bits = if place == 0 { number << 4 } else { number >> (6 * place - 4) };
        char::from(DIGITS[(bits & 63) as usize])
    };
    (0..22).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_written_as_kafka_does() {
        assert_eq!(identifier([0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(identifier([0xff; 16]), "_____________________w");
        assert_eq!(identifier(*b"weft-cluster-tes"), "d2VmdC1jbHVzdGVyLXRlcw");
    }

    #[test]
    fn answers_that_are_cut_off_are_errors() {
        let mut answer = vec![0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 4];
        answer.extend_from_slice(b"one\x00\x00\x23\x84\x00\x00\x02c");
        answer.extend_from_slice(&[0, 0, 0, 1, 2, 0, 0, 2, b't']);
        answer.extend_from_slice(b"weft-cluster-tes");
        answer.extend_from_slice(&[0, 2]);
        let state = TopicState {
            identity: "c/d2VmdC1jbHVzdGVyLXRlcw".to_owned(),
            partitions: 1,
            brokers: vec!["one:9092".to_owned()],
        };
        assert_eq!(read(&mut Answer(&answer)).expect("it is whole"), (0, state));
        for length in 0..answer.len() {
            assert!(read(&mut Answer(&answer[..length])).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn long_names_have_long_lengths() {
        let name = "t".repeat(200);
        let body = request(&name);
        assert_eq!(body[18..20], [201 & 0x7f | 0x80, 1]);
        assert_eq!(body[20..220], *name.as_bytes());
    }
}

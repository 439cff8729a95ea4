//! The body of a node's fence: where clients find the node, and how its epochs are read.
//!
//! ```text
//!   offset  bytes
//!      0      2    length of the address, little-endian; 0 if the node has not published one
//!      2           address
//!                  the database's manifest, which has its tables
//! ```

/// Returns the body of a fence.
pub fn encode(address: &str, manifest: &[u8]) -> Vec<u8> {
    // No address is longer than the name of a host and a port.
    let address = if address.len() > usize::from(u16::MAX) { "" } else { address };
    let length = (address.len() as u16).to_le_bytes();
    [&length, address.as_bytes(), manifest].concat()
}

/// Returns the address and the manifest in the body of a fence.
///
/// # Errors
/// The error in it.
pub fn decode(body: &[u8]) -> Result<(Option<&str>, &[u8]), &'static str> {
    let (length, rest) = body.split_first_chunk().ok_or("the fence is empty")?;
    let (address, manifest) =
        rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or("the fence is cut off")?;
    let address = std::str::from_utf8(address).map_err(|_| "the fence's address is no text")?;
    Ok(((!address.is_empty()).then_some(address), manifest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_read_as_they_were_written() {
        assert_eq!(decode(&encode("", b"manifest")), Ok((None, &b"manifest"[..])));
        let body = encode("one.example:6379", b"manifest");
        assert_eq!(decode(&body), Ok((Some("one.example:6379"), &b"manifest"[..])));
        assert!(decode(&body[..1]).is_err());
        assert!(decode(&body[..10]).is_err());
    }
}

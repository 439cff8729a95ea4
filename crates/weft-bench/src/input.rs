//! Text files that a command reads as a whole. They may be pipes, and their length is limited.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a text file of at most `bytes_max` bytes.
///
/// # Errors
/// The file cannot be read, is longer, or is not UTF-8. The error does not name the file.
pub fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    let mut text = Vec::new();
    // One byte more than the limit shows whether the file is longer.
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut text)?;
    if text.len() > bytes_max {
        let message = format!("it is longer than {bytes_max} bytes, which is the limit");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(text).map_err(|error| {
        let position = error.utf8_error().valid_up_to();
        let message = format!("it is not UTF-8 from byte {position} on");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_up_to_the_limit() {
        let path = std::env::temp_dir().join(format!("weft-input-{}", std::process::id()));
        std::fs::write(&path, "a text").expect("the directory can be written");
        assert_eq!(read_text(&path, 6).ok().as_deref(), Some("a text"));
        let error = read_text(&path, 5).expect_err("it has six bytes").to_string();
        assert_eq!(error, "it is longer than 5 bytes, which is the limit");
        std::fs::write(&path, b"ab\xFFcd").expect("the directory can be written");
        let error = read_text(&path, 6).expect_err("it is not UTF-8").to_string();
        assert_eq!(error, "it is not UTF-8 from byte 2 on");
        std::fs::remove_file(&path).expect("it is there");
    }
}

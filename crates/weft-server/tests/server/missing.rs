//! What a test says if the machine does not have a program that it needs.

use std::io::Write;
use std::panic::Location;

/// Says that the rest of the calling test is skipped, since the machine does not have a program.
///
/// A test run shows the message also if the test passes: it captures what macros such as `eprintln!` print, and not what is
/// written to standard error directly.
#[track_caller]
pub fn skip(program: &str, package: &str) {
    let thread = std::thread::current();
    // The thread of a test has its name.
    let test = thread.name().unwrap_or("a test");
    let place = Location::caller();
    let message = format!(
        "skipped: {test} ({}:{}) needs {program}: install Debian's package {package}\n",
        place.file(),
        place.line(),
    );
    // A test does not fail if its message cannot be written.
    let _ = std::io::stderr().write_all(message.as_bytes());
}

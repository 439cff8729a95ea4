//! Tells the program which compiler has built it, for the line under the table.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=RUSTC");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let version = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    // "rustc 1.95.0 (59807616e 2026-04-14)"
    let number = version.as_deref().and_then(|version| version.split_whitespace().nth(1));
    println!("cargo::rustc-env=RUSTC_VERSION={}", number.unwrap_or("of an unknown version"));
}

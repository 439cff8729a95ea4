//! `weft serve`, with a script in place of the server.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::text;

/// Makes a folder that has the command, and perhaps a server.
fn folder(name: &str, has_server: bool) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    std::fs::hard_link(env!("CARGO_BIN_EXE_weft"), folder.join("weft")).unwrap();
    if has_server {
        let script = folder.join("weft-server");
        std::fs::write(&script, "#!/bin/sh\necho \"served $*\"\nexit 7\n").unwrap();
        std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

#[test]
fn the_server_gets_all_arguments() {
    let folder = folder("serve", true);
    let mut command = Command::new(folder.join("weft"));
    let output = command.args(["serve", "--help", "--port", "7", "-d", "data"]).output().unwrap();
    assert_eq!(text(&output.stdout), "served --help --port 7 -d data\n");
    assert_eq!(output.status.code(), Some(7));
    // In PATH.
    let elsewhere = self::folder("serve-elsewhere", false);
    let mut command = Command::new(elsewhere.join("weft"));
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let output = command.arg("serve").env("PATH", path).output().unwrap();
    assert_eq!(text(&output.stdout), "served \n");
}

#[test]
fn a_server_that_is_not_there_is_explained() {
    let folder = folder("serve-missing", false);
    let mut command = Command::new(folder.join("weft"));
    let output = command.arg("serve").env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("cargo build --release --package weft-server"), "{message}");
}

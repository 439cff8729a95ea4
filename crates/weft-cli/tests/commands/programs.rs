//! `weft serve` and `weft top`, with a script in place of the programs that they start.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::text;

/// Prints its arguments and ends with 7.
///
/// It is a file of its own, and linked to instead of written: a test beside this one that starts a program while the
/// script is open for writing makes it busy, and a busy file can't be run.
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/stand-in.sh");

/// Makes a folder that has the command, and perhaps a program that it starts.
fn folder(name: &str, program: Option<&str>) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    std::fs::hard_link(env!("CARGO_BIN_EXE_weft"), folder.join("weft")).unwrap();
    if let Some(program) = program {
        std::os::unix::fs::symlink(STAND_IN, folder.join(program)).unwrap();
    }
    folder
}

/// Runs the command that lies in the folder.
fn run(folder: &Path, arguments: &[&str], path: &str) -> Output {
    let mut command = Command::new(folder.join("weft"));
    command.args(arguments).env("PATH", path).output().unwrap()
}

#[test]
fn a_program_gets_all_arguments_and_gives_its_exit_code() {
    let cases: [(&str, &[&str]); 4] = [
        ("serve", &["--help", "--port", "7", "-d", "data"]),
        ("serve", &[]),
        ("top", &["127.0.0.1:1", "--token", "secret"]),
        ("top", &["--help"]),
    ];
    for (command, arguments) in cases {
        let program = match command {
            "serve" => "weft-server",
            _ => "weft-top",
        };
        let with_program = folder(&format!("with-{program}"), Some(program));
        let without = folder(&format!("without-{program}"), None);
        let all = [&[command], arguments].concat();
        // Beside the command, and in PATH.
        let path = format!("{}:/usr/bin:/bin", with_program.display());
        for output in [run(&with_program, &all, "/usr/bin:/bin"), run(&without, &all, &path)] {
            assert_eq!(text(&output.stdout), arguments.join(" ") + "\n");
            assert_eq!(output.status.code(), Some(7), "{output:?}");
        }
    }
}

#[test]
fn a_program_that_is_not_there_is_explained() {
    for (command, program) in
        [(&["serve"][..], "weft-server"), (&["top", "127.0.0.1:1"], "weft-top")]
    {
        let output = run(&folder(&format!("no-{program}"), None), command, "/nonexistent");
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        for part in ["cargo build --release --package", "cargo install --path"] {
            assert!(message.contains(part), "{part:?} is missing in: {message}");
        }
        assert!(message.contains(program), "{message}");
    }
}

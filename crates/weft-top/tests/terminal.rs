//! The program on a pseudo-terminal: what it shows, how it follows the size, and how it ends.
#![cfg(unix)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use weft::{Database, Record};
use weft_inspect::{InspectBuilder, ServeOptions, Server};

/// How long the program may take until the screen is as a test expects it.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Record)]
#[record(table = "pages")]
struct Page {
    #[record(key)]
    id: u32,
    views: u64,
}

fn serve() -> (Database, Server) {
    let database = Database::builder().table::<Page>().inspect().open().unwrap();
    let pages = database.table::<Page>().unwrap();
    let options = weft::TransactionOptions::new().label("publish a page");
    let page = Page { id: 1, views: 0 };
    database.transact_with(&options, |tx| tx.insert(&pages, page.clone())).unwrap();
    let server = ServeOptions::new().token("secret").serve(&database, "127.0.0.1:0").unwrap();
    (database, server)
}

fn top(server: &Server) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-top"));
    command.arg(server.address().to_string()).env_remove("WEFT_TOKEN");
    command
}

/// A pseudo-terminal, on which the program runs.
struct Screen {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    child: Child,
}

impl Screen {
    fn start(mut command: Command, rows: u16, columns: u16) -> Screen {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut master, mut slave) = (0, 0);
        // SAFETY: the pointers are valid, or null where the function allows it.
        let opened = unsafe {
            libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size)
        };
        assert_eq!(opened, 0);
        // SAFETY: both were just opened, and belong to nothing else.
        let (master, slave) =
            unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let other = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(other()).stdout(other()).stderr(other()).env("TERM", "xterm-256color");
        // SAFETY: both calls may be made between `fork` and `exec`.
        unsafe {
            command.pre_exec(|| {
                // The terminal becomes that of a new session, so that the program is told of new sizes.
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop((command, slave));
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the program has ended.
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Screen { keyboard, output, parser: vt100::Parser::new(rows, columns, 0), child }
    }

    /// Waits until the screen is as expected.
    #[track_caller]
    fn until_it(&mut self, is_expected: impl Fn(&vt100::Screen) -> bool, what: &str) {
        let start = Instant::now();
        while !is_expected(self.parser.screen()) {
            match self.output.recv_timeout(PATIENCE) {
                Ok(bytes) if start.elapsed() < PATIENCE => self.parser.process(&bytes),
                _ => panic!("{what:?} is missing in\n{}", self.parser.screen().contents()),
            }
        }
    }

    /// Waits until the screen has a text.
    #[track_caller]
    fn until(&mut self, text: &str) {
        self.until_it(|screen| screen.contents().contains(text), text);
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        self.parser.screen_mut().set_size(rows, columns);
        // SAFETY: the terminal is open, and the pointer is valid.
        let resized = unsafe { libc::ioctl(self.keyboard.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(resized, 0);
    }

    /// Waits until the right edge of the last block is that of a terminal of this size.
    #[track_caller]
    fn until_it_fills(&mut self, rows: u16, columns: u16) {
        let corner = |screen: &vt100::Screen| {
            screen.cell(rows - 2, columns - 1).is_some_and(|cell| cell.contents() == "┘")
        };
        self.until_it(corner, "the corner");
    }

    /// Waits until the program has ended, and returns whether it has succeeded and left the alternate screen.
    fn end(mut self) -> (bool, bool) {
        let status = self.child.wait().unwrap();
        // The reader ends with the program.
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.parser.process(&bytes);
        }
        (status.success(), !self.parser.screen().alternate_screen())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_shows_the_database_follows_the_size_and_quits() {
    let (database, server) = serve();
    let mut command = top(&server);
    command.args(["--token", "secret", "--interval", "0.1"]);
    let mut screen = Screen::start(command, 30, 100);
    screen.until("Weft dbx");
    screen.until("publish a page");
    assert!(screen.parser.screen().alternate_screen());
    screen.until_it_fills(30, 100);
    screen.resize(24, 60);
    screen.until_it_fills(24, 60);
    screen.press("p");
    screen.until("paused");
    drop((server, database));
    screen.until("no answer from");
    screen.press("q");
    assert_eq!(screen.end(), (true, true));
}

#[test]
fn control_c_quits() {
    let (_database, server) = serve();
    let mut command = top(&server);
    command.args(["--token", "secret"]);
    let mut screen = Screen::start(command, 24, 80);
    screen.until("Weft dbx");
    screen.press("\u{3}");
    assert_eq!(screen.end(), (true, true));
}

#[test]
fn without_a_terminal_it_prints_one_report() {
    let (_database, server) = serve();
    let output = top(&server).env("WEFT_TOKEN", "secret").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("dbx: 1 committed") && text.contains("publish a page"), "{text}");
}

#[test]
fn messages_say_what_to_do() {
    let (_database, server) = serve();
    let output = top(&server).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        message,
        "error: the server needs a token: give it with --token, or in WEFT_TOKEN\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let address = server.address();
    drop(server);
    let output = Command::new(env!("CARGO_BIN_EXE_weft-top")).arg(address.to_string()).output();
    let message = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(message.contains("does it call weft_inspect::serve?"), "{message}");
}

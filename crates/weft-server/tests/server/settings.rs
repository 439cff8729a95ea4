//! Settings of the program: the command line, the environment, the file, and `CONFIG`; and what an operator sees.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::client::{Client, TestServer};
use crate::durable::{Directory, Program};

/// Runs the program, which must refuse to start, and returns what it says.
fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weft-server"))
}

/// Returns the answer of a server to a request by HTTP.
pub fn fetch(port: u16, path: &str) -> String {
    try_fetch(port, path).unwrap()
}

/// As [`fetch`], from a server that may not listen at the moment.
pub fn try_fetch(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns a port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn the_command_line_counts_more_than_the_environment_and_that_more_than_the_file() {
    let directory = Directory::new("settings");
    let file = directory.0.join("weft.conf");
    let text = "# A comment\n\nidle 1\nmaxclients 7\n  slow-log-length \"9\"\nmaxmemory 64mb\n";
    std::fs::write(&file, text).unwrap();
    let mut command = program();
    command
        .env("WEFT_SERVER_CONFIG", &file)
        .env("WEFT_SERVER_CLIENTS", "8")
        .env("WEFT_SERVER_IDLE", "2");
    let program = Program::start_with(&mut command, &directory.0, &["--timeout", "300"]);
    let mut client = program.client();
    for (name, value) in [
        ("timeout", "300"),
        ("maxclients", "8"),
        ("slowlog-max-len", "9"),
        ("maxmemory", "67108864"),
        ("port", "0"),
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("threads", "2"),
    ] {
        let expected = format!("*[\"{name}\", \"{value}\"]");
        assert_eq!(client.say(&format!("CONFIG GET {name}")), expected);
    }
    // All or none.
    assert!(client.say("CONFIG SET timeout 5 maxclients x").contains("'maxclients'"));
    assert_eq!(client.say("CONFIG GET timeout"), "*[\"timeout\", \"300\"]");
    assert!(client.say("CONFIG SET port 5").contains("can't set immutable config"));
    assert!(client.say("CONFIG SET nosuch 5").contains("Unknown option"));
    assert_eq!(client.say("CONFIG SET slow-log-micros -1 maxclients 20 maxclients 21"), "+OK");
    assert_eq!(client.say("CONFIG REWRITE"), "+OK");
    let rewritten = "# A comment\n\nidle 1\nclients \"21\"\n  slow-log-length \"9\"\nmaxmemory 64mb\nslow-log-micros \"-1\"\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), rewritten);
}

/// Fault: `CONFIG REWRITE` said OK and left a changed password out, so the next start had the old password again.
#[test]
fn rewrite_says_that_it_does_not_write_a_changed_password() {
    let directory = Directory::new("rewrite");
    let (file, users) = (directory.0.join("weft.conf"), directory.0.join("users"));
    std::fs::write(&file, "idle 1\n").unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let mut alone = Program::start_with(&mut program(), &directory.0, &arguments);
    let mut client = alone.client();
    assert_eq!(client.say("CONFIG SET requirepass secret timeout 2"), "+OK");
    let said = client.say("CONFIG REWRITE");
    assert!(said.starts_with("-ERR") && said.contains("--password-file"), "{said}");
    // The other settings are in the file, and the password is not.
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "idle \"2\"\n");
    alone.terminate();
    let users = users.to_str().unwrap();
    let arguments = ["--config", arguments[1], "--users-file", users];
    let mut with_users = Program::start_with(&mut program(), &directory.0, &arguments);
    let mut client = with_users.client();
    assert_eq!(client.say("CONFIG REWRITE"), "+OK");
    assert_eq!(client.say("CONFIG SET requirepass secret"), "+OK");
    let said = client.say("CONFIG REWRITE");
    assert!(said.ends_with("keep it by ACL SAVE"), "{said}");
    assert_eq!(
        (client.say("ACL SAVE"), client.say("CONFIG REWRITE")),
        ("+OK".into(), "+OK".into())
    );
    with_users.terminate();
    let again = Program::start_with(&mut program(), &directory.0, &arguments);
    assert_eq!(again.client().say("GET k"), "-NOAUTH Authentication required.");
    assert_eq!(again.client().say("AUTH secret"), "+OK");
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let directory = Directory::new("wrong");
    let file = directory.0.join("weft.conf");
    for (text, expected) in [
        ("port 1\nnosuch 1\n", "weft.conf:2: there is no setting 'nosuch'; --help has all of them"),
        ("port\n", "weft.conf:1: write the value of 'port' after it"),
        ("port \"1\n", "weft.conf:1: the quotes are not balanced"),
        ("port x\n", "weft.conf: port x: argument couldn't be parsed into an integer"),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = refusal(program().arg("--config").arg(&file));
        assert!(said.contains(expected), "{said}");
    }
    let said = refusal(program().env("WEFT_SERVER_MEMORY", "lots"));
    assert!(said.contains("WEFT_SERVER_MEMORY=lots: argument must be a memory value"), "{said}");
    let said = refusal(program().args(["--clients", "0"]));
    assert!(said.contains("--clients 0: argument must be between 1 and"), "{said}");
    let said = refusal(program().args(["--tls-port", "1"]));
    assert!(said.contains("--tls-port needs --tls-certificate"), "{said}");
    let help = program().arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for part in ["--tls-client-authority", "[default: 10000]", "CONFIG REWRITE", "Try it:"] {
        assert!(help.contains(part), "{help}");
    }
}

#[test]
fn operators_see_metrics_and_health() {
    let directory = Directory::new("http");
    let port = free_port();
    let port_text = port.to_string();
    let arguments = ["--http-port", &*port_text, "--log-level", "debug"];
    let program = Program::start_with(&mut program(), &directory.0, &arguments);
    let mut client = program.client();
    assert_eq!(client.say("SET k v"), "+OK");
    assert!(fetch(port, "/health").contains("200 OK"));
    let metrics = fetch(port, "/metrics");
    for part in [
        "application/openmetrics-text; version=1.0.0",
        "# TYPE weft_server_commands counter",
        "\nweft_server_commands_total ",
        "\nweft_server_clients ",
        "weft_table_records{table=\"keys\",index=\"\"} 1.0",
        "\nweft_log_syncs_total ",
    ] {
        assert!(metrics.contains(part), "{part} is missing:\n{metrics}");
    }
    // Every name is described once, and no line is there twice.
    let lines: Vec<_> = metrics.lines().skip_while(|line| !line.is_empty()).collect();
    let unique: std::collections::HashSet<_> = lines.iter().collect();
    assert_eq!(lines.len(), unique.len(), "{metrics}");
    assert!(fetch(port, "/nosuch").contains("404"));
}

#[test]
fn operators_see_which_commands_conflict() {
    let directory = Directory::new("inspect");
    let port = free_port();
    let port_text = port.to_string();
    let arguments = ["--inspect-port", &*port_text];
    let program = Program::start_with(&mut program(), &directory.0, &arguments);
    let mut client = program.client();
    for _ in 0..3 {
        client.say("INCR hits");
    }
    assert!(fetch(port, "/").contains("<!doctype html>"));
    // A report may have been made just before the commands, and is shown again for a while.
    let reports = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(20));
        fetch(port, "/report")
    });
    assert!(reports.take(500).any(|report| report.contains(r#""label":"incr""#)));
}

#[test]
fn systemd_hears_when_the_server_is_ready_works_and_stops() {
    let directory = Directory::new("systemd");
    let path = directory.0.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut bytes = [0; 100];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000");
    let mut program = Program::start_with(&mut command, &directory.0, &[]);
    assert_eq!((hear(), hear()), ("READY=1".to_owned(), "WATCHDOG=1".to_owned()));
    let mut client = program.client();
    client.line("SET k v");
    client.send(b"SHUTDOWN\r\n");
    assert!(client.read().is_none());
    assert!(program.child.wait().unwrap().success());
    let mut heard = hear();
    while heard == "WATCHDOG=1" {
        heard = hear();
    }
    assert_eq!(heard, "STOPPING=1");
}

#[test]
fn shutdown_drains_the_other_connections() {
    let server = TestServer::new();
    let (mut one, mut two) = (server.client(), server.client());
    assert!(two.say("SHUTDOWN SAVE").starts_with("-ERR"), "there is no directory to save to");
    assert!(two.say("SHUTDOWN ABORT").starts_with("-ERR"));
    assert_eq!(one.say("SET k v"), "+OK");
    two.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(two.read().is_none() && one.read().is_none());
    // The server ends without the test asking for it: `drop` waits for it.
}

#[test]
fn the_log_has_one_object_a_line() {
    let directory = Directory::new("log");
    let mut command = program();
    command.stderr(Stdio::piped());
    let mut program = Program::start_with(&mut command, &directory.0, &["--log-level", "debug"]);
    assert_eq!(program.client().say("PING"), "+PONG");
    program.terminate();
    let mut text = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object["time"].is_number() && object["message"].is_string(), "{line}");
    }
    assert!(text.contains("a client connects") && text.contains("\"stopped\""), "{text}");
}

#[test]
fn certificates_and_users_are_read_again_after_a_signal() {
    let directory = Directory::new("reload");
    let users = directory.0.join("users");
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    let users_text = users.to_str().unwrap();
    let program = Program::start_with(&mut program(), &directory.0, &["--users-file", users_text]);
    let mut client: Client = program.client();
    std::fs::write(&users, "user default on nopass ~* &* +@all\nuser new on nopass +@all\n")
        .unwrap();
    program.signal("HUP");
    while client.say("ACL USERS") != "*[\"default\", \"new\"]" {}
}

//! Users, and their rights to run commands on keys.

use weft_server::{Options, list_commands};

use crate::client::{TestServer, Value};
use crate::durable::Directory;

/// A user that may do nothing.
const NOTHING: &str = "ACL SETUSER nothing on >secret";

/// Returns arguments with which a command gets past the count of its arguments.
fn call_of(client: &mut crate::client::Client, name: &str) -> Vec<Vec<u8>> {
    let Value::List(_, found) = client.line(&format!("COMMAND INFO {name}")) else { panic!() };
    let Value::List(_, fields) = &found[0] else { panic!("{name}") };
    let arity: i64 = fields[1].shown().trim_start_matches(':').parse().unwrap();
    let mut arguments = vec![b"1".to_vec(); arity.unsigned_abs() as usize];
    arguments[0] = name.as_bytes().to_vec();
    arguments
}

#[test]
fn every_command_is_refused_without_permission() {
    let server = TestServer::new();
    let (mut admin, mut client) = (server.client(), server.client());
    assert_eq!(admin.say(NOTHING), "+OK");
    assert_eq!(client.say("AUTH nothing secret"), "+OK");
    let free = ["auth", "hello", "quit", "reset"];
    let mut tried = 0;
    for (name, _) in list_commands().0.iter().filter(|(name, _)| !free.contains(name)) {
        let arguments = call_of(&mut admin, name);
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| &**argument).collect();
        let reply = client.call(&arguments).shown();
        let refused = format!("-NOPERM this user has no permissions to run the '{name}");
        assert!(reply.starts_with(&refused), "{name}: {reply}");
        tried += 1;
    }
    assert!(tried > 150);
    // Between MULTI and EXEC, with the permission for these two alone.
    admin.line("ACL SETUSER nothing +multi +exec +set ~mine");
    for (lines, expected) in [
        (&["MULTI", "GET k", "EXEC"][..], "-EXECABORT"),
        (&["MULTI", "SET other 1", "EXEC"], "-EXECABORT"),
        (&["MULTI", "SET mine 1", "EXEC"], "*[+OK]"),
    ] {
        let reply = lines.iter().map(|line| client.say(line)).last().unwrap();
        assert!(reply.starts_with(expected), "{lines:?}: {reply}");
    }
    // A permission that is taken away in the meantime.
    client.line("MULTI");
    assert_eq!(client.say("SET mine 2"), "+QUEUED");
    admin.line("ACL SETUSER nothing -set");
    let reply = client.say("EXEC");
    assert!(reply.starts_with("*[-NOPERM"), "{reply}");
    assert_eq!(admin.say("GET mine"), "\"1\"");
}

#[test]
fn keys_have_permissions_to_read_and_to_write() {
    let server = TestServer::new();
    let (mut admin, mut client) = (server.client(), server.client());
    let rules = "ACL SETUSER a on >a +@all -@dangerous ~own:* %R~shared:* %W~log:*";
    assert_eq!(admin.say(rules), "+OK");
    assert_eq!(client.say("AUTH a a"), "+OK");
    let refused =
        "-NOPERM this user has no permissions to access one of the keys used as arguments";
    for (line, is_permitted) in [
        ("SET own:k 1", true),
        ("INCR own:k", true),
        ("SET other 1", false),
        ("GET shared:k", true),
        ("SET shared:k 1", false),
        ("GETDEL shared:k", false),
        ("LPUSH log:k 1", true),
        ("LRANGE log:k 0 -1", false),
        ("SET log:x 1 GET", false),
        ("COPY shared:k own:copy", true),
        ("COPY own:k shared:k", false),
        ("MGET own:k shared:k", true),
        ("MGET own:k log:k", false),
        ("SUNIONSTORE log:s own:s shared:s", true),
        ("SUNIONSTORE log:s own:s other", false),
        ("ZUNION 2 own:z other", false),
        ("ZUNION x own:z", false),
        ("WATCH other", false),
    ] {
        let reply = client.say(line);
        assert_eq!(reply != refused, is_permitted, "{line}: {reply}");
    }
    for (line, is_permitted) in [
        ("KEYS *", false),
        ("FLUSHALL", false),
        ("CONFIG GET save", false),
        ("CLIENT LIST", false),
        ("CLIENT SETNAME me", true),
        ("ACL WHOAMI", true),
        ("ACL LIST", false),
        ("PING", true),
    ] {
        let reply = client.say(line);
        assert_eq!(!reply.starts_with("-NOPERM"), is_permitted, "{line}: {reply}");
    }
    assert_eq!(admin.say("ACL DRYRUN a GET own:k"), "+OK");
    let dry = "\"This user has no permissions to access the \\'other\\' key\"";
    assert_eq!(admin.say("ACL DRYRUN a GET other"), dry);
    let log = admin.say("ACL LOG 1");
    assert!(log.contains("\"acl|list\"") && log.contains("user=a"), "{log}");
    assert_eq!(admin.say("ACL LOG RESET"), "+OK");
    assert_eq!(admin.say("ACL LOG"), "*[]");
}

#[test]
fn a_consumer_with_the_name_of_an_option_opens_no_other_key() {
    let server = TestServer::new();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.line("ACL SETUSER a on nopass +@all ~s*");
    for key in ["zecret", "shown", "streams"] {
        admin.line(&format!("XGROUP CREATE {key} g 0 MKSTREAM"));
        admin.line(&format!("XGROUP CREATE {key} streams 0"));
        admin.line(&format!("XADD {key} 1-1 a 1"));
    }
    client.line("AUTH a x");
    let refused =
        "-NOPERM this user has no permissions to access one of the keys used as arguments";
    for line in [
        "XREADGROUP GROUP g streams STREAMS zecret >",
        "XREADGROUP GROUP streams streams STREAMS zecret >",
        "XREADGROUP GROUP streams s STREAMS zecret >",
        "XREAD STREAMS zecret 0",
    ] {
        assert_eq!(client.say(line), refused, "{line}");
    }
    for line in [
        "XREADGROUP GROUP g streams STREAMS shown >",
        "XREADGROUP GROUP streams streams STREAMS streams >",
    ] {
        assert!(client.say(line).contains("\"1-1\""), "{line}");
    }
}

#[test]
fn rules_are_shown_as_redis_shows_them() {
    let server = TestServer::new();
    let mut client = server.client();
    let hash = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
    client.line("ACL SETUSER alice on >pw ~a:* %R~r:* -@dangerous +@read +config|get &ch*");
    let alice =
        format!("user alice on #{hash} ~a:* %R~r:* &ch* -@all -@dangerous +@read +config|get");
    let default = "user default on nopass ~* &* +@all";
    assert_eq!(client.say("ACL LIST"), format!("*[\"{alice}\", \"{default}\"]"));
    assert_eq!(client.say("ACL USERS"), "*[\"alice\", \"default\"]");
    assert_eq!(client.say("ACL WHOAMI"), "\"default\"");
    let user = client.say("ACL GETUSER alice");
    let expected = format!(
        "*[\"flags\", *[\"on\"], \"passwords\", *[\"{hash}\"], \"commands\", \"-@all -@dangerous +@read +config|get\", \
         \"keys\", \"~a:* %R~r:*\", \"channels\", \"&ch*\", \"selectors\", *[]]"
    );
    assert_eq!(user, expected);
    assert_eq!(
        client.say("ACL CAT transaction"),
        r#"*["discard", "exec", "multi", "unwatch", "watch"]"#
    );
    for (line, error) in [
        ("ACL SETUSER b +nosuch", "'+nosuch': Unknown command or category name in ACL"),
        ("ACL SETUSER b +get|x", "'+get|x': Unknown command or category name in ACL"),
        ("ACL SETUSER b allkeys ~x", "'~x': Adding a pattern after the * pattern"),
        ("ACL SETUSER b x", "'x': Syntax error"),
        ("ACL SETUSER b #12", "'#12': The password hash must be exactly 64 characters"),
        ("ACL SETUSER b <no", "'<no': The password you are trying to remove"),
        ("ACL SETUSER b (+get)", "'(+get)': Selectors are not supported"),
        ("ACL SETUSER \"a b\"", "Usernames can't contain spaces"),
        ("ACL CAT nosuch", "Unknown category 'nosuch'"),
        ("ACL DELUSER default", "The 'default' user cannot be removed"),
        ("ACL SAVE", "start it with --users-file"),
        ("ACL NOSUCH", "unknown subcommand"),
    ] {
        let reply = client.say(line);
        assert!(reply.starts_with("-ERR") && reply.contains(error), "{line}: {reply}");
    }
    assert_eq!(client.say("ACL USERS"), "*[\"alice\", \"default\"]");
    let password = client.say("ACL GENPASS 5");
    assert_eq!(password.len(), 4, "{password}");
    assert_ne!(client.say("ACL GENPASS"), client.say("ACL GENPASS"));
}

#[test]
fn changes_reach_connections_that_are_there() {
    let server = TestServer::new();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.line("ACL SETUSER a on >one >two +get ~*");
    assert_eq!(client.say("AUTH a two"), "+OK");
    assert_eq!(client.say("GET k"), "null");
    admin.line("ACL SETUSER a -get");
    assert!(client.say("GET k").starts_with("-NOPERM"));
    admin.line("ACL SETUSER a +@all -@admin <two");
    assert_eq!(client.say("SET k v"), "+OK");
    let mut other = server.client();
    assert!(other.say("AUTH a two").starts_with("-WRONGPASS"));
    assert!(admin.say("ACL LOG 1").contains("\"auth\""));
    assert!(other.say("HELLO 2 AUTH a one").starts_with("*["));
    assert!(admin.say("CLIENT LIST").contains("user=a"));
    admin.line("ACL SETUSER a off");
    assert!(server.client().say("AUTH a one").starts_with("-WRONGPASS"));
    assert_eq!(admin.say("ACL DELUSER a nosuch"), ":1");
    assert!(client.read().is_none() && other.read().is_none());
    // A password for connections that begin from now on.
    assert_eq!(admin.say("CONFIG SET requirepass secret"), "+OK");
    assert_eq!(server.client().say("GET k"), "-NOAUTH Authentication required.");
    assert_eq!(admin.say("GET k"), "\"v\"");
    assert_eq!(admin.say("CONFIG GET requirepass"), "*[\"requirepass\", \"\"]");
}

#[test]
fn users_are_kept_in_a_file() {
    let directory = Directory::new("users");
    let file = directory.0.join("users");
    let options = || Options { users_file: Some(file.clone()), ..Options::default() };
    {
        let server = TestServer::with(options());
        let mut client = server.client();
        client.line("ACL SETUSER a on >secret +@read %R~a:*");
        client.line("ACL SETUSER default >boss");
        assert_eq!(client.say("ACL SAVE"), "+OK");
        client.line("ACL SETUSER lost on nopass");
        assert_eq!(client.say("ACL LOAD"), "+OK");
        assert_eq!(client.say("ACL USERS"), "*[\"a\", \"default\"]");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("secret") && text.starts_with("user a on #"), "{text}");
    let server = TestServer::with(options());
    let mut client = server.client();
    assert!(client.say("GET a:k").starts_with("-NOAUTH"));
    assert_eq!(client.say("AUTH boss"), "+OK");
    assert_eq!(client.say("AUTH a secret"), "+OK");
    assert_eq!(client.say("GET a:k"), "null");
    assert!(client.say("SET a:k v").starts_with("-NOPERM"));
    // A file that is wrong changes nothing.
    std::fs::write(&file, "user a on +nosuch\n").unwrap();
    assert_eq!(client.say("AUTH boss"), "+OK");
    let wrong = client.say("ACL LOAD");
    assert!(wrong.contains("users:1: '+nosuch': Unknown command"), "{wrong}");
    assert_eq!(client.say("AUTH a secret"), "+OK");
}

#[test]
fn subscribers_are_disconnected_when_their_user_loses_the_channel() {
    let server = TestServer::new();
    let mut admin = server.client();
    admin.line("ACL SETUSER a on nopass +@all ~* &news &lo* &shard");
    let subscribed = ["SUBSCRIBE news", "PSUBSCRIBE lo*", "SSUBSCRIBE shard", "SUBSCRIBE log"];
    let mut clients: Vec<_> = subscribed
        .iter()
        .map(|line| {
            let mut client = server.client();
            assert_eq!(client.say("AUTH a x"), "+OK");
            assert!(client.say(line).contains(":1"));
            client
        })
        .collect();
    // Another user's subscriber, and rights that are only given another form.
    let mut other = server.client();
    other.line("SUBSCRIBE news");
    assert_eq!(admin.say("ACL SETUSER a -get resetchannels &lo* &news &shard &more"), "+OK");
    for (channel, receiver) in [("news", 0), ("log", 3)] {
        admin.line(&format!("PUBLISH {channel} x"));
        assert!(crate::blocking::next(&mut clients[receiver]).contains("message"));
    }
    assert!(crate::blocking::next(&mut other).contains("message"));
    assert!(crate::blocking::next(&mut clients[1]).contains("pmessage"));
    // Patterns are compared as they are written, as Redis does.
    assert_eq!(admin.say("ACL SETUSER a resetchannels &l* &n*"), "+OK");
    assert!(clients[1].read().is_none() && clients[2].read().is_none());
    assert_eq!(admin.say("PUBLISH news y"), ":2");
    assert_eq!(admin.say("ACL SETUSER a resetchannels"), "+OK");
    for number in [0, 3] {
        while clients[number].read().is_some() {}
    }
    assert!(crate::blocking::next(&mut other).contains("\"y\""));
    while admin.say("PUBLISH news z") != ":1" {}
}

#[test]
fn sort_reads_other_keys_only_for_users_that_may_read_all() {
    let server = TestServer::new();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.line("ACL SETUSER a on nopass +@all ~l* %R~read");
    admin.line("RPUSH read 2 1");
    client.line("AUTH a x");
    client.line("RPUSH l 2 1");
    let denied = |option| {
        format!("-ERR {option} option of SORT denied due to insufficient ACL permissions.")
    };
    let refused =
        "-NOPERM this user has no permissions to access one of the keys used as arguments";
    for (line, reply) in [
        ("SORT l BY w*", &*denied("BY")),
        ("SORT l GET w*", &denied("GET")),
        ("SORT l GET #", &denied("GET")),
        ("SORT_RO l BY w*", &denied("BY")),
        ("SORT l BY nosort", "*[\"2\", \"1\"]"),
        ("SORT l STORE x", refused),
        ("SORT l STORE l2", ":2"),
        ("SORT read STORE l2", ":2"),
        ("SORT l STORE read", refused),
        ("GEORADIUS l3 1 1 1 m STOREDIST x", refused),
        ("GEORADIUS l3 1 1 1 m STORE l4 STOREDIST x", refused),
        ("GEOSEARCHSTORE read l3 FROMLONLAT 1 1 BYRADIUS 1 m", refused),
    ] {
        assert_eq!(client.say(line), reply, "{line}");
    }
    admin.line("ACL SETUSER a %R~*");
    assert_eq!(client.say("SORT l BY w* GET #"), "*[\"1\", \"2\"]");
}

#[test]
fn clients_that_wait_lose_their_rights_at_once() {
    let server = TestServer::new();
    let (mut admin, mut one, mut two) = (server.client(), server.client(), server.client());
    admin.line("ACL SETUSER a on nopass +@all ~k");
    admin.line("ACL SETUSER b on nopass +@all ~k");
    for (client, user) in [(&mut one, "a"), (&mut two, "b")] {
        assert_eq!(client.say(&format!("AUTH {user} x")), "+OK");
        client.send(b"BLPOP k 0\r\n");
    }
    crate::blocking::until_blocked(&mut admin, 2);
    admin.line("ACL SETUSER a resetkeys");
    admin.line("ACL DELUSER b");
    assert!(two.read().is_none());
    assert_eq!(admin.say("RPUSH k v"), ":1");
    assert!(crate::blocking::next(&mut one).starts_with("-NOPERM"));
    assert_eq!(admin.say("LRANGE k 0 -1"), "*[\"v\"]");
    assert!(one.say("GET k").starts_with("-NOPERM"));
}

#[test]
fn what_comes_after_a_change_of_rights_is_not_given_to_a_client_that_begins_to_wait() {
    let server = TestServer::new();
    let (mut admin, mut client) = (server.client(), server.client());
    for _ in 0..300 {
        admin.line("ACL SETUSER a on nopass +@all ~k");
        assert_eq!(client.say("AUTH a x"), "+OK");
        client.send(b"BLPOP k 0\r\n");
        crate::blocking::until_blocked(&mut admin, 1);
        admin.line("ACL SETUSER a resetkeys");
        assert_eq!(admin.say("RPUSH k v"), ":1");
        assert!(crate::blocking::next(&mut client).starts_with("-NOPERM"));
        admin.line("DEL k");
    }
}

#[test]
fn a_file_of_users_that_is_read_again_ends_the_connections_of_those_it_lacks() {
    let directory = Directory::new("users-again");
    let file = directory.0.join("users");
    std::fs::write(&file, "user a on nopass +@all ~* &*\nuser b on nopass +@all ~* &b\n").unwrap();
    let server = TestServer::with(Options { users_file: Some(file.clone()), ..Options::default() });
    let (mut admin, mut one, mut two) = (server.client(), server.client(), server.client());
    one.line("AUTH a x");
    two.line("AUTH b x");
    two.line("SUBSCRIBE b");
    std::fs::write(&file, "user b on nopass +@all ~* &b &c\n").unwrap();
    assert_eq!(admin.say("ACL LOAD"), "+OK");
    assert!(one.read().is_none());
    assert_eq!(admin.say("PUBLISH b x"), ":1");
    std::fs::write(&file, "user b on nopass +@all ~* &c\n").unwrap();
    assert_eq!(admin.say("ACL LOAD"), "+OK");
    assert!(two.read().is_some() && two.read().is_none());
}

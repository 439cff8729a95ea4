//! Scripts and functions: each call is one transaction, within limits, and leaves no state behind.

use std::time::{Duration, Instant};

use weft::DurabilityOptions;
use weft_server::{Options, StoreOptions};

use crate::client::{Client, TestServer, Value};
use crate::missing::skip;
use crate::replies::Redis;

fn eval(client: &mut Client, script: &str, keys: &[&str], arguments: &[&str]) -> String {
    let count = keys.len().to_string();
    let parts = ["EVAL", script, &count].into_iter().chain(keys.iter().copied());
    let parts: Vec<&[u8]> = parts.chain(arguments.iter().copied()).map(str::as_bytes).collect();
    client.call(&parts).shown()
}

const TRANSFER: &str = "
    local from, to = tonumber(redis.call('GET', KEYS[1])), tonumber(redis.call('GET', KEYS[2]))
    if from < 1 then return 0 end
    redis.call('SET', KEYS[1], from - 1)
    redis.call('SET', KEYS[2], to + 1)
    return 1";

#[test]
fn scripts_of_several_clients_are_transactions() {
    let server = TestServer::new();
    let mut client = server.client();
    client.line("MSET a 100 b 100 c 100");
    server.with_clients(4, |number, mut client| {
        let keys = [["a", "b"], ["b", "c"], ["c", "a"], ["b", "a"]][number];
        for _ in 0..200 {
            let moved = eval(&mut client, TRANSFER, &keys, &[]);
            assert!(moved == ":0" || moved == ":1", "{moved}");
        }
    });
    let Value::List(_, values) = client.line("MGET a b c") else { panic!() };
    let sum: i64 = values
        .iter()
        .map(|value| value.shown().trim_matches('"').parse::<i64>().unwrap())
        .inspect(|value| assert!(*value >= 0))
        .sum();
    assert_eq!(sum, 300);
}

#[test]
fn a_script_that_runs_again_sees_the_same_time_and_numbers() {
    let server = TestServer::new();
    // Writes what it sees, and conflicts with the others.
    let script = "
        local seen = redis.call('TIME')[1] .. redis.call('TIME')[2] .. math.random(1e9) .. math.random(1e9)
        redis.call('INCR', 'attempted')
        redis.call('SADD', KEYS[1], seen)
        return {seen, os.clock() > 0 and 1 or 0}";
    let seen = std::sync::Mutex::new(std::collections::HashSet::new());
    server.with_clients(4, |_, mut client| {
        for _ in 0..100 {
            let reply = eval(&mut client, script, &["seen"], &[]);
            assert!(reply.ends_with(":1]"), "{reply}");
            assert!(seen.lock().unwrap().insert(reply), "two calls had the same numbers");
        }
    });
    let mut client = server.client();
    assert_eq!(client.say("GET attempted"), "\"400\"");
    assert_eq!(client.say("SCARD seen"), ":400");
}

#[test]
fn an_error_undoes_a_script_if_the_client_asks_for_it() {
    let server = TestServer::new();
    let mut client = server.client();
    let script = "redis.call('SET', KEYS[1], 1) error({err='CODE wrong'})";
    assert!(eval(&mut client, script, &["a"], &[]).starts_with("-CODE wrong script: "));
    assert_eq!(client.say("GET a"), "\"1\"");
    assert_eq!(client.say("CLIENT WEFT.ROLLBACK ON"), "+OK");
    assert!(eval(&mut client, script, &["b"], &[]).starts_with("-CODE wrong script: "));
    assert_eq!(client.say("GET b"), "null");
    let returned = "redis.call('SET', KEYS[1], 1) return {err='CODE returned'}";
    assert_eq!(eval(&mut client, returned, &["b"], &[]), "-CODE returned");
    assert_eq!(client.say("GET b"), "null");
    // An error that the script catches undoes nothing.
    let caught = "redis.call('SET', KEYS[1], 1) redis.pcall('LPUSH', KEYS[1], 1) return 1";
    assert_eq!(eval(&mut client, caught, &["b"], &[]), ":1");
    assert_eq!(client.say("GET b"), "\"1\"");
    client.line("MULTI");
    client.line("SET c 1");
    eval(&mut client, script, &["d"], &[]);
    let reply = client.say("EXEC");
    assert!(
        reply.starts_with("-EXECABORT") && reply.contains("(eval) failed: CODE wrong"),
        "{reply}"
    );
    assert_eq!(client.say("EXISTS c d"), ":0");
}

#[test]
fn no_state_outlives_a_call() {
    let server = TestServer::new();
    let mut client = server.client();
    for script in [
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'x', 1)",
        "rawset(string, 'x', 1)",
        "table.insert(string, 1)",
        "table.insert(redis, 1)",
        "table.insert(_G, 1)",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "getmetatable(_G).__index = {}",
        "getmetatable('').__index = {}",
        "getmetatable(redis).__index = {}",
        "string.format = nil",
        "redis.call = nil",
        "cjson.null = 1",
        "_G.string = nil",
        "KEYS = {}",
        "setfenv(1, {})",
        "getfenv(0).x = 1",
        "getfenv(redis.call).x = 1",
        "coroutine.wrap(function() x = 1 end)()",
        "loadstring('x = 1')()",
        "return loadstring(string.dump(function() end))",
        "return newproxy()",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        assert!(reply.starts_with('-'), "{script}: {reply}");
    }
    assert_eq!(eval(&mut client, "return loadstring('\\27Lua')", &[], &[]), "null");
    // Changes of a call's own tables are its own, and what one call draws does not move the next one's numbers.
    assert_eq!(
        eval(&mut client, "KEYS[1] = 'z' math.randomseed(1) return KEYS[1]", &["a"], &[]),
        "\"z\""
    );
    assert_eq!(eval(&mut client, "return KEYS[1]", &["a"], &[]), "\"a\"");
    let seeded = "math.randomseed(7) return tostring(math.random())";
    assert_eq!(eval(&mut client, seeded, &[], &[]), eval(&mut client, seeded, &[], &[]));
    // The variables of a library begin again with each call.
    let library = "#!lua name=counting\nlocal count = 0\nredis.register_function('count', function() count = count + 1 return count end)";
    client.call(&[b"FUNCTION", b"LOAD", library.as_bytes()]);
    assert_eq!(client.say("FCALL count 0"), ":1");
    assert_eq!(client.say("FCALL count 0"), ":1");
}

fn limited(millis: u64, bytes: usize) -> TestServer {
    let (script_time, script_bytes) = (Duration::from_millis(millis), bytes);
    TestServer::with(Options { script_time, script_bytes, ..Options::default() })
}

#[test]
fn scripts_that_loop_are_stopped_while_others_are_served() {
    let server = limited(300, 64 << 20);
    let looping = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error) end",
        "local function f() return f() end f()",
        "while true do redis.pcall('GET', 'a') end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k .. 'x'] end}) while true do pcall(function() return t.x end) end",
    ];
    // As many as there are threads, and more.
    server.with_clients(looping.len(), |number, mut client| {
        let script = format!("redis.call('SET', KEYS[1], 1) {}", looping[number]);
        let key = format!("written {number}");
        let begun = Instant::now();
        let reply = eval(&mut client, &script, &[&key], &[]);
        assert!(
            reply
                .contains("the script was stopped, and rolled back, because it has run for 300 ms"),
            "{script}: {reply}"
        );
        assert!(begun.elapsed() >= Duration::from_millis(300));
        let mut bystander = server.client();
        assert_eq!(bystander.call(&[b"EXISTS", key.as_bytes()]).shown(), ":0");
        assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
    });
}

#[test]
fn others_are_served_while_scripts_run_and_scripts_are_killed() {
    let server = limited(60_000, 64 << 20);
    let mut client = server.client();
    assert_eq!(client.say("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    std::thread::scope(|scope| {
        // More than the server has threads.
        let running: Vec<_> = (0..4)
            .map(|_| {
                let mut client = server.client();
                scope.spawn(move || eval(&mut client, "while true do end", &[], &[]))
            })
            .collect();
        while running.iter().any(|thread| !thread.is_finished()) {
            assert_eq!(client.say("PING"), "+PONG");
            assert_eq!(client.say("SET bystander served"), "+OK");
            let killed = client.say("SCRIPT KILL");
            assert!(killed == "+OK" || killed.starts_with("-NOTBUSY"), "{killed}");
        }
        for thread in running {
            assert_eq!(
                thread.join().unwrap(),
                "-ERR the script was killed by SCRIPT KILL, and rolled back"
            );
        }
    });
}

#[test]
fn scripts_that_allocate_are_stopped() {
    let server = limited(60_000, 4 << 20);
    let mut client = server.client();
    client.call(&[b"SET", b"long", &vec![b'x'; 3 << 20]]);
    for script in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "return string.rep('x', 1e9)",
        "local s = 'x' while true do s = s .. s end",
        "while true do pcall(string.rep, 'x', 1e9) end",
        "return pcall(string.rep, 'x', 1e9)",
        "local t = {} while true do pcall(function() for i = 1, 1e9 do t[#t + 1] = {} end end) end",
        "local t = {} for i = 1, 1e9 do t[i] = coroutine.create(function() end) end",
        "local t = {} for i = 1, 10 do t[i] = redis.call('GET', 'long') .. i end return 1",
        "return redis.call('MGET', 'long', 'long', 'long')",
        "local t = {} for i = 1, 1e7 do t[i] = cjson.decode('[[[[1]]]]') end",
        "return cjson.decode('[' .. string.rep('1,', 1e6) .. '1]')",
        // All three strings are in use at once, and none equals another. So Lua has to keep each of them, and they need
        // more than the limit and what an earlier call may have left.
        "local x = string.rep('x', 19e5) local s = '{\\\"' .. x .. 'y\\\":1}' return {cjson.decode(s), x}",
        "local t = {} for i = 1, 60 do t = {t, t} end return cjson.encode(t)",
        "local s = string.rep('x', 1e6) return cjson.encode({s, s, s, s, s, s})",
        "local s, t = string.rep('x', 1e6), {} for i = 1, 100 do t[i] = s end return cmsgpack.pack(t)",
        "local s = string.rep('x', 1e6) return struct.pack('ssssss', s, s, s, s, s, s)",
    ] {
        let script = format!("redis.call('SET', 'written', 1) {script}");
        let reply = eval(&mut client, &script, &[], &[]);
        assert!(
            reply.contains(
                "the script was stopped, and rolled back, because it needs more than 4194304 bytes"
            ),
            "{script}: {reply}"
        );
        assert_eq!(client.say("EXISTS written"), ":0");
    }
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn deep_recursion_is_an_error_of_the_script() {
    let server = TestServer::with(Options { output_bytes: 1 << 20, ..Options::default() });
    let mut client = server.client();
    for script in [
        "local function f() return 1 + f() end return f()",
        "local t = {} t[1] = t return t",
        "local t = {} t[1] = t return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 1e5))",
        "return cmsgpack.unpack(string.rep(string.char(0x91), 1e5))",
        "local f = function() end for i = 1, 300 do local g = f f = function() pcall(g) end end f() error('end')",
        "local t = {} for i = 1, 1e4 do t = {map = {x = t}} end return t",
        "local t = {} for i = 1, 60 do t = {t, t} end return t",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        assert!(reply.starts_with("-ERR"), "{script}: {reply}");
    }
    assert_eq!(client.say("PING"), "+PONG");
}

#[test]
fn functions_and_their_names_survive_a_restart() {
    let directory = std::env::temp_dir().join(format!("weft-functions-{}", fastrand::u64(..)));
    let options = || {
        let directory = Some((directory.clone(), DurabilityOptions::new()));
        Options { store: StoreOptions { directory, memory_limit: None }, ..Options::default() }
    };
    let library = "#!lua name=lib\nredis.register_function('twice', function(_, args) return 2 * args[1] end)";
    let server = TestServer::with(options());
    let mut client = server.client();
    assert_eq!(client.call(&[b"FUNCTION", b"LOAD", library.as_bytes()]).shown(), "\"lib\"");
    drop((client, server));
    let server = TestServer::with(options());
    let mut client = server.client();
    assert_eq!(client.say("FCALL twice 0 21"), ":42");
    assert_eq!(client.say("FLUSHALL"), "+OK");
    assert_eq!(client.say("FCALL twice 0 21"), ":42");
    assert_eq!(client.say("FUNCTION DELETE lib"), "+OK");
    assert_eq!(client.say("FCALL twice 0 21"), "-ERR Function not found");
    drop((client, server));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn values_of_the_third_version_are_converted() {
    let server = TestServer::new();
    let mut client = server.client();
    client.line("HELLO 3");
    client.line("HSET h f v");
    client.line("SADD s a");
    client.line("ZADD z 1.5 m");
    for (script, reply) in [
        ("return {true, false}", "*[:1, _]"),
        ("redis.setresp(3) return {true, false}", "*[#t, #f]"),
        ("return {double = 1.5}", ",1.5"),
        ("return {map = {a = 1}}", "%[\"a\", :1]"),
        ("return {set = {a = true}}", "~[\"a\"]"),
        ("return {big_number = '123'}", "(123"),
        ("return {verbatim_string = {format = 'txt', string = 'x'}}", "\"txt:x\""),
        ("redis.setresp(3) return redis.call('HGETALL', 'h')", "%[\"f\", \"v\"]"),
        ("redis.setresp(3) return redis.call('SMEMBERS', 's')", "~[\"a\"]"),
        ("redis.setresp(3) return redis.call('ZSCORE', 'z', 'm')", ",1.5"),
        ("redis.setresp(3) return redis.call('HGETALL', 'h').map.f", "\"v\""),
        ("redis.setresp(3) return type(redis.call('GET', 'absent'))", "\"nil\""),
        ("return redis.call('HGETALL', 'h')", "*[\"f\", \"v\"]"),
    ] {
        assert_eq!(eval(&mut client, script, &[], &[]), reply, "{script}");
    }
}

#[test]
fn scripts_are_known_by_their_digest_until_they_are_flushed() {
    let server = TestServer::new();
    let (mut one, mut two) = (server.client(), server.client());
    let digest = one.call(&[b"SCRIPT", b"LOAD", b"return 7"]).shown();
    let digest = digest.trim_matches('"');
    assert_eq!(two.say(&format!("EVALSHA {digest} 0")), ":7");
    assert_eq!(two.say(&format!("EVALSHA {} 0", digest.to_uppercase())), ":7");
    assert_eq!(two.say(&format!("SCRIPT EXISTS {digest} x")), "*[:1, :0]");
    // Other scripts do not push out one that was loaded.
    for number in 0..600 {
        assert_eq!(eval(&mut one, &format!("return {number}"), &[], &[]), format!(":{number}"));
    }
    assert_eq!(two.say(&format!("EVALSHA {digest} 0")), ":7");
    assert_eq!(one.say("SCRIPT FLUSH"), "+OK");
    assert_eq!(
        two.say(&format!("EVALSHA {digest} 0")),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
}

#[test]
fn functions_that_were_dumped_are_restored() {
    let server = TestServer::new();
    let mut client = server.client();
    for (library, function) in [("one", "f"), ("two", "g")] {
        let code = format!(
            "#!lua name={library}\nredis.register_function('{function}', function() return '{library}' end)"
        );
        client.call(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    }
    let Value::Text(dump) = client.line("FUNCTION DUMP") else { panic!("a string") };
    assert_eq!(client.say("FUNCTION FLUSH"), "+OK");
    assert_eq!(client.call(&[b"FUNCTION", b"RESTORE", &dump]).shown(), "+OK");
    assert_eq!(
        (client.say("FCALL f 0"), client.say("FCALL g 0")),
        ("\"one\"".into(), "\"two\"".into())
    );
    let Some(redis) = Redis::start_in(&std::env::temp_dir()) else {
        skip("redis-server", "redis-server");
        return;
    };
    let mut redis = Client::new(redis.1);
    assert_eq!(redis.call(&[b"FUNCTION", b"RESTORE", &dump]).shown(), "+OK");
    assert_eq!(redis.say("FCALL g 0"), "\"two\"");
}

#[test]
fn arguments_and_replies_of_all_kinds_reach_commands_and_scripts() {
    let server = TestServer::new();
    let mut client = server.client();
    for (script, expected) in [
        // Numbers: integers as such, others with all their digits.
        (
            "redis.call('RPUSH', 'n', 7, -12) redis.call('RPUSH', 'n', 1.5) redis.call('RPUSH', 'n', 2^53, -2^53) return redis.call('LRANGE', 'n', 0, -1)",
            "*[\"7\", \"-12\", \"1.5\", \"9007199254740992\", \"-9007199254740992\"]",
        ),
        // More arguments than a short call has.
        (
            "local t = {} for n = 1, 200 do t[n] = 'v' .. n end return redis.call('RPUSH', 'many', unpack(t))",
            ":200",
        ),
        // Bytes.
        (
            "redis.call('SET', 'b', 'a\\0b\\255') return {redis.call('STRLEN', 'b'), redis.call('GET', 'b') == 'a\\0b\\255'}",
            "*[:4, :1]",
        ),
        (
            "redis.call('SET', 'long', string.rep('x', 100000)) return #redis.call('GET', 'long')",
            ":100000",
        ),
        // Replies.
        ("return redis.call('GET', 'absent') == false", ":1"),
        ("return redis.call('SET', 'k', 1)['ok']", "\"OK\""),
        ("return redis.call('INCRBY', 'k', 41) + 1", ":43"),
        ("return #redis.call('KEYS', 'n')", ":1"),
        (
            "return redis.pcall('LPUSH', 'k', 1)['err']",
            "\"WRONGTYPE Operation against a key holding the wrong kind of value\"",
        ),
        ("redis.pcall('LPUSH', 'k', 1) return redis.call('GET', 'k')", "\"42\""),
        ("redis.setresp(3) return redis.call('GET', 'absent') == nil", ":1"),
    ] {
        let reply = client.call(&[b"EVAL", script.as_bytes(), b"0"]).shown();
        assert_eq!(reply, expected, "{script}");
    }
    for script in ["redis.call('GET', {})", "redis.call('GET', nil)", "redis.call('GET', true)"] {
        let reply = client.call(&[b"EVAL", script.as_bytes(), b"0"]).shown();
        assert!(reply.contains("must be strings or integers"), "{script}: {reply}");
    }
}

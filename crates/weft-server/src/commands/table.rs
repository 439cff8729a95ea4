//! The table of commands.

use super::flags::{
    ADMIN, BLOCKS, ENDS_QUEUE, FAST, GROWS, NO_AUTH, NO_SCRIPT, NOT_QUEUED, READ, SHORT, SLOW,
    WHILE_SUBSCRIBED, WRITE,
};
use super::{
    Command, KeyPlaces, Run, SessionCommand, bits, blocking, connection, dump, expiry, functions,
    geo, hashes, hyperloglog, info, introspection, keys, lcs, lists, pubsub, replication, saving,
    scan, scripts, sets, sort, sorted_combinations, sorted_ranges, sorted_sets, stream_groups,
    stream_info, streams, strings, users,
};
use crate::call::DataCommand;

const fn data(
    group: &'static str,
    name: &'static str,
    arity: i64,
    flags: u16,
    keys: KeyPlaces,
    summary: &'static str,
    run: DataCommand,
) -> Command {
    Command { name, arity, flags, keys, group, summary, run: Run::Data(run) }
}

const fn session(
    group: &'static str,
    name: &'static str,
    arity: i64,
    flags: u16,
    keys: KeyPlaces,
    summary: &'static str,
    run: SessionCommand,
) -> Command {
    Command { name, arity, flags, keys, group, summary, run: Run::Session(run) }
}

const NONE: KeyPlaces = KeyPlaces::None;
const ONE: KeyPlaces = KeyPlaces::Range(1, 1, 1);
const TWO: KeyPlaces = KeyPlaces::Range(1, 2, 1);
const ALL: KeyPlaces = KeyPlaces::Range(1, -1, 1);
const PAIRS: KeyPlaces = KeyPlaces::Range(1, -1, 2);
const SECOND: KeyPlaces = KeyPlaces::Range(2, 2, 1);
const NUMBERED: KeyPlaces = KeyPlaces::Numbered(1);
const BEFORE_TIME: KeyPlaces = KeyPlaces::Range(1, -2, 1);
const TIMED: KeyPlaces = KeyPlaces::Numbered(2);
const STREAMS: KeyPlaces = KeyPlaces::Streams;
const SORTED: KeyPlaces = KeyPlaces::FirstAndAfter(&["store"]);
const PLACED: KeyPlaces = KeyPlaces::FirstAndAfter(&["store", "storedist"]);
const STORED: KeyPlaces = KeyPlaces::FirstAndNumbered;
/// Adds or changes an element.
const PUT: u16 = WRITE | GROWS | FAST;
/// Writes a whole value.
const STORE: u16 = WRITE | GROWS;
/// Removes or changes something that is there.
const CHANGE: u16 = WRITE | FAST;
/// Reads an element.
const LOOK: u16 = READ | FAST;

/// Waits for what is not there.
const BLOCK: u16 = WRITE | BLOCKS;
/// Begins or ends a subscription.
const SUBSCRIBES: u16 = FAST | NOT_QUEUED | WHILE_SUBSCRIBED;

/// All commands.
#[rustfmt::skip]
pub static COMMANDS: &[Command] = &[
    data("string", "append", 3, PUT, ONE, "Appends to a string, which is created if it does not exist.", strings::append),
    data("string", "decr", 2, PUT, ONE, "Subtracts one from an integer.", strings::decr),
    data("string", "decrby", 3, PUT, ONE, "Subtracts a number from an integer.", strings::decrby),
    data("string", "get", 2, LOOK, ONE, "Returns a string.", strings::get),
    data("string", "getdel", 2, CHANGE, ONE, "Returns a string, and deletes the key.", strings::getdel),
    data("string", "getex", -2, CHANGE, ONE, "Returns a string, and sets when it expires.", strings::getex),
    data("string", "getrange", 4, READ, ONE, "Returns a part of a string.", strings::getrange),
    data("string", "getset", 3, PUT, ONE, "Sets a string, and returns the one before.", strings::getset),
    data("string", "incr", 2, PUT, ONE, "Adds one to an integer.", strings::incr),
    data("string", "incrby", 3, PUT, ONE, "Adds a number to an integer.", strings::incrby),
    data("string", "incrbyfloat", 3, PUT, ONE, "Adds a number with a fraction.", strings::incrbyfloat),
    data("string", "lcs", -3, READ | SLOW, TWO, "Returns the longest common subsequence of two strings.", lcs::lcs),
    data("string", "mget", -2, LOOK, ALL, "Returns several strings.", strings::mget),
    data("string", "mset", -3, STORE, PAIRS, "Sets several strings.", strings::mset),
    data("string", "msetnx", -3, STORE, PAIRS, "Sets several strings if none of the keys exists.", strings::msetnx),
    data("string", "psetex", 4, STORE, ONE, "Sets a string that expires, in milliseconds.", strings::psetex),
    data("string", "set", -3, STORE | SHORT, ONE, "Sets a string, whatever the key was before.", strings::set),
    data("string", "setex", 4, STORE, ONE, "Sets a string that expires, in seconds.", strings::setex),
    data("string", "setnx", 3, PUT, ONE, "Sets a string if the key does not exist.", strings::setnx),
    data("string", "setrange", 4, STORE, ONE, "Overwrites a part of a string.", strings::setrange),
    data("string", "strlen", 2, LOOK, ONE, "Returns the length of a string.", strings::strlen),
    data("string", "substr", 4, READ, ONE, "Returns a part of a string.", strings::getrange),
    data("string", "weft.incrby", 3, PUT, ONE, "Adds a number to an integer without returning the sum. So additions commute.", strings::weft_incrby),

    data("hyperloglog", "pfadd", -2, PUT, ONE, "Adds elements to an estimate of how many different ones there are.", hyperloglog::pfadd),
    data("hyperloglog", "pfcount", -2, READ, ALL, "Estimates how many different elements there are.", hyperloglog::pfcount),
    data("hyperloglog", "pfmerge", -2, STORE, ALL, "Merges estimates.", hyperloglog::pfmerge),

    data("geo", "geoadd", -5, STORE, ONE, "Adds places.", geo::geoadd),
    data("geo", "geodist", -4, READ, ONE, "Returns how far one place is from another.", geo::geodist),
    data("geo", "geohash", -2, READ, ONE, "Returns places as geohashes.", geo::geohash),
    data("geo", "geopos", -2, READ, ONE, "Returns the longitudes and latitudes of places.", geo::geopos),
    data("geo", "georadius", -6, STORE, PLACED, "Returns or stores the places around a point.", geo::georadius),
    data("geo", "georadius_ro", -6, READ, ONE, "Returns the places around a point.", geo::georadius_ro),
    data("geo", "georadiusbymember", -5, STORE, PLACED, "Returns or stores the places around another.", geo::georadiusbymember),
    data("geo", "georadiusbymember_ro", -5, READ, ONE, "Returns the places around another.", geo::georadiusbymember_ro),
    data("geo", "geosearch", -7, READ, ONE, "Returns the places within a circle or a box.", geo::geosearch),
    data("geo", "geosearchstore", -8, STORE, TWO, "Stores the places within a circle or a box.", geo::geosearchstore),

    data("bitmap", "bitcount", -2, READ, ONE, "Counts the bits that are set.", bits::bitcount),
    data("bitmap", "bitfield", -2, STORE, ONE, "Reads and changes integers of any width in a string.", bits::bitfield),
    data("bitmap", "bitfield_ro", -2, LOOK, ONE, "Reads integers of any width in a string.", bits::bitfield_ro),
    data("bitmap", "bitop", -4, STORE, KeyPlaces::Range(2, -1, 1), "Combines the bits of strings.", bits::bitop),
    data("bitmap", "bitpos", -3, READ, ONE, "Finds the first bit that is set, or not.", bits::bitpos),
    data("bitmap", "getbit", 3, LOOK, ONE, "Returns a bit.", bits::getbit),
    data("bitmap", "setbit", 4, STORE, ONE, "Sets or clears a bit.", bits::setbit),

    data("generic", "copy", -3, STORE, TWO, "Copies the value of a key to another.", keys::copy),
    data("generic", "del", -2, WRITE, ALL, "Deletes keys.", keys::del),
    data("generic", "dump", 2, READ, ONE, "Returns a value in the format of Redis.", dump::dump),
    data("generic", "exists", -2, LOOK, ALL, "Counts the keys that exist.", keys::exists),
    data("generic", "expire", -3, CHANGE, ONE, "Sets when a key expires, in seconds.", expiry::expire),
    data("generic", "expireat", -3, CHANGE, ONE, "Sets when a key expires, as a Unix time.", expiry::expireat),
    data("generic", "expiretime", 2, LOOK, ONE, "Returns when a key expires, as a Unix time.", expiry::expiretime),
    data("generic", "keys", 2, READ | SLOW, NONE, "Returns all keys that match a pattern.", scan::keys),
    data("generic", "move", 3, CHANGE, ONE, "Moves a key to another database.", keys::move_to),
    data("generic", "object", -2, READ, SECOND, "Returns details of a value.", keys::object),
    data("generic", "persist", 2, CHANGE, ONE, "Makes a key not expire.", expiry::persist),
    data("generic", "pexpire", -3, CHANGE, ONE, "Sets when a key expires, in milliseconds.", expiry::pexpire),
    data("generic", "pexpireat", -3, CHANGE, ONE, "Sets when a key expires, as a Unix time in milliseconds.", expiry::pexpireat),
    data("generic", "pexpiretime", 2, LOOK, ONE, "Returns when a key expires, as a Unix time in milliseconds.", expiry::pexpiretime),
    data("generic", "pttl", 2, LOOK, ONE, "Returns the time until a key expires, in milliseconds.", expiry::pttl),
    data("generic", "randomkey", 1, READ, NONE, "Returns some key.", scan::randomkey),
    data("generic", "rename", 3, WRITE, TWO, "Renames a key.", keys::rename),
    data("generic", "renamenx", 3, CHANGE, TWO, "Renames a key if the new name is free.", keys::renamenx),
    data("generic", "restore", -4, STORE, ONE, "Makes a key of what DUMP has returned.", dump::restore),
    data("generic", "scan", -2, READ, NONE, "Walks over the keys.", scan::scan),
    data("generic", "sort", -2, STORE, SORTED, "Returns or stores the sorted elements of a list, a set or a sorted set.", sort::sort),
    data("generic", "sort_ro", -2, READ, ONE, "Returns the sorted elements of a list, a set or a sorted set.", sort::sort_ro),
    data("generic", "touch", -2, LOOK, ALL, "Counts the keys that exist.", keys::exists),
    data("generic", "ttl", 2, LOOK, ONE, "Returns the time until a key expires, in seconds.", expiry::ttl),
    data("generic", "type", 2, LOOK, ONE, "Returns the type of a value.", keys::type_of),
    data("generic", "unlink", -2, CHANGE, ALL, "Deletes keys.", keys::del),
    session("generic", "wait", 3, NOT_QUEUED, NONE, "Waits until the client's commits are in the replicated log, and returns on how many machines.", replication::wait),
    session("generic", "waitaof", 4, NOT_QUEUED, NONE, "Waits until the client's commits are on the disk.", replication::waitaof),

    data("hash", "hdel", -3, CHANGE, ONE, "Deletes fields.", hashes::hdel),
    data("hash", "hexists", 3, LOOK, ONE, "Returns whether a field exists.", hashes::hexists),
    data("hash", "hget", 3, LOOK, ONE, "Returns a field.", hashes::hget),
    data("hash", "hgetall", 2, READ, ONE, "Returns all fields with their values.", hashes::hgetall),
    data("hash", "hincrby", 4, PUT, ONE, "Adds a number to a field.", hashes::hincrby),
    data("hash", "hincrbyfloat", 4, PUT, ONE, "Adds a number with a fraction to a field.", hashes::hincrbyfloat),
    data("hash", "hkeys", 2, READ, ONE, "Returns the names of all fields.", hashes::hkeys),
    data("hash", "hlen", 2, LOOK, ONE, "Counts the fields.", hashes::hlen),
    data("hash", "hmget", -3, LOOK, ONE, "Returns several fields.", hashes::hmget),
    data("hash", "hmset", -4, PUT, ONE, "Sets fields.", hashes::hmset),
    data("hash", "hrandfield", -2, READ, ONE, "Returns some fields.", hashes::hrandfield),
    data("hash", "hscan", -3, READ, ONE, "Walks over the fields.", scan::hscan),
    data("hash", "hset", -4, PUT, ONE, "Sets fields.", hashes::hset),
    data("hash", "hsetnx", 4, PUT, ONE, "Sets a field if it does not exist.", hashes::hsetnx),
    data("hash", "hstrlen", 3, LOOK, ONE, "Returns the length of a field's value.", hashes::hstrlen),
    data("hash", "hvals", 2, READ, ONE, "Returns the values of all fields.", hashes::hvals),
    data("hash", "weft.hincrby", 4, PUT, ONE, "Adds a number to a field without returning the sum. So additions commute.", hashes::weft_hincrby),

    data("set", "sadd", -3, PUT, ONE, "Adds members.", sets::sadd),
    data("set", "scard", 2, LOOK, ONE, "Counts the members.", sets::scard),
    data("set", "sdiff", -2, READ, ALL, "Returns the members of the first set that are in none of the others.", sets::sdiff),
    data("set", "sdiffstore", -3, STORE, ALL, "Stores a difference of sets.", sets::sdiffstore),
    data("set", "sinter", -2, READ, ALL, "Returns the members that all sets have.", sets::sinter),
    data("set", "sintercard", -3, READ, NUMBERED, "Counts the members that all sets have.", sets::sintercard),
    data("set", "sinterstore", -3, STORE, ALL, "Stores an intersection of sets.", sets::sinterstore),
    data("set", "sismember", 3, LOOK, ONE, "Returns whether a member is in a set.", sets::sismember),
    data("set", "smembers", 2, READ, ONE, "Returns all members.", sets::smembers),
    data("set", "smismember", -3, LOOK, ONE, "Returns which members are in a set.", sets::smismember),
    data("set", "smove", 4, CHANGE, TWO, "Moves a member to another set.", sets::smove),
    data("set", "spop", -2, CHANGE, ONE, "Removes and returns some members.", sets::spop),
    data("set", "srandmember", -2, READ, ONE, "Returns some members.", sets::srandmember),
    data("set", "srem", -3, CHANGE, ONE, "Removes members.", sets::srem),
    data("set", "sscan", -3, READ, ONE, "Walks over the members.", scan::sscan),
    data("set", "sunion", -2, READ, ALL, "Returns the members that any of the sets has.", sets::sunion),
    data("set", "sunionstore", -3, STORE, ALL, "Stores a union of sets.", sets::sunionstore),

    data("sorted-set", "bzmpop", -5, BLOCK, TIMED, "Removes members of the first sorted set that has any. Waits for one.", blocking::bzmpop),
    data("sorted-set", "bzpopmax", -3, BLOCK, BEFORE_TIME, "Removes and returns the member with the greatest score. Waits for one.", blocking::bzpopmax),
    data("sorted-set", "bzpopmin", -3, BLOCK, BEFORE_TIME, "Removes and returns the member with the least score. Waits for one.", blocking::bzpopmin),
    data("sorted-set", "zadd", -4, PUT, ONE, "Adds members, or changes their scores.", sorted_sets::zadd),
    data("sorted-set", "zcard", 2, LOOK, ONE, "Counts the members.", sorted_sets::zcard),
    data("sorted-set", "zcount", 4, READ, ONE, "Counts the members in a range of scores.", sorted_ranges::zcount),
    data("sorted-set", "zdiff", -3, READ, NUMBERED, "Returns a difference of sorted sets.", sorted_combinations::zdiff),
    data("sorted-set", "zdiffstore", -4, STORE, STORED, "Stores a difference of sorted sets.", sorted_combinations::zdiffstore),
    data("sorted-set", "zincrby", 4, PUT, ONE, "Adds to a score.", sorted_sets::zincrby),
    data("sorted-set", "zinter", -3, READ, NUMBERED, "Returns an intersection of sorted sets.", sorted_combinations::zinter),
    data("sorted-set", "zintercard", -3, READ, NUMBERED, "Counts the members that all sorted sets have.", sorted_combinations::zintercard),
    data("sorted-set", "zinterstore", -4, STORE, STORED, "Stores an intersection of sorted sets.", sorted_combinations::zinterstore),
    data("sorted-set", "zlexcount", 4, READ, ONE, "Counts the members in a range of names.", sorted_ranges::zlexcount),
    data("sorted-set", "zmpop", -4, WRITE, NUMBERED, "Removes members of the first sorted set that has any.", sorted_sets::zmpop),
    data("sorted-set", "zmscore", -3, LOOK, ONE, "Returns several scores.", sorted_sets::zmscore),
    data("sorted-set", "zpopmax", -2, CHANGE, ONE, "Removes and returns the members with the greatest scores.", sorted_sets::zpopmax),
    data("sorted-set", "zpopmin", -2, CHANGE, ONE, "Removes and returns the members with the least scores.", sorted_sets::zpopmin),
    data("sorted-set", "zrandmember", -2, READ, ONE, "Returns some members.", sorted_sets::zrandmember),
    data("sorted-set", "zrange", -4, READ, ONE, "Returns a range of members.", sorted_ranges::zrange),
    data("sorted-set", "zrangebylex", -4, READ, ONE, "Returns a range of names.", sorted_ranges::zrangebylex),
    data("sorted-set", "zrangebyscore", -4, READ, ONE, "Returns a range of scores.", sorted_ranges::zrangebyscore),
    data("sorted-set", "zrangestore", -5, STORE, TWO, "Stores a range of members.", sorted_ranges::zrangestore),
    data("sorted-set", "zrank", 3, READ, ONE, "Returns how many members come before one.", sorted_sets::zrank),
    data("sorted-set", "zrem", -3, CHANGE, ONE, "Removes members.", sorted_sets::zrem),
    data("sorted-set", "zremrangebylex", 4, WRITE, ONE, "Removes a range of names.", sorted_ranges::zremrangebylex),
    data("sorted-set", "zremrangebyrank", 4, WRITE, ONE, "Removes a range of ranks.", sorted_ranges::zremrangebyrank),
    data("sorted-set", "zremrangebyscore", 4, WRITE, ONE, "Removes a range of scores.", sorted_ranges::zremrangebyscore),
    data("sorted-set", "zrevrange", -4, READ, ONE, "Returns a range of members, from the greatest score on.", sorted_ranges::zrevrange),
    data("sorted-set", "zrevrangebylex", -4, READ, ONE, "Returns a range of names, from the last one on.", sorted_ranges::zrevrangebylex),
    data("sorted-set", "zrevrangebyscore", -4, READ, ONE, "Returns a range of scores, from the greatest on.", sorted_ranges::zrevrangebyscore),
    data("sorted-set", "zrevrank", 3, READ, ONE, "Returns how many members come after one.", sorted_sets::zrevrank),
    data("sorted-set", "zscan", -3, READ, ONE, "Walks over the members.", scan::zscan),
    data("sorted-set", "zscore", 3, LOOK, ONE, "Returns a score.", sorted_sets::zscore),
    data("sorted-set", "zunion", -3, READ, NUMBERED, "Returns a union of sorted sets.", sorted_combinations::zunion),
    data("sorted-set", "zunionstore", -4, STORE, STORED, "Stores a union of sorted sets.", sorted_combinations::zunionstore),

    data("list", "blmove", 6, BLOCK, TWO, "Moves an element from an end of a list to one of another. Waits for it.", blocking::blmove),
    data("list", "blmpop", -5, BLOCK, TIMED, "Removes elements of the first list that has any. Waits for one.", blocking::blmpop),
    data("list", "blpop", -3, BLOCK, BEFORE_TIME, "Removes and returns the first element of a list. Waits for it.", blocking::blpop),
    data("list", "brpop", -3, BLOCK, BEFORE_TIME, "Removes and returns the last element of a list. Waits for it.", blocking::brpop),
    data("list", "brpoplpush", 4, BLOCK, TWO, "Moves the last element of a list to the front of another. Waits for it.", blocking::brpoplpush),
    data("list", "lindex", 3, READ, ONE, "Returns the element at an index.", lists::lindex),
    data("list", "linsert", 5, STORE, ONE, "Inserts an element before or after another.", lists::linsert),
    data("list", "llen", 2, LOOK, ONE, "Returns the length.", lists::llen),
    data("list", "lmove", 5, STORE, TWO, "Moves an element from an end of a list to one of another.", lists::lmove),
    data("list", "lmpop", -4, WRITE, NUMBERED, "Removes elements of the first list that has any.", lists::lmpop),
    data("list", "lpop", -2, CHANGE, ONE, "Removes and returns elements at the left end.", lists::lpop),
    data("list", "lpos", -3, READ, ONE, "Finds elements.", lists::lpos),
    data("list", "lpush", -3, PUT, ONE, "Adds elements at the left end.", lists::lpush),
    data("list", "lpushx", -3, PUT, ONE, "Adds elements at the left end if the list exists.", lists::lpushx),
    data("list", "lrange", 4, READ, ONE, "Returns a range of elements.", lists::lrange),
    data("list", "lrem", 4, WRITE, ONE, "Removes elements that are equal to a value.", lists::lrem),
    data("list", "lset", 4, STORE, ONE, "Sets the element at an index.", lists::lset),
    data("list", "ltrim", 4, WRITE, ONE, "Removes all elements outside of a range.", lists::ltrim),
    data("list", "rpop", -2, CHANGE, ONE, "Removes and returns elements at the right end.", lists::rpop),
    data("list", "rpoplpush", 3, STORE, TWO, "Moves the last element of a list to the front of another.", lists::rpoplpush),
    data("list", "rpush", -3, PUT, ONE, "Adds elements at the right end.", lists::rpush),
    data("list", "rpushx", -3, PUT, ONE, "Adds elements at the right end if the list exists.", lists::rpushx),

    data("stream", "xack", -4, CHANGE, ONE, "Acknowledges entries that a group has delivered.", stream_groups::xack),
    data("stream", "xadd", -5, PUT, ONE, "Appends an entry.", streams::xadd),
    data("stream", "xautoclaim", -6, CHANGE, ONE, "Gives entries that are pending for long to another consumer.", stream_groups::xautoclaim),
    data("stream", "xclaim", -6, CHANGE, ONE, "Gives pending entries to another consumer.", stream_groups::xclaim),
    data("stream", "xdel", -3, CHANGE, ONE, "Deletes entries.", streams::xdel),
    data("stream", "xgroup", -2, STORE, SECOND, "Creates, changes and destroys groups of consumers.", stream_groups::xgroup),
    data("stream", "xinfo", -2, READ, SECOND, "Shows details of a stream, its groups and consumers.", stream_info::xinfo),
    data("stream", "xlen", 2, LOOK, ONE, "Counts the entries.", streams::xlen),
    data("stream", "xpending", -3, READ, ONE, "Shows the entries that a group has delivered and not acknowledged.", stream_groups::xpending),
    data("stream", "xrange", -4, READ, ONE, "Returns a range of entries.", streams::xrange),
    data("stream", "xread", -4, READ | BLOCKS, STREAMS, "Returns the entries after an id, of several streams. Waits for them with BLOCK.", streams::xread),
    data("stream", "xreadgroup", -7, BLOCK, STREAMS, "Delivers entries to a consumer of a group. Waits for them with BLOCK.", stream_groups::xreadgroup),
    data("stream", "xrevrange", -4, READ, ONE, "Returns a range of entries, from the greatest id on.", streams::xrevrange),
    data("stream", "xsetid", -3, STORE, ONE, "Sets the last id of a stream.", streams::xsetid),
    data("stream", "xtrim", -4, WRITE, ONE, "Removes the oldest entries.", streams::xtrim),

    session("pubsub", "psubscribe", -2, SUBSCRIBES, NONE, "Subscribes to patterns of channels.", pubsub::psubscribe),
    data("pubsub", "publish", 3, FAST, NONE, "Sends a message to the subscribers of a channel.", pubsub::publish),
    session("pubsub", "pubsub", -2, 0, NONE, "Shows the channels that have subscribers.", pubsub::pubsub),
    session("pubsub", "punsubscribe", -1, SUBSCRIBES, NONE, "Ends subscriptions to patterns.", pubsub::punsubscribe),
    data("pubsub", "spublish", 3, FAST, NONE, "Sends a message to the subscribers of a shard's channel.", pubsub::spublish),
    session("pubsub", "ssubscribe", -2, SUBSCRIBES, NONE, "Subscribes to channels of a shard.", pubsub::ssubscribe),
    session("pubsub", "subscribe", -2, SUBSCRIBES, NONE, "Subscribes to channels.", pubsub::subscribe),
    session("pubsub", "sunsubscribe", -1, SUBSCRIBES, NONE, "Ends subscriptions to channels of a shard.", pubsub::sunsubscribe),
    session("pubsub", "unsubscribe", -1, SUBSCRIBES, NONE, "Ends subscriptions to channels.", pubsub::unsubscribe),

    session("transactions", "discard", 1, FAST | ENDS_QUEUE, NONE, "Forgets the queued commands.", connection::discard),
    session("transactions", "exec", 1, ENDS_QUEUE, NONE, "Runs the queued commands as one transaction.", connection::exec),
    session("transactions", "multi", 1, FAST | ENDS_QUEUE, NONE, "Queues the commands that follow, until EXEC.", connection::multi),
    session("transactions", "unwatch", 1, FAST, NONE, "Forgets the watched keys.", connection::unwatch),
    session("transactions", "watch", -2, FAST | NOT_QUEUED, ALL, "Makes EXEC do nothing if one of the keys changes before it.", connection::watch),

    session("connection", "auth", -2, FAST | NO_AUTH, NONE, "Gives the password.", connection::auth),
    session("connection", "client", -2, ADMIN, NONE, "Shows and changes what the server knows of clients.", introspection::client),
    session("connection", "echo", 2, FAST, NONE, "Returns its argument.", connection::echo),
    session("connection", "hello", -1, FAST | NO_AUTH, NONE, "Chooses the version of the protocol.", connection::hello),
    session("connection", "ping", -1, FAST | WHILE_SUBSCRIBED, NONE, "Returns PONG, or its argument.", connection::ping),
    session("connection", "readonly", 1, FAST, NONE, "Lets the client read what a standby has.", replication::readonly),
    session("connection", "readwrite", 1, FAST, NONE, "Ends what READONLY has begun.", replication::readwrite),
    session("connection", "quit", -1, FAST | WHILE_SUBSCRIBED | NO_AUTH | ENDS_QUEUE, NONE, "Closes the connection.", connection::quit),
    session("connection", "reset", 1, FAST | WHILE_SUBSCRIBED | NO_AUTH | ENDS_QUEUE, NONE, "Goes back to how the connection began.", connection::reset),
    session("connection", "select", 2, FAST, NONE, "Selects a numbered database.", connection::select),

    data("scripting", "eval", -3, NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script.", scripts::eval),
    data("scripting", "eval_ro", -3, READ | NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script that only reads.", scripts::eval_ro),
    data("scripting", "evalsha", -3, NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script by its SHA-1.", scripts::evalsha),
    data("scripting", "evalsha_ro", -3, READ | NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script that only reads by its SHA-1.", scripts::evalsha_ro),
    data("scripting", "fcall", -3, NO_SCRIPT, KeyPlaces::Numbered(2), "Calls a function, or a procedure.", functions::fcall),
    data("scripting", "fcall_ro", -3, READ | NO_SCRIPT, KeyPlaces::Numbered(2), "Calls a function or a procedure that only reads.", functions::fcall_ro),
    data("scripting", "function", -2, WRITE | NO_SCRIPT, NONE, "Adds, removes and lists functions.", functions::function),
    session("scripting", "script", -2, 0, NONE, "Keeps scripts, forgets them, and stops those that run.", scripts::script),

    session("server", "acl", -2, ADMIN, NONE, "Shows and changes users and their rights.", users::acl),
    session("server", "bgrewriteaof", 1, ADMIN, NONE, "Writes a checkpoint in the background.", saving::bgrewriteaof),
    session("server", "bgsave", -1, ADMIN, NONE, "Writes a checkpoint in the background.", saving::bgsave),
    session("server", "command", -1, 0, NONE, "Describes the commands.", introspection::command),
    session("server", "config", -2, ADMIN, NONE, "Shows and changes settings.", introspection::config),
    session("server", "debug", -2, ADMIN | NOT_QUEUED, NONE, "Waits: DEBUG SLEEP.", introspection::debug),
    data("server", "dbsize", 1, LOOK, NONE, "Counts the keys.", keys::dbsize),
    session("server", "failover", -1, ADMIN | NOT_QUEUED, NONE, "Makes a standby the primary.", replication::failover),
    data("server", "flushall", -1, WRITE | SLOW, NONE, "Deletes all keys of all databases.", keys::flushall),
    data("server", "flushdb", -1, WRITE | SLOW, NONE, "Deletes all keys of the selected database.", keys::flushdb),
    data("server", "info", -1, 0, NONE, "Shows numbers about the server.", info::info),
    session("server", "lastsave", 1, ADMIN | FAST, NONE, "Returns when the last checkpoint was written, as a Unix time.", saving::lastsave),
    session("server", "latency", -2, ADMIN, NONE, "Shows events that took long. The server measures none.", introspection::latency),
    data("server", "memory", -2, READ, SECOND, "Estimates the memory that a key needs.", keys::memory),
    session("server", "monitor", 1, ADMIN | NO_SCRIPT | NOT_QUEUED, NONE, "Shows all commands that the server runs.", introspection::monitor),
    session("server", "replicaof", 3, ADMIN | NOT_QUEUED, NONE, "With NO ONE, makes a standby the primary.", replication::replicaof),
    session("server", "role", 1, ADMIN | FAST, NONE, "Returns whether the server is the primary or a standby.", replication::role),
    session("server", "save", 1, ADMIN | NOT_QUEUED, NONE, "Writes a checkpoint.", saving::save),
    session("server", "shutdown", -1, ADMIN | NOT_QUEUED, NONE, "Stops the server.", saving::shutdown),
    session("server", "sentinel", -2, FAST, NONE, "Says where the primary is, as Redis's Sentinel does.", replication::sentinel),
    session("server", "slaveof", 3, ADMIN | NOT_QUEUED, NONE, "With NO ONE, makes a standby the primary.", replication::replicaof),
    session("server", "slowlog", -2, ADMIN, NONE, "Shows the commands that took long.", introspection::slowlog),
    session("server", "time", 1, FAST, NONE, "Returns the server's time.", introspection::time),
    session("server", "weft.backup", 1, ADMIN | NOT_QUEUED, NONE, "Writes a backup of a replicated server.", replication::back_up),
    session("server", "weft.promote", -1, ADMIN | NOT_QUEUED, NONE, "Makes a standby the primary.", replication::promote),
    session("server", "weft.truncate", 1, ADMIN | NOT_QUEUED, NONE, "Removes records of the log that two backups have.", replication::truncate),
];

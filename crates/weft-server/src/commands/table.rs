//! The table of commands.

use super::flags::{
    ADMIN, BLOCKS, ENDS_QUEUE, FAST, GROWS, NO_AUTH, NO_SCRIPT, NOT_QUEUED, READ, SHORT, SLOW,
    WHILE_SUBSCRIBED, WRITE,
};
use super::syntax::arity_of;
use super::{
    Command, JoinedCommand, KeyPlaces, Run, SessionCommand, bits, blocking, connection, dump,
    expiry, functions, geo, hashes, hyperloglog, info, introspection, keys, lcs, lists, memory,
    pubsub, replication, saving, scan, scripts, sets, sort, sorted_combinations, sorted_ranges,
    sorted_sets, stream_groups, stream_info, streams, strings, users,
};
use crate::call::DataCommand;

const fn data(
    group: &'static str,
    name: &'static str,
    syntax: &'static str,
    flags: u16,
    keys: KeyPlaces,
    summary: &'static str,
    run: DataCommand,
) -> Command {
    let arity = arity_of(syntax);
    Command { name, syntax, arity, flags, keys, group, summary, run: Run::Data(run), joined: None }
}

const fn session(
    group: &'static str,
    name: &'static str,
    syntax: &'static str,
    flags: u16,
    keys: KeyPlaces,
    summary: &'static str,
    run: SessionCommand,
) -> Command {
    let arity = arity_of(syntax);
    Command {
        name,
        syntax,
        arity,
        flags,
        keys,
        group,
        summary,
        run: Run::Session(run),
        joined: None,
    }
}

/// A command that several requests in a row can be made of.
const fn joined(command: Command, joined: JoinedCommand) -> Command {
    Command { joined: Some(joined), ..command }
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
    data("string", "append", "key value", PUT, ONE, "Appends to a string, which is created if it does not exist.", strings::append),
    data("string", "decr", "key", PUT, ONE, "Subtracts one from an integer.", strings::decr),
    data("string", "decrby", "key decrement", PUT, ONE, "Subtracts a number from an integer.", strings::decrby),
    data("string", "get", "key", LOOK, ONE, "Returns a string.", strings::get),
    data("string", "getdel", "key", CHANGE, ONE, "Returns a string, and deletes the key.", strings::getdel),
    data("string", "getex", "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]", CHANGE, ONE, "Returns a string, and sets when it expires.", strings::getex),
    data("string", "getrange", "key start end", READ, ONE, "Returns a part of a string.", strings::getrange),
    data("string", "getset", "key value", PUT, ONE, "Sets a string, and returns the one before.", strings::getset),
    data("string", "incr", "key", PUT, ONE, "Adds one to an integer.", strings::incr),
    data("string", "incrby", "key increment", PUT, ONE, "Adds a number to an integer.", strings::incrby),
    data("string", "incrbyfloat", "key increment", PUT, ONE, "Adds a number with a fraction.", strings::incrbyfloat),
    data("string", "lcs", "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]", READ | SLOW, TWO, "Returns the longest common subsequence of two strings.", lcs::lcs),
    data("string", "mget", "key [key ...]", LOOK, ALL, "Returns several strings.", strings::mget),
    data("string", "mset", "key value [key value ...]", STORE, PAIRS, "Sets several strings.", strings::mset),
    data("string", "msetnx", "key value [key value ...]", STORE, PAIRS, "Sets several strings if none of the keys exists.", strings::msetnx),
    data("string", "psetex", "key milliseconds value", STORE, ONE, "Sets a string that expires, in milliseconds.", strings::psetex),
    data("string", "set", "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", STORE | SHORT, ONE, "Sets a string, whatever the key was before.", strings::set),
    data("string", "setex", "key seconds value", STORE, ONE, "Sets a string that expires, in seconds.", strings::setex),
    data("string", "setnx", "key value", PUT, ONE, "Sets a string if the key does not exist.", strings::setnx),
    data("string", "setrange", "key offset value", STORE, ONE, "Overwrites a part of a string.", strings::setrange),
    data("string", "strlen", "key", LOOK, ONE, "Returns the length of a string.", strings::strlen),
    data("string", "substr", "key start end", READ, ONE, "Returns a part of a string.", strings::getrange),
    data("string", "weft.incrby", "key increment", PUT, ONE, "Adds a number to an integer without returning the sum. So additions commute.", strings::weft_incrby),

    data("hyperloglog", "pfadd", "key [element ...]", PUT, ONE, "Adds elements to an estimate of how many different ones there are.", hyperloglog::pfadd),
    data("hyperloglog", "pfcount", "key [key ...]", READ, ALL, "Estimates how many different elements there are.", hyperloglog::pfcount),
    data("hyperloglog", "pfmerge", "destkey [sourcekey ...]", STORE, ALL, "Merges estimates.", hyperloglog::pfmerge),

    data("geo", "geoadd", "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]", STORE, ONE, "Adds places.", geo::geoadd),
    data("geo", "geodist", "key member1 member2 [M | KM | FT | MI]", READ, ONE, "Returns how far one place is from another.", geo::geodist),
    data("geo", "geohash", "key [member ...]", READ, ONE, "Returns places as geohashes.", geo::geohash),
    data("geo", "geopos", "key [member ...]", READ, ONE, "Returns the longitudes and latitudes of places.", geo::geopos),
    data("geo", "georadius", "key longitude latitude radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE storekey | STOREDIST storedistkey]", STORE, PLACED, "Returns or stores the places around a point.", geo::georadius),
    data("geo", "georadius_ro", "key longitude latitude radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]", READ, ONE, "Returns the places around a point.", geo::georadius_ro),
    data("geo", "georadiusbymember", "key member radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE storekey | STOREDIST storedistkey]", STORE, PLACED, "Returns or stores the places around another.", geo::georadiusbymember),
    data("geo", "georadiusbymember_ro", "key member radius (M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]", READ, ONE, "Returns the places around another.", geo::georadiusbymember_ro),
    data("geo", "geosearch", "key (FROMMEMBER member | FROMLONLAT longitude latitude) (BYRADIUS radius (M | KM | FT | MI) | BYBOX width height (M | KM | FT | MI)) [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]", READ, ONE, "Returns the places within a circle or a box.", geo::geosearch),
    data("geo", "geosearchstore", "destination source (FROMMEMBER member | FROMLONLAT longitude latitude) (BYRADIUS radius (M | KM | FT | MI) | BYBOX width height (M | KM | FT | MI)) [ASC | DESC] [COUNT count [ANY]] [STOREDIST]", STORE, TWO, "Stores the places within a circle or a box.", geo::geosearchstore),

    data("bitmap", "bitcount", "key [start end [BYTE | BIT]]", READ, ONE, "Counts the bits that are set.", bits::bitcount),
    data("bitmap", "bitfield", "key [GET encoding offset | OVERFLOW (WRAP | SAT | FAIL) | SET encoding offset value | INCRBY encoding offset increment ...]", STORE, ONE, "Reads and changes integers of any width in a string.", bits::bitfield),
    data("bitmap", "bitfield_ro", "key [GET encoding offset ...]", LOOK, ONE, "Reads integers of any width in a string.", bits::bitfield_ro),
    data("bitmap", "bitop", "(AND | OR | XOR | NOT) destkey key [key ...]", STORE, KeyPlaces::Range(2, -1, 1), "Combines the bits of strings.", bits::bitop),
    data("bitmap", "bitpos", "key bit [start [end [BYTE | BIT]]]", READ, ONE, "Finds the first bit that is set, or not.", bits::bitpos),
    data("bitmap", "getbit", "key offset", LOOK, ONE, "Returns a bit.", bits::getbit),
    data("bitmap", "setbit", "key offset value", STORE, ONE, "Sets or clears a bit.", bits::setbit),

    data("generic", "copy", "source destination [DB destination-db] [REPLACE]", STORE, TWO, "Copies the value of a key to another.", keys::copy),
    data("generic", "del", "key [key ...]", WRITE, ALL, "Deletes keys.", keys::del),
    data("generic", "dump", "key", READ, ONE, "Returns a value in the format of Redis.", dump::dump),
    data("generic", "exists", "key [key ...]", LOOK, ALL, "Counts the keys that exist.", keys::exists),
    data("generic", "expire", "key seconds [NX | XX | GT | LT]", CHANGE, ONE, "Sets when a key expires, in seconds.", expiry::expire),
    data("generic", "expireat", "key unix-time-seconds [NX | XX | GT | LT]", CHANGE, ONE, "Sets when a key expires, as a Unix time.", expiry::expireat),
    data("generic", "expiretime", "key", LOOK, ONE, "Returns when a key expires, as a Unix time.", expiry::expiretime),
    data("generic", "keys", "pattern", READ | SLOW, NONE, "Returns all keys that match a pattern.", scan::keys),
    data("generic", "move", "key db", CHANGE, ONE, "Moves a key to another database.", keys::move_to),
    data("generic", "object", "ENCODING key | FREQ key | IDLETIME key | REFCOUNT key | HELP", READ, SECOND, "Returns details of a value.", keys::object),
    data("generic", "persist", "key", CHANGE, ONE, "Makes a key not expire.", expiry::persist),
    data("generic", "pexpire", "key milliseconds [NX | XX | GT | LT]", CHANGE, ONE, "Sets when a key expires, in milliseconds.", expiry::pexpire),
    data("generic", "pexpireat", "key unix-time-milliseconds [NX | XX | GT | LT]", CHANGE, ONE, "Sets when a key expires, as a Unix time in milliseconds.", expiry::pexpireat),
    data("generic", "pexpiretime", "key", LOOK, ONE, "Returns when a key expires, as a Unix time in milliseconds.", expiry::pexpiretime),
    data("generic", "pttl", "key", LOOK, ONE, "Returns the time until a key expires, in milliseconds.", expiry::pttl),
    data("generic", "randomkey", "", READ, NONE, "Returns some key.", scan::randomkey),
    data("generic", "rename", "key newkey", WRITE, TWO, "Renames a key.", keys::rename),
    data("generic", "renamenx", "key newkey", CHANGE, TWO, "Renames a key if the new name is free.", keys::renamenx),
    data("generic", "restore", "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]", STORE, ONE, "Makes a key of what DUMP has returned.", dump::restore),
    data("generic", "scan", "cursor [MATCH pattern] [COUNT count] [TYPE type]", READ, NONE, "Walks over the keys.", scan::scan),
    data("generic", "sort", "key [BY by-pattern] [LIMIT offset count] [GET get-pattern ...] [ASC | DESC] [ALPHA] [STORE destination]", STORE, SORTED, "Returns or stores the sorted elements of a list, a set or a sorted set.", sort::sort),
    data("generic", "sort_ro", "key [BY by-pattern] [LIMIT offset count] [GET get-pattern ...] [ASC | DESC] [ALPHA]", READ, ONE, "Returns the sorted elements of a list, a set or a sorted set.", sort::sort_ro),
    data("generic", "touch", "key [key ...]", LOOK, ALL, "Counts the keys that exist.", keys::exists),
    data("generic", "ttl", "key", LOOK, ONE, "Returns the time until a key expires, in seconds.", expiry::ttl),
    data("generic", "type", "key", LOOK, ONE, "Returns the type of a value.", keys::type_of),
    data("generic", "unlink", "key [key ...]", CHANGE, ALL, "Deletes keys.", keys::del),
    session("generic", "wait", "numreplicas timeout", NOT_QUEUED, NONE, "Waits until the client's commits are in the replicated log, and returns on how many machines.", replication::wait),
    session("generic", "waitaof", "numlocal numreplicas timeout", NOT_QUEUED, NONE, "Waits until the client's commits are on the disk.", replication::waitaof),

    data("hash", "hdel", "key field [field ...]", CHANGE, ONE, "Deletes fields.", hashes::hdel),
    data("hash", "hexists", "key field", LOOK, ONE, "Returns whether a field exists.", hashes::hexists),
    data("hash", "hget", "key field", LOOK, ONE, "Returns a field.", hashes::hget),
    data("hash", "hgetall", "key", READ, ONE, "Returns all fields with their values.", hashes::hgetall),
    data("hash", "hincrby", "key field increment", PUT, ONE, "Adds a number to a field.", hashes::hincrby),
    data("hash", "hincrbyfloat", "key field increment", PUT, ONE, "Adds a number with a fraction to a field.", hashes::hincrbyfloat),
    data("hash", "hkeys", "key", READ, ONE, "Returns the names of all fields.", hashes::hkeys),
    data("hash", "hlen", "key", LOOK, ONE, "Counts the fields.", hashes::hlen),
    data("hash", "hmget", "key field [field ...]", LOOK, ONE, "Returns several fields.", hashes::hmget),
    data("hash", "hmset", "key field value [field value ...]", PUT, ONE, "Sets fields.", hashes::hmset),
    data("hash", "hrandfield", "key [count [WITHVALUES]]", READ, ONE, "Returns some fields.", hashes::hrandfield),
    data("hash", "hscan", "key cursor [MATCH pattern] [COUNT count]", READ, ONE, "Walks over the fields.", scan::hscan),
    joined(data("hash", "hset", "key field value [field value ...]", PUT, ONE, "Sets fields.", hashes::hset), hashes::hset_joined),
    data("hash", "hsetnx", "key field value", PUT, ONE, "Sets a field if it does not exist.", hashes::hsetnx),
    data("hash", "hstrlen", "key field", LOOK, ONE, "Returns the length of a field's value.", hashes::hstrlen),
    data("hash", "hvals", "key", READ, ONE, "Returns the values of all fields.", hashes::hvals),
    data("hash", "weft.hincrby", "key field increment", PUT, ONE, "Adds a number to a field without returning the sum. So additions commute.", hashes::weft_hincrby),

    joined(data("set", "sadd", "key member [member ...]", PUT, ONE, "Adds members.", sets::sadd), sets::sadd_joined),
    data("set", "scard", "key", LOOK, ONE, "Counts the members.", sets::scard),
    data("set", "sdiff", "key [key ...]", READ, ALL, "Returns the members of the first set that are in none of the others.", sets::sdiff),
    data("set", "sdiffstore", "destination key [key ...]", STORE, ALL, "Stores a difference of sets.", sets::sdiffstore),
    data("set", "sinter", "key [key ...]", READ, ALL, "Returns the members that all sets have.", sets::sinter),
    data("set", "sintercard", "numkeys key [key ...] [LIMIT limit]", READ, NUMBERED, "Counts the members that all sets have.", sets::sintercard),
    data("set", "sinterstore", "destination key [key ...]", STORE, ALL, "Stores an intersection of sets.", sets::sinterstore),
    data("set", "sismember", "key member", LOOK, ONE, "Returns whether a member is in a set.", sets::sismember),
    data("set", "smembers", "key", READ, ONE, "Returns all members.", sets::smembers),
    data("set", "smismember", "key member [member ...]", LOOK, ONE, "Returns which members are in a set.", sets::smismember),
    data("set", "smove", "source destination member", CHANGE, TWO, "Moves a member to another set.", sets::smove),
    data("set", "spop", "key [count]", CHANGE, ONE, "Removes and returns some members.", sets::spop),
    data("set", "srandmember", "key [count]", READ, ONE, "Returns some members.", sets::srandmember),
    data("set", "srem", "key member [member ...]", CHANGE, ONE, "Removes members.", sets::srem),
    data("set", "sscan", "key cursor [MATCH pattern] [COUNT count]", READ, ONE, "Walks over the members.", scan::sscan),
    data("set", "sunion", "key [key ...]", READ, ALL, "Returns the members that any of the sets has.", sets::sunion),
    data("set", "sunionstore", "destination key [key ...]", STORE, ALL, "Stores a union of sets.", sets::sunionstore),

    data("sorted-set", "bzmpop", "timeout numkeys key [key ...] (MIN | MAX) [COUNT count]", BLOCK, TIMED, "Removes members of the first sorted set that has any. Waits for one.", blocking::bzmpop),
    data("sorted-set", "bzpopmax", "key [key ...] timeout", BLOCK, BEFORE_TIME, "Removes and returns the member with the greatest score. Waits for one.", blocking::bzpopmax),
    data("sorted-set", "bzpopmin", "key [key ...] timeout", BLOCK, BEFORE_TIME, "Removes and returns the member with the least score. Waits for one.", blocking::bzpopmin),
    joined(data("sorted-set", "zadd", "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]", PUT, ONE, "Adds members, or changes their scores.", sorted_sets::zadd), sorted_sets::zadd_joined),
    data("sorted-set", "zcard", "key", LOOK, ONE, "Counts the members.", sorted_sets::zcard),
    data("sorted-set", "zcount", "key min max", READ, ONE, "Counts the members in a range of scores.", sorted_ranges::zcount),
    data("sorted-set", "zdiff", "numkeys key [key ...] [WITHSCORES]", READ, NUMBERED, "Returns a difference of sorted sets.", sorted_combinations::zdiff),
    data("sorted-set", "zdiffstore", "destination numkeys key [key ...]", STORE, STORED, "Stores a difference of sorted sets.", sorted_combinations::zdiffstore),
    data("sorted-set", "zincrby", "key increment member", PUT, ONE, "Adds to a score.", sorted_sets::zincrby),
    data("sorted-set", "zinter", "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE (SUM | MIN | MAX)] [WITHSCORES]", READ, NUMBERED, "Returns an intersection of sorted sets.", sorted_combinations::zinter),
    data("sorted-set", "zintercard", "numkeys key [key ...] [LIMIT limit]", READ, NUMBERED, "Counts the members that all sorted sets have.", sorted_combinations::zintercard),
    data("sorted-set", "zinterstore", "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE (SUM | MIN | MAX)]", STORE, STORED, "Stores an intersection of sorted sets.", sorted_combinations::zinterstore),
    data("sorted-set", "zlexcount", "key min max", READ, ONE, "Counts the members in a range of names.", sorted_ranges::zlexcount),
    data("sorted-set", "zmpop", "numkeys key [key ...] (MIN | MAX) [COUNT count]", WRITE, NUMBERED, "Removes members of the first sorted set that has any.", sorted_sets::zmpop),
    data("sorted-set", "zmscore", "key member [member ...]", LOOK, ONE, "Returns several scores.", sorted_sets::zmscore),
    data("sorted-set", "zpopmax", "key [count]", CHANGE, ONE, "Removes and returns the members with the greatest scores.", sorted_sets::zpopmax),
    data("sorted-set", "zpopmin", "key [count]", CHANGE, ONE, "Removes and returns the members with the least scores.", sorted_sets::zpopmin),
    data("sorted-set", "zrandmember", "key [count [WITHSCORES]]", READ, ONE, "Returns some members.", sorted_sets::zrandmember),
    data("sorted-set", "zrange", "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]", READ, ONE, "Returns a range of members.", sorted_ranges::zrange),
    data("sorted-set", "zrangebylex", "key min max [LIMIT offset count]", READ, ONE, "Returns a range of names.", sorted_ranges::zrangebylex),
    data("sorted-set", "zrangebyscore", "key min max [WITHSCORES] [LIMIT offset count]", READ, ONE, "Returns a range of scores.", sorted_ranges::zrangebyscore),
    data("sorted-set", "zrangestore", "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]", STORE, TWO, "Stores a range of members.", sorted_ranges::zrangestore),
    data("sorted-set", "zrank", "key member", READ, ONE, "Returns how many members come before one.", sorted_sets::zrank),
    data("sorted-set", "zrem", "key member [member ...]", CHANGE, ONE, "Removes members.", sorted_sets::zrem),
    data("sorted-set", "zremrangebylex", "key min max", WRITE, ONE, "Removes a range of names.", sorted_ranges::zremrangebylex),
    data("sorted-set", "zremrangebyrank", "key start stop", WRITE, ONE, "Removes a range of ranks.", sorted_ranges::zremrangebyrank),
    data("sorted-set", "zremrangebyscore", "key min max", WRITE, ONE, "Removes a range of scores.", sorted_ranges::zremrangebyscore),
    data("sorted-set", "zrevrange", "key start stop [WITHSCORES]", READ, ONE, "Returns a range of members, from the greatest score on.", sorted_ranges::zrevrange),
    data("sorted-set", "zrevrangebylex", "key max min [LIMIT offset count]", READ, ONE, "Returns a range of names, from the last one on.", sorted_ranges::zrevrangebylex),
    data("sorted-set", "zrevrangebyscore", "key max min [WITHSCORES] [LIMIT offset count]", READ, ONE, "Returns a range of scores, from the greatest on.", sorted_ranges::zrevrangebyscore),
    data("sorted-set", "zrevrank", "key member", READ, ONE, "Returns how many members come after one.", sorted_sets::zrevrank),
    data("sorted-set", "zscan", "key cursor [MATCH pattern] [COUNT count]", READ, ONE, "Walks over the members.", scan::zscan),
    data("sorted-set", "zscore", "key member", LOOK, ONE, "Returns a score.", sorted_sets::zscore),
    data("sorted-set", "zunion", "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE (SUM | MIN | MAX)] [WITHSCORES]", READ, NUMBERED, "Returns a union of sorted sets.", sorted_combinations::zunion),
    data("sorted-set", "zunionstore", "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE (SUM | MIN | MAX)]", STORE, STORED, "Stores a union of sorted sets.", sorted_combinations::zunionstore),

    data("list", "blmove", "source destination (LEFT | RIGHT) (LEFT | RIGHT) timeout", BLOCK, TWO, "Moves an element from an end of a list to one of another. Waits for it.", blocking::blmove),
    data("list", "blmpop", "timeout numkeys key [key ...] (LEFT | RIGHT) [COUNT count]", BLOCK, TIMED, "Removes elements of the first list that has any. Waits for one.", blocking::blmpop),
    data("list", "blpop", "key [key ...] timeout", BLOCK, BEFORE_TIME, "Removes and returns the first element of a list. Waits for it.", blocking::blpop),
    data("list", "brpop", "key [key ...] timeout", BLOCK, BEFORE_TIME, "Removes and returns the last element of a list. Waits for it.", blocking::brpop),
    data("list", "brpoplpush", "source destination timeout", BLOCK, TWO, "Moves the last element of a list to the front of another. Waits for it.", blocking::brpoplpush),
    data("list", "lindex", "key index", READ, ONE, "Returns the element at an index.", lists::lindex),
    data("list", "linsert", "key (BEFORE | AFTER) pivot element", STORE, ONE, "Inserts an element before or after another.", lists::linsert),
    data("list", "llen", "key", LOOK, ONE, "Returns the length.", lists::llen),
    data("list", "lmove", "source destination (LEFT | RIGHT) (LEFT | RIGHT)", STORE, TWO, "Moves an element from an end of a list to one of another.", lists::lmove),
    data("list", "lmpop", "numkeys key [key ...] (LEFT | RIGHT) [COUNT count]", WRITE, NUMBERED, "Removes elements of the first list that has any.", lists::lmpop),
    joined(data("list", "lpop", "key [count]", CHANGE, ONE, "Removes and returns elements at the left end.", lists::lpop), lists::lpop_joined),
    data("list", "lpos", "key element [RANK rank] [COUNT count] [MAXLEN len]", READ, ONE, "Finds elements.", lists::lpos),
    joined(data("list", "lpush", "key element [element ...]", PUT, ONE, "Adds elements at the left end.", lists::lpush), lists::lpush_joined),
    data("list", "lpushx", "key element [element ...]", PUT, ONE, "Adds elements at the left end if the list exists.", lists::lpushx),
    data("list", "lrange", "key start stop", READ, ONE, "Returns a range of elements.", lists::lrange),
    data("list", "lrem", "key count element", WRITE, ONE, "Removes elements that are equal to a value.", lists::lrem),
    data("list", "lset", "key index element", STORE, ONE, "Sets the element at an index.", lists::lset),
    data("list", "ltrim", "key start stop", WRITE, ONE, "Removes all elements outside of a range.", lists::ltrim),
    joined(data("list", "rpop", "key [count]", CHANGE, ONE, "Removes and returns elements at the right end.", lists::rpop), lists::rpop_joined),
    data("list", "rpoplpush", "source destination", STORE, TWO, "Moves the last element of a list to the front of another.", lists::rpoplpush),
    joined(data("list", "rpush", "key element [element ...]", PUT, ONE, "Adds elements at the right end.", lists::rpush), lists::rpush_joined),
    data("list", "rpushx", "key element [element ...]", PUT, ONE, "Adds elements at the right end if the list exists.", lists::rpushx),

    data("stream", "xack", "key group id [id ...]", CHANGE, ONE, "Acknowledges entries that a group has delivered.", stream_groups::xack),
    data("stream", "xadd", "key [NOMKSTREAM] [MAXLEN [= | ~] threshold [LIMIT count] | MINID [= | ~] threshold [LIMIT count]] (* | id) field value [field value ...]", PUT, ONE, "Appends an entry.", streams::xadd),
    data("stream", "xautoclaim", "key group consumer min-idle-time start [COUNT count] [JUSTID]", CHANGE, ONE, "Gives entries that are pending for long to another consumer.", stream_groups::xautoclaim),
    data("stream", "xclaim", "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]", CHANGE, ONE, "Gives pending entries to another consumer.", stream_groups::xclaim),
    data("stream", "xdel", "key id [id ...]", CHANGE, ONE, "Deletes entries.", streams::xdel),
    data("stream", "xgroup", "CREATE key group id [MKSTREAM] [ENTRIESREAD entries-read] | CREATECONSUMER key group consumer | DELCONSUMER key group consumer | DESTROY key group | SETID key group id [ENTRIESREAD entries-read] | HELP", STORE, SECOND, "Creates, changes and destroys groups of consumers.", stream_groups::xgroup),
    data("stream", "xinfo", "CONSUMERS key group | GROUPS key | STREAM key [FULL [COUNT count]] | HELP", READ, SECOND, "Shows details of a stream, its groups and consumers.", stream_info::xinfo),
    data("stream", "xlen", "key", LOOK, ONE, "Counts the entries.", streams::xlen),
    data("stream", "xpending", "key group [[IDLE min-idle-time] start end count [consumer]]", READ, ONE, "Shows the entries that a group has delivered and not acknowledged.", stream_groups::xpending),
    data("stream", "xrange", "key start end [COUNT count]", READ, ONE, "Returns a range of entries.", streams::xrange),
    data("stream", "xread", "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]", READ | BLOCKS, STREAMS, "Returns the entries after an id, of several streams. Waits for them with BLOCK.", streams::xread),
    data("stream", "xreadgroup", "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]", BLOCK, STREAMS, "Delivers entries to a consumer of a group. Waits for them with BLOCK.", stream_groups::xreadgroup),
    data("stream", "xrevrange", "key end start [COUNT count]", READ, ONE, "Returns a range of entries, from the greatest id on.", streams::xrevrange),
    data("stream", "xsetid", "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]", STORE, ONE, "Sets the last id of a stream.", streams::xsetid),
    data("stream", "xtrim", "key (MAXLEN | MINID) [= | ~] threshold [LIMIT count]", WRITE, ONE, "Removes the oldest entries.", streams::xtrim),

    session("pubsub", "psubscribe", "pattern [pattern ...]", SUBSCRIBES, NONE, "Subscribes to patterns of channels.", pubsub::psubscribe),
    data("pubsub", "publish", "channel message", FAST, NONE, "Sends a message to the subscribers of a channel.", pubsub::publish),
    session("pubsub", "pubsub", "CHANNELS [pattern] | NUMPAT | NUMSUB [channel ...] | SHARDCHANNELS [pattern] | SHARDNUMSUB [shardchannel ...] | HELP", 0, NONE, "Shows the channels that have subscribers.", pubsub::pubsub),
    session("pubsub", "punsubscribe", "[pattern ...]", SUBSCRIBES, NONE, "Ends subscriptions to patterns.", pubsub::punsubscribe),
    data("pubsub", "spublish", "shardchannel message", FAST, NONE, "Sends a message to the subscribers of a shard's channel.", pubsub::spublish),
    session("pubsub", "ssubscribe", "shardchannel [shardchannel ...]", SUBSCRIBES, NONE, "Subscribes to channels of a shard.", pubsub::ssubscribe),
    session("pubsub", "subscribe", "channel [channel ...]", SUBSCRIBES, NONE, "Subscribes to channels.", pubsub::subscribe),
    session("pubsub", "sunsubscribe", "[shardchannel ...]", SUBSCRIBES, NONE, "Ends subscriptions to channels of a shard.", pubsub::sunsubscribe),
    session("pubsub", "unsubscribe", "[channel ...]", SUBSCRIBES, NONE, "Ends subscriptions to channels.", pubsub::unsubscribe),

    session("transactions", "discard", "", FAST | ENDS_QUEUE, NONE, "Forgets the queued commands.", connection::discard),
    session("transactions", "exec", "", ENDS_QUEUE, NONE, "Runs the queued commands as one transaction.", connection::exec),
    session("transactions", "multi", "", FAST | ENDS_QUEUE, NONE, "Queues the commands that follow, until EXEC.", connection::multi),
    session("transactions", "unwatch", "", FAST, NONE, "Forgets the watched keys.", connection::unwatch),
    session("transactions", "watch", "key [key ...]", FAST | NOT_QUEUED, ALL, "Makes EXEC do nothing if one of the keys changes before it.", connection::watch),

    session("connection", "auth", "[username] password", FAST | NO_AUTH, NONE, "Gives the password.", connection::auth),
    session("connection", "client", "ID | INFO | GETREDIR | TRACKINGINFO | LIST [TYPE type | ID client-id [client-id ...]] | GETNAME | SETNAME connection-name | SETINFO (LIB-NAME libname | LIB-VER libver) | CAPA capability [capability ...] | NO-EVICT (ON | OFF) | NO-TOUCH (ON | OFF) | REPLY (ON | OFF | SKIP) | UNBLOCK client-id [TIMEOUT | ERROR] | KILL old-format-or-filter [filter-value ...] | WEFT.ROLLBACK (ON | OFF) | HELP", ADMIN, NONE, "Shows and changes what the server knows of clients.", introspection::client),
    session("connection", "echo", "message", FAST, NONE, "Returns its argument.", connection::echo),
    session("connection", "hello", "[protover [AUTH username password] [SETNAME clientname]]", FAST | NO_AUTH, NONE, "Chooses the version of the protocol.", connection::hello),
    session("connection", "ping", "[message]", FAST | WHILE_SUBSCRIBED, NONE, "Returns PONG, or its argument.", connection::ping),
    session("connection", "readonly", "", FAST, NONE, "Lets the client read what a standby has.", replication::readonly),
    session("connection", "readwrite", "", FAST, NONE, "Ends what READONLY has begun.", replication::readwrite),
    session("connection", "quit", "[argument ...]", FAST | WHILE_SUBSCRIBED | NO_AUTH | ENDS_QUEUE, NONE, "Closes the connection.", connection::quit),
    session("connection", "reset", "", FAST | WHILE_SUBSCRIBED | NO_AUTH | ENDS_QUEUE, NONE, "Goes back to how the connection began.", connection::reset),
    session("connection", "select", "index", FAST, NONE, "Selects a numbered database.", connection::select),

    data("scripting", "eval", "script numkeys [key ...] [arg ...]", NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script.", scripts::eval),
    data("scripting", "eval_ro", "script numkeys [key ...] [arg ...]", READ | NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script that only reads.", scripts::eval_ro),
    data("scripting", "evalsha", "sha1 numkeys [key ...] [arg ...]", NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script by its SHA-1.", scripts::evalsha),
    data("scripting", "evalsha_ro", "sha1 numkeys [key ...] [arg ...]", READ | NO_SCRIPT, KeyPlaces::Numbered(2), "Runs a script that only reads by its SHA-1.", scripts::evalsha_ro),
    data("scripting", "fcall", "function numkeys [key ...] [arg ...]", NO_SCRIPT, KeyPlaces::Numbered(2), "Calls a function, or a procedure.", functions::fcall),
    data("scripting", "fcall_ro", "function numkeys [key ...] [arg ...]", READ | NO_SCRIPT, KeyPlaces::Numbered(2), "Calls a function or a procedure that only reads.", functions::fcall_ro),
    data("scripting", "function", "DELETE library-name | DUMP | FLUSH [ASYNC | SYNC] | KILL | LIST [LIBRARYNAME library-name-pattern] [WITHCODE] | LOAD [REPLACE] function-code | RESTORE serialized-value [FLUSH | APPEND | REPLACE] | STATS | HELP", WRITE | NO_SCRIPT, NONE, "Adds, removes and lists functions.", functions::function),
    session("scripting", "script", "EXISTS sha1 [sha1 ...] | FLUSH [ASYNC | SYNC] | KILL | LOAD script | HELP", 0, NONE, "Keeps scripts, forgets them, and stops those that run.", scripts::script),

    session("server", "acl", "CAT [category] | DELUSER username [username ...] | DRYRUN username command [arg ...] | GENPASS [bits] | GETUSER username | LIST | LOAD | LOG [count | RESET] | SAVE | SETUSER username [rule ...] | USERS | WHOAMI | HELP", ADMIN, NONE, "Shows and changes users and their rights.", users::acl),
    session("server", "bgrewriteaof", "", ADMIN, NONE, "Writes a checkpoint in the background.", saving::bgrewriteaof),
    session("server", "bgsave", "[SCHEDULE]", ADMIN, NONE, "Writes a checkpoint in the background.", saving::bgsave),
    session("server", "command", "[COUNT | DOCS [command-name ...] | GETKEYS command [arg ...] | INFO [command-name ...] | LIST [FILTERBY (MODULE module-name | ACLCAT category | PATTERN pattern)] | HELP]", 0, NONE, "Describes the commands.", introspection::command),
    session("server", "config", "GET parameter [parameter ...] | SET parameter value [parameter value ...] | REWRITE | RESETSTAT | HELP", ADMIN, NONE, "Shows and changes settings.", introspection::config),
    session("server", "debug", "SLEEP seconds | HELP", ADMIN | NOT_QUEUED, NONE, "Waits: DEBUG SLEEP.", introspection::debug),
    data("server", "dbsize", "", LOOK, NONE, "Counts the keys.", keys::dbsize),
    session("server", "failover", "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]", ADMIN | NOT_QUEUED, NONE, "Makes a standby the primary.", replication::failover),
    data("server", "flushall", "[ASYNC | SYNC]", WRITE | SLOW, NONE, "Deletes all keys of all databases.", keys::flushall),
    data("server", "flushdb", "[ASYNC | SYNC]", WRITE | SLOW, NONE, "Deletes all keys of the selected database.", keys::flushdb),
    data("server", "info", "[section ...]", 0, NONE, "Shows numbers about the server.", info::info),
    session("server", "lastsave", "", ADMIN | FAST, NONE, "Returns when the last checkpoint was written, as a Unix time.", saving::lastsave),
    session("server", "latency", "LATEST | HISTORY event | RESET [event ...] | DOCTOR | HELP", ADMIN, NONE, "Shows when commands took long.", introspection::latency),
    data("server", "memory", "DOCTOR | PURGE | STATS | USAGE key [SAMPLES count] | HELP", READ, SECOND, "Shows the memory that the database and a key need.", memory::memory),
    session("server", "monitor", "", ADMIN | NO_SCRIPT | NOT_QUEUED, NONE, "Shows all commands that the server runs.", introspection::monitor),
    session("server", "replicaof", "(host port | NO ONE)", ADMIN | NOT_QUEUED, NONE, "With NO ONE, makes a standby the primary.", replication::replicaof),
    session("server", "role", "", ADMIN | FAST, NONE, "Returns whether the server is the primary or a standby.", replication::role),
    session("server", "save", "", ADMIN | NOT_QUEUED, NONE, "Writes a checkpoint.", saving::save),
    session("server", "shutdown", "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]", ADMIN | NOT_QUEUED, NONE, "Stops the server.", saving::shutdown),
    session("server", "sentinel", "GET-MASTER-ADDR-BY-NAME master-name | MASTER master-name | MASTERS | REPLICAS master-name | SLAVES master-name | SENTINELS master-name | CKQUORUM master-name", FAST, NONE, "Says where the primary is, as Redis's Sentinel does.", replication::sentinel),
    session("server", "slaveof", "(host port | NO ONE)", ADMIN | NOT_QUEUED, NONE, "With NO ONE, makes a standby the primary.", replication::replicaof),
    session("server", "slowlog", "GET [count] | LEN | RESET | HELP", ADMIN, NONE, "Shows the commands that took long.", introspection::slowlog),
    session("server", "time", "", FAST, NONE, "Returns the server's time.", introspection::time),
    session("server", "weft.backup", "", ADMIN | NOT_QUEUED, NONE, "Writes a backup of a replicated server.", replication::back_up),
    session("server", "weft.promote", "[milliseconds] [WITHOUT-MISSING]", ADMIN | NOT_QUEUED, NONE, "Makes a standby the primary.", replication::promote),
    session("server", "weft.truncate", "", ADMIN | NOT_QUEUED, NONE, "Removes records of the log that two backups have.", replication::truncate),
];

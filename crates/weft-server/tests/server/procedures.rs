//! Procedures in Rust, over tables of the program, which clients call by their names.

use std::fmt;

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record, Table, Transaction};
use weft_procedures::procedure;
use weft_server::{FromDatabase, Options, Server};

use crate::client::{TestServer, Value};

/// Something to sell.
#[derive(Clone, Record)]
pub struct Product {
    #[record(key)]
    id: u64,
    name: String,
    stock: u32,
}

/// What was sold.
#[derive(Clone, Record)]
pub struct Order {
    #[record(key)]
    id: u64,
    product: u64,
    note: Option<String>,
}

/// All tables of the shop.
pub struct Shop {
    products: Table<Product>,
    orders: Table<Order>,
}

impl FromDatabase for Shop {
    fn from_database(database: &Database) -> Result<Self, weft::Failure> {
        Ok(Shop { products: database.table()?, orders: database.table()? })
    }
}

/// Why nothing was sold.
#[derive(Debug)]
pub enum NotSold {
    Database(Error),
    NoSuchProduct(u64),
    SoldOut(String),
}

impl From<Error> for NotSold {
    fn from(error: Error) -> Self {
        NotSold::Database(error)
    }
}

impl fmt::Display for NotSold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSold::Database(error) => error.fmt(formatter),
            NotSold::NoSuchProduct(id) => write!(formatter, "there is no product {id}"),
            NotSold::SoldOut(name) => write!(formatter, "{name} is sold out"),
        }
    }
}

/// Takes products from the stock. Returns how many are left.
///
/// Only the first line is the summary.
#[procedure(Take, served)]
pub fn take(
    products: &Table<Product>,
    tx: &Transaction<'_>,
    id: u64,
    count: Option<u32>,
) -> Result<Option<u32>, Error> {
    let count = count.unwrap_or(1);
    let left = tx.update(products, &id, |product| {
        let left = product.stock.checked_sub(count);
        product.stock = left.unwrap_or(product.stock);
        left
    })?;
    Ok(left.flatten())
}

/// Sells a product.
#[procedure(Sell, served)]
pub fn sell(
    shop: &Shop,
    tx: &Transaction<'_>,
    order: u64,
    product: u64,
    note: &str,
) -> Result<(u64, String), NotSold> {
    let note = Some(note.to_owned()).filter(|note| !note.is_empty());
    tx.insert(&shop.orders, Order { id: order, product, note })?;
    let sold = tx.update(&shop.products, &product, |product| {
        let is_there = product.stock > 0;
        product.stock -= u32::from(is_there);
        (is_there, product.name.clone())
    })?;
    match sold {
        Some((true, name)) => Ok((order, name)),
        Some((false, name)) => Err(NotSold::SoldOut(name)),
        None => Err(NotSold::NoSuchProduct(product)),
    }
}

/// Counts the orders.
#[procedure(CountOrders, served)]
pub fn count_orders(shop: &Shop, tx: &Transaction<'_>) -> Result<usize, Error> {
    tx.len(&shop.orders)
}

type Converted = (i8, f64, bool, Vec<String>, Option<u64>);

/// Returns what it gets.
#[procedure(Convert, served)]
pub fn convert(
    products: &Table<Product>,
    tx: &Transaction<'_>,
    small: i8,
    fraction: f64,
    flag: bool,
    bytes: Vec<u8>,
) -> Result<Converted, Error> {
    let largest = tx.get(products, &u64::from(flag))?.map(|_| u64::MAX);
    Ok((small, fraction, flag, vec![format!("{bytes:?}")], largest))
}

/// Has an error of its author.
#[procedure(Defective, served)]
pub fn defective(products: &Table<Product>, tx: &Transaction<'_>) -> Result<u64, Error> {
    let product = tx.get(products, &7)?;
    panic!("there is {:?}", product.map(|product| product.name.clone()));
}

fn shop() -> TestServer {
    let builder = Database::builder().table::<Product>().table::<Order>();
    let database = weft_server::with_tables(builder).open().unwrap();
    let products = database.table::<Product>().unwrap();
    database
        .transact(|tx| {
            tx.insert(&products, Product { id: 1, name: "ticket".into(), stock: 100 })?;
            tx.insert(&products, Product { id: 7, name: "lamp".into(), stock: 5 })
        })
        .unwrap();
    let server = Server::builder()
        .options(Options::default())
        .database(database)
        .procedure::<Take<'_>>("take")
        .procedure::<Sell<'_>>("Shop.Sell")
        .procedure::<CountOrders<'_>>("count_orders")
        .procedure::<Convert<'_>>("convert")
        .procedure::<Defective<'_>>("defective")
        .open();
    TestServer::of(server.unwrap())
}

#[test]
fn procedures_are_called_by_name_and_by_fcall() {
    let server = shop();
    let mut client = server.client();
    for (line, reply) in [
        ("TAKE 7", ":4"),
        ("FCALL take 0 7", ":3"),
        ("fcall TAKE 1 7", ":2"),
        ("take 7 2", ":0"),
        ("TAKE 7", "null"),
        ("TAKE 8", "null"),
        ("shop.sell 1 1 \"\"", "*[:1, \"ticket\"]"),
        ("SHOP.SELL 2 1 hurry", "*[:2, \"ticket\"]"),
        ("COUNT_ORDERS", ":2"),
        ("FCALL_RO count_orders 0", ":2"),
        (
            "CONVERT -5 1.5 true \"\\x00a\"",
            "*[:-5, \"1.5\", :1, *[\"[0, 97]\"], \"18446744073709551615\"]",
        ),
        ("SET k v", "+OK"),
    ] {
        assert_eq!(client.say(line), reply, "{line}");
    }
    client.line("HELLO 3");
    assert_eq!(client.say("CONVERT 5 0.25 0 x"), "*[:5, ,0.25, #f, *[\"[120]\"], _]");
}

#[test]
fn a_procedure_that_panics_ends_its_connection_and_no_other_one() {
    let server = shop();
    let mut others: Vec<_> = (0..4).map(|_| server.client()).collect();
    for round in 0..3 {
        for other in &mut others {
            assert_eq!(other.say("PING"), "+PONG");
        }
        let mut client = server.client();
        // Also as the first command of a connection.
        for _ in 0..round {
            assert_eq!(client.say("PING"), "+PONG");
        }
        client.send(b"SET k v\r\nDEFECTIVE\r\nPING\r\n");
        while client.read().is_some() {}
    }
    assert_eq!(others[0].say("TAKE 7"), ":4");
}

#[test]
fn wrong_calls_of_procedures_say_what_is_wrong() {
    let server = shop();
    let mut client = server.client();
    for (line, reply) in [
        (
            "TAKE seven",
            "-ERR argument 1 of 'take', id, must be an integer of 64 bits, not below 0, and not 'seven'",
        ),
        (
            "TAKE -1",
            "-ERR argument 1 of 'take', id, must be an integer of 64 bits, not below 0, and not '-1'",
        ),
        (
            "TAKE 7 many",
            "-ERR argument 2 of 'take', count, must be an integer of 32 bits, not below 0, and not 'many'",
        ),
        (
            "CONVERT 300 1 1 x",
            "-ERR argument 1 of 'convert', small, must be an integer from -128 to 127, and not '300'",
        ),
        (
            "CONVERT 3 1 maybe x",
            "-ERR argument 3 of 'convert', flag, must be 1, 0, true or false, and not 'maybe'",
        ),
        (
            "SHOP.SELL 1 1 \"\\xff\"",
            "-ERR argument 3 of 'shop.sell', note, must be text in UTF-8, and not '\u{fffd}'",
        ),
        ("TAKE", "-ERR wrong number of arguments for 'take' command"),
        ("TAKE 7 1 1", "-ERR wrong number of arguments for 'take', which takes 2: id count"),
        ("FCALL take 0", "-ERR wrong number of arguments for 'take', which takes 2: id count"),
        ("FCALL_RO take 0 7", "-ERR Can not execute a script with write flag using *_ro command."),
        ("SHOP.SELL 1 9 x", "-ERR there is no product 9"),
    ] {
        assert_eq!(client.say(line), reply, "{line}");
    }
    assert_eq!(client.say("COUNT_ORDERS"), ":0");
    client.line("TAKE 7 5");
    assert_eq!(client.say("SHOP.SELL 1 7 x"), "-ERR lamp is sold out");
    assert_eq!(client.say("COUNT_ORDERS"), ":0");
    client.line("SHOP.SELL 1 1 x");
    let twice = client.say("SHOP.SELL 1 1 x");
    assert!(twice.starts_with("-ERR ") && twice.contains("order"), "{twice}");
}

#[test]
fn procedures_run_in_multi_and_in_scripts() {
    let server = shop();
    let mut client = server.client();
    for (line, reply) in [
        ("MULTI", "+OK"),
        ("TAKE 7", "+QUEUED"),
        ("INCR taken", "+QUEUED"),
        ("SHOP.SELL 1 9 x", "+QUEUED"),
        ("EXEC", "*[:4, :1, -ERR there is no product 9]"),
        ("EVAL \"redis.call('incr', 'taken') return redis.call('take', ARGV[1])\" 0 7", ":3"),
        (
            "EVAL \"return redis.pcall('shop.sell', 1, 9, '').err\" 0",
            "\"ERR there is no product 9\"",
        ),
        (
            "EVAL_RO \"return redis.call('take', 7)\" 0",
            "-ERR Write commands are not allowed from read-only scripts. script: 29a4a47871457b9b0f7f6bfd2c5d8f6a6f6f8d05, on @user_script:1.",
        ),
        ("EVAL_RO \"return redis.call('count_orders')\" 0", ":0"),
        ("GET taken", "\"2\""),
    ] {
        let said = client.say(line);
        match said.split_once(" script: ") {
            Some((said, _)) => assert_eq!(said, reply.split_once(" script: ").unwrap().0, "{line}"),
            None => assert_eq!(said, reply, "{line}"),
        }
    }
}

#[test]
fn rules_of_users_hold_for_procedures() {
    let server = shop();
    let mut admin = server.client();
    let caught = "\"NOPERM this user has no permissions to run the \\'take\\' command\"";
    // A reply of `!` and a name says that the user may not run this command.
    for (rules, lines) in [
        (
            "+@all -@write",
            &[("TAKE 7", "!take"), ("FCALL take 0 7", "!take"), ("COUNT_ORDERS", ":0")][..],
        ),
        ("-@all +fcall", &[("FCALL take 0 7", "!take"), ("FCALL Take 1 7", "!take")]),
        ("+take", &[("FCALL take 0 7", ":4"), ("TAKE 7", ":3")]),
        ("-@write", &[("TAKE 7", "!take"), ("COUNT_ORDERS", "!count_orders")]),
        ("+@read", &[("TAKE 7", "!take"), ("COUNT_ORDERS", ":0")]),
        ("+@write", &[("TAKE 7", ":2"), ("PING", "!ping")]),
        ("+@all -shop.sell", &[("TAKE 7", ":1"), ("Shop.Sell 1 1 x", "!shop.sell")]),
        ("-take", &[("EVAL \"return redis.pcall('take', 7).err\" 0", caught)]),
        ("-@slow +@fast", &[("TAKE 7", "!take"), ("COUNT_ORDERS", "!count_orders")]),
    ] {
        assert_eq!(admin.say(&format!("ACL SETUSER u on nopass ~* &* {rules}")), "+OK", "{rules}");
        let mut client = server.client();
        assert_eq!(client.say("AUTH u x"), "+OK");
        for (line, reply) in lines {
            let refused = |name: &str| {
                format!("-NOPERM this user has no permissions to run the '{name}' command")
            };
            let expected = reply.strip_prefix('!').map_or((*reply).to_owned(), refused);
            assert_eq!(client.say(line), expected, "{rules}: {line}");
        }
    }
    assert!(admin.say("ACL LOG 1").contains("\"count_orders\""));
    assert_eq!(admin.say("ACL DRYRUN default TAKE 7"), "+OK");
    let dry = "\"This user has no permissions to run the \\'take\\' command\"";
    assert_eq!(admin.say("ACL DRYRUN u TAKE 7"), dry);
    assert!(admin.say("ACL GETUSER u").contains(" -take -@slow +@fast"));
    let unknown = admin.say("ACL SETUSER u +nosuch");
    assert!(unknown.contains("Unknown command or category name in ACL"), "{unknown}");
}

#[test]
fn the_last_products_are_sold_once() {
    let server = shop();
    let sold = Word::new(0);
    server.with_clients(4, |number, mut client| {
        for order in 0..50 {
            let id = number * 1000 + order;
            let reply = client.say(&format!("SHOP.SELL {id} 1 x"));
            if reply == "-ERR ticket is sold out" {
                continue;
            }
            assert_eq!(reply, format!("*[:{id}, \"ticket\"]"));
            sold.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(sold.load(Ordering::Relaxed), 100);
    assert_eq!(server.client().say("COUNT_ORDERS"), ":100");
}

#[test]
fn the_commands_show_the_shapes_of_procedures() {
    let server = shop();
    let mut client = server.client();
    assert_eq!(
        client.say("COMMAND DOCS take"),
        "*[\"take\", *[\"summary\", \"Takes products from the stock. Returns how many are left.\", \"group\", \
         \"procedures\", \"arguments\", *[*[\"name\", \"id\", \"type\", \"integer\"], *[\"name\", \
         \"count\", \"type\", \"integer\", \"flags\", *[+optional]]]]]"
    );
    let info = client.say("COMMAND INFO take count_orders");
    assert!(
        info.starts_with("*[*[\"take\", :-2, *[+write, +denyoom], :0, :0, :0, *[+@write, +@slow]"),
        "{info}"
    );
    assert!(info.contains("*[\"count_orders\", :1, *[+readonly], "), "{info}");
    let Value::List(_, all) = client.line("COMMAND") else { panic!() };
    assert_eq!(client.say("COMMAND COUNT"), format!(":{}", all.len()));
    assert!(client.say("COMMAND LIST").contains("\"shop.sell\""));
    let library = "#!lua name=own\\nredis.register_function('take', function() return 1 end)";
    let refused = client.say(&format!("FUNCTION LOAD \"{library}\""));
    assert_eq!(refused, "-ERR Function take already exists");
}

#[test]
#[should_panic(
    expected = "a procedure cannot be named `get`, because there is a command of this name"
)]
fn a_procedure_cannot_have_the_name_of_a_command() {
    let database = weft_server::with_tables(Database::builder().table::<Product>()).open().unwrap();
    let _ = Server::builder().database(database).procedure::<Take<'_>>("GET").open();
}

#[test]
fn missing_tables_are_an_error() {
    let without_redis = Database::builder().table::<Product>().open().unwrap();
    assert!(Server::builder().database(without_redis).open().is_err());
    let without_orders =
        weft_server::with_tables(Database::builder().table::<Product>()).open().unwrap();
    let server = Server::builder().database(without_orders).procedure::<Sell<'_>>("sell").open();
    let error = server.err().unwrap().to_string();
    assert!(error.contains("order"), "{error}");
}

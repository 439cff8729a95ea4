//! Procedures that clients call by their names: functions in Rust over tables of the program's own.

use std::any::Any;
use std::fmt::{self, Debug, Display};

use rustc_hash::FxHashMap;
use weft::{Database, Failure, Record, Table, Transaction};

use crate::call::Call;
use crate::commands::{self, Command, flags};
use crate::reply::Reply;
use crate::stop::{Done, Stop};

/// A procedure that clients can call. `#[procedure(Name, served)]` implements it.
pub trait Served {
    /// What it needs of the database.
    type Tables: Send + Sync + 'static;

    /// What it does: the first line of the function's documentation.
    const SUMMARY: &str;

    /// Its parameters, without the tables.
    fn parameters() -> Vec<Parameter>;

    /// Returns whether it only reads.
    fn is_read_only() -> bool;

    /// Finds its tables.
    ///
    /// # Errors
    /// [`Failure`], if the database does not have them.
    fn tables(database: &Database) -> Result<Self::Tables, Failure>;

    /// Calls it, and writes its output.
    ///
    /// # Errors
    /// An argument is wrong; the function's.
    fn call(
        tables: &Self::Tables,
        tx: &Transaction<'_>,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<(), Refused>;
}

/// What a procedure gets of the database: a table, or a struct of tables.
pub trait FromDatabase: Sized {
    /// Finds it.
    ///
    /// # Errors
    /// [`Failure`], if the database does not have it.
    fn from_database(database: &Database) -> Result<Self, Failure>;
}

impl<R: Record> FromDatabase for Table<R> {
    fn from_database(database: &Database) -> Result<Self, Failure> {
        database.table()
    }
}

/// A parameter of a procedure.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it has to be, as in "must be an integer".
    pub expected: &'static str,
    /// The name of its type in `COMMAND DOCS`.
    pub kind: &'static str,
    /// Whether it may be left out, if all after it are.
    pub is_optional: bool,
}

impl Parameter {
    /// Creates the parameter that has this type.
    pub fn new<T: FromArgument>(name: &'static str) -> Self {
        let (expected, kind, is_optional) = (T::EXPECTED, T::KIND, T::IS_OPTIONAL);
        Parameter { name, expected, kind, is_optional }
    }
}

/// A type of parameters.
pub trait FromArgument: Sized {
    /// What an argument has to be, as in "must be an integer".
    const EXPECTED: &str;
    /// The name of the type in `COMMAND DOCS`: `string`, `integer` or `double`.
    const KIND: &str = "string";
    /// Whether the argument may be left out.
    const IS_OPTIONAL: bool = false;

    /// Converts an argument, which is `None` if it was left out. Returns `None` if it is wrong.
    fn from_argument(argument: Option<&[u8]>) -> Option<Self>;
}

macro_rules! numbers {
    ($kind:literal: $($type:ty, $expected:literal;)*) => {$(
        impl FromArgument for $type {
            const EXPECTED: &str = $expected;
            const KIND: &str = $kind;

            fn from_argument(argument: Option<&[u8]>) -> Option<Self> {
                std::str::from_utf8(argument?).ok()?.parse().ok()
            }
        }
    )*};
}

numbers! { "integer":
    i8, "an integer from -128 to 127";
    i16, "an integer from -32768 to 32767";
    i32, "an integer of 32 bits";
    i64, "an integer of 64 bits";
    u8, "an integer from 0 to 255";
    u16, "an integer from 0 to 65535";
    u32, "an integer of 32 bits, not below 0";
    u64, "an integer of 64 bits, not below 0";
    usize, "an integer, not below 0";
}
numbers! { "double":
    f32, "a number";
    f64, "a number";
}

impl FromArgument for bool {
    const EXPECTED: &str = "1, 0, true or false";

    fn from_argument(argument: Option<&[u8]>) -> Option<Self> {
        match argument? {
            b"1" | b"true" => Some(true),
            b"0" | b"false" => Some(false),
            _ => None,
        }
    }
}

impl FromArgument for String {
    const EXPECTED: &str = "text in UTF-8";

    fn from_argument(argument: Option<&[u8]>) -> Option<Self> {
        String::from_utf8(argument?.to_vec()).ok()
    }
}

impl FromArgument for Vec<u8> {
    const EXPECTED: &str = "a byte string";

    fn from_argument(argument: Option<&[u8]>) -> Option<Self> {
        argument.map(<[u8]>::to_vec)
    }
}

impl<T: FromArgument> FromArgument for Option<T> {
    const EXPECTED: &str = T::EXPECTED;
    const KIND: &str = T::KIND;
    const IS_OPTIONAL: bool = true;

    fn from_argument(argument: Option<&[u8]>) -> Option<Self> {
        match argument {
            None => Some(None),
            Some(_) => T::from_argument(argument).map(Some),
        }
    }
}

/// The arguments of a call.
#[derive(Debug)]
pub struct Arguments<'c> {
    given: &'c [&'c [u8]],
    procedure: &'c Procedure,
    position: usize,
}

impl Arguments<'_> {
    /// Takes the next argument.
    ///
    /// # Errors
    /// It is wrong.
    pub fn take<T: FromArgument>(&mut self) -> Result<T, Refused> {
        let position = self.position;
        self.position += 1;
        let argument = self.given.get(position).copied();
        T::from_argument(argument).ok_or_else(|| {
            let given = String::from_utf8_lossy(argument.unwrap_or_default());
            let given: String = given.chars().take(64).collect();
            let (name, parameter) = (&self.procedure.name, &self.procedure.parameters[position]);
            let Parameter { name: parameter, expected, .. } = parameter;
            let text = format!(
                "ERR argument {} of '{name}', {parameter}, must be {expected}, and not '{given}'",
                position + 1
            );
            Refused(text.into())
        })
    }
}

/// Why a call of a procedure has failed.
#[derive(Debug)]
pub struct Refused(Stop);

impl Refused {
    /// Creates the error of a call whose procedure has returned this error.
    pub fn new<E: Display + 'static>(error: E) -> Self {
        let text = format!("ERR {error}");
        let error: Box<dyn Any> = Box::new(error);
        match error.downcast::<weft::Error>() {
            Ok(error) => Refused(Stop::Database(*error)),
            Err(_) => Refused(text.into()),
        }
    }
}

/// What procedures return. Implement this for types of your own, by the methods of [`Reply`].
pub trait IntoReply {
    /// Writes the value.
    fn write(&self, reply: &mut Reply);
}

macro_rules! replies {
    ($($type:ty: |$value:ident, $reply:ident| $write:expr;)*) => {$(
        impl IntoReply for $type {
            fn write(&self, $reply: &mut Reply) {
                let $value = self;
                $write;
            }
        }
    )*};
}

replies! {
    (): |_value, reply| reply.ok();
    bool: |value, reply| reply.boolean(*value);
    i8: |value, reply| reply.integer((*value).into());
    i16: |value, reply| reply.integer((*value).into());
    i32: |value, reply| reply.integer((*value).into());
    i64: |value, reply| reply.integer(*value);
    u8: |value, reply| reply.integer((*value).into());
    u16: |value, reply| reply.integer((*value).into());
    u32: |value, reply| reply.integer((*value).into());
    usize: |value, reply| (*value as u64).write(reply);
    f32: |value, reply| reply.double((*value).into());
    f64: |value, reply| reply.double(*value);
    str: |value, reply| reply.text(value);
    String: |value, reply| reply.text(value);
    [u8]: |value, reply| reply.text(value);
}

impl IntoReply for u64 {
    fn write(&self, reply: &mut Reply) {
        match i64::try_from(*self) {
            Ok(number) => reply.integer(number),
            Err(_) => reply.big_number(&self.to_string()),
        }
    }
}

impl<T: IntoReply + ?Sized> IntoReply for &T {
    fn write(&self, reply: &mut Reply) {
        (**self).write(reply);
    }
}

impl<T: IntoReply> IntoReply for Option<T> {
    fn write(&self, reply: &mut Reply) {
        match self {
            Some(value) => value.write(reply),
            None => reply.null(),
        }
    }
}

impl<T: IntoReply> IntoReply for Vec<T> {
    fn write(&self, reply: &mut Reply) {
        reply.array(self.len());
        self.iter().for_each(|value| value.write(reply));
    }
}

macro_rules! tuples {
    ($($length:literal: $($type:ident $place:tt)*;)*) => {$(
        impl<$($type: IntoReply),*> IntoReply for ($($type,)*) {
            fn write(&self, reply: &mut Reply) {
                reply.array($length);
                $(self.$place.write(reply);)*
            }
        }
    )*};
}

tuples! {
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
}

type Body =
    dyn Fn(&Transaction<'_>, &mut Arguments<'_>, &mut Reply) -> Result<(), Refused> + Send + Sync;

/// A procedure of a server.
pub struct Procedure {
    name: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Whether it only reads.
    pub is_read_only: bool,
    /// The command that runs it.
    pub command: &'static Command,
    body: Box<Body>,
}

impl Debug for Procedure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Procedure").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Procedure {
    /// Creates the procedure with this name.
    ///
    /// # Errors
    /// [`Failure`], if the database does not have its tables.
    ///
    /// # Panics
    /// If a command has the name.
    pub fn new<S: Served>(name: &str, database: &Database) -> Result<Self, Failure> {
        let name = name.to_ascii_lowercase();
        assert!(
            commands::find(name.as_bytes()).is_none() && !name.is_empty(),
            "a procedure cannot be named `{name}`, because there is a command of this name: choose another"
        );
        let parameters = S::parameters();
        let is_read_only = S::is_read_only();
        let required = parameters.iter().take_while(|parameter| !parameter.is_optional).count();
        let arity = 1 + i64::try_from(required).unwrap_or(i64::MAX - 1);
        // As long as the process, like those of the table. A server is made once.
        let command = Box::leak(Box::new(Command::of_procedure(
            Box::leak(name.clone().into_boxed_str()),
            if required == parameters.len() { arity } else { -arity },
            if is_read_only { flags::READ } else { flags::WRITE | flags::GROWS },
            S::SUMMARY,
            run,
        )));
        let tables = S::tables(database)?;
        let body = Box::new(
            move |tx: &Transaction<'_>, arguments: &mut Arguments<'_>, reply: &mut Reply| {
                S::call(&tables, tx, arguments, reply)
            },
        );
        Ok(Procedure { name, parameters, is_read_only, command, body })
    }

    /// Runs it with these arguments. A procedure that fails leaves nothing, and its transaction is rolled back.
    ///
    /// # Errors
    /// There are too many or too few arguments, or one is wrong; the procedure's own.
    pub fn run(&self, call: &Call<'_>, arguments: &[&[u8]], reply: &mut Reply) -> Done {
        if !self.command.takes(arguments.len() + 1) || arguments.len() > self.parameters.len() {
            let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name).collect();
            return Err(format!(
                "ERR wrong number of arguments for '{}', which takes {}: {}",
                self.name,
                names.len(),
                names.join(" ")
            )
            .into());
        }
        let mut arguments = Arguments { given: arguments, procedure: self, position: 0 };
        (self.body)(call.tx, &mut arguments, reply).map_err(|Refused(stop)| stop)
    }
}

/// Runs the procedure that has the name of the command.
fn run(call: &Call<'_>, reply: &mut Reply) -> Done {
    let procedure = call.caller.server.procedures.get(call.argument(0));
    let procedure = procedure.ok_or("ERR there is no such procedure")?;
    procedure.run(call, call.rest(1), reply)
}

/// The procedures of a server, by their names.
#[derive(Debug, Default)]
pub struct Procedures {
    by_name: FxHashMap<Vec<u8>, Procedure>,
}

impl Procedures {
    /// Adds a procedure.
    ///
    /// # Panics
    /// If another one has its name.
    pub fn add(&mut self, procedure: Procedure) {
        let name = procedure.name.clone();
        let other = self.by_name.insert(name.clone().into_bytes(), procedure);
        assert!(
            other.is_none(),
            "two procedures are named `{name}`: choose another name for one of them"
        );
    }

    /// Returns a procedure, whose name is in capitals or not.
    pub fn get(&self, name: &[u8]) -> Option<&Procedure> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&name.to_ascii_lowercase())
    }

    /// Returns a procedure as a command.
    pub fn command(&self, name: &[u8]) -> Option<&'static Command> {
        self.get(name).map(|procedure| procedure.command)
    }

    /// Returns all procedures as commands.
    pub fn commands(&self) -> impl Iterator<Item = &'static Command> {
        self.by_name.values().map(|procedure| procedure.command)
    }
}

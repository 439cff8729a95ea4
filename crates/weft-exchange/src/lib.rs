//! A table's rows to and from files that other programs read and write: CSV, Arrow IPC, Parquet.
//!
//! An [`Exporter`] takes encoded rows and writes a file; an [`Importer`] reads a file and gives
//! encoded rows. What a row consists of they know from the table's
//! [`TableDescription`](weft::description::TableDescription), so neither needs the Rust type, nor
//! a database. [`export_table`] and [`import_table`] are for those who have both. What is exported and imported again is the same, to the bit, in every format.
//!
//! Arrow and Parquet take the feature `columnar`, which is on by default. Without it an error says that they are not
//! there.
//!
//! # The forms of values
//!
//! | column | Arrow and Parquet | CSV | in JSON |
//! | --- | --- | --- | --- |
//! | `bool` | Boolean | `true`, `false` | the same |
//! | `i8` … `i64`, `u8` … `u64` | Int8 … Int64, UInt8 … UInt64 | decimal digits | a number |
//! | `i128`, `u128` | Decimal256(39, 0) | decimal digits | a number |
//! | `f32`, `f64` | Float32, Float64 | the shortest that is read as the same; `NaN`, `inf`, `-inf` | a number, or a string: `"NaN"`, `"inf"`, `"-inf"` |
//! | `char`, strings | Utf8 | the text | a string |
//! | enums | Utf8, the variant's name | the variant's name | a string |
//! | lists of `u8` | Binary | hexadecimal digits | a string of these |
//! | arrays of `u8` | FixedSizeBinary | hexadecimal digits | a string of these |
//! | lists | List | JSON | an array |
//! | arrays | FixedSizeList | JSON | an array |
//! | tuples | Struct of `0`, `1`, … | JSON | an array |
//! | newtypes: tuple structs with one field | as its field | as its field | as its field |
//! | other structs | Struct | JSON | an object |
//! | `()`, what has no bytes else | Boolean, true | as above | as above |
//! | `Option<T>` | as `T`, nullable | none: an empty field without quotes; else as `T` | `null`; else as `T` |
//! | `Option<Option<T>>` | Struct of `some`, nullable | none: an empty field; else JSON | `null`; else an array of one |
//!
//! *CSV* is that of RFC 4180, with a header, in UTF-8. Quotes are part of the meaning: an empty
//! field in quotes is an empty text, one without is none (in a column that is no option, both are
//! the empty text). PostgreSQL reads and writes it so, too. There is no escape but the doubled
//! quote. A NaN whose bits are not the usual ones is `NaN(0x7ff8000000000001)`.
//!
//! *Decimal256* is what holds all 128-bit integers and still is a number to those who read it.
//!
//! # What is read besides
//!
//! Columns, and the fields of structs, may stand in any order. CSV's lines may end in `\n`; JSON
//! may have spaces, and numbers as strings.
//!
//! Arrow IPC files and Parquet files may have any integer type for an integer, if the values fit;
//! Float32 for `f64`; texts, bytes and lists with 64-bit offsets, views, and dictionaries; lists
//! for arrays, if the lengths are right; columns that could have nulls, but have none. Not read are
//! Arrow IPC files with compressed batches, Arrow IPC streams, and Parquet files that are encrypted
//! or compressed by anything but Snappy: the message says so.
//!
//! # Damaged files
//!
//! Whatever bytes a file has, an import ends with an [`ImportError`] or with valid rows; what is
//! allocated, the size of the file bounds, but for data that is compressed (a page of Parquet: up
//! to 2 GiB). The libraries under it may panic on a damaged file. Such a panic ends in an error
//! like all the others, if panics unwind; the panic hook is called, though, and prints it.

#[cfg(feature = "columnar")]
mod columnar;
#[cfg(not(feature = "columnar"))]
#[path = "columnar_absent.rs"]
mod columnar;
mod columns;
mod csv;
mod error;
mod export;
mod format;
mod import;
mod newtypes;
mod progress;
mod source;
mod table;

pub use error::{ExportError, ImportError, Place};
pub use export::Exporter;
pub use format::Format;
pub use import::Importer;
pub use progress::Progress;
pub use table::{export_table, import_table};

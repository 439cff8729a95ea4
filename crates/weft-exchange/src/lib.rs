//! Exchange of a table's rows with files that other programs read and write: CSV, Arrow IPC, Parquet. And
//! [dumps](dump): whole databases in one portable file.
//!
//! An [`Exporter`] takes encoded rows and writes a file. An [`Importer`] reads a file and returns encoded rows.
//! Both know the types of a row from the table's [`TableDescription`](weft::description::TableDescription), so
//! neither needs the Rust type or a database. [`export_table`] and [`import_table`] are for programs that have
//! both. In every format, rows that are exported and imported again are the same, to the bit.
//!
//! Arrow and Parquet need the feature `columnar`, which is on by default. Without it, their use returns an
//! error that says so.
//!
//! # The forms of values
//!
//! | column | Arrow and Parquet | CSV | in JSON |
//! | --- | --- | --- | --- |
//! | `bool` | Boolean | `true`, `false` | the same |
//! | `i8` … `i64`, `u8` … `u64` | Int8 … Int64, UInt8 … UInt64 | decimal digits | a number |
//! | `i128`, `u128` | Decimal256(39, 0) | decimal digits | a number |
//! | `f32`, `f64` | Float32, Float64 | the shortest text that is read as the same number; `NaN`, `inf`, `-inf` | a number, or a string: `"NaN"`, `"inf"`, `"-inf"` |
//! | `char`, strings | Utf8 | the text | a string |
//! | enums | Utf8, the variant's name | the variant's name | a string |
//! | lists of `u8` | Binary | hexadecimal digits | a string of hexadecimal digits |
//! | arrays of `u8` | FixedSizeBinary | hexadecimal digits | a string of hexadecimal digits |
//! | lists | List | JSON | an array |
//! | arrays | FixedSizeList | JSON | an array |
//! | tuples | Struct of `0`, `1`, … | JSON | an array |
//! | newtypes: tuple structs with one field | as its field | as its field | as its field |
//! | other structs | Struct | JSON | an object |
//! | `()`, and other types without bytes | Boolean, true | as above | as above |
//! | `Option<T>` | as `T`, nullable | `None`: an empty field without quotes; otherwise as `T` | `null`; otherwise as `T` |
//! | `Option<Option<T>>` | Struct of `some`, nullable | `None`: an empty field; otherwise JSON | `null`; otherwise an array of one |
//!
//! *CSV* is that of RFC 4180, with a header, in UTF-8. Quotes have a meaning: an empty field in quotes is an
//! empty text, and an empty field without quotes is `None`. (In a column that is not an option, both are the
//! empty text.) PostgreSQL reads and writes it in the same way. The only escape is the doubled quote. A NaN
//! whose bits are not the usual ones is written as `NaN(0x7ff8000000000001)`.
//!
//! *Decimal256* holds all 128-bit integers, and readers still see it as a number.
//!
//! # What else is read
//!
//! Columns, and the fields of structs, may be in any order. CSV's lines may end in `\n`. JSON may have spaces,
//! and numbers as strings.
//!
//! Arrow IPC files and Parquet files may have other types of the same kind:
//!
//! - any integer type for an integer, if the values fit;
//! - Float32 for `f64`;
//! - texts, bytes and lists with 64-bit offsets, views, and dictionaries;
//! - lists for arrays, if the lengths are right;
//! - nullable columns, if they have no nulls.
//!
//! Arrow IPC files with compressed batches, Arrow IPC streams, and Parquet files that are encrypted, or
//! compressed with anything but Snappy, cannot be read. The error message says so.
//!
//! # Damaged files
//!
//! Whatever bytes a file has, an import ends with an [`ImportError`] or with valid rows. The size of the file
//! bounds what is allocated, except for compressed data (a page of Parquet may take up to 2 GiB). The
//! underlying libraries may panic on a damaged file. Such a panic becomes an error like all others, if panics
//! unwind. But the panic hook is called, and prints the panic.

#[cfg(feature = "columnar")]
mod columnar;
#[cfg(not(feature = "columnar"))]
#[path = "columnar_absent.rs"]
mod columnar;
mod columns;
mod csv;
mod dump;
mod error;
mod export;
mod format;
mod import;
mod newtypes;
mod progress;
mod source;
mod table;

pub use dump::{DumpReader, DumpReport, dump, restore_dump, write_dump};
pub use error::{ExportError, FilePlace, ImportError};
pub use export::Exporter;
pub use format::Format;
pub use import::Importer;
pub use progress::Progress;
pub use table::{export_table, import_table};

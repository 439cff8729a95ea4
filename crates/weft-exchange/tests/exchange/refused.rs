//! What imports and exports refuse, and the words of the errors.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};

use weft::Record;
use weft::description::TableDescription;
use weft_exchange::{ExportError, Exporter, Format, ImportError, Importer};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: u8,
    owner: String,
    balance: Option<i64>,
    tags: Vec<(u8, bool)>,
}

fn table<R: Record>() -> TableDescription {
    TableDescription::of::<R>().expect("the table is not volatile")
}

/// Returns the error of reading `csv` as accounts.
fn csv_error(csv: &str) -> String {
    let importer = Importer::from_csv_stream(&table::<Account>(), "accounts.csv", csv.as_bytes());
    let error = match importer {
        Err(error) => error,
        Ok(importer) => importer.filter_map(Result::err).next().expect("the file is wrong"),
    };
    error.to_string()
}

#[test]
fn wrong_csv_columns_are_refused() {
    assert_eq!(
        csv_error("id,owner,Balance,owner\r\n"),
        "accounts.csv does not fit table `accounts`: its column 3 is \"Balance\", which the table does not have; \
         column `owner` appears twice; column `balance` is missing, and has no default; \
         column `tags` is missing, and has no default"
    );
    assert_eq!(
        csv_error(""),
        "accounts.csv: the file is empty, and should begin with the names of its columns"
    );
}

#[test]
fn wrong_csv_values_are_refused() {
    let cases = [
        ("256,Ada,1,[]", "line 2, column `id`: expected u8, found \"256\""),
        ("-1,Ada,1,[]", "line 2, column `id`: expected u8, found \"-1\""),
        (",Ada,1,[]", "line 2, column `id`: expected u8, found \"\""),
        ("1,Ada,,[]\n2,Bob,\"\",[]", "line 3, column `balance`: expected i64, found \"\""),
        ("1,\"A\nB\",1,[]\n2,C,0x1,[]", "line 4, column `balance`: expected i64, found \"0x1\""),
        ("1,Ada,1", "line 2: 3 fields, but the header has 4"),
        ("1,Ada,1,[],", "line 2: 5 fields, but the header has 4"),
        ("1,A\"da\",1,[]", "line 2: a quote inside a field without quotes"),
        ("1,\"Ada", "line 2: the file ends within a quoted field of this record"),
        (
            "1,Ada,1,\"[[1,true],[2]]\"",
            "line 2, column `tags`: expected Vec<(u8, bool)> in JSON, found \"[[1,true],[2]]\" \
             (invalid length 1, expected 2 values of the type (u8, bool) at line 1 column 13)",
        ),
        (
            "1,Ada,1,\"[[1,\"\"yes\"\"]]\"",
            "line 2, column `tags`: expected Vec<(u8, bool)> in JSON, found \"[[1,\\\"yes\\\"]]\" \
             (invalid type: string \"yes\", expected a value of the type bool at line 1 column 9)",
        ),
        ("1,Ada,1,\"[[256,true]]\"", "line 2, column `tags`: expected u8, found \"[[256,true]]\""),
    ];
    for (lines, expected) in cases {
        let csv = format!("id,owner,balance,tags\n{lines}");
        assert_eq!(csv_error(&csv), format!("accounts.csv, {expected}"), "{csv}");
    }
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let csv = b"id,owner,balance,tags\n1,Ad\xFFa,,[]\n";
    let mut rows = Importer::from_csv_stream(&table::<Account>(), "file", &csv[..])
        .expect("the header is right");
    let error = rows.next().expect("there is a line").expect_err("it is wrong");
    assert_eq!(
        error.to_string(),
        "file, line 2, column `owner`: expected String, found bytes that are not UTF-8"
    );
    assert!(rows.next().is_none(), "after an error there are no more rows");
}

#[derive(Clone, Record)]
#[record(table = "numbers")]
struct Wide {
    #[record(key)]
    id: u32,
    count: Option<i64>,
}

#[derive(Clone, Record)]
#[record(table = "numbers")]
struct Narrow {
    #[record(key)]
    id: u32,
    count: u8,
}

#[derive(Clone, Record)]
#[record(table = "numbers")]
struct Other {
    #[record(key)]
    id: String,
    count: Vec<i64>,
}

fn wide(format: Format, counts: &[Option<i64>]) -> Cursor<Vec<u8>> {
    let mut exporter =
        Exporter::new(&table::<Wide>(), format, Vec::new()).expect("memory cannot fail");
    for (id, &count) in counts.iter().enumerate() {
        let mut row = Vec::new();
        Wide { id: id as u32, count }.encode_row(&mut row);
        exporter.push(&row).expect("the row is one of the table");
    }
    Cursor::new(exporter.finish().expect("memory cannot fail"))
}

#[test]
fn wrong_arrow_and_parquet_values_are_refused() {
    for format in [Format::ArrowIpc, Format::Parquet] {
        let read = |counts: &[Option<i64>]| -> Result<Vec<_>, ImportError> {
            Importer::new(&table::<Narrow>(), format, "numbers", wide(format, counts))?.collect()
        };
        assert_eq!(read(&[Some(0), Some(255)]).map(|rows| rows.len()).ok(), Some(2));
        let message = |counts| read(counts).expect_err("it does not fit").to_string();
        assert_eq!(
            message(&[Some(1), Some(256)]),
            "numbers, row 2, column `count`: expected u8, found the unsigned number 256"
        );
        assert_eq!(message(&[Some(-1)]), "numbers, row 1, column `count`: expected u8, found -1");
        assert_eq!(
            message(&[Some(1), None]),
            "numbers, row 2, column `count`: expected u8, found null"
        );
        let other = Importer::new(&table::<Other>(), format, "numbers", wide(format, &[]));
        assert_eq!(
            other.err().expect("the types are of different kinds").to_string(),
            "numbers does not fit table `numbers`: \
             column `id` is String, and cannot be read from UInt32; \
             column `count` is Vec<i64>, and cannot be read from Int64"
        );
    }
}

#[derive(Clone, Record)]
#[record(table = "numbers")]
struct Wider {
    #[record(key)]
    id: u32,
    #[record(default = -7)]
    added: i16,
    count: Option<i64>,
    #[record(default = "none".to_owned())]
    comment: String,
}

#[test]
fn missing_column_gets_its_default() {
    for format in Format::ALL {
        let file = wide(format, &[Some(5), None]);
        let rows = Importer::new(&table::<Wider>(), format, "numbers", file).expect("it fits");
        let counts = rows.map(|row| {
            let row = row.expect("it fits");
            let row = Wider::decode_row(&mut &row[..]).expect("what is imported is a row");
            assert_eq!((row.added, row.comment.as_str()), (-7, "none"));
            (row.id, row.count)
        });
        assert_eq!(counts.collect::<Vec<_>>(), [(0, Some(5)), (1, None)], "{format}");
    }
}

#[test]
fn other_files_are_refused() {
    let open = |name: &str| {
        let error = Importer::open(&table::<Wide>(), name.as_ref()).err();
        error.expect("there is no such file").to_string()
    };
    assert_eq!(
        open("numbers.xlsx"),
        "numbers.xlsx: the format is unknown; a file's name should end in .csv, .arrow, .feather \
         or .parquet"
    );
    assert!(open("no/such/directory/numbers.csv").starts_with("no/such/directory/numbers.csv: "));

    let csv = || Cursor::new(b"id,count\r\n1,2\r\n".to_vec());
    let read = |format| Importer::new(&table::<Wide>(), format, "numbers", csv()).err();
    assert_eq!(
        read(Format::ArrowIpc).expect("it is CSV").to_string(),
        "numbers: it does not end like an Arrow IPC file: it is of another format, or cut off"
    );
    assert!(matches!(read(Format::Parquet), Some(ImportError::Malformed { .. })));
}

/// A disk with room for this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if buffer.len() > self.0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= buffer.len();
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_disk_is_reported() {
    for format in Format::ALL {
        for room in [0, 100, 10_000] {
            let write = || {
                let mut exporter = Exporter::new(&table::<Wide>(), format, Full(room))?;
                let mut row = Vec::new();
                for id in 0..20_000 {
                    row.clear();
                    Wide { id, count: Some(i64::from(id) << 32) }.encode_row(&mut row);
                    exporter.push(&row)?;
                }
                exporter.finish()
            };
            match write() {
                Err(ExportError::Io { table, source }) => {
                    assert_eq!(table, "numbers");
                    assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{format}");
                }
                Err(error) => panic!("{format}: {error}"),
                Ok(_) => panic!("{format} fits into {room} bytes"),
            }
        }
    }
}

/// A disk that cannot read the byte at `bad`.
struct Failing {
    file: Cursor<Vec<u8>>,
    bad: u64,
}

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begin = self.file.position();
        let read = self.file.read(buffer)?;
        match (begin..begin + read as u64).contains(&self.bad) {
            true => Err(io::Error::other("bad sector")),
            false => Ok(read),
        }
    }
}

impl Seek for Failing {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

#[test]
fn read_errors_are_reported() {
    let counts: Vec<_> = (0..20_000).map(|count| Some(count << 32)).collect();
    for format in Format::ALL {
        let file = wide(format, &counts);
        let size_bytes = file.get_ref().len() as u64;
        for bad in [size_bytes / 2, size_bytes - 1] {
            let failing = Failing { file: file.clone(), bad };
            let read = Importer::new(&table::<Wide>(), format, "numbers", failing)
                .and_then(|rows| rows.collect::<Result<Vec<_>, _>>());
            let message = read.expect_err("some of it cannot be read").to_string();
            assert_eq!(message, "numbers: bad sector", "{format}");
        }
    }
}

#[test]
fn row_of_another_table_is_refused() {
    for format in Format::ALL {
        let mut exporter =
            Exporter::new(&table::<Wide>(), format, Vec::new()).expect("memory cannot fail");
        let error = exporter.push(&[1, 0, 0, 0, 2]).expect_err("2 is no tag of an option");
        let message = error.to_string();
        assert!(
            message
                .starts_with("row 1 of table `numbers` does not match the table's description: "),
            "{message}"
        );
    }
}

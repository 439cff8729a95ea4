//! Damaged files: whatever bytes a file has, an import ends in an error or in valid rows.

use std::io::Cursor;
use std::sync::{Mutex, OnceLock};

use weft::description::TableDescription;
use weft::{ColumnValue, Record};
use weft_exchange::{Exporter, Format, Importer};

#[derive(Clone, Copy, ColumnValue)]
enum Kind {
    Buy,
    Sell,
}

#[derive(Clone, Record)]
#[record(table = "orders")]
struct Order {
    #[record(key)]
    id: u64,
    kind: Kind,
    text: Option<String>,
    bytes: Vec<u8>,
    large: u128,
    parts: Vec<(u8, Option<f32>)>,
    point: [i32; 2],
}

fn table() -> TableDescription {
    TableDescription::of::<Order>().expect("the table is not volatile")
}

/// Returns a file of 20 rows.
fn file(format: Format) -> Vec<u8> {
    let mut exporter = Exporter::new(&table(), format, Vec::new()).expect("memory cannot fail");
    let mut row = Vec::new();
    for id in 0..20_u8 {
        let order = Order {
            id: id.into(),
            kind: if id % 2 == 0 { Kind::Buy } else { Kind::Sell },
            text: (id % 3 > 0).then(|| format!("order, {id}")),
            bytes: vec![id; usize::from(id % 4)],
            large: 1 << (6 * id),
            parts: vec![(id, Some(0.5)), (id, None)],
            point: [id.into(), -1],
        };
        row.clear();
        order.encode_row(&mut row);
        exporter.push(&row).expect("the row is one of the table");
    }
    exporter.finish().expect("memory cannot fail")
}

/// Imports a file, and checks that every row is valid. Returns whether the import reached the end.
fn import(format: Format, file: Vec<u8>) -> bool {
    let table = table();
    let Ok(importer) = Importer::new(&table, format, "file", Cursor::new(file)) else {
        return false;
    };
    for row in importer {
        match row {
            Ok(row) => drop(table.read_row(&row).expect("what is imported is a row")),
            Err(_) => return false,
        }
    }
    true
}

/// Runs a test without printing the panics of libraries. Some files make the libraries panic, and the importer
/// turns those panics into errors. Panics of the tests themselves are printed as usual.
fn without_panics_of_libraries<T>(test: impl FnOnce() -> T) -> T {
    static HOOK: OnceLock<()> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    HOOK.get_or_init(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let own = panic.location().is_some_and(|at| at.file().contains("weft"));
            if own {
                hook(panic);
            }
        }));
    });
    let _alone = ALONE.lock();
    test()
}

#[test]
fn truncated_files_cause_no_panic() {
    without_panics_of_libraries(|| {
        for format in Format::ALL {
            let whole = file(format);
            assert!(import(format, whole.clone()));
            for length in 0..whole.len() {
                let complete = import(format, whole[..length].to_vec());
                // In CSV, missing lines at the end go unnoticed.
                assert!(!complete || format == Format::Csv, "{format}, {length} bytes");
            }
        }
    });
}

#[test]
fn changed_bytes_cause_no_panic() {
    without_panics_of_libraries(|| {
        let mut random = fastrand::Rng::with_seed(1);
        for format in Format::ALL {
            let whole = file(format);
            for position in 0..whole.len() {
                let bits = [1 << random.u8(..8), 0xFF, whole[position], whole[position] ^ 0x7F];
                for bits in bits {
                    let mut changed = whole.clone();
                    changed[position] ^= bits;
                    import(format, changed);
                }
            }
        }
    });
}

#[test]
fn random_bytes_cause_no_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    without_panics_of_libraries(|| {
        for format in Format::ALL {
            let whole = file(format);
            for _ in 0..2000 {
                // Put noise between a correct beginning and a correct end, so that some of the file is read.
                let begin = random.usize(..=whole.len());
                let end = random.usize(begin..=whole.len());
                let noise = (0..random.usize(..100)).map(|_| random.u8(..));
                let mut bytes = whole[..begin].to_vec();
                bytes.extend(noise);
                bytes.extend_from_slice(&whole[end..]);
                import(format, bytes);
            }
        }
    });
}

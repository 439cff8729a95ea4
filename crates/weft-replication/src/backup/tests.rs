use object_store::memory::InMemory;
use weft::durability::SimulatedDisk;

use super::*;

/// Fault: if the object store returned an error for a part that had been read before, to verify the backup, the restored
/// database lacked the file, and had a directory in its place.
#[test]
fn file_that_cannot_be_read_is_not_taken_for_a_directory() {
    let backups = Backups::open(Arc::new(InMemory::new()), "accounts").unwrap();
    let name = "1-a";
    let mut files = Files::new();
    for (number, path) in (0..).zip(["MANIFEST", "checkpoint-1/0-0.rows"]) {
        let bytes = path.as_bytes().to_vec();
        let checksum = crc32c::crc32c(&bytes);
        let part = Part { number, bytes: bytes.len() as u64, checksum };
        files.insert(PathBuf::from(path), vec![part]);
        let object = backups.client.path(name, &format!("{number:06}"));
        backups.client.create(object, bytes).unwrap();
    }
    files.insert(PathBuf::from("log/unlogged-1"), Vec::new());
    let backup = Backup { name: name.to_owned(), stored: StoredPosition::default(), files };
    let copy = |to: &str| {
        let disk = Arc::new(SimulatedDisk::new(1));
        let copied = copy_files(&backups.disk(&backup), Path::new(DIRECTORY), &*disk, to.as_ref());
        copied.map(|()| disk)
    };
    let disk = copy("/whole").unwrap();
    assert!(disk.exists(Path::new("/whole/checkpoint-1/0-0.rows")).unwrap());
    assert!(disk.exists(Path::new("/whole/log/unlogged-1")).unwrap());
    for number in 0..2 {
        let path = backups.client.path(name, &format!("{number:06}"));
        let (store, part) = (Arc::clone(&backups.client.store), path.clone());
        let bytes = backups.client.get(path.clone()).unwrap();
        backups.client.wait(async move { store.delete(&part).await }).unwrap();
        let error = copy("/damaged").unwrap_err().to_string();
        assert!(error.contains(&format!("part {number:06} is missing")), "{error}");
        backups.client.create(path, bytes).unwrap();
    }
    copy("/again").unwrap();
}

/// Fault: backups in a directory were not synced. The log was truncated because of them, and a machine that lost power
/// could lose them.
#[test]
fn backups_in_a_directory_are_synced() {
    let directory = std::env::temp_dir();
    let path = directory.to_str().unwrap();
    for address in [path.to_owned(), Url::from_directory_path(&directory).unwrap().to_string()] {
        let backups = Backups::at(&address).unwrap();
        let store = format!("{:?}", backups.client.store);
        assert!(store.contains("fsync: true"), "{address}: {store}");
    }
}

/// Fault: a file was fetched as a whole when it was opened, so the machine needed memory for a whole table.
#[test]
fn reading_a_file_fetches_only_the_part_that_is_read() {
    let backups = Backups::open(Arc::new(InMemory::new()), "accounts").unwrap();
    let (name, path) = ("1-a", Path::new(DIRECTORY).join("rows"));
    let contents: Vec<u8> = (0..9000_u32).map(|at| (at % 251) as u8).collect();
    let parts: Vec<&[u8]> = contents.chunks(3000).collect();
    let object = |number: usize| backups.client.path(name, &format!("{number:06}"));
    let create = |number: usize| backups.client.create(object(number), parts[number].to_vec());
    let listed = (0..).zip(&parts).map(|(number, bytes)| {
        let checksum = crc32c::crc32c(bytes);
        Part { number, bytes: bytes.len() as u64, checksum }
    });
    let files = Files::from([(PathBuf::from("rows"), listed.collect())]);
    let backup = Backup { name: name.to_owned(), stored: StoredPosition::default(), files };
    // The store has only the second part.
    create(1).unwrap();
    let file = backups.disk(&backup).open_read_only(&path).unwrap();
    let read = |offset: usize, length: usize| {
        let mut buffer = vec![0; length];
        let read = file.read_at(&mut buffer, offset as u64)?;
        buffer.truncate(read);
        Ok::<_, io::Error>(buffer)
    };
    assert_eq!(file.length().unwrap(), 9000);
    assert_eq!(read(4000, 1024).unwrap(), contents[4000..5024]);
    // Now the store has none, and the part that was fetched is still there.
    let (store, part) = (Arc::clone(&backups.client.store), object(1));
    backups.client.wait(async move { store.delete(&part).await }).unwrap();
    assert_eq!(read(3000, 3000).unwrap(), contents[3000..6000]);
    let error = read(2999, 2).unwrap_err().to_string();
    assert!(error.contains("part 000000 is missing"), "{error}");
    let error = backups.verify(&backup).unwrap_err().to_string();
    assert!(error.contains("part 000000 is missing"), "{error}");
    // Reads that cross the ends of parts, and the end of the file.
    (0..3).for_each(|number| create(number).unwrap());
    backups.verify(&backup).unwrap();
    assert_eq!(read(0, 10_000).unwrap(), contents);
    assert_eq!(read(2999, 3002).unwrap(), contents[2999..6001]);
    assert_eq!(read(8999, 5).unwrap(), contents[8999..]);
    assert_eq!(read(9000, 5).unwrap(), [0; 0]);
    assert_eq!(read(20_000, 5).unwrap(), [0; 0]);
}

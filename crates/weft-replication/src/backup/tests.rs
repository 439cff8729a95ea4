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

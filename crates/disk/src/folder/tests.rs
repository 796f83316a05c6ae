//! The folder as storage, on the file system that holds temporary files.

use std::error::Error as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

use super::*;
use crate::PageBuffer;
use crate::lock::holder;

/// Direct I/O as the file system has it, and the page cache alone.
fn both_ways(check: impl Fn(&FolderStorage, &dyn Fn(&str) -> Arc<dyn StoredFile>)) {
    for is_direct in [true, false] {
        let temp = tempfile::tempdir().unwrap();
        let storage = FolderStorage::open(&temp.path().join("queue")).unwrap();
        check(&storage, &|name| {
            let path = storage.root.join(name);
            let file = File::options().read(true).write(true).open(&path).unwrap();
            if is_direct {
                return storage.stored(file, &path);
            }
            Arc::new(FolderFile {
                file,
                direct: None,
                is_direct: AtomicBool::new(true),
                writable: true,
            })
        });
    }
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it was done"),
        Err(failure) => failure.kind(),
    }
}

fn pages(count: usize, seed: u64) -> PageBuffer {
    let mut buffer = PageBuffer::new(count * PAGE);
    fastrand::Rng::with_seed(seed).fill(&mut buffer);
    buffer
}

#[test]
fn any_access_reads_what_was_written() {
    both_ways(|storage, open| {
        storage.create("x", 0).unwrap();
        let file = open("x");
        let mut random = fastrand::Rng::with_seed(7);
        let mut model: Vec<u8> = Vec::new();
        let room = 16 * PAGE;
        for round in 0..300 {
            let mut buffer = pages(8, round);
            let is_aligned = random.bool();
            let unit = if is_aligned { PAGE } else { 1 };
            let from = random.usize(..room / 2 / unit) * unit;
            let skip = if is_aligned { 0 } else { random.usize(..100) };
            let length = random.usize(..=(8 * PAGE - skip) / unit) * unit;
            let bytes = &mut buffer[skip..skip + length];
            if random.bool() {
                file.write_at(bytes, from as u64).unwrap();
                if length > 0 {
                    model.resize(model.len().max(from + length), 0);
                    model[from..from + length].copy_from_slice(bytes);
                }
            } else if random.u8(..) < 30 {
                let length = random.usize(..=model.len());
                file.cut(length as u64).unwrap();
                model.truncate(length);
            } else {
                let expected = model.get(from..).unwrap_or(&[]);
                let expected = &expected[..length.min(expected.len())];
                assert_eq!(file.read_at(bytes, from as u64).unwrap(), expected.len());
                assert!(&bytes[..expected.len()] == expected, "round {round}");
            }
            assert_eq!(file.len().unwrap(), model.len() as u64);
        }
        file.sync().unwrap();
        assert!(fs::read(storage.root.join("x")).unwrap() == model);
    });
}

#[test]
fn aligned_reads_end_with_the_file() {
    both_ways(|storage, open| {
        storage.create("x", 0).unwrap();
        let file = open("x");
        let bytes = pages(3, 1);
        file.write_at(&bytes[..10_000], 0).unwrap();
        let mut buffer = PageBuffer::new(4 * PAGE);
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000);
        assert!(buffer[..10_000] == bytes[..10_000]);
        assert_eq!(file.read_at(&mut buffer, 8192).unwrap(), 1808);
        assert_eq!(file.read_at(&mut buffer, 4 * PAGE as u64).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
    });
}

#[test]
fn reserved_room_reads_as_zeros_and_is_given_back() {
    both_ways(|storage, open| {
        storage.create("x", 10 * PAGE as u64).unwrap();
        let file = open("x");
        assert_eq!(file.len().unwrap(), 10 * PAGE as u64);
        file.write_at(&pages(1, 1), PAGE as u64).unwrap();
        let mut buffer = pages(10, 2);
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10 * PAGE);
        assert!(buffer[..PAGE].iter().all(|byte| *byte == 0));
        assert!(buffer[2 * PAGE..].iter().all(|byte| *byte == 0));
        assert!(!file.is_empty().unwrap());
        file.cut(2 * PAGE as u64).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 2 * PAGE);
        let listed = storage.list("").unwrap();
        let name = "x".to_owned();
        let length = 2 * PAGE as u64;
        assert_eq!(listed, [Listed { name, length }]);
    });
}

#[test]
fn a_refused_direct_access_goes_through_the_cache() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("x");
    let file = File::create_new(&path).unwrap();
    // Which descriptor it is does not matter: what it answers is made up below.
    let file = FolderFile {
        direct: Some(file.try_clone().unwrap()),
        file,
        is_direct: AtomicBool::new(true),
        writable: true,
    };
    let place = (0, PAGE, 0);
    let failed = file.access(place, |_| Err(Errno::IO.into()));
    assert_eq!(Errno::from_io_error(&failed.unwrap_err()), Some(Errno::IO));
    assert!(file.is_direct.load(Ordering::Relaxed));
    for refusal in [Errno::INVAL, Errno::OPNOTSUPP] {
        file.is_direct.store(true, Ordering::Relaxed);
        let mut results = vec![Ok(5), Err(refusal.into())];
        let done = file.access(place, |_| results.pop().unwrap());
        assert_eq!(done.unwrap(), 5);
        assert!(!file.is_direct.load(Ordering::Relaxed));
    }
}

#[test]
fn names_are_made_renamed_and_removed() {
    let temp = tempfile::tempdir().unwrap();
    let storage = FolderStorage::open(&temp.path().join("a/b")).unwrap();
    assert_eq!(storage.list("quarantine").unwrap(), []);
    storage.make_folder("quarantine").unwrap();
    storage.make_folder("quarantine").unwrap();
    let file = storage.create("x", 0).unwrap();
    file.write_at(b"mill", 0).unwrap();
    assert_eq!(kind(storage.create("x", 0)), ErrorKind::AlreadyExists);
    storage.create("quarantine/x", 0).unwrap();
    storage.rename("x", "quarantine/x").unwrap();
    // An open file goes on under its other name.
    file.write_at(b"pond", 4).unwrap();
    storage.sync_folder("").unwrap();
    storage.sync_folder("quarantine").unwrap();
    assert_eq!(storage.list("").unwrap(), []);
    let name = "x".to_owned();
    let length = 8;
    let listed = storage.list("quarantine").unwrap();
    assert_eq!(listed, [Listed { name, length }]);
    assert_eq!(kind(storage.open("x")), ErrorKind::NotFound);
    assert_eq!(kind(storage.rename("x", "y")), ErrorKind::NotFound);
    storage.remove("x").unwrap();
    storage.remove("quarantine/x").unwrap();
    assert_eq!(storage.list("quarantine").unwrap(), []);
    assert!(storage.free().unwrap() > 0);
}

#[test]
fn modes_are_for_the_owner_alone() {
    let temp = tempfile::tempdir().unwrap();
    let storage = FolderStorage::open(&temp.path().join("a/b")).unwrap();
    storage.make_folder("quarantine").unwrap();
    storage.create("x", 0).unwrap();
    for (path, expected) in [
        ("a", 0o700),
        ("a/b", 0o700),
        ("a/b/quarantine", 0o700),
        ("a/b/x", 0o600),
        ("a/b/lock", 0o600),
    ] {
        let mode = fs::metadata(temp.path().join(path)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, expected, "{path}");
    }
}

#[test]
fn names_stay_within_the_folder() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("outside"), "x").unwrap();
    let storage = FolderStorage::open(&temp.path().join("queue")).unwrap();
    storage.make_folder("quarantine").unwrap();
    for name in [
        "",
        ".",
        "..",
        "../outside",
        "quarantine/../../outside",
        "quarantine/../x",
        "/etc/passwd",
        "quarantine//x",
        "quarantine/",
        "a/b/c",
        "a\0b",
        "lock",
    ] {
        assert_eq!(kind(storage.open(name)), ErrorKind::InvalidInput, "{name}");
        assert_eq!(kind(storage.create(name, 0)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.remove(name)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.rename(name, "y")), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.rename("y", name)), ErrorKind::InvalidInput);
    }
    assert_eq!(kind(storage.list("..")), ErrorKind::InvalidInput);
    assert_eq!(kind(storage.make_folder("../x")), ErrorKind::InvalidInput);
}

#[test]
fn only_files_are_listed() {
    let temp = tempfile::tempdir().unwrap();
    let storage = FolderStorage::open(temp.path()).unwrap();
    storage.make_folder("quarantine").unwrap();
    symlink("/etc/passwd", temp.path().join("link")).unwrap();
    storage.create("x", 0).unwrap();
    let listed = storage.list("").unwrap();
    let names: Vec<_> = listed.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["x"]);
}

#[test]
fn one_process_has_the_folder() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("queue");
    assert_eq!(holder(&folder), None);
    let storage = FolderStorage::open(&folder).unwrap();
    let pid = std::process::id();
    assert_eq!(holder(&folder), Some(pid));
    let refused = FolderStorage::open(&folder).unwrap_err().to_string();
    let lock = folder.join("lock");
    let lock = lock.display();
    assert_eq!(refused, format!("{lock} is locked by process {pid}"));
    drop(storage);
    assert_eq!(holder(&folder), None);
    // What the file says is no obstacle once nobody has it.
    FolderStorage::open(&folder).unwrap();
}

#[test]
fn reading_alone_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let owner = FolderStorage::open(temp.path()).unwrap();
    let bytes = pages(1, 1);
    owner.create("x", 0).unwrap().write_at(&bytes, 0).unwrap();
    let reader = FolderStorage::read_only(temp.path()).unwrap();
    let file = reader.open("x").unwrap();
    let mut buffer = PageBuffer::new(PAGE);
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), PAGE);
    assert!(buffer[..] == bytes[..]);
    let denied = ErrorKind::PermissionDenied;
    assert_eq!(kind(file.write_at(&bytes, 0)), denied);
    assert_eq!(kind(file.cut(0)), denied);
    assert_eq!(kind(reader.create("y", 0)), denied);
    assert_eq!(kind(reader.rename("x", "y")), denied);
    assert_eq!(kind(reader.remove("x")), denied);
    assert_eq!(kind(reader.make_folder("y")), denied);
    assert_eq!(kind(reader.sync_folder("")), denied);
    assert_eq!(reader.list("").unwrap(), owner.list("").unwrap());
    assert_eq!(fs::read(temp.path().join("x")).unwrap().len(), PAGE);
}

#[test]
fn what_is_no_folder_is_refused_with_its_path() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "x").unwrap();
    for opened in [FolderStorage::open(&file), FolderStorage::read_only(&file)] {
        let expected = format!("{} is not a directory", file.display());
        assert_eq!(opened.unwrap_err().to_string(), expected);
    }
    let below = FolderStorage::open(&file.join("queue"));
    assert!(below.unwrap_err().to_string().contains("file/queue"));
    let missing = temp.path().join("missing");
    let opened = FolderStorage::read_only(&missing);
    assert!(opened.unwrap_err().to_string().contains("missing"));
    assert!(!missing.exists());
}

#[test]
fn a_folder_without_permission_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let closed = temp.path().join("closed");
    fs::DirBuilder::new().mode(0o500).create(&closed).unwrap();
    let within = [
        (closed.clone(), "cannot open", closed.join("lock")),
        (closed.join("queue"), "cannot create", closed.join("queue")),
    ];
    for (folder, failed, place) in within {
        let opened = testkit::rights::without_powers(|| FolderStorage::open(&folder));
        let error = opened.unwrap_err();
        let said = format!("{error}: {}", error.source().unwrap());
        let expected = format!("{failed} {}: ", place.display());
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.contains("ermission denied"), "{said}");
    }
}

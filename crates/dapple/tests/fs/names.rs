//! Names, directories and whole files, through a ring and through the pool: as `std::fs` has it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::common::watched;
use crate::fs_common::{Dir, both, forget_cached, on_both, pattern, runtime_with};
use dapple::fs::{self, DirBuilder, Failed, File, Files};
use dapple::io::how_far;
use futures_util::StreamExt;

#[test]
fn whole_files_of_all_sizes() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            for size in [0, 1, 4095, 4096, 4097, 100_000, 5 << 20] {
                let bytes = pattern(size);
                fs::write(&path, &bytes).await.unwrap();
                assert!(fs::read(&path).await.unwrap() == bytes, "{size} bytes from memory");
                forget_cached(&path);
                assert!(fs::read(&path).await.unwrap() == bytes, "{size} bytes from the disk");
                let copied = dir.join("copied");
                assert_eq!(fs::copy(&path, &copied).await.unwrap(), size as u64);
                assert!(fs::read(&copied).await.unwrap() == bytes, "{size} bytes copied");
            }
            fs::write(&path, "shorter").await.unwrap();
            assert_eq!(fs::read_to_string(&path).await.unwrap(), "shorter");
            fs::write(&path, [0xff, 0xfe]).await.unwrap();
            assert_eq!(fs::read_to_string(&path).await.unwrap_err().kind(), ErrorKind::InvalidData);
            // A file that reports no length.
            assert!(fs::read_to_string("/proc/self/status").await.unwrap().contains("VmPeak"));
        });
    });
}

#[test]
fn permissions_are_copied_and_set() {
    on_both(|rt, dir| {
        let (path, other) = (dir.join("file"), dir.join("other"));
        rt.block_on(async {
            fs::write(&path, "x").await.unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o641)).await.unwrap();
            assert_eq!(fs::metadata(&path).await.unwrap().mode() & 0o777, 0o641);
            fs::copy(&path, &other).await.unwrap();
            assert_eq!(fs::metadata(&other).await.unwrap().mode() & 0o777, 0o641);
            let file = File::open(&other).await.unwrap();
            file.set_permissions(PermissionsExt::from_mode(0o600)).await.unwrap();
            assert_eq!(file.metadata().await.unwrap().mode() & 0o777, 0o600);
            let made = dir.join("made");
            File::options().write(true).create(true).mode(0o611).open(&made).await.unwrap();
            let mask = std::fs::metadata(&made).unwrap().mode() & 0o777;
            assert_eq!(mask | 0o611, 0o611);
        });
    });
}

#[test]
fn links_and_names() {
    on_both(|rt, dir| {
        let (path, linked, pointed) = (dir.join("file"), dir.join("linked"), dir.join("pointed"));
        rt.block_on(async {
            fs::write(&path, "words").await.unwrap();
            fs::hard_link(&path, &linked).await.unwrap();
            assert_eq!(fs::metadata(&path).await.unwrap().nlink(), 2);
            fs::symlink("file", &pointed).await.unwrap();
            assert_eq!(fs::read_link(&pointed).await.unwrap(), Path::new("file"));
            assert!(fs::symlink_metadata(&pointed).await.unwrap().is_symlink());
            assert!(fs::metadata(&pointed).await.unwrap().is_file());
            assert_eq!(fs::canonicalize(&pointed).await.unwrap(), path.canonicalize().unwrap());
            fs::rename(&path, dir.join("renamed")).await.unwrap();
            assert!(!fs::try_exists(&pointed).await.unwrap(), "it points to nothing");
            fs::remove_file(&pointed).await.unwrap();
            fs::remove_file(&linked).await.unwrap();
            assert_eq!(fs::read_to_string(dir.join("renamed")).await.unwrap(), "words");

            let error = fs::rename(&path, &linked).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let failed = Failed::of(&error).unwrap();
            assert_eq!((failed.path(), failed.other_path()), (Some(&*path), Some(&*linked)));
            assert!(error.to_string().starts_with("cannot rename "), "{error}");
            let error = fs::copy(&path, &linked).await.unwrap_err();
            assert_eq!((error.kind(), how_far(&error)), (ErrorKind::NotFound, None));
            let error = fs::copy(dir, &linked).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn directories_are_made_and_removed() {
    on_both(|rt, dir| {
        let path = dir.join("a");
        rt.block_on(async {
            fs::create_dir(&path).await.unwrap();
            assert_eq!(fs::create_dir(&path).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
            fs::create_dir_all(path.join("b/c")).await.unwrap();
            fs::create_dir_all(path.join("b/c")).await.unwrap();
            DirBuilder::new().mode(0o700).create(path.join("d")).await.unwrap();
            assert_eq!(fs::metadata(path.join("d")).await.unwrap().mode() & 0o777, 0o700);
            assert_eq!(fs::remove_dir(&path).await.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
            assert!(fs::remove_file(path.join("d")).await.is_err(), "it is not a file");
            fs::remove_dir(path.join("d")).await.unwrap();
            fs::remove_dir_all(&path).await.unwrap();
            assert!(!fs::try_exists(&path).await.unwrap());
            assert_eq!(fs::read_dir(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        });
    });
}

#[test]
fn entries_of_a_directory() {
    on_both(|rt, dir| {
        for i in 0..10 {
            std::fs::write(dir.join(format!("file{i}")), "").unwrap();
        }
        std::fs::create_dir(dir.join("dir")).unwrap();
        rt.block_on(async {
            let mut names = BTreeSet::new();
            let mut entries = fs::read_dir(dir).await.unwrap();
            while let Some(entry) = entries.next().await {
                let entry = entry.unwrap();
                let is_dir = entry.file_name() == "dir";
                assert_eq!(entry.file_type().await.unwrap().is_dir(), is_dir);
                assert_eq!(entry.metadata().await.unwrap().is_dir(), is_dir);
                assert_eq!(entry.path(), dir.join(entry.file_name()));
                assert!(names.insert(entry.file_name()));
            }
            assert_eq!(names.len(), 11);
            assert!(entries.next().await.is_none(), "and that is the end");
        });
    });
}

/// In memory, where there is such a directory: it is about us, and not about the disk.
#[test]
fn a_directory_with_a_hundred_thousand_entries() {
    const ENTRIES: usize = 100_000;
    watched(|| {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { Dir::inside(memory) } else { Dir::new() };
        let first = dir.path().join("0");
        std::fs::write(&first, "").unwrap();
        for i in 1..ENTRIES {
            let path = dir.path().join(i.to_string());
            if std::fs::hard_link(&first, &path).is_err() {
                std::fs::write(&path, "").unwrap();
            }
        }
        for files in both() {
            runtime_with(files, 2).block_on(async {
                let mut entries = fs::read_dir(dir.path()).await.unwrap();
                let mut seen = vec![false; ENTRIES];
                let (mut count, mut cancelled) = (0, 0);
                loop {
                    // In between it is cancelled now and then, which loses none.
                    let next = dapple::finish(async |s| {
                        if cancelled * 300 < count {
                            s.cancel();
                        }
                        entries.next_entry().await
                    });
                    match next.await {
                        Ok(Some(entry)) => {
                            let number: usize = entry.file_name().to_str().unwrap().parse().unwrap();
                            assert!(!std::mem::replace(&mut seen[number], true), "once");
                            count += 1;
                        }
                        Ok(None) => break,
                        Err(error) => {
                            assert!(dapple::is_cancelled(&error), "{error}");
                            cancelled += 1;
                        }
                    }
                }
                assert!(seen.iter().all(|seen| *seen), "all");
                assert!(cancelled > 100);
            });
        }
    });
}

#[test]
fn what_is_in_use_can_be_asked() {
    watched(|| {
        for files in both() {
            assert_eq!(runtime_with(files, 1).handle().files(), files);
        }
        let rt = crate::common::runtime(1);
        assert_eq!(rt.files(), both()[0], "a ring, if it is to be had");
    });
}

#[test]
fn outside_of_a_runtime_calls_return_an_error() {
    let error = crate::common::foreign_block_on(fs::read("/proc/self/status")).unwrap_err();
    assert!(error.to_string().contains("no runtime here"), "{error}");
    let error = crate::common::foreign_block_on(fs::remove_file("/no/such/file")).unwrap_err();
    assert!(error.to_string().contains("no runtime here"), "{error}");
}

#[test]
fn in_a_simulation_calls_return_an_error() {
    dapple::sim::Sim::new(1).run(async {
        let error = fs::read("/proc/self/status").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("no files in a simulation"), "{error}");
        let error = fs::remove_file("/no/such/file").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(fs::read_dir("/").await.is_err());
        assert!(fs::write("/no/such/file", "").await.is_err());
        assert_eq!(Files::default(), Files::Auto);
    });
}

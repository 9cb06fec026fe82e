//! Files by position and with a cursor: what is written is read, through a ring and through the pool.

use std::io::{ErrorKind, SeekFrom};

use crate::fs_common::{block, direct_file, forget_cached, on_both, pattern};
use dapple::fs::{self, AlignedBuf, Buffer, Failed, File, OpenOptions};
use dapple::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn what_is_written_at_a_position_is_read_there() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let file = File::create_new(&path).await.unwrap();
            let (written, back) = file.write_at(b"0123456789".to_vec(), 0).await;
            assert_eq!((written.unwrap(), &back[..]), (10, &b"0123456789"[..]));
            let (written, _) = file.write_at("abc", 4).await;
            assert_eq!(written.unwrap(), 3);
            let (read, bytes) = file.read_at(vec![0; 10], 0).await;
            assert_eq!((read.unwrap(), &bytes[..]), (10, &b"0123abc789"[..]));
            let (read, bytes) = file.read_at(Vec::with_capacity(4), 6).await;
            assert_eq!(read.unwrap(), bytes.len());
            assert_eq!(bytes, b"c789"[..bytes.len()]);
            let (read, _) = file.read_at(vec![0; 10], 10).await;
            assert_eq!(read.unwrap(), 0, "the end");
            let (read, bytes) = file.read_at([0_u8; 4], 8).await;
            assert_eq!((read.unwrap(), bytes), (2, *b"89\0\0"), "as much as there is");
        });
    });
}

#[test]
fn on_workers_too() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let tasks: Vec<_> = (0..64_u64)
                .map(|i| {
                    let path = path.with_extension(i.to_string());
                    dapple::spawn(async move {
                        let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
                        file.write_at(i.to_le_bytes(), 8 * i).await.0?;
                        let (read, bytes) = file.read_at([0; 8], 8 * i).await;
                        assert_eq!((read?, u64::from_le_bytes(bytes)), (8, i));
                        fs::remove_file(&path).await
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
        });
    });
}

#[test]
fn parts_of_buffers() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let file = File::create_new(&path).await.unwrap();
            let (written, back) = file.write_at(b"0123456789".to_vec().slice(2..=4), 0).await;
            assert_eq!((written.unwrap(), back.into_inner().len()), (3, 10));
            let (read, back) = file.read_at(vec![b'.'; 6].slice(1..), 0).await;
            assert_eq!((read.unwrap(), &back.into_inner()[..]), (3, &b".234.."[..]));
        });
    });
}

#[test]
fn several_buffers_one_after_the_other() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let file = File::create_new(&path).await.unwrap();
            let (written, back) = file.write_vectored_at(vec!["one", "", "two", "three"], 1).await;
            assert_eq!((written.unwrap(), back.len()), (11, 4));
            let buffers = vec![Vec::with_capacity(5), Vec::new(), vec![b'.'; 5], Vec::with_capacity(9)];
            let (read, back) = file.read_vectored_at(buffers, 0).await;
            assert_eq!(read.unwrap(), 12);
            assert_eq!(back, [b"\0onet".to_vec(), vec![], b"wothr".to_vec(), b"ee".to_vec()]);
            let (written, back) = file.write_vectored_at(vec![[b'x'; 1]; 3000], 0).await;
            assert_eq!((written.unwrap(), back.len()), (1024, 3000), "no more than the kernel takes");
            let (none, back) = file.read_vectored_at(Vec::<Vec<u8>>::new(), 0).await;
            assert_eq!((none.unwrap(), back.len()), (0, 0));
        });
    });
}

#[test]
fn with_a_cursor() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let bytes = pattern(5 << 20);
            let mut file = File::options().read(true).write(true).create(true).open(&path).await.unwrap();
            file.write_all(&bytes).await.unwrap();
            assert_eq!(file.seek(SeekFrom::Current(0)).await.unwrap(), bytes.len() as u64);
            assert_eq!(file.seek(SeekFrom::Start(1000)).await.unwrap(), 1000);
            let mut some = [0; 1000];
            file.read_exact(&mut some).await.unwrap();
            assert!(some[..] == bytes[1000..2000]);
            file.write_all(b"here").await.unwrap();
            file.seek(SeekFrom::Current(-4)).await.unwrap();
            file.read_exact(&mut some[..4]).await.unwrap();
            assert_eq!(&some[..4], b"here");
            assert_eq!(file.seek(SeekFrom::End(-3)).await.unwrap(), bytes.len() as u64 - 3);
            let mut rest = Vec::new();
            file.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, bytes[bytes.len() - 3..]);
            assert_eq!(file.read(&mut some).await.unwrap(), 0);
            drop(file);
            forget_cached(&path);
            let mut file = File::open(&path).await.unwrap();
            let mut all = Vec::new();
            file.read_to_end(&mut all).await.unwrap();
            assert!(all[..2000] == bytes[..2000] && all[2004..] == bytes[2004..]);
        });
    });
}

#[test]
fn a_write_with_the_cursor_is_seen_by_all_that_is_done_with_the_file() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let mut file = File::create_new(&path).await.unwrap();
            for round in 1..50_u64 {
                file.write_all(&[7; 1000]).await.unwrap();
                match round % 4 {
                    0 => assert_eq!(file.metadata().await.unwrap().len(), 1000 * round),
                    1 => file.sync_data().await.unwrap(),
                    2 => {
                        let (read, bytes) = file.read_at(vec![0; 1000], 1000 * (round - 1)).await;
                        assert_eq!((read.unwrap(), &bytes[..]), (1000, &[7; 1000][..]));
                    }
                    _ => file.set_len(1000 * round).await.unwrap(),
                }
            }
            file.write_all(b"last").await.unwrap();
            let file = file.into_std().await.unwrap();
            assert_eq!(file.metadata().unwrap().len(), 49004);
        });
    });
}

/// Many tasks use the file through a shared reference: all wait for the write, and each is woken when the write is done.
#[test]
fn many_wait_for_a_write_with_the_cursor() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            for round in 0..30 {
                let mut file = File::create(&path).await.unwrap();
                file.write_all(&[1; 300_000]).await.unwrap();
                let file = std::sync::Arc::new(file);
                let waits: Vec<_> = (0..8)
                    .map(|i| {
                        let file = file.clone();
                        dapple::spawn(async move {
                            match (i + round) % 2 {
                                0 => file.sync_data().await.unwrap(),
                                _ => assert_eq!(file.metadata().await.unwrap().len(), 300_000),
                            }
                        })
                    })
                    .collect();
                waits[round % 8].abort(); // possibly the waiter that would have been woken
                for (i, wait) in waits.into_iter().enumerate() {
                    let waited = wait.await;
                    assert!(waited.is_ok() || i == round % 8, "{waited:?}");
                }
            }
        });
    });
}

#[test]
fn a_seek_that_was_left_behind_does_not_count_for_the_next() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        std::fs::write(&path, "0123456789").unwrap();
        rt.block_on(async {
            let mut file = File::open(&path).await.unwrap();
            for round in 0..20 {
                let _ = futures_lite::future::poll_once(Box::pin(file.seek(SeekFrom::End(-2)))).await;
                let to = match round % 3 {
                    0 => SeekFrom::Start(4),
                    1 => SeekFrom::End(-6),
                    _ => SeekFrom::Current(-4), // from where the one before has moved it
                };
                if round % 3 == 2 {
                    file.seek(SeekFrom::End(-2)).await.unwrap();
                }
                assert_eq!(file.seek(to).await.unwrap(), 4);
                let mut bytes = [0; 2];
                file.read_exact(&mut bytes).await.unwrap();
                assert_eq!(&bytes, b"45");
            }
        });
    });
}

#[test]
fn duplicates_share_the_cursor() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        std::fs::write(&path, "abcdef").unwrap();
        rt.block_on(async {
            let mut one = File::open(&path).await.unwrap();
            let mut two = one.try_clone().await.unwrap();
            let mut byte = [0];
            for expected in b"abcdef" {
                std::mem::swap(&mut one, &mut two);
                one.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte[0], *expected);
            }
        });
    });
}

#[test]
fn past_the_kernels_memory() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let Some(file) = direct_file(&path, 64 << 12).await else { return };
            let bytes = pattern(64 << 12);
            let tasks = (0..64_u64).rev().map(|i| {
                let file = &file;
                async move { file.read_at(block(), i << 12).await }
            });
            let read = futures_util::future::join_all(tasks).await;
            for (i, (read, block)) in (0..64).rev().zip(read) {
                assert_eq!(read.unwrap(), 4096);
                assert!(block[..] == bytes[i << 12..(i + 1) << 12]);
            }
            let mut ones = AlignedBuf::new(8192);
            ones.fill(1);
            assert_eq!(file.write_at(ones, 4096).await.0.unwrap(), 8192);
            let all = std::fs::read(&path).unwrap();
            assert!(all[4096..12288].iter().all(|byte| *byte == 1) && all[12288..] == bytes[12288..]);
            let (read, back) = file.read_at(vec![0_u8; 100], 1).await;
            assert_eq!(read.unwrap_err().kind(), ErrorKind::InvalidInput, "what is not aligned is refused");
            assert_eq!(back.len(), 100);
        });
    });
}

#[test]
fn errors_name_operation_and_path() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        rt.block_on(async {
            let error = File::open(&path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let failed = Failed::of(&error).unwrap();
            assert_eq!((failed.operation(), failed.path()), ("open", Some(&*path)));
            assert_eq!(failed.cause().raw_os_error(), Some(libc_enoent()));

            std::fs::write(&path, "x").unwrap();
            let file = File::open(&path).await.unwrap();
            let (written, back) = file.write_at("y", 0).await;
            let error = written.unwrap_err();
            assert_eq!(back, "y");
            let failed = Failed::of(&error).unwrap();
            assert_eq!((failed.operation(), failed.path()), ("write", Some(&*path)));
            let error = File::create_new(&path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            let error = File::options().open(&path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let error = File::open("a\0b").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(Failed::of(&error).is_some());
            let error = file.read_at(vec![0], u64::MAX).await.0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        });
    });
}

fn libc_enoent() -> i32 {
    rustix::io::Errno::NOENT.raw_os_error()
}

#[test]
fn a_write_that_fails_is_told_by_the_next_thing() {
    on_both(|rt, dir| {
        let path = dir.join("file");
        std::fs::write(&path, "x").unwrap();
        rt.block_on(async {
            let mut file = File::open(&path).await.unwrap();
            file.write_all(b"y").await.unwrap(); // copied, and promised
            let error = file.flush().await.unwrap_err();
            assert_eq!(Failed::of(&error).unwrap().operation(), "write");
            file.flush().await.unwrap(); // once
            file.write_all(b"y").await.unwrap();
            assert!(file.write(b"z").await.is_err());
            file.write_all(b"y").await.unwrap();
            assert!(file.sync_all().await.is_err());
            file.write_all(b"y").await.unwrap();
            assert!(file.close().await.is_err());
            assert_eq!(std::fs::read(&path).unwrap(), b"x");
        });
    });
}

pin_markers! {
    // type: Send Sync;
    File: yes yes;
    OpenOptions: yes yes;
    fs::DirBuilder: yes yes;
    fs::DirEntry: yes yes;
    fs::ReadDir: yes no;
    fs::Files: yes yes;
    Failed: yes yes;
    AlignedBuf: yes yes;
    fs::Slice<Vec<u8>>: yes yes;
}

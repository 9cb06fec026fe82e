//! Files that wait for ever, in any number, take no room from others: reads of silent pipes, of which each is with the
//! kernel until a byte comes.

use std::io::{PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use crate::common::{may_open, watched};
use crate::fs_common::{Dir, direct_file, has_ring, runtime_with};
use dapple::fs::{self, AlignedBuf, File, Files};
use dapple::io::AsyncReadExt;
use dapple::{JoinHandle, Runtime};

/// More than a ring has room for at a time.
const MORE_THAN_ROOM: usize = 1100;

/// Tasks that read a byte each from pipes that are silent.
fn silent_readers(rt: &Runtime, number: usize) -> (Vec<PipeWriter>, Vec<JoinHandle<u8>>) {
    let pairs = (0..number).map(|_| {
        let (reader, writer) = std::io::pipe().unwrap();
        let reads = rt.spawn(async move {
            let mut file = File::from(OwnedFd::from(reader));
            let mut byte = [0];
            file.read_exact(&mut byte).await.unwrap();
            byte[0]
        });
        (writer, reads)
    });
    pairs.unzip()
}

#[test]
fn silent_pipes_hold_up_no_other_file() {
    if !has_ring() || !may_open(MORE_THAN_ROOM as u64 * 2 + 200) {
        return;
    }
    watched(|| {
        let (rt, dir) = (runtime_with(Files::Ring, 1), Dir::new());
        let (mut writers, mut readers) = silent_readers(&rt, MORE_THAN_ROOM);
        thread::sleep(Duration::from_millis(50)); // most of them are with the kernel
        let path = dir.path().join("file");
        // Each of them goes through the ring: making names, writing, syncing, and reading past the kernel's memory.
        rt.block_on(async {
            fs::create_dir(dir.path().join("dir")).await.unwrap();
            let file = File::create_new(&path).await.unwrap();
            let (written, _) = file.write_at(vec![7; 1 << 20], 0).await;
            assert!(written.unwrap() > 0);
            file.sync_all().await.unwrap();
            if let Some(file) = direct_file(&dir.path().join("direct"), 1 << 16).await {
                let (read, _) = file.read_at(AlignedBuf::new(4096), 4096).await;
                assert_eq!(read.unwrap(), 4096);
            }
        });
        // Nor do they hold up each other: the last is with the kernel, too.
        writers.last_mut().unwrap().write_all(b"x").unwrap();
        assert_eq!(rt.block_on(readers.pop().unwrap()).unwrap(), b'x');
        // All reads that wait for ever can be cancelled, though there are more of them than the ring has room for.
        for reader in &readers {
            reader.cancel();
        }
        for reader in readers {
            let _ = rt.block_on(reader);
        }
    });
}

//! Connections by the hundred thousand (fewer if not optimised), opened and closed, leave nothing behind.
#![expect(unsafe_code, reason = "a global allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use common::{runtime, watched};
use dapple::net::{TcpListener, TcpStream};
use futures_lite::{AsyncReadExt, AsyncWriteExt};

/// The system's allocator, which counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: handed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: handed on from the caller.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that caches may grow by.
const SLACK: usize = 256 * 1024;

const COUNT: usize = 100_000;

/// Four clients at a time, each with a byte there and back.
async fn connections(listener: &TcpListener, count: usize) {
    let addr = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            dapple::spawn(async move {
                for _ in 0..count / 4 {
                    let mut stream = TcpStream::connect(addr).await.unwrap();
                    stream.write_all(b"?").await.unwrap();
                    assert_eq!(stream.read(&mut [0; 2]).await.unwrap(), 1);
                    // Otherwise its port would be taken for a minute.
                    stream.set_linger(Some(Duration::ZERO)).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..count / 4 * 4 {
        let (mut stream, _) = listener.accept().await.unwrap();
        dapple::spawn(async move {
            if stream.read(&mut [0]).await.unwrap() == 1 {
                stream.write_all(b"!").await.unwrap();
            }
        })
        .detach();
    }
    for client in clients {
        client.await.unwrap();
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn connections_opened_and_closed_leave_no_file_descriptor_and_no_byte() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            connections(&listener, 2_000).await;
            let (files, bytes) = (open_files(), IN_USE.load(Relaxed));
            connections(&listener, COUNT).await;
            // The last tasks of the server's may not be gone yet.
            common::eventually("all file descriptors are closed", || open_files() <= files);
            let growth = IN_USE.load(Relaxed).saturating_sub(bytes);
            assert!(growth < SLACK, "{growth} bytes were left behind");
        });
    });
}

//! Colors without a holder cost nothing: memory does not grow with millions of keys.
#![expect(unsafe_code, reason = "a global allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{runtime, watched};
use dapple::Color;

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

/// Bytes that caches may grow by: a chunk of cells for each size in use, and little more.
const SLACK: usize = 512 * 1024;

const BATCH: usize = 1000;

/// Runs `rounds` batches, and returns the growth of memory since the tenth.
fn growth(rounds: usize, mut batch: impl FnMut(usize)) -> usize {
    let mut settled = 0;
    for round in 0..rounds {
        if round == 10 {
            settled = IN_USE.load(Relaxed);
        }
        batch(round);
    }
    IN_USE.load(Relaxed).saturating_sub(settled)
}

/// An output without a receiver, which gives its task a lane when it is dropped.
struct AsksForItsColor;

impl Drop for AsksForItsColor {
    fn drop(&mut self) {
        drop(Color::current());
    }
}

/// One test, since the allocator counts for all threads.
#[test]
fn memory_stays_where_it_was() {
    watched(|| {
        let rt = runtime(2);
        let keys_by_call = growth(1000, |round| {
            rt.block_on(async {
                let call = |i| Color::keyed(&(round * BATCH + i)).call(|| ());
                let calls: Vec<_> = (0..BATCH).map(call).collect();
                for call in calls {
                    call.await.unwrap();
                }
            });
        });
        assert!(keys_by_call < SLACK, "a million keys used once left {keys_by_call} bytes");

        let handle = rt.handle();
        let keys_from_outside = growth(300, |round| {
            (0..BATCH).for_each(|i| drop(handle.keyed_color(&(round * BATCH + i))));
        });
        assert!(keys_from_outside < SLACK, "keys asked for left {keys_from_outside} bytes");

        let tasks = growth(300, |_| {
            rt.block_on(async {
                let tasks: Vec<_> = (0..BATCH).map(|i| dapple::spawn(async move { i })).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
        assert!(tasks < SLACK, "tasks left {tasks} bytes: cells are not used again");

        let promoted = growth(300, |_| {
            rt.block_on(async {
                let promote = |_| dapple::spawn(async { drop(Color::current()) });
                let tasks: Vec<_> = (0..BATCH / 10).map(promote).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
        assert!(promoted < SLACK, "promoted tasks left {promoted} bytes");

        let before = IN_USE.load(Relaxed);
        let runtimes = 200;
        for _ in 0..runtimes {
            let rt = runtime(1);
            rt.block_on(async {
                Color::keyed("k").call(|| ()).await.unwrap();
                dapple::spawn(async { AsksForItsColor }).detach();
                dapple::spawn(std::future::pending::<()>()).detach();
            });
        }
        let left = IN_USE.load(Relaxed).saturating_sub(before);
        assert!(left < runtimes * 1024, "{runtimes} runtimes left {left} bytes");
    });
}

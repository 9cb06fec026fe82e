//! Scopes leave nothing behind: memory stays where it was, however they end.
#![expect(unsafe_code, reason = "a global allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Poll, Waker};

use common::{runtime, watched};
use dapple::sync::Semaphore;
use dapple::task::yield_now;
use dapple::{Runtime, finish, or_cancelled, race};
use futures_lite::future::poll_once;
use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

/// The system's allocator, which counts the bytes in use, and how often it was asked for some.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        CALLS.fetch_add(1, Relaxed);
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

/// Bytes that caches may grow by. A leak of a few bytes in each round would be more.
const SLACK: usize = 8 * 1024;
const ROUNDS: usize = 3000;

/// Growth of memory in [`ROUNDS`] rounds of `round`, in one task, after a warm-up.
fn growth(rt: &Runtime, round: impl AsyncFn()) -> usize {
    rt.block_on(async {
        for _ in 0..100 {
            round().await;
        }
        let settled = IN_USE.load(Relaxed);
        for _ in 0..ROUNDS {
            round().await;
        }
        IN_USE.load(Relaxed).saturating_sub(settled)
    })
}

async fn waits() {
    let _ = or_cancelled(pending::<()>()).await;
}

async fn keeps_its_waker(kept: &Mutex<Vec<Waker>>) {
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        kept.lock().unwrap().push(cx.waker().clone());
        cx.waker().wake_by_ref();
        if polls > 2 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Everything at once; waits until it is cancelled.
async fn busy(kept: &Mutex<Vec<Waker>>, permits: &Semaphore) {
    finish(async |s| {
        let child = s.start(async {
            yield_now().await;
            Box::new(1)
        });
        let sibling = s.start(child);
        drop(s.start(keeps_its_waker(kept)));
        drop(s.start(join_all((0..40).map(|_| permits.acquire()))));
        drop(s.start(race((waits(), waits()))));
        drop(s.start(finish(async |inner| {
            let waits_inside = inner.start(waits());
            drop(inner.start(waits_inside));
            waits().await;
        })));
        let last = s.start(waits());
        let mut others: FuturesUnordered<_> = [last].into_iter().collect();
        drop(sibling.await);
        others.next().await;
    })
    .await;
}

/// One test, since the allocator counts for all threads.
#[test]
fn memory_stays_where_it_was() {
    watched(|| {
        let rt = runtime(1);
        let permits = Semaphore::new(0);
        let kept = Mutex::new(Vec::new());

        let ready = growth(&rt, async || {
            finish(async |s| {
                for i in 0..10 {
                    assert_eq!(s.start(async move { i }).await, i);
                }
            })
            .await;
        });
        assert!(ready < SLACK, "children that were ready left {ready} bytes");

        rt.block_on(finish(async |s| {
            drop(s.start(async { [0_u64; 8] })); // makes room
            let calls = CALLS.load(Relaxed);
            for i in 0..1000_u64 {
                drop(s.start(async move { i }));
            }
            assert_eq!(CALLS.load(Relaxed) - calls, 0, "children that were ready took memory");
        }));

        let cancelled = growth(&rt, async || {
            finish(async |s| {
                drop(s.start(busy(&kept, &permits)));
                (0..4).for_each(|_| drop(s.start(waits())));
                for _ in 0..4 {
                    yield_now().await;
                }
                s.cancel();
            })
            .await;
            kept.lock().unwrap().drain(..).for_each(Waker::wake); // late
        });
        assert!(cancelled < SLACK, "scopes that were cancelled left {cancelled} bytes");

        for polls in 0..6 {
            let dropped = growth(&rt, async || {
                {
                    let mut scope = pin!(busy(&kept, &permits));
                    for _ in 0..polls {
                        assert!(poll_once(&mut scope).await.is_none());
                    }
                }
                kept.lock().unwrap().drain(..).for_each(Waker::wake);
            });
            assert!(dropped < SLACK, "scopes dropped after {polls} polls left {dropped} bytes");
        }

        let panicked = growth(&rt, async || {
            let scope = finish(async |s| {
                let panics: Pin<Box<dyn Future<Output = u8> + Send>> = Box::pin(async {
                    yield_now().await;
                    resume_unwind(Box::new(7)) // without a word
                });
                let panics = s.start(panics);
                drop(s.start(busy(&kept, &permits)));
                let sibling = s.start(panics);
                sibling.await
            });
            assert!(AssertUnwindSafe(scope).catch_unwind().await.is_err());
            kept.lock().unwrap().drain(..).for_each(Waker::wake);
        });
        assert!(panicked < SLACK, "scopes that panicked left {panicked} bytes");

        let spawned = growth(&rt, async || {
            finish(async |s| {
                for _ in 0..4 {
                    drop(s.spawn(yield_now()));
                    drop(s.spawn(waits()));
                }
                s.cancel();
            })
            .await;
        });
        assert!(spawned < 64 * SLACK, "tasks spawned in scopes left {spawned} bytes");

        let long = rt.block_on(finish(async |s| {
            let mut settled = 0;
            for round in 0..ROUNDS {
                if round == 100 {
                    settled = IN_USE.load(Relaxed);
                }
                drop(s.start(keeps_its_waker(&kept)));
                drop(s.spawn(async {}).await);
                s.start(yield_now()).await;
                drop(kept.lock().unwrap().drain(..));
            }
            IN_USE.load(Relaxed).saturating_sub(settled)
        }));
        assert!(long < SLACK, "a scope that goes on and on has grown by {long} bytes");
    });
}

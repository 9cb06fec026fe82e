//! When the system has no thread to give: an error, a refusal, and nothing left running.
#![expect(unsafe_code, reason = "sets a limit of the process")]

use crate::common::{eventually, foreign_block_on, in_a_process_of_its_own, watched};
use dapple::Runtime;

/// Large enough not to be cached by the C library, small enough for a few to be had.
const STACK: usize = 256 << 20;

/// Limits the address space of the process to its present size and `more` bytes.
fn limit_addresses(more: usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').next().unwrap().parse().unwrap();
    let bytes = (pages * 4096 + more) as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the pointer is to a limit that lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// How many threads of this process have names that start so.
fn threads_named(prefix: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.map(|entry| std::fs::read_to_string(entry.unwrap().path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|name| name.starts_with(prefix))).count()
}

/// More than there are addresses for.
#[test]
fn build_fails_if_no_worker_can_be_had() {
    watched(|| {
        let builder = Runtime::builder().workers(2).thread_name("never").thread_stack_size(1 << 47);
        let error = builder.build().expect_err("no thread can have such a stack");
        assert!(error.to_string().contains("start"), "{error}");
        eventually("nothing is left running", || threads_named("never") == 0);
    });
}

#[test]
fn build_fails_if_some_workers_cannot_be_had_and_the_others_leave() {
    in_a_process_of_its_own("build_fails_if_some_workers_cannot_be_had_and_the_others_leave", || {
        limit_addresses(4 * STACK + STACK / 2);
        let builder = |stack| Runtime::builder().thread_name("some").thread_stack_size(stack);
        for _ in 0..3 {
            let error = builder(STACK).workers(20).build().expect_err("there is room for a few only");
            assert!(error.to_string().contains("start"), "{error}");
            eventually("those that were started leave", || threads_named("some") == 0);
        }
        let rt = builder(1 << 20).workers(1).build().expect("room for a small one");
        assert_eq!(rt.block_on(async { dapple::spawn(async { 5 }).await.unwrap() }), 5);
    });
}

#[test]
fn blocking_calls_are_refused_if_no_thread_can_start() {
    in_a_process_of_its_own("blocking_calls_are_refused_if_no_thread_can_start", || {
        let rt = Runtime::builder().workers(1).thread_stack_size(STACK).build().unwrap();
        limit_addresses(STACK / 2);
        let drops = crate::common::Drops::default();
        for _ in 0..3 {
            let guard = drops.guard();
            let error = foreign_block_on(rt.handle().blocking(move || drop(guard))).unwrap_err();
            assert!(error.is_refused() && error.to_string().contains("refused"), "{error}");
        }
        assert_eq!(drops.count(), 3);
        let inside = rt.spawn(async { dapple::blocking(|| ()).await.unwrap_err().is_refused() });
        assert!(rt.block_on(inside).unwrap());
        assert_eq!((rt.metrics().blocking_threads, rt.metrics().alive()), (0, 0));
        assert_eq!(rt.block_on(rt.spawn(async { 5 })).unwrap(), 5, "tasks go on");
    });
}

#[test]
fn a_stalled_worker_comes_back_if_there_is_no_thread_for_a_spare() {
    in_a_process_of_its_own("a_stalled_worker_comes_back_if_there_is_no_thread_for_a_spare", || {
        let rt = Runtime::builder().workers(1).thread_stack_size(STACK).build().unwrap();
        limit_addresses(STACK / 2);
        let (go_on, stuck) = std::sync::mpsc::channel();
        let stuck = rt.spawn(async move { stuck.recv().unwrap() });
        let other = rt.spawn(async { 5 });
        eventually("nobody can stand in", || rt.metrics().stalls_unrelieved == 1);
        assert_eq!((rt.metrics().spares_running, rt.metrics().spares_sent), (0, 0));
        go_on.send(()).unwrap();
        assert_eq!(rt.block_on(other).unwrap(), 5);
        rt.block_on(stuck).unwrap();
    });
}

#[test]
fn blocking_calls_wait_for_the_threads_that_there_are() {
    in_a_process_of_its_own("blocking_calls_wait_for_the_threads_that_there_are", || {
        let rt = Runtime::builder().workers(1).thread_stack_size(STACK).build().unwrap();
        limit_addresses(2 * STACK + STACK / 2);
        let calls: Vec<_> = (0..50).map(|i| rt.handle().blocking(move || i)).collect();
        let sum: u32 = calls.into_iter().map(|call| foreign_block_on(call).unwrap()).sum();
        assert_eq!(sum, 49 * 50 / 2);
        assert!(rt.metrics().blocking_threads <= 2);
    });
}

//! Where the kernel, or the seccomp filter of a container, refuses `epoll_pwait2`: `epoll_pwait` takes its place.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{full_name, runtime, watched};
use crate::refused_common::refuse;
use dapple::Runtime;
use dapple::channel::oneshot;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::{TcpListener, TcpStream, UnixStream};
use dapple::time::sleep;

const ROLE: &str = "DAPPLE_TEST_EPOLL_REFUSED";

/// System calls that came after Linux 3.2, which is the oldest that Rust's standard library runs on, and that Dapple,
/// the standard library or the C library try.
const AFTER_3_2: &[libc::c_long] = &[
    libc::SYS_epoll_pwait2,
    libc::SYS_openat2,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_membarrier,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_clone3,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_faccessat2,
    libc::SYS_getrandom,
    libc::SYS_memfd_create,
    libc::SYS_renameat2,
    libc::SYS_statx,
];

/// Uses all of a driver: timers, sockets, and wake-ups by other threads.
fn work(rt: &Runtime) {
    timers(rt);
    rt.block_on(rt.spawn(sockets())).unwrap();
    wake_ups(rt);
}

fn timers(rt: &Runtime) {
    let never_early = async {
        for micros in [0, 1, 100, 300, 999, 1000, 1001, 1500, 5000, 20_000] {
            let (time, begin) = (Duration::from_micros(micros), Instant::now());
            sleep(time).await.unwrap();
            assert!(begin.elapsed() >= time, "{time:?}: over after {:?}", begin.elapsed());
        }
    };
    rt.block_on(rt.spawn(never_early)).unwrap();
    // Short of a millisecond they are slept for: each is a few sleeps of a worker, and not hundreds.
    let sleeps = || rt.metrics().workers.iter().map(|worker| worker.sleeps).sum::<u64>();
    let (before, count) = (sleeps(), 50);
    let short = async move {
        for _ in 0..count {
            sleep(Duration::from_micros(300)).await.unwrap();
        }
    };
    rt.block_on(rt.spawn(short)).unwrap();
    let each = (sleeps() - before) as f64 / f64::from(count);
    assert!(each < 10.0, "{each} sleeps of a worker for one of 300 us");
    // One that is later than `epoll_pwait` can tell, in 68 years, does not fire meanwhile.
    let endless = rt.spawn(sleep(Duration::from_secs(1 << 31)));
    rt.block_on(rt.spawn(sleep(Duration::from_millis(5)))).unwrap().unwrap();
    assert!(!endless.is_finished());
    endless.cancel();
    assert!(rt.block_on(endless).unwrap().is_err());
}

async fn sockets() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = dapple::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        echo(&mut stream).await;
    });
    // The server waits already when the client comes, and the client when an answer does.
    sleep(Duration::from_millis(2)).await.unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    talk(&mut client).await;
    drop(client);
    server.await.unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let server = dapple::spawn(async move { echo(&mut far).await });
    talk(&mut near).await;
    drop(near);
    server.await.unwrap();
}

async fn echo(stream: &mut (impl futures_lite::AsyncRead + futures_lite::AsyncWrite + Unpin)) {
    let mut buffer = [0; 100];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return,
            n => stream.write_all(&buffer[..n]).await.unwrap(),
        }
    }
}

async fn talk(stream: &mut (impl futures_lite::AsyncRead + futures_lite::AsyncWrite + Unpin)) {
    for number in 0..100_u32 {
        stream.write_all(&number.to_be_bytes()).await.unwrap();
        let mut back = [0; 4];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(u32::from_be_bytes(back), number);
    }
}

/// From a thread that is no worker, while workers sleep without a limit.
fn wake_ups(rt: &Runtime) {
    for _ in 0..20 {
        let (there, comes) = oneshot::channel();
        let task = rt.spawn(comes);
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            there.send(7).unwrap();
        });
        assert_eq!(rt.block_on(task).unwrap().unwrap(), 7);
        sender.join().unwrap();
    }
}

#[test]
fn in_a_process_where_it_is_refused() {
    let Ok(role) = std::env::var(ROLE) else { return };
    watched(move || {
        let built = |runtime: std::io::Result<Runtime>| runtime.unwrap_err();
        match &*role {
            "unknown" => refuse(&[libc::SYS_epoll_pwait2], libc::ENOSYS),
            "forbidden" => refuse(&[libc::SYS_epoll_pwait2], libc::EPERM),
            "old" => refuse(AFTER_3_2, libc::ENOSYS),
            "later" => {
                let rt = runtime(1);
                work(&rt);
                // On its only worker, which is in the midst of its life.
                rt.block_on(rt.spawn(async { refuse(&[libc::SYS_epoll_pwait2], libc::EPERM) })).unwrap();
                work(&rt);
            }
            "otherwise" => {
                refuse(&[libc::SYS_epoll_pwait2], libc::EINVAL);
                let error = built(Runtime::builder().workers(1).build());
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("cannot start a driver: epoll_pwait2"), "{error}");
            }
            "both" => {
                refuse(&[libc::SYS_epoll_pwait2, libc::SYS_epoll_pwait], libc::EPERM);
                let error = built(Runtime::builder().workers(1).build());
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                assert!(error.to_string().contains("or epoll_pwait"), "{error}");
            }
            _ => panic!("{role}?"),
        }
        if matches!(&*role, "unknown" | "forbidden" | "old") {
            for workers in [1, 2] {
                work(&runtime(workers));
            }
        }
        println!("it was so");
    });
}

/// Runs the test above in a process of its own.
#[track_caller]
fn as_a(role: &str) {
    let mut test = Command::new(std::env::current_exe().unwrap());
    let test = test
        .args([&*full_name("in_a_process_where_it_is_refused"), "--exact", "--nocapture"])
        .env(ROLE, role);
    let output = test.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("it was so"), "{text}");
}

#[test]
fn works_on_a_kernel_without_epoll_pwait2() {
    as_a("unknown");
}

#[test]
fn works_in_a_container_that_forbids_epoll_pwait2() {
    as_a("forbidden");
}

#[test]
fn works_on_a_kernel_without_any_newer_call() {
    as_a("old");
}

#[test]
fn forbidden_when_the_runtime_is_up() {
    as_a("later");
}

#[test]
fn another_error_of_epoll_pwait2_is_reported() {
    as_a("otherwise");
}

#[test]
fn without_either_call_there_is_no_runtime() {
    as_a("both");
}

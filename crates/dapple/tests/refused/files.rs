//! Where the kernel refuses io_uring, or the calls that do not wait: all goes through the pool, by itself.

use std::process::Command;

use crate::common::{full_name, runtime};
use crate::fs_common::{Dir, pattern};
use crate::refused_common::refuse;
use dapple::Runtime;
use dapple::fs::{self, File, Files};
use dapple::io::{AsyncReadExt, AsyncWriteExt};

const ROLE: &str = "DAPPLE_TEST_REFUSED";

/// The operations on files that are tried where the kernel refuses something.
fn work(rt: &Runtime) {
    let dir = Dir::new();
    let path = dir.path().join("file");
    rt.block_on(async {
        let bytes = pattern(100_000);
        fs::write(&path, &bytes).await.unwrap();
        assert!(fs::read(&path).await.unwrap() == bytes);
        assert_eq!(fs::metadata(&path).await.unwrap().len(), 100_000);
        let mut file = File::options().read(true).write(true).open(&path).await.unwrap();
        let (read, back) = file.read_at(vec![0; 1000], 500).await;
        assert_eq!(read.unwrap(), 1000);
        assert!(back == bytes[500..1500]);
        file.write_all(b"new").await.unwrap();
        file.flush().await.unwrap();
        let mut some = [0; 4];
        file.read_exact(&mut some).await.unwrap();
        assert!(some == bytes[3..7]);
        fs::remove_file(&path).await.unwrap();
        assert!(!fs::try_exists(&path).await.unwrap());
    });
}

#[test]
fn in_a_process_where_it_is_refused() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match &*role {
        "rings" => refuse(&[libc::SYS_io_uring_setup], libc::EPERM),
        "entering" => refuse(&[libc::SYS_io_uring_enter], libc::ENOSYS),
        "calls" => refuse(&[libc::SYS_openat2, libc::SYS_preadv2], libc::ENOSYS),
        _ => panic!("{role}?"),
    }
    if role == "calls" {
        return work(&runtime(2));
    }
    let rt = runtime(2);
    assert_eq!(rt.files(), Files::Pool);
    work(&rt);
    let error = Runtime::builder().files(Files::Ring).build().unwrap_err();
    assert!(error.to_string().contains("io_uring is not available"), "{error}");
    println!("it was so");
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
    assert!(role == "calls" || text.contains("it was so"), "{text}");
}

#[test]
fn no_rings() {
    as_a("rings");
}

#[test]
fn rings_that_cannot_be_used() {
    as_a("entering");
}

#[test]
fn no_calls_that_do_not_wait() {
    as_a("calls");
}

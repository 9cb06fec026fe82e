//! The standard input and outputs, in programs of their own: this one, started again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, thread};

use crate::common::{Event, full_name, runtime, watched};
use crate::io_common::poll_times;
use dapple::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, stderr, stdin, stdout};
use rustix::event::{PollFd, PollFlags};

/// Says which program to be.
const ROLE: &str = "DAPPLE_STDIO_ROLE";
/// The output after this mark is ours, not the test harness's.
const BEGIN: &str = "<begin>";
const END: &str = "<end>";

/// Not a test: the other programs.
#[test]
fn as_child() {
    let Ok(role) = env::var(ROLE) else { return };
    print!("{BEGIN}");
    match &role[..] {
        "count" => dapple::run(count()),
        "lines" => dapple::run(lines()),
        "drop" => drop_reads(),
        "cancel" => cancel_reads(),
        "leave" => dapple::run(async { assert!(poll_times(1, stdin().read(&mut [0; 8])).await.is_none()) }),
        "shout" => dapple::run(shout()),
        "unflushed" => dapple::run(async { stdout().write_all(&[b'x'; 300_000]).await.unwrap() }),
        "broken" => dapple::run(broken()),
        "two" => dapple::run(two_handles()),
        "full" => dapple::run(full()),
        "refused" => refused(),
        other => panic!("no such role: {other}"),
    }
    print!("{END}");
}

fn role(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &full_name("as_child"), "--nocapture", "--test-threads=1"]);
    command.env(ROLE, name).stdout(Stdio::piped());
    command
}

/// The output of a child between the marks; the child must have ended with success.
fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let (_, text) = text.split_once(BEGIN).expect("it began");
    text.rsplit_once(END).expect("it ended").0.to_owned()
}

async fn count() {
    let mut all = Vec::new();
    stdin().read_to_end(&mut all).await.unwrap();
    print!("{}", all.len());
    assert_eq!(stdin().read(&mut [0; 8]).await.unwrap(), 0, "and again the end");
}

#[test]
fn stdin_reads_to_the_end_of_a_pipe_a_file_and_dev_null() {
    watched(|| {
        let mut child = role("count").stdin(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let feed = thread::spawn(move || to.write_all(&[7; 200_000]));
        assert_eq!(said(child), "200000");
        feed.join().unwrap().unwrap();

        let path = env::temp_dir().join(format!("dapple-stdio-{}", std::process::id()));
        fs::write(&path, [7; 20_000]).unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(said(role("count").stdin(file).spawn().unwrap()), "20000");
        fs::remove_file(&path).unwrap();

        assert_eq!(said(role("count").stdin(Stdio::null()).spawn().unwrap()), "0");
        let closed = Command::new("sh")
            .args(["-c", "exec \"$0\" --exact \"$1\" --nocapture --test-threads=1 <&-"])
            .arg(env::current_exe().unwrap())
            .arg(full_name("as_child"))
            .env(ROLE, "count")
            .stdout(Stdio::piped())
            .spawn();
        assert_eq!(said(closed.unwrap()), "0");
    });
}

async fn lines() {
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        stdout().write_all(format!("{line}!\n").as_bytes()).await.unwrap();
        stdout().flush().await.unwrap();
    }
}

#[test]
fn a_talk_by_lines() {
    watched(|| {
        let mut child = role("lines").stdin(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let mut from = child.stdout.take().unwrap();
        let mut text = String::new();
        for i in 0..20 {
            writeln!(to, "line {i}").unwrap();
            let mut byte = [0];
            while !text.ends_with("!\n") {
                from.read_exact(&mut byte).unwrap(); // the answer comes before the next question
                text.push(byte[0].into());
            }
            assert!(text.ends_with(&format!("line {i}!\n")), "{text}");
            text.clear();
        }
        drop(to);
        assert!(child.wait().unwrap().success());
    });
}

/// Reads one byte at a time, and drops most reads after a few polls.
fn drop_reads() {
    dapple::run(async {
        let mut got = Vec::new();
        loop {
            let mut byte = [0];
            let mut handle = stdin();
            match poll_times(1 + got.len() % 3, handle.read(&mut byte)).await {
                Some(Ok(0)) => break,
                Some(n) => got.extend(&byte[..n.unwrap()]),
                None => dapple::task::yield_now().await,
            }
        }
        print!("{}", String::from_utf8(got).unwrap());
    });
}

#[test]
fn a_read_that_is_dropped_loses_no_byte() {
    watched(|| {
        let mut child = role("drop").stdin(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let text: String = (0..500).map(|i| format!("{i} ")).collect();
        for part in text.as_bytes().chunks(37) {
            to.write_all(part).unwrap();
        }
        drop(to);
        assert_eq!(said(child), text);
    });
}

/// Cancels each read, sooner or later, and collects what they got.
fn cancel_reads() {
    let rt = runtime(2);
    let mut got = Vec::new();
    let mut is_over = false;
    while !is_over {
        let begun = Event::default();
        let task = rt.spawn({
            let begun = begun.clone();
            async move {
                let mut handle = stdin();
                let mut bytes = [0; 5];
                begun.set();
                let n = handle.read(&mut bytes).await;
                n.map(|n| bytes[..n].to_vec())
            }
        });
        begun.wait();
        task.cancel();
        match rt.block_on(task).unwrap() {
            Ok(bytes) if bytes.is_empty() => is_over = true,
            Ok(bytes) => got.extend(bytes),
            Err(error) => {
                assert!(dapple::is_cancelled(&error), "{error}");
                // A read that is not cancelled, so that the loop advances.
                let mut byte = [0];
                match rt.block_on(stdin().read(&mut byte)).unwrap() {
                    0 => is_over = true,
                    _ => got.push(byte[0]),
                }
            }
        }
    }
    print!("{}", String::from_utf8(got).unwrap());
}

#[test]
fn a_read_that_is_cancelled_loses_no_byte() {
    watched(|| {
        let mut child = role("cancel").stdin(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let text: String = (0..300).map(|i| format!("{i} ")).collect();
        for part in text.as_bytes().chunks(7) {
            to.write_all(part).unwrap();
        }
        drop(to);
        assert_eq!(said(child), text);
    });
}

#[test]
fn a_read_without_an_answer_does_not_keep_the_program_from_ending() {
    watched(|| {
        let mut child = role("leave").stdin(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take().unwrap(); // open, and nothing comes
        assert_eq!(said(child), "");
        drop(to);
    });
}

/// A read that one runtime never began, and then one in another.
fn refused() {
    let rt = dapple::Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
    let (begun, release) = (Event::default(), Event::default());
    let busy = rt.handle().blocking({
        let (begun, release) = (begun.clone(), release.clone());
        move || {
            begun.set();
            release.wait();
        }
    });
    busy.detach();
    begun.wait(); // the only thread
    let mut handle = stdin();
    let input = std::io::stdin();
    rustix::event::poll(&mut [PollFd::new(&input, PollFlags::IN)], None).unwrap();
    assert!(rt.block_on(poll_times(1, handle.read(&mut [0; 8]))).is_none(), "in line behind it");
    drop(rt.shutdown(std::time::Duration::ZERO)); // ends it
    release.set();
    drop(handle);
    let mut all = String::new();
    runtime(1).block_on(stdin().read_to_string(&mut all)).unwrap();
    print!("{all}");
}

#[test]
fn a_read_that_a_runtime_did_not_begin_is_no_error_in_the_next() {
    watched(|| {
        let mut child = role("refused").stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"hello").unwrap();
        assert_eq!(said(child), "hello");
    });
}

/// Two handles wait at the same time; what the one leaves, the other gets.
async fn two_handles() {
    let total = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = [1, 1000]
        .map(|size| {
            let total = total.clone();
            dapple::spawn(async move {
                let (mut handle, mut buffer) = (stdin(), vec![0; size]);
                loop {
                    match handle.read(&mut buffer).await.unwrap() {
                        0 => return,
                        n => total.fetch_add(n as u64, Ordering::SeqCst),
                    };
                }
            })
        })
        .into();
    for reader in readers {
        reader.await.unwrap();
    }
    print!("{}", total.load(Ordering::SeqCst));
}

#[test]
fn two_readers_share_the_input() {
    watched(|| {
        let mut child = role("two").stdin(Stdio::piped()).spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        for _ in 0..300 {
            to.write_all(&[7; 100]).unwrap();
        }
        drop(to);
        assert_eq!(said(child), "30000");
    });
}

const SHOUTERS: usize = 8;
const SHOUTS: usize = 200;

async fn shout() {
    let tasks: Vec<_> = (0..SHOUTERS)
        .map(|i| {
            dapple::spawn(async move {
                let (mut out, mut err) = (stdout(), stderr());
                for n in 0..SHOUTS {
                    let line = format!("{i} {n} {}\n", "x".repeat(n));
                    out.write_all(line.as_bytes()).await.unwrap();
                    err.write_all(line.as_bytes()).await.unwrap();
                }
                out.flush().await.unwrap();
                err.flush().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn lines_of_several_tasks_do_not_mix_and_stay_in_order() {
    watched(|| {
        let child = role("shout").stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let out = String::from_utf8(output.stdout).unwrap();
        let out = out.split_once(BEGIN).unwrap().1.rsplit_once(END).unwrap().0.to_owned();
        let err = String::from_utf8(output.stderr).unwrap();
        for text in [out, err] {
            let mut next = [0; SHOUTERS];
            for line in text.lines() {
                let parts: Vec<_> = line.split(' ').collect();
                let [i, n, xs] = parts[..] else { panic!("mixed up: {line}") };
                let (i, n): (usize, usize) = (i.parse().unwrap(), n.parse().unwrap());
                assert_eq!((next[i], xs.len()), (n, n));
                next[i] += 1;
            }
            assert_eq!(next, [SHOUTS; SHOUTERS]);
        }
    });
}

#[test]
fn what_was_written_is_there_when_the_program_ends() {
    watched(|| assert_eq!(said(role("unflushed").spawn().unwrap()).len(), 300_000));
}

/// No file descriptor is left: that is not the end of the input.
async fn full() {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    let mut early = stdin();
    drop(files);
    assert!(early.read_u8().await.unwrap_err().to_string().contains("os error 24"));
    assert_eq!(stdin().read_u8().await.unwrap(), b'x');
}

#[test]
fn input_that_cannot_be_opened_is_an_error_and_not_the_end() {
    watched(|| {
        let mut child = role("full").stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        assert_eq!(said(child), "");
    });
}

/// Writes to a pipe without a reader: each handle returns the error once.
async fn broken() {
    stdin().read_u8().await.unwrap(); // from here on stderr has no reader
    let (mut first, mut second) = (stderr(), stderr());
    first.write_all(b"x").await.unwrap(); // taken, and fails later
    let error = first.flush().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(second.flush().await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    first.flush().await.unwrap();
    stderr().flush().await.unwrap();
}

#[test]
fn an_error_of_writing_comes_with_the_next_flush() {
    watched(|| {
        let mut child = role("broken").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        assert_eq!(said(child), "");
    });
}

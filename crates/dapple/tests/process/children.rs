//! Children: waiting, killing, pipes, and no zombies.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use crate::common::{Event, eventually, runtime, watched};
use crate::io_common::poll_times;
use dapple::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Partial};
use dapple::process::{Child, Command, Stdio};
use dapple::signal::SignalKind;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child that does not end by itself.
fn endless() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000000");
    command
}

/// Neither alive nor a zombie.
fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn the_exit_status_can_be_asked_repeatedly() {
    watched(|| {
        runtime(1).block_on(async {
            let mut child = sh("exit 3").spawn().unwrap();
            assert_eq!(child.wait().await.unwrap().code(), Some(3));
            assert_eq!(child.wait().await.unwrap().code(), Some(3));
            assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(3));
            assert_eq!(child.id(), None);
            child.kill().await.unwrap();
            assert!(Command::new("true").status().await.unwrap().success());
            let missing = Command::new("/does/not/exist").spawn().unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
        });
    });
}

#[test]
fn many_children_at_once() {
    watched(|| {
        let rt = runtime(2);
        let tasks: Vec<_> = (0..40)
            .map(|i| rt.spawn(async move { sh(&format!("exit {i}")).status().await.unwrap().code() }))
            .collect();
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(rt.block_on(task).unwrap(), Some(i as i32));
        }
    });
}

#[test]
fn both_outputs_may_be_large() {
    watched(|| {
        runtime(1).block_on(async {
            // More than a pipe holds, on both, by turns.
            let script = "i=0; while [ $i -lt 30 ]; do head -c 20000 /dev/zero; head -c 20000 /dev/zero >&2; i=$((i+1)); done";
            let output = sh(script).output().await.unwrap();
            assert!(output.status.success());
            assert_eq!((output.stdout.len(), output.stderr.len()), (600_000, 600_000));
            // `output` keeps the `stderr` that was set, and the input is empty.
            let output = sh("cat; echo x; echo y >&2").stderr(Stdio::null()).output().await.unwrap();
            assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"x\n"[..], &b""[..]));
            // `status` has no reader for these pipes: they are closed, and the child is not blocked by them.
            let mut command = sh("trap '' PIPE; head -c 200000 /dev/zero; exit 4");
            let status = command.stdout(Stdio::piped()).stderr(Stdio::null()).status().await.unwrap();
            assert_eq!(status.code(), Some(4));
        });
    });
}

#[test]
fn a_talk_through_pipes() {
    watched(|| {
        runtime(1).block_on(async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut to = child.stdin.take().unwrap();
            let mut from = BufReader::new(child.stdout.take().unwrap()).lines();
            for i in 0..100 {
                to.write_all(format!("line {i}\n").as_bytes()).await.unwrap();
                assert_eq!(from.next_line().await.unwrap().unwrap(), format!("line {i}"));
            }
            drop(to);
            assert_eq!(from.next_line().await.unwrap(), None);
            assert!(child.wait().await.unwrap().success());
        });
    });
}

#[test]
fn waiting_closes_the_input() {
    watched(|| {
        runtime(1).block_on(async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            assert!(child.wait().await.unwrap().success(), "cat reads the end");
        });
    });
}

#[test]
fn writing_to_a_closed_stdin_is_broken_pipe() {
    watched(|| {
        runtime(1).block_on(async {
            let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
            let mut to = child.stdin.take().unwrap();
            assert!(child.wait().await.unwrap().success());
            let error = to.write_all(&[0; 1 << 20]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn a_pipe_is_handed_from_child_to_child() {
    watched(|| {
        runtime(1).block_on(async {
            let mut first = sh("echo b; echo a").stdout(Stdio::piped()).spawn().unwrap();
            let mut pipe = first.stdout.take().unwrap();
            let mut begin = [0; 2];
            pipe.read_exact(&mut begin).await.unwrap(); // it has been on the driver
            let output = Command::new("cat").stdin(Stdio::try_from(pipe).unwrap()).output().await.unwrap();
            assert_eq!((&begin, &output.stdout[..]), (b"b\n", &b"a\n"[..]));
            assert!(first.wait().await.unwrap().success());
        });
    });
}

#[test]
fn a_wait_that_is_dropped_or_cancelled_can_be_repeated() {
    watched(|| {
        let rt = runtime(2);
        let begun = Event::default();
        let task = rt.spawn({
            let begun = begun.clone();
            async move {
                let mut child = endless().spawn().unwrap();
                assert!(poll_times(1, child.wait()).await.is_none());
                begun.set();
                let cancelled = child.wait().await.unwrap_err();
                let late = child.wait().await.unwrap_err();
                assert!(dapple::is_cancelled(&cancelled) && dapple::is_cancelled(&late));
                child
            }
        });
        begun.wait();
        task.cancel();
        let mut child = rt.block_on(task).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it runs on");
        rt.block_on(child.kill()).unwrap();
        let status = child.try_wait().unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    });
}

#[test]
fn in_a_cancelled_task_nothing_is_started_or_closed() {
    watched(|| {
        let rt = runtime(1);
        let never = "/does/not/exist"; // starting it would fail with another error
        let task = rt.spawn(async move {
            let mut child = Command::new("cat").stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
            assert!(dapple::time::sleep(Duration::MAX).await.is_err());
            let errors = [
                Command::new(never).status().await.unwrap_err(),
                Command::new(never).output().await.unwrap_err(),
                child.wait().await.unwrap_err(),
                child.wait_with_output().await.unwrap_err(),
            ];
            (errors, child.stdin.is_some())
        });
        task.cancel();
        let (errors, has_input) = rt.block_on(task).unwrap();
        for error in errors {
            assert!(dapple::is_cancelled(&error), "{error}");
        }
        assert!(has_input);
    });
}

#[test]
fn a_cancelled_output_returns_the_bytes_read() {
    watched(|| {
        let rt = runtime(2);
        let mut command = sh("echo out; echo err >&2; exec sleep 1000000");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = rt.block_on(async move { command.spawn().unwrap() });
        let pid = child.id().unwrap();
        let polled = Event::default();
        let task = rt.spawn({
            let polled = polled.clone();
            async move {
                let mut waiting = Box::pin(child.wait_with_output());
                let result = std::future::poll_fn(|cx| {
                    let polled_now = waiting.as_mut().poll(cx);
                    polled.set();
                    polled_now
                })
                .await;
                drop(waiting);
                (result, child)
            }
        });
        polled.wait();
        // It has written both, and become what does not end.
        eventually("it sleeps", || {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
        });
        task.cancel();
        let (result, mut child) = rt.block_on(task).unwrap();
        let error = result.unwrap_err();
        assert!(dapple::is_cancelled(&error));
        let partial = Partial::of(&error).unwrap();
        let (mut out, mut err) = (partial.rest().to_vec(), partial.rest_back().to_vec());
        child.start_kill().unwrap();
        let rest = rt.block_on(child.wait_with_output()).unwrap();
        out.extend(rest.stdout);
        err.extend(rest.stderr);
        assert_eq!((&out[..], &err[..]), (&b"out\n"[..], &b"err\n"[..]), "read before or after, not lost");
    });
}

#[test]
fn a_child_that_is_dropped_runs_on_and_leaves_no_zombie() {
    watched(|| {
        let rt = runtime(1);
        let (pid, mut to) = rt.block_on(async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            (child.id().unwrap(), child.stdin.take().unwrap())
        });
        rt.block_on(to.write_all(b"x")).expect("it is alive, and reads");
        let other = rt.block_on(async { endless().spawn().unwrap() });
        let other_pid = other.id().unwrap();
        drop(other); // two at once in the background
        drop(rt); // needs no runtime
        assert!(!is_gone(pid));
        drop(to);
        eventually("the child is reaped", || is_gone(pid));
        kill(other_pid);
        eventually("the other child is reaped", || is_gone(other_pid));
    });
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn kill_on_drop_kills_and_leaves_no_zombie() {
    watched(|| {
        let rt = runtime(1);
        let pid_of = |child: &Child| child.id().unwrap();
        let child = rt.block_on(async { endless().kill_on_drop(true).spawn().unwrap() });
        let pid = pid_of(&child);
        drop(child);
        eventually("the child is killed and reaped", || is_gone(pid));

        // The same if the wait for it is lost with its task.
        let (tell, told) = std::sync::mpsc::channel();
        let task = rt.spawn(async move {
            let mut child = endless().kill_on_drop(true).spawn().unwrap();
            tell.send(child.id().unwrap()).unwrap();
            child.wait().await
        });
        let pid = told.recv().unwrap();
        task.abort();
        eventually("the child is killed and reaped", || is_gone(pid));
    });
}

#[test]
fn a_child_that_never_ends_does_not_hold_up_the_end_of_the_runtime() {
    watched(|| {
        let rt = runtime(2);
        let (tell, told) = std::sync::mpsc::channel();
        let task = rt.spawn(async move {
            let mut child = endless().spawn().unwrap();
            tell.send(child.id().unwrap()).unwrap();
            child.wait().await
        });
        let pid = told.recv().unwrap();
        let shutdown = rt.shutdown(Duration::from_secs(50));
        assert!(shutdown.is_clean(), "its wait was cancelled, and the task ended: {shutdown}");
        assert!(dapple::is_cancelled(&crate::common::foreign_block_on(task).unwrap().unwrap_err()));
        kill(pid);
        eventually("the child is reaped", || is_gone(pid));
    });
}

#[test]
fn signals_of_all_kinds_reach_a_child_or_its_group() {
    watched(|| {
        runtime(1).block_on(async {
            let real_time = SignalKind::from_raw(libc::SIGRTMIN() + 1);
            for kind in [SignalKind::terminate(), real_time] {
                for to_group in [false, true] {
                    let mut child = endless().process_group(0).spawn().unwrap();
                    match to_group {
                        true => child.signal_group(kind).unwrap(),
                        false => child.signal(kind).unwrap(),
                    }
                    let status = child.wait().await.unwrap();
                    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(kind.as_raw()));
                    // It has ended: nothing is sent, and that is no error.
                    child.signal(kind).unwrap();
                    child.signal_group(kind).unwrap();
                }
            }
            let mut child = endless().kill_on_drop(true).spawn().unwrap();
            for number in [-1, 0, 32, 65] {
                let kind = SignalKind::from_raw(number);
                assert_eq!(child.signal(kind).unwrap_err().kind(), ErrorKind::InvalidInput);
                assert_eq!(child.signal_group(kind).unwrap_err().kind(), ErrorKind::InvalidInput);
            }
            let error = child.signal_group(SignalKind::terminate()).unwrap_err();
            assert!(error.to_string().contains("does not lead a process group"), "{error}");
            child.kill().await.unwrap();
        });
    });
}

#[test]
fn a_command_reports_its_settings() {
    watched(|| {
        runtime(1).block_on(async {
            let mut command = sh("echo $0 $A $B; pwd");
            command.arg("zero").env("A", "a").envs([("B", "b")]).current_dir("/").process_group(0);
            assert_eq!(command.output().await.unwrap().stdout, b"zero a b\n/\n");
            command.env_remove("A").env_clear();
            assert_eq!(command.output().await.unwrap().stdout, b"zero\n/\n");
            assert!(!command.get_kill_on_drop());
            assert!(command.kill_on_drop(true).get_kill_on_drop());
            let output = command.into_std().stdout(Stdio::piped()).output().unwrap();
            assert_eq!(output.stdout, b"zero\n/\n", "as it was set up");
        });
    });
}

/// `id` does not wait for the child: the child has its process number until its end was reported.
#[test]
fn the_number_is_there_until_the_end_was_told() {
    watched(|| {
        runtime(1).block_on(async {
            for by_try_wait in [false, true] {
                let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
                let pid = child.id().expect("right after it was spawned");
                let mut nothing = Vec::new();
                child.stdout.take().unwrap().read_to_end(&mut nothing).await.unwrap();
                eventually("it has ended, and nobody has waited for it", || is_zombie(pid));
                assert_eq!(child.id(), Some(pid), "an end that was not told changes nothing");
                // Its group is still its own, too, and the question does not tell the end.
                let error = child.signal_group(SignalKind::terminate()).unwrap_err();
                assert!(error.to_string().contains("does not lead"), "{error}");
                assert_eq!(child.id(), Some(pid));
                assert!(is_zombie(pid), "nobody has waited for it");
                match by_try_wait {
                    true => assert!(child.try_wait().unwrap().unwrap().success()),
                    false => assert!(child.wait().await.unwrap().success()),
                }
                assert_eq!(child.id(), None);
                assert!(is_gone(pid));
                child.signal_group(SignalKind::terminate()).unwrap();
            }
        });
    });
}

/// Whether the process is a zombie: it has ended, and its parent has not waited for it.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

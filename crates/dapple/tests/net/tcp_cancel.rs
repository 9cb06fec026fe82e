//! Cancelling and dropping accepts, reads and writes: no connection and no byte is lost.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use crate::common::{Event, runtime, watched};
use dapple::net::{TcpListener, TcpStream};
use dapple::{Runtime, is_cancelled};
use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt, future};

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn listener(rt: &Runtime) -> TcpListener {
    rt.block_on(TcpListener::bind(HERE)).unwrap()
}

fn pair(rt: &Runtime) -> (TcpStream, TcpStream) {
    rt.block_on(async {
        let listener = TcpListener::bind(HERE).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    })
}

/// Tells when its future waits.
async fn telling<F: Future>(begun: Event, future: F) -> F::Output {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            begun.set();
        }
        polled
    })
    .await
}

/// Cancels `future` in a task while it waits, and returns its output.
fn cancelled_while_waiting<F>(rt: &Runtime, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let begun = Event::default();
    let task = rt.spawn(telling(begun.clone(), future));
    begun.wait();
    task.cancel();
    rt.block_on(task).unwrap()
}

/// Runs `future` in a task that was cancelled before.
fn begun_too_late<F>(rt: &Runtime, future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let gate = Event::default();
    let go = gate.clone();
    let task = rt.spawn(async move {
        dapple::shield(go.happened()).await;
        future.await
    });
    task.cancel();
    gate.set();
    rt.block_on(task).unwrap()
}

/// Fills the buffers, and says with how many bytes.
fn fill(stream: &TcpStream) -> usize {
    let mut filled = 0;
    while let Ok(n) = stream.try_write(&[1; 65536]) {
        filled += n;
    }
    filled
}

#[test]
fn what_begins_in_a_cancelled_task_has_no_effect() {
    watched(|| {
        let rt = runtime(1);
        let listener = listener(&rt);
        let client = rt.block_on(TcpStream::connect(listener.local_addr().unwrap())).unwrap();
        let listener = begun_too_late(&rt, async move {
            assert!(is_cancelled(&listener.accept().await.unwrap_err()));
            assert!(is_cancelled(&listener.incoming().next().await.unwrap().unwrap_err()));
            assert!(is_cancelled(&TcpListener::bind(HERE).await.unwrap_err()));
            listener
        });
        let (far, from) = rt.block_on(listener.accept()).unwrap();
        assert_eq!(from, client.local_addr().unwrap());

        client.try_write(b"stays").unwrap();
        let (mut client, mut far) = begun_too_late(&rt, async move {
            let (mut client, mut far) = (client, far);
            assert!(is_cancelled(&far.read(&mut [0; 5]).await.unwrap_err()));
            assert!(is_cancelled(&far.read(&mut []).await.unwrap_err()));
            assert!(is_cancelled(&far.peek(&mut [0; 5]).await.unwrap_err()));
            assert!(is_cancelled(&far.readable().await.unwrap_err()));
            assert!(is_cancelled(&client.write(b"never sent").await.unwrap_err()));
            assert!(is_cancelled(&client.writable().await.unwrap_err()));
            client.close().await.unwrap(); // does not wait, and may be needed to end well
            (client, far)
        });
        let mut got = String::new();
        rt.block_on(far.read_to_string(&mut got)).unwrap();
        assert_eq!(got, "stays");
        rt.block_on(far.write_all(b"x")).unwrap();
        assert_eq!(rt.block_on(client.read(&mut [0])).unwrap(), 1);
    });
}

#[test]
fn a_cancelled_accept_leaves_the_connection_to_the_next() {
    watched(|| {
        let rt = runtime(2);
        let mut listener = listener(&rt);
        let addr = listener.local_addr().unwrap();
        for as_stream in [false, true] {
            let (error, back) = cancelled_while_waiting(&rt, async move {
                let error = match as_stream {
                    false => listener.accept().await.unwrap_err(),
                    true => listener.incoming().next().await.unwrap().unwrap_err(),
                };
                (error, listener)
            });
            listener = back;
            assert!(is_cancelled(&error));
            let client = std::net::TcpStream::connect(addr).unwrap();
            let (_, from) = rt.block_on(listener.accept()).unwrap();
            assert_eq!(from, client.local_addr().unwrap());
        }
    });
}

#[test]
fn a_cancelled_read_leaves_the_bytes_to_the_next() {
    watched(|| {
        let rt = runtime(2);
        let (near, mut far) = pair(&rt);
        for word in [b"one", b"two"] {
            let (error, back) =
                cancelled_while_waiting(&rt, async move { (far.read(&mut [0; 9]).await.unwrap_err(), far) });
            far = back;
            assert!(is_cancelled(&error));
            near.try_write(word).unwrap();
            let mut got = [0; 3];
            rt.block_on(far.read_exact(&mut got)).unwrap();
            assert_eq!(&got, word);
        }
    });
}

#[test]
fn a_cancelled_write_has_written_nothing() {
    watched(|| {
        let rt = runtime(2);
        let (near, mut far) = pair(&rt);
        let mut filled = fill(&near);
        let (result, near) = cancelled_while_waiting(&rt, async move {
            let mut near = near;
            let mut written = 0;
            // Bytes in flight make room for some more.
            loop {
                match near.write(&[2; 65536]).await {
                    Ok(n) => written += n,
                    Err(error) => break ((written, error), near),
                }
            }
        });
        assert!(is_cancelled(&result.1));
        filled += result.0;
        drop(near);
        let mut got = Vec::new();
        rt.block_on(far.read_to_end(&mut got)).unwrap();
        assert_eq!(got.len(), filled);
    });
}

#[test]
fn futures_dropped_early_lose_nothing() {
    watched(|| {
        let rt = runtime(2);
        let listener = listener(&rt);
        let addr = listener.local_addr().unwrap();
        rt.block_on(async {
            assert!(future::poll_once(listener.accept()).await.is_none());
            let mut near = TcpStream::connect(addr).await.unwrap();
            let (mut far, from) = listener.accept().await.unwrap();
            assert_eq!(from, near.local_addr().unwrap());
            for _ in 0..3 {
                assert!(future::poll_once(far.read(&mut [0; 9])).await.is_none());
                assert!(future::poll_once(far.peek(&mut [0; 9])).await.is_none());
                assert!(future::poll_once(far.readable()).await.is_none());
                near.write_all(b"word").await.unwrap();
                far.readable().await.unwrap();
                let mut got = [0; 4];
                far.read_exact(&mut got).await.unwrap();
                assert_eq!(&got, b"word");
            }
        });
    });
}

#[test]
fn cancelled_or_read_but_never_both() {
    watched(|| {
        let rt = runtime(2);
        let (near, mut far) = pair(&rt);
        let (mut read, mut cancelled) = (0, 0);
        for round in 0..2000 {
            let begun = Event::default();
            let task = rt.spawn(telling(begun.clone(), async move {
                let mut byte = [0];
                (far.read(&mut byte).await.map(|n| (n, byte[0])), far)
            }));
            begun.wait();
            let byte = round as u8;
            if round % 2 == 0 {
                near.try_write(&[byte]).unwrap();
                task.cancel();
            } else {
                task.cancel();
                near.try_write(&[byte]).unwrap();
            }
            let result;
            (result, far) = rt.block_on(task).unwrap();
            match result {
                Ok(got) => {
                    assert_eq!(got, (1, byte));
                    read += 1;
                }
                Err(error) => {
                    assert!(is_cancelled(&error));
                    let mut got = [0];
                    rt.block_on(far.read_exact(&mut got)).unwrap();
                    assert_eq!(got, [byte]);
                    cancelled += 1;
                }
            }
        }
        assert_eq!(read + cancelled, 2000);
    });
}

#[test]
fn an_acceptor_that_goes_takes_nothing_from_the_others() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await.unwrap();
            let addr = listener.local_addr().unwrap();
            for is_told in [false, true] {
                let (mut first, mut second) = (Box::pin(listener.accept()), Box::pin(listener.accept()));
                assert!(future::poll_once(&mut first).await.is_none());
                assert!(future::poll_once(&mut second).await.is_none());
                let client = TcpStream::connect(addr).await.unwrap();
                if is_told {
                    wait_until_readable(&listener).await; // so both were woken, too
                }
                drop(first);
                let (_, from) = second.await.unwrap();
                assert_eq!(from, client.local_addr().unwrap());
            }
        });
    });
}

/// Waits for the same event, beside those who accept.
async fn wait_until_readable(listener: &TcpListener) {
    let duplicate = listener.as_fd().try_clone_to_owned().unwrap();
    dapple::net::AsyncFd::new(duplicate).unwrap().readable().await.unwrap();
}

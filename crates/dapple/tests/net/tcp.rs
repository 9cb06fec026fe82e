//! TCP connections and listeners.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::common::{runtime, watched};
use dapple::net::{TcpListener, TcpStream, tcp};
use futures_lite::{AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt, future};

const HERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Runs a test in a task of a runtime with two workers.
#[track_caller]
fn run<F: Future<Output = ()> + Send + 'static>(test: F) {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(rt.spawn(test)).unwrap();
    });
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(HERE).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, from) = listener.accept().await.unwrap();
    assert_eq!(from, near.local_addr().unwrap());
    assert_eq!(far.peer_addr().unwrap(), from);
    (near, far)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn what_is_sent_arrives_and_comes_back() {
    run(async {
        let listener = TcpListener::bind(HERE).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = dapple::spawn(async move {
            for _ in 0..10 {
                let (mut stream, _) = listener.accept().await.unwrap();
                dapple::spawn(async move {
                    let mut buffer = [0; 1000];
                    loop {
                        match stream.read(&mut buffer).await.unwrap() {
                            0 => break,
                            n => stream.write_all(&buffer[..n]).await.unwrap(),
                        }
                    }
                })
                .detach();
            }
        });
        let clients: Vec<_> = (0..10)
            .map(|i| {
                dapple::spawn(async move {
                    let mut stream = TcpStream::connect(addr).await.unwrap();
                    for round in 0..50 {
                        let sent = pattern(1 + i * 100 + round);
                        stream.write_all(&sent).await.unwrap();
                        let mut back = vec![0; sent.len()];
                        stream.read_exact(&mut back).await.unwrap();
                        assert_eq!(back, sent);
                    }
                    stream.close().await.unwrap();
                    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn halves_read_and_write_in_two_tasks_at_once() {
    run(async {
        let (near, far) = pair().await;
        let bytes = pattern(3_000_000);
        let tasks = [near, far].map(|stream| {
            let (mut read, mut write) = stream.into_split();
            let (sent, wanted) = (bytes.clone(), bytes.clone());
            let writing = dapple::spawn(async move { write.write_all(&sent).await });
            let reading = dapple::spawn(async move {
                let mut got = Vec::new();
                read.read_to_end(&mut got).await.unwrap(); // to the end, for the other half was dropped
                assert!(got == wanted);
            });
            (writing, reading)
        });
        for (writing, reading) in tasks {
            writing.await.unwrap().unwrap();
            reading.await.unwrap();
        }
    });
}

#[test]
fn borrowed_halves_read_and_write_in_one_task_at_once() {
    run(async {
        let (mut near, mut far) = pair().await;
        let bytes = pattern(1_000_000);
        let echo = dapple::spawn(async move {
            let mut buffer = vec![0; 10_000];
            loop {
                match far.read(&mut buffer).await.unwrap() {
                    0 => break,
                    n => far.write_all(&buffer[..n]).await.unwrap(),
                }
            }
        });
        let mut back = vec![0; bytes.len()];
        let (mut read, mut write) = near.split();
        assert_eq!(read.local_addr().unwrap(), write.local_addr().unwrap());
        let (read, written) = future::zip(read.read_exact(&mut back), write.write_all(&bytes)).await;
        read.unwrap();
        written.unwrap();
        assert!(back == bytes);
        drop(near); // the halves had not closed anything
        echo.await.unwrap();
    });
}

#[test]
fn halves_of_one_connection_can_be_reunited_and_others_cannot() {
    run(async {
        let (near, mut far) = pair().await;
        let (read, write) = near.into_split();
        let (other_read, other_write) = pair().await.0.into_split();
        let tcp::ReuniteError(read, other_write) = read.reunite(other_write).unwrap_err();
        let mut near = read.reunite(write).unwrap();
        other_write.reunite(other_read).unwrap();
        near.write_all(b"still open").await.unwrap();
        let mut got = [0; 10];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"still open");
    });
}

#[test]
fn the_half_that_writes_ends_the_stream_unless_forgotten() {
    run(async {
        let (near, mut far) = pair().await;
        let (mut read, write) = near.into_split();
        drop(write);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        far.write_all(b"the other way").await.unwrap();
        let mut got = [0; 13];
        read.read_exact(&mut got).await.unwrap();

        let (near, far) = pair().await;
        let (read, write) = near.into_split();
        write.forget();
        assert_eq!(far.try_read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(read);
        far.readable().await.unwrap();
        assert_eq!(far.try_read(&mut [0; 8]).unwrap(), 0);
    });
}

#[test]
fn closing_ends_one_direction_only() {
    run(async {
        let (mut near, mut far) = pair().await;
        near.write_all(b"question").await.unwrap();
        near.close().await.unwrap();
        let mut question = String::new();
        far.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question");
        assert_eq!(near.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        far.write_all(b"answer").await.unwrap();
        far.shutdown(Shutdown::Both).unwrap();
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        near.close().await.unwrap(); // again, and not connected any more
    });
}

#[test]
fn peek_leaves_the_bytes_there() {
    run(async {
        let (mut near, far) = pair().await;
        let peeking = dapple::spawn(async move {
            let mut seen = [0; 4];
            assert_eq!(far.peek(&mut []).await.unwrap(), 0);
            let n = far.peek(&mut seen).await.unwrap();
            assert_eq!(seen[..n], b"abcd"[..n]);
            far
        });
        near.write_all(b"abcd").await.unwrap();
        let mut far = peeking.await.unwrap();
        let mut got = [0; 4];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abcd");
        near.close().await.unwrap();
        assert_eq!(far.peek(&mut [0]).await.unwrap(), 0, "the end");
    });
}

#[test]
fn several_buffers_in_one_go() {
    run(async {
        let (mut near, mut far) = pair().await;
        let slices = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(near.write_vectored(&slices).await.unwrap(), 7);
        let (mut first, mut second) = ([0; 2], [0; 9]);
        let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(far.read_vectored(&mut buffers).await.unwrap(), 7);
        assert_eq!((&first, &second[..5]), (b"on", &b"e two"[..]));

        assert_eq!(far.try_write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")]).unwrap(), 2);
        near.readable().await.unwrap();
        let mut buffers = [IoSliceMut::new(&mut second)];
        assert_eq!(near.try_read_vectored(&mut buffers).unwrap(), 2);

        assert!(future::poll_once(poll_fn(|cx| near.poll_read_ready(cx))).await.is_none());
        poll_fn(|cx| far.poll_write_ready(cx)).await.unwrap();
        drop(far);
        poll_fn(|cx| near.poll_read_ready(cx)).await.unwrap();
    });
}

#[test]
fn a_reset_is_told_behind_the_end_of_the_stream() {
    run(async {
        for is_registered in [false, true] {
            let (mut near, mut far) = pair().await;
            if is_registered {
                assert!(future::poll_once(far.read(&mut [0])).await.is_none());
            }
            near.shutdown(Shutdown::Write).unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
            assert!(future::poll_once(poll_fn(|cx| far.poll_closed(cx))).await.is_none(), "it still reads");
            assert!(future::poll_once(far.closed()).await.is_none());
            far.write_all(b"still here").await.unwrap();
            let mut got = [0; 10];
            near.read_exact(&mut got).await.unwrap();
            near.set_linger(Some(Duration::ZERO)).unwrap();
            let reset = dapple::spawn(async move { drop(near) });
            poll_fn(|cx| far.poll_closed(cx)).await.unwrap();
            far.closed().await.unwrap();
            reset.await.unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0, "as before");
        }
    });
}

#[test]
fn a_connection_is_closed_when_both_sides_have_ended_theirs() {
    run(async {
        let (near, far) = pair().await;
        near.shutdown(Shutdown::Write).unwrap();
        assert!(future::poll_once(far.closed()).await.is_none());
        far.shutdown(Shutdown::Write).unwrap();
        far.closed().await.unwrap();
        near.closed().await.unwrap();
    });
}

#[test]
fn a_wait_for_the_end_leaves_writers_alone() {
    run(async {
        let (mut near, mut far) = pair().await;
        let mut sent = 0;
        while let Some(written) = future::poll_once(near.write(&[7; 65536])).await {
            sent += written.unwrap();
        }
        assert!(future::poll_once(near.closed()).await.is_none());
        let reading = dapple::spawn(async move {
            let mut got = vec![0; sent + 1];
            far.read_exact(&mut got).await.unwrap();
            far
        });
        near.write_all(&[7]).await.unwrap();
        assert!(future::poll_once(near.closed()).await.is_none());
        drop(reading.await.unwrap());
    });
}

#[test]
fn an_empty_read_or_write_is_done_at_once_and_is_not_the_end() {
    run(async {
        let (mut near, mut far) = pair().await;
        for has_waited in [false, true] {
            assert_eq!(far.read(&mut []).await.unwrap(), 0, "nothing is there: {has_waited}");
            assert_eq!(far.read_vectored(&mut []).await.unwrap(), 0);
            assert_eq!(far.try_read(&mut []).unwrap(), 0);
            assert_eq!(far.write(&[]).await.unwrap(), 0);
            assert_eq!(far.write_vectored(&[IoSlice::new(&[])]).await.unwrap(), 0);
            assert!(future::poll_once(far.read(&mut [0])).await.is_none(), "from here on it is registered");
        }
        near.write_all(b"x").await.unwrap();
        far.readable().await.unwrap();
        assert_eq!(far.read(&mut []).await.unwrap(), 0);
        assert_eq!(far.read(&mut [0; 2]).await.unwrap(), 1);
    });
}

#[test]
fn trying_answers_at_once() {
    run(async {
        let (near, far) = pair().await;
        assert_eq!(far.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        near.writable().await.unwrap();
        let mut sent = 0;
        let full = loop {
            match near.try_write(&[7; 4096]) {
                Ok(n) => sent += n,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let draining = dapple::spawn(async move {
            let mut buffer = vec![0; 65536];
            while sent > 0 {
                far.readable().await.unwrap();
                match far.try_read(&mut buffer) {
                    Ok(n) => sent -= n,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            far
        });
        near.writable().await.unwrap();
        draining.await.unwrap();
    });
}

#[test]
fn each_connection_goes_to_one_of_several_acceptors() {
    run(async {
        let listener = std::sync::Arc::new(TcpListener::bind(HERE).await.unwrap());
        let addr = listener.local_addr().unwrap();
        let (got, mut from) = dapple::channel::mpsc::unbounded();
        let acceptors: Vec<_> = (0..4)
            .map(|_| {
                let (listener, got) = (listener.clone(), got.clone());
                dapple::spawn(async move {
                    while let Ok((_, from)) = listener.accept().await {
                        got.try_send(from).unwrap();
                    }
                })
            })
            .collect();
        let mut clients = Vec::new();
        for _ in 0..100 {
            clients.push(TcpStream::connect(addr).await.unwrap());
        }
        let mut wanted: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
        let mut seen = Vec::new();
        for _ in 0..100 {
            seen.push(from.recv().await.unwrap());
        }
        wanted.sort();
        seen.sort();
        assert_eq!(seen, wanted);
        for acceptor in acceptors {
            acceptor.cancel();
            acceptor.await.unwrap();
        }
    });
}

#[test]
fn incoming_connections_are_a_stream_that_goes_on() {
    run(async {
        let listener = TcpListener::bind(HERE).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let clients = dapple::spawn(async move {
            for _ in 0..6 {
                TcpStream::connect(addr).await.unwrap().write_all(b"x").await.unwrap();
            }
        });
        let mut incoming = listener.incoming();
        for _ in 0..3 {
            let mut stream = incoming.next().await.unwrap().unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
        }
        drop(incoming);
        let mut incoming = listener.into_incoming();
        for _ in 0..3 {
            let mut stream = incoming.next().await.unwrap().unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
        }
        clients.await.unwrap();
        assert_eq!(incoming.into_inner().local_addr().unwrap(), addr);
    });
}

#[test]
fn any_system_call_can_be_waited_for() {
    run(async {
        let (near, far) = pair().await;
        let reading = dapple::spawn(async move {
            let mut byte = [0];
            far.read_with(|mut stream| stream.read(&mut byte)).await.unwrap();
            byte[0]
        });
        near.write_with(|mut stream| stream.write(b"x")).await.unwrap();
        assert_eq!(reading.await.unwrap(), b'x');
    });
}

#[test]
fn a_task_that_has_waited_to_read_can_write_at_once() {
    run(async {
        let (near, mut far) = pair().await;
        let mut far_reads = [0];
        poll_fn(|cx| {
            let waits = futures_lite::AsyncRead::poll_read(Pin::new(&mut far), cx, &mut far_reads);
            assert!(waits.is_pending());
            let wrote = futures_lite::AsyncWrite::poll_write(Pin::new(&mut far), cx, b"x");
            assert!(matches!(wrote, Poll::Ready(Ok(1))), "{wrote:?}");
            Poll::Ready(())
        })
        .await;
        drop(near);
    });
}

#[test]
fn a_task_that_sends_without_end_gives_way_by_bytes_too() {
    const PIECE: usize = 64 << 10;
    run(async {
        let (mut near, far) = pair().await;
        let mut far = far.into_std().unwrap();
        far.set_nonblocking(false).unwrap();
        let (sent, mut taken) = (pattern(PIECE), vec![0; PIECE]);
        let (mut total, mut most) = (0, 0);
        while total < 64 * PIECE {
            let before = total;
            poll_fn(|cx| {
                // The peer takes all bytes at once, so that there is always room for more.
                while let Poll::Ready(written) = Pin::new(&mut near).poll_write(cx, &sent) {
                    let written = written.unwrap();
                    far.read_exact(&mut taken[..written]).unwrap();
                    total += written;
                }
                if total > before { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            // The next one begins in another poll of the task.
            dapple::task::yield_now().await;
            most = most.max(total - before);
        }
        assert!(most <= (2 << 20) + PIECE, "{most} bytes in one poll");
    });
}

#[test]
fn bytes_that_the_other_side_has_no_room_for_are_not_acknowledged() {
    dapple::run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        assert_eq!(stream.unacknowledged().unwrap(), 0);
        stream.writable().await.unwrap();
        let mut written = 0;
        while let Ok(count) = stream.try_write(&[0; 64 << 10]) {
            written += count;
        }
        let left = stream.unacknowledged().unwrap();
        assert!(0 < left && left <= written, "{left} of {written}");
        other.read_exact(&mut vec![0; written]).await.unwrap();
        while stream.unacknowledged().unwrap() > 0 {
            dapple::time::sleep(Duration::from_millis(1)).await.unwrap();
        }
    });
}

//! Waits for the network of a simulation that are cancelled or dropped.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use crate::net::{assert_kind, pair, pattern, wait_a_second};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sim::{self, Sim};
use dapple::time::sleep;
use dapple::{is_cancelled, spawn};

#[test]
fn a_cancelled_or_dropped_read_has_taken_nothing() {
    let cut = Cell::new(0);
    Sim::new(0).explore(0..60, || async {
        let (near, far) = pair().await;
        let bytes = pattern(9, 5000);
        let writer = spawn({
            let bytes = bytes.clone();
            async move {
                let mut near = near;
                for part in bytes.chunks(100) {
                    near.write_all(part).await.unwrap();
                    sleep(Duration::from_micros(sim::random() % 300)).await.unwrap();
                }
            }
        });
        let (mut far, mut got) = (far, Vec::<u8>::new());
        loop {
            // A task that reads until it is cancelled, by itself or from outside.
            let reader = spawn(async move {
                let mut got = Vec::<u8>::new();
                loop {
                    let mut buffer = [0; 64];
                    match far.read(&mut buffer).await {
                        Ok(0) => return (far, got, true),
                        Ok(n) => got.extend(&buffer[..n]),
                        Err(error) if is_cancelled(&error) => return (far, got, false),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            sleep(Duration::from_micros(sim::random() % 600)).await.unwrap();
            reader.cancel();
            let (back, part, is_end) = reader.await.unwrap();
            (far, _) = (back, got.extend(part));
            if is_end {
                break;
            }
            cut.set(cut.get() + 1);
            // And one that is dropped.
            let mut buffer = [0; 64];
            let read = far.read(&mut buffer);
            let limit = sleep(Duration::from_micros(sim::random() % 300));
            let n = futures_lite::future::or(async { read.await.ok() }, async {
                limit.await.unwrap();
                None
            });
            match n.await {
                Some(0) => break,
                n => got.extend(&buffer[..n.unwrap_or(0)]),
            }
        }
        assert!(got == bytes);
        writer.await.unwrap();
    });
    assert!(cut.get() > 200, "{}", cut.get());
}

#[test]
fn a_cancelled_write_has_put_what_it_returned() {
    let cut = Cell::new(0);
    Sim::new(0).explore(0..60, || async {
        let (near, mut far) = pair().await;
        let bytes: Rc<[u8]> = pattern(4, 300_000).into();
        let reader = spawn(async move {
            let (mut got, mut buffer) = (Vec::<u8>::new(), vec![0; 10_000]);
            loop {
                match far.read(&mut buffer).await.unwrap() {
                    0 => return got,
                    n => got.extend(&buffer[..n]),
                }
                sleep(Duration::from_micros(sim::random() % 300)).await.unwrap();
            }
        });
        let (mut near, mut put) = (near, 0);
        while put < bytes.len() {
            let rest = bytes[put..].to_vec();
            let writer = spawn(async move {
                let mut put = 0;
                while put < rest.len() {
                    match near.write(&rest[put..]).await {
                        Ok(n) => put += n,
                        Err(error) if is_cancelled(&error) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                (near, put)
            });
            sleep(Duration::from_micros(sim::random() % 1000)).await.unwrap();
            writer.cancel();
            let (back, part) = writer.await.unwrap();
            near = back;
            put += part;
            cut.set(cut.get() + 1);
        }
        drop(near);
        let got = reader.await.unwrap();
        assert!(got[..] == bytes[..], "{} of {}", got.len(), bytes.len());
    });
    assert!(cut.get() > 200, "{}", cut.get());
}

#[test]
fn an_unaccepted_connection_is_left_to_the_next_acceptor() {
    Sim::new(0).explore(0..60, || async {
        let listener = std::sync::Arc::new(TcpListener::bind("127.0.0.1:80").await.unwrap());
        let clients: Vec<_> = (0..10)
            .map(|which: u8| {
                spawn(async move {
                    sleep(Duration::from_micros(sim::random() % 3000)).await.unwrap();
                    let mut stream = TcpStream::connect("127.0.0.1:80").await.unwrap();
                    stream.write_all(&[which]).await.unwrap();
                    let mut end = Vec::new();
                    stream.read_to_end(&mut end).await.unwrap();
                    assert!(end.is_empty());
                })
            })
            .collect();
        let mut seen = BTreeSet::new();
        while seen.len() < 10 {
            // Several acceptors at a time, which are all cancelled after a while.
            let acceptors: Vec<_> = (0..3)
                .map(|_| {
                    let listener = listener.clone();
                    spawn(async move { listener.accept().await })
                })
                .collect();
            sleep(Duration::from_micros(sim::random() % 500)).await.unwrap();
            for acceptor in acceptors {
                acceptor.cancel();
                match acceptor.await.unwrap() {
                    Ok((mut stream, _)) => {
                        let mut which = [0];
                        stream.read_exact(&mut which).await.unwrap();
                        assert!(seen.insert(which[0]));
                    }
                    Err(error) => assert!(is_cancelled(&error), "{error}"),
                }
            }
        }
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn a_cancelled_connect_leaves_no_connection_or_an_ended_one() {
    let (none, ended) = (Cell::new(0), Cell::new(0));
    Sim::new(0).explore(0..100, || async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let given_up = spawn(TcpStream::connect("127.0.0.1:80"));
        sleep(Duration::from_micros(sim::random() % 1500)).await.unwrap();
        given_up.cancel();
        match given_up.await.unwrap() {
            Ok(stream) => {
                drop(stream);
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                ended.set(ended.get() + 1);
            }
            Err(error) => {
                assert!(is_cancelled(&error));
                wait_a_second().await;
                let mut accept = Box::pin(listener.accept());
                if let Some(accepted) = futures_lite::future::poll_once(&mut accept).await {
                    // The listener answered after the client had given up.
                    assert_eq!(accepted.unwrap().0.read(&mut [0]).await.unwrap(), 0);
                }
                none.set(none.get() + 1);
            }
        }
        // The next one is not affected.
        let mut client = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (mut stream, from) = listener.accept().await.unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        client.write_all(b"!").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    });
    assert!(none.get() > 10 && ended.get() > 10, "{none:?} {ended:?}");
}

#[test]
fn a_connect_cancelled_at_once_leaves_no_connection() {
    Sim::new(0).explore(0..10, || async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut connecting = Box::pin(TcpStream::connect("127.0.0.1:80"));
        assert!(futures_lite::future::poll_once(&mut connecting).await.is_none());
        drop(connecting);
        wait_a_second().await;
        let mut accept = Box::pin(listener.accept());
        assert!(futures_lite::future::poll_once(&mut accept).await.is_none());
    });
}

#[test]
fn a_cancelled_task_begins_nothing() {
    Sim::new(1).run(async {
        let listener = TcpListener::bind("127.0.0.1:80").await.unwrap();
        let mut near = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"waiting").await.unwrap();
        wait_a_second().await;
        let task = spawn(async move {
            // Waits until it is cancelled.
            assert!(sleep(Duration::from_secs(10)).await.is_err());
            assert!(is_cancelled(&near.read(&mut [0; 8]).await.unwrap_err()));
            assert!(is_cancelled(&near.peek(&mut [0; 8]).await.unwrap_err()));
            assert!(is_cancelled(&near.write(b"x").await.unwrap_err()));
            assert!(is_cancelled(&near.readable().await.unwrap_err()));
            assert!(is_cancelled(&TcpStream::connect("127.0.0.1:80").await.unwrap_err()));
            assert!(is_cancelled(&TcpListener::bind("127.0.0.1:81").await.unwrap_err()));
            near
        });
        wait_a_second().await;
        task.cancel();
        let mut near = task.await.unwrap();
        let mut text = [0; 7];
        near.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"waiting");
        assert_kind(far.try_read(&mut [0; 1]), ErrorKind::WouldBlock);
        wait_a_second().await;
        let mut accept = Box::pin(listener.accept());
        assert!(futures_lite::future::poll_once(&mut accept).await.is_none());
    });
}

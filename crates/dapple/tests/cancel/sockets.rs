//! Protocols over simulated sockets, and in `streams` over streams in memory.

mod streams;

use std::collections::BTreeMap;
use std::io;
use std::io::ErrorKind::{
    BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected, UnexpectedEof,
};
use std::sync::{Arc, Mutex};

use dapple::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Partial, copy, copy_bidirectional, how_far,
};
use dapple::sim;
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sync::Semaphore;
use dapple::time::{Duration, sleep, timeout};
use dapple::{JoinHandle, is_cancelled};

use super::Anything;

const STEP: Duration = Duration::from_millis(1);

type Log<T> = Arc<Mutex<Vec<T>>>;

fn note<T>(log: &Log<T>, entry: T) {
    log.lock().unwrap().push(entry);
}

fn entries<T: Clone>(log: &Log<T>) -> Vec<T> {
    log.lock().unwrap().clone()
}

/// Whether the peer has ended the connection, for example because its task was cancelled.
fn is_gone(error: &io::Error) -> bool {
    let kinds =
        [BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected, UnexpectedEof];
    kinds.contains(&error.kind())
}

/// The value, or `None` if the peer is gone.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_gone(&error) => Ok(None),
        other => other.map(Some),
    }
}

async fn join<T>(tasks: Vec<JoinHandle<io::Result<T>>>) -> Result<(), Anything> {
    for task in tasks {
        unless_gone(task.await?)?;
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_graceful_shutdown_waits_for_each_echo() -> Result<(), Anything> {
    const MESSAGE: &[u8] = b"hello, ";
    let (received, echoed) = (Log::<(u16, usize)>::default(), Log::<(u16, usize)>::default());
    let (answers, echoes) = (received.clone(), echoed.clone());
    sim::check_after(async move {
        for (port, bytes) in entries(&answers) {
            let echo = entries(&echoes).into_iter().find(|(to, _)| *to == port);
            assert!(echo.is_none_or(|(_, sent)| sent >= bytes), "{port}: {bytes} of {echo:?}");
        }
    });
    let listener = TcpListener::bind("10.0.0.1:7").await?;
    let accepting = dapple::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((mut stream, peer)) = listener.accept().await {
            let echoed = echoed.clone();
            connections.push(dapple::spawn(async move {
                let (reader, writer) = stream.split();
                let copied = copy(reader, writer).await;
                let count = copied.as_ref().map_or_else(|error| how_far(error).unwrap(), |count| *count);
                note(&echoed, (peer.port(), count as usize));
                copied
            }));
        }
        connections
    });
    let client = |_| {
        let received = received.clone();
        dapple::spawn(async move {
            let mut stream = TcpStream::connect("10.0.0.1:7").await?;
            let (port, mut count) = (stream.local_addr()?.port(), 0);
            for _ in 0..3 {
                stream.write_all(MESSAGE).await?;
                let mut echo = [0; MESSAGE.len()];
                let read = stream.read_exact(&mut echo).await;
                let length =
                    read.as_ref().map_or_else(|error| how_far(error).unwrap() as usize, |()| echo.len());
                assert_eq!(echo[..length], MESSAGE[..length]);
                count += length;
                if read.is_err() {
                    note(&received, (port, count));
                    return read;
                }
            }
            note(&received, (port, count));
            Ok(())
        })
    };
    join((0..2).map(client).collect()).await?;
    accepting.cancel();
    join(accepting.await?).await?;
    // The port is free, since the listener is gone: nothing is left of the server.
    TcpListener::bind("10.0.0.1:7").await?;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_proxy_knows_which_bytes_it_has_passed_on() -> Result<(), Anything> {
    let request: Vec<u8> = (0..40).collect();
    let (arrived, passed) = (Log::<Vec<u8>>::default(), Log::<(u64, Vec<u8>)>::default());
    let (got, proxied, sent) = (arrived.clone(), passed.clone(), request.clone());
    sim::check_after(async move {
        let (got, proxied) = (entries(&got), entries(&proxied));
        for (done, rest) in &proxied {
            let done = *done as usize;
            assert_eq!(sent[done..done + rest.len()], rest[..], "the rest comes next");
        }
        if let ([got], [(done, _)]) = (&got[..], &proxied[..]) {
            assert_eq!(sent[..*done as usize], got[..], "the server has the bytes that were passed on");
        }
        assert!(got.iter().all(|got| sent.starts_with(got)), "{got:?}");
    });
    let listener = TcpListener::bind("10.0.0.1:80").await?;
    let server = dapple::spawn(async move {
        let mut stream = listener.accept().await?.0;
        let mut request = Vec::new();
        let read = stream.read_to_end(&mut request).await;
        if read.is_ok() {
            note(&arrived, request.clone());
        }
        read?;
        request.reverse();
        stream.write_all(&request).await
    });
    let listener = TcpListener::bind("10.0.0.2:80").await?;
    let proxy = dapple::spawn(async move {
        let client = listener.accept().await?.0;
        let server = TcpStream::connect("10.0.0.1:80").await?;
        let copied = copy_bidirectional(client, server).await;
        let entry = match &copied {
            Ok((done, _)) => (*done, Vec::new()),
            Err(error) => {
                Partial::of(error).map(|partial| (partial.done(), partial.rest().to_vec())).unwrap()
            }
        };
        note(&passed, entry);
        copied.map(drop)
    });
    let client = dapple::spawn(async move {
        let mut stream = TcpStream::connect("10.0.0.2:80").await?;
        stream.write_all(&request).await?;
        stream.close().await?;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        let reversed: Vec<u8> = (0..40).rev().collect();
        assert!(reversed.starts_with(&answer), "{answer:?}");
        read.map(drop)
    });
    join(vec![client, proxy, server]).await
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_request_that_is_sent_again_is_applied_once() -> Result<(), Anything> {
    let (applied, acknowledged) = (Log::<String>::default(), Log::<String>::default());
    let (done, known) = (applied.clone(), acknowledged.clone());
    sim::check_after(async move {
        let done = entries(&done);
        assert!(entries(&known).iter().all(|key| done.contains(key)), "acknowledged, and not applied");
        let mut keys = done.clone();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), done.len(), "applied twice: {done:?}");
    });
    let listener = TcpListener::bind("10.0.0.1:90").await?;
    let server = dapple::spawn(async move {
        for connection in 0.. {
            let stream = listener.accept().await?.0;
            let applied = applied.clone();
            dapple::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut key = String::new();
                if stream.read_line(&mut key).await? == 0 || !key.ends_with('\n') {
                    return Ok(()); // cut short
                }
                if !entries(&applied).contains(&key) {
                    note(&applied, key.clone());
                }
                // Every other connection breaks before the answer.
                if connection % 2 == 1 { stream.get_mut().write_all(key.as_bytes()).await } else { Ok(()) }
            })
            .detach();
        }
        Ok(())
    });
    async fn attempt(key: &str) -> io::Result<bool> {
        let mut stream = TcpStream::connect("10.0.0.1:90").await?;
        stream.write_all(key.as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await?;
        Ok(answer == key)
    }
    for key in ["one\n", "two\n"] {
        for _ in 0..4 {
            let tried = timeout(10 * STEP, attempt(key)).await;
            match tried.unwrap_or_else(|late| late.into_inner().unwrap()) {
                Ok(true) => {
                    note(&acknowledged, key.to_owned());
                    break;
                }
                Ok(false) => {}
                Err(error) if is_gone(&error) => sleep(STEP).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }
    server.cancel();
    match server.await? {
        Err(error) if is_cancelled(&error) => Ok(()),
        other => Ok(other?),
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Vote {
    Prepared,
    Committed,
    Aborted,
}

/// Takes part in transactions until its connection ends.
async fn participant(listener: TcpListener, votes: Arc<Mutex<BTreeMap<u8, Vote>>>) -> io::Result<()> {
    let set = |number, vote| votes.lock().unwrap().insert(number, vote);
    let mut stream = listener.accept().await?.0;
    loop {
        let mut message = [0; 2];
        stream.read_exact(&mut message).await?; // in doubt, if the connection ends: recovery decides
        match message {
            [b'p', number] => {
                set(number, Vote::Prepared);
                stream.write_all(&[b'y', number]).await?;
            }
            [b'c', number] => {
                assert_eq!(set(number, Vote::Committed), Some(Vote::Prepared));
                stream.write_all(&[b'a', number]).await?;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_two_phase_commit_is_done_by_all_or_by_none() -> Result<(), Anything> {
    let votes: [Arc<Mutex<BTreeMap<u8, Vote>>>; 2] = Default::default();
    let (decided, acknowledged) = (Log::<u8>::default(), Log::<u8>::default());
    let (all, commits, told) = (votes.clone(), decided.clone(), acknowledged.clone());
    sim::check_after(async move {
        let commits = entries(&commits);
        let before = all.each_ref().map(|votes| votes.lock().unwrap().clone());
        for number in entries(&told) {
            let is_done = |votes: &BTreeMap<u8, Vote>| votes.get(&number) == Some(&Vote::Committed);
            assert!(before.iter().all(is_done), "{number} was acknowledged: {before:?}");
        }
        // Recovery: the log of the coordinator decides, and without an entry it is an abort.
        let recovered = before.clone().map(|mut votes| {
            for (number, vote) in &mut votes {
                let is_in_doubt = *vote == Vote::Prepared;
                let decision = if commits.contains(number) { Vote::Committed } else { Vote::Aborted };
                *vote = if is_in_doubt { decision } else { *vote };
            }
            votes.retain(|_, vote| *vote == Vote::Committed);
            votes
        });
        assert_eq!(recovered[0], recovered[1], "{before:?}, decided {commits:?}");
        assert!(recovered[0].keys().eq(&commits), "{recovered:?}, decided {commits:?}");
    });
    let (mut streams, mut tasks) = (Vec::new(), Vec::new());
    for (number, votes) in votes.into_iter().enumerate() {
        let address = format!("10.0.1.{number}:70");
        let listener = TcpListener::bind(&address).await?;
        tasks.push(dapple::spawn(participant(listener, votes)));
        streams.extend(unless_gone(TcpStream::connect(&address).await)?);
    }
    let ask = async |streams: &mut [TcpStream], message: u8, answer: u8, number: u8| {
        for stream in &mut *streams {
            stream.write_all(&[message, number]).await?;
        }
        let mut answers = 0;
        for stream in streams {
            let mut reply = [0; 2];
            stream.read_exact(&mut reply).await?;
            answers += usize::from(reply == [answer, number]);
        }
        Ok::<_, io::Error>(answers == 2)
    };
    for number in 0..2 {
        let coordinate = async {
            if ask(&mut streams, b'p', b'y', number).await? {
                note(&decided, number);
                if ask(&mut streams, b'c', b'a', number).await? {
                    note(&acknowledged, number);
                }
            }
            Ok(())
        };
        if unless_gone(coordinate.await)?.is_none() {
            break; // recovery aborts transactions without a decision, and commits the others
        }
    }
    drop(streams);
    join(tasks).await
}

/// Connections that are used again, unless an answer is still to come.
struct Pool {
    permits: Semaphore,
    idle: Mutex<Vec<TcpStream>>,
}

impl Pool {
    async fn request(&self, number: u8) -> Result<u8, Anything> {
        let _permit = self.permits.acquire().await?;
        let idle = self.idle.lock().unwrap().pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => TcpStream::connect("10.0.0.1:60").await?,
        };
        // Until the answer has come, the connection is dropped with this future.
        stream.write_all(&[number]).await?;
        let answer = stream.read_u8().await?;
        self.idle.lock().unwrap().push(stream);
        Ok(answer)
    }
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn a_pooled_connection_never_gives_the_answer_to_another_request() -> Result<(), Anything> {
    let pool = Arc::new(Pool { permits: Semaphore::new(2), idle: Mutex::default() });
    let after = pool.clone();
    sim::check_after(async move {
        assert_eq!(after.permits.available_permits(), 2, "a permit is gone");
        assert!(after.idle.lock().unwrap().len() <= 2);
    });
    let listener = TcpListener::bind("10.0.0.1:60").await?;
    let server = dapple::spawn(async move {
        loop {
            let mut stream = listener.accept().await?.0;
            dapple::spawn(async move {
                loop {
                    let number = stream.read_u8().await?;
                    sleep(STEP * u32::from(number % 3) * 4).await?; // slow, now and then
                    stream.write_u8(number).await?;
                }
                #[expect(unreachable_code, reason = "names the type of the error")]
                io::Result::Ok(())
            })
            .detach();
        }
        #[expect(unreachable_code, reason = "names the type of the error")]
        io::Result::Ok(())
    });
    let client = |first: u8| {
        let pool = pool.clone();
        dapple::spawn(async move {
            for number in first..first + 3 {
                match timeout(6 * STEP, pool.request(number)).await {
                    Ok(Ok(answer)) => assert_eq!(answer, number, "the answer to another request"),
                    Ok(Err(error)) => match error.downcast_ref::<io::Error>() {
                        Some(error) if is_gone(error) => {}
                        _ => return Err(error),
                    },
                    Err(_late) => {} // the next request takes another connection
                }
            }
            Ok::<(), Anything>(())
        })
    };
    for client in [10, 20, 30].map(client) {
        client.await??;
    }
    server.cancel();
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, workers = 2)]
async fn an_upload_is_stored_whole_or_not_at_all() -> Result<(), Anything> {
    fn file(number: u8) -> Vec<u8> {
        (0..12).map(|byte| byte * number).collect()
    }
    let (stored, acknowledged) = (Arc::new(Mutex::new(BTreeMap::new())), Log::<u8>::default());
    let (files, known) = (stored.clone(), acknowledged.clone());
    sim::check_after(async move {
        let files = files.lock().unwrap();
        assert!(files.iter().all(|(number, bytes)| *bytes == file(*number)), "{files:?}");
        assert!(
            entries(&known).iter().all(|number| files.contains_key(number)),
            "acknowledged, and not stored"
        );
    });
    let listener = TcpListener::bind("10.0.0.1:50").await?;
    let server = dapple::spawn(async move {
        let mut stream = listener.accept().await?.0;
        for _ in 0..2 {
            let (number, length) = (stream.read_u8().await?, stream.read_u16().await?);
            let mut bytes = vec![0; length.into()];
            if let Err(error) = stream.read_exact(&mut bytes).await {
                let done = how_far(&error).unwrap() as usize;
                assert_eq!(bytes[..done], file(number)[..done], "a cut read has the beginning of the file");
                return Err(error);
            }
            stored.lock().unwrap().insert(number, bytes);
            stream.write_u8(number).await?;
        }
        Ok(())
    });
    let client = async {
        let mut stream = TcpStream::connect("10.0.0.1:50").await?;
        for number in [3, 7] {
            let bytes = file(number);
            stream.write_u8(number).await?;
            stream.write_u16(bytes.len() as u16).await?;
            stream.write_all(&bytes).await?;
            assert_eq!(stream.read_u8().await?, number);
            note(&acknowledged, number);
        }
        Ok(())
    };
    unless_gone(client.await)?;
    join(vec![server]).await
}

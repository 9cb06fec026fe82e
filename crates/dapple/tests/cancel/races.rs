//! Races in loops: each message, permit, notification and byte is received once, or is still there.

use std::sync::Arc;

use dapple::channel::mpsc;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::check_after;
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sync::{Notify, Semaphore};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, finish, race, spawn};

use crate::Anything;
use crate::ledger::{Kept, Ledger, Left, keep, next, send_noted, sorted};

const MS: Duration = Duration::from_millis(1);
const STEP: Duration = Duration::from_micros(500);

/// A racer that wins with nothing, after a while.
async fn tick<T>(after: Duration) -> Result<Option<T>, Cancelled> {
    sleep(after).await.map(|()| None)
}

/// Sends five messages, numbered from `first`, at the times at which [`tick`]s win.
async fn send(sender: mpsc::Sender<u32>, first: u32, sent: Ledger<u32>) -> Result<(), Cancelled> {
    for message in first..first + 5 {
        sleep(MS * (message % 3)).await?;
        send_noted(&sender, message, &sent).await?;
    }
    Ok(())
}

/// After the program: each message that was sent has been received once, or is still there.
fn check_once(sent: &Ledger<u32>, received: &Ledger<u32>, left: Vec<Left<u32>>) {
    let (sent, received) = (sent.clone(), received.clone());
    check_after(async move {
        let mut all: Vec<_> = left.iter().map(Left::drain).collect();
        all.push(received.list());
        assert_eq!(sorted(&all), sorted(&[sent.list()]), "sent, against received and left");
    });
}

/// A receiver that is raced until it is closed.
struct Source {
    receiver: Kept<u32>,
    is_open: bool,
}

impl Source {
    fn new() -> (mpsc::Sender<u32>, Source, Left<u32>) {
        let (sender, receiver) = mpsc::bounded(1);
        let (receiver, left) = keep(receiver);
        (sender, Source { receiver, is_open: true }, left)
    }

    /// A racer: the next message; `None` if it was the last. A source that is closed wins with nothing, after a while.
    async fn message(&mut self) -> Result<Option<u32>, Cancelled> {
        if !self.is_open {
            return tick(MS).await;
        }
        let message = next(&mut self.receiver).await?;
        self.is_open = message.is_some();
        Ok(message)
    }
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn a_receiver_raced_against_time_receives_each_message_once() -> Result<(), Anything> {
    let (sender, mut source, left) = Source::new();
    let (sent, received) = (Ledger::new(), Ledger::new());
    check_once(&sent, &received, vec![left]);
    let sends = spawn(send(sender, 0, sent.clone()));
    while source.is_open {
        if let Some(message) = race((source.message(), tick(MS))).await? {
            received.add(message);
        }
    }
    sends.await??;
    assert_eq!(received.list(), sent.list());
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn two_receivers_raced_receive_each_message_once() -> Result<(), Anything> {
    let ((to_first, mut first, left_first), (to_second, mut second, left_second)) =
        (Source::new(), Source::new());
    let (sent, received) = (Ledger::new(), Ledger::new());
    check_once(&sent, &received, vec![left_first, left_second]);
    let sends = [spawn(send(to_first, 0, sent.clone())), spawn(send(to_second, 100, sent.clone()))];
    while first.is_open || second.is_open {
        // Both can be ready at once: the loser's message stays where it is.
        if let Some(message) = race((first.message(), second.message(), tick(MS))).await? {
            received.add(message);
        }
    }
    for sends in sends {
        sends.await??;
    }
    assert_eq!(received.len(), sent.len());
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn permits_raced_against_time_come_back() -> Result<(), Anything> {
    let permits = Arc::new(Semaphore::new(2));
    check_after({
        let permits = permits.clone();
        async move { assert_eq!(permits.available_permits(), 2, "permits after all tasks have ended") }
    });
    let tasks: Vec<_> = (0..4)
        .map(|of| {
            let permits = permits.clone();
            spawn(async move {
                for _ in 0..3 {
                    let taken = race((
                        async { permits.acquire().await.map(Some).map_err(|_| Cancelled) },
                        tick(STEP * (of + 1)),
                    ))
                    .await?;
                    if let Some(_permit) = taken {
                        sleep(MS).await?;
                    }
                }
                Ok::<_, Cancelled>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 3)]
async fn notifications_raced_against_time_are_heard_once() -> Result<(), Anything> {
    let (rings, heard) = (Arc::new(Notify::new()), Ledger::new());
    let sent = Ledger::new();
    check_after({
        let (rings, sent, heard) = (rings.clone(), sent.clone(), heard.clone());
        async move {
            let is_left = timeout(MS, rings.notified()).await.is_ok_and(|heard| heard.is_ok());
            assert_eq!(heard.len() + usize::from(is_left), sent.len(), "heard and left, against sent");
        }
    });
    let sends = spawn({
        let (rings, sent, heard) = (rings.clone(), sent.clone(), heard.clone());
        async move {
            for number in 0..5 {
                sleep(MS).await?;
                if heard.len() == number {
                    sent.add(number);
                    rings.notify_one(); // two pending notifications would merge into one
                }
            }
            Ok::<_, Cancelled>(())
        }
    });
    for _ in 0..20 {
        let rang = race((async { rings.notified().await.map(Some) }, tick(STEP))).await?;
        if rang.is_some() {
            heard.add(heard.len());
        }
    }
    sends.await??;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2, allow_errors)]
async fn bytes_of_a_socket_raced_against_time_arrive_in_order() -> Result<(), Anything> {
    let received = Ledger::new();
    check_after({
        let received = received.clone();
        async move {
            let list: Vec<u8> = received.list();
            assert_eq!(list, (0..list.len() as u8).collect::<Vec<_>>(), "a byte was lost, or came twice");
        }
    });
    let listener = TcpListener::bind("10.0.0.1:7").await?;
    let writes = spawn(async {
        let mut stream = TcpStream::connect("10.0.0.1:7").await?;
        for byte in 0..8 {
            sleep(STEP * (u32::from(byte) % 3)).await?;
            stream.write_all(&[byte]).await?;
        }
        stream.close().await
    });
    // A writer that was cancelled before it connected never comes.
    let (mut stream, _) = timeout(MS * 50, listener.accept()).await??;
    let mut is_open = true;
    while is_open {
        let mut byte = [0];
        let reads = async { stream.read(&mut byte).await.map(Some) };
        let ticks = async { sleep(STEP).await.map(|()| None).map_err(std::io::Error::from) };
        if let Some(count) = race((reads, ticks)).await? {
            is_open = count > 0;
            received.add_all(byte.into_iter().take(count));
        }
    }
    writes.await??;
    assert_eq!(received.len(), 8);
    Ok(())
}

/// A race around a scope, a `timeout` and another race: each receives from a channel of its own. A loser that has a
/// message in its hands notes it itself.
#[dapple::test(cancel_everywhere, seeds = 3)]
async fn races_around_scopes_timeouts_and_races_lose_nothing() -> Result<(), Anything> {
    let (to_scope, mut in_scope, left_scope) = Source::new();
    let (to_timeout, mut in_timeout, left_timeout) = Source::new();
    let (to_race, mut in_race, left_race) = Source::new();
    let (sent, received) = (Ledger::new(), Ledger::new());
    check_once(&sent, &received, vec![left_scope, left_timeout, left_race]);
    let sends = [(to_scope, 0), (to_timeout, 100), (to_race, 200)]
        .map(|(sender, first)| spawn(send(sender, first, sent.clone())));
    while in_scope.is_open || in_timeout.is_open || in_race.is_open {
        let note = |message: Option<u32>| message.inspect(|message| received.add(*message));
        let scope = finish(async |scope| scope.start(in_scope.message()).await.map(note));
        let limited = async {
            match timeout(STEP, in_timeout.message()).await {
                Ok(got) => got.map(note),
                Err(late) => late.into_inner().expect("a wait of this crate returns").map(note).or(Ok(None)),
            }
        };
        let raced = async { race((in_race.message(), tick(STEP))).await.map(note) };
        race((scope, limited, raced)).await?;
        sleep(STEP).await?;
    }
    for sends in sends {
        sends.await??;
    }
    assert_eq!(received.len(), sent.len());
    Ok(())
}

/// References to handles are raced again and again, until the tasks have ended: each result is taken once.
#[dapple::test(cancel_everywhere, seeds = 3)]
async fn references_raced_in_a_loop_give_each_result_once() -> Result<(), Anything> {
    let (returned, taken) = (Ledger::new(), Ledger::new());
    check_after({
        let (returned, taken) = (returned.clone(), taken.clone());
        async move {
            let (taken, returned) = (taken.list(), returned.list());
            assert!(taken.iter().all(|number| returned.contains(number)), "a result of no task");
            assert!(sorted(&[taken]).windows(2).all(|two| two[0] != two[1]), "a result was taken twice");
        }
    });
    let mut tasks = [2, 4].map(|number: u32| {
        let returned = returned.clone();
        spawn(async move {
            let _ = sleep(MS * number).await;
            returned.add(number);
            number
        })
    });
    let mut is_left = [true; 2];
    while is_left.contains(&true) {
        let [first, second] = &mut tasks;
        let ticks = async { sleep(STEP).await.map(|()| None) };
        let of = async |task: &mut dapple::JoinHandle<u32>, is_left: bool| match is_left {
            true => match task.await {
                Ok(number) => Ok(Some(number)),
                Err(error) if error.is_cancelled() => Err(Cancelled),
                Err(_) => Err(Cancelled), // the task was dropped
            },
            false => tick(MS).await,
        };
        if let Some(number) = race((of(first, is_left[0]), of(second, is_left[1]), ticks)).await? {
            taken.add(number);
            is_left[number as usize / 2 - 1] = false;
        }
    }
    assert_eq!(sorted(&[taken.list()]), [2, 4]);
    Ok(())
}

//! Random programs over `mpmc` and `MVar`: tasks that send, receive, give up, are cancelled or dropped in the midst of a
//! wait, by seed. Each message is in one place in the end: with the one that received it, with its sender, or dropped with
//! the wait that had it. No task sleeps while there is a message for it, or room, or the simulation reports a deadlock.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use dapple::channel::mpmc;
use dapple::sim::Sim;
use dapple::sync::MVar;
use dapple::task::yield_now;
use dapple::time::{sleep, timeout};
use dapple::{race, spawn};
use futures_util::StreamExt;

/// Numbers that follow from a seed.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// For a task of its own.
    fn another(&mut self) -> Dice {
        Dice(self.below(u64::MAX) ^ 0x9E37_79B9_7F4A_7C15)
    }

    fn a_while(&mut self) -> Duration {
        Duration::from_nanos(self.below(3_000))
    }
}

/// Messages that were made, and that are gone.
#[derive(Default)]
struct Books {
    made: AtomicUsize,
    gone: AtomicUsize,
    received: Mutex<Vec<usize>>,
    returned: Mutex<Vec<usize>>,
    /// Dropped elsewhere: with a wait, or with the channel.
    dropped: Mutex<Vec<usize>>,
}

struct Message {
    number: usize,
    is_in_books: bool,
    books: Arc<Books>,
}

impl Books {
    fn message(self: &Arc<Books>) -> Message {
        let number = self.made.fetch_add(1, SeqCst);
        Message { number, is_in_books: false, books: self.clone() }
    }

    fn receive(&self, mut message: Message) {
        message.is_in_books = true;
        self.received.lock().unwrap().push(message.number);
    }

    fn take_back(&self, mut message: Message) {
        message.is_in_books = true;
        self.returned.lock().unwrap().push(message.number);
    }

    /// Each message that was made is in one place.
    fn are_in_order(&self) {
        let mut all = self.received.lock().unwrap().clone();
        all.extend(self.returned.lock().unwrap().iter());
        all.extend(self.dropped.lock().unwrap().iter());
        all.sort_unstable();
        let made = self.made.load(SeqCst);
        assert_eq!(all, (0..made).collect::<Vec<_>>(), "lost, or doubled");
        assert_eq!(self.gone.load(SeqCst), made, "leaked, or dropped twice");
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.books.gone.fetch_add(1, SeqCst);
        if !self.is_in_books {
            self.books.dropped.lock().unwrap().push(self.number);
        }
    }
}

/// Polls a wait once, and drops it.
async fn begins(wait: impl Future) {
    let _result = pin!(wait).as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

async fn sends(mut dice: Dice, books: Arc<Books>, sender: mpmc::Sender<Message>) {
    for _ in 0..8 {
        let message = books.message();
        match dice.below(7) {
            0 => {
                if let Err(refused) = sender.try_send(message) {
                    books.take_back(refused.into_inner());
                }
            }
            1 => begins(sender.send(message)).await,
            2 => match timeout(dice.a_while(), sender.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(refused)) => books.take_back(refused.into_inner()),
                Err(late) => {
                    if let Some(Err(refused)) = late.into_inner() {
                        books.take_back(refused.into_inner());
                    }
                }
            },
            3 => drop(race((sender.send(message), sender.send(books.message()))).await),
            4 => {
                let wait = spawn({
                    let sender = sender.clone();
                    async move { drop(sender.send(message).await) }
                });
                sleep(dice.a_while()).await.unwrap();
                wait.abort();
                let _ended = wait.await;
            }
            _ => {
                if let Err(refused) = sender.send(message).await {
                    books.take_back(refused.into_inner());
                }
            }
        }
        if dice.below(3) == 0 {
            sleep(dice.a_while()).await.unwrap();
        }
    }
}

/// Until the channel is closed, or it leaves.
async fn receives(mut dice: Dice, books: Arc<Books>, receiver: mpmc::Receiver<Message>, stays: bool) {
    for round in 0.. {
        if !stays && round > 6 {
            return;
        }
        let got = match dice.below(7) {
            0 => receiver.try_recv().ok(),
            1 => {
                // The wait may have received something, which goes with it.
                begins(receiver.recv()).await;
                None
            }
            2 => match timeout(dice.a_while(), receiver.recv()).await {
                Ok(got) => got.ok(),
                Err(late) => late.into_inner().and_then(Result::ok),
            },
            3 => race((receiver.recv(), receiver.recv())).await.ok(),
            4 => {
                // A clone of its own, as a stream, is gone before the next round.
                let mut stream = receiver.clone();
                match timeout(dice.a_while(), stream.next()).await {
                    Ok(got) => got.and_then(Result::ok),
                    Err(late) => late.into_inner().flatten().and_then(Result::ok),
                }
            }
            _ => match receiver.recv().await {
                Ok(message) => Some(message),
                Err(error) => {
                    assert!(error.is_closed());
                    return;
                }
            },
        };
        got.into_iter().for_each(|message| books.receive(message));
        yield_now().await;
    }
}

async fn mpmc_program(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 5);
    let books = Arc::new(Books::default());
    let (sender, receiver) = mpmc::bounded(1 + dice.below(4) as usize);
    let mut tasks = Vec::new();
    for number in 0..1 + dice.below(4) {
        tasks.push(spawn(receives(dice.another(), books.clone(), receiver.clone(), number == 0)));
    }
    for _ in 0..1 + dice.below(4) {
        tasks.push(spawn(sends(dice.another(), books.clone(), sender.clone())));
    }
    match dice.below(4) {
        0 => {
            sleep(dice.a_while() * 4).await.unwrap();
            sender.close();
        }
        1 => {
            sleep(dice.a_while() * 4).await.unwrap();
            receiver.close();
        }
        _ => {}
    }
    drop((sender, receiver));
    for task in tasks {
        task.await.unwrap();
    }
    books.are_in_order();
}

#[test]
fn each_message_of_an_mpmc_is_in_one_place() {
    for seed in 0..600 {
        Sim::new(seed).workers(1 + (seed % 3) as usize).run(mpmc_program(seed));
    }
}

async fn puts(mut dice: Dice, books: Arc<Books>, place: Arc<MVar<Message>>) {
    for _ in 0..8 {
        let message = books.message();
        match dice.below(6) {
            0 => {
                if let Err(refused) = place.try_put(message) {
                    books.take_back(refused.into_inner());
                }
            }
            1 => begins(place.put(message)).await,
            2 => {
                if let Err(late) = timeout(dice.a_while(), place.put(message)).await
                    && let Some(Err(refused)) = late.into_inner()
                {
                    books.take_back(refused.into_inner());
                }
            }
            3 => drop(race((place.put(message), place.put(books.message()))).await),
            _ => place.put(message).await.unwrap(),
        }
    }
}

async fn takes(mut dice: Dice, books: Arc<Books>, place: Arc<MVar<Message>>) {
    loop {
        let got = match dice.below(8) {
            0 => place.try_take(),
            1 => {
                begins(place.take()).await;
                None
            }
            2 => match timeout(dice.a_while(), place.take()).await {
                Ok(got) => got.ok(),
                Err(late) => late.into_inner().and_then(Result::ok),
            },
            3 => race((place.take(), place.take())).await.ok(),
            4 => {
                begins(place.with(|message| message.number)).await;
                None
            }
            5 => {
                let panics = spawn({
                    let place = place.clone();
                    async move { place.with(|_| resume_unwind(Box::new("inside"))).await }
                });
                sleep(dice.a_while()).await.unwrap();
                panics.abort();
                drop(panics.await);
                None
            }
            _ => Some(place.take().await.unwrap()),
        };
        got.into_iter().for_each(|message| books.receive(message));
        yield_now().await;
    }
}

async fn mvar_program(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 3);
    let books = Arc::new(Books::default());
    let place = Arc::new(MVar::empty());
    let takers: Vec<_> =
        (0..1 + dice.below(3)).map(|_| spawn(takes(dice.another(), books.clone(), place.clone()))).collect();
    let putters: Vec<_> =
        (0..1 + dice.below(4)).map(|_| spawn(puts(dice.another(), books.clone(), place.clone()))).collect();
    for putter in putters {
        putter.await.unwrap(); // none sleeps while takers empty it
    }
    for taker in takers {
        taker.abort();
        drop(taker.await);
    }
    drop(place);
    books.are_in_order();
}

#[test]
fn each_value_of_an_mvar_is_in_one_place() {
    for seed in 0..300 {
        Sim::new(seed).workers(1 + (seed % 3) as usize).run(mvar_program(seed));
    }
}

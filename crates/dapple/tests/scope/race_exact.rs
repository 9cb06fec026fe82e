//! A race loses nothing: a loser that has taken nothing takes nothing any more. Whatever arrives while a race is being
//! decided is received by a later wait, once.
//!
//! In virtual time, over many seeds: times are whole milliseconds, so that both sides of a race are often ready in the
//! very same poll.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use dapple::channel::{mpsc, oneshot, watch};
use dapple::io::{AsyncReadExt, AsyncWriteExt, duplex};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::sim::{Sim, work};
use dapple::sync::{Condvar, Mutex, Notify, Semaphore};
use dapple::time::{Duration, Instant, interval, sleep, timeout};
use dapple::{Cancelled, finish, finish_local, race, shield, spawn, suspend};

pub(super) const MS: Duration = Duration::from_millis(1);
const SEEDS: u64 = 100;
const ITEMS: u32 = 40;
/// More rounds than any of the programs needs: something was lost, and is waited for in vain.
pub(super) const ROUNDS: u32 = 4000;

/// Small random numbers.
pub(super) struct Dice(Cell<u64>);

impl Dice {
    fn below(&self, n: u32) -> u32 {
        let next =
            self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(next);
        (next >> 33) as u32 % n
    }

    /// Races `take` against a short time, in either order, directly or in other scopes. `None`: the time won.
    pub(super) async fn race<T>(&self, take: impl Future<Output = Option<T>>) -> Option<T> {
        let time = MS * self.below(3);
        let late = async {
            sleep(time).await.ok();
            None
        };
        // Works in the poll of the race: meanwhile the time runs out, and something arrives.
        let busy = async {
            if sleep(MS / 4).await.is_ok() {
                work(MS * self.below(4));
            }
            sleep(MS * 100_000).await.ok().and(None)
        };
        match self.below(5) {
            0 => race((busy, take, late)).await,
            1 => race((busy, late, async { finish_local(async |s| s.start(take).await).await })).await,
            2 => race((busy, late, async { timeout(MS * 100_000, take).await.ok().flatten() })).await,
            3 => {
                race((race((busy, late)), race((take, async { sleep(MS * 100_000).await.ok().and(None) }))))
                    .await
            }
            _ => race((busy, late, take)).await,
        }
    }
}

/// Runs a program with many seeds.
pub(super) fn with_seeds<F: Future<Output = ()> + 'static>(
    program: impl Fn(Rc<Dice>) -> F + 'static + Clone,
) {
    for seed in 0..SEEDS {
        let program = program.clone();
        Sim::new(seed).run(async move {
            let dice = Dice(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xda99));
            program(Rc::new(dice)).await;
        });
    }
}

/// Takes again and again until all items have come: they come once, in their order.
macro_rules! receives_all {
    ($dice:ident, $take:expr) => {
        let (mut next, mut rounds) = (0, 0);
        while next < ITEMS {
            if let Some(item) = $dice.race(async { $take.await.ok() }).await {
                assert_eq!(u32::from(item), next, "lost, or received twice");
                next += 1;
            }
            rounds += 1;
            assert!(rounds < ROUNDS, "item {next} was lost");
        }
    };
}

#[test]
fn messages_of_a_channel() {
    with_seeds(async |dice: Rc<Dice>| {
        let (sender, mut receiver) = mpsc::bounded(2);
        let sends = spawn(async move {
            for item in 0..ITEMS {
                sleep(MS * (item * 7 % 3)).await.unwrap();
                sender.send(item).await.unwrap();
            }
        });
        receives_all!(dice, receiver.recv());
        sends.await.unwrap();
        assert!(receiver.recv().await.is_err(), "more than was sent");
    });
}

#[test]
fn a_message_that_is_sent_in_a_race_is_sent_once() {
    with_seeds(async |dice: Rc<Dice>| {
        let (sender, mut receiver) = mpsc::bounded(1);
        let receives = spawn(async move {
            for item in 0..ITEMS {
                sleep(MS * (item * 7 % 4)).await.unwrap();
                assert_eq!(receiver.recv().await, Ok(item), "sent by a loser");
            }
            assert!(receiver.recv().await.is_err(), "sent twice");
        });
        for item in 0..ITEMS {
            let mut rounds = 0;
            while dice.race(async { sender.send(item).await.ok() }).await.is_none() {
                rounds += 1;
                assert!(rounds < ROUNDS, "there was never room");
            }
        }
        drop(sender);
        receives.await.unwrap();
    });
}

#[test]
fn values_of_oneshots() {
    with_seeds(async |dice: Rc<Dice>| {
        for item in 0..ITEMS / 4 {
            let (sender, mut receiver) = oneshot::channel();
            let sends = spawn(async move {
                sleep(MS * (item % 4)).await.unwrap();
                sender.send(item).unwrap();
            });
            let mut rounds = 0;
            loop {
                if let Some(value) = dice.race(async { (&mut receiver).await.ok() }).await {
                    break assert_eq!(value, item);
                }
                rounds += 1;
                assert!(rounds < ROUNDS, "the value was lost");
            }
            sends.await.unwrap();
        }
    });
}

#[test]
fn results_of_tasks() {
    with_seeds(async |dice: Rc<Dice>| {
        for item in 0..ITEMS / 4 {
            let mut task = spawn(async move { sleep(MS * (item % 4)).await.map(|()| item) });
            let mut rounds = 0;
            loop {
                let joined = dice.race(async { (&mut task).await.ok() }).await;
                if let Some(value) = joined {
                    break assert_eq!(value, Ok(item));
                }
                assert!(task.task().is_some(), "the result was taken by a loser");
                rounds += 1;
                assert!(rounds < ROUNDS, "the result was lost");
            }
        }
    });
}

#[test]
fn changes_of_a_watched_value() {
    with_seeds(async |dice: Rc<Dice>| {
        let (sender, mut receiver) = watch::channel(0);
        let sends = spawn(async move {
            for value in 1..=ITEMS {
                sleep(MS * (value % 4)).await.unwrap();
                sender.send(value).unwrap();
            }
            sleep(MS * 10_000).await.unwrap();
        });
        let mut rounds = 0;
        loop {
            if dice.race(async { receiver.changed().await.ok() }).await.is_some()
                && *receiver.borrow_and_update() == ITEMS
            {
                break;
            }
            rounds += 1;
            assert!(rounds < ROUNDS, "a change was seen by a loser");
        }
        sends.abort();
    });
}

#[test]
fn notifications() {
    with_seeds(async |dice: Rc<Dice>| {
        let (notify, heard) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let tells = spawn({
            let (notify, heard) = (notify.clone(), heard.clone());
            async move {
                for item in 0..ITEMS {
                    sleep(MS * (item % 4)).await.unwrap();
                    notify.notify_one();
                    heard.notified().await.unwrap();
                }
            }
        });
        for item in 0..ITEMS {
            let mut rounds = 0;
            while dice.race(async { notify.notified().await.ok() }).await.is_none() {
                rounds += 1;
                assert!(rounds < ROUNDS, "notification {item} was lost");
            }
            heard.notify_one();
        }
        tells.await.unwrap();
    });
}

#[test]
fn bytes_of_a_duplex_pipe() {
    with_seeds(async |dice: Rc<Dice>| {
        let (mut near, mut far) = duplex(2);
        let writes = spawn(async move {
            for item in 0..ITEMS {
                sleep(MS * (item * 5 % 3)).await.unwrap();
                near.write_all(&[item as u8]).await.unwrap();
            }
            near
        });
        let mut one = [0];
        receives_all!(dice, async {
            let n = far.read(&mut one).await?;
            assert_eq!(n, 1);
            Ok::<_, std::io::Error>(one[0])
        });
        drop(writes.await.unwrap());
        assert_eq!(far.read(&mut one).await.unwrap(), 0);
    });
}

#[test]
fn bytes_of_sockets_and_connections() {
    with_seeds(async |dice: Rc<Dice>| {
        let listener = TcpListener::bind("10.0.0.1:7").await.unwrap();
        let connects = spawn(async {
            for item in 0..ITEMS {
                sleep(MS * (item % 3)).await.unwrap();
                let mut stream = TcpStream::connect("10.0.0.1:7").await.unwrap();
                stream.write_all(&[item as u8]).await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "closed without an answer");
            }
        });
        let mut one = [0];
        for item in 0..ITEMS {
            let mut rounds = 0;
            let mut stream = loop {
                if let Some((stream, _)) = dice.race(async { listener.accept().await.ok() }).await {
                    break stream;
                }
                rounds += 1;
                assert!(rounds < ROUNDS, "connection {item} was lost");
            };
            while dice.race(async { stream.read(&mut one).await.ok() }).await.is_none() {
                rounds += 1;
                assert!(rounds < ROUNDS, "the byte of connection {item} was lost");
            }
            assert_eq!(u32::from(one[0]), item);
        }
        connects.await.unwrap();
    });
}

#[test]
fn ticks() {
    with_seeds(async |dice: Rc<Dice>| {
        let begun = Instant::now();
        let mut ticks = interval(3 * MS);
        for item in 0..ITEMS {
            let mut rounds = 0;
            let tick = loop {
                if let Some(tick) = dice.race(async { ticks.tick().await.ok() }).await {
                    break tick;
                }
                rounds += 1;
                assert!(rounds < ROUNDS, "no tick came");
            };
            assert_eq!(tick.duration_since(begun), 3 * MS * item, "a tick was lost");
        }
    });
}

#[test]
fn a_permit_that_is_taken_for_good_is_taken_by_the_winner() {
    with_seeds(async |dice: Rc<Dice>| {
        let permits = Arc::new(Semaphore::new(0));
        let adds = spawn({
            let permits = permits.clone();
            async move {
                for item in 0..ITEMS {
                    sleep(MS * (item % 4)).await.unwrap();
                    permits.add_permits(1);
                }
            }
        });
        for item in 0..ITEMS {
            let mut rounds = 0;
            let take = async || permits.acquire().await.ok().map(dapple::sync::SemaphorePermit::forget);
            while dice.race(take()).await.is_none() {
                rounds += 1;
                assert!(rounds < ROUNDS, "permit {item} was lost");
            }
        }
        adds.await.unwrap();
        assert_eq!(permits.available_permits(), 0);
    });
}

#[test]
fn a_condition_that_a_loser_was_told_of_reaches_the_next() {
    for first_is_raced in [true, false] {
        Sim::new(0).run(async move {
            let (lock, condvar) = (Mutex::new(()), Condvar::new());
            finish(async |s| {
                let raced = s.start(async {
                    let late = async { sleep(2 * MS).await.is_err() };
                    let told = async { condvar.wait(lock.lock().await.unwrap()).await.1.is_ok() };
                    race((late, told)).await
                });
                let waits = s.start(async {
                    if first_is_raced {
                        sleep(MS).await.unwrap();
                    }
                    condvar.wait(lock.lock().await.unwrap()).await.1
                });
                // Notified in the poll in which the time is up: the raced wait has the notification, and has lost.
                sleep(2 * MS).await.unwrap();
                condvar.notify_one();
                assert!(!raced.await || !first_is_raced, "the loser has won");
                let passed_on = timeout(MS * 100, waits).await;
                if passed_on.is_err() {
                    condvar.notify_one();
                }
                assert!(passed_on.is_ok(), "{first_is_raced}: the notification was lost");
            })
            .await;
        });
    }
}

#[test]
fn two_that_are_ready_at_once_do_not_both_take() {
    with_seeds(async |dice: Rc<Dice>| {
        let (sender_a, mut a) = mpsc::bounded(100);
        let (sender_b, mut b) = mpsc::bounded(100);
        let sends = spawn(async move {
            for item in 0..ITEMS {
                sleep(MS * (item % 3)).await.unwrap();
                sender_a.try_send(item).unwrap();
                sender_b.try_send(item).unwrap();
            }
        });
        let (mut from_a, mut from_b) = (0, 0);
        while from_a + from_b < 2 * ITEMS {
            let in_a = async { a.recv().await.map(|item| (item, true)) };
            let in_b = async { b.recv().await.map(|item| (item, false)) };
            let turn = dice.below(2) == 0;
            let raced = if turn { race((in_a, in_b)).await } else { race((in_b, in_a)).await };
            match raced {
                Ok((item, true)) => {
                    assert_eq!(item, from_a, "a message of the first was lost");
                    from_a += 1;
                }
                Ok((item, false)) => {
                    assert_eq!(item, from_b, "a message of the second was lost");
                    from_b += 1;
                }
                Err(_) => break, // one has sent all
            }
        }
        sends.await.unwrap();
        from_a += std::iter::from_fn(|| a.try_recv().ok()).count() as u32;
        from_b += std::iter::from_fn(|| b.try_recv().ok()).count() as u32;
        assert_eq!((from_a, from_b), (ITEMS, ITEMS), "a message was lost");
    });
}

/// The rule is of losers alone: a timeout returns what there was, and so does a shield in a loser.
#[test]
fn waits_in_timeouts_and_shields_take_available_values() {
    Sim::new(0).run(async {
        let (sender, mut receiver) = mpsc::bounded(2);
        finish(async |s| {
            drop(s.start(async {
                sleep(MS).await.unwrap();
                sender.try_send(1).unwrap();
                work(MS); // when the receiver is polled, its time is up
            }));
            let late = timeout(2 * MS, receiver.recv()).await;
            assert_eq!(late.unwrap_or_else(|late| late.into_inner().unwrap()), Ok(1));
        })
        .await;
        let (mut got, receiver) = (None, &mut receiver);
        let shielded = async {
            got = shield(receiver.recv()).await.ok();
            Err(Cancelled)
        };
        let sends = spawn(async move {
            sleep(2 * MS).await.unwrap();
            sender.try_send(2).unwrap();
        });
        race((sleep(MS), shielded)).await.unwrap();
        assert_eq!(got, Some(2));
        sends.await.unwrap();
    });
}

/// It has been resumed: that cannot be undone, so the loser has the value.
#[test]
fn a_loser_that_was_resumed_has_its_value() {
    Sim::new(0).run(async {
        let (resume, got) = (Cell::new(None), Cell::new(None));
        let waits = async {
            let suspended = suspend(|resumes: dapple::scope::Resume<u8>| {
                resume.set(Some(resumes));
                || ()
            });
            got.set(suspended.await.ok());
        };
        race((
            async {
                sleep(MS).await.unwrap();
                resume.take().unwrap().resume(7).unwrap();
            },
            waits,
        ))
        .await;
        assert_eq!(got.get(), Some(7));
    });
}

/// A loser that was notified waits for the mutex, which is not cancelled, while another wins.
#[dapple::test(sim, seeds = 50)]
async fn a_loser_that_was_notified_takes_nothing_when_it_has_the_mutex() {
    for by_condition in [false, true] {
        let queue = Arc::new((Mutex::new(vec![7]), Condvar::new()));
        let pop = async || {
            let (mutex, changed) = &*queue;
            let held = mutex.lock().await?;
            let (mut held, waited) = if by_condition {
                let mut is_first = true;
                changed.wait_while(held, |_| std::mem::take(&mut is_first)).await
            } else {
                changed.wait(held).await
            };
            waited?;
            Ok::<_, Cancelled>(held.pop())
        };
        let second = spawn({
            let queue = queue.clone();
            async move {
                sleep(MS).await.unwrap();
                let (held, waited) = queue.1.wait(queue.0.lock().await.unwrap()).await;
                waited.unwrap();
                held.len()
            }
        });
        let notifier = spawn({
            let queue = queue.clone();
            async move {
                sleep(2 * MS).await.unwrap();
                let held = queue.0.lock().await.unwrap();
                queue.1.notify_one();
                sleep(4 * MS).await.unwrap();
                drop(held);
            }
        });
        let winner = async {
            sleep(4 * MS).await?;
            Ok(None)
        };
        assert_eq!(race((pop(), winner)).await, Ok(None));
        notifier.await.unwrap();
        assert_eq!(second.await.unwrap(), 1, "the notification was handed over, and the value is there");
    }
}

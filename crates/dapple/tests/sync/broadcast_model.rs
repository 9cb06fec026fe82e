//! `broadcast` against a model of it: random calls, by seed. After each call both have answered the same, the same
//! messages are alive, and the wakers that were woken are those of receivers that have something to receive.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use dapple::channel::broadcast::{self, RecvError, TryRecvError};
use futures_util::Stream;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A message that counts how many of it are alive.
struct Alive {
    number: u64,
    count: Arc<AtomicUsize>,
}

impl Alive {
    fn new(number: u64, count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, SeqCst);
        Alive { number, count: count.clone() }
    }
}

impl Clone for Alive {
    fn clone(&self) -> Alive {
        Alive::new(self.number, &self.count)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.count.fetch_sub(1, SeqCst);
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A receiver, and the model's knowledge of it.
struct Listener {
    receiver: broadcast::Receiver<Alive>,
    position: u64,
    waker: Arc<Woken>,
    waits: bool,
}

struct Model {
    capacity: u64,
    sent: u64,
    /// Of the last `capacity` messages: how many receivers have yet to receive each.
    unread: VecDeque<usize>,
}

impl Model {
    fn oldest(&self) -> u64 {
        self.sent - self.unread.len() as u64
    }

    fn alive(&self) -> usize {
        self.unread.iter().filter(|unread| **unread > 0).count()
    }

    fn read(&mut self, position: u64) {
        let index = (position - self.oldest()) as usize;
        self.unread[index] -= 1;
    }

    /// The message that a receiver at this position gets.
    fn receive(&mut self, position: &mut u64, closed: bool) -> Result<u64, TryRecvError> {
        if *position == self.sent {
            return Err(if closed { TryRecvError::Closed } else { TryRecvError::Empty });
        }
        let behind = self.sent - *position;
        if behind > self.capacity {
            let missed = behind - self.capacity;
            *position += missed;
            return Err(TryRecvError::Lagged(missed));
        }
        self.read(*position);
        *position += 1;
        Ok(*position - 1)
    }

    fn send(&mut self, receivers: usize) {
        self.sent += 1;
        self.unread.push_back(receivers);
        if self.unread.len() as u64 > self.capacity {
            self.unread.pop_front();
        }
    }
}

fn as_stream(answer: Result<u64, TryRecvError>) -> Poll<Option<Result<u64, RecvError>>> {
    match answer {
        Ok(number) => Poll::Ready(Some(Ok(number))),
        Err(TryRecvError::Lagged(missed)) => Poll::Ready(Some(Err(RecvError::Lagged(missed)))),
        Err(TryRecvError::Closed) => Poll::Ready(None),
        Err(TryRecvError::Empty) => Poll::Pending,
    }
}

fn program(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 11);
    let count = Arc::new(AtomicUsize::new(0));
    let asked = 1 + dice.below(5);
    let (sender, first) = broadcast::bounded(asked as usize);
    let mut senders = vec![sender];
    assert_eq!(senders[0].max_capacity() as u64, asked.next_power_of_two());
    let mut model = Model { capacity: asked.next_power_of_two(), sent: 0, unread: VecDeque::new() };
    let listener = |receiver, position| Listener { receiver, position, waker: Arc::default(), waits: false };
    let mut listeners = vec![listener(first, 0)];
    for _ in 0..60 {
        let which = dice.below(listeners.len().max(1) as u64) as usize;
        match dice.below(12) {
            0..=3 if !senders.is_empty() => {
                let sent = senders[0].send(Alive::new(model.sent, &count));
                assert_eq!(sent.is_ok(), !listeners.is_empty());
                if let Ok(told) = sent {
                    assert_eq!(told, listeners.len());
                    model.send(told);
                    for listener in &mut listeners {
                        let woken = listener.waker.0.swap(0, SeqCst);
                        assert_eq!(woken, usize::from(listener.waits), "woken once if it waits");
                        listener.waits = false;
                    }
                }
            }
            4 if !senders.is_empty() => listeners.push(listener(senders[0].subscribe(), model.sent)),
            5 if !listeners.is_empty() => {
                let receiver = listeners[which].receiver.resubscribe();
                listeners.push(listener(receiver, model.sent));
            }
            6 if !listeners.is_empty() => {
                let gone = listeners.swap_remove(which);
                (gone.position.max(model.oldest())..model.sent).for_each(|position| model.read(position));
            }
            7 if !senders.is_empty() && dice.below(8) == 0 => drop(senders.pop()),
            8 if !senders.is_empty() => senders.push(senders[0].clone()),
            9 | 10 if !listeners.is_empty() => {
                let Listener { receiver, position, waker, waits } = &mut listeners[which];
                let waker = Waker::from(waker.clone());
                let mut cx = Context::from_waker(&waker);
                let expected = as_stream(model.receive(position, senders.is_empty()));
                // As a stream, or by a wait that is dropped after one poll.
                if dice.below(2) == 0 {
                    let got = Pin::new(&mut *receiver).poll_next(&mut cx).map_ok(|message| message.number);
                    assert_eq!(got, expected);
                    *waits = got.is_pending();
                } else {
                    let mut wait = Box::pin(receiver.recv());
                    let got = wait.as_mut().poll(&mut cx).map_ok(|message| message.number);
                    let got = got.map(|got| (got != Err(RecvError::Closed)).then_some(got));
                    assert_eq!(got, expected);
                    *waits = false;
                }
            }
            _ if !listeners.is_empty() => {
                let Listener { receiver, position, waits, .. } = &mut listeners[which];
                assert_eq!(receiver.len() as u64, model.sent - *position);
                assert_eq!(receiver.is_empty(), model.sent == *position);
                assert_eq!(receiver.is_closed(), senders.is_empty());
                let got = receiver.try_recv().map(|message| message.number);
                assert_eq!(got, model.receive(position, senders.is_empty()));
                *waits &= got.is_err();
            }
            _ => {}
        }
        assert_eq!(count.load(SeqCst), model.alive(), "messages that are alive");
        for sender in &senders {
            assert_eq!(sender.receiver_count(), listeners.len());
            assert_eq!(sender.is_closed(), listeners.is_empty());
        }
    }
    let was_closed = senders.is_empty();
    drop(senders);
    for listener in &listeners {
        let is_told = listener.waker.0.load(SeqCst) == 1;
        assert!(was_closed || is_told == listener.waits, "the end is told to those that wait");
    }
    drop(listeners);
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn it_does_what_the_model_does() {
    for seed in 0..if cfg!(miri) { 40 } else { 4_000 } {
        program(seed);
    }
}

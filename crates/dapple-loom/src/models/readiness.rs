//! Models of the readiness of a file descriptor: no thread waits while data is available.
//!
//! A lost wake-up shows as a thread that is parked for ever, which loom reports as a deadlock.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;
use rustix::event::epoll::EventFlags;

use super::{Plain, sleeper};
use crate::driver::readiness::{Direction, Enlisted, Readiness, Who};
use crate::prim::{AtomicUsize, Ordering};
use crate::task::guarded::GuardedWaker;

/// A stream: the kernel's state, and the readiness known to the driver.
struct Stream {
    readiness: Readiness,
    /// Bytes to be read, and room to write. Only the event publishes them.
    there: [AtomicUsize; 2],
    /// The bytes so far are all that will ever come.
    ended: AtomicUsize,
}

const ALL: usize = 100;

impl Stream {
    fn new() -> Arc<Stream> {
        let there = Default::default();
        Arc::new(Stream { readiness: Readiness::default(), there, ended: AtomicUsize::new(0) })
    }

    /// Adds bytes in a direction, and reports the event. `Claim::hand_out`
    fn happens(&self, direction: Direction, more: usize, flags: EventFlags) {
        self.there[direction as usize].fetch_add(more, Ordering::Relaxed);
        let mut wakers = Vec::new();
        self.readiness.deliver(flags, &mut wakers);
        wakers.into_iter().for_each(GuardedWaker::wake);
    }

    fn comes_in(&self, more: usize) {
        self.happens(Direction::Read, more, EventFlags::IN);
    }

    fn ends_with(&self, more: usize) {
        self.ended.store(1, Ordering::Relaxed);
        self.happens(Direction::Read, more, EventFlags::IN | EventFlags::RDHUP);
    }

    /// `Driver::close`
    fn close(&self) {
        let mut wakers = Vec::new();
        self.readiness.close(&mut wakers);
        wakers.into_iter().for_each(GuardedWaker::wake);
    }

    /// The system call: takes up to `most` bytes; none at the end of the stream; `None` if it would block.
    fn try_take(&self, direction: Direction, most: usize) -> Option<usize> {
        let rest = |there: usize| (there > 0).then(|| there.saturating_sub(most));
        let took = self.there[direction as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        let ended = || (self.ended.load(Ordering::Relaxed) != 0).then_some(0);
        took.ok().map(|there| there.min(most)).or_else(ended)
    }

    /// Takes bytes as soon as there are some; `None` if the driver is gone. `Source::poll_as`
    fn take(&self, direction: Direction, most: usize) -> Option<usize> {
        self.take_as(direction, most, None)
    }

    fn take_as(
        &self,
        direction: Direction,
        most: usize,
        mut number: Option<&mut Option<u64>>,
    ) -> Option<usize> {
        let (asleep, waker) = sleeper();
        loop {
            if let Some(seen) = self.readiness.seen(direction) {
                match self.try_take(direction, most) {
                    Some(taken) => {
                        if 0 < taken && taken < most {
                            self.readiness.drained(direction, seen);
                        }
                        return Some(taken);
                    }
                    None => self.readiness.clear(direction, seen),
                }
            }
            let who = match &mut number {
                Some(number) => Who::OfMany(number),
                None => Who::One,
            };
            match self.readiness.enlist(direction, who, &waker) {
                Enlisted::Waits => drop(asleep.park(None)),
                Enlisted::Ready => {}
                Enlisted::Gone => return None,
            }
        }
    }
}

#[test]
fn a_reader_gets_all_that_comes_in_one_by_one() {
    model(|| {
        let stream = Stream::new();
        let reader = spawn({
            let stream = stream.clone();
            move || [(); 2].map(|()| stream.take(Direction::Read, 1))
        });
        stream.comes_in(1);
        stream.comes_in(1);
        assert_eq!(reader.join().unwrap(), [Some(1); 2]);
    });
}

#[test]
fn a_reader_that_takes_all_there_is_gets_what_comes_later() {
    model(|| {
        let stream = Stream::new();
        let reader = spawn({
            let stream = stream.clone();
            move || {
                let mut taken = 0;
                while taken < 2 {
                    taken += stream.take(Direction::Read, ALL).unwrap();
                }
                taken
            }
        });
        stream.comes_in(1);
        stream.comes_in(1);
        assert_eq!(reader.join().unwrap(), 2);
    });
}

#[test]
fn a_reader_that_takes_all_there_is_comes_to_the_end() {
    model(|| {
        let stream = Stream::new();
        let reader = spawn({
            let stream = stream.clone();
            move || {
                let mut taken = 0;
                loop {
                    match stream.take(Direction::Read, ALL) {
                        Some(0) => return taken,
                        more => taken += more.unwrap(),
                    }
                }
            }
        });
        stream.comes_in(1);
        stream.ends_with(1);
        assert_eq!(reader.join().unwrap(), 2);
    });
}

#[test]
fn a_reader_and_a_writer_do_not_take_from_each_other() {
    model(|| {
        let stream = Stream::new();
        let others = [(Direction::Read, 2), (Direction::Write, 1)].map(|(direction, times)| {
            let stream = stream.clone();
            spawn(move || (0..times).all(|_| stream.take(direction, 1) == Some(1)))
        });
        stream.comes_in(1);
        stream.happens(Direction::Write, 1, EventFlags::OUT);
        stream.comes_in(1);
        for other in others {
            assert!(other.join().unwrap());
        }
    });
}

#[test]
fn one_event_wakes_all_waiters_of_a_file_descriptor() {
    model(|| {
        let stream = Stream::new();
        let others = [(); 2].map(|()| {
            let stream = stream.clone();
            spawn(move || {
                let mut number = None;
                let taken = stream.take_as(Direction::Read, 1, Some(&mut number));
                number.into_iter().for_each(|number| stream.readiness.leave(number));
                taken
            })
        });
        stream.comes_in(2);
        for other in others {
            assert_eq!(other.join().unwrap(), Some(1));
        }
    });
}

#[test]
fn a_waiter_learns_that_the_driver_is_gone() {
    model(|| {
        let stream = Stream::new();
        let reader = spawn({
            let stream = stream.clone();
            move || stream.take(Direction::Read, 1)
        });
        stream.close();
        assert_eq!(reader.join().unwrap(), None);
    });
}

#[test]
fn a_waiter_that_sees_an_event_sees_the_data_before_it() {
    model(|| {
        let (stream, written) = (Stream::new(), Arc::new(Plain::new(0)));
        let other = spawn({
            let (stream, written) = (stream.clone(), written.clone());
            move || {
                written.write(7);
                stream.comes_in(1);
            }
        });
        assert_eq!(stream.take(Direction::Read, 1), Some(1));
        assert_eq!(written.read(), 7);
        other.join().unwrap();
    });
}

//! Small tests of all that shared states own in memory, for Miri (`ci/miri`): few threads, every path.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

use crate::common::{Drops, Event, foreign_block_on, panic_of, runtime, telling};
use crate::shared_common::{Bell, Held, poll, settle};
use dapple::{Cancelled, Shared, together, together_all};

/// Two values that are changed together; boxed, so that a use after free is seen.
type Pair = Box<(u32, Box<u32>)>;

type Waits<'a> = dyn Future<Output = Result<(), Cancelled>> + 'a;

fn pair() -> Shared<Pair> {
    Shared::new(Box::new((0, Box::new(0))))
}

fn add(pair: &mut Pair) {
    pair.0 += 1;
    *pair.1 += 1;
}

fn check(pair: &Pair) -> u32 {
    assert_eq!(pair.0, *pair.1, "seen halfway");
    pair.0
}

#[test]
fn values_are_moved_in_and_out() {
    let drops = Drops::default();
    let mut state = Shared::named(String::from("owned"), (drops.guard(), vec![String::from("a")]));
    state.get_mut().unwrap().1.push(String::from("b"));
    let clone = state.clone();
    let state = state.into_inner().err().unwrap();
    let taken = clone.try_write(|value| std::mem::take(&mut value.1)).unwrap();
    assert_eq!(taken, ["a", "b"]);
    drop(clone);
    let (guard, rest) = state.into_inner().ok().unwrap();
    assert!(rest.is_empty());
    drop(guard);
    assert_eq!(drops.count(), 1);
}

#[test]
fn closures_return_their_borrows() {
    let state = pair();
    let (text, mut log) = (String::from("text"), Vec::new());
    let borrowed = match poll(&mut state.read(|pair| (&text, check(pair)))) {
        Poll::Ready(Ok((text, 0))) => text,
        other => panic!("{other:?}"),
    };
    assert!(poll(&mut state.write(|pair| log.push(std::mem::replace(&mut pair.1, Box::new(7))))).is_ready());
    assert_eq!((borrowed.len(), *log[0]), (4, 0));
    let nested = state.try_read(|pair| state.try_read(|again| pair.0 + *again.1).unwrap());
    assert_eq!(nested, Ok(7));
}

#[test]
fn together_gives_each_its_own() {
    let states: Vec<_> = (0..6).map(|_| pair()).collect();
    let [a, b, c, ..] = &states[..] else { unreachable!() };
    let three = foreign_block_on(together((c.writing(), a.reading(), b.writing()), |(c, a, b)| {
        std::mem::swap(c, b);
        add(c);
        check(a) + check(b)
    }));
    assert_eq!(three, Ok(0));
    for count in [0, 1, 2, 4, 6] {
        let all: Vec<_> = states[..count].iter().rev().map(Shared::writing).collect();
        let sum = together_all(&all, |all| {
            all.iter_mut().for_each(|pair| add(pair));
            all.iter().map(|pair| check(pair)).sum::<u32>()
        });
        assert!(foreign_block_on(sum).is_ok());
    }
    let reading: Vec<_> = states.iter().map(Shared::reading).collect();
    let sum = foreign_block_on(together_all(&reading, |all| all.iter().map(|pair| check(pair)).sum::<u32>()));
    assert_eq!(sum, Ok(1 + 1 + 2 + 4 + 6));
}

/// Readers in slots, readers with permits, writers, tries: on real threads.
#[test]
fn writes_are_visible_to_other_threads() {
    let state = pair();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let state = state.clone();
            thread::spawn(move || {
                for round in 0..4 {
                    match (number + round) % 4 {
                        0 => state.write_blocking(add).unwrap(),
                        1 => assert!(state.read_blocking(check).unwrap() < 20),
                        2 => drop(state.try_read(check)),
                        _ => drop(state.try_write(add)),
                    }
                }
            })
        })
        .collect();
    foreign_block_on(state.write(add)).unwrap();
    foreign_block_on(state.read(check)).unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(check(&state.into_inner().unwrap()) >= 4);
}

#[test]
fn a_slot_reader_is_counted_by_a_writer_and_leaves() {
    let state = pair();
    let held = Held::reading(&state);
    assert!(state.try_write(add).is_err()); // counts the reader
    let mut write = state.write(add);
    assert!(settle(&mut write).is_pending());
    assert_eq!(state.try_read(check), Ok(0));
    held.let_go();
    assert_eq!(settle(&mut write), Poll::Ready(Ok(())));
    assert_eq!(state.try_read(check), Ok(1));
}

/// A thread that ends leaves its slots to the next.
#[test]
fn slots_outlive_their_threads() {
    let state = pair();
    for _ in 0..4 {
        let clone = state.clone();
        assert_eq!(thread::spawn(move || clone.try_read(check)).join().unwrap(), Ok(0));
    }
    struct AtTheEnd(Shared<Pair>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            self.0.try_read(check).unwrap(); // when the thread may have no slots any more
            self.0.try_write(add).unwrap();
        }
    }
    thread_local!(static LATE: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) });
    let clone = state.clone();
    thread::spawn(move || {
        LATE.with(|late| *late.borrow_mut() = Some(AtTheEnd(clone.clone())));
        clone.try_read(check).unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(state.try_read(check), Ok(1));
}

/// More states than a thread has slots, and each twice.
#[test]
fn slots_run_out() {
    fn inside(states: &[Shared<Pair>]) {
        if let [first, rest @ ..] = states {
            first.try_read(|pair| (check(pair), first.try_read(|_| inside(rest)).unwrap()).1).unwrap();
        }
    }
    let states: Vec<_> = (0..6).map(|_| pair()).collect();
    inside(&states);
    assert!(states.iter().all(|state| state.try_write(add).is_ok()));
}

#[test]
fn waits_are_dropped_in_line_or_not_polled_again() {
    let (state, other) = (pair(), pair());
    let held = Held::writing(&state);
    let bell = Bell::default();
    // Not forgotten, which would leak memory, but not polled again.
    let mut idle = state.write(add);
    assert!(bell.settle(&mut idle).is_pending());
    let mut kept: Vec<Pin<Box<Waits<'_>>>> = vec![
        Box::pin(state.read(|pair| assert!(check(pair) < 10))),
        Box::pin(together((other.writing(), state.writing()), |(a, b)| (add(a), add(b)).1)),
        Box::pin(state.write(add)),
    ];
    for wait in &mut kept {
        assert!(bell.settle(wait).is_pending());
    }
    drop(kept.remove(0));
    held.let_go();
    for wait in &mut kept {
        assert_eq!(foreign_block_on(wait), Ok(()));
    }
    assert_eq!(other.try_read(check), Ok(1));
    drop(kept);
    assert_eq!(foreign_block_on(state.read(check)), Ok(2));
    drop(idle);
    assert_eq!(state.try_write(|pair| check(pair)), Ok(2));
}

#[test]
fn panics_leave_nothing_behind() {
    let (state, other) = (pair(), pair());
    let drops = Drops::default();
    for kind in 0..4 {
        let guard = drops.guard();
        let oops = move |pair: &mut Pair| {
            add(pair);
            drop(guard);
            panic!("oops")
        };
        let all = [other.writing(), state.writing()];
        let message = panic_of(|| match kind {
            0 => foreign_block_on(state.write(oops)),
            1 => state.try_write(oops).map_err(|_| Cancelled),
            2 => foreign_block_on(together((other.reading(), state.writing()), |(_, pair)| oops(pair))),
            _ => foreign_block_on(together_all(&all, |all| oops(all[1]))),
        });
        assert_eq!((message.as_str(), drops.count()), ("oops", kind + 1));
        assert!(other.try_write(|_| ()).is_ok());
    }
    assert_eq!(state.try_read(check), Ok(4));
}

#[test]
fn misuse_messages_read_the_closure_stack() {
    let (outer, inner) = (Shared::named("outer", 0), Shared::new(0));
    let message =
        outer.try_write(|_| inner.try_read(|_| panic_of(|| poll(&mut outer.read(|_| ())))).unwrap());
    assert!(message.unwrap().contains("outer"));
    let both = together((outer.writing(), inner.reading()), |_| panic_of(|| poll(&mut outer.write(|_| ()))));
    assert!(foreign_block_on(both).unwrap().contains("outer"));
    assert!(panic_of(|| poll(&mut together((outer.writing(), outer.reading()), |_| ()))).contains("twice"));
}

#[test]
fn tasks_wait_and_are_cancelled() {
    let rt = runtime(1);
    let (state, other) = (pair(), pair());
    let held = Held::writing(&state);
    let (first, second) = (Event::default(), Event::default());
    let cancelled = rt.spawn({
        let (state, other, first) = (state.clone(), other.clone(), first.clone());
        async move { telling(first, together((other.writing(), state.writing()), |(a, _)| add(a))).await }
    });
    let waits = rt.spawn({
        let (state, second) = (state.clone(), second.clone());
        async move { telling(second, state.write(add)).await }
    });
    first.wait();
    second.wait();
    cancelled.cancel();
    assert_eq!(rt.block_on(cancelled).unwrap(), Err(Cancelled));
    held.let_go();
    assert_eq!(rt.block_on(waits).unwrap(), Ok(()));
    drop(rt);
    assert_eq!((state.try_read(check), other.try_read(check)), (Ok(1), Ok(0)));
}

/// A reader that enters while a writer looks for readers: the second of the two sees the first.
#[test]
fn readers_and_a_writer_at_the_same_time() {
    for _ in 0..3 {
        let state = pair();
        let go = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (state, go) = (state.clone(), go.clone());
                thread::spawn(move || {
                    while !go.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                    (0..2).for_each(|_| assert!(state.read_blocking(check).unwrap() <= 3));
                })
            })
            .collect();
        go.store(true, Ordering::Relaxed);
        (0..3).for_each(|_| state.write_blocking(add).unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(check(&state.into_inner().unwrap()), 3);
    }
}

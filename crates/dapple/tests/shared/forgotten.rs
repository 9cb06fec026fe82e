//! Waits that are forgotten, dropped or never polled again: wherever they are in line, they block no other waiter.

use std::mem::forget;
use std::pin::Pin;

use crate::common::{Event, foreign_block_on, in_both_worlds, runtime, start_thread, telling};
use crate::shared_common::{Bell, Held, settle};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::{Cancelled, Shared, together, together_all};

/// The operation that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Together,
    All,
}

const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Together, Kind::All];

type Waits = Pin<Box<dyn Future<Output = Result<(), Cancelled>> + Send>>;

/// A wait for a state, and for another one if it is for several.
fn wait(kind: Kind, state: &Shared<u32>, other: &Shared<u32>) -> Waits {
    let (state, other) = (state.clone(), other.clone());
    Box::pin(async move {
        match kind {
            Kind::Read => state.read(|_| ()).await,
            Kind::Write => state.write(|value| *value += 1).await,
            Kind::Together => together((other.writing(), state.writing()), |(_, value)| *value += 1).await,
            Kind::All => together_all(&[state.writing(), other.writing()], |all| *all[0] += 1).await,
        }
    })
}

/// When a wait is given up, as seen from its place in line.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Asleep,
    Woken,
    AsleepAgain,
    WokenAgain,
}

const MOMENTS: [Moment; 4] = [Moment::Asleep, Moment::Woken, Moment::AsleepAgain, Moment::WokenAgain];

/// Brings a wait to a moment. The caller lets the returned holder go after the wait was given up.
fn bring_to(moment: Moment, waits: &mut Waits, state: &Shared<u32>) -> Option<Held> {
    let held = Held::writing(state);
    assert!(settle(waits).is_pending());
    if let Moment::Asleep = moment {
        return Some(held);
    }
    held.let_go();
    if let Moment::Woken = moment {
        return None;
    }
    let held = Held::by({
        let state = state.clone();
        move |inside| state.try_write(|_| inside()).expect("free until it is polled")
    });
    assert!(settle(waits).is_pending());
    if let Moment::AsleepAgain = moment {
        return Some(held);
    }
    held.let_go();
    None
}

/// The fate of a wait that is not polled any more.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Forgotten,
    Kept,
    Dropped,
}

const FATES: [Fate; 3] = [Fate::Forgotten, Fate::Kept, Fate::Dropped];

fn meet(fate: Fate, waits: Waits) -> Option<Waits> {
    match fate {
        Fate::Forgotten => forget(waits),
        Fate::Kept => return Some(waits),
        Fate::Dropped => drop(waits),
    }
    None
}

#[test]
fn later_callers_get_through() {
    in_both_worlds(2, || {
        for (kind, moment) in KINDS.iter().flat_map(|kind| MOMENTS.map(|moment| (*kind, moment))) {
            for (fate, newcomer) in FATES.iter().flat_map(|fate| KINDS.map(|kind| (*fate, kind))) {
                let (state, other) = (Shared::new(0), Shared::new(0));
                let mut waits = wait(kind, &state, &other);
                let held = bring_to(moment, &mut waits, &state);
                let _kept = meet(fate, waits);
                held.into_iter().for_each(Held::let_go);
                for _ in 0..2 {
                    assert_eq!(foreign_block_on(wait(newcomer, &state, &other)), Ok(()));
                    assert_eq!(other.try_write(|_| ()), Ok(()), "it is in nothing");
                    assert_eq!(state.try_read(|_| ()), Ok(()));
                }
                assert_eq!(state.write_blocking(|_| ()), Ok(()));
            }
        }
    });
}

/// `in_front`: how many are given up ahead of the one who waits.
fn those_behind_get_through(in_front: usize, fate: Fate) {
    in_both_worlds(3, move || {
        let rt = runtime(1);
        for (kind, behind) in KINDS.iter().flat_map(|kind| KINDS.map(|behind| (*kind, behind))) {
            let (state, other) = (Shared::new(0), Shared::new(0));
            let held = Held::writing(&state);
            let gone: Vec<_> = (0..in_front)
                .map(|_| {
                    let mut waits = wait(kind, &state, &other);
                    assert!(settle(&mut waits).is_pending());
                    waits
                })
                .collect();
            // A task, and a thread that waits for one state.
            let (in_line, waits) = (Event::default(), wait(behind, &state, &other));
            let task = rt.spawn(telling(in_line.clone(), waits));
            in_line.wait();
            let its = state.clone();
            let thread = start_thread(move || match behind {
                Kind::Read => its.read_blocking(|_| ()),
                _ => its.write_blocking(|_| ()),
            });
            let _kept: Vec<_> = gone.into_iter().map(|waits| meet(fate, waits)).collect();
            held.let_go();
            // No other task comes that could wake them.
            assert_eq!(rt.block_on(task).unwrap(), Ok(()), "{behind:?} behind {kind:?}");
            assert_eq!(thread.join().unwrap(), Ok(()), "{behind:?} behind {kind:?}");
        }
    });
}

#[test]
fn waiters_behind_a_dropped_wait_proceed() {
    those_behind_get_through(1, Fate::Dropped);
    those_behind_get_through(3, Fate::Dropped);
}

#[test]
fn waiters_behind_a_forgotten_wait_proceed() {
    those_behind_get_through(1, Fate::Forgotten);
}

#[test]
fn waiters_behind_an_unpolled_wait_proceed() {
    those_behind_get_through(1, Fate::Kept);
}

#[test]
fn those_behind_several_that_are_forgotten_get_through() {
    those_behind_get_through(3, Fate::Forgotten);
}

#[test]
fn a_woken_wait_that_is_dropped_passes_its_wake_up_on() {
    in_both_worlds(5, || {
        for (kind, behind) in KINDS.iter().flat_map(|kind| KINDS.map(|behind| (*kind, behind))) {
            let (state, other) = (Shared::new(0), Shared::new(0));
            let held = Held::writing(&state);
            let (first_bell, bell) = (Bell::default(), Bell::default());
            let (mut first, mut second) = (wait(kind, &state, &other), wait(behind, &state, &other));
            assert!(first_bell.settle(&mut first).is_pending());
            assert!(bell.settle(&mut second).is_pending());
            held.let_go();
            assert!(first_bell.has_rung());
            drop(first);
            assert!(bell.has_rung(), "{behind:?} behind {kind:?}");
            assert_eq!(foreign_block_on(second), Ok(()));
        }
    });
}

#[test]
fn together_proceeds_past_a_forgotten_wait_in_each_queue() {
    in_both_worlds(3, || {
        for (kind, newcomer) in KINDS.iter().flat_map(|kind| KINDS.map(|newcomer| (*kind, newcomer))) {
            let states = [Shared::new(0), Shared::new(0)];
            for state in &states {
                let elsewhere = Shared::new(0);
                let mut waits = wait(kind, state, &elsewhere);
                let held = bring_to(Moment::Asleep, &mut waits, state);
                forget(waits);
                held.into_iter().for_each(Held::let_go);
            }
            let [state, other] = &states;
            assert_eq!(foreign_block_on(wait(newcomer, state, other)), Ok(()));
            assert_eq!(foreign_block_on(wait(newcomer, other, state)), Ok(()));
            let third = Shared::new(0);
            let three = together((state.reading(), third.writing(), other.writing()), |_| ());
            assert_eq!(foreign_block_on(three), Ok(()));
        }
    });
}

/// Readers in slots, a writer that was forgotten: readers go on, and the next writer, too.
#[test]
fn readers_and_writers_proceed_after_a_forgotten_wait() {
    in_both_worlds(5, || {
        let (state, other) = (Shared::new(0), Shared::new(0));
        let held = Held::reading(&state);
        let mut waits = wait(Kind::Write, &state, &other);
        assert!(settle(&mut waits).is_pending());
        forget(waits);
        let in_line = Event::default();
        let rt = runtime(1);
        let reader = rt.spawn(telling(in_line.clone(), wait(Kind::Read, &state, &other)));
        in_line.wait(); // behind the writer
        held.let_go();
        for round in 0..20 {
            let kind = KINDS[round % 4];
            assert_eq!(foreign_block_on(wait(kind, &state, &other)), Ok(()));
        }
        assert_eq!(rt.block_on(reader).unwrap(), Ok(()));
    });
}

/// In virtual time: each task forgets some of its waits after some polls; all that are awaited end.
#[test]
fn whatever_is_forgotten_all_that_are_awaited_end() {
    Sim::new(0).max_polls(1_000_000).explore(0..150, || async {
        let states: Vec<_> = (0..3).map(|_| Shared::new(0_u32)).collect();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let states = states.clone();
                dapple::spawn(async move {
                    let (mut done, mut kept) = (0, Vec::new());
                    for _ in 0..6 {
                        let pick = |n: u64| (sim::random() % n) as usize;
                        let first = pick(3);
                        let (state, other) = (&states[first], &states[(first + 1 + pick(2)) % 3]);
                        let kind = KINDS[pick(4)];
                        let mut waits = wait(kind, state, other);
                        if pick(4) > 0 {
                            waits.await.unwrap();
                            done += u32::from(kind != Kind::Read);
                            continue;
                        }
                        let mut is_done = false;
                        for _ in 0..=pick(3) {
                            if futures_lite::future::poll_once(&mut waits).await.is_some() {
                                done += u32::from(kind != Kind::Read);
                                is_done = true;
                                break;
                            }
                            yield_now().await;
                        }
                        if !is_done {
                            kept.extend(meet(FATES[pick(3)], waits));
                        }
                    }
                    // Waits that are not polled again are kept until all other tasks are done.
                    (done, kept)
                })
            })
            .collect();
        let mut ended = Vec::new();
        for task in tasks {
            ended.push(task.await.unwrap());
        }
        let written: u32 = states.iter().map(|state| state.try_read(|value| *value).unwrap()).sum();
        assert_eq!(written, ended.iter().map(|(done, _)| done).sum());
    });
}

/// A waiter in line does not hold the state, nor does a waiter that gave way.
#[test]
fn a_waiter_holds_no_state() {
    in_both_worlds(5, || {
        let rt = runtime(1);
        for (kind, moment) in KINDS.iter().flat_map(|kind| MOMENTS.map(|moment| (*kind, moment))) {
            let (state, other) = (Shared::new(0), Shared::new(0));
            let mut waits = wait(kind, &state, &other);
            let held = bring_to(moment, &mut waits, &state);
            assert_eq!(other.try_write(|_| ()), Ok(()), "{kind:?}, {moment:?}");
            held.into_iter().for_each(Held::let_go);
            assert_eq!(state.try_write(|_| ()), Ok(()), "{kind:?}, {moment:?}");
            assert_eq!(rt.block_on(waits), Ok(()));
        }
    });
}

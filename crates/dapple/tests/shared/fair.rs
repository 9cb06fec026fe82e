//! Fairness of shared states: order, giving way, and how often a waiter is overtaken. By counts, in virtual time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::common::{Event, in_both_worlds, runtime};
use crate::shared_common::{Bell, Held};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Shared, together, together_all};

#[test]
fn a_newcomer_yields_once_and_then_takes_a_free_state() {
    in_both_worlds(5, || {
        // A task that gave way to those in line need not do so again in the same poll.
        let states = [Shared::new(Vec::new()), Shared::new(Vec::new())];
        for (state, first_is_quick) in states.iter().zip([true, false]) {
            let held = Held::writing(state);
            let bell = Bell::default();
            let mut first = state.write(|order| order.push("first"));
            let mut newcomer = state.write(|order| order.push("newcomer"));
            assert!(bell.settle(&mut first).is_pending());
            held.let_go();
            assert!(bell.has_rung(), "woken, and the state is free");
            let own = Bell::default();
            assert!(own.poll(&mut newcomer).is_pending(), "gives way");
            if first_is_quick {
                assert_eq!(bell.poll(&mut first), Poll::Ready(Ok(())));
                assert_eq!(own.poll(&mut newcomer), Poll::Ready(Ok(())));
            } else {
                assert!(own.has_rung(), "comes back by itself");
                assert_eq!(own.poll(&mut newcomer), Poll::Ready(Ok(())), "takes what is free");
                assert_eq!(bell.poll(&mut first), Poll::Ready(Ok(())));
            }
            let order = state.try_read(Vec::clone).unwrap();
            assert_eq!(order, if first_is_quick { ["first", "newcomer"] } else { ["newcomer", "first"] });
        }
    });
}

#[test]
fn readers_that_come_while_a_writer_waits_go_behind_it() {
    in_both_worlds(5, || {
        let (state, other) = (Shared::new(0), Shared::new(0));
        let held = Held::reading(&state);
        let (bell, behind) = (Bell::default(), Bell::default());
        let mut write = state.write(|value| *value += 1);
        assert!(bell.settle(&mut write).is_pending());
        // Though they could read at once.
        let mut reads: Vec<_> = (0..2).map(|_| state.read(|value| *value)).collect();
        let mut both = together((state.reading(), other.reading()), |(value, _)| *value);
        for _ in 0..3 {
            // However often they are polled.
            assert!(behind.settle(&mut reads[0]).is_pending());
            assert!(behind.settle(&mut reads[1]).is_pending());
            assert!(behind.settle(&mut both).is_pending());
        }
        held.let_go();
        assert!(bell.has_rung());
        assert_eq!(bell.poll(&mut write), Poll::Ready(Ok(())));
        assert!(behind.has_rung(), "now they are told");
        for read in &mut reads {
            assert_eq!(behind.settle(read), Poll::Ready(Ok(1)));
        }
        assert_eq!(behind.settle(&mut both), Poll::Ready(Ok(1)));
    });
}

/// Tasks that come one after the other while the state is in use are served in that order, if all of them
/// run on one worker.
#[test]
fn those_in_line_are_served_in_order() {
    Sim::new(0).workers(1).explore(0..40, || async {
        let state = Shared::new(Vec::new());
        let (inside, let_go) = (Event::default(), Event::default());
        let holder = dapple::blocking({
            let (state, inside, let_go) = (state.clone(), inside.clone(), let_go.clone());
            move || {
                let hold = state.write_blocking(|_| {
                    inside.set();
                    let_go.wait();
                });
                hold.unwrap();
            }
        });
        inside.happened().await;
        let mut tasks = Vec::new();
        for number in 0..20 {
            let (state, begun) = (state.clone(), Event::default());
            let task = crate::common::telling(begun.clone(), async move {
                state.write(|order| order.push(number)).await.unwrap();
            });
            tasks.push(dapple::spawn(task));
            begun.happened().await;
        }
        let_go.set();
        holder.await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(state.into_inner().unwrap(), (0..20).collect::<Vec<_>>());
    });
}

/// Notes each waiter that comes and is served, and how often it is overtaken by a later one.
#[derive(Clone, Default)]
struct Register(Arc<Mutex<Vec<Entry>>>);

struct Entry {
    kind: Kind,
    served: bool,
    overtaken: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Several,
}

impl Register {
    fn come(&self, kind: Kind) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(Entry { kind, served: false, overtaken: 0 });
        all.len() - 1
    }

    fn serve(&self, number: usize) {
        let mut all = self.0.lock().unwrap();
        all[number].served = true;
        all[..number].iter_mut().filter(|entry| !entry.served).for_each(|entry| entry.overtaken += 1);
    }

    /// How often those of a kind were overtaken.
    fn overtaken(&self, kind: Kind) -> Vec<usize> {
        let all = self.0.lock().unwrap();
        assert!(all.iter().all(|entry| entry.served), "all were served");
        all.iter().filter(|entry| entry.kind == kind).map(|entry| entry.overtaken).collect()
    }
}

/// Tasks of each kind, in the given numbers, use two states again and again, for a while each time. Returns how often
/// each wait was overtaken, over all seeds, sorted.
fn crowd(seeds: u64, workers: usize, rounds: usize, kinds: &[(Kind, usize)]) -> Vec<(Kind, Vec<usize>)> {
    let mut overtaken: Vec<_> = kinds.iter().map(|(kind, _)| (*kind, Vec::new())).collect();
    for seed in 0..seeds {
        let register = Register::default();
        Sim::new(seed).workers(workers).max_polls(1_000_000).run(async {
            let states = [Shared::new(0_u64), Shared::new(0)];
            let mut tasks = Vec::new();
            for (kind, number) in
                kinds.iter().flat_map(|(kind, count)| (0..*count).map(|number| (*kind, number)))
            {
                let (register, states) = (register.clone(), states.clone());
                tasks.push(dapple::spawn(async move {
                    for _ in 0..rounds {
                        let [one, other] = &states;
                        let came = register.come(kind);
                        let serve = || {
                            register.serve(came);
                            sim::work(Duration::from_nanos(sim::random() % 1500));
                        };
                        let served = match (kind, number % 2) {
                            (Kind::Read, which) => states[which].read(|_| serve()).await,
                            (Kind::Write, which) => states[which].write(|_| serve()).await,
                            (Kind::Several, 0) => {
                                together((one.writing(), other.writing()), |_| serve()).await
                            }
                            (Kind::Several, _) => {
                                together_all(&[other.writing(), one.writing()], |_| serve()).await
                            }
                        };
                        served.unwrap();
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        overtaken.iter_mut().for_each(|(kind, all)| all.extend(register.overtaken(*kind)));
    }
    for (kind, all) in &mut overtaken {
        all.sort_unstable();
        let at = |part: usize| all[(all.len() - 1) * part / 1000];
        println!(
            "{workers} workers, {kind:?}: overtaken {} (median), {} (99%), {} (99.9%), {} (most) of {}",
            at(500),
            at(990),
            at(999),
            at(1000),
            all.len()
        );
    }
    overtaken
}

/// How many uses a task can have in one poll: while it runs, those in line are not polled yet.
const IN_ONE_POLL: usize = 128;

/// The most that one of a kind may be overtaken in a crowd: not a promise, but far from starving.
#[track_caller]
fn assert_most(overtaken: &[(Kind, Vec<usize>)], most: usize) {
    for (kind, all) in overtaken {
        assert!(*all.last().unwrap() <= most, "{kind:?}: overtaken {} times", all.last().unwrap());
    }
}

/// Checks the bound in a crowd of tasks of these kinds. Each task goes on for much longer than the bound.
fn crowd_is_fair(workers: usize, kinds: &[(Kind, usize)]) {
    let tasks: usize = kinds.iter().map(|(_, count)| count).sum();
    // A task that wants several states is overtaken more often.
    let times = if kinds.iter().any(|(kind, _)| *kind == Kind::Several) { 4 } else { 3 };
    assert_most(&crowd(2, workers, 10 * IN_ONE_POLL, kinds), times * tasks * IN_ONE_POLL);
}

#[test]
fn one_state_in_a_crowd_is_had_in_turn() {
    for workers in [1, 2, 4] {
        crowd_is_fair(workers, &[(Kind::Write, 6)]);
    }
}

#[test]
fn neither_readers_nor_writers_starve() {
    for workers in [2, 4] {
        crowd_is_fair(workers, &[(Kind::Read, 5), (Kind::Write, 2)]);
        crowd_is_fair(workers, &[(Kind::Read, 1), (Kind::Write, 4)]);
    }
}

#[test]
fn together_does_not_starve() {
    for workers in [1, 2, 4] {
        crowd_is_fair(workers, &[(Kind::Several, 2), (Kind::Write, 4)]);
        crowd_is_fair(workers, &[(Kind::Several, 1), (Kind::Read, 3), (Kind::Write, 2)]);
        crowd_is_fair(workers, &[(Kind::Several, 5)]);
    }
}

/// There is always a reader in the state, and yet a writer gets in before many more readers have come.
#[test]
fn a_writer_gets_in_though_readers_never_pause() {
    Sim::new(0).workers(4).max_polls(300_000).explore(0..60, || async {
        let state = Shared::new(());
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (state, stop, reads) = (state.clone(), stop.clone(), reads.clone());
                dapple::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        let read = state.read(|()| {
                            reads.fetch_add(1, Ordering::SeqCst);
                            sim::work(Duration::from_micros(1 + sim::random() % 10));
                        });
                        read.await.unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            sleep(Duration::from_micros(50)).await.unwrap();
            let before = reads.load(Ordering::SeqCst);
            let between = state.write(|()| reads.load(Ordering::SeqCst) - before).await.unwrap();
            // The writer gives way to the tasks of its worker, twice at most, and each poll of a reader may read often.
            assert!(between <= 3 * 3 * IN_ONE_POLL, "{between} began to read before the writer got in");
        }
        stop.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.await.unwrap();
        }
    });
}

/// The other way round: a reader, and one who wants two states, among writers that never pause.
#[test]
fn a_reader_and_together_get_in_though_writers_never_pause() {
    Sim::new(0).workers(4).max_polls(300_000).explore(0..60, || async {
        let states = [Shared::new(0_usize), Shared::new(0)];
        let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let writers: Vec<_> = (0..6)
            .map(|number| {
                let (state, stop, writes) = (states[number % 2].clone(), stop.clone(), writes.clone());
                dapple::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        let write = state.write(|value| {
                            *value += 1;
                            writes.fetch_add(1, Ordering::SeqCst);
                            sim::work(Duration::from_nanos(sim::random() % 3000));
                        });
                        write.await.unwrap();
                    }
                })
            })
            .collect();
        for round in 0..10 {
            sleep(Duration::from_micros(20)).await.unwrap();
            let before = writes.load(Ordering::SeqCst);
            let between = || writes.load(Ordering::SeqCst) - before;
            let between = match round % 2 {
                0 => states[0].read(|_| between()).await.unwrap(),
                _ => together((states[0].writing(), states[1].reading()), |_| between()).await.unwrap(),
            };
            assert!(between <= 20_000, "{between} wrote before it got in, in round {round}");
        }
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// A task that always finds the state free gives way to the other tasks of its worker.
#[test]
fn a_busy_state_yields_its_worker_after_some_turns() {
    in_both_worlds(3, || {
        for kind in 0..4 {
            let rt = runtime(1);
            let (state, other) = (Shared::new(0), Shared::new(0));
            let (turns, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let begun = Event::default();
            let neighbour = rt.spawn({
                let (turns, is_over, begun) = (turns.clone(), is_over.clone(), begun.clone());
                async move {
                    while !is_over.load(Ordering::SeqCst) {
                        turns.fetch_add(1, Ordering::SeqCst);
                        begun.set();
                        yield_now().await;
                    }
                }
            });
            let busy = rt.spawn({
                let turns = turns.clone();
                async move {
                    begun.happened().await;
                    let before = turns.load(Ordering::SeqCst);
                    for _ in 0..2000 {
                        match kind {
                            0 => state.read(|_| ()).await,
                            1 => state.write(|_| ()).await,
                            2 => together((state.writing(), other.reading()), |_| ()).await,
                            _ => together_all(&[state.writing(), other.writing()], |_| ()).await,
                        }
                        .unwrap();
                    }
                    is_over.store(true, Ordering::SeqCst);
                    turns.load(Ordering::SeqCst) - before
                }
            });
            let turns = rt.block_on(busy).unwrap();
            rt.block_on(neighbour).unwrap();
            assert!((5..=2000).contains(&turns), "kind {kind}: {turns} turns in 2000 uses");
        }
    });
}

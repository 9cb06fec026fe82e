//! Old values are dropped promptly, once, and harm no other code.
//!
//! They wait for all transactions of the process that run, also those of other tests: so some of these tests have a process
//! of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use dapple::stm::{TVar, TryError, try_atomically};

use crate::common::{Drops, in_a_process_of_its_own, panic_of};

#[test]
fn an_old_value_is_dropped_when_the_commit_returns() {
    in_a_process_of_its_own("an_old_value_is_dropped_when_the_commit_returns", || {
        let drops = Drops::default();
        let var = TVar::new(Some(drops.guard()));
        try_atomically(|tx| tx.write(&var, None)).unwrap();
        assert_eq!(drops.count(), 1);
        try_atomically(|tx| tx.write(&var, Some(drops.guard()))).unwrap();
        drop(var);
        assert_eq!(drops.count(), 2);
    });
}

#[test]
fn a_pending_value_is_dropped_with_its_transaction() {
    let drops = Drops::default();
    let var = TVar::new(None);
    let retried = try_atomically(|tx| {
        tx.write(&var, Some(drops.guard()))?;
        tx.write(&var, Some(drops.guard()))?;
        assert_eq!(drops.count(), 1, "one was replaced");
        tx.retry::<()>()
    });
    assert_eq!((retried, drops.count()), (Err(TryError::Retry), 2));
    let taken = try_atomically(|tx| {
        tx.write(&var, Some(drops.guard()))?;
        tx.or_else(
            |tx| {
                tx.write(&var, Some(drops.guard()))?;
                tx.retry()
            },
            |tx| tx.write(&var, None),
        )
    });
    assert_eq!((taken, drops.count()), (Ok(()), 4));
}

#[test]
fn the_last_transaction_that_could_use_a_value_drops_it() {
    in_a_process_of_its_own("the_last_transaction_that_could_use_a_value_drops_it", || {
        let drops = Drops::default();
        let var = TVar::new(Some(drops.guard()));
        let (other, count) = (var.clone(), drops.clone());
        let looked = try_atomically(|tx| {
            let value = tx.get(&var)?;
            assert!(value.is_some());
            let write = {
                let other = other.clone();
                move || try_atomically(|tx| tx.write(&other, None)).unwrap()
            };
            std::thread::spawn(write).join().unwrap();
            assert_eq!(count.count(), 0, "this transaction still uses it");
            assert!(value.is_some());
            Ok(())
        });
        assert_eq!(looked, Ok(()), "all that it has read was there at one moment");
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn commits_beside_a_long_transaction_do_not_walk_through_what_it_keeps() {
    in_a_process_of_its_own("commits_beside_a_long_transaction_do_not_walk_through_what_it_keeps", || {
        /// With a walk at each commit this test would take many minutes.
        const COMMITS: usize = 200_000;
        let drops = Drops::default();
        let first = TVar::new(0);
        let vars = try_atomically(|tx| {
            tx.read(&first)?;
            // Two, for they also wait for each other.
            let writers = [(); 2].map(|()| {
                let drops = drops.clone();
                std::thread::spawn(move || {
                    let var = TVar::new(drops.guard());
                    for _ in 0..COMMITS / 2 {
                        try_atomically(|tx| tx.write(&var, drops.guard())).unwrap();
                    }
                    var
                })
            });
            let vars = writers.map(|writer| writer.join().unwrap());
            assert_eq!(drops.count(), 0, "this transaction could still use them");
            Ok(vars)
        });
        assert_eq!(drops.count(), COMMITS);
        drop(vars);
        assert_eq!(drops.count(), COMMITS + 2);
    });
}

#[test]
fn a_variable_that_a_transaction_has_read_stays_until_it_ends() {
    in_a_process_of_its_own("a_variable_that_a_transaction_has_read_stays_until_it_ends", || {
        let drops = Drops::default();
        let outer = TVar::new(Some(TVar::new(drops.guard())));
        let read = try_atomically(|tx| {
            let inner = tx.modify(&outer, Option::take)?.expect("there at first");
            tx.with(&inner, |_| ())?;
            drop(inner);
            assert_eq!(drops.count(), 0);
            Ok(())
        });
        assert_eq!((read, drops.count()), (Ok(()), 1));
    });
}

#[test]
fn a_snapshot_stays() {
    in_a_process_of_its_own("a_snapshot_stays", || {
        let var = TVar::new(String::from("old"));
        let old = try_atomically(|tx| tx.snapshot(&var)).unwrap();
        try_atomically(|tx| tx.write(&var, "new".into())).unwrap();
        assert_eq!((&**old, var.load()), ("old", "new".into()));
        assert_eq!(Arc::strong_count(&old), 1);
        assert_eq!(try_atomically(|tx| tx.snapshot(&TVar::new(7))).map(|seven| *seven), Ok(7));
    });
}

struct Panics(Arc<AtomicUsize>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic!("in a destructor");
    }
}

#[test]
fn a_destructor_that_panics_harms_no_one_else() {
    in_a_process_of_its_own("a_destructor_that_panics_harms_no_one_else", || {
        let drops = Arc::new(AtomicUsize::new(0));
        let vars: Vec<_> = (0..3).map(|_| TVar::new(Some(Panics(drops.clone())))).collect();
        let committed = try_atomically(|tx| vars.iter().try_for_each(|var| tx.write(var, None)));
        assert_eq!((committed, drops.load(SeqCst)), (Ok(()), 3));
        drop(TVar::new(Panics(drops.clone())));
        assert_eq!(drops.load(SeqCst), 4);
        let undone = try_atomically(|tx| {
            tx.write(&vars[0], Some(Panics(drops.clone())))?;
            tx.retry::<()>()
        });
        assert_eq!((undone, drops.load(SeqCst)), (Err(TryError::Retry), 5));
        // A value that is replaced while the transaction runs is dropped by it: the panic is that of its closure.
        let message = panic_of(|| {
            try_atomically(|tx| {
                tx.write(&vars[0], Some(Panics(drops.clone())))?;
                tx.write(&vars[0], None)
            })
        });
        assert_eq!((&*message, drops.load(SeqCst)), ("in a destructor", 6));
        assert!(vars.iter().all(|var| try_atomically(|tx| tx.with(var, Option::is_none)).unwrap()));
    });
}

/// Writes a variable when it is dropped.
struct Writes(TVar<u32>);

impl Drop for Writes {
    fn drop(&mut self) {
        try_atomically(|tx| tx.modify(&self.0, |drops| *drops += 1)).unwrap();
    }
}

#[test]
fn a_variable_that_a_closure_drops_is_dropped_after_the_transaction() {
    in_a_process_of_its_own("a_variable_that_a_closure_drops_is_dropped_after_the_transaction", || {
        let drops = TVar::new(0);
        for is_read in [false, true] {
            let before = drops.load();
            let ended = try_atomically(|tx| {
                let own = TVar::new(Writes(drops.clone()));
                if is_read {
                    tx.with(&own, |_| ())?;
                }
                drop(own);
                assert_eq!(drops.load(), before, "its destructor could not write here");
                Ok(())
            });
            assert_eq!((ended, drops.load()), (Ok(()), before + 1));
        }
    });
}

struct Node(#[expect(dead_code, reason = "dropped with it")] TVar<Option<Box<Node>>>);

#[test]
fn a_long_list_is_dropped_on_a_short_stack() {
    let mut list = TVar::default();
    for _ in 0..200_000 {
        list = TVar::new(Some(Box::new(Node(list))));
    }
    let small = std::thread::Builder::new().stack_size(128 << 10);
    let dropped = small.spawn(move || {
        let var = TVar::new(Some(Box::new(Node(list))));
        try_atomically(|tx| tx.write(&var, None)).unwrap();
    });
    dropped.unwrap().join().unwrap();
}

#[test]
fn what_is_dropped_beside_a_long_transaction_is_not_looked_at_again_and_again() {
    // So many that a look at all that wait, for each that comes, would take minutes.
    const MANY: u64 = 300_000;
    in_a_process_of_its_own(
        "what_is_dropped_beside_a_long_transaction_is_not_looked_at_again_and_again",
        || {
            let drops = Drops::default();
            let vars: Vec<_> = (0..MANY).map(TVar::new).collect();
            try_atomically(|tx| vars.iter().try_for_each(|var| tx.write(var, 1))).unwrap();
            let old = TVar::new(Some(drops.guard()));
            let (var, last, count) = (TVar::new(0), old.clone(), drops.clone());
            let long = try_atomically(|tx| {
                let read = tx.read(&var)?;
                let beside = std::thread::spawn(move || {
                    drop(vars);
                    try_atomically(|tx| tx.write(&last, None)).unwrap();
                });
                beside.join().unwrap();
                assert_eq!(count.count(), 0, "this transaction could have read it");
                Ok(read)
            });
            assert_eq!((long, drops.count()), (Ok(0), 1));
        },
    );
}

#[test]
fn lent_values_stay_what_they_are_until_the_closure_ends() {
    let (text, number) = (TVar::new(String::from("0")), TVar::new(0));
    let ended = try_atomically(|tx| {
        let committed = tx.get(&text)?;
        let zero = tx.get(&number)?;
        tx.write(&text, "1".into())?;
        let first = tx.get(&text)?;
        tx.modify(&text, |text| text.push('2'))?;
        let second = tx.get(&text)?;
        let mut of_branch = None;
        tx.or_else(
            |tx| {
                tx.modify(&text, |text| text.push('3'))?;
                tx.write(&number, 3)?;
                of_branch = Some(tx.get(&text)?);
                tx.retry::<()>()
            },
            |tx| tx.modify(&text, |text| text.push('4')),
        )?;
        assert_eq!((&**committed, &**first, &**second, *zero), ("0", "1", "12", 0));
        assert_eq!(of_branch.map(|text| &**text), Some("123"));
        Ok(())
    });
    assert_eq!(ended, Ok(()));
    assert_eq!((text.load(), number.load()), ("124".into(), 0));
}

#[test]
fn calls_after_the_commit_are_made_once_and_in_order() {
    let (var, calls) = (TVar::new(0), TVar::new(Vec::new()));
    let call = |name: &'static str| {
        let calls = calls.clone();
        move || try_atomically(|tx| tx.modify(&calls, |calls| calls.push(name))).unwrap()
    };
    let committed = try_atomically(|tx| {
        tx.after_commit(call("first"));
        tx.or_else(
            |tx| {
                tx.after_commit(call("undone"));
                tx.retry()
            },
            |tx| {
                tx.after_commit(call("second"));
                Ok(())
            },
        )
    });
    assert_eq!((committed, calls.load()), (Ok(()), vec!["first", "second"]));
    let retried = try_atomically(|tx| {
        tx.after_commit(call("never"));
        tx.retry::<()>()
    });
    assert_eq!(retried, Err(TryError::Retry));
    let message = panic_of(|| {
        try_atomically(|tx| {
            tx.after_commit(|| panic!("first of two"));
            tx.after_commit(call("third"));
            tx.after_commit(|| panic!("second of two"));
            tx.write(&var, 1)
        })
    });
    assert_eq!((&*message, var.load()), ("first of two", 1), "the commit stands");
    assert_eq!(calls.load(), ["first", "second", "third"]);
}

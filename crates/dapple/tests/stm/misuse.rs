//! Misuse has a defined end, with a sentence, and leaves nothing behind.

use dapple::Shared;
use dapple::stm::{TVar, TryError, atomically, atomically_blocking, try_atomically};

use crate::common::{foreign_block_on, in_a_process_of_its_own, panic_of};

const NESTED: &str = "inside of a transaction: transactions do not nest";

#[test]
fn to_retry_without_a_read_panics() {
    let var = TVar::new(0);
    let message = panic_of(|| foreign_block_on(atomically(|tx| tx.retry::<()>())));
    assert!(message.contains("has read no variable: it would wait for ever"), "{message}");
    // Its own write is no read: no other transaction can change it.
    let message = panic_of(|| {
        atomically_blocking(|tx| {
            tx.write(&var, 1)?;
            let own = tx.read(&var)?;
            tx.check(own == 0)
        })
    });
    assert!(message.contains("has read no variable"), "{message}");
    assert_eq!(try_atomically(|tx| tx.retry::<()>()), Err(TryError::Retry));
    assert_eq!(var.load(), 0);
}

#[test]
fn transactions_do_not_nest() {
    let var = TVar::new(0);
    let inner = var.clone();
    for nested in [
        panic_of(|| try_atomically(|_| Ok(try_atomically(|tx| tx.read(&inner))))),
        panic_of(|| try_atomically(|_| Ok(foreign_block_on(atomically(|tx| tx.read(&inner)))))),
        panic_of(|| try_atomically(|_| Ok(atomically_blocking(|tx| tx.read(&inner))))),
        panic_of(|| foreign_block_on(atomically(|_| Ok(try_atomically(|tx| tx.read(&inner)))))),
    ] {
        assert!(nested.contains(NESTED), "{nested}");
    }
    assert_eq!(try_atomically(|tx| tx.read(&var)), Ok(0), "the thread is in no transaction any more");
}

#[test]
fn closures_of_states_and_of_transactions_do_not_wait_for_each_other() {
    let (state, var) = (Shared::named("state", 0), TVar::new(0));
    let in_state = panic_of(|| state.try_write(|_| foreign_block_on(atomically(|tx| tx.read(&var)))));
    assert!(
        in_state.contains("stm::atomically, inside of the closure of") && in_state.contains("state"),
        "{in_state}"
    );
    let in_transaction = panic_of(|| try_atomically(|_| Ok(state.read_blocking(|_| ()))));
    assert!(in_transaction.contains("inside of the closure of a transaction"), "{in_transaction}");
    assert!(in_transaction.contains("keep them in TVars of one transaction"), "{in_transaction}");
    assert_eq!(state.try_write(|_| try_atomically(|tx| tx.read(&var))), Ok(Ok(0)), "a try does not wait");
}

#[dapple::test]
async fn a_thread_that_runs_tasks_is_not_blocked() {
    let message = panic_of(|| atomically_blocking(|_| Ok(())));
    assert!(message.contains("stm::atomically_blocking called on a thread that runs tasks"), "{message}");
    let var = TVar::new(1);
    assert_eq!(dapple::blocking(move || atomically_blocking(|tx| tx.read(&var))).await.unwrap(), Ok(1));
}

#[test]
fn a_swallowed_abort_does_not_commit() {
    let (a, b) = (TVar::new(0), TVar::new(0));
    let write_both = || {
        let (a, b) = (a.clone(), b.clone());
        let write = move || {
            try_atomically(|tx| {
                tx.write(&a, 1)?;
                tx.write(&b, 1)
            })
        };
        std::thread::spawn(write).join().unwrap().unwrap();
    };
    let swallowed = try_atomically(|tx| {
        assert_eq!(tx.read(&a).unwrap(), 0);
        write_both();
        tx.read(&b).unwrap_err(); // it would be 1, which `a` was not together with
        tx.read(&a).unwrap_err();
        tx.write(&a, 7).unwrap_err();
        tx.modify(&b, |_| ()).unwrap_err();
        tx.with(&b, |_| ()).unwrap_err();
        tx.get(&b).unwrap_err();
        tx.snapshot(&b).unwrap_err();
        tx.check(true).unwrap_err();
        tx.or_else(|_| Ok(()), |_| Ok(())).unwrap_err();
        Ok(())
    });
    assert_eq!(swallowed, Err(TryError::Conflict));
    let swallowed = try_atomically(|tx| {
        tx.write(&a, 7)?;
        tx.retry::<()>().unwrap_err();
        tx.write(&a, 8).unwrap_err();
        Ok(())
    });
    assert_eq!(swallowed, Err(TryError::Retry));
    assert_eq!((a.load(), b.load()), (1, 1));
}

#[test]
fn a_retry_that_a_branch_has_swallowed_is_one() {
    let var = TVar::new(0);
    let taken = try_atomically(|tx| {
        tx.or_else(
            |tx| {
                tx.write(&var, 1)?;
                drop(tx.retry::<()>());
                Ok("a")
            },
            |tx| {
                assert_eq!(tx.read(&var)?, 0);
                Ok("b")
            },
        )
    });
    assert_eq!((taken, var.load()), (Ok("b"), 0));
}

#[test]
fn an_abort_of_another_transaction_is_refused() {
    let mut kept = None;
    let first = try_atomically(|tx| {
        kept = tx.retry::<()>().err();
        Ok(())
    });
    assert_eq!(first, Err(TryError::Retry));
    let message = panic_of(|| try_atomically(|_| Err::<(), _>(kept.take().unwrap())));
    assert!(message.contains("an Abort that no operation of this transaction has returned"), "{message}");
}

#[test]
fn a_panic_in_the_closure_leaves_nothing_behind() {
    let (var, text) = (TVar::new(0), TVar::new(String::from("as it was")));
    let message = panic_of(|| {
        try_atomically(|tx| {
            tx.write(&var, 1)?;
            tx.write(&text, String::new())?;
            tx.after_commit(|| unreachable!());
            if true {
                panic!("inside")
            }
            Ok(())
        })
    });
    assert_eq!(message, "inside");
    assert_eq!((var.load(), text.load()), (0, "as it was".into()));
    assert_eq!(try_atomically(|tx| tx.write(&var, 2)), Ok(()));
}

/// Does something when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_destructor_of_an_old_value_may_run_transactions() {
    in_a_process_of_its_own("a_destructor_of_an_old_value_may_run_transactions", || {
        let drops = TVar::new(0);
        let in_drop = drops.clone();
        let count = move || {
            assert_eq!(try_atomically(|tx| tx.modify(&in_drop, |drops| *drops += 1)), Ok(()));
            assert_eq!(atomically_blocking(|tx| tx.modify(&in_drop, |drops| *drops += 1)), Ok(()));
        };
        let var = TVar::new(Some(OnDrop(count)));
        try_atomically(|tx| tx.write(&var, None)).unwrap();
        assert_eq!(drops.load(), 2);
    });
}

#[test]
fn a_destructor_inside_of_a_transaction_is_refused_and_a_second_panic_does_not_end_the_process() {
    let var = TVar::new(0);
    let inner = || try_atomically(|tx| tx.modify(&var, |var| *var += 1));
    let message = panic_of(|| {
        try_atomically(|_| {
            drop(OnDrop(|| inner().unwrap()));
            Ok(())
        })
    });
    assert!(message.contains(NESTED), "{message}");
    let message = panic_of(|| {
        try_atomically(|_| {
            let _unwinds = OnDrop(|| {
                assert_eq!(inner(), Err(TryError::Conflict));
                assert!(atomically_blocking(|tx| tx.read(&var)).is_err());
            });
            if true {
                panic!("first")
            }
            Ok(())
        })
    });
    assert_eq!((&*message, var.load()), ("first", 0));
}

#[test]
fn a_destructor_of_a_thread_local_may_run_transactions() {
    type LastCall = OnDrop<Box<dyn FnMut()>>;
    thread_local! {
        static LAST: std::cell::RefCell<Option<LastCall>> = const { std::cell::RefCell::new(None) };
    }
    let var = TVar::new(0);
    let inside = var.clone();
    let thread = std::thread::spawn(move || {
        let own = inside.clone();
        let add = move || try_atomically(|tx| tx.modify(&own, |own| *own += 1)).unwrap();
        LAST.set(Some(OnDrop(Box::new(add))));
        try_atomically(|tx| tx.modify(&inside, |var| *var += 1)).unwrap();
    });
    thread.join().unwrap();
    assert_eq!(var.load(), 2);
}

#[test]
fn a_future_that_is_done_is_not_polled_again() {
    let var = TVar::new(0);
    let mut done = std::pin::pin!(atomically(|tx| tx.read(&var)));
    assert_eq!(foreign_block_on(done.as_mut()), Ok(0));
    let message = panic_of(|| foreign_block_on(done.as_mut()));
    assert!(message.contains("polled again after it was done"), "{message}");
}

#[test]
fn ten_million_variables_are_a_matter_of_memory_alone() {
    const MANY: u64 = 10_000_000;
    let vars: Vec<_> = (0..MANY).map(TVar::new).collect();
    let read = vars.iter().step_by(20);
    let sum = try_atomically(|tx| read.clone().try_fold(0, |sum, var| Ok(sum + tx.read(var)?)));
    assert_eq!(sum, Ok((0..MANY).step_by(20).sum()));
    let some = vars.iter().step_by(100);
    assert_eq!(try_atomically(|tx| some.clone().try_for_each(|var| tx.write(var, 1))), Ok(()));
    assert!(some.clone().all(|var| var.load() == 1));
}

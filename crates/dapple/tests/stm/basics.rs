//! Reads and writes of a transaction, and its ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dapple::stm::{Abort, TVar, TryError, atomically, atomically_blocking, atomically_or, try_atomically};
use dapple::time::{Duration, sleep, timeout};

const STEP: Duration = Duration::from_millis(1);

#[dapple::test]
async fn a_transaction_sees_its_own_writes() {
    let (number, text) = (TVar::new(1), TVar::new(String::from("a")));
    let seen = atomically(|tx| {
        tx.write(&number, 2)?;
        tx.modify(&text, |text| text.push('b'))?;
        tx.modify(&text, |text| text.push('c'))?;
        Ok((tx.read(&number)?, tx.read(&text)?, tx.with(&text, String::len)?, tx.snapshot(&text)?))
    });
    assert_eq!(seen.await, Ok((2, "abc".into(), 3, Arc::new("abc".into()))));
    assert_eq!((number.load(), text.load()), (2, "abc".into()));
}

#[dapple::test]
async fn a_clone_is_a_handle_of_the_same_variable() {
    let one = TVar::new(vec![1]);
    let other = one.clone();
    atomically(|tx| tx.modify(&other, |list| list.push(2))).await.unwrap();
    assert_eq!(one.load(), [1, 2]);
    assert!(one.ptr_eq(&other) && !one.ptr_eq(&TVar::default()));
    assert_eq!(format!("{one:?}"), "TVar([1, 2])");
}

#[dapple::test]
async fn an_error_of_the_closure_undoes_its_writes() {
    #[derive(Debug, PartialEq)]
    struct Refused;
    impl From<Abort> for Refused {
        fn from(_: Abort) -> Refused {
            Refused
        }
    }
    let var = TVar::new(String::from("as it was"));
    let failed = atomically_or(|tx| {
        tx.write(&var, String::new())?;
        Err::<(), _>(Refused)
    });
    assert_eq!(failed.await, Ok(Err(Refused)));
    assert_eq!(var.load(), "as it was");
    let failed = atomically_or(|tx| {
        tx.write(&var, String::new())?;
        Err::<(), _>(std::io::Error::from(std::io::ErrorKind::NotFound))
    });
    assert_eq!(failed.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(var.load(), "as it was");
}

#[dapple::test]
async fn a_commit_wakes_a_task_that_retries_once() {
    let (var, runs) = (TVar::new(0), Arc::new(AtomicUsize::new(0)));
    let task = dapple::spawn({
        let (var, runs) = (var.clone(), runs.clone());
        atomically(move |tx| {
            runs.fetch_add(1, Relaxed);
            let value = tx.read(&var)?;
            tx.check(value == 2)
        })
    });
    sleep(STEP).await.unwrap();
    assert_eq!(runs.load(Relaxed), 1);
    atomically(|tx| tx.write(&var, 1)).await.unwrap();
    sleep(STEP).await.unwrap();
    assert_eq!(runs.load(Relaxed), 2);
    atomically(|tx| tx.write(&var, 2)).await.unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(runs.load(Relaxed), 3);
}

#[dapple::test]
async fn a_timeout_ends_a_transaction_that_is_parked() {
    let var = TVar::new(String::new());
    let waits = atomically(|tx| {
        let is_empty = tx.with(&var, String::is_empty)?;
        tx.check(!is_empty)
    });
    assert!(timeout(STEP, waits).await.is_err());
    atomically(|tx| tx.write(&var, "later".into())).await.unwrap();
}

#[dapple::test]
async fn or_else_undoes_the_first_branch_and_waits_for_both() {
    let (a, b) = (TVar::new(0), TVar::new(0));
    let task = dapple::spawn({
        let (a, b) = (a.clone(), b.clone());
        atomically(move |tx| {
            tx.or_else(
                |tx| {
                    tx.write(&b, 100)?;
                    let value = tx.read(&a)?;
                    tx.check(value > 0)?;
                    Ok("a")
                },
                |tx| {
                    let value = tx.read(&b)?;
                    assert_ne!(value, 100, "a write of the first branch");
                    tx.check(value > 0)?;
                    Ok("b")
                },
            )
        })
    });
    sleep(STEP).await.unwrap();
    atomically(|tx| tx.write(&b, 1)).await.unwrap();
    assert_eq!(task.await.unwrap(), Ok("b"));
    assert_eq!((a.load(), b.load()), (0, 1));
}

#[test]
fn threads_outside_wait_for_each_other() {
    let turn = TVar::new(0_u32);
    let threads: Vec<_> = (0..4)
        .map(|own| {
            let turn = turn.clone();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    atomically_blocking(|tx| {
                        let at = tx.read(&turn)?;
                        tx.check(at % 4 == own)?;
                        tx.write(&turn, at + 1)
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(turn.load(), 200);
}

#[test]
fn a_try_does_not_wait() {
    let var = TVar::new(0);
    assert_eq!(try_atomically(|tx| tx.modify(&var, |var| *var += 1)), Ok(()));
    assert_eq!(try_atomically(|tx| tx.retry::<()>()), Err(TryError::Retry));
    let conflict = try_atomically(|tx| {
        let value = tx.read(&var)?;
        let other = var.clone();
        std::thread::spawn(move || try_atomically(|tx| tx.write(&other, 7)).unwrap()).join().unwrap();
        tx.write(&var, value + 1)
    });
    assert_eq!(conflict, Err(TryError::Conflict));
    assert_eq!(var.load(), 7);
}

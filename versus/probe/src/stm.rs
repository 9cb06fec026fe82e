//! State that changes together, and values handed over: free, and with nothing to wait for.

use dapple::stm::{TBoundedQueue, TMap, TVar, atomically};
use dapple::sync::{MVar, Mutex};
use dapple::{Shared, shared, together};
use foldhash::quality::FixedState;

/// How many keys the map has.
const KEYS: usize = 1000;

/// A transaction that reads a number.
pub(crate) async fn read(count: usize) {
    let var = TVar::new(7_usize);
    for _ in 0..count {
        assert_eq!(atomically(|tx| tx.read(&var)).await, Ok(7));
    }
}

/// A transaction that changes a number.
pub(crate) async fn write(count: usize) {
    let var = TVar::new(0_usize);
    for _ in 0..count {
        atomically(|tx| tx.modify(&var, |value| *value += 1)).await.expect("not cancelled");
    }
    assert_eq!(var.load(), count);
}

/// A transaction that changes two numbers.
pub(crate) async fn transfer(count: usize) {
    let (from, to) = (TVar::new(count), TVar::new(0));
    for _ in 0..count {
        let moved = atomically(|tx| {
            tx.modify(&from, |from| *from -= 1)?;
            tx.modify(&to, |to| *to += 1)
        });
        moved.await.expect("not cancelled");
    }
    assert_eq!((from.load(), to.load()), (0, count));
}

/// A value through a bounded queue: two transactions.
pub(crate) async fn queue(count: usize) {
    let queue = TBoundedQueue::new(100);
    for number in 0..count {
        atomically(|tx| queue.push(tx, number)).await.expect("there is room");
        assert_eq!(atomically(|tx| queue.pop(tx)).await, Ok(number));
    }
}

/// A key that is in a map, read.
pub(crate) async fn map(count: usize) {
    let map = TMap::with_hasher(FixedState::with_seed(1));
    for key in 0..KEYS {
        atomically(|tx| map.insert(tx, key, key)).await.expect("not cancelled");
    }
    for number in 0..count {
        let key = number % KEYS;
        assert_eq!(atomically(|tx| map.get(tx, &key)).await, Ok(Some(key)));
    }
}

/// Two states, changed together.
pub(crate) async fn both(count: usize) {
    let (from, to) = (Shared::new(count), Shared::new(0));
    for _ in 0..count {
        together((from.writing(), to.writing()), |(from, to)| (*from, *to) = (*from - 1, *to + 1))
            .await
            .expect("free states");
    }
    assert_eq!(to.try_read(|to| *to), Ok(count));
}

/// The same, once a condition holds, which it does.
pub(crate) async fn when(count: usize) {
    let (from, to) = (Shared::new(count), Shared::new(0));
    for _ in 0..count {
        let moved = shared::when((from.writing(), to.writing()), |(from, to)| {
            (*from > 0).then(|| (*from, *to) = (*from - 1, *to + 1))
        });
        moved.await.expect("free states");
    }
    assert_eq!(to.try_read(|to| *to), Ok(count));
}

/// A value put into a place, and taken out.
pub(crate) async fn mvar(count: usize) {
    let place = MVar::empty();
    for number in 0..count {
        place.put(number).await.expect("it is empty");
        assert_eq!(place.take().await, Ok(number));
    }
}

pub(crate) async fn mutex(count: usize) {
    let mutex = Mutex::new(0);
    for _ in 0..count {
        *mutex.lock().await.expect("not cancelled") += 1;
    }
    assert_eq!(mutex.into_inner(), count);
}

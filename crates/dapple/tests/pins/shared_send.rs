//! Which of the types of shared states may pass between threads, pinned at compile time, and the uses that this allows.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{foreign_block_on, runtime};
use dapple::{
    Shared,
    shared::{Busy, ReadFuture, Reading, Together, TogetherAll, WriteFuture, Writing},
    together, together_all,
};

/// `Send`, but not `Sync`.
type SendOnly = Cell<u8>;
/// Neither.
type Neither = Rc<u8>;
/// `Sync`, but not `Send`.
type SyncOnly = std::sync::MutexGuard<'static, u8>;
/// Closures that may go to another thread, and some that may not.
type Goes = fn();
type Stays = Rc<u8>;

pin_markers! {
    // type: Send Sync;
    Shared<u8>: yes yes;
    Shared<SendOnly>: yes yes; // written by one task at a time, and never read
    Shared<Neither>: no no;
    Shared<SyncOnly>: no no; // the last one to share it drops it
    Busy: yes yes;

    Reading<'static, u8>: yes yes;
    Reading<'static, SyncOnly>: no no;
    Reading<'static, Neither>: no no;
    Writing<'static, u8>: yes yes;
    Writing<'static, SendOnly>: yes yes;
    Writing<'static, Neither>: no no;
    Writing<'static, SyncOnly>: no no;

    WriteFuture<'static, SendOnly, Goes>: yes yes;
    WriteFuture<'static, u8, Stays>: no no;
    WriteFuture<'static, Neither, Goes>: no no;
    WriteFuture<'static, SyncOnly, Goes>: no no;
    ReadFuture<'static, u8, Goes>: yes yes;
    ReadFuture<'static, u8, Stays>: no no;
    ReadFuture<'static, SyncOnly, Goes>: no no;

    Together<(Reading<'static, u8>, Writing<'static, SendOnly>), Goes>: yes yes;
    Together<(Reading<'static, u8>, Writing<'static, u8>), Stays>: no no;
    Together<(Reading<'static, u8>, Writing<'static, Neither>), Goes>: no no;
    Together<(Reading<'static, SyncOnly>, Writing<'static, u8>), Goes>: no no;
    TogetherAll<'static, Writing<'static, SendOnly>, Goes>: yes yes;
    TogetherAll<'static, Reading<'static, u8>, Stays>: no no;
    TogetherAll<'static, Writing<'static, Neither>, Goes>: no no;
}

const _: fn() = || {
    fn unpin<T: Unpin>() {}
    fn with<T: 'static, F: 'static>() {
        unpin::<ReadFuture<'static, T, F>>();
        unpin::<WriteFuture<'static, T, F>>();
    }
    with::<std::marker::PhantomPinned, std::marker::PhantomPinned>();
};

/// A value that is not `Send` can be shared on one thread; a value that is not `Sync` can be written from many.
#[test]
fn values_that_stay_and_values_that_go() {
    let here = Shared::new(Rc::new(1));
    let clone = here.clone();
    assert_eq!(foreign_block_on(clone.write(|value| Rc::strong_count(value))), Ok(1));
    assert!(here.try_write(|value| *value = Rc::new(2)).is_ok());
    let other = Shared::new(Rc::new(0));
    let sum = foreign_block_on(together((here.writing(), other.writing()), |(a, b)| **a + **b));
    assert_eq!(sum, Ok(2));
    let all = [here.writing(), other.writing()];
    let count =
        foreign_block_on(together_all(&all, |all| all.iter().map(|rc| Rc::strong_count(rc)).sum::<usize>()));
    assert_eq!(count, Ok(2));

    let rt = runtime(2);
    let cell = Shared::new(Cell::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let cell = cell.clone();
            // The closure's result need not be `Send`: it does not leave the poll.
            rt.spawn(async move { *cell.write(|cell| Rc::new(cell.replace(cell.get() + 1))).await.unwrap() })
        })
        .collect();
    let mut seen: Vec<_> = tasks.into_iter().map(|task| rt.block_on(task).unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
}

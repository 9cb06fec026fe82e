//! Which types of `event` may pass between threads, pinned at compile time.

use std::cell::Cell;
use std::rc::Rc;

use dapple::event::{Anywhere, Callback, OnThisThread, Registration, Withdraw};
use dapple::task::{DropClosure, NoDropClosure};

/// `Send`, but not `Sync`.
type SendOnly = Cell<u8>;
/// Neither.
type Neither = Rc<u8>;

pin_markers! {
    // type: Send Sync;
    Registration: yes yes;
    Withdraw: yes yes;
    Callback<u8>: yes yes;
    Callback<SendOnly>: yes no;
    Callback<Neither>: no no;
    Callback<u8, DropClosure<SendOnly>>: yes no;
    Callback<u8, DropClosure<Neither>>: no no;
    // Only the closure ties such a callback to its thread; without a closure it may be sent.
    Callback<u8, NoDropClosure, OnThisThread>: yes yes;
    Callback<Neither, NoDropClosure, OnThisThread>: no no;
    Anywhere: yes yes;
    OnThisThread: yes yes;
}

/// A future that waits for a withdrawal or submits callbacks is `Send`, as `spawn` requires.
#[test]
fn futures_that_hold_registrations_are_send() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    drop(is_send(async {
        let registration = dapple::event::after(dapple::time::Duration::ZERO, Callback::new(|| ()));
        let value = dapple::event::now(Callback::new(|| Cell::new(1))).await.unwrap();
        registration.withdraw().await.unwrap();
        value
    }));
}

/// Handles do not care how what is behind them likes to be moved.
#[test]
fn handles_are_unpin_and_static() {
    fn is_unpin<T: Unpin + 'static>() {}
    is_unpin::<Registration>();
    is_unpin::<Withdraw>();
}

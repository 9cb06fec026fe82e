//! Which types may pass between threads, pinned at compile time.

use std::cell::Cell;
use std::future::{Pending, Ready};
use std::rc::Rc;

use dapple::task::{Builder, Local, Scoped, Task, YieldNow, YieldTo};
use dapple::{
    Color, ColorCell, Handle, JoinError, JoinHandle, Runtime,
    runtime::{self, Dump, Metrics, Shutdown, TaskInfo, TaskState, WorkerMetrics},
};

/// `Send`, but not `Sync`.
type SendOnly = Cell<u8>;
/// Neither.
type Neither = Rc<u8>;
/// `Sync`, but not `Send`.
type SyncOnly = std::sync::MutexGuard<'static, u8>;

pin_markers! {
    // type: Send Sync;
    Runtime: yes yes;
    runtime::Builder: yes yes;
    Handle: yes yes;
    Metrics: yes yes;
    WorkerMetrics: yes yes;
    Dump: yes yes;
    TaskInfo: yes yes;
    TaskState: yes yes;
    Shutdown: yes yes;

    Color: yes yes;
    ColorCell<u8>: yes yes;
    ColorCell<SendOnly>: yes yes;
    ColorCell<Neither>: no no;
    ColorCell<SyncOnly>: no no;

    JoinHandle<u8>: yes yes;
    JoinHandle<SendOnly>: yes yes;
    JoinHandle<Neither>: no no;
    JoinHandle<SyncOnly>: no no;
    JoinError: yes yes;
    Task: yes yes;
    Builder: yes yes;
    YieldNow: yes yes;
    YieldTo<'static>: yes yes;

    Local<u8>: yes yes;
    Local<Neither>: yes yes;
    Scoped<u8, Ready<u8>>: yes yes;
    Scoped<SendOnly, Ready<u8>>: yes no;
    Scoped<Neither, Ready<u8>>: no no;
    Scoped<u8, Pending<Neither>>: yes yes;
    Scoped<u8, Ready<Neither>>: no no;
}

pin_markers! {
    dapple::net::TcpListener: yes yes;
    dapple::net::TcpSocket: yes yes;
    dapple::net::TcpStream: yes yes;
    dapple::net::tcp::Incoming<'static>: yes yes;
    dapple::net::tcp::IntoIncoming: yes yes;
    dapple::net::tcp::ReadHalf<'static>: yes yes;
    dapple::net::tcp::WriteHalf<'static>: yes yes;
    dapple::net::tcp::OwnedReadHalf: yes yes;
    dapple::net::tcp::OwnedWriteHalf: yes yes;

    dapple::net::AsyncFd<std::fs::File>: yes yes;
    dapple::net::AsyncFd<std::sync::Arc<std::fs::File>>: yes yes;
    dapple::net::UdpSocket: yes yes;
    dapple::net::UnixDatagram: yes yes;
    dapple::net::UnixListener: yes yes;
    dapple::net::UnixStream: yes yes;
    dapple::net::unix::Incoming<'static>: yes yes;
    dapple::net::unix::IntoIncoming: yes yes;
    dapple::net::unix::ReadHalf<'static>: yes yes;
    dapple::net::unix::WriteHalf<'static>: yes yes;
    dapple::net::unix::OwnedReadHalf: yes yes;
    dapple::net::unix::OwnedWriteHalf: yes yes;
    dapple::net::unix::UCred: yes yes;
    dapple::io::Duplex: yes yes;
    dapple::io::ReadHalf<SendOnly>: yes yes;
    dapple::io::WriteHalf<Neither>: no no;
    dapple::net::pipe::Sender: yes yes;
    dapple::net::pipe::Receiver: yes yes;
    dapple::net::pipe::OpenOptions: yes yes;
}

/// A future that awaits a handle of a `Send` output is `Send`, as `spawn` requires.
#[test]
fn futures_that_hold_handles_and_colors_are_send() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    drop(is_send(async {
        let handle = dapple::spawn(async { Cell::new(1) });
        let color = Color::current();
        dapple::task::yield_now().await;
        color.call(|| ()).await.unwrap();
        handle.await.unwrap().get()
    }));
}

/// Handles and cells do not care how their content likes to be moved or shared.
#[test]
fn handles_are_unpin_and_static() {
    fn is_unpin<T: Unpin + 'static>() {}
    is_unpin::<JoinHandle<std::marker::PhantomPinned>>();
    is_unpin::<ColorCell<u8>>();
    is_unpin::<Color>();
}

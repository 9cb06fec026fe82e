//! Load from another thread, which never overtakes the worker: it goes on when the worker sleeps.
//!
//! So each connection and each request finds the worker where the one before did, and each costs the same number of
//! instructions, however fast either thread is.

use std::net::{Ipv4Addr, SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc;
use std::thread;

use dapple::Handle;
use dapple::channel::oneshot;
use dapple::net::TcpListener;

use crate::meter::{A_MOMENT, Meter};

/// A thread that does something outside, as often as it is asked to.
#[derive(Clone)]
pub(crate) struct Load(mpsc::Sender<(usize, oneshot::Sender<()>)>);

impl Load {
    /// Of a task. `once` is called each time when the worker sleeps.
    pub(crate) fn start(mut once: impl FnMut() + Send + 'static) -> Load {
        let runtime = Handle::current();
        let (orders, order) = mpsc::channel::<(usize, oneshot::Sender<()>)>();
        thread::spawn(move || {
            for (count, done) in order {
                for _ in 0..count {
                    await_sleep(&runtime);
                    once();
                }
                await_sleep(&runtime);
                done.send(()).expect("a task that waits");
            }
        });
        Load(orders)
    }

    /// Resolves when the operation has run `count` times, and the worker slept again each time.
    pub(crate) fn times(&self, count: usize) -> impl Future<Output = ()> + Send + use<> {
        let (done, is_done) = oneshot::channel();
        self.0.send((count, done)).expect("a thread that goes on");
        async { is_done.await.expect("a thread that goes on") }
    }
}

fn await_sleep(runtime: &Handle) {
    while runtime.metrics().sleeping == 0 {
        thread::sleep(A_MOMENT);
    }
}

/// Connections that are accepted, one at a time, and dropped.
pub(crate) async fn accept(count: usize, meter: Meter) -> f64 {
    let (listener, address) = listen().await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let (counter, mut connected) = (accepted.clone(), 0);
    let server = dapple::spawn(async move {
        // Until it is cancelled.
        while let Ok(connection) = listener.accept().await {
            drop(connection);
            accepted.fetch_add(1, Release);
        }
    });
    let load = Load::start(move || {
        let client = StdStream::connect(address).expect("a listener");
        connected += 1;
        while counter.load(Acquire) < connected {
            thread::sleep(A_MOMENT);
        }
        drop(client);
    });
    let cost = meter.of(count, |count| load.times(count)).await;
    server.cancel();
    cost
}

/// A listener, and where it listens.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("a port");
    (listener, address)
}

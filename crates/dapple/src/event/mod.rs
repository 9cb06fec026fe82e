//! Callbacks: programs made of events, beside tasks, on the same scheduler.
//!
//! A [`Callback`] is a closure that is called when something happens, and that never waits. It is handed to
//!
//! | | called |
//! |---|---|
//! | [`now`] | as soon as its color is free |
//! | [`after`], [`at`] | once, at a time |
//! | [`every`] | again and again |
//! | [`readable`], [`writable`] | while a file descriptor is |
//! | [`signal`](signal()) | for each signal |
//!
//! All but the first return a [`Registration`], which withdraws the callback when it is dropped.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//! use std::rc::Rc;
//! use dapple::event::{self, Callback};
//! use dapple::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let (near, mut far) = UnixStream::pair()?;
//! let name = dapple::run(dapple::suspend(move |found| {
//!     // A program for one thread: its state need not be `Send`, and needs no lock.
//!     let (near, mut found) = (Rc::new(near), Some(found));
//!     let socket = near.clone();
//!     let reading = event::readable(&near, Callback::local(move || {
//!         let mut buffer = [0; 16];
//!         let n = (&*socket).read(&mut buffer).unwrap();
//!         let name = String::from_utf8_lossy(&buffer[..n]).into_owned();
//!         found.take().unwrap().resume(name).unwrap();
//!         std::ops::ControlFlow::Break(()) // that was all
//!     }));
//!     let greeting = Callback::local(move || far.write_all(b"dapple").unwrap());
//!     event::after(Duration::from_millis(1), greeting).detach();
//!     move || drop(reading)
//! }));
//! assert_eq!(name.unwrap(), "dapple");
//! # Ok(())
//! # }
//! ```
//!
//! # Colors
//!
//! Callbacks of one [color](crate::Color) never run at the same time; those of different colors run in parallel, on
//! any worker. A callback **without a color runs in the main color**: on the thread that called [`run`](crate::run) or
//! [`block_on`](crate::Runtime::block_on), one after the other, together with everything else of that color. So a
//! program that was written for an event loop on one thread runs unchanged, and is made parallel where that pays: give
//! a color to those callbacks that take long and share nothing with the others, or a color to each connection.
//!
//! Colors are not inherited. Whoever registers a callback without a color, in whatever color, it goes to the main
//! color: that of the innermost `run` or `block_on` of this thread; on other threads that of the runtime's `run`, or
//! of its only `block_on`. Where there is none, or more than one to choose from, that is a panic which says so, and
//! the callback must be given a color.
//!
//! What need not be `Send` is a [local](Callback::local) callback. It is registered in the main color, and stays there.
//!
//! # Order
//!
//! * [`now`] callbacks of one color run in the order in which they were submitted, and in line with the tasks of the
//!   color. Between colors there is no order; a [`Priority`](crate::sched::Priority) is a hint.
//! * They go ahead of new events: while a worker has something to run, it asks the kernel for what has happened only
//!   now and then, so that events do not starve. How soon, is a
//!   [priority of its own](crate::runtime::Builder::event_priority). What a callback hands on by `now` is so run while
//!   its data is in the cache.
//! * A callback that is called often is called once for each event. Before it is called again, others of its color
//!   that are in line have their turn, and other colors in theirs.
//!
//! # Withdrawing
//!
//! Drop the [`Registration`], wherever, also in the callback itself. In the callback's color it is not called again
//! from then on. Elsewhere it may be running just now: after [`withdraw().await`](Registration::withdraw) it is not,
//! and will not be called again. A callback also withdraws itself if it returns
//! [`ControlFlow::Break`](std::ops::ControlFlow::Break), and then need not know its registration.
//!
//! Who registers a callback in its own color knows that it is not called before this closure, or this poll, is over.
//! In another color it may be called before the function has returned.
//!
//! # Panics
//!
//! A callback that panics is over: it is not called again, what it owns is dropped, and the panic is returned to who
//! [withdraws](Registration::withdraw) it, or awaits the handle of [`now`]. Its color, its worker and all other
//! callbacks go on.
//!
//! # When the runtime ends
//!
//! All that is registered is withdrawn, in its color; [drop closures](Callback::or_else) of callbacks that were never
//! called are called. A `now` that is in line is still called, if the runtime is given the time. `run` and `block_on`
//! end when their future does, however many callbacks there are: a program of callbacks alone awaits
//! [`pending`](std::future::pending), or what one of them tells it.
//!
//! # Callbacks and tasks
//!
//! Both are run by the same scheduler: a callback may [`spawn`](crate::spawn()) tasks, and a task register callbacks. A
//! task waits for a callback by [`suspend`](crate::suspend): exactly, that is, a task that is cancelled has withdrawn it.
//!
//! ```
//! use std::net::UdpSocket;
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use dapple::event::{self, Callback};
//!
//! /// Waits for a datagram. If that is cancelled, none is lost.
//! async fn datagram(socket: &Arc<UdpSocket>) -> Result<Vec<u8>, dapple::Cancelled> {
//!     dapple::suspend(|resume| {
//!         let (reader, mut resume) = (socket.clone(), Some(resume));
//!         let read = Callback::new(move || {
//!             let mut buffer = [0; 1500];
//!             let n = reader.recv(&mut buffer).unwrap();
//!             resume.take().unwrap().resume(buffer[..n].to_vec()).unwrap();
//!             ControlFlow::Break(())
//!         });
//!         // In the task's own color: it cannot be called while the task withdraws it.
//!         let reading = event::readable(socket, read.color(&dapple::Color::current()));
//!         move || drop(reading)
//!     })
//!     .await
//! }
//!
//! dapple::run(async {
//!     let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
//!     socket.send_to(b"hello", socket.local_addr().unwrap()).unwrap();
//!     assert_eq!(datagram(&socket).await.unwrap(), b"hello");
//! });
//! ```
//!
//! # In a simulation
//!
//! [`now`], [`after`], [`at`] and [`every`] go by [virtual time](crate::sim). There are no file descriptors and no
//! signals: [`readable`], [`writable`] and [`signal`](signal()) return an error that says so.
//!
//! # From libasync-mp
//!
//! The calls of *libasync* and *libasync-mp* (tables 2.1 and 3.1 of Nickolai Zeldovich's thesis, *Concurrency Control
//! for Multi-Processor Event-Driven Systems*, 2002), and what they are here:
//!
//! | there | here |
//! |---|---|
//! | `wrap(f, x, y)`: a callback | [`Callback::new`]`(move \|\| f(x, y))`; [`Callback::local`] if it is not `Send`. An argument that is there only later: [`Callback::with`] |
//! | `cwrap(f, x, y, color)`: in a color | [`.color(&color)`](Callback::color); a number as a color: [`Color::keyed`](crate::Color::keyed) |
//! | `cpwrap(f, x, y, color, priority)`: with a priority | [`.priority(priority)`](Callback::priority) |
//! | `fdcb(fd, READ, cb)`, `fdcb(fd, WRITE, cb)` | [`readable`]`(&fd, cb)`, [`writable`]`(&fd, cb)` |
//! | `fdcb(fd, READ, NULL)` | drop the [`Registration`], or return `ControlFlow::Break(())` |
//! | `sigcb(sig, cb)` | [`signal`](signal())`(kind, cb)` |
//! | `timecb(t, cb)` | [`at`]`(t, cb)`, [`after`]`(duration, cb)`; again and again: [`every`] |
//! | `cpucb(cb)` | [`now`]`(cb)` |
//! | `amain()` | [`dapple::run`](crate::run)`(async { ...; std::future::pending().await })` |
//! | the drop callback of its future work | [`.or_else(closure)`](Callback::or_else) |
//!
//! # From AC
//!
//! The calls by which AC's asynchronous operations are made of callbacks (figure 7 of Harris and others, *AC:
//! Composable Asynchronous IO for Native Languages*, 2011):
//!
//! | there | here |
//! |---|---|
//! | `Suspend(&x)` | [`dapple::suspend`](crate::suspend)`(\|resume\| ...).await` |
//! | `SuspendUnlock(&x, &lock)` | the same, and the lock is released in the closure, after `resume` was put where others find it: a `resume` that comes before the task waits is not lost |
//! | `Schedule(x)` | [`resume.resume(value)`](crate::scope::Resume::resume) |
//! | `Yield()` | [`task::yield_now`](crate::task::yield_now)`().await` |
//! | `YieldTo(x)` | [`task::yield_to`](crate::task::yield_to)`(&handle).await` |
//! | `IsCancelled()` | [`Scope::is_cancelled`](crate::Scope::is_cancelled); of a whole task, [`Task::is_cancelled`](crate::task::Task::is_cancelled) |
//! | `AddCancelItem(&item, f, arg)` | the closure that the closure of `suspend` returns |
//! | `RemoveCancelItem(&item)` | happens by itself once it was resumed |
//!
//! # Inside
//!
//! ```text
//! callback      what users make
//! calls         the futures around closures: wait, call, give way
//! submit        from a callback to a task of its color
//! registration  the task's handle; times, files, signals: what is waited for
//! ```

mod callback;
mod callback_tasks;
mod files;
mod registration;
#[cfg(feature = "process")]
mod signals;
mod submit;
mod times;

pub use self::callback::{Anywhere, Callback, OnThisThread};
pub use self::callback_tasks::Verdict;
pub use self::files::{readable, writable};
pub use self::registration::{Registration, Withdraw};
#[cfg(feature = "process")]
pub use self::signals::signal;
pub use self::submit::{Often, Once};
pub use self::times::{after, at, every};

use crate::JoinHandle;
use submit::Site;

/// Calls a callback as soon as its color is free: libasync-mp's `cpucb`.
///
/// Callbacks of one color run in the order in which they were submitted, behind whatever else of the color is in line.
/// It moves work to a color of its own, and back: [`Color::call`](crate::Color::call) for callbacks.
///
/// # Cancellation
///
/// *Handle dropped*, as by [`detach`](JoinHandle::detach): it is called all the same. *Handle aborted*: it is not
/// called if it has not begun, and its [drop closure](Callback::or_else) is.
///
/// # Panics
///
/// If the callback has no color, and there is [no main color](self#colors) for it.
///
/// # Examples
///
/// ```
/// use dapple::Color;
/// use dapple::event::{self, Callback};
///
/// dapple::run(async {
///     let squares = Color::new();
///     let handles: Vec<_> =
///         (0..4).map(|i| event::now(Callback::new(move || i * i).color(&squares))).collect();
///     for (i, handle) in handles.into_iter().enumerate() {
///         assert_eq!(handle.await.unwrap(), i * i);
///     }
/// });
/// ```
#[inline]
#[track_caller]
pub fn now<C: Once>(callback: C) -> JoinHandle<C::Output> {
    callback.now(Site::of_caller("event::now"))
}

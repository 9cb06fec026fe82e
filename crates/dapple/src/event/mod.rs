//! Callbacks: event-driven programs, beside tasks, on the same scheduler.
//!
//! A [`Callback`] is a closure that is called when an event happens, and that never waits. It is passed to
//! one of these functions:
//!
//! | | called |
//! |---|---|
//! | [`now`] | as soon as its color is free |
//! | [`after`], [`at`] | once, at a time |
//! | [`every`] | again and again |
//! | [`readable`], [`writable`] | while a file descriptor is readable, or writable |
//! | [`signal`](signal()) | for each signal |
//!
//! All but the first return a [`Registration`]. Dropping it withdraws the callback.
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
//!         std::ops::ControlFlow::Break(()) // do not call again
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
//! Callbacks of one [color](crate::Color) never run at the same time; those of different colors run in
//! parallel, on any worker. A callback **without a color runs in the main color**: on the thread that called
//! [`run`](crate::run) or [`block_on`](crate::Runtime::block_on), one after the other, together with all
//! other work of that color. So a program that was written for an event loop on one thread runs unchanged,
//! and can be made parallel where that pays: give a color to callbacks that take long and share nothing with
//! the others, or a color to each connection.
//!
//! Colors are not inherited. A callback without a color goes to the main color, whatever color registers it:
//! that of the innermost `run` or `block_on` of this thread; on other threads, that of the runtime's `run`,
//! or of its only `block_on`. If there is none, or more than one, the call panics, and the callback must be
//! given a color.
//!
//! A [local](Callback::local) callback need not be `Send`. It is registered in the main color, and stays
//! there.
//!
//! # Order
//!
//! * [`now`] callbacks of one color run in the order in which they were submitted, queued together with the
//!   tasks of the color. Between colors there is no order; a [`Priority`](crate::sched::Priority) is a hint.
//! * Queued callbacks go ahead of new events, so work that a callback passes on by `now` runs while its data is in
//!   the cache. A busy worker asks the kernel for events at intervals, so that events do not starve;
//!   [`event_priority`](crate::runtime::Builder::event_priority) sets the interval.
//! * A repeating callback is called once for each event. Before it is called again, other queued work of its
//!   color, and other colors, get their turn.
//!
//! # Withdrawing
//!
//! Drop the [`Registration`], anywhere, also in the callback itself. If it is dropped in the callback's
//! color, the callback is not called again. If it is dropped elsewhere, the callback may be running at that
//! moment: after [`withdraw().await`](Registration::withdraw) it is not, and will not be called again. A
//! callback also withdraws itself by returning [`ControlFlow::Break`](std::ops::ControlFlow::Break), and then
//! need not know its registration.
//!
//! A callback registered from its own color is not called before the current closure, or the current poll,
//! has ended. A callback of another color may be called before the registering function has returned.
//!
//! # Panics
//!
//! A callback that panics is withdrawn: it is not called again, and its closure is dropped. The panic is
//! returned by [`withdraw`](Registration::withdraw), or by the handle of [`now`]. Its color, its worker and
//! all other callbacks go on.
//!
//! # When the runtime ends
//!
//! All callbacks are withdrawn, in their colors; [drop closures](Callback::or_else) of callbacks that were
//! never called are called. A queued `now` is still called, if the time limit of the shutdown allows it. `run`
//! and `block_on` end when their future does, however many callbacks there are: a program of callbacks alone
//! awaits [`pending`](std::future::pending), or a value that a callback sends.
//!
//! # Callbacks and tasks
//!
//! The same scheduler runs both: a callback may [`spawn`](crate::spawn()) tasks, and a task may register
//! callbacks. A task waits for a callback by [`suspend`](crate::suspend), which withdraws the callback if the
//! task is cancelled.
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
//! [`now`], [`after`], [`at`] and [`every`] use [virtual time](crate::sim). There are no file descriptors and
//! no signals: [`readable`], [`writable`] and [`signal`](signal()) return an error.
//!
//! # From libasync-mp
//!
//! The calls of *libasync* and *libasync-mp* (tables 2.1 and 3.1 of Nickolai Zeldovich's thesis, *Concurrency Control
//! for Multi-Processor Event-Driven Systems*, 2002), and their counterparts here:
//!
//! | there | here |
//! |---|---|
//! | `wrap(f, x, y)`: a callback | [`Callback::new`]`(move \|\| f(x, y))`; [`Callback::local`] if it is not `Send`. For an argument that is known only later: [`Callback::with`] |
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
//! | `RemoveCancelItem(&item)` | not needed: resuming removes it |
//!
//! # Inside
//!
//! ```text
//! callback        the callback that users create
//! callback_tasks  futures around closures: wait, call, yield
//! submit          makes a callback a task of its color
//! registration    handle of that task; times, files, signals: the events
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
use submit::CallSite;

/// Calls a callback as soon as its color is free: libasync-mp's `cpucb`.
///
/// Callbacks of one color run in the order in which they were submitted, behind other queued work of the
/// color. Use it to move work to another color, and back; it is [`Color::call`](crate::Color::call) for
/// callbacks.
///
/// # Cancellation
///
/// *Handle dropped*, as by [`detach`](JoinHandle::detach): the callback is called nevertheless. *Handle
/// aborted*: if the callback has not begun, it is not called, and its [drop closure](Callback::or_else) is.
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
    callback.now(CallSite::of_caller("event::now"))
}

//! The program's standard output and its output for errors, written without blocking a worker.
//!
//! A write puts its bytes into a queue, and the pool writes the queue out, one call at a time. In a
//! simulation it is written at once: the queue is shared with all runtimes, and what others do is no event
//! there.
//!
//! # Invariants
//!
//! * **ONE-WRITES**: `is_busy` is set by who starts a call, and cleared by that call under the lock
//!   under which it found the queue empty. So the queue is written in order, and nothing is left in it.
//! * **WRITTEN-AT-LAST**: a call that could not be begun, because the runtime ends or no thread is to be
//!   had, is made where it ends.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, poll};

use crate::blocking;
use crate::context::with_context;
use crate::io::foreign::impl_write;
use crate::prim::{Mutex, lock};
use crate::waitlist::wait_list::{ListTicket, WaitList};
use crate::world;

/// A write waits while there is more than this in the queue.
const ROOM: usize = 64 << 10;
/// A write takes at most this much.
const MAX: usize = 1 << 20;

static STDOUT: LazyLock<Outlet> = LazyLock::new(|| Outlet::new(Which::Out));
static STDERR: LazyLock<Outlet> = LazyLock::new(|| Outlet::new(Which::Err));

enum Which {
    Out,
    Err,
}

struct Outlet {
    which: Which,
    queue: Mutex<OutputQueue>,
    /// Those who wait until there is room, or all is written.
    crowd: WaitList,
}

#[derive(Default)]
struct OutputQueue {
    bytes: Vec<u8>,
    /// ONE-WRITES
    is_busy: bool,
    /// How many bytes have been put in, and how many are done with.
    put: u64,
    done: u64,
    /// The last error, and how many there have been.
    fault: Option<Fault>,
    faults: u64,
}

/// An error that everybody is told.
#[derive(Clone, Debug)]
struct Fault {
    kind: ErrorKind,
    os: Option<i32>,
    text: String,
}

impl From<&io::Error> for Fault {
    fn from(error: &io::Error) -> Fault {
        Fault { kind: error.kind(), os: error.raw_os_error(), text: error.to_string() }
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        match fault.os {
            Some(os) => io::Error::from_raw_os_error(os),
            None => io::Error::new(fault.kind, fault.text),
        }
    }
}

impl Outlet {
    fn new(which: Which) -> Outlet {
        Outlet { which, queue: Mutex::default(), crowd: WaitList::default() }
    }

    /// Sees to it that the queue is written out.
    fn start(&'static self) {
        let call = WriteDuty(Some(self));
        if with_context(|here| !here.has_runtime()) {
            return call.make(); // no pool here
        }
        blocking(move || call.make()).detach();
    }

    /// Writes the queue out, until it is empty. ONE-WRITES
    fn write_out(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let bytes = std::mem::take(&mut queue.bytes);
            queue.is_busy = !bytes.is_empty();
            drop(queue);
            if bytes.is_empty() {
                return self.crowd.tell();
            }
            let written = self.write(&bytes);
            let mut queue = lock(&self.queue);
            queue.done += bytes.len() as u64;
            if let Err(error) = written {
                queue.fault = Some(Fault::from(&error));
                queue.faults += 1;
            }
            drop(queue);
            self.crowd.tell();
        }
    }

    /// By the standard library's, so that it is in order with `println!`.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self.which {
            Which::Out => write(&mut io::stdout().lock(), bytes),
            Which::Err => write(&mut io::stderr().lock(), bytes),
        }
    }

    /// In a simulation, which must not wait for the threads of others: at once.
    fn write_here(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(MAX).collect();
        self.write(&bytes)?;
        Ok(bytes.len())
    }
}

/// Writes everything, also if another program has put the terminal in non-blocking mode.
fn write(to: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = if bytes.is_empty() { to.flush().map(|()| None) } else { to.write(bytes).map(Some) };
        match written {
            Ok(None) => return Ok(()),
            Ok(Some(0)) => return Err(ErrorKind::WriteZero.into()),
            Ok(Some(n)) => bytes = &bytes[n..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room(to.as_fd()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn wait_for_room(fd: BorrowedFd<'_>) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None); // the next write tells
}

/// The duty to write the queue out. WRITTEN-AT-LAST
struct WriteDuty(Option<&'static Outlet>);

impl WriteDuty {
    fn make(mut self) {
        if let Some(outlet) = self.0.take() {
            outlet.write_out();
        }
    }
}

impl Drop for WriteDuty {
    fn drop(&mut self) {
        if let Some(outlet) = self.0.take() {
            outlet.write_out();
        }
    }
}

/// What the two handles have in common.
struct OutputHandle {
    outlet: &'static Outlet,
    place: ListTicket,
    /// How many errors there were when we last looked.
    faults: u64,
    /// Up to where the flush that is under way waits.
    flush_to: Option<u64>,
}

impl OutputHandle {
    fn new(outlet: &'static Outlet) -> OutputHandle {
        let faults = lock(&outlet.queue).faults;
        OutputHandle { outlet, place: ListTicket::default(), faults, flush_to: None }
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let OutputHandle { outlet, place, faults, flush_to } = self;
        let mut starts = false;
        let put = outlet.crowd.poll_until(place, cx, || {
            if world::is_simulated() {
                return Some(outlet.write_here(slices));
            }
            let mut queue = lock(&outlet.queue);
            if let Some(error) = queue.error_since(faults) {
                return Some(Err(error));
            }
            if queue.bytes.len() > ROOM {
                return None;
            }
            let mut left = MAX;
            for slice in slices {
                let some = &slice[..slice.len().min(left)];
                queue.bytes.extend_from_slice(some);
                left -= some.len();
            }
            queue.put += (MAX - left) as u64;
            starts = !queue.is_busy && left < MAX;
            queue.is_busy |= starts; // ONE-WRITES
            Some(Ok(MAX - left))
        });
        if starts {
            outlet.start();
        }
        let put = ready!(put)?;
        *flush_to = None;
        Poll::Ready(put)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let OutputHandle { outlet, place, faults, flush_to } = self;
        let flushed = outlet.crowd.poll_until(place, cx, || {
            if world::is_simulated() {
                return Some(Ok(()));
            }
            let mut queue = lock(&outlet.queue);
            if let Some(error) = queue.error_since(faults) {
                return Some(Err(error));
            }
            let to = *flush_to.get_or_insert(queue.put);
            (queue.done >= to).then_some(Ok(()))
        });
        let flushed = ready!(flushed)?;
        *flush_to = None;
        Poll::Ready(flushed)
    }
}

impl OutputQueue {
    fn error_since(&mut self, seen: &mut u64) -> Option<io::Error> {
        if self.faults == *seen {
            return None;
        }
        *seen = self.faults;
        self.fault.clone().map(io::Error::from)
    }
}

impl Drop for OutputHandle {
    fn drop(&mut self) {
        self.outlet.crowd.leave(&mut self.place);
    }
}

macro_rules! output {
    ($(#[$doc:meta])* $type:ident, $function:ident, $outlet:ident, $std:literal) => {
        $(#[$doc])*
        ///
        /// A write puts a copy of its bytes in line and returns; threads of the pool write them out in
        /// order. What one write takes, which is all of it up to a mebibyte, stays together: lines of
        /// several tasks do not mix. It waits only while much is in line. It goes the way of the
        /// standard library's, so that it is in order with
        #[doc = $std]
        /// too.
        ///
        /// # Errors
        ///
        /// An error of writing comes from the next write or flush, once from each handle.
        ///
        /// # At the end of the program
        ///
        /// A runtime that ends writes out what is in line, and does not wait for longer than a second
        /// if it cannot be written. To be sure, [`flush`](super::AsyncWriteExt::flush).
        ///
        /// # Cancellation
        ///
        /// A write that is dropped or cancelled before it returned has put nothing in line. A flush that
        /// is dropped or cancelled changes nothing.
        ///
        /// # Examples
        ///
        /// ```
        /// use dapple::io::AsyncWriteExt;
        ///
        /// # fn main() -> std::io::Result<()> {
        /// dapple::run(async {
        #[doc = concat!("    let mut out = dapple::io::", stringify!($function), "();")]
        ///     out.write_all(b"hello\n").await?;
        ///     out.flush().await
        /// })
        /// # }
        /// ```
        pub struct $type(OutputHandle);

        $(#[$doc])*
        #[must_use = "it does nothing unless it is written to"]
        pub fn $function() -> $type {
            $type(OutputHandle::new(&$outlet))
        }

        impl $type {
            pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                self.0.poll_write_vectored(cx, &[IoSlice::new(bytes)])
            }

            pub(crate) fn poll_write_vectored(
                &mut self,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_write_vectored(cx, slices)
            }

            pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_flush(cx)
            }

            pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_flush(cx)
            }
        }

        impl_write!($type);

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
}

output! {
    /// The standard output of the program.
    Stdout, stdout, STDOUT, "`println!`"
}
output! {
    /// The output of the program for errors.
    Stderr, stderr, STDERR, "`eprintln!`"
}

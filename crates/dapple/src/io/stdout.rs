//! The program's standard output and standard error, written without blocking a worker.
//!
//! A write puts its bytes into a queue, and the pool writes the queue out, one call at a time. In a
//! simulation the bytes are written at once: all runtimes share the queue, and the progress of other runtimes is not an
//! event of the simulation.
//!
//! # Invariants
//!
//! * **ONE-WRITES**: the thread that starts a call sets `is_busy`, and that call clears it under the lock
//!   under which it found the queue empty. So the queue is written in order, and nothing is left in it.
//! * **WRITTEN-AT-LAST**: a call that could not begin, because the runtime is ending or no thread can be started, is
//!   made by the thread that drops it.

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

/// A write waits while the queue has more bytes than this.
const ROOM: usize = 64 << 10;
/// The most bytes that one write takes.
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
    /// Waiters for room, or for the end of all writes.
    waiters: WaitList,
}

#[derive(Default)]
struct OutputQueue {
    bytes: Vec<u8>,
    /// ONE-WRITES
    is_busy: bool,
    /// The number of bytes that were queued, and the number that were written or have failed.
    put: u64,
    done: u64,
    /// The last error, and the number of errors so far.
    fault: Option<Fault>,
    faults: u64,
}

/// An error that every handle reports.
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
        Outlet { which, queue: Mutex::default(), waiters: WaitList::default() }
    }

    /// Starts a call that writes the queue out.
    fn start(&'static self) {
        let call = WriteDuty(Some(self));
        if with_context(|context| !context.has_runtime()) {
            return call.make(); // no pool here
        }
        blocking(move || call.make()).detach();
    }

    /// Writes the queue out until it is empty. ONE-WRITES
    fn write_out(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let bytes = std::mem::take(&mut queue.bytes);
            queue.is_busy = !bytes.is_empty();
            drop(queue);
            if bytes.is_empty() {
                return self.waiters.tell();
            }
            let written = self.write(&bytes);
            let mut queue = lock(&self.queue);
            queue.done += bytes.len() as u64;
            if let Err(error) = written {
                queue.fault = Some(Fault::from(&error));
                queue.faults += 1;
            }
            drop(queue);
            self.waiters.tell();
        }
    }

    /// Writes through the standard library, so that the output is in order with `println!`.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self.which {
            Which::Out => write(&mut io::stdout().lock(), bytes),
            Which::Err => write(&mut io::stderr().lock(), bytes),
        }
    }

    /// Writes at once. For a simulation, which must not wait for threads outside it.
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
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None); // the next write reports an error
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

/// The common part of the two handles.
struct OutputHandle {
    outlet: &'static Outlet,
    place: ListTicket,
    /// The number of errors at the last look.
    faults: u64,
    /// The position that the current flush waits for.
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
        let put = outlet.waiters.poll_until(place, cx, || {
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
        let flushed = outlet.waiters.poll_until(place, cx, || {
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
        self.outlet.waiters.leave(&mut self.place);
    }
}

macro_rules! output {
    ($(#[$doc:meta])* $type:ident, $function:ident, $outlet:ident, $std:literal) => {
        $(#[$doc])*
        ///
        /// A write queues a copy of its bytes and returns; threads of the pool write the queue out in
        /// order. The bytes that one write takes, which are all of them up to a mebibyte, stay together: lines of
        /// several tasks do not mix. A write waits only while the queue is long. The output goes through the
        /// standard library, so that it is in order with
        #[doc = $std]
        /// too.
        ///
        /// # Errors
        ///
        /// The next write or flush returns an error of writing, once for each handle.
        ///
        /// # At the end of the program
        ///
        /// A runtime that ends writes the queue out. It waits at most a second
        /// if the output blocks. To be sure, [`flush`](super::AsyncWriteExt::flush) before.
        ///
        /// # Cancellation
        ///
        /// A write that is dropped or cancelled before it returned has queued nothing. A flush that
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
    /// The standard output of the program, for use in async code.
    Stdout, stdout, STDOUT, "`println!`"
}
output! {
    /// The standard error of the program, for use in async code.
    Stderr, stderr, STDERR, "`eprintln!`"
}

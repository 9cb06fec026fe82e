//! Reading and writing of byte streams: sockets, pipes, memory, the terminal.
//!
//! The traits are those of `futures-io`, re-exported: [`AsyncRead`], [`AsyncWrite`],
//! [`AsyncBufRead`], [`AsyncSeek`]. Their methods for users are in [`AsyncReadExt`],
//! [`AsyncWriteExt`] and [`AsyncBufReadExt`].
//!
//! ```
//! use dapple::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
//!
//! # fn main() -> std::io::Result<()> {
//! dapple::run(async {
//!     let mut there = Vec::new(); // or a TcpStream
//!     there.write_all(b"GET / HTTP/1.0\r\n\r\nbody").await?;
//!
//!     let mut back = BufReader::new(&there[..]);
//!     let mut first = String::new();
//!     back.read_line_limited(&mut first, 8192).await?;
//!     assert_eq!(first, "GET / HTTP/1.0\r\n");
//!     let mut rest = Vec::new();
//!     back.read_to_end(&mut rest).await?;
//!     assert_eq!(rest, b"\r\nbody");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # Partial progress
//!
//! A single `read` or `write` happens, or it does not: if it is cancelled, it has had no effect. An operation
//! that needs several of them ([`write_all`](AsyncWriteExt::write_all),
//! [`read_exact`](AsyncReadExt::read_exact), [`copy`], ...) can be stopped halfway, by an error or by
//! cancellation. Its error then contains the number of bytes that were done ([`how_far`]), and the bytes that were read
//! from one side and not written to the other ([`Partial::rest`]). Otherwise it is the error that stopped the
//! operation: it has the same kind, and [`is_cancelled`](crate::is_cancelled) returns true for a cancellation.
//!
//! # Yielding
//!
//! Memory is always ready. So that a long read from memory does not keep a worker from its other
//! tasks, every operation here yields now and then, and can be cancelled at that point.

mod adapt;
mod buf_read;
mod buf_reader;
mod buf_writer;
mod copy;
mod duplex;
mod error;
#[cfg_attr(feature = "hyper", expect(unsafe_code, reason = "says how far a buffer of hyper's was filled"))]
pub(crate) mod foreign;
mod frames;
mod int;
mod lines;
mod memory;
mod read;
mod split;
mod stdin;
mod stdout;
mod step;
mod write;

pub use adapt::{Chain, Take};
pub use buf_read::{AsyncBufReadExt, FillBuf, ReadLine, ReadUntil};
pub use buf_reader::BufReader;
pub use buf_writer::BufWriter;
pub use copy::{Copy, CopyBidirectional, copy, copy_bidirectional};
pub use duplex::{Duplex, duplex};
pub use error::{Partial, how_far};
pub use frames::{Frames, NextFrame, Prefix, WriteFrame};
pub use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
pub use int::{Int, ReadInt, WriteInt};
pub use lines::{Lines, NextLine, NextPart, Split};
pub use memory::{Empty, Repeat, Sink, empty, repeat, sink};
pub use read::{AsyncReadExt, Read, ReadExact, ReadToEnd, ReadToString, ReadVectored};
pub use split::{ReadHalf, UnsplitError, WriteHalf, split};
pub use stdin::{Stdin, stdin};
pub use stdout::{Stderr, Stdout, stderr, stdout};
pub use write::{AsyncWriteExt, Close, Flush, Write, WriteAll, WriteVectored};

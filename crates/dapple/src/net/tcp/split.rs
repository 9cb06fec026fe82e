//! The halves of a TCP connection: one to read, one to write.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::stream::TcpStream;
use crate::io::foreign::{impl_read, impl_write};
use crate::net::halves::halves;
use crate::source::stream::StreamHalf;

halves!(TcpStream, SocketAddr);

macro_rules! peeks {
    ($type:ty) => {
        impl $type {
            /// Waits for bytes and copies them, without taking them: see [`TcpStream::peek`].
            ///
            /// # Errors
            ///
            /// As for [`TcpStream::peek`].
            ///
            /// # Cancellation
            ///
            /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or the bytes if some
            /// were there.
            pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream().peek(buffer).await
            }
        }
    };
}

peeks!(ReadHalf<'_>);
peeks!(OwnedReadHalf);

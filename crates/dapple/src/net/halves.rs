//! The halves of a stream, one to read and one to write: the same for every kind of stream.
//!
//! `halves!(UnixStream, SocketAddr)` makes, in the module where it is called, `ReadHalf`, `WriteHalf`,
//! `OwnedReadHalf`, `OwnedWriteHalf` and `ReuniteError`, and the functions `borrowed` and `owned` that
//! split a stream. They call methods of the stream, among them `poll_shutdown`, and its `Shares`.

/// Makes the halves of a kind of stream.
macro_rules! halves {
    ($stream:ident, $addr:ty) => {
        pub(super) fn borrowed(stream: &mut $stream) -> (ReadHalf<'_>, WriteHalf<'_>) {
            let stream = &*stream;
            (ReadHalf(StreamHalf::new(stream)), WriteHalf(StreamHalf::new(stream)))
        }

        pub(super) fn owned(stream: $stream) -> (OwnedReadHalf, OwnedWriteHalf) {
            let stream = Arc::new(stream);
            (OwnedReadHalf(StreamHalf::new(stream.clone())), OwnedWriteHalf(StreamHalf::new(stream), true))
        }

        #[doc = concat!("The half of a [`", stringify!($stream), "`] that reads, borrowed; see [`", stringify!($stream), "::split`].")]
        #[derive(Debug)]
        pub struct ReadHalf<'a>(StreamHalf<&'a $stream>);

        #[doc = concat!("The half of a [`", stringify!($stream), "`] that writes, borrowed; see [`", stringify!($stream), "::split`].")]
        ///
        /// Closing it ends the stream to the peer; dropping it does not.
        #[derive(Debug)]
        pub struct WriteHalf<'a>(StreamHalf<&'a $stream>);

        #[doc = concat!("The half of a [`", stringify!($stream), "`] that reads; see [`", stringify!($stream), "::into_split`].")]
        #[derive(Debug)]
        pub struct OwnedReadHalf(StreamHalf<Arc<$stream>>);

        #[doc = concat!("The half of a [`", stringify!($stream), "`] that writes; see [`", stringify!($stream), "::into_split`].")]
        ///
        /// Closing or dropping it ends the stream to the peer.
        #[derive(Debug)]
        pub struct OwnedWriteHalf(StreamHalf<Arc<$stream>>, /* shuts down when dropped */ bool);

        crate::net::halves::reads!(ReadHalf<'_>, $stream, $addr);
        crate::net::halves::reads!(OwnedReadHalf, $stream, $addr);
        crate::net::halves::writes!(WriteHalf<'_>, $stream, $addr);
        crate::net::halves::writes!(OwnedWriteHalf, $stream, $addr);

        impl OwnedReadHalf {
            /// Puts the two halves of a connection together again.
            ///
            /// # Errors
            ///
            /// If the two are halves of different connections. The error returns them.
            pub fn reunite(self, write: OwnedWriteHalf) -> Result<$stream, ReuniteError> {
                if !Arc::ptr_eq(&self.0.source, &write.0.source) {
                    return Err(ReuniteError(self, write));
                }
                write.forget();
                Ok(Arc::into_inner(self.0.source).expect("there are two halves, and the other is gone"))
            }
        }

        impl OwnedWriteHalf {
            /// Puts the halves together again; see [`OwnedReadHalf::reunite`].
            ///
            /// # Errors
            ///
            /// If the two are halves of different connections. The error returns them.
            pub fn reunite(self, read: OwnedReadHalf) -> Result<$stream, ReuniteError> {
                read.reunite(self)
            }

            /// Drops the write half, and does not end the stream. The peer sees the end only when
            /// the read half is dropped, too.
            pub fn forget(mut self) {
                self.1 = false;
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.1 {
                    // It fails if the connection is broken. Then the peer knows already.
                    let _ = self.stream().shutdown(Shutdown::Write);
                }
            }
        }

        /// The error of joining halves of different connections. It returns the halves. The same for every kind of stream.
        ///
        /// # Examples
        ///
        /// ```
        /// use dapple::net::UnixStream;
        ///
        /// # dapple::run(async {
        /// let (one, other) = UnixStream::pair()?;
        /// let ((read, write), (_, other_write)) = (one.into_split(), other.into_split());
        /// let error = read.reunite(other_write).unwrap_err(); // not halves of one stream
        /// assert!(error.0.reunite(write).is_ok());
        /// # std::io::Result::Ok(()) }).unwrap();
        /// ```
        #[derive(Debug)]
        pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

        impl fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the halves are of different connections")
            }
        }

        impl Error for ReuniteError {}
    };
}

/// Methods of both kinds of read halves.
macro_rules! reads {
    ($type:ty, $stream:ident, $addr:ty) => {
        impl $type {
            #[doc = concat!("Waits until the stream is readable, at its end, or has an error; see [`", stringify!($stream), "::readable`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($stream), "::readable`].")]
            ///
            /// # Cancellation
            ///
            /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was
            /// ready.
            pub async fn readable(&self) -> io::Result<()> {
                self.stream().readable().await
            }

            #[doc = concat!("Reads the bytes that are there, without waiting; see [`", stringify!($stream), "::try_read`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($stream), "::try_read`].")]
            pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream().try_read(buffer)
            }

            #[doc = concat!("Reads into several buffers, without waiting; see [`", stringify!($stream), "::try_read_vectored`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($stream), "::try_read`].")]
            pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.stream().try_read_vectored(buffers)
            }

            #[inline]
            pub(crate) fn poll_read(
                &mut self,
                cx: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read(cx, buffer)
            }

            #[inline]
            pub(crate) fn poll_read_vectored(
                &mut self,
                cx: &mut Context<'_>,
                buffers: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read_vectored(cx, buffers)
            }
        }

        crate::net::halves::both!($type, $stream, $addr);
        impl_read!($type);
    };
}

/// Methods of both kinds of write halves.
macro_rules! writes {
    ($type:ty, $stream:ident, $addr:ty) => {
        impl $type {
            #[doc = concat!("Waits until the stream is writable, or has an error; see [`", stringify!($stream), "::writable`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($stream), "::writable`].")]
            ///
            /// # Cancellation
            ///
            /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was
            /// ready.
            pub async fn writable(&self) -> io::Result<()> {
                self.stream().writable().await
            }

            #[doc = concat!("Writes as many bytes as there is room for, without waiting; see [`", stringify!($stream), "::try_write`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($stream), "::try_write`].")]
            pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.stream().try_write(bytes)
            }

            #[doc = concat!("Writes from several slices, without waiting; see [`", stringify!($stream), "::try_write_vectored`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($stream), "::try_write`].")]
            pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream().try_write_vectored(slices)
            }

            #[inline]
            pub(crate) fn poll_write(
                &mut self,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_write(cx, bytes)
            }

            #[inline]
            pub(crate) fn poll_write_vectored(
                &mut self,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_write_vectored(cx, slices)
            }

            pub(crate) fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(())) // there is no buffer to flush
            }

            pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.stream().poll_shutdown()
            }
        }

        crate::net::halves::both!($type, $stream, $addr);
        impl_write!($type);
    };
}

/// Methods of all halves.
macro_rules! both {
    ($type:ty, $stream:ident, $addr:ty) => {
        impl $type {
            fn stream(&self) -> &$stream {
                &self.0.source
            }

            /// The local address.
            ///
            /// # Errors
            ///
            /// Those of the system.
            pub fn local_addr(&self) -> io::Result<$addr> {
                self.stream().local_addr()
            }

            /// The address of the peer.
            ///
            /// # Errors
            ///
            /// If it is no longer connected.
            pub fn peer_addr(&self) -> io::Result<$addr> {
                self.stream().peer_addr()
            }
        }

        impl AsRef<$stream> for $type {
            /// The whole connection, for its options.
            fn as_ref(&self) -> &$stream {
                self.stream()
            }
        }
    };
}

pub(crate) use {both, halves, reads, writes};

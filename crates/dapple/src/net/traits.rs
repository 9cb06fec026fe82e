//! The I/O traits of others, for our streams of bytes.
//!
//! `impl_read!` and `impl_write!` give a type `futures_io`'s traits always, and tokio's and hyper's
//! with the features `tokio-io` and `hyper`. All of them come down to methods of the type:
//!
//! ```text
//! impl_read!    poll_read, poll_read_vectored
//! impl_write!   poll_write, poll_write_vectored, poll_flush, poll_close
//! ```
//!
//! They take `&mut self`, so that the type must be `Unpin`.
//!
//! `impl_socket!` gives a type what all have that own a file descriptor.

/// Gives a type the traits of what can be read.
macro_rules! impl_read {
    ($type:ty) => {
        crate::net::traits::impl_read!($type, but hyper);

        #[cfg(feature = "hyper")]
        impl ::hyper::rt::Read for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                cursor: ::hyper::rt::ReadBufCursor<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let this = self.get_mut();
                crate::hyper::poll_fill(cursor, |buffer| <$type>::poll_read(this, cx, buffer))
            }
        }
    };
    // `hyper.rs` has that.
    ($type:ty, but hyper) => {
        impl futures_io::AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_read(self.get_mut(), cx, buffer)
            }

            #[inline]
            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_read_vectored(self.get_mut(), cx, buffers)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl ::tokio::io::AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut ::tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                let n =
                    std::task::ready!(<$type>::poll_read(self.get_mut(), cx, buffer.initialize_unfilled()))?;
                buffer.advance(n);
                std::task::Poll::Ready(Ok(()))
            }
        }
    };
}

/// Gives a type the traits of what can be written to.
macro_rules! impl_write {
    ($type:ty) => {
        impl futures_io::AsyncWrite for $type {
            #[inline]
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_write(self.get_mut(), cx, bytes)
            }

            #[inline]
            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                <$type>::poll_write_vectored(self.get_mut(), cx, slices)
            }

            #[inline]
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                <$type>::poll_flush(self.get_mut(), cx)
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                <$type>::poll_close(self.get_mut(), cx)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl ::tokio::io::AsyncWrite for $type {
            crate::net::traits::shutting_writer!($type);
        }

        #[cfg(feature = "hyper")]
        impl ::hyper::rt::Write for $type {
            crate::net::traits::shutting_writer!($type);
        }
    };
}

/// What tokio's and hyper's traits have in common, and `futures_io` calls otherwise.
#[cfg_attr(not(any(feature = "hyper", feature = "tokio-io")), expect(unused_macros))]
macro_rules! shutting_writer {
    ($type:ty) => {
        #[inline]
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            <$type>::poll_write(self.get_mut(), cx, bytes)
        }

        #[inline]
        fn poll_write_vectored(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            slices: &[std::io::IoSlice<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            <$type>::poll_write_vectored(self.get_mut(), cx, slices)
        }

        #[inline]
        fn is_write_vectored(&self) -> bool {
            true
        }

        #[inline]
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            <$type>::poll_flush(self.get_mut(), cx)
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            <$type>::poll_close(self.get_mut(), cx)
        }
    };
}

/// Gives a socket the traits of what owns a file descriptor; `$field` is where it lies, and `$source` how
/// it is taken out of there.
macro_rules! impl_socket {
    ($type:ident of $std:ty, $field:tt $(. $source:ident)?) => {
        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            /// As `from_std`.
            fn try_from(socket: $std) -> std::io::Result<$type> {
                $type::from_std(socket)
            }
        }

        impl From<$type> for std::os::fd::OwnedFd {
            /// It stays in non-blocking mode.
            fn from(socket: $type) -> std::os::fd::OwnedFd {
                socket.$field$(.$source)?.into_inner().into()
            }
        }

        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.$field.get().as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.$field.get().as_raw_fd()
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.$field.get().fmt(f)
            }
        }
    };
}

#[cfg(any(feature = "hyper", feature = "tokio-io"))]
pub(crate) use shutting_writer;
pub(crate) use {impl_read, impl_socket, impl_write};

//! `impl_socket!` implements the traits of an owner of a file descriptor for a socket.

/// Implements the file descriptor traits for a socket; `$field` holds the socket, and `$source` is the path to its
/// source.
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

pub(crate) use impl_socket;

//! Sockets, pipes, names and file descriptors of the user's.

#[path = "../common/mod.rs"]
mod common;

mod async_fd;
mod cancel_last_try;
mod hyper;
mod lookup;
mod pipe;
mod pipe_flow;
mod tcp;
mod tcp_cancel;
mod tcp_faults;
mod tcp_socket;
mod tokio_io;
mod udp;
mod unix;
mod unix_datagram;

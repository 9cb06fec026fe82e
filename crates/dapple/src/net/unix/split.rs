//! The halves of a Unix stream: one to read, one to write.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::stream::UnixStream;
use crate::io::foreign::{impl_read, impl_write};
use crate::net::halves::halves;
use crate::source::stream::StreamHalf;

halves!(UnixStream, SocketAddr);

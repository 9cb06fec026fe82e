//! Unix streams and their listeners.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as std_net, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Event, foreign_block_on, runtime, telling, watched};
use dapple::is_cancelled;
use dapple::net::{UnixListener, UnixStream};
use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt, future};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("dapple-unix-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn path(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn abstract_name() -> SocketAddr {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("dapple-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    SocketAddr::from_abstract_name(name).unwrap()
}

/// As much as there is room for.
fn fill(stream: &UnixStream) -> usize {
    let mut written = 0;
    loop {
        match stream.try_write(&[0; 10_000]) {
            Ok(n) => written += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return written;
            }
        }
    }
}

#[test]
fn by_path_and_the_file_stays() {
    watched(|| {
        let folder = Folder::new();
        runtime(2).block_on(async {
            let path = folder.path();
            let listener = UnixListener::bind(&path).unwrap();
            assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(path.as_path()));
            let at = path.clone();
            let client = dapple::spawn(async move {
                let mut stream = UnixStream::connect(&at).await?;
                assert_eq!(stream.peer_addr()?.as_pathname(), Some(at.as_path()));
                stream.write_all(b"hello").await?;
                stream.close().await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await?;
                std::io::Result::Ok(answer)
            });
            let (mut stream, from) = listener.accept().await.unwrap();
            assert!(from.is_unnamed());
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).await.unwrap();
            drop(stream);
            assert_eq!(client.await.unwrap().unwrap(), "HELLO");

            drop(listener);
            assert!(path.exists());
            let error = UnixStream::connect(&path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(error.to_string().contains("socket"), "{error}");
            let error = UnixListener::bind(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
            UnixListener::bind(&path).unwrap();
        });
    });
}

#[test]
fn by_abstract_name() {
    watched(|| {
        runtime(1).block_on(async {
            let name = abstract_name();
            let listener = UnixListener::bind_addr(&name).unwrap();
            assert_eq!(UnixListener::bind_addr(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
            let near = UnixStream::connect_addr(&name).await.unwrap();
            assert_eq!(near.peer_addr().unwrap().as_abstract_name(), name.as_abstract_name());
            let (far, _) = listener.accept().await.unwrap();
            assert_eq!(far.local_addr().unwrap().as_abstract_name(), name.as_abstract_name());
            drop(listener);
            let error = UnixStream::connect_addr(&name).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            let nameless = near.local_addr().unwrap();
            assert_eq!(
                UnixStream::connect_addr(&nameless).await.unwrap_err().kind(),
                ErrorKind::InvalidInput
            );
        });
    });
}

#[test]
fn accept_returns_the_address_of_the_client() {
    watched(|| {
        let folder = Folder::new();
        runtime(1).block_on(async {
            let (name, own, path) = (abstract_name(), abstract_name(), folder.path());
            let listener = UnixListener::bind_addr(&name).unwrap();
            for bound in [own, SocketAddr::from_pathname(&path).unwrap()] {
                let socket =
                    socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
                let addr = match bound.as_pathname() {
                    Some(path) => rustix::net::SocketAddrUnix::new(path),
                    None => rustix::net::SocketAddrUnix::new_abstract_name(bound.as_abstract_name().unwrap()),
                };
                rustix::net::bind(&socket, &addr.unwrap()).unwrap();
                let to = rustix::net::SocketAddrUnix::new_abstract_name(name.as_abstract_name().unwrap());
                rustix::net::connect(&socket, &to.unwrap()).unwrap();
                let (_, from) = listener.accept().await.unwrap();
                assert_eq!(from.as_pathname(), bound.as_pathname());
                assert_eq!(from.as_abstract_name(), bound.as_abstract_name());
            }
        });
    });
}

/// A name without the zero at its end, which is allowed, and longer than any other.
#[expect(unsafe_code, reason = "no crate makes such a name")]
fn longest_name(folder: &Folder) -> socket2::SockAddr {
    let set = |addr: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
        let start = folder.0.join("socket").into_os_string().into_encoded_bytes();
        // SAFETY: there is room for every kind of address, and all zeros are one.
        let addr = unsafe { &mut *addr.cast::<libc::sockaddr_un>() };
        addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (index, byte) in addr.sun_path.iter_mut().enumerate() {
            *byte = start.get(index).copied().unwrap_or(b'x') as libc::c_char;
        }
        // SAFETY: it is a reference.
        unsafe { *len = size_of::<libc::sockaddr_un>() as libc::socklen_t };
        Ok(())
    };
    // SAFETY: it sets the address and its length.
    unsafe { socket2::SockAddr::try_init(set) }.unwrap().1
}

#[test]
fn a_connecting_socket_may_have_the_longest_name() {
    watched(|| {
        let folder = Folder::new();
        runtime(1).block_on(async {
            let name = abstract_name();
            let listener = UnixListener::bind_addr(&name).unwrap();
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
            socket.bind(&longest_name(&folder)).unwrap();
            let to = rustix::net::SocketAddrUnix::new_abstract_name(name.as_abstract_name().unwrap());
            rustix::net::connect(&socket, &to.unwrap()).unwrap();
            let (_, from) = listener.accept().await.unwrap();
            assert_eq!(from.as_pathname().unwrap().as_os_str().len(), 108);
            let again = UnixStream::connect_addr(&name).await.unwrap();
            assert!(listener.accept().await.unwrap().1.is_unnamed(), "and it goes on");
            drop(again);
        });
    });
}

#[test]
fn the_peer_is_known_by_its_credentials() {
    watched(|| {
        let (near, _far) = UnixStream::pair().unwrap();
        let cred = near.peer_cred().unwrap();
        assert_eq!(cred.pid(), Some(std::process::id() as i32));
        assert_eq!(cred.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(cred.gid(), rustix::process::getegid().as_raw());
        // A socket without a peer.
        let lonely = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let lonely = UnixStream::from_std(OwnedFd::from(lonely).into()).unwrap();
        assert_eq!(lonely.peer_cred().unwrap().pid(), None);
    });
}

#[test]
fn connecting_waits_while_the_listener_is_full() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let name = abstract_name();
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
            let addr = rustix::net::SocketAddrUnix::new_abstract_name(name.as_abstract_name().unwrap());
            rustix::net::bind(&socket, &addr.unwrap()).unwrap();
            socket.listen(0).unwrap();
            let listener = UnixListener::from_std(OwnedFd::from(socket).into()).unwrap();
            let first = UnixStream::connect_addr(&name).await.unwrap();

            let connect = |name: SocketAddr| {
                let begun = Event::default();
                let wait = async move { UnixStream::connect_addr(&name).await };
                (begun.clone(), dapple::spawn(telling(begun, wait)))
            };
            let (begun, second) = connect(name.clone());
            let (cancelled_begun, cancelled) = connect(name.clone());
            begun.happened().await;
            cancelled_begun.happened().await;
            cancelled.cancel();
            assert!(is_cancelled(&cancelled.await.unwrap().unwrap_err()));
            assert!(!second.is_finished());
            listener.accept().await.unwrap();
            second.await.unwrap().unwrap();
            listener.accept().await.unwrap();
            // The cancelled client has not connected.
            assert!(future::poll_once(listener.accept()).await.is_none());
            drop(first);
        });
        // Outside of a runtime it cannot wait: an error names the remedy.
        let name = abstract_name();
        let listener = std_net::UnixListener::bind_addr(&name).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _full = std_net::UnixStream::connect_addr(&name).unwrap();
        let error = foreign_block_on(UnixStream::connect_addr(&name)).unwrap_err();
        assert!(error.to_string().contains("dapple::run"), "{error}");
    });
}

#[test]
fn both_directions_at_once_and_more_than_fits() {
    const MUCH: usize = 3_000_000;
    watched(|| {
        runtime(2).block_on(async {
            let (near, far) = UnixStream::pair().unwrap();
            let ends = [near, far].map(|stream| {
                let (mut read, mut write) = stream.into_split();
                let writes = dapple::spawn(async move {
                    for chunk in 0..MUCH / 1000 {
                        write.write_all(&[chunk as u8; 1000]).await.unwrap();
                    }
                });
                let reads = dapple::spawn(async move {
                    let mut all = Vec::new();
                    read.read_to_end(&mut all).await.unwrap();
                    assert_eq!(all.len(), MUCH);
                    assert!(all.iter().enumerate().all(|(i, byte)| *byte == (i / 1000) as u8));
                });
                (writes, reads)
            });
            for (writes, reads) in ends {
                writes.await.unwrap();
                reads.await.unwrap();
            }
        });
    });
}

#[test]
fn halves() {
    watched(|| {
        runtime(1).block_on(async {
            let (mut near, far) = UnixStream::pair().unwrap();
            {
                let (mut read, mut write) = near.split();
                let (mut far_read, mut far_write) = far.into_split();
                write.write_all(b"there").await.unwrap();
                far_read.read_exact(&mut [0; 5]).await.unwrap();
                far_write.write_all(b"back").await.unwrap();
                read.read_exact(&mut [0; 4]).await.unwrap();
                // A borrowed half that goes says nothing; one that is closed does.
                drop((read, write));
                assert!(future::poll_once(far_read.readable()).await.is_none());

                let (other_read, other_write) = UnixStream::pair().unwrap().0.into_split();
                let error = far_read.reunite(other_write).unwrap_err();
                let dapple::net::unix::ReuniteError(far_read, other_write) = error;
                other_write.reunite(other_read).unwrap();
                let far = far_write.reunite(far_read).unwrap();
                // Putting together says nothing, either.
                assert!(future::poll_once(near.readable()).await.is_none());
                let (far_read, far_write) = far.into_split();
                drop(far_write);
                assert_eq!(near.read(&mut [0; 10]).await.unwrap(), 0);
                near.write_all(b"still open").await.unwrap();
                far_read.readable().await.unwrap();
                assert_eq!(far_read.try_read(&mut [0; 100]).unwrap(), 10);
                drop(far_read);
            }
            assert_eq!(near.write(b"nobody").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn cancelled_while_reading_leaves_the_bytes() {
    watched(|| {
        let rt = runtime(2);
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let begun = Event::default();
        let task = rt.spawn(telling(begun.clone(), async move {
            let error = far.read(&mut [0; 10]).await.unwrap_err();
            (far, error)
        }));
        begun.wait();
        task.cancel();
        let (mut far, error) = rt.block_on(task).unwrap();
        assert!(is_cancelled(&error));
        rt.block_on(async {
            near.write_all(b"kept").await.unwrap();
            let mut buffer = [0; 10];
            let n = far.read(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..n], b"kept");
        });
    });
}

#[test]
fn cancelled_while_writing_writes_nothing() {
    watched(|| {
        let rt = runtime(2);
        let (mut near, far) = UnixStream::pair().unwrap();
        let filled = fill(&near);
        let begun = Event::default();
        let task = rt.spawn(telling(begun.clone(), async move {
            let error = near.write(b"not written").await.unwrap_err();
            (near, error)
        }));
        begun.wait();
        task.cancel();
        let (near, error) = rt.block_on(task).unwrap();
        assert!(is_cancelled(&error));
        drop(near);
        let mut all = Vec::new();
        let mut far = far.into_std().unwrap();
        far.set_nonblocking(false).unwrap();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), filled);
    });
}

#[test]
fn accepting_cancelled_or_dropped_loses_no_connection() {
    watched(|| {
        let rt = runtime(2);
        let name = abstract_name();
        let listener = Arc::new(UnixListener::bind_addr(&name).unwrap());
        let (accepts, begun) = (listener.clone(), Event::default());
        let task = rt.spawn(telling(begun.clone(), async move { accepts.accept().await }));
        begun.wait();
        task.cancel();
        assert!(is_cancelled(&rt.block_on(task).unwrap().unwrap_err()));
        rt.block_on(async {
            let mut dropped = Box::pin(listener.accept());
            assert!(future::poll_once(&mut dropped).await.is_none());
            let _one = UnixStream::connect_addr(&name).await.unwrap();
            let _two = UnixStream::connect_addr(&name).await.unwrap();
            drop(dropped);
            let mut incoming = listener.incoming();
            assert!(incoming.next().await.unwrap().is_ok());
            assert!(incoming.next().await.unwrap().is_ok());
            assert!(future::poll_once(incoming.next()).await.is_none());
        });
        let listener = Arc::into_inner(listener).unwrap();
        rt.block_on(async {
            let _one = UnixStream::connect_addr(&name).await.unwrap();
            let mut incoming = listener.into_incoming();
            assert!(incoming.next().await.unwrap().is_ok());
            assert!(incoming.into_inner().take_error().unwrap().is_none());
        });
    });
}

#[test]
fn nothing_is_read_and_written_at_once() {
    watched(|| {
        runtime(1).block_on(async {
            let (mut near, far) = UnixStream::pair().unwrap();
            assert_eq!(near.read(&mut []).await.unwrap(), 0);
            assert_eq!(near.read_vectored(&mut []).await.unwrap(), 0);
            assert_eq!(near.try_read(&mut []).unwrap(), 0);
            assert_eq!(near.try_read_vectored(&mut [IoSliceMut::new(&mut [])]).unwrap(), 0);
            fill(&near);
            assert_eq!(near.write(&[]).await.unwrap(), 0);
            assert_eq!(near.write_vectored(&[]).await.unwrap(), 0);
            drop(far);
        });
    });
}

#[test]
fn several_buffers_and_without_waiting() {
    watched(|| {
        runtime(1).block_on(async {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
            assert_eq!(near.write_vectored(&slices).await.unwrap(), 5);
            assert_eq!(near.try_write_vectored(&slices).unwrap(), 5);
            let (mut a, mut b) = ([0; 3], [0; 3]);
            let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            assert_eq!(far.read_vectored(&mut buffers).await.unwrap(), 6);
            assert_eq!((&a, &b), (b"abc", b"dea"));
            let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            assert_eq!(far.try_read_vectored(&mut buffers).unwrap(), 4);
            assert_eq!(far.try_read(&mut a).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(future::poll_once(poll_fn(|cx| far.poll_read_ready(cx))).await.is_none());
            near.writable().await.unwrap();
            poll_fn(|cx| near.poll_write_ready(cx)).await.unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            far.readable().await.unwrap();
            poll_fn(|cx| far.poll_read_ready(cx)).await.unwrap();
            assert_eq!(far.try_read(&mut a).unwrap(), 0);
        });
    });
}

#[test]
fn a_closed_peer_differs_from_a_half_closed_peer() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
            assert!(future::poll_once(poll_fn(|cx| far.poll_closed(cx))).await.is_none());
            drop(near);
            poll_fn(|cx| far.poll_closed(cx)).await.unwrap();
            far.closed().await.unwrap();
        });
    });
}

/// A read stops behind bytes that came with a file descriptor, though there are more: a short read
/// does not mean that there is nothing left.
#[test]
fn bytes_after_passed_descriptors_are_read() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut buffer = [0; 100];
            assert!(future::poll_once(far.read(&mut buffer)).await.is_none(), "it is registered");
            let passed = [near.as_fd()];
            for bytes in [b"one", b"two", b"six"] {
                let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut with = SendAncillaryBuffer::new(&mut space);
                assert!(with.push(SendAncillaryMessage::ScmRights(&passed)));
                rustix::net::sendmsg(&near, &[IoSlice::new(bytes)], &mut with, SendFlags::empty()).unwrap();
            }
            for bytes in [b"one", b"two", b"six"] {
                let n = far.read(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..n], bytes);
            }
        });
    });
}

#[test]
fn from_the_standard_library_and_back() {
    watched(|| {
        runtime(1).block_on(async {
            let (near, far) = std_net::UnixStream::pair().unwrap();
            let (near, mut far) = (UnixStream::try_from(near).unwrap(), UnixStream::from_std(far).unwrap());
            assert!(future::poll_once(far.read(&mut [0; 10])).await.is_none());
            let mut far = UnixStream::from_std(far.into_std().unwrap()).unwrap();
            near.try_write(b"hello").unwrap();
            assert_eq!(far.read(&mut [0; 10]).await.unwrap(), 5);
            let number = near.as_raw_fd();
            assert_eq!(OwnedFd::from(near).as_raw_fd(), number);
            assert_eq!(far.read(&mut [0; 10]).await.unwrap(), 0);
        });
    });
}

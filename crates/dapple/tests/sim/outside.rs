//! A simulation has no outside: operations that would leave it fail, with an error that names the operation.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;

use crate::common::full_name;
use dapple::io::{AsyncReadExt, AsyncWriteExt, duplex, stderr, stdin, stdout};
use dapple::net::pipe::{OpenOptions, Receiver, Sender};
use dapple::net::{
    AsyncFd, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, lookup,
    pipe,
};
use dapple::process::Command;
use dapple::signal::{SignalKind, ctrl_c, signal};
use dapple::sim::Sim;

#[track_caller]
fn assert_refused<T>(what: &str, result: io::Result<T>) {
    let Err(error) = result else { panic!("{what} was not refused") };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{what}: there is no outside in a simulation")), "{what}: {text}");
}

#[test]
fn tcp_is_refused() {
    let std_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = std_listener.local_addr().unwrap();
    let std_stream = std::net::TcpStream::connect(addr).unwrap();
    let duplicate = || std_stream.try_clone().unwrap();
    let sockets = [TcpSocket::new_v4(), TcpSocket::new_v4(), TcpSocket::new_v4()].map(Result::unwrap);
    Sim::new(1).run(async {
        assert_refused("TcpListener::bind", TcpListener::bind("127.0.0.1:0").await);
        assert_refused("TcpListener::bind", TcpListener::bind("localhost:0").await);
        assert_refused("TcpListener::from_std", TcpListener::from_std(std_listener.try_clone().unwrap()));
        assert_refused("TcpListener::from_std", TcpListener::try_from(std_listener.try_clone().unwrap()));
        assert_refused("TcpStream::connect", TcpStream::connect(addr).await);
        let each = std::time::Duration::from_secs(1);
        assert_refused("TcpStream::connect_timeout", TcpStream::connect_timeout(addr, each).await);
        assert_refused("TcpStream::from_std", TcpStream::from_std(duplicate()));
        assert_refused("TcpStream::from_std", TcpStream::try_from(duplicate()));
        assert_refused("TcpSocket::new_v4", TcpSocket::new_v4());
        assert_refused("TcpSocket::new_v6", TcpSocket::new_v6());
        assert_refused("TcpSocket::new_for", TcpSocket::new_for(addr));
        assert_refused("TcpSocket::from_std", TcpSocket::from_std(duplicate()));
        let [first, second, third] = sockets;
        assert_refused("TcpSocket::listen", first.listen(1));
        assert_refused("TcpSocket::connect", second.connect(addr).await);
        assert_refused("TcpSocket::connect_timeout", third.connect_timeout(addr, each).await);
    });
    // The only connection is the one that this test made.
    std_listener.set_nonblocking(true).unwrap();
    std_listener.accept().unwrap();
    assert_eq!(std_listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn udp_and_names_are_refused() {
    let std_socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    Sim::new(1).run(async {
        assert_refused("UdpSocket::bind", UdpSocket::bind("127.0.0.1:0").await);
        assert_refused("UdpSocket::from_std", UdpSocket::from_std(std_socket));
        assert_refused("lookup of \"localhost\"", lookup("localhost:80").await);
        // A literal address needs no lookup.
        assert_eq!(lookup("127.0.0.1:80").await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
    });
}

#[test]
fn unix_sockets_are_refused() {
    let path = std::env::temp_dir().join(format!("dapple-sim-outside-{}", std::process::id()));
    let name = format!("dapple-sim-outside-{}", std::process::id());
    let addr = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let (std_stream, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let std_listener = std::os::unix::net::UnixListener::bind_addr(&addr).unwrap();
    let std_datagram = std::os::unix::net::UnixDatagram::unbound().unwrap();
    Sim::new(1).run(async {
        assert_refused("UnixListener::bind", UnixListener::bind(&path));
        assert_refused("UnixListener::bind_addr", UnixListener::bind_addr(&addr));
        assert_refused("UnixListener::from_std", UnixListener::from_std(std_listener));
        assert_refused("UnixStream::connect", UnixStream::connect(&path).await);
        assert_refused("UnixStream::connect_addr", UnixStream::connect_addr(&addr).await);
        assert_refused("UnixStream::pair", UnixStream::pair());
        assert_refused("UnixStream::from_std", UnixStream::from_std(std_stream));
        assert_refused("UnixDatagram::bind", UnixDatagram::bind(&path));
        assert_refused("UnixDatagram::bind_addr", UnixDatagram::bind_addr(&addr));
        assert_refused("UnixDatagram::unbound", UnixDatagram::unbound());
        assert_refused("UnixDatagram::pair", UnixDatagram::pair());
        assert_refused("UnixDatagram::from_std", UnixDatagram::from_std(std_datagram));
    });
    assert!(!path.exists());
}

#[test]
fn pipes_and_file_descriptors_are_refused() {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = std::env::temp_dir().join("dapple-sim-outside-none");
    Sim::new(1).run(async {
        assert_refused("net::pipe", pipe());
        let fds = (OwnedFd::from(reader.try_clone().unwrap()), OwnedFd::from(writer));
        assert_refused("pipe::Receiver::from_fd", Receiver::from_fd(fds.0));
        assert_refused("pipe::Sender::from_fd", Sender::from_fd(fds.1));
        assert_refused("pipe::OpenOptions::open_receiver", OpenOptions::new().open_receiver(&path));
        assert_refused("pipe::OpenOptions::open_sender", OpenOptions::new().open_sender(&path));
        let (error, reader) = AsyncFd::try_new(reader).unwrap_err();
        assert_refused::<()>("AsyncFd::new", Err(error));
        assert_refused("AsyncFd::new", AsyncFd::new(reader));
    });
}

#[test]
fn processes_and_signals_are_refused() {
    Sim::new(1).run(async {
        assert_refused("Command::spawn", Command::new("true").spawn());
        assert_refused("Command::status", Command::new("true").status().await);
        assert_refused("Command::output", Command::new("true").output().await);
        assert_refused("signal::signal", signal(SignalKind::user_defined1()));
        assert_refused("signal::ctrl_c", ctrl_c().await);
    });
}

#[test]
fn standard_input_is_refused() {
    let mut outside = stdin();
    Sim::new(1).run(async {
        assert_refused("io::stdin", stdin().read(&mut [0; 8]).await);
        assert_refused("io::stdin", outside.read(&mut [0; 8]).await);
    });
}

#[test]
fn what_was_made_outside_cannot_be_waited_for() {
    let (receiver, stream) = dapple::run(async {
        let (near, far) = UnixStream::pair().unwrap();
        let (_sender, receiver) = pipe().unwrap();
        std::mem::forget(far); // or there would be an end to read
        std::mem::forget(_sender);
        (receiver, near)
    });
    Sim::new(1).run(async {
        let refused = [receiver.readable().await, { stream }.read(&mut [0; 1]).await.map(drop)];
        for result in refused {
            assert_refused("this file descriptor", result);
        }
    });
}

/// Not a test: this program, started again.
#[test]
fn as_child() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    Sim::new(0).explore(0..20, || async {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                dapple::spawn(async {
                    stdout().write_all(b"<out>").await?;
                    let mut err = stderr();
                    err.write_all(b"<err>").await?;
                    err.flush().await
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap()?;
        }
        stdout().flush().await
    });
}

const ROLE: &str = "DAPPLE_SIM_OUTSIDE_CHILD";

#[test]
fn standard_output_works() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &full_name("as_child"), "--nocapture", "--test-threads=1"]).env(ROLE, "");
    let output = command.output().unwrap();
    assert!(output.status.success());
    let times = |text: &[u8], what| String::from_utf8_lossy(text).matches(what).count();
    assert_eq!((times(&output.stdout, "<out>"), times(&output.stderr, "<err>")), (80, 80));
}

#[test]
fn what_is_in_memory_works() {
    Sim::new(0).explore(0..20, || async {
        let (mut near, mut far) = duplex(4);
        let writer = dapple::spawn(async move { near.write_all(b"in memory").await });
        let mut text = String::new();
        far.read_to_string(&mut text).await?;
        assert_eq!(text, "in memory");
        writer.await.unwrap()
    });
}

#[test]
fn after_a_simulation_there_is_an_outside_again() {
    Sim::new(1).run(async { assert_refused("net::pipe", pipe()) });
    assert!(Sim::new(1).try_run(async { panic!("on purpose") }).is_err());
    dapple::run(async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    });
}

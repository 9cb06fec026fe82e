//! tokio's I/O traits on Dapple's sockets.
#![cfg(feature = "tokio-io")]

use crate::common::{runtime, watched};
use dapple::net::{TcpListener, TcpStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

#[test]
fn tokios_extensions_read_and_write() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            assert!(near.is_write_vectored());
            let echo = dapple::spawn(async move {
                let (mut read, mut write) = far.into_split();
                tokio::io::copy(&mut read, &mut write).await.unwrap()
            });
            let (read, mut write) = near.into_split();
            write.write_all(b"one\ntwo\nrest").await.unwrap();
            write.flush().await.unwrap();
            write.shutdown().await.unwrap();
            let mut read = BufReader::new(read);
            let mut line = String::new();
            assert_eq!(read.read_line(&mut line).await.unwrap(), 4);
            assert_eq!(read.read_line(&mut line).await.unwrap(), 4);
            read.read_to_string(&mut line).await.unwrap();
            assert_eq!(line, "one\ntwo\nrest");
            assert_eq!(echo.await.unwrap(), 12);
        });
    });
}

//! The proxy in tasks: one for each connection, which waits where the callbacks of the other style end.
//!
//! Each task has a color of its own: so all of it runs in parallel, not the parsing alone.

use std::io::{self, ErrorKind};

use dapple::io::{AsyncReadExt, AsyncWriteExt, copy};
use dapple::is_cancelled;
use dapple::net::{TcpListener, TcpStream};

use crate::request::{Refusal, Request, is_complete};

/// Accepts connections until it is cancelled.
pub(crate) async fn serve(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => dapple::spawn(async {
                // An error ends only its own connection.
                if let Err(error) = connection(client).await
                    && !is_cancelled(&error)
                {
                    eprintln!("webproxy: {error}");
                }
            })
            .detach(),
            Err(error) if is_cancelled(&error) => return,
            Err(error) => eprintln!("webproxy: {error}"),
        }
    }
}

async fn connection(mut client: TcpStream) -> io::Result<()> {
    let mut input = Vec::new();
    let mut buffer = [0; 4096];
    while !is_complete(&input) {
        match client.read(&mut buffer).await? {
            0 => return Ok(()),
            n => input.extend(&buffer[..n]),
        }
    }
    let request = match Request::parse(&input) {
        Ok(request) => request,
        Err(refusal) => return client.write_all(refusal.answer().as_bytes()).await,
    };
    let mut server = match TcpStream::connect(request.server).await {
        Ok(server) => server,
        Err(error) => {
            client.write_all(Refusal::BadGateway.answer().as_bytes()).await?;
            return Err(error);
        }
    };
    server.write_all(&request.bytes).await?;
    match copy(&mut server, &mut client).await {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()), // the client wants no more
        copied => copied.map(drop),
    }
}

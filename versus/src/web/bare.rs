//! The floor: what an answer costs with nothing around it but httparse and Dapple's sockets.
//!
//! It answers with bytes that were put together before, head and all, and knows nothing that HTTP asks of a server.

use std::collections::HashMap;

use dapple::io::AsyncReadExt;

use super::files::{self, Map};
use crate::served::answer;
use crate::sides::net::{Net, OfDapple};

/// The name of the side.
pub(crate) const NAME: &str = "bare";

/// Answers by path.
type Answers = HashMap<Box<[u8]>, Box<[u8]>>;

/// Serves files until the process is ended.
pub(crate) async fn serve(map: Map) -> ! {
    let answers: &'static Answers = Box::leak(Box::new((0..files::COUNT).map(|n| reply(&map, n)).collect()));
    let (mut listener, address) = OfDapple::bind().await;
    answer(address);
    loop {
        let stream = OfDapple::accept(&mut listener).await;
        dapple::spawn(connection(stream, answers)).detach();
    }
}

fn reply(map: &Map, number: usize) -> (Box<[u8]>, Box<[u8]>) {
    let path = files::path(number);
    let file = map.get(&path).expect("a file for each number");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\nlast-modified: {}\r\ncontent-length: {}\r\n\r\n",
        files::TYPE,
        files::MODIFIED,
        file.bytes.len()
    );
    (path.into_bytes().into(), [head.as_bytes(), &file.bytes].concat().into())
}

async fn connection(mut stream: <OfDapple as Net>::Stream, answers: &'static Answers) {
    OfDapple::set_nodelay(&stream);
    let mut buffer = [0; 1024];
    let mut filled = 0;
    loop {
        match stream.read(&mut buffer[filled..]).await {
            // The load is done.
            Ok(0) | Err(_) => return,
            Ok(length) => filled += length,
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        if !request.parse(&buffer[..filled]).expect("a request").is_complete() {
            continue;
        }
        let path = request.path.expect("a request that is whole");
        let reply = answers.get(path.as_bytes()).expect("a path that there is");
        let last = request.headers.iter().any(|header| header.value == b"close");
        OfDapple::write_all(&mut stream, reply).await;
        if last {
            return;
        }
        filled = 0;
    }
}

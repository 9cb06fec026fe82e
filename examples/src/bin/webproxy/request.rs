//! A request to the proxy: whether it is complete, its destination, and the bytes to send there. Both styles share it.

use std::fmt::Write as _;

/// The longest request that is taken, with its body.
const LONGEST: usize = 1 << 20;

/// A request on its way to the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Host and port.
    pub(crate) server: String,
    /// The request that is sent there.
    pub(crate) bytes: Vec<u8>,
}

/// Why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    BadRequest,
    LengthRequired,
    TooLong,
    NotImplemented,
    BadGateway,
}

impl Refusal {
    /// The HTTP answer for this error.
    pub(crate) fn answer(self) -> String {
        let status = match self {
            Refusal::BadRequest => "400 Bad Request",
            Refusal::LengthRequired => "411 Length Required",
            Refusal::TooLong => "413 Content Too Large",
            Refusal::NotImplemented => "501 Not Implemented",
            Refusal::BadGateway => "502 Bad Gateway",
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }
}

/// Whether the input can be parsed now: a whole request, too many bytes, or bytes that are no request.
pub(crate) fn is_complete(input: &[u8]) -> bool {
    if input.len() > LONGEST {
        return true;
    }
    let end = input.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    end.is_some_and(|_| head(input).map_or(true, |head| input.len() >= head.length))
}

/// Of a request whose head is there.
struct Head<'a> {
    method: &'a str,
    target: &'a str,
    headers: Vec<(&'a str, &'a [u8])>,
    /// Where the body begins.
    body: usize,
    /// How long the whole is.
    length: usize,
}

fn head(input: &[u8]) -> Result<Head<'_>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(body)) = request.parse(input) else { return Err(Refusal::BadRequest) };
    let (method, target) = (request.method, request.path);
    let (Some(method), Some(target)) = (method, target) else { return Err(Refusal::BadRequest) };
    let headers: Vec<_> = request.headers.iter().map(|header| (header.name, header.value)).collect();
    let values = |name: &str| {
        let of_name = move |header: &&(&str, &[u8])| header.0.eq_ignore_ascii_case(name);
        headers.iter().filter(of_name).map(|header| header.1).collect::<Vec<_>>()
    };
    if !values("transfer-encoding").is_empty() {
        return Err(Refusal::LengthRequired);
    }
    let length = match values("content-length")[..] {
        [] => 0,
        [length] => {
            let length =
                std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            length.and_then(|text| text.parse::<usize>().ok()).ok_or(Refusal::BadRequest)?
        }
        _ => return Err(Refusal::BadRequest),
    };
    let length = body.checked_add(length).filter(|&length| length <= LONGEST).ok_or(Refusal::TooLong)?;
    Ok(Head { method, target, headers, body, length })
}

impl Request {
    /// Takes a complete request apart, and makes the one for the server of it.
    pub(crate) fn parse(input: &[u8]) -> Result<Request, Refusal> {
        if input.len() > LONGEST {
            return Err(Refusal::TooLong);
        }
        let head = head(input)?;
        let whole = input.get(..head.length).ok_or(Refusal::BadRequest)?;
        if head.method == "CONNECT" {
            return Err(Refusal::NotImplemented);
        }
        let target = head.target.strip_prefix("http://").ok_or(Refusal::BadRequest)?;
        let (server, file) = target.split_at(target.find('/').unwrap_or(target.len()));
        if server.is_empty() || server.contains('@') {
            return Err(Refusal::BadRequest);
        }
        let file = if file.is_empty() { "/" } else { file };
        let mut text = format!("{} {file} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n", head.method);
        for (name, value) in &head.headers {
            // Those of this connection end here.
            const OWN: [&str; 7] =
                ["host", "connection", "proxy-connection", "keep-alive", "te", "trailer", "upgrade"];
            if !OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                let value = std::str::from_utf8(value).map_err(|_| Refusal::BadRequest)?;
                let _ = write!(text, "{name}: {value}\r\n"); // a string takes all
            }
        }
        text.push_str("\r\n");
        let bytes = [text.as_bytes(), &whole[head.body..]].concat();
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let server = if has_port { server.to_owned() } else { format!("{server}:80") };
        Ok(Request { server, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_with_its_body() {
        let whole = b"POST http://a/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..whole.len() {
            assert!(!is_complete(&whole[..end]), "{end}");
        }
        assert!(is_complete(whole));
        assert!(is_complete(b"nonsense\r\n\r\n"), "there is something to refuse");
        assert!(is_complete(&vec![b'a'; LONGEST + 1]));
    }

    #[test]
    fn the_server_gets_the_file_and_not_the_rest() {
        let input = b"GET http://host:81/a?b HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\nAccept: c\r\n\r\n";
        let request = Request::parse(input).unwrap();
        assert_eq!(request.server, "host:81");
        let expected = "GET /a?b HTTP/1.1\r\nHost: host:81\r\nConnection: close\r\nAccept: c\r\n\r\n";
        assert_eq!(String::from_utf8(request.bytes).unwrap(), expected);
        assert_eq!(Request::parse(b"GET http://host HTTP/1.0\r\n\r\n").unwrap().server, "host:80");
        assert_eq!(Request::parse(b"GET http://[::1]/ HTTP/1.0\r\n\r\n").unwrap().server, "[::1]:80");
    }

    #[test]
    fn what_cannot_be_passed_on_is_refused() {
        for (input, refusal) in [
            (&b"GET /a HTTP/1.1\r\n\r\n"[..], Refusal::BadRequest),
            (b"GET http://me@host/ HTTP/1.1\r\n\r\n", Refusal::BadRequest),
            (b"GET http:///a HTTP/1.1\r\n\r\n", Refusal::BadRequest),
            (b"\x00\x01\r\n\r\n", Refusal::BadRequest),
            (b"GET http://a/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n1", Refusal::BadRequest),
            (
                b"GET http://a/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n1",
                Refusal::BadRequest,
            ),
            (b"GET http://a/ HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", Refusal::TooLong),
            (b"POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::LengthRequired),
            (b"CONNECT a:443 HTTP/1.1\r\n\r\n", Refusal::NotImplemented),
        ] {
            assert_eq!(Request::parse(input), Err(refusal), "{}", String::from_utf8_lossy(input));
        }
    }
}

//! Strict checks of request heads, in the bytes as they came. hyper, which parses the heads, silently accepts some that
//! two servers in a chain may understand in different ways.
//!
//! With both a `Content-Length` and a `Transfer-Encoding` hyper goes by the latter, takes the former away, and closes
//! the connection after the answer. That is safe, but a client that sends both is likely an attacker. So the bytes of a
//! head are kept until its request has begun, and are checked then. The other checks use the request as hyper has
//! parsed it: transfer codings, the size of the body, the target and the host.
//!
//! A request names its host once, or twice in the same way.
//! RFC 9112, section 3.2.2, has an origin server use the host of an absolute target (`GET http://a/`) and ignore a Host
//! header that differs. Such a request is refused with 400 here instead. A client must send both the same (section 3.2),
//! so only a broken or hostile one does not. Services read the Host header, or the target, and so do caches and proxies
//! in front: with one of the two ignored, a cache could keep the page of one host under the name of another.
//!
//! # Invariants
//!
//! * **EVERY-HEAD**: the kept bytes begin where a head begins. Bytes that were read are kept from the end of the
//!   previous request's body on ([`BodyRemainder`]), wherever in the reads that end lay. If hyper begins a request
//!   where none was expected, the request is refused.

use std::cell::RefCell;
use std::net::Ipv6Addr;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use memchr::memchr;

use crate::reply::ServerReply;
use crate::strict::framing::{BodyRemainder, Flaw, Framing};

/// Kept until more than this is needed again.
const KEEP: usize = 4 * 1024;

/// The bytes that have been read and belong to no request that has begun.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// From the beginning of a head on. EVERY-HEAD
    kept: Vec<u8>,
    /// The rest of the body before the next head. While some of it is to come, nothing is kept.
    rest: BodyRemainder,
}

impl Heads {
    /// Takes what was read.
    #[inline]
    pub(crate) fn push(&mut self, read: &[u8]) -> Result<(), Flaw> {
        let passed = self.rest.pass(read)?;
        self.kept.extend_from_slice(&read[passed..]);
        Ok(())
    }

    /// Checks the head of the request that begins, and removes it, with the part of its body that is here.
    pub(crate) fn next(
        &mut self,
        method: &str,
        framing: Framing,
        max_body_size: usize,
    ) -> Result<(), ServerReply> {
        let (end, mut verdict) = match framing == Framing::Unsaid && is_whole_head(&self.kept, method) {
            true => (self.kept.len(), Ok(())),
            false => look(&self.kept, method),
        };
        if self.rest != BodyRemainder::Nothing {
            verdict = Err(UNEXPECTED);
        }
        self.rest = BodyRemainder::new(framing, max_body_size as u64);
        match self.rest.pass(&self.kept[end..]) {
            Ok(passed) if end + passed < self.kept.len() => drop(self.kept.drain(..end + passed)),
            Ok(_) => self.clear(),
            Err(flaw) => {
                self.clear();
                verdict = verdict.and(Err(flaw.into()));
            }
        }
        verdict
    }

    /// Whether something of a head is here.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.kept.iter().any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// Whether a body has not come to its end.
    pub(crate) fn is_receiving(&self) -> bool {
        self.rest != BodyRemainder::Nothing
    }

    /// The part of a head that is here.
    pub(crate) fn begun(&self) -> &[u8] {
        &self.kept
    }

    fn clear(&mut self) {
        if self.kept.capacity() > KEEP {
            self.kept = Vec::new();
        }
        self.kept.clear();
    }
}

const UNEXPECTED: ServerReply = ServerReply::bad("it is not clear where this request begins\n");

impl From<Flaw> for ServerReply {
    fn from(flaw: Flaw) -> ServerReply {
        match flaw {
            Flaw::Malformed => ServerReply::bad("the chunks of the body are not as they should be\n"),
            Flaw::TooLarge => ServerReply::TOO_LARGE,
        }
    }
}

/// Whether this is a head of which each line ends with CR LF, and nothing else. It is for most requests; the others are
/// looked at line by line.
fn is_whole_head(bytes: &[u8], method: &str) -> bool {
    let Some(before_last) = bytes.strip_suffix(b"\n") else { return false };
    if !bytes.starts_with(method.as_bytes()) || !before_last.ends_with(b"\r\n\r") {
        return false;
    }
    // Without a branch in it, so that the compiler compares many bytes at a time. The first two bytes are of the method,
    // or the blank behind it.
    let of_three = before_last.iter().zip(&before_last[1..]).zip(&before_last[2..]);
    let flaws = of_three.fold(0, |flaws, ((two_before, one_before), byte)| {
        let ends_empty_line = *two_before == b'\n';
        flaws | u8::from(*byte == b'\n') & (u8::from(*one_before != b'\r') | u8::from(ends_empty_line))
    });
    flaws == 0
}

/// Returns the end of a head, and the error reply if the head is refused.
fn look(bytes: &[u8], method: &str) -> (usize, Result<(), ServerReply>) {
    let mut at = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if !bytes[at..].starts_with(method.as_bytes()) {
        return (bytes.len(), Err(UNEXPECTED));
    }
    let (mut lengths, mut encodings) = (0, 0);
    let mut verdict = Ok(());
    while let Some(length) = memchr(b'\n', &bytes[at..]) {
        let line = &bytes[at..at + length];
        at += length + 1;
        let Some(line) = line.strip_suffix(b"\r") else {
            // As some see it the line goes on.
            verdict = Err(ServerReply::bad("a line of a head ends with CR LF, not with LF alone\n"));
            if line.is_empty() {
                return (at, verdict);
            }
            continue;
        };
        match line.first() {
            None => {
                if lengths + encodings > 1 {
                    verdict = Err(ServerReply::bad("the length of a body is said once, and in one way\n"));
                }
                return (at, verdict);
            }
            Some(b'c' | b'C') => lengths += u32::from(is_field(line, b"content-length")),
            Some(b't' | b'T') => encodings += u32::from(is_field(line, b"transfer-encoding")),
            Some(_) => {}
        }
    }
    // It is not here as a whole.
    (bytes.len(), Err(UNEXPECTED))
}

fn is_field(line: &[u8], name: &[u8]) -> bool {
    line.len() > name.len() && line[name.len()] == b':' && line[..name.len()].eq_ignore_ascii_case(name)
}

/// With HTTP/1: what hyper has parsed.
#[inline]
pub(crate) fn check_http1(
    request: &Request<Incoming>,
    framing: Framing,
    known: &KnownHost,
    max_body_size: usize,
) -> Result<(), ServerReply> {
    if framing == Framing::Chunked {
        check_encoding(request.headers())?;
    }
    check_host(request, known)?;
    check_size(request.body(), max_body_size)
}

/// With HTTP/2, of which hyper shows nothing else.
pub(crate) fn check_http2(request: &Request<Incoming>, max_body_size: usize) -> Result<(), ServerReply> {
    check_authority(request.uri(), request.headers())?;
    check_size(request.body(), max_body_size)
}

fn check_size(body: &Incoming, max_body_size: usize) -> Result<(), ServerReply> {
    match body.size_hint().lower() > max_body_size as u64 {
        true => Err(ServerReply::TOO_LARGE),
        false => Ok(()),
    }
}

/// How the body is framed, as hyper has it.
#[inline]
pub(crate) fn framing(headers: &HeaderMap, body: &Incoming) -> Framing {
    if body.is_end_stream() {
        // To compare all names takes less than to look up two.
        let is_said = headers.keys().any(|name| name == CONTENT_LENGTH || name == TRANSFER_ENCODING);
        return if is_said { Framing::Nothing } else { Framing::Unsaid };
    }
    match body.size_hint().exact() {
        Some(length) if !headers.contains_key(TRANSFER_ENCODING) => Framing::Length(length),
        _ => Framing::Chunked,
    }
}

/// One coding, the one that is understood: of several, hyper undoes the last alone, and a service would take what
/// is left for the body.
fn check_encoding(headers: &HeaderMap) -> Result<(), ServerReply> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = encodings.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_chunked && encodings.next().is_none() {
        return Ok(());
    }
    Err(ServerReply::NOT_CHUNKED)
}

const UNLIKE: ServerReply =
    ServerReply::bad("the Host header and the authority of the request are not the same\n");

/// The last host that a connection has asked for and that is one: nearly all of its requests have the same.
#[derive(Default)]
pub(crate) struct KnownHost(RefCell<Vec<u8>>);

impl KnownHost {
    /// Longer hosts are checked each time.
    const MOST: usize = 64;

    /// Whether this is a host, and perhaps a port.
    #[inline]
    fn check(&self, host: &[u8]) -> bool {
        *self.0.borrow() == host || self.check_new(host)
    }

    fn check_new(&self, host: &[u8]) -> bool {
        let is_host = is_host(host);
        if is_host && host.len() <= KnownHost::MOST {
            *self.0.borrow_mut() = host.to_vec();
        }
        is_host
    }
}

/// The target and the host, with HTTP/1.
#[inline]
fn check_host<B>(request: &Request<B>, known: &KnownHost) -> Result<(), ServerReply> {
    let uri = request.uri();
    // Nearly all targets are paths.
    if uri.authority().is_some() || !uri.path().starts_with('/') || request.method() == Method::CONNECT {
        check_target(request.method(), uri)?;
    }
    let headers = request.headers();
    // Where no name is repeated, there is one host at most.
    if headers.len() != headers.keys_len() && headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(ServerReply::bad("a request has one Host header, not several\n"));
    }
    match headers.get(HOST) {
        Some(host) if !host.is_empty() && !known.check(host.as_bytes()) => {
            Err(ServerReply::bad("the Host header has to be a name or an address, and perhaps a port\n"))
        }
        Some(host) => match uri.authority() {
            Some(target) if !host.as_bytes().eq_ignore_ascii_case(host_and_port(target.as_str())) => {
                Err(UNLIKE)
            }
            _ => Ok(()),
        },
        None if request.version() == Version::HTTP_11 => {
            Err(ServerReply::bad("a request of HTTP/1.1 needs a Host header\n"))
        }
        None => Ok(()),
    }
}

/// With HTTP/2 the authority is sent apart from the headers; a Host header must not differ from it.
fn check_authority(uri: &Uri, headers: &HeaderMap) -> Result<(), ServerReply> {
    let authority = uri.authority().map_or("", |authority| authority.as_str()).as_bytes();
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().map(|host| host.as_bytes());
    let said = if authority.is_empty() { host.unwrap_or_default() } else { authority };
    if !said.is_empty() && !is_host(said) {
        return Err(ServerReply::bad("the authority has to be a name or an address, and perhaps a port\n"));
    }
    match host.is_none_or(|host| host.eq_ignore_ascii_case(said)) && hosts.next().is_none() {
        true => Ok(()),
        false => Err(UNLIKE),
    }
}

/// A path, an address with a scheme, `*` for OPTIONS, or an authority for CONNECT: RFC 9112, section 3.2. hyper takes
/// `a.txt` for an authority, whatever the method.
#[cold]
fn check_target(method: &Method, uri: &Uri) -> Result<(), ServerReply> {
    let is_connect = method == Method::CONNECT;
    let is_target = match uri.authority() {
        Some(authority) if uri.scheme().is_none() => is_connect && is_host(authority.as_str().as_bytes()),
        Some(authority) => !is_connect && is_host(host_and_port(authority.as_str())),
        None if uri.path() == "*" => method == Method::OPTIONS,
        None => !is_connect && uri.path().starts_with('/'),
    };
    match is_target {
        true => Ok(()),
        false => Err(ServerReply::bad(
            "the target of a request is a path that begins with a slash, or a whole address\n",
        )),
    }
}

/// An authority without its user and password, which are no part of a Host header.
fn host_and_port(authority: &str) -> &[u8] {
    authority.rsplit('@').next().unwrap_or_default().as_bytes()
}

/// Whether this is a host, and perhaps a port: RFC 3986, section 3.2, without the forms that no client uses and that
/// servers read in more than one way: empty labels, zones, and addresses of versions to come.
fn is_host(text: &[u8]) -> bool {
    if text.first() == Some(&b'[') {
        let Some(end) = memchr(b']', text) else { return false };
        let address = str::from_utf8(&text[1..end]).ok().and_then(|address| address.parse::<Ipv6Addr>().ok());
        return address.is_some() && is_port(&text[end + 1..]);
    }
    let mut before = b'.'; // a name does not begin with a dot
    for (at, &byte) in text.iter().enumerate() {
        if !OF_NAME[usize::from(byte)] {
            return at > 0 && is_port(&text[at..]);
        }
        if (byte == b'.' && before == b'.') || (byte == b'%' && !is_encoded(&text[at + 1..])) {
            return false;
        }
        before = byte;
    }
    !text.is_empty()
}

/// Whether this is nothing, or a colon and a port. The port may be empty.
fn is_port(text: &[u8]) -> bool {
    let [b':', digits @ ..] = text else { return text.is_empty() };
    let number = digits.iter().try_fold(0_u32, |number, digit| {
        let number = number * 10 + char::from(*digit).to_digit(10)?;
        (number <= u32::from(u16::MAX)).then_some(number)
    });
    number.is_some()
}

/// Whether two hexadecimal digits are next.
fn is_encoded(text: &[u8]) -> bool {
    matches!(text, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// The bytes that host names and IPv4 addresses consist of (RFC 3986, section 3.2.2).
static OF_NAME: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = may_be_in_name(byte as u8);
        byte += 1;
    }
    table
};

const fn may_be_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'')
        || matches!(byte, b'(' | b')' | b'*' | b'+' | b';' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(heads: &mut Heads, method: &str, framing: Framing) -> bool {
        heads.next(method, framing, 100).is_ok()
    }

    #[test]
    fn heads_are_told_apart() {
        let mut heads = Heads::default();
        heads
            .push(b"\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab")
            .unwrap();
        assert!(is_good(&mut heads, "GET", Framing::Nothing));
        assert!(heads.has_begun());
        assert!(is_good(&mut heads, "POST", Framing::Length(3)));
        assert!(heads.is_receiving() && !heads.has_begun());
        heads.push(b"cPOST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-").unwrap();
        heads.push(b"encoding: chunked\r\n\r\n0\r\n\r\n").unwrap();
        assert!(!is_good(&mut heads, "POST", Framing::Chunked));
        assert!(!heads.is_receiving() && !heads.has_begun());
        heads
            .push(b"PUT / HTTP/1.1\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\nGET / HTTP/1.1\n\n")
            .unwrap();
        assert!(!is_good(&mut heads, "PUT", Framing::Nothing));
        assert!(!is_good(&mut heads, "GET", Framing::Nothing));
    }

    /// A head that is taken as a whole is one that is found to be good line by line.
    #[test]
    fn a_whole_head_has_no_flaw() {
        for length in 0..40 {
            let good = format!("GET /{} HTTP/1.1\r\na: b\r\nhost: c\r\n\r\n", "x".repeat(length));
            assert!(is_whole_head(good.as_bytes(), "GET") && !is_whole_head(good.as_bytes(), "PUT"));
            let good = good.as_bytes();
            for at in 0..good.len() {
                for new in [&b""[..], b"\n", b"\r", b"\r\n", b"\n\r\n", b"\r\n\r\n", b"x"] {
                    for until in [at, at + 1] {
                        let changed = [&good[..at], new, &good[until..]].concat();
                        let (end, verdict) = look(&changed, "GET");
                        // A CR without an LF is nothing to us: hyper refuses it.
                        let is_good = end == changed.len() && verdict.is_ok();
                        let text = String::from_utf8_lossy(&changed);
                        // The line by line look passes over empty lines at the beginning.
                        if at > 0 {
                            assert_eq!(is_whole_head(&changed, "GET"), is_good, "{text:?}");
                        } else {
                            assert!(is_good || !is_whole_head(&changed, "GET"), "{text:?}");
                        }
                    }
                }
            }
            assert!(
                !is_whole_head(&[good, b"G"].concat(), "GET")
                    && !is_whole_head(&[good, good].concat(), "GET")
            );
        }
    }

    #[test]
    fn a_head_behind_chunks_is_seen_wherever_the_reads_were_cut() {
        let bytes = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nhi\r\n0\r\na: b\r\n\r\n\
                      POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        let first = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        for begun in first..bytes.len() {
            for split in begun..bytes.len() {
                let mut heads = Heads::default();
                heads.push(&bytes[..begun]).unwrap();
                assert!(is_good(&mut heads, "POST", Framing::Chunked));
                heads.push(&bytes[begun..split]).unwrap();
                heads.push(&bytes[split..]).unwrap();
                assert!(!is_good(&mut heads, "POST", Framing::Chunked), "{begun}, {split}");
            }
        }
    }

    #[test]
    fn a_request_that_begins_where_none_was_expected_is_refused() {
        let whole = b"GET / HTTP/1.1\r\n\r\n";
        let mut heads = Heads::default();
        heads.push(&whole[..10]).unwrap();
        assert!(!is_good(&mut heads, "GET", Framing::Nothing));
        heads.push(whole).unwrap();
        assert!(!is_good(&mut heads, "PUT", Framing::Nothing));
        heads.push(whole).unwrap();
        assert!(is_good(&mut heads, "GET", Framing::Length(5)));
        heads.push(b"abc").unwrap();
        assert!(!is_good(&mut heads, "GET", Framing::Nothing));
    }

    #[test]
    fn a_large_head_is_not_kept() {
        let mut heads = Heads::default();
        heads.push(&[b'x'; 2 * KEEP]).unwrap();
        assert!(!is_good(&mut heads, "GET", Framing::Nothing));
        assert_eq!(heads.kept.capacity(), 0);
    }

    #[test]
    fn hosts_and_what_is_none() {
        let hosts = "a localhost:80 www.example.com. a: a:0 a:65535 127.0.0.1:8080 [::1] [::1]:80 \
                     [::ffff:1.2.3.4]:443 a_b-c~d.e %C3%A4.example";
        for host in hosts.split(' ') {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        let others = ": :80 . .a a..b www..com a.b.. a:port a:80:80 a:-1 a:+1 a:65536 localhost:99999 \
                      a:99999999999999999999 a/b a@b a,b [ [] [::1 ::1 [zz] [::1]80 [::1]:x [1.2.3.4] \
                      [fe80::1%25eth0] [v1.a] a[::1] % a%2 %zz";
        for other in others.split(' ').chain(["", "a b", "a\0", "\u{e4}"]) {
            assert!(!is_host(other.as_bytes()), "{other}");
        }
    }
}

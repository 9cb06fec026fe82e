//! The target of a request, and its host: said once, or twice in the same way.
//!
//! RFC 9112, section 3.2.2, has an origin server use the host of an absolute target (`GET http://a/`) and ignore a Host
//! header that differs. Such a request is refused with 400 here instead. A client must send both the same (section 3.2),
//! so only a broken or hostile one does not. Services read the Host header, or the target, and so do caches and proxies
//! in front: with one of the two ignored, a cache could keep the page of one host under the name of another.

use std::cell::RefCell;
use std::net::Ipv6Addr;

use http::header::{HOST, HeaderMap};
use http::{Method, Request, Uri, Version};

use crate::reply::ServerReply;

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

/// With HTTP/1.
#[inline]
pub(super) fn check<B>(request: &Request<B>, known: &KnownHost) -> Result<(), ServerReply> {
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

/// With HTTP/2 the authority is said apart from the headers; a Host header must not say something else.
pub(super) fn check_authority(uri: &Uri, headers: &HeaderMap) -> Result<(), ServerReply> {
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
        let Some(end) = memchr::memchr(b']', text) else { return false };
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

/// What names and addresses of version 4 consist of (RFC 3986, section 3.2.2).
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

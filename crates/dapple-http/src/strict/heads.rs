//! The heads of requests as they came: hyper, which parses them, is lenient where servers behind each other may
//! disagree on what a request is, and does not tell.
//!
//! With both a `Content-Length` and a `Transfer-Encoding` hyper goes by the latter, takes the former away, and closes
//! the connection after the answer. That is safe, but whoever sends it is up to something. So what is read is kept
//! until the request that it is the head of has begun, and looked at then.
//!
//! # Invariants
//!
//! * **EVERY-HEAD**: what is kept begins where a head begins. What is read goes past the body of the request before it
//!   ([`BodyRemainder`]) and is kept from there on, wherever that lay in the reads. If hyper should begin a request where none
//!   was expected, it is refused.

use memchr::memchr;

use crate::reply::ServerReply;
use crate::strict::framing::{BodyRemainder, Flaw, Framing};

/// Kept until more than this is needed again.
const KEEP: usize = 4 * 1024;

/// What has been read and is not known to be over.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// From the beginning of a head on. EVERY-HEAD
    kept: Vec<u8>,
    /// What comes before the next head; then nothing is kept.
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

    /// Looks at the head of the request that begins, and takes it away, with what is here of a body.
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

    /// What is here of a head.
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

/// Where a head ends, and what is to be said of it.
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
}

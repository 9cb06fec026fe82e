//! The heads of requests as they came: hyper, which parses them, is lenient where servers behind each other may
//! disagree on what a request is, and does not tell.
//!
//! With both a `Content-Length` and a `Transfer-Encoding` hyper goes by the latter, takes the former away, and closes
//! the connection after the answer. That is safe, but whoever sends it is up to something. So what is read is kept
//! until the request that it is the head of has begun, and looked at then.
//!
//! Only what is read while no body is received is kept. A head that was sent behind a body, without waiting for the
//! answer, may therefore not be here as a whole. Then it is as hyper has it.

use memchr::memchr;

use crate::answer::Own;

/// Kept until more than this is needed again.
const KEEP: usize = 4 * 1024;

/// What has been read and is not known to be over.
#[derive(Default)]
pub(crate) struct Heads(Vec<u8>);

/// How the body of a request is framed, as hyper has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Nothing,
    Length(u64),
    Chunked,
}

impl Heads {
    pub(crate) fn push(&mut self, read: &[u8]) {
        self.0.extend_from_slice(read);
    }

    /// Looks at the head of the request that begins, and takes it away.
    pub(crate) fn next(&mut self, framing: Framing) -> Result<(), Own> {
        let (end, verdict) = look(&self.0, framing);
        let over = match framing {
            Framing::Nothing => Some(end),
            Framing::Length(length) => {
                usize::try_from(length).ok().and_then(|length| end.checked_add(length))
            }
            Framing::Chunked => None,
        };
        match over {
            Some(over) if over < self.0.len() => drop(self.0.drain(..over)),
            // Where the next one begins is not known, or here.
            _ => self.clear(),
        }
        verdict
    }

    fn clear(&mut self) {
        if self.0.capacity() > KEEP {
            self.0 = Vec::new();
        }
        self.0.clear();
    }
}

/// Where a head ends, and what is to be said of it.
fn look(bytes: &[u8], framing: Framing) -> (usize, Result<(), Own>) {
    let empty = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let mut at = empty;
    let (mut lengths, mut encodings) = (0, 0);
    let mut verdict = Ok(());
    while let Some(length) = memchr(b'\n', &bytes[at..]) {
        let line = &bytes[at..at + length];
        at += length + 1;
        let Some(line) = line.strip_suffix(b"\r") else {
            // As some see it the line goes on.
            verdict = Err(Own::bad("a line of a head ends with CR LF, not with LF alone\n"));
            if line.is_empty() {
                return (at, verdict);
            }
            continue;
        };
        match line.first() {
            None => {
                if framing != Framing::Nothing && (lengths > 1 || encodings > 1 || lengths + encodings > 1) {
                    verdict = Err(Own::bad("the length of a body is said once, and in one way\n"));
                }
                return (at, verdict);
            }
            Some(b'c' | b'C') => lengths += u32::from(is_field(line, b"content-length")),
            Some(b't' | b'T') => encodings += u32::from(is_field(line, b"transfer-encoding")),
            Some(_) => {}
        }
    }
    // It is not here as a whole.
    (bytes.len(), Ok(()))
}

fn is_field(line: &[u8], name: &[u8]) -> bool {
    line.len() > name.len() && line[name.len()] == b':' && line[..name.len()].eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(heads: &mut Heads, framing: Framing) -> bool {
        heads.next(framing).is_ok()
    }

    #[test]
    fn heads_are_told_apart() {
        let mut heads = Heads::default();
        heads.push(b"\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
        heads.push(b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-");
        heads.push(b"encoding: chunked\r\n\r\n0\r\n\r\n");
        assert!(next(&mut heads, Framing::Nothing));
        assert!(next(&mut heads, Framing::Length(3)));
        assert!(!next(&mut heads, Framing::Chunked));
        assert!(heads.0.is_empty());
        heads.push(b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nxGET / HTTP/1.1\n\n");
        assert!(!next(&mut heads, Framing::Length(1)));
        assert!(!next(&mut heads, Framing::Nothing));
    }

    #[test]
    fn a_head_that_is_not_here_as_a_whole_is_passed_over() {
        let mut heads = Heads::default();
        heads.push(b"length: 1\r\ncontent-length: 1");
        assert!(next(&mut heads, Framing::Length(1)));
        assert!(heads.0.is_empty());
    }

    #[test]
    fn a_large_head_is_not_kept() {
        let mut heads = Heads::default();
        heads.push(&[b'x'; 2 * KEEP]);
        assert!(next(&mut heads, Framing::Nothing));
        assert_eq!(heads.0.capacity(), 0);
    }
}

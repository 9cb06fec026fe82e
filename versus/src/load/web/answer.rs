//! Answers of an HTTP/1.1 server, as far as a load has to understand them: one at a time, of a length that the
//! server names. Whatever else comes is an error: a load that misreads answers measures nothing.

/// One answer, all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) length: usize,
    /// The server will hang up.
    pub(crate) close: bool,
    /// The first bytes of the body, or fewer and zeros.
    pub(crate) first: [u8; FIRST],
}

/// How much of a body is looked at.
pub(crate) const FIRST: usize = 8;

/// Assembles an answer from the bytes that are read.
#[derive(Default)]
pub(crate) struct Reader {
    /// A head that has not come whole.
    head: Vec<u8>,
    /// An answer whose body has not come whole, and how much of that has.
    body: Option<(Answer, usize)>,
}

/// More headers than that no server here sends.
const HEADERS: usize = 32;

impl Reader {
    /// Takes the next bytes; the answer if they are its end.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<Answer>, String> {
        if let Some((answer, come)) = self.body.take() {
            return self.take_body(answer, come, bytes);
        }
        if self.head.is_empty() {
            return match head(bytes)? {
                Some((answer, length)) => self.take_body(answer, 0, &bytes[length..]),
                None => {
                    self.head.extend_from_slice(bytes);
                    Ok(None)
                }
            };
        }
        self.head.extend_from_slice(bytes);
        let Some((answer, length)) = head(&self.head)? else { return Ok(None) };
        let all = std::mem::take(&mut self.head);
        self.take_body(answer, 0, &all[length..])
    }

    fn take_body(&mut self, mut answer: Answer, come: usize, bytes: &[u8]) -> Result<Option<Answer>, String> {
        for (place, &byte) in answer.first.iter_mut().skip(come).zip(bytes) {
            *place = byte;
        }
        let come = come + bytes.len();
        if come > answer.length {
            return Err(format!("{} bytes too many after an answer", come - answer.length));
        }
        if come == answer.length {
            return Ok(Some(answer));
        }
        self.body = Some((answer, come));
        Ok(None)
    }
}

/// The head of an answer, and how long it is; nothing if it is not whole.
fn head(bytes: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("not an answer: {error}")),
    };
    let value = |name: &str| {
        let mut found = response.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        found.next().and_then(|header| str::from_utf8(header.value).ok())
    };
    let Some(body) = value("content-length").and_then(|text| text.parse().ok()) else {
        return Err("an answer that does not say how long it is".to_owned());
    };
    let close = value("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
    let status = response.code.unwrap_or(0);
    Ok(Some((Answer { status, length: body, close, first: [0; FIRST] }, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nconnection: Close\r\n\r\nhello world";

    const ANSWER: Answer = Answer { status: 200, length: 11, close: true, first: *b"hello wo" };

    #[test]
    fn an_answer_is_whole_however_it_is_cut() {
        for cut in 1..TEXT.len() {
            let mut reader = Reader::default();
            assert_eq!(reader.take(&TEXT[..cut]), Ok(None), "{cut}");
            assert_eq!(reader.take(&TEXT[cut..]), Ok(Some(ANSWER)), "{cut}");
            assert_eq!(reader.take(TEXT), Ok(Some(ANSWER)), "and the next one after {cut}");
        }
    }

    #[test]
    fn a_byte_at_a_time() {
        let mut reader = Reader::default();
        let answers: Vec<Answer> = TEXT.iter().filter_map(|&byte| reader.take(&[byte]).unwrap()).collect();
        assert_eq!(answers, [ANSWER]);
    }

    #[test]
    fn what_cannot_be_told_apart_is_an_error() {
        let take = |text: &[u8]| Reader::default().take(text);
        assert!(take(b"HTTP/1.1 200 OK\r\n\r\n").unwrap_err().contains("how long"));
        assert!(take(b"SSH-2.0-OpenSSH\r\n\r\n").unwrap_err().contains("not an answer"));
        assert!(take(b"HTTP/1.1 204 x\r\ncontent-length: 0\r\n\r\nxy").unwrap_err().contains("2 bytes"));
    }
}

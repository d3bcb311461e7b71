//! HTTP by hand: sends raw bytes, and parses just enough of the responses.

use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection and its received bytes that are not consumed yet.
pub(crate) struct Raw {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Raw {
    /// Opens a connection.
    pub(crate) fn connect(port: u16) -> Result<Raw> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        Ok(Raw { stream, input: Vec::new() })
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("send")
    }

    /// Receives the next response; `head` for a response to HEAD, which has no body.
    pub(crate) fn answer(&mut self, head: bool) -> Result<Answer> {
        let end = loop {
            if let Some(at) = self.input.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            ensure!(self.more()?, "closed in the head, after {:?}", self.seen());
        };
        let text = String::from_utf8_lossy(&self.input[..end]).into_owned();
        self.input.drain(..end + 4);
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.with_context(|| format!("no status in {text:?}"))?;
        let mut answer = Answer { status, head: text, body: Vec::new() };
        if !head && status != 304 && status != 204 && status >= 200 {
            answer.body = self.body(&answer)?;
        }
        Ok(answer)
    }

    fn body(&mut self, answer: &Answer) -> Result<Vec<u8>> {
        if let Some(length) = answer.field("content-length") {
            let length: usize = length.parse()?;
            while self.input.len() < length {
                ensure!(self.more()?, "closed after {} of {length} bytes", self.input.len());
            }
            return Ok(self.input.drain(..length).collect());
        }
        if answer.field("transfer-encoding").is_some() {
            return self.chunks();
        }
        while self.more()? {}
        Ok(std::mem::take(&mut self.input))
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = self.input.windows(2).position(|w| w == b"\r\n") {
                    break at;
                }
                ensure!(self.more()?, "closed before a chunk");
            };
            let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
            let length = usize::from_str_radix(line.trim(), 16).context("length of a chunk")?;
            while self.input.len() < end + 2 + length + 2 {
                ensure!(self.more()?, "closed in a chunk");
            }
            body.extend_from_slice(&self.input[end + 2..end + 2 + length]);
            self.input.drain(..end + 2 + length + 2);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// Returns whether the server closes within a minute.
    pub(crate) fn closed(&mut self) -> Result<bool> {
        Ok(self.input.is_empty() && !self.more()?)
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.input).into_owned()
    }

    /// Reads more; returns false at the end of the stream.
    fn more(&mut self) -> Result<bool> {
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error).context("nothing came"),
        }
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn once(port: u16, request: &str) -> Result<Answer> {
    let mut raw = Raw::connect(port)?;
    raw.send(request.as_bytes())?;
    raw.answer(request.starts_with("HEAD "))
}

//! Minimal parser of responses.

/// A whole response.
#[derive(Debug)]
pub(in crate::client) struct Response {
    pub(in crate::client) status: u16,
    fields: Vec<(String, String)>,
    pub(in crate::client) body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header field, by its lower-case name.
    pub(in crate::client) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// Takes the first response off the input, if it is complete.
pub(in crate::client) fn take_response(input: &mut Vec<u8>, head_only: bool) -> Option<Response> {
    let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&input[..end - 4]).expect("heads are text");
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status = status.unwrap_or_else(|| panic!("no status line: {text}"));
    let status: u16 = status[..3].parse().expect("three digits");
    let fields: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no field: {line}")))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
        .collect();
    let mut response = Response { status, fields, body: Vec::new() };
    let bare = head_only || matches!(status, 204 | 304) || status < 200;
    let (body, rest) = match response.field("content-length") {
        _ if bare => (Vec::new(), end),
        Some(length) => {
            let length: usize = length.parse().expect("a number");
            (input.get(end..end + length)?.to_vec(), end + length)
        }
        None => {
            assert_eq!(response.field("transfer-encoding"), Some("chunked"), "{text}");
            take_chunks(input, end)?
        }
    };
    response.body = body;
    input.drain(..rest);
    Some(response)
}

fn take_chunks(input: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    loop {
        let line = input.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&input[at..at + line]).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("hexadecimal digits");
        at += line + 2;
        body.extend_from_slice(input.get(at..at + size)?);
        assert_eq!(input.get(at + size..at + size + 2)?, b"\r\n", "a chunk ends with its line");
        at += size + 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}

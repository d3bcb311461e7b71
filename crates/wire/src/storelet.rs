//! Frames between a storelet and its owner.
//!
//! Output of the storelet: a type byte ([`Frame`]), the length of the body (32 bits, little
//! endian), the body. Input of the storelet: the length of the body, the body; an empty body is the
//! end.

/// Size of the header of a frame, bytes.
pub const FRAME_HEAD: usize = 5;

/// Type of a frame from a storelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Frame {
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
    /// Report of how it ended, as JSON: the last frame.
    Report = 3,
    /// Description of the storelet's state, for people.
    State = 4,
}

/// Unknown type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange;

impl Frame {
    /// Encodes a frame of this type.
    ///
    /// # Panics
    /// If `body` is longer than a 32-bit length allows.
    pub fn encode(self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FRAME_HEAD + body.len());
        bytes.push(self as u8);
        bytes.extend_from_slice(&u32::try_from(body.len()).expect("a piece").to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// Returns the frame at the start of `bytes`; `None` while it is incomplete.
    ///
    /// # Errors
    /// [`Strange`] if its type is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, &[u8])>, Strange> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let all = [Frame::Output, Frame::Error, Frame::Report, Frame::State];
        let frame = all.into_iter().find(|frame| *frame as u8 == head[0]).ok_or(Strange)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        Ok(rest.get(..length).map(|body| (frame, body)))
    }
}

/// Encodes a frame of input; an empty one is the end.
///
/// # Panics
/// If `body` is longer than a 32-bit length allows.
pub fn encode_input(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a piece");
    [&length.to_le_bytes()[..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_it_was() {
        let bytes = Frame::Error.encode(b"hm");
        assert_eq!(Frame::decode(&bytes), Ok(Some((Frame::Error, &b"hm"[..]))));
        assert_eq!(Frame::decode(&bytes[..6]), Ok(None));
        assert_eq!(Frame::decode(&bytes[..4]), Ok(None));
        assert_eq!(Frame::decode(&[9, 0, 0, 0, 0]), Err(Strange));
        assert_eq!(encode_input(b"abc"), [3, 0, 0, 0, b'a', b'b', b'c']);
    }
}

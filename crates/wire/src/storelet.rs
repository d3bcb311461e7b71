//! What a storelet and whoever started it say to each other, in frames.
//!
//! What it says: a byte for what it is ([`Frame`]), the length of what follows (32 bits, little
//! endian), and that. Its input: the length of what follows, and that; an empty one is the end.

/// The head of a frame, bytes.
pub const FRAME_HEAD: usize = 5;

/// What a frame of a storelet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Frame {
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
    /// How it ended, as JSON: the last.
    Report = 3,
    /// What it waits for, in words.
    State = 4,
}

/// A frame is none that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange;

impl Frame {
    /// This, as a frame.
    ///
    /// # Panics
    /// If it is longer than 32 bits can say.
    pub fn encode(self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FRAME_HEAD + body.len());
        bytes.push(self as u8);
        bytes.extend_from_slice(&u32::try_from(body.len()).expect("a piece").to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// The whole frame at the start of `bytes`, if it is there.
    ///
    /// # Errors
    /// If it is none that is known.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, &[u8])>, Strange> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let all = [Frame::Output, Frame::Error, Frame::Report, Frame::State];
        let frame = all.into_iter().find(|frame| *frame as u8 == head[0]).ok_or(Strange)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        Ok(rest.get(..length).map(|body| (frame, body)))
    }
}

/// Some input, as a frame; nothing: its end.
///
/// # Panics
/// If it is longer than 32 bits can say.
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

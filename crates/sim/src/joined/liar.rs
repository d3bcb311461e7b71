//! Lying servers: their messages are changed before they are sent.

use base::Buf;
use base::rng::Rng;
use wire::ninep::{HEADER_SIZE, Rmessage, frame_size};

/// Changes some of a server's messages; returns whether it changed any.
pub(super) fn lie(rng: &mut Rng, data: &mut Vec<Buf>) -> bool {
    let bytes: Vec<u8> = data.iter().flat_map(|buf| buf.iter().copied()).collect();
    let Some(messages) = split(&bytes) else { return false };
    let mut outputs = Vec::new();
    let mut lied = false;
    for message in messages {
        let before = outputs.len();
        match rng.u8(..4) {
            0 => twist(rng, message, &mut outputs),
            _ => outputs.extend_from_slice(message),
        }
        lied |= outputs[before..] != *message;
    }
    if lied {
        *data = vec![Buf::from(outputs)];
    }
    lied
}

/// Splits bytes into whole messages, if they are such.
fn split(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let size = frame_size(bytes).filter(|size| (HEADER_SIZE..=bytes.len()).contains(size))?;
        let (message, rest) = bytes.split_at(size);
        messages.push(message);
        bytes = rest;
    }
    Some(messages)
}

/// Changes a message.
fn twist(rng: &mut Rng, message: &[u8], outputs: &mut Vec<u8>) {
    let tag = u16::from_le_bytes([message[5], message[6]]);
    let start = outputs.len();
    match rng.u8(..8) {
        // A reply without a request.
        0 => {
            Rmessage::Clunk {}.encode(rng.u16(..), outputs);
            outputs.extend_from_slice(message);
        }
        // A reply of another type.
        1 => Rmessage::Write { count: rng.u32(..100_000) }.encode(tag, outputs),
        2 => Rmessage::Flush {}.encode(tag, outputs),
        // A duplicate.
        3 => [(); 2].into_iter().for_each(|()| outputs.extend_from_slice(message)),
        // Longer than allowed.
        4 => {
            outputs.extend_from_slice(message);
            let size = [1 << 30, u32::MAX, 0, 6][rng.usize(..4)];
            outputs[start..start + 4].copy_from_slice(&size.to_le_bytes());
        }
        5 => Rmessage::Lerror { ecode: [0, 2, 116, u32::MAX][rng.usize(..4)] }.encode(tag, outputs),
        // Changed numbers: of files, of bytes.
        _ => {
            outputs.extend_from_slice(message);
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(start + HEADER_SIZE.min(message.len() - 1)..outputs.len());
                outputs[at] = rng.u8(..);
            }
        }
    }
}

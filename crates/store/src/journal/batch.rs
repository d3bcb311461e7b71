//! Format of a batch.
//!
//! ```text
//! 0       8        16         24      32      36        40            48      56           64
//! | magic | volume | sequence | chain | bytes | records | payload sum | epoch | header sum | ...
//! ```
//!
//! The payload follows. `chain` is the header checksum of the previous batch, so that a batch left
//! over from an earlier round of the ring never follows one that it does not belong to. A batch
//! takes whole blocks.

use super::Position;
use crate::Superblock;
use crate::little_endian::{u32_at, u64_at};
use crate::sum::sum;
use base::Block;
use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// Size of the header, bytes.
pub(crate) const HEAD: usize = 64;
const MAGIC: &[u8; 8] = b"upcall\x00J";

/// Header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) volume: u64,
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
    /// Epoch of the checkpoint that will include its transactions.
    pub(crate) epoch: u64,
    pub(crate) records: u32,
}

/// A batch while records are added: encoded as they come, so that its end costs no more with many.
#[derive(Clone)]
pub(crate) struct Encoder {
    /// Size of a block, bytes.
    block: usize,
    /// Blocks with the payload so far; the header's place is free.
    blocks: Vec<Block>,
    /// Size of the payload, bytes.
    len: usize,
    /// Checksum of the payload so far.
    sum: Xxh3,
}

impl Encoder {
    /// Returns an empty batch for blocks of this size, bytes.
    pub(crate) fn new(block: usize) -> Encoder {
        assert!(block > HEAD, "a header fits a block");
        Encoder { block, blocks: Vec::new(), len: 0, sum: Xxh3::new() }
    }

    /// Returns the size of the payload, bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a record.
    pub(crate) fn push(&mut self, mut record: &[u8]) {
        self.sum.update(record);
        while !record.is_empty() {
            let end = HEAD + self.len;
            let (number, from) = (end / self.block, end % self.block);
            if number == self.blocks.len() {
                self.blocks.push(Block::stale(self.block));
            }
            let (part, rest) = record.split_at(record.len().min(self.block - from));
            self.blocks[number].bytes_mut()[from..from + part.len()].copy_from_slice(part);
            self.len += part.len();
            record = rest;
        }
    }

    /// Adds the header and ends the batch; returns its blocks, and the header's checksum.
    pub(crate) fn end(mut self, head: &Head) -> (Vec<Block>, u64) {
        let bytes = u32::try_from(self.len).expect("batches are small");
        let payload_sum = self.sum.digest();
        let end = HEAD + self.len;
        self.blocks.resize_with(end.div_ceil(self.block), || Block::stale(self.block));
        let last = self.blocks.last_mut().expect("the header's block");
        last.bytes_mut()[(end - 1) % self.block + 1..].fill(0);
        let (header, chain) = encode_head(head, bytes, payload_sum);
        self.blocks[0].bytes_mut()[..HEAD].copy_from_slice(&header);
        (self.blocks, chain)
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoder({} bytes)", self.len)
    }
}

/// Returns a header, and its checksum.
fn encode_head(head: &Head, bytes: u32, payload_sum: u64) -> ([u8; HEAD], u64) {
    let mut header = [0; HEAD];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&head.volume.to_le_bytes());
    header[16..24].copy_from_slice(&head.sequence.to_le_bytes());
    header[24..32].copy_from_slice(&head.chain.to_le_bytes());
    header[32..36].copy_from_slice(&bytes.to_le_bytes());
    header[36..40].copy_from_slice(&head.records.to_le_bytes());
    header[40..48].copy_from_slice(&payload_sum.to_le_bytes());
    header[48..56].copy_from_slice(&head.epoch.to_le_bytes());
    let chain = sum(&header[..56]);
    header[56..].copy_from_slice(&chain.to_le_bytes());
    (header, chain)
}

/// Encodes a whole batch; returns its blocks, and its header's checksum.
#[cfg(test)]
pub(crate) fn encode(head: &Head, payload: &[u8], block: usize) -> (Vec<Block>, u64) {
    let mut encoder = Encoder::new(block);
    encoder.push(payload);
    encoder.end(head)
}

/// Decodes a header: its fields, the length of the payload, and both checksums.
fn decode_head(bytes: &[u8]) -> Option<(Head, usize, u64, u64)> {
    if bytes.len() < HEAD || &bytes[..8] != MAGIC || u64_at(bytes, 56) != sum(&bytes[..56]) {
        return None;
    }
    let head = Head {
        volume: u64_at(bytes, 8),
        sequence: u64_at(bytes, 16),
        chain: u64_at(bytes, 24),
        epoch: u64_at(bytes, 48),
        records: u32_at(bytes, 36),
    };
    Some((head, u32_at(bytes, 32) as usize, u64_at(bytes, 40), u64_at(bytes, 56)))
}

/// Decodes the batch at the start of these bytes, if it is complete: its header, its payload, and
/// its header's checksum.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Head, &[u8], u64)> {
    let (head, length, payload_sum, header_sum) = decode_head(bytes)?;
    let payload = bytes[HEAD..].get(..length)?;
    (sum(payload) == payload_sum).then_some((head, payload, header_sum))
}

/// Returns whether the batch of a position starts with these bytes, complete or not.
pub(crate) fn begins(bytes: &[u8], place: Position) -> bool {
    decode_head(bytes)
        .is_some_and(|(head, ..)| head.sequence == place.sequence && head.chain == place.chain)
}

/// Returns the number of blocks of a batch with a payload of this size, bytes.
pub(crate) fn blocks(payload: usize, block: usize) -> u64 {
    (HEAD + payload).div_ceil(block) as u64
}

/// Returns the batch of a position: there, or at the start of the ring if it did not fit.
pub(crate) fn follow<'a>(
    superblock: &Superblock,
    ring: &'a [u8],
    place: Position,
) -> Option<(u64, Head, &'a [u8], u64)> {
    [place.block, 0].into_iter().find_map(|at| {
        let (head, payload, sum) = decode(&ring[at as usize * superblock.layout.block..])?;
        let fits = head.volume == superblock.volume
            && head.sequence == place.sequence
            && head.chain == place.chain;
        fits.then_some((at, head, payload, sum))
    })
}

/// Returns the positions of batches behind the one with this number, which show that it existed.
pub(crate) fn beyond(
    superblock: &Superblock,
    ring: &[u8],
    sequence: u64,
) -> impl Iterator<Item = u64> {
    let (block, volume) = (superblock.layout.block, superblock.volume);
    let is_beyond = move |bytes: &[u8]| {
        decode(bytes).is_some_and(|(head, _, _)| head.volume == volume && head.sequence > sequence)
    };
    (0..ring.len() / block).filter(move |at| is_beyond(&ring[at * block..])).map(|at| at as u64)
}

/// Changes the batch with this position's number, there or at the start of the ring, so that it
/// follows the previous one and its checksums are valid; returns the position behind it.
#[cfg(feature = "canary")]
pub(crate) fn seal_again(block: usize, ring: &mut [u8], place: Position) -> Option<Position> {
    let is_it = |at: &u64| {
        let bytes = &ring[*at as usize * block..];
        &bytes[..8] == MAGIC && u64_at(bytes, 16) == place.sequence
    };
    let at = [place.block, 0].into_iter().find(is_it)?;
    let bytes = &mut ring[at as usize * block..];
    let length = u32_at(bytes, 32) as usize;
    let payload_sum = sum(bytes.get(HEAD..HEAD + length)?);
    bytes[24..32].copy_from_slice(&place.chain.to_le_bytes());
    bytes[40..48].copy_from_slice(&payload_sum.to_le_bytes());
    let chain = sum(&bytes[..56]);
    bytes[56..HEAD].copy_from_slice(&chain.to_le_bytes());
    let next = (at + blocks(length, block)) % (ring.len() / block) as u64;
    Some(Position { block: next, sequence: place.sequence + 1, chain })
}

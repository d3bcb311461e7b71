//! Received messages, in reused buffers.

use crate::lock;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use wire::ninep::READ_HEADER_SIZE;

/// Maximum size of messages with unpooled buffers.
const SMALL: usize = 4096;

/// Maximum number of pooled buffers.
const SPARE_MAX: usize = 32;

/// Pool of buffers of large messages. Each is as long as its largest use so far.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<Vec<u8>>>);

/// Complete message, including its size field.
pub(crate) struct Message {
    bytes: Vec<u8>,
    size: usize,
    pool: Option<Arc<Pool>>,
}

impl Message {
    /// Allocates a message of this size.
    pub(crate) fn new(pool: &Arc<Pool>, size: usize) -> Message {
        if size <= SMALL {
            return Message { bytes: vec![0; size], size, pool: None };
        }
        let mut bytes = lock(&pool.0).pop().unwrap_or_default();
        if bytes.len() < size {
            bytes.resize(size, 0);
        }
        Message { bytes, size, pool: Some(pool.clone()) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.size]
    }

    /// Returns the message type.
    pub(crate) fn code(&self) -> u8 {
        self.bytes[4]
    }

    pub(crate) fn tag(&self) -> u16 {
        u16::from_le_bytes([self.bytes[5], self.bytes[6]])
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            let mut spare = lock(&pool.0);
            if spare.len() < SPARE_MAX {
                spare.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes)", self.size)
    }
}

/// Bytes of a file, in the buffer in which they were received.
#[derive(Debug)]
pub struct Piece(pub(crate) Message);

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes()[READ_HEADER_SIZE..]
    }
}

//! Replies to the kernel before they are sent.

use crate::store::Content;
use client::{Error, Reply};
use std::sync::Arc;

/// Body of a reply.
#[derive(Debug)]
pub(crate) enum Body {
    /// Encoded message.
    Bytes(Vec<u8>),
    /// Data of reads, in the buffers in which they were received, with the maximum of each.
    Data(Vec<(Reply, u32)>),
    /// Part of contents that were sent ahead.
    Part { content: Arc<Content>, offset: u64, size: u32 },
}

impl Body {
    /// Returns the parts of the body.
    pub(crate) fn parts(&self) -> Result<Vec<&[u8]>, Error> {
        match self {
            Body::Bytes(bytes) => Ok(vec![bytes]),
            Body::Part { content, offset, size } => Ok(vec![content.part(*offset, *size)]),
            Body::Data(pieces) => pieces.iter().map(|(reply, max)| reply.data(*max)).collect(),
        }
    }
}

/// Reply, and what it gives the kernel.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Body,
    /// Nodes whose lookup is counted by this reply.
    pub(crate) entered: Vec<u64>,
    /// New open file.
    pub(crate) handle: Option<u64>,
    /// Name that does not exist, if the kernel caches that.
    pub(crate) absent: Option<Vec<u8>>,
}

impl Answer {
    /// Returns a reply without a body.
    pub(crate) fn empty() -> Answer {
        Answer::bytes(Vec::new())
    }

    /// Returns a reply that gives nothing, with this body.
    pub(crate) fn new(body: Body) -> Answer {
        Answer { body, entered: Vec::new(), handle: None, absent: None }
    }

    /// Returns a reply that gives nothing.
    pub(crate) fn bytes(bytes: Vec<u8>) -> Answer {
        Answer::new(Body::Bytes(bytes))
    }
}

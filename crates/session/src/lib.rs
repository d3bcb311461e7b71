//! A 9P client's session on one connection, without I/O: the version, tags, fids and flushes.
//!
//! A [`Session`] reads no clock, never waits and holds no bytes. Its user sends the messages,
//! passes received ones on, and decides when to connect again; a session begins anew with each
//! version message. The reply to each call is reported once, with the call's *owner*, a key that
//! the user chose.
//!
//! ```text
//! offer ──► Tversion            Rversion ──► receive: Version(Agreed)
//! send  ──► a call, with a tag  its reply ─► receive: Reply(owner)
//! flush ──► Tflush              Rflush ────► receive: Never(owner), unless the reply came first
//! clunk ──► Tclunk              Rclunk ────► receive: Done; the fid is free
//! ```

mod fids;
mod session;
mod version;
mod violation;

pub use session::{Answer, CALLS_MAX, Session};
pub use version::{Agreement, Dialect, attach};
pub use violation::Violation;

use wire::ninep::{HEADER_SIZE, frame_size};

/// Error replies of 9P2000.L and of 9P2000.
const RLERROR: u8 = 7;
const RERROR: u8 = 107;

/// Returns whether a reply of this type is an error.
pub fn is_error(code: u8) -> bool {
    [RLERROR, RERROR].contains(&code)
}

/// Returns the size of the first message, of which `bytes` are the beginning; `None` while its size
/// field is incomplete.
///
/// # Errors
/// If a message cannot have that size, or if it exceeds `max`.
pub fn message_size(bytes: &[u8], max: usize) -> Result<Option<usize>, Violation> {
    match frame_size(bytes) {
        Some(size) if size < HEADER_SIZE || size > max => Err(Violation::Size(size, max)),
        size => Ok(size),
    }
}

//! Bytes to messages and back.
//!
//! Nothing here has state: every value that can be built can be encoded, and every byte string
//! decodes to a value or an error. The meaning of messages is left to `front`.

pub mod dav;
pub mod fuse;
pub mod http;
pub mod nfs;
pub mod ninep;
pub mod portmap;
pub mod rpc;
pub mod storelet;
pub mod subtree;
pub mod xdr;

//! A remote tree and its server, in memory: [`remote_server`] is our own server, [`remote_client`]
//! the client with its reactor. [`compare`] sends the same requests to a tree over that connection
//! and to another tree of the same kind directly; [`chaos`] breaks the connection and lets the
//! server lie.

pub mod chaos;
pub mod compare;
pub mod remote_client;
pub mod remote_server;

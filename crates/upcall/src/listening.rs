//! Ports that the server listens at.

use node::Protocol;
use reactor::Address;
use std::io;
use std::time::{Duration, Instant};

/// A listening port: protocol and address.
pub(crate) type Bound = (Protocol, Address);

/// Returns the port of the first NFS address that IPv4 clients reach: the portmapper's protocol has
/// no others.
pub(crate) fn nfs_port(addresses: &[Bound]) -> Option<u16> {
    addresses.iter().find_map(|bound| match bound {
        (Protocol::Nfs, Address::Tcp(address)) if address.is_ipv4() => Some(address.port()),
        (Protocol::Nfs | Protocol::NineP | Protocol::Http, _) => None,
    })
}

/// Time that the kernel may take to close the sockets of a killed server: those of an io_uring
/// close after the end of its process.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Binds an address, waiting a moment while it is in use.
#[allow(clippy::disallowed_methods, reason = "it waits for the kernel, before it serves")]
pub(crate) fn patiently<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match bind() {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < CLOSE_TIME =>
            {
                std::thread::sleep(CLOSE_TIME / 100);
            }
            result => return result,
        }
    }
}

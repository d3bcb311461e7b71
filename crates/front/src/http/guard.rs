//! Who may ask: on loopback, nobody by way of a browser that shows somebody else's page.

use std::net::Ipv4Addr;
use wire::http::{Host, Refusal, Request, host_name, refusal};

/// Checks the host and the origin of a request. A browser leaves `Origin` out where a page merely
/// shows an image or runs a script; its `Sec-Fetch-Site` tells.
pub(super) fn check(request: &Request, local: bool) -> Result<(), Refusal> {
    let host = request.host.as_deref().unwrap_or_default();
    if local && !host.is_empty() && !is_loopback(host) {
        return Err(refusal(403, "on this address the server is called localhost; use that name"));
    }
    if local && request.is_embedded {
        return Err(refusal(403, "pages of other sites may link here, but not use what is here"));
    }
    match request.origin.as_deref() {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            Err(refusal(403, "pages of other servers may not use this one"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a `Host` names this host by way of loopback, with or without a port.
fn is_loopback(host: &str) -> bool {
    let Some(name) = host_name(host) else { return false };
    match name {
        Host::V6(address) => address.is_loopback(),
        Host::Name(name) => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

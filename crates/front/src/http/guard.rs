//! Checks against requests that a browser sends for a page of another site.

use std::net::Ipv4Addr;
use wire::http::{Host, Refusal, Request, host_name, refusal};

/// Checks host and origin of a request. On loopback (`local`) only requests for a loopback host or
/// for one of `hosts` are served. A browser leaves `Origin` out where a page merely shows an image
/// or runs a script; its `Sec-Fetch-Site` tells.
pub(super) fn check(request: &Request, local: bool, hosts: &[String]) -> Result<(), Refusal> {
    let host = request.host.as_deref().unwrap_or_default();
    if local && !host.is_empty() && !is_loopback(host) && !is_among(hosts, host) {
        return Err(refusal(
            403,
            "on this address the server is called localhost; use that name, or start the server \
             with --allow-host NAME for each other name that it has",
        ));
    }
    if local && request.is_embedded {
        return Err(refusal(403, "pages of other sites may link here, but not use what is here"));
    }
    match request.origin.as_deref() {
        Some(origin) if !is_own(origin, host, hosts) => Err(refusal(
            403,
            "pages of other servers may not use this one; if the page is its own, by way of a \
             proxy, start the server with --allow-host NAME",
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether an origin is this server: by the `Host` of the request, or by a name in `hosts`, at
/// which a proxy may listen with TLS and at any port.
fn is_own(origin: &str, host: &str, hosts: &[String]) -> bool {
    if origin.strip_prefix("http://") == Some(host) {
        return true;
    }
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    authority.is_some_and(|authority| is_among(hosts, authority))
}

fn is_among(hosts: &[String], authority: &str) -> bool {
    let is_same = |name: &str| hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    match host_name(authority) {
        Some(Host::Name(name)) => is_same(name),
        Some(Host::V6(address)) => is_same(&address.to_string()),
        None => false,
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

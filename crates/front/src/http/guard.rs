//! Checks against requests that a browser sends on behalf of another site's page.

use std::net::Ipv4Addr;
use wire::http::{Host, Refusal, Request, host_name, refusal};

/// Checks host and origin of a request. On loopback (`local`) only requests for a loopback host or
/// for one of `hosts` are served. A browser omits `Origin` for images and scripts of a page; then
/// `Sec-Fetch-Site` tells.
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
        return Err(refusal(403, "cross-origin requests are refused; use the server's own origin"));
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

/// Returns whether an origin is this server, according to the `Host` of the request; with TLS only
/// if the host is among `hosts`, behind a proxy.
fn is_own(origin: &str, host: &str, hosts: &[String]) -> bool {
    match origin.strip_prefix("https://") {
        Some(authority) => authority.eq_ignore_ascii_case(host) && is_among(hosts, host),
        None => origin.strip_prefix("http://") == Some(host),
    }
}

fn is_among(hosts: &[String], authority: &str) -> bool {
    match host_name(authority) {
        Some(Host::Name(name)) => hosts.iter().any(|host| host.eq_ignore_ascii_case(name)),
        Some(Host::V6(address)) => hosts.iter().any(|host| host.parse() == Ok(address)),
        None => false,
    }
}

/// Returns whether a `Host` is a loopback name or address, with or without a port.
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

/// Returns whether an authority names this server, to a client that has used `host` for it: the
/// same name, or both are names of this server, with the same port.
pub(super) fn is_same_server(
    host: Option<&str>,
    authority: &str,
    local: bool,
    hosts: &[String],
) -> bool {
    let is_own = |name: &str| (local && is_loopback(name)) || is_among(hosts, name);
    match host {
        Some(host) if host.eq_ignore_ascii_case(authority) => true,
        Some(host) => is_own(host) && is_own(authority) && port(host) == port(authority),
        // HTTP/1.0 needs no host.
        None => is_own(authority),
    }
}

/// Returns the port of an authority.
fn port(authority: &str) -> &str {
    let digits = authority.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let has_port = authority[..digits].ends_with(':');
    if has_port && digits < authority.len() { &authority[digits..] } else { "80" }
}

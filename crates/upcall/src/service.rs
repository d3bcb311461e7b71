//! Service manager: sockets that it has opened (socket activation), and notifications of state
//! (`sd_notify(3)`). Without one there are no sockets, and notifications go nowhere.

use crate::listening::Bound;
use crate::log::{self, ToLog};
use node::Protocol;
use node::log::{Access, Log, LogMessage};
use reactor::Inherited;
use sd_notify::NotifyState;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;

/// Sockets of the service manager, each with its protocol and address.
pub(crate) type Sockets = Vec<(Bound, OwnedFd)>;

/// Takes the sockets of the service manager. Their names say the protocol.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn sockets() -> Result<Sockets, String> {
    let all = reactor::take_inherited().map_err(|error| {
        format!(
            "cannot use the sockets of the service manager: {error}; check the .socket unit \
             (ListenStream=, Accept=no)"
        )
    })?;
    all.into_iter().map(bound).collect()
}

fn bound(inherited: Inherited) -> Result<(Bound, OwnedFd), String> {
    let Inherited { name, address, socket } = inherited;
    let protocol = protocol(&name).ok_or_else(|| {
        format!(
            "cannot use the socket {address} of the service manager: its name '{name}' is no \
             protocol; set FileDescriptorName= in the .socket unit to 9p, nfs or http"
        )
    })?;
    Ok(((protocol, address), socket))
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "9p" => Some(Protocol::NineP),
        "nfs" => Some(Protocol::Nfs),
        "http" => Some(Protocol::Http),
        _other => None,
    }
}

/// Returns the name of a protocol in flags, configuration files and sockets.
pub(crate) fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::NineP => "9p",
        Protocol::Nfs => "nfs",
        Protocol::Http => "http",
    }
}

/// Notifies the service manager that clients are served, and at which addresses.
pub(crate) fn ready(served: &str, bound: &[Bound]) {
    let mut status = format!("serving {}", single_line(served));
    for (protocol, address) in bound {
        let name = name_of(*protocol);
        write!(status, ", {name} {}", single_line(&address.to_string())).expect("to a string");
    }
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Replaces control characters: each line of a notification is a variable.
fn single_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn("server", format!("cannot notify the service manager: {error}"));
    }
}

/// Log of the home node, whose end is that of the service.
pub(crate) struct HomeLog;

impl Log for HomeLog {
    fn message(&mut self, message: LogMessage) {
        ToLog.message(message);
    }

    fn access(&mut self, access: Access) {
        ToLog.access(access);
    }

    fn ending(&mut self) {
        let status = "ending: completing requests, closing volumes";
        notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Address;

    #[test]
    fn the_name_of_a_socket_is_its_protocol() {
        let inherited = |name: &str| Inherited {
            name: name.to_string(),
            address: Address::Unix("/run/upcall.sock".into()),
            socket: std::fs::File::open("/dev/null").expect("a device").into(),
        };
        let ((protocol, _), _) = bound(inherited("http")).expect("a protocol");
        assert_eq!(protocol, Protocol::Http);
        let error = bound(inherited("upcall.socket")).expect_err("no protocol");
        assert!(error.contains("/run/upcall.sock"), "{error}");
        assert!(error.contains("its name 'upcall.socket' is no protocol"), "{error}");
    }

    #[test]
    fn a_path_cannot_add_a_variable_to_a_notification() {
        assert_eq!(single_line("/srv/a\nWATCHDOG=trigger"), "/srv/a?WATCHDOG=trigger");
    }
}

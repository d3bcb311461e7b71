//! Clients that trees and the reactor account files, locks and closes to.

use crate::Node;
use crate::connection::Origin;
use crate::role::HOME;
use base::op::ClientKey;
use std::net::IpAddr;
use tree::RequestId;

impl Origin {
    /// Returns the key of the client, which differs from those of single connections. That of an
    /// IPv6 network is its address; no host has one of those that stand for others, which are of
    /// multicast (RFC 4291 §2.7).
    pub(crate) fn key(&self) -> ClientKey {
        let (kind, value) = match self {
            Origin::Network(IpAddr::V6(it)) => {
                let network = u128::from(*it) >> 64;
                return ClientKey(u64::try_from(network).expect("the upper half"));
            }
            Origin::Network(IpAddr::V4(it)) => (1, u32::from(*it)),
            Origin::User(uid) => (2, *uid),
            Origin::Loopback => (3, 0),
            Origin::Unknown => (4, 0),
        };
        ClientKey(0xff00 << 48 | kind << 32 | u64::from(value))
    }
}

impl Node {
    /// Returns the client that a request is accounted to: that of its connection, or else the
    /// caller itself.
    pub(crate) fn client_key(&self, id: RequestId) -> ClientKey {
        let client = self.client_of(id);
        let key = client.and_then(|client| match client.node {
            HOME => self.connections.get(client.slot).map(|it| it.client()),
            _ => self.front_clients.get(&client).copied(),
        });
        key.unwrap_or(ClientKey::of_requester(id.requester()))
    }

    /// Counts a file that is being closed: its descriptor is in use as before.
    pub(crate) fn note_closing(&mut self, client: ClientKey, begins: bool) {
        let (before, after) = if begins { (0, 1) } else { (1, 0) };
        assert!(before <= self.closing, "a close ends once");
        self.closing = self.closing - before + after;
        // Nodes and open files of fronts' connections are shared out there.
        if self.config.sharers <= 1 {
            self.admission.count_closing(client, before, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::tests::{node_with_connections, turn};
    use base::op::{Done, Event, OpId, Peer};
    use std::collections::BTreeSet;

    #[test]
    fn each_client_has_a_key_of_its_own() {
        let of = |address: &str| Origin::of(&Peer::Network(address.into()));
        let same = [("[2001:db8::1]:7", "[2001:db8::2]:8"), ("127.0.0.1:1", "[::1]:2")];
        assert!(same.iter().all(|(one, other)| of(one).key() == of(other).key()));
        let addresses = ["10.0.0.1:1", "10.0.0.2:1", "[2001:db8::1]:7", "[::1]:2", "nowhere"];
        let users = [1, 2].map(Origin::User);
        let keys = addresses.map(of).into_iter().chain(users).map(|it| it.key());
        let keys: BTreeSet<ClientKey> = keys.chain([ClientKey::of_requester(1)]).collect();
        assert_eq!(keys.len(), addresses.len() + users.len() + 1);
    }

    #[test]
    fn files_that_are_being_closed_count_for_their_client() {
        let mut node = node_with_connections();
        let client = node.connections[0].client();
        assert_eq!(node.client_key(RequestId::new(0, 5)), client);
        assert_eq!(node.client_key(RequestId::new(99, 5)), ClientKey::of_requester(99));
        let left = |node: &Node, client| node.admission.room(0, client).client_handles;
        let before = left(&node, client);
        let closing =
            |begins| Event { id: OpId::UNREQUESTED, done: Done::Closing { client, begins } };
        turn(&mut node, (0..1000).map(|_| closing(true)).collect());
        assert_eq!((node.closing, node.admission.handles()), (1000, 1000));
        assert_eq!(before - left(&node, client), 17 * 1000, "its own share, and what is free");
        assert_eq!(before - left(&node, ClientKey(1)), 16 * 1000);
        turn(&mut node, (0..1000).map(|_| closing(false)).collect());
        assert_eq!((node.closing, left(&node, client)), (0, before));
    }
}

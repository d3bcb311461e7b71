//! Connections by where they come from: one address leaves places to the others.

use base::op::Peer;
use std::collections::BTreeMap;

/// Each origin may have so many connections whatever others have.
const PLACES_MIN: usize = 64;

/// An origin may have so many times as many connections as there are places left: at most two
/// thirds of all, and what others find is never nothing.
const SHARE: usize = 2;

/// The peer's address without its port, or its user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// An IP address.
    Network(Box<str>),
    /// A user of this host.
    Local(u32),
}

impl Origin {
    pub(crate) fn of(peer: &Peer) -> Origin {
        match peer {
            Peer::Network(address) => {
                let host = address.rsplit_once(':').map_or(&**address, |(host, _)| host);
                Origin::Network(host.into())
            }
            Peer::Local(user) => Origin::Local(user.uid),
        }
    }
}

/// Connections of each origin.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    counts: BTreeMap<Origin, usize>,
    /// Connections refused since the start.
    refused: u64,
}

impl Origins {
    /// Takes a connection in if its origin has not too many, with this many places left; whether it
    /// does.
    pub(crate) fn admit(&mut self, origin: &Origin, left: usize) -> bool {
        let count = self.counts.get(origin).copied().unwrap_or(0);
        if count >= PLACES_MIN.max(left.saturating_mul(SHARE)) {
            self.refused += 1;
            return false;
        }
        self.counts.insert(origin.clone(), count + 1);
        true
    }

    /// A connection of this origin has ended.
    pub(crate) fn leave(&mut self, origin: &Origin) {
        let count = self.counts.get_mut(origin).expect("it was taken in");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(origin);
        }
    }

    /// Connections refused since the start, because their origin had too many.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Connections of all origins.
    pub(crate) fn count(&self) -> usize {
        self.counts.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16_384;

    #[test]
    fn one_address_leaves_a_third_to_the_others() {
        let mut origins = Origins::default();
        let address = |host: u32| Origin::of(&Peer::Network(format!("10.0.0.{host}:1234")));
        for host in 0..4 {
            while origins.admit(&address(host), MAX - origins.count()) {}
            if host == 0 {
                assert_eq!(origins.count(), MAX / 3 * 2 + 1);
            }
        }
        assert!(origins.count() + PLACES_MIN < MAX, "{}", origins.count());
        assert!(origins.admit(&address(200), MAX - origins.count()));
        assert_eq!(origins.refused(), 4);
    }

    #[test]
    fn ports_and_the_end_of_a_connection() {
        let mut origins = Origins::default();
        let (one, two) = (Peer::Network("[::1]:1".into()), Peer::Network("[::1]:2".into()));
        assert_eq!(Origin::of(&one), Origin::of(&two));
        let origin = Origin::of(&one);
        assert!((0..PLACES_MIN).all(|_| origins.admit(&origin, 0)));
        assert!(!origins.admit(&origin, 0));
        origins.leave(&origin);
        assert!(origins.admit(&origin, 0));
    }
}

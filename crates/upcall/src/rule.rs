//! Who a client is.
//!
//! Over a unix socket the kernel says. Over the network nobody has proved anything, so every
//! client acts as one user: the server's own, or where root runs the server, the user named by
//! `--as`, the owner of the directory, or nobody. With `--trust-clients` claims are believed.

use crate::config::Serve;
use crate::serve::{Bound, Directory};
use base::{Caller, User};
use node::Identity;
use reactor::Address;
use std::sync::Arc;

/// As whom clients act, in words too.
pub(crate) struct Rule {
    pub(crate) network: Identity,
    /// `None`: the kernel says.
    pub(crate) local: Option<Identity>,
    pub(crate) text: String,
}

/// The first port that does not need root.
const UNPRIVILEGED_PORT: u16 = 1024;

/// Chooses the rule; gives up root's power for good where no part of the rule needs it.
pub(crate) fn choose(serve: &Serve, dir: &Directory, bound: &[Bound]) -> Result<Rule, String> {
    if serve.trust_clients {
        let (network, local) = (Identity::Claimed, Some(Identity::Claimed));
        let limit = if reactor::is_root() { "" } else { ", as far as they are this user" };
        let text = format!("clients are believed who they say they are{limit}");
        return Ok(Rule { network, local, text });
    }
    if !reactor::is_root() {
        if serve.as_user.is_some() {
            return Err("--as USER needs root: leave it out, or start the server as root".into());
        }
        let own = reactor::own_user();
        let text = format!("every client acts as this server's own user ({own})");
        let network = Identity::Fixed(Caller::Server);
        return Ok(Rule { network, local: None, text });
    }
    as_root(serve, dir, bound)
}

fn as_root(serve: &Serve, dir: &Directory, bound: &[Bound]) -> Result<Rule, String> {
    let user = match &serve.as_user {
        Some(name) => reactor::find_user(name).map_err(|_| {
            format!("--as {name}: the host knows no such user; name one, or a number")
        })?,
        None if dir.stat.uid == 0 => nobody(),
        None => reactor::find_user(&dir.stat.uid.to_string()).unwrap_or_else(|_| nobody()),
    };
    let needs_root = |(_, address): &Bound| match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => (1..UNPRIVILEGED_PORT).contains(&address.port()),
    };
    let text = format!("every client acts as user {} (change it with --as USER)", user.uid);
    let network = if bound.iter().any(needs_root) || user.uid == 0 {
        Identity::Fixed(Caller::User(Arc::new(user)))
    } else {
        reactor::become_user(&user)
            .map_err(|error| format!("cannot become user {}: {error}", user.uid))?;
        Identity::Fixed(Caller::Server)
    };
    Ok(Rule { network, local: None, text })
}

fn nobody() -> User {
    reactor::find_user("nobody").unwrap_or(User { uid: 65_534, gid: 65_534, groups: Vec::new() })
}

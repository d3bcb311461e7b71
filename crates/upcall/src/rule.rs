//! Who a client is.
//!
//! Over a unix socket the kernel says; root and the server's own user may say in whose name they
//! ask. Over the network nobody has proved anything, so every
//! client acts as one user. Of a directory that is the server's own, or where root runs the
//! server, the user named by `--as`, the owner of the directory, or nobody. Of a volume, whose
//! permissions have nothing to do with the process's, it is the user named by `--as`, the owner of
//! the volume's root, or nobody. With `--trust-clients` claims are believed.

use crate::config::Serve;
use crate::place::{Bound, Place, What};
use base::{Caller, Error, User};
use node::{Clients, Identity, Protocol};
use reactor::Address;
use std::sync::Arc;

/// As whom clients act.
pub(crate) struct Rule {
    /// Who cannot be told apart acts as this one.
    caller: Caller,
    /// Users that 9P clients claim are believed.
    trusting: bool,
    /// The rule in words.
    pub(crate) text: String,
}

impl Rule {
    /// As whom the clients of a port act.
    pub(crate) fn clients(&self, (protocol, address): &Bound) -> Clients {
        match (protocol, address) {
            (Protocol::NineP, Address::Tcp(_)) if self.trusting => {
                Clients::All(Identity::Claimed(None))
            }
            // Whom they say they speak for has no more rights than they have: a mount by the
            // kernel comes from root, and other servers have clients of their own.
            (Protocol::NineP, Address::Unix(_)) => Clients::Spokesmen(vec![0, reactor::own_user()]),
            (Protocol::Http, Address::Unix(_)) => Clients::Themselves,
            (_, Address::Tcp(_)) => Clients::All(Identity::Fixed(self.caller.clone())),
        }
    }
}

/// The first port that does not need root.
const UNPRIVILEGED_PORT: u16 = 1024;

/// Chooses the rule; gives up root's power for good where no part of the rule needs it. Clients
/// are never the server itself, to which volumes and other servers refuse nothing: those may be
/// mounted at any time.
pub(crate) fn choose(serve: &Serve, place: &Place, bound: &[Bound]) -> Result<Rule, String> {
    let trusting = serve.trust_clients;
    match place.what {
        What::Volume(..) => return of_volume(serve, place, bound),
        What::Directory | What::Skeleton(_) | What::Remote(..) if reactor::is_root() => {
            return as_root(serve, place, bound);
        }
        What::Directory | What::Skeleton(_) | What::Remote(..) => {}
    }
    if serve.as_user.is_some() {
        return Err("--as USER needs root: leave it out, or start the server as root".into());
    }
    let own = reactor::own_user();
    let caller = own_caller();
    let text = match trusting {
        true => format!("9P clients are believed if they say they are user {own}, this server's"),
        false => format!("every client acts as this server's own user ({own})"),
    };
    Ok(Rule { caller, trusting, text })
}

fn as_root(serve: &Serve, place: &Place, bound: &[Bound]) -> Result<Rule, String> {
    let (user, text) = usual(serve, place)?;
    let trusting = serve.trust_clients;
    let caller = if trusting || user.uid == 0 || bound.iter().any(needs_root) {
        Caller::User(Arc::new(user))
    } else {
        become_user(&user)?;
        own_caller()
    };
    Ok(Rule { caller, trusting, text })
}

/// The volume checks permissions itself, and its file is open: the process needs no power at all.
fn of_volume(serve: &Serve, place: &Place, bound: &[Bound]) -> Result<Rule, String> {
    let (user, text) = usual(serve, place)?;
    if reactor::is_root() && !bound.iter().any(needs_root) {
        become_user(&nobody())?;
    }
    let caller = Caller::User(Arc::new(user));
    Ok(Rule { caller, trusting: serve.trust_clients, text })
}

/// As whom clients on the network act, and the rule in words.
fn usual(serve: &Serve, place: &Place) -> Result<(User, String), String> {
    let user = match &serve.as_user {
        Some(name) => reactor::find_user(name).map_err(|error| {
            let why = match error == Error::Invalid {
                true => "no user has this number; name another one",
                false => "the host knows no such user; name one, or a number",
            };
            format!("--as {name}: {why}")
        })?,
        None if place.stat.uid == 0 => nobody(),
        None => reactor::find_user(&place.stat.uid.to_string()).unwrap_or_else(|_| nobody()),
    };
    let others = format!("act as user {} (change it with --as USER)", user.uid);
    let text = match serve.trust_clients {
        true => format!("9P clients are believed who they say they are; others {others}"),
        false => format!("all clients on the network {others}"),
    };
    Ok((user, text))
}

/// Whether only root may listen there, or take the socket's name away afterwards.
fn needs_root((_, address): &Bound) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => (1..UNPRIVILEGED_PORT).contains(&address.port()),
    }
}

fn become_user(user: &User) -> Result<(), String> {
    reactor::become_user(user).map_err(|error| format!("cannot become user {}: {error}", user.uid))
}

/// The process's own user, as a user among others.
fn own_caller() -> Caller {
    let uid = reactor::own_user();
    let unknown = |_| User { uid, gid: uid, groups: Vec::new(), commands: false };
    Caller::User(Arc::new(reactor::find_user(&uid.to_string()).unwrap_or_else(unknown)))
}

fn nobody() -> User {
    reactor::find_user("nobody").unwrap_or(User {
        uid: 65_534,
        gid: 65_534,
        groups: Vec::new(),
        commands: false,
    })
}

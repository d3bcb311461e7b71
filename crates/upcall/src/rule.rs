//! Identity of clients.
//!
//! Over a Unix socket it comes from the kernel; root and the server's own user may act on behalf of
//! other users. Network clients are not authenticated, so all of them act as one user. For a
//! directory that is the server's own user or, if root runs the server, the user named by `--as` or
//! the owner of the directory. If that is root, the process drops root's privileges and keeps
//! access to its files only; with Unix sockets it cannot, and network clients act as nobody. For a
//! volume, whose permissions are independent of the process's, it is the user named by `--as`, or
//! the owner of the volume's root. With `--trust-clients` claimed names are trusted.

use crate::config::Serve;
use crate::homes::Homes;
use crate::listening::Bound;
use crate::place::{TreeSource, What};
use crate::space::Space;
use base::{Caller, Error, User};
use node::{Clients, Identity, Protocol};
use reactor::Address;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// Mapping of clients to users.
pub(crate) struct Rule {
    /// User of unauthenticated clients.
    caller: Caller,
    /// Whether user names claimed by 9P clients are trusted.
    trusting: bool,
    /// Whether root has started the server, and can choose the user of clients.
    by_root: bool,
    /// Description of the rule.
    pub(crate) text: String,
    /// Directories of the process, whose user may have changed.
    pub(crate) homes: Homes,
}

impl Rule {
    /// Returns the identity of the clients of a port.
    pub(crate) fn clients(&self, (protocol, address): &Bound) -> Clients {
        match (protocol, address) {
            (Protocol::NineP | Protocol::Nfs, Address::Tcp(_)) if self.trusting => {
                Clients::All(Identity::Claimed(None))
            }
            // The client that they act for gets no more rights than their own: a kernel mount comes
            // from root, and other servers have clients of their own.
            (Protocol::NineP, Address::Unix(_)) => Clients::Spokesmen(vec![0, reactor::own_user()]),
            (Protocol::Nfs | Protocol::Http, Address::Unix(_)) => Clients::Themselves,
            (_, Address::Tcp(_)) => Clients::All(Identity::Fixed(self.caller.clone())),
        }
    }
}

/// User id of root.
const ROOT: u32 = 0;

impl Rule {
    /// Checks whether network clients, if there are any, can list a served directory.
    ///
    /// # Errors
    /// The cause, and the next step.
    pub(crate) fn check(&self, place: &TreeSource, bound: &[Bound]) -> Result<(), String> {
        let is_directory = matches!(place.what, What::Directory);
        if !is_directory || !bound.iter().any(|(_, address)| matches!(address, Address::Tcp(_))) {
            return Ok(());
        }
        reactor::check_list(&place.path, &self.caller).map_err(|error| {
            let (shown, who) = (place.path.display(), self.who());
            let other = if self.by_root { ", or name another user with --as USER" } else { "" };
            format!(
                "cannot serve {shown} as user {who}: {error}; choose a directory that this user \
                 may read{other}"
            )
        })
    }

    fn uid(&self) -> Option<u32> {
        match &self.caller {
            Caller::Server => None,
            Caller::User(user) => Some(user.uid),
        }
    }

    /// Describes the user of network clients.
    fn who(&self) -> String {
        self.uid().map_or_else(|| "of the server".to_string(), |uid| uid.to_string())
    }
}

/// First port that does not require root.
const UNPRIVILEGED_PORT: u16 = 1024;

/// Chooses the rule; drops root's privileges permanently if no part of the rule requires them.
/// Clients are never the server itself, which may do anything with volumes and other servers: those
/// may be mounted at any time.
pub(crate) fn choose(serve: &Serve, space: &Space, bound: &[Bound]) -> Result<Rule, String> {
    let trusting = serve.trust_clients;
    let place = space.strictest();
    match place.what {
        What::Volume(..) => return of_volume(serve, place, bound),
        What::Directory | What::Skeleton(_) | What::Remote(..) if reactor::is_root() => {
            return as_root(serve, space, bound);
        }
        What::Directory | What::Skeleton(_) | What::Remote(..) => {}
    }
    if serve.as_user.is_some() {
        return Err("--as USER needs root: leave it out, or start the server as root".into());
    }
    let own = reactor::own_user();
    let caller = own_caller();
    let text = match trusting {
        true => format!("9P clients may claim to be user {own}, the server's own"),
        false => format!("every client acts as this server's own user ({own})"),
    };
    Ok(Rule { caller, trusting, by_root: false, text, homes: Homes::own() })
}

fn as_root(serve: &Serve, space: &Space, bound: &[Bound]) -> Result<Rule, String> {
    let trusting = serve.trust_clients;
    let place = space.strictest();
    let is_directory = matches!(place.what, What::Directory);
    if is_directory && place.stat.uid == ROOT && serve.as_user.is_none() && !trusting {
        return as_plain_root(serve, space, bound);
    }
    let (user, text) = usual(serve, place, true)?;
    let (caller, homes) = if trusting || user.uid == ROOT || bound.iter().any(needs_root) {
        (Caller::User(Arc::new(user)), Homes::own())
    } else {
        let homes = become_user(&user)?;
        (own_caller(), homes)
    };
    Ok(Rule { caller, trusting, by_root: true, text, homes })
}

/// Returns the rule for a directory of root: clients have the permissions of its owner, without
/// root's privileges.
fn as_plain_root(serve: &Serve, space: &Space, bound: &[Bound]) -> Result<Rule, String> {
    let (shown, trusting) = (space.strictest().path.display(), false);
    let top = Path::new("/").metadata().map_err(|error| format!("cannot look at /: {error}"))?;
    let is_top =
        |place: &&TreeSource| (place.stat.device, place.stat.inode) == (top.dev(), top.ino());
    if let Some(all) = space.directories().find(is_top).filter(|_| !serve.read_only) {
        return Err(format!(
            "cannot serve {} as root: clients could change every file of root; choose the user \
             that they act as with --as USER, or use --read-only",
            all.path.display()
        ));
    }
    if bound.iter().any(|(_, address)| matches!(address, Address::Unix(_))) {
        let caller = Caller::User(Arc::new(nobody()));
        let text = "all clients on the network act as user nobody, because a server with a unix \
                    socket keeps root's privileges (change it with --as USER)";
        let (by_root, text) = (true, text.to_string());
        return Ok(Rule { caller, trusting, by_root, text, homes: Homes::own() });
    }
    let root = reactor::find_user("0").unwrap_or(User {
        uid: ROOT,
        gid: 0,
        groups: Vec::new(),
        commands: false,
    });
    reactor::renounce_privileges(&root)
        .map_err(|error| format!("cannot give up root's privileges: {error}; add --as USER"))?;
    let text = format!(
        "all clients on the network act as root, the owner of {shown}, without root's privileges \
         (change it with --as USER)"
    );
    let caller = Caller::User(Arc::new(root));
    Ok(Rule { caller, trusting, by_root: true, text, homes: Homes::own() })
}

/// Returns the rule for a volume, which checks permissions itself, and whose file is open: the
/// process needs no privileges.
fn of_volume(serve: &Serve, place: &TreeSource, bound: &[Bound]) -> Result<Rule, String> {
    let keeps_power = reactor::is_root() && bound.iter().any(needs_root);
    let (user, text) = usual(serve, place, keeps_power)?;
    let homes = match reactor::is_root() && !keeps_power {
        true => become_user(&nobody())?,
        false => Homes::own(),
    };
    let caller = Caller::User(Arc::new(user));
    let (trusting, by_root) = (serve.trust_clients, true);
    Ok(Rule { caller, trusting, by_root, text, homes })
}

/// Returns the user of network clients, and the description of the rule. If the process keeps
/// root's privileges, which would apply to host directories mounted later, that is not root.
fn usual(serve: &Serve, place: &TreeSource, keeps_power: bool) -> Result<(User, String), String> {
    let user = match &serve.as_user {
        Some(name) => reactor::find_user(name).map_err(|error| {
            let why = match error == Error::Invalid {
                true => "no user has this number; name another one",
                false => "the host knows no such user; name one, or a number",
            };
            format!("--as {name}: {why}")
        })?,
        None if place.stat.uid == ROOT && keeps_power => nobody(),
        None => reactor::find_user(&place.stat.uid.to_string()).unwrap_or_else(|_| nobody()),
    };
    let others = format!("act as user {} (change it with --as USER)", user.uid);
    let text = match serve.trust_clients {
        true => {
            format!("9P clients act as the user that they claim, including root; others {others}")
        }
        false => format!("all clients on the network {others}"),
    };
    Ok((user, text))
}

/// Returns whether only root may listen there, or remove the socket afterwards.
fn needs_root((_, address): &Bound) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => (1..UNPRIVILEGED_PORT).contains(&address.port()),
    }
}

/// Changes the user of the process; returns the directories of that user.
fn become_user(user: &User) -> Result<Homes, String> {
    let homes = Homes::of_service(user);
    let became = reactor::become_user(user);
    became.map_err(|error| format!("cannot become user {}: {error}", user.uid))?;
    Ok(homes)
}

/// Returns the process's own user, without the server's special rights.
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

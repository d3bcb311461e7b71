//! Who a client is.
//!
//! Over a unix socket the kernel says; root and the server's own user may say in whose name they
//! ask. Over the network nobody has proved anything, so every
//! client acts as one user. Of a directory that is the server's own, or where root runs the
//! server, the user named by `--as` or the owner of the directory. Where that is root, the process
//! gives up root's privileges and keeps its files only; beside unix sockets it cannot, and clients
//! on the network act as nobody. Of a volume, whose permissions have nothing to do with the
//! process's, it is the user named by `--as`, or the owner of the volume's root. With
//! `--trust-clients` claims are believed.

use crate::config::Serve;
use crate::homes::Homes;
use crate::place::{Bound, Place, What};
use crate::space::Space;
use base::{Caller, Error, User};
use node::{Clients, Identity, Protocol};
use reactor::Address;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// As whom clients act.
pub(crate) struct Rule {
    /// Who cannot be told apart acts as this one.
    caller: Caller,
    /// Users that 9P clients claim are believed.
    trusting: bool,
    /// Root has started the server, and could say as whom clients act.
    by_root: bool,
    /// The rule in words.
    pub(crate) text: String,
    /// Where the process, whose user it may have changed, can keep something.
    pub(crate) homes: Homes,
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

/// The number of root.
const ROOT: u32 = 0;

impl Rule {
    /// Whether clients on the network, if any come, can list what is served, if it is a directory.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn check(&self, place: &Place, bound: &[Bound]) -> Result<(), String> {
        let is_directory = matches!(place.what, What::Directory);
        if !is_directory || !bound.iter().any(|(_, address)| matches!(address, Address::Tcp(_))) {
            return Ok(());
        }
        reactor::check_list(&place.path, &self.caller).map_err(|error| {
            let (shown, who) = (place.path.display(), self.who());
            let other = if self.by_root { ", or name another user with --as USER" } else { "" };
            format!(
                "cannot serve {shown}: user {who} may not read it ({error}); serve a directory \
                 that this user may read{other}"
            )
        })
    }

    fn uid(&self) -> Option<u32> {
        match &self.caller {
            Caller::Server => None,
            Caller::User(user) => Some(user.uid),
        }
    }

    /// The user as whom clients on the network act, for people.
    fn who(&self) -> String {
        self.uid().map_or_else(|| "of the server".to_string(), |uid| uid.to_string())
    }
}

/// The first port that does not need root.
const UNPRIVILEGED_PORT: u16 = 1024;

/// Chooses the rule; gives up root's power for good where no part of the rule needs it. Clients
/// are never the server itself, to which volumes and other servers refuse nothing: those may be
/// mounted at any time.
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
        true => format!("9P clients are believed if they say they are user {own}, this server's"),
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

/// The directory is root's: clients may do with it what its owner may, and nothing else that root
/// may.
fn as_plain_root(serve: &Serve, space: &Space, bound: &[Bound]) -> Result<Rule, String> {
    let (shown, trusting) = (space.strictest().path.display(), false);
    let top = Path::new("/").metadata().map_err(|error| format!("cannot look at /: {error}"))?;
    let is_top = |place: &&Place| (place.stat.device, place.stat.inode) == (top.dev(), top.ino());
    if let Some(all) = space.directories().find(is_top).filter(|_| !serve.read_only) {
        return Err(format!(
            "cannot serve {} as root: clients could change every file of root; say as whom they \
             act (--as USER), or --read-only",
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

/// The volume checks permissions itself, and its file is open: the process needs no power at all.
fn of_volume(serve: &Serve, place: &Place, bound: &[Bound]) -> Result<Rule, String> {
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

/// As whom clients on the network act, and the rule in words. Where the process keeps root's
/// privileges, which host directories that are mounted later would give to them, that is not root.
fn usual(serve: &Serve, place: &Place, keeps_power: bool) -> Result<(User, String), String> {
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
        true => format!("9P clients are believed who they say they are, root too; others {others}"),
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

/// Turns the process into another user; gives where that one can keep something.
fn become_user(user: &User) -> Result<Homes, String> {
    let homes = Homes::of_service(user);
    let became = reactor::become_user(user);
    became.map_err(|error| format!("cannot become user {}: {error}", user.uid))?;
    Ok(homes)
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

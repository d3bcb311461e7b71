//! Files of the tree of storelets.

use super::{OPENS_MAX, Opened, Storelets, listing};
use crate::crossing::DomainId;
use crate::domain;
use crate::standing::{install, listing as standing};
use base::{Buf, Caller, Error, Instant, Name, Stat};
use tree::flat::{self, ROOT, part};
use tree::{Ask, OpenId, Output, Reply, Request, RequestId};
use wasi::{DEVICE, Reason};

/// Files, with their numbers and modes.
pub(super) const NEW: usize = 1;
const RUNNING: usize = 2;
pub(super) const INSTALL: usize = 3;
const INSTALLED: usize = 4;
const INSTALLED_JSON: usize = 5;
const LOG: usize = 6;
const LOG_JSON: usize = 7;
const FILES: [flat::File; 7] = [
    ("new", NEW, 0o666),
    ("running", RUNNING, 0o644),
    ("install", INSTALL, 0o600),
    ("installed", INSTALLED, 0o444),
    ("installed.json", INSTALLED_JSON, 0o444),
    ("log", LOG, 0o444),
    ("log.json", LOG_JSON, 0o444),
];

impl Storelets {
    pub(super) fn ask(
        &mut self,
        now: Instant,
        id: RequestId,
        request: Request,
        out: &mut Vec<Output>,
    ) {
        let Request { caller, ask } = request;
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike here")]
        let answer = match ask {
            Ask::Open { node, access } => match node.local() {
                NEW if access.read && access.write => self.begin(now, caller, id.requester()),
                NEW => Err(Error::Denied),
                INSTALL if access.read && access.write => {
                    self.sit_down(now, caller, id.requester())
                }
                INSTALL => Err(Error::Denied),
                RUNNING if access.changes() => self
                    .open(Opened::Control(caller))
                    .map(|open| Reply::Opened(open, self.stat(RUNNING))),
                ROOT if access.changes() => Err(Error::IsDirectory),
                _text if access.changes() => Err(Error::Denied),
                node => self.look(now, &caller, node),
            },
            Ask::Write { open, data, .. } => match &self.opens[open.local()] {
                Opened::Domain(domain) if self.has_no_room(*domain) => Err(Error::Busy),
                Opened::Domain(domain) => {
                    let input = domain::Input::Write(id, data);
                    return self.step_domain(now, *domain, input, out);
                }
                Opened::InstallSession(install_session) => {
                    let input = install::Input::Write(id, data);
                    return self.step_install(now, *install_session, input, out);
                }
                Opened::Control(caller) => self.control(now, &caller.clone(), &data, out),
                Opened::Directory | Opened::Text(_) => Err(Error::Denied),
            },
            Ask::Read { open, offset, count, headroom } => match &self.opens[open.local()] {
                Opened::Domain(domain) => {
                    let input = domain::Input::Read(id, count, headroom);
                    return self.step_domain(now, *domain, input, out);
                }
                Opened::InstallSession(install_session) => {
                    let input = install::Input::Read(id, count, headroom);
                    return self.step_install(now, *install_session, input, out);
                }
                Opened::Text(text) => Ok(Reply::Data(part(text, offset, count, headroom))),
                Opened::Control(_) => Ok(Reply::Data(part(&[], offset, count, headroom))),
                Opened::Directory => Err(Error::IsDirectory),
            },
            Ask::Fetch { path, headroom, .. } => self.fetch(now, &caller, &path, headroom),
            // Truncation before a write has no effect: nothing is stored here.
            Ask::SetStat { node, set, .. } if node.local() != ROOT && set.size.is_some() => {
                Ok(Reply::Done)
            }
            ask if ask.changes() => Err(Error::NotPermitted),
            ask => self.answer(ask),
        };
        out.push(Output::Reply(id, answer));
    }

    pub(super) fn open(&mut self, opened: Opened) -> Result<OpenId, Error> {
        if self.opens.len() >= OPENS_MAX {
            return Err(Error::TooManyOpen);
        }
        Ok(OpenId::new(self.index, self.opens.insert(opened)))
    }

    /// Opens a file or directory for reading.
    fn look(&mut self, now: Instant, caller: &Caller, node: usize) -> Result<Reply, Error> {
        if node == ROOT {
            let open = self.open(Opened::Directory)?;
            return Ok(Reply::Opened(open, self.stat(ROOT)));
        }
        let text = self.text(now, caller, node);
        let stat = Stat { size: text.len() as u64, ..self.stat(node) };
        Ok(Reply::Opened(self.open(Opened::Text(text))?, stat))
    }

    fn fetch(
        &mut self,
        now: Instant,
        caller: &Caller,
        path: &[Name],
        headroom: u32,
    ) -> Result<Reply, Error> {
        match path {
            [] => {
                let open = self.open(Opened::Directory)?;
                Ok(Reply::Fetched(self.stat(ROOT), Buf::default(), Some(open)))
            }
            [name] if ![NEW, INSTALL].contains(&find(name)?) => {
                let node = find(name)?;
                let text = self.text(now, caller, node);
                let stat = Stat { size: text.len() as u64, ..self.stat(node) };
                Ok(Reply::Fetched(stat, part(&text, 0, u32::MAX, headroom), None))
            }
            [_talk] => Err(Error::Unsupported),
            _deeper => Err(Error::NotFound),
        }
    }

    pub(super) fn take_back(&mut self, now: Instant, open: OpenId, out: &mut Vec<Output>) {
        match self.opens.remove(open.local()) {
            Opened::Domain(id) => self.step_domain(now, id, domain::Input::Gone, out),
            Opened::InstallSession(id) => self.step_install(now, id, install::Input::Gone, out),
            Opened::Directory | Opened::Text(_) | Opened::Control(_) => {}
        }
    }

    /// Executes lines such as `kill 17`.
    fn control(
        &mut self,
        now: Instant,
        caller: &Caller,
        data: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<Reply, Error> {
        let text = str::from_utf8(data).map_err(|_| Error::Invalid)?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let number = line.strip_prefix("kill ").and_then(|number| number.trim().parse().ok());
            let id = DomainId(number.ok_or(Error::Invalid)?);
            let here = self.here.get(&id).ok_or(Error::NotFound)?;
            if !self.may(caller, &here.caller) {
                return Err(Error::NotPermitted);
            }
            if !here.domain.has_ended() {
                self.step_domain(now, id, domain::Input::Kill(Reason::Cancelled), out);
            }
        }
        Ok(Reply::Written(u32::try_from(data.len()).expect("one message")))
    }

    /// Returns whether a caller may see and kill the storelets of another.
    fn may(&self, caller: &Caller, other: &Caller) -> bool {
        match caller {
            Caller::Server => *other == Caller::Server,
            Caller::User(user) => {
                let whose = |other: &Caller| match other {
                    Caller::Server => self.owner,
                    Caller::User(other) => other.uid,
                };
                [0, self.owner, whose(other)].contains(&user.uid)
            }
        }
    }

    /// Returns the contents of a file, as visible to the caller.
    fn text(&self, now: Instant, caller: &Caller, node: usize) -> Vec<u8> {
        let may = |uid: Option<u32>| self.may_know(caller, uid);
        match node {
            INSTALLED => standing::installed(&self.registry, &self.doings(), &may),
            INSTALLED_JSON => standing::installed_json(&self.registry, &self.doings(), &may),
            LOG => standing::log(&self.registry, &may),
            LOG_JSON => standing::log_json(&self.registry, &may),
            _running => {
                let theirs = self.here.iter().filter(|(_, here)| self.may(caller, &here.caller));
                listing::text(now, theirs)
            }
        }
    }

    /// Returns whether a caller may see runs of this user; `None`: of the server.
    fn may_know(&self, caller: &Caller, uid: Option<u32>) -> bool {
        match caller {
            Caller::Server => uid.is_none(),
            Caller::User(user) => [0, self.owner, uid.unwrap_or(self.owner)].contains(&user.uid),
        }
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else can be done here")]
        match ask {
            Ask::Walk { from, names } => flat::walk(from, &names, find, |node| self.stat(node)),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::List { open, cookie, detail, .. } => self.list(open, cookie, detail.has_stat()),
            other => flat::answer(&other),
        }
    }

    fn list(&self, open: OpenId, cookie: u64, with_stat: bool) -> Result<Reply, Error> {
        let Opened::Directory = &self.opens[open.local()] else {
            return Err(Error::NotDirectory);
        };
        Ok(flat::list(&FILES, cookie, with_stat, &self.alike()))
    }

    fn alike(&self) -> flat::Alike {
        flat::Alike { device: DEVICE, uid: self.owner, date: self.started }
    }

    pub(super) fn stat(&self, node: usize) -> Stat {
        flat::stat(&FILES, node, &self.alike())
    }
}

fn find(name: &Name) -> Result<usize, Error> {
    flat::find(&FILES, name)
}

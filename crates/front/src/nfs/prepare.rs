//! Preparation of a call: the nodes of its handles, and the open file that it needs.

use super::call::{Await, Call, Next, optional};
use super::{Session, secret, translate};
use crate::Output;
use base::{Access, Caller, Error, Instant, Kind};
use tree::{Ask, Reply};
use wire::nfs::Status;

impl Session {
    /// Gets the next node or open file that a call needs, or begins its procedure.
    pub(super) fn advance(&mut self, now: Instant, mut call: Call, out: &mut Vec<Output>) {
        for (index, handle) in call.procedure.handles().into_iter().enumerate() {
            let Some(handle) = handle.filter(|_| call.files[index].is_none()) else { continue };
            if let Some(pin) = self.files.pin(&handle) {
                call.files[index] = Some(pin);
                continue;
            }
            if self.handles() >= self.handles_max {
                return self.fail(now, call, Error::TooManyOpen, out);
            }
            if let Some((from, names)) = self.files.way(&handle) {
                return self.ask(call, Await::Walk(index), Ask::Walk { from, names }, out);
            }
            return self.resolve(now, call, index, out);
        }
        if let Some(access) = call.procedure.access().filter(|_| call.open.is_none()) {
            let pin = call.file();
            let open = match call.procedure.takes_any_open() {
                true => self.files.any_open(pin),
                false => self.files.open(pin, &call.caller, access),
            };
            call.open = open;
            if open.is_none() {
                if let Err(error) = expect_openable(self.files.kind(pin), access.write) {
                    return self.fail(now, call, error, out);
                }
                if self.handles() >= self.handles_max {
                    return self.fail(now, call, Error::TooManyOpen, out);
                }
                let node = self.files.node(pin);
                let (awaits, access) = match call.procedure.takes_any_open() {
                    true => (Await::OpenAny, Access::READ),
                    false => (Await::Open, access),
                };
                return self.ask(call, awaits, Ask::Open { node, access }, out);
            }
        }
        if call.procedure.is_change() && call.sync.is_none() && !self.export.nfs.is_async {
            let pin = call.file();
            let known = self.files.open(pin, &Caller::Server, Access::READ);
            if known.is_none() && expect_openable(self.files.kind(pin), false).is_ok() {
                let (node, access) = (self.files.node(pin), Access::READ);
                return self.ask(call, Await::OpenSync, Ask::Open { node, access }, out);
            }
            call.sync = Some(known);
        }
        self.step_procedure(now, call, None, out);
    }

    /// Gets the node of a handle from its tree.
    fn resolve(&mut self, now: Instant, call: Call, index: usize, out: &mut Vec<Output>) {
        match secret::open(&self.export.nfs.key, &call.handle(index)) {
            Some(handle) => self.ask(call, Await::Resolve(index), Ask::Resolve { handle }, out),
            None => self.finish(now, call, Next::FailWith(Status::BadHandle), Vec::new(), out),
        }
    }

    /// Continues with a node, or with the next way to find it.
    pub(super) fn found(
        &mut self,
        now: Instant,
        mut call: Call,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        let key = &self.export.nfs.key;
        match (call.awaits, reply) {
            (Await::Walk(index), Ok(Reply::Walked(stats, Some(node)))) => {
                let kind = stats.last().map_or(Kind::Directory, |stat| stat.kind);
                self.ask(call, Await::Verify(index, node, kind), Ask::FileHandle { node }, out);
            }
            (Await::Verify(index, node, kind), Ok(Reply::FileHandle(handle)))
                if secret::seal(key, &handle) == call.handle(index) =>
            {
                call.files[index] = Some(self.files.add(call.handle(index), kind, node, out));
                self.advance(now, call, out);
            }
            (Await::Verify(index, node, _), _) => {
                out.push(Output::Release(node));
                self.resolve(now, call, index, out);
            }
            (Await::Walk(index), _) => self.resolve(now, call, index, out),
            (Await::Resolve(index), Ok(Reply::Walked(stats, Some(node)))) => {
                let kind = stats.last().map_or(Kind::Directory, |stat| stat.kind);
                call.files[index] = Some(self.files.add(call.handle(index), kind, node, out));
                self.advance(now, call, out);
            }
            (_, Ok(_)) => self.fail(now, call, Error::Stale, out),
            (_, Err(error)) => self.fail(now, call, error, out),
        }
    }

    /// Continues with an open file, or with the permission to open it.
    pub(super) fn opened(
        &mut self,
        now: Instant,
        mut call: Call,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        let (pin, node) = (call.file(), self.files.node(call.file()));
        match (call.awaits, reply) {
            // The change could not be made durable: better not to make it now.
            (Await::OpenSync, Err(error @ (Error::TooManyOpen | Error::NoMemory))) => {
                self.fail(now, call, error, out);
            }
            (Await::OpenSync, reply) => {
                let open = reply.ok().and_then(|reply| reply.handed_out().1);
                call.sync =
                    Some(open.map(|open| {
                        self.files.add_open(pin, Caller::Server, Access::READ, open, out)
                    }));
                self.step_procedure(now, call, None, out);
            }
            (Await::OpenAny, Ok(Reply::Opened(open, _))) => {
                let open = self.files.add_open(pin, Caller::Server, Access::READ, open, out);
                call.open = Some(open);
                self.step_procedure(now, call, None, out);
            }
            (Await::OpenAny, Err(Error::Denied)) => {
                let access = call.procedure.access().expect("it needs an open file");
                self.ask(call, Await::Open, Ask::Open { node, access }, out);
            }
            (Await::Open, Err(Error::Denied)) => {
                self.ask(call, Await::Permission, Ask::Stat { node }, out);
            }
            (Await::Permission, reply) => {
                let access = call.procedure.access().expect("it needs an open file");
                let stat = optional(reply);
                let may = |stat| translate::may_open(&call.caller, stat, access.write);
                if stat.as_ref().is_some_and(may) {
                    self.ask(call, Await::OpenAnyway, Ask::Open { node, access }, out);
                } else {
                    self.fail(now, call, Error::Denied, out);
                }
            }
            (_, Ok(Reply::Opened(open, stat))) => {
                self.files.see(pin, &stat);
                let access = call.procedure.access().expect("it needs an open file");
                let caller = call.caller.clone();
                call.open = Some(self.files.add_open(pin, caller, access, open, out));
                self.step_procedure(now, call, None, out);
            }
            (_, Err(error)) => self.fail(now, call, error, out),
            (awaits, Ok(other)) => unreachable!("{other:?} for {awaits:?}"),
        }
    }
}

/// # Errors
/// `IsDirectory` or `Invalid` if a file of this kind cannot be opened: opening a pipe might wait.
fn expect_openable(kind: Kind, write: bool) -> Result<(), Error> {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory if write => Err(Error::IsDirectory),
        Kind::Directory => Ok(()),
        Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
            Err(Error::Invalid)
        }
    }
}

//! READDIR and READDIRPLUS.

use super::call::{Context, Next, Procedure};
use super::secret;
use base::op::{Detail, Entry};
use base::{Access, Error, Stat};
use tree::{Ask, Reply};
use wire::nfs::{self, After, HANDLE_MAX, Handle, Status};
use wire::xdr::Xdr as _;

/// READDIR or READDIRPLUS.
#[derive(Debug)]
pub(super) struct ReadDir {
    handle: Handle,
    cookie: u64,
    /// Maximum size of the results, bytes.
    size: usize,
    /// Whether each entry has attributes and a handle.
    plus: bool,
    state: State,
    /// The entries so far, encoded.
    entries: Vec<u8>,
}

/// State of the procedure.
#[derive(Debug)]
enum State {
    /// Waiting for the attributes of the directory.
    Itself,
    /// Waiting for the parent; the attributes of the directory.
    Parent(Stat),
    /// Waiting for entries.
    List,
}

/// Cookies of `.` and `..`; those of trees are moved behind.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Size of the results beside the entries, bytes: status, no attributes, verifier, end, flag.
const OVERHEAD: usize = 24;

/// Size below which no further entries are requested, bytes.
const LEFT_MIN: usize = 512;

/// Maximum size of an entry's attributes and handle, bytes.
const PLUS_SIZE: usize = 4 + 84 + 4 + 4 + HANDLE_MAX;

/// Size of an entry with attributes and handle, in multiples of its size without.
const PLUS_RATIO: usize = 5;

/// The verifier of cookies, which do not become stale.
const VERIFIER: [u8; 8] = [0; 8];

impl ReadDir {
    pub(super) fn new(handle: Handle, cookie: u64, size: u32, plus: bool) -> ReadDir {
        let (state, entries) = (State::List, Vec::new());
        ReadDir { handle, cookie, size: size as usize, plus, state, entries }
    }

    /// Requests the next entries, or the directory's own at its beginning.
    fn go_on(&mut self, context: &Context<'_>) -> Next {
        match self.cookie {
            0 => {
                self.state = State::Itself;
                Next::Ask(Ask::Stat { node: context.node() })
            }
            DOT => {
                self.state = State::Itself;
                Next::Ask(Ask::Stat { node: context.node() })
            }
            cookie => {
                self.state = State::List;
                let open = context.open();
                let left = self.size.saturating_sub(OVERHEAD + self.entries.len()).max(1);
                let (detail, left) = match self.plus {
                    true => (Detail::Handle, (left / PLUS_RATIO).max(1)),
                    false => (Detail::Name, left),
                };
                let bytes_max = u32::try_from(left).expect("it is limited");
                let cookie = cookie - DOT_DOT;
                Next::Ask(Ask::List { open, cookie, bytes_max, detail })
            }
        }
    }

    /// Adds an entry; returns whether it fits.
    fn add(
        &mut self,
        (number, name, cookie): (u64, &[u8], u64),
        (stat, handle): (Option<&Stat>, Option<Handle>),
        context: &Context<'_>,
    ) -> bool {
        let before = self.entries.len();
        true.put(&mut self.entries);
        nfs::Entry { fileid: number, name, cookie }.put(&mut self.entries);
        if self.plus {
            stat.and_then(|stat| context.attributes(stat)).put(&mut self.entries);
            handle.put(&mut self.entries);
        }
        if self.entries.len() + OVERHEAD > self.size {
            self.entries.truncate(before);
            return false;
        }
        self.cookie = cookie;
        true
    }

    fn finish(&self, eof: bool, context: &mut Context<'_>) -> Next {
        if self.entries.is_empty() && !eof {
            return Next::FailWith(Status::TooSmall);
        }
        let body = &mut *context.body;
        Status::Ok.put(body);
        None::<nfs::Attributes>.put(body);
        VERIFIER.put(body);
        body.extend(&self.entries);
        false.put(body);
        eof.put(body);
        Next::Reply
    }

    fn listed(&mut self, entries: &[Entry], context: &mut Context<'_>) -> Next {
        for entry in entries {
            let device = context.export.device;
            let number = match &entry.stat {
                Some(stat) => crate::file_number(stat, device),
                None => {
                    let device = entry.device.unwrap_or(device);
                    let stat = Stat { device, inode: entry.inode, ..Stat::default() };
                    crate::file_number(&stat, context.export.device)
                }
            };
            let cookie = entry.cookie.wrapping_add(DOT_DOT);
            let item = (number, entry.name.as_bytes(), cookie);
            let handle = entry.handle.as_ref();
            let handle = handle.map(|handle| secret::seal(&context.export.nfs.key, handle));
            if !self.add(item, (entry.stat.as_ref(), handle), context) {
                return self.finish(false, context);
            }
            if let Some(handle) = handle {
                let place = (self.handle, entry.name.clone());
                context.files.add_place(handle, entry.kind, place, context.now);
            }
        }
        if entries.is_empty() {
            return self.finish(true, context);
        }
        let extra = if self.plus { PLUS_SIZE } else { 0 };
        if self.entries.len() + OVERHEAD + LEFT_MIN + extra > self.size {
            return self.finish(false, context);
        }
        self.go_on(context)
    }

    /// Adds `.` and `..`, as far as they fit.
    fn add_dots(&mut self, dir: &Stat, parent: &Stat, context: &mut Context<'_>) -> Next {
        let number = |stat: &Stat| crate::file_number(stat, context.export.device);
        let dots = [(dir, &b"."[..], DOT), (parent, b"..", DOT_DOT)];
        for (stat, name, cookie) in dots {
            let fits = cookie <= self.cookie
                || self.add((number(stat), name, cookie), (Some(stat), None), context);
            if !fits {
                return self.finish(false, context);
            }
        }
        self.go_on(context)
    }
}

impl Procedure for ReadDir {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.handle), None]
    }

    fn access(&self) -> Option<Access> {
        Some(Access::READ)
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        self.size = self.size.min(context.export.limits.msize as usize);
        self.go_on(context)
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        match (std::mem::replace(&mut self.state, State::List), reply) {
            (State::Itself, Ok(Reply::Stat(stat))) => {
                if context.see(&stat).1 {
                    return Next::Reopen;
                }
                self.state = State::Parent(stat);
                let name = base::Name::new(b"..").expect("a name");
                Next::Ask(Ask::Walk { from: context.node(), names: vec![name] })
            }
            (State::Parent(dir), Ok(Reply::Walked(mut stats, node))) => {
                context.out.extend(node.map(crate::Output::Release));
                let parent = stats.pop().unwrap_or_else(|| dir.clone());
                self.add_dots(&dir, &parent, context)
            }
            // The parent may be outside of what the caller may see.
            (State::Parent(dir), Err(_)) => self.add_dots(&dir, &dir, context),
            (State::List, Ok(Reply::Entries(entries))) => self.listed(&entries, context),
            // The open directory does not know the cookie.
            (State::List, Err(Error::Invalid)) => Next::FailWith(Status::BadCookie),
            (_, Err(error)) => Next::Fail(error),
            (state, Ok(other)) => unreachable!("{other:?} for {state:?}"),
        }
    }

    fn failure(&self) -> After {
        After::Attributes(None)
    }
}

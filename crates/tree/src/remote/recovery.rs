//! Recovery of fids: obtains a fid for an inode or for an open file.
//!
//! An inode is found by its path, from the nearest place above with a fid of the user, otherwise
//! from the user's own root, and must have its former qid. An open file of an earlier connection is
//! reopened, without one-time effects such as truncation. All requests for the same fid wait for
//! one recovery.

use super::inodes::ROOT;
use super::message::{Message, Owner, Party, Target, walk};
use super::{Remote, link, words};
use crate::request::Output;
use base::{Access, Error, Name};
use wire::ninep::{Qid, Rmessage, Tmessage, WALK_MAX};

/// A waiter for a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A pending request.
    Pending(usize),
    /// Another recovery.
    Recovery(Target),
    /// The link, whose attach is the first recovery.
    Link,
    /// None.
    Nobody,
}

/// Awaited event of a recovery.
#[derive(Clone, Debug)]
enum Step {
    /// Another recovery, of the inode to start from.
    Base,
    /// The attach with this fid.
    Attach(u32),
    /// A walk on the path.
    Walk(WalkCursor),
    /// A copy of the inode's fid.
    Clone(u32),
    /// The open of this fid.
    Open(u32),
}

/// A walk to `fid` along the names sent, and the names after those.
#[derive(Clone, Debug)]
struct WalkCursor {
    fid: u32,
    sent: usize,
    /// Whether the fid is already bound to an inode on the path.
    bound: bool,
    rest: Vec<Name>,
}

/// A recovery in progress.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    waiters: Vec<Waiter>,
    step: Step,
    /// Start of the walk: pinned, so that its fid is kept until the reply.
    base: Option<usize>,
}

impl Remote {
    /// Waits for a fid; starts a recovery unless there is one.
    pub(super) fn recovery(&mut self, target: Target, waiter: Waiter, out: &mut Vec<Output>) {
        if let Some(recovery) = self.recoveries.get_mut(&target) {
            return recovery.waiters.push(waiter);
        }
        match target {
            Target::BoundFid(inode, _) => self.inodes.pin(inode),
            Target::Open(open) => self.opens[open].users += 1,
        }
        self.inodes.begin(self.recovered_for(target));
        self.recoveries
            .insert(target, Recovery { waiters: vec![waiter], step: Step::Base, base: None });
        self.begin_recovery(target, out);
    }

    /// Starts or restarts a recovery from the fids bound now.
    fn begin_recovery(&mut self, target: Target, out: &mut Vec<Output>) {
        let (inode, user) = match target {
            Target::BoundFid(ROOT, user) => return self.attach(target, user),
            Target::BoundFid(inode, user) => (inode, user),
            Target::Open(open) => (self.opens[open].inode, self.opens[open].user),
        };
        let Some((at, base, names)) = self.inodes.way(inode, user) else {
            return self.recovery(Target::BoundFid(ROOT, user), Waiter::Recovery(target), out);
        };
        match target {
            Target::BoundFid(..) if names.is_empty() => self.end_recovery(target, Ok(()), out),
            Target::BoundFid(..) => {
                self.inodes.pin(at);
                self.recoveries.get_mut(&target).expect("it is in progress").base = Some(at);
                self.walk_recovery(target, base, None, names);
            }
            Target::Open(_) if !names.is_empty() => {
                self.recovery(Target::BoundFid(inode, user), Waiter::Recovery(target), out);
            }
            Target::Open(_) => {
                let fid = self.calls.new_fid();
                self.send_recovery(target, Step::Clone(fid), &walk(base, fid, &[]));
            }
        }
    }

    fn attach(&mut self, target: Target, user: u32) {
        let fid = self.calls.new_fid();
        let (name, aname) = (self.user_name(user), self.server.aname.clone());
        let message = session::attach(self.dialect(), fid, (&name, user), &aname);
        self.send_recovery(target, Step::Attach(fid), &message);
    }

    fn walk_recovery(&mut self, target: Target, base: u32, fid: Option<u32>, mut names: Vec<Name>) {
        assert!(!names.is_empty(), "there is no walk of no names");
        let (bound, fid) = (fid.is_some(), fid.unwrap_or_else(|| self.calls.new_fid()));
        let rest = names.split_off(names.len().min(WALK_MAX));
        let cursor = WalkCursor { fid, sent: names.len(), bound, rest };
        self.send_recovery(target, Step::Walk(cursor), &walk(base, fid, &names));
    }

    fn send_recovery(&mut self, target: Target, step: Step, message: &Tmessage<'_>) {
        let message = Message::new(message);
        self.recoveries.get_mut(&target).expect("it is in progress").step = step;
        self.calls.begin(Party::Recovery, Owner::Recovery(target), message);
    }

    /// Handles the reply to a message of a recovery.
    pub(super) fn recovered(
        &mut self,
        target: Target,
        answer: Result<&Rmessage<'_>, Error>,
        out: &mut Vec<Output>,
    ) {
        let recovery = self.recoveries.get_mut(&target).expect("its answer has come only now");
        let step = std::mem::replace(&mut recovery.step, Step::Base);
        if let Some(base) = recovery.base.take() {
            self.unpin_inode(base);
        }
        match (step, answer) {
            (Step::Attach(fid), Ok(Rmessage::Attach { qid })) => {
                self.inodes.set_qid(ROOT, *qid);
                self.found(target, fid, out);
            }
            (Step::Walk(cursor), Ok(Rmessage::Walk { qids })) => {
                self.walked(target, cursor, qids.as_slice(), out);
            }
            (Step::Clone(fid), Ok(Rmessage::Walk { .. })) => {
                let Target::Open(open) = target else { unreachable!("{target:?} is no open file") };
                let access = Access { truncate: false, ..self.opens[open].access };
                let message = words::open(self.dialect(), fid, access);
                self.send_recovery(target, Step::Open(fid), &message);
            }
            (Step::Open(fid), Ok(Rmessage::Lopen { .. } | Rmessage::Open { .. })) => {
                let Target::Open(open) = target else { unreachable!("{target:?} is no open file") };
                self.opens[open].reopened(fid, self.inodes.epoch());
                self.end_recovery(target, Ok(()), out);
            }
            (Step::Open(fid) | Step::Walk(WalkCursor { fid, bound: true, .. }), answer) => {
                self.clunk(fid);
                self.end_recovery(target, Err(answer.err().unwrap_or(Error::Io)), out);
            }
            (Step::Attach(fid) | Step::Walk(WalkCursor { fid, .. }) | Step::Clone(fid), answer) => {
                self.calls.free_fid(fid);
                self.end_recovery(target, Err(answer.err().unwrap_or(Error::Io)), out);
            }
            (Step::Base, _) => unreachable!("nothing was sent"),
        }
    }

    fn walked(&mut self, target: Target, cursor: WalkCursor, qids: &[Qid], out: &mut Vec<Output>) {
        let Target::BoundFid(inode, _) = target else { unreachable!("{target:?} is no place") };
        let WalkCursor { fid, sent, bound, rest } = cursor;
        match qids.last().filter(|_| qids.len() == sent) {
            Some(_) if !rest.is_empty() => self.walk_recovery(target, fid, Some(fid), rest),
            Some(qid) if words::is_same(*qid, self.inodes.qid(inode)) => {
                self.inodes.set_qid(inode, *qid);
                self.found(target, fid, out);
            }
            arrived => {
                if arrived.is_some() || bound {
                    self.clunk(fid);
                } else {
                    self.calls.free_fid(fid);
                }
                self.end_recovery(target, Err(Error::Stale), out);
            }
        }
    }

    fn found(&mut self, target: Target, fid: u32, out: &mut Vec<Output>) {
        let Target::BoundFid(inode, user) = target else { unreachable!("{target:?} is no place") };
        self.bind(inode, user, fid);
        self.end_recovery(target, Ok(()), out);
    }

    fn end_recovery(&mut self, target: Target, result: Result<(), Error>, out: &mut Vec<Output>) {
        let recovery = self.recoveries.remove(&target).expect("it is in progress");
        let result = result.map_err(|error| match error {
            // The file existed under this name before.
            Error::NotFound | Error::NotDirectory
                if !matches!(target, Target::BoundFid(ROOT, _)) =>
            {
                Error::Stale
            }
            other => other,
        });
        if let (Target::Open(open), Err(error)) = (target, result)
            && !is_passing(error)
        {
            self.opens[open].stale = true;
        }
        for waiter in recovery.waiters {
            match (waiter, result) {
                (Waiter::Link, _) => self.attached(out),
                (Waiter::Nobody, _) => {}
                (Waiter::Pending(slot), Ok(())) if self.is_recovering(slot, target) => {
                    self.advance(slot, out);
                }
                (Waiter::Pending(slot), Err(error)) if self.is_recovering(slot, target) => {
                    let stale = matches!(target, Target::Open(open) if self.opens[open].stale);
                    let error = if stale { Error::Stale } else { error };
                    self.not_found(slot, error, out);
                }
                // The request was cancelled meanwhile.
                (Waiter::Pending(_), _) => {}
                (Waiter::Recovery(other), Ok(())) => self.begin_recovery(other, out),
                (Waiter::Recovery(other), Err(error)) => self.end_recovery(other, Err(error), out),
            }
        }
        self.unpin_target(target);
    }

    /// Returns the user of a recovery.
    fn recovered_for(&self, target: Target) -> u32 {
        match target {
            Target::BoundFid(_, user) => user,
            Target::Open(open) => self.opens[open].user,
        }
    }

    /// Asserts that recoveries, their waiters, and what they hold agree.
    pub(super) fn check_recoveries(&self) {
        let connected =
            matches!(self.link.state(), link::State::Attaching { .. } | link::State::Up { .. });
        assert!(connected || self.recoveries.is_empty(), "nothing is sought without a connection");
        for (target, recovery) in &self.recoveries {
            let inode = match target {
                Target::BoundFid(inode, _) => *inode,
                Target::Open(open) => self.opens[*open].inode,
            };
            assert!(self.inodes.users(inode) > 0, "a node of a walk is pinned");
            assert!(recovery.base.is_none_or(|base| self.inodes.users(base) > 0), "so is its base");
            for waiter in &recovery.waiters {
                if let Waiter::Recovery(other) = waiter {
                    let waits = self.recoveries.get(other).map(|recovery| &recovery.step);
                    assert!(matches!(waits, Some(Step::Base)), "{other:?} waits for {target:?}");
                }
            }
        }
        let busy = self.pending.len() + self.recoveries.len();
        assert_eq!(self.inodes.busy(), busy, "requests of users in progress are counted");
    }

    /// Drops all recoveries after the loss of the connection.
    pub(super) fn drop_recoveries(&mut self) {
        for (target, recovery) in std::mem::take(&mut self.recoveries) {
            if let Some(base) = recovery.base {
                self.unpin_inode(base);
            }
            self.unpin_target(target);
        }
    }

    fn unpin_target(&mut self, target: Target) {
        self.inodes.done(self.recovered_for(target));
        match target {
            Target::BoundFid(inode, _) => self.unpin_inode(inode),
            Target::Open(open) => self.unpin_open(open),
        }
    }
}

/// Returns whether an error is transient, so that it does not concern the file itself.
fn is_passing(error: Error) -> bool {
    matches!(
        error,
        Error::TooManyOpen
            | Error::NoMemory
            | Error::WouldBlock
            | Error::Busy
            | Error::Disconnected
            | Error::TimedOut
            | Error::Cancelled
    )
}

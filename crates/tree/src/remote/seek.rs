//! Recovery of fids: obtains a fid for a place or for an open file.
//!
//! A place is found by its path, from the nearest place above with a fid of the user, otherwise
//! from the user's own root, and must have its former qid. An open file of an earlier connection is
//! reopened, without one-time effects such as truncation. All requests for the same fid wait for
//! one recovery.

use super::calls::{Message, Owner, Party};
use super::places::ROOT;
use super::{Remote, link, words};
use crate::request::Output;
use base::op::OpId;
use base::{Access, Error, Name};
use wire::ninep::{NO_FID, Names, Qid, Rmessage, Tmessage, WALK_MAX};

/// Target of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// A fid of a place for a user.
    Tie(usize, u32),
    /// The fid of an open file.
    Open(usize),
}

/// A waiter for a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A pending request.
    Errand(usize),
    /// Another recovery.
    Seek(Target),
    /// The link, whose attach is the first recovery.
    Link,
    /// None.
    Nobody,
}

/// Awaited event of a recovery.
#[derive(Clone, Debug)]
enum Step {
    /// Another recovery, of the place to start from.
    Base,
    /// The attach with this fid.
    Attach(u32),
    /// A walk on the path.
    Walk(Hike),
    /// A copy of the place's fid.
    Clone(u32),
    /// The open of this fid.
    Open(u32),
}

/// A walk to `fid` along the names sent, and the names after those.
#[derive(Clone, Debug)]
struct Hike {
    fid: u32,
    sent: usize,
    /// Whether the fid is already bound to a place on the path.
    bound: bool,
    rest: Vec<Name>,
}

/// A recovery in progress.
#[derive(Clone, Debug)]
pub(super) struct Seek {
    waiters: Vec<Waiter>,
    step: Step,
    /// Start of the walk: pinned, so that its fid is kept until the reply.
    base: Option<usize>,
}

impl Remote {
    /// Waits for a fid; starts a recovery unless there is one.
    pub(super) fn seek(&mut self, target: Target, waiter: Waiter, out: &mut Vec<Output>) {
        if let Some(seek) = self.seeks.get_mut(&target) {
            return seek.waiters.push(waiter);
        }
        match target {
            Target::Tie(place, _) => self.places.pin(place),
            Target::Open(open) => self.opens[open].users += 1,
        }
        self.places.begin(self.sought_by(target));
        self.seeks.insert(target, Seek { waiters: vec![waiter], step: Step::Base, base: None });
        self.begin_seek(target, out);
    }

    /// Starts or restarts a recovery from the fids bound now.
    fn begin_seek(&mut self, target: Target, out: &mut Vec<Output>) {
        let (place, user) = match target {
            Target::Tie(ROOT, user) => return self.attach(target, user),
            Target::Tie(place, user) => (place, user),
            Target::Open(open) => (self.opens[open].place, self.opens[open].user),
        };
        let Some((at, base, names)) = self.places.way(place, user, self.epoch) else {
            return self.seek(Target::Tie(ROOT, user), Waiter::Seek(target), out);
        };
        match target {
            Target::Tie(..) if names.is_empty() => self.end_seek(target, Ok(()), out),
            Target::Tie(..) => {
                self.places.pin(at);
                self.seeks.get_mut(&target).expect("it is under way").base = Some(at);
                self.seek_on(target, base, None, names);
            }
            Target::Open(_) if !names.is_empty() => {
                self.seek(Target::Tie(place, user), Waiter::Seek(target), out);
            }
            Target::Open(_) => {
                let fid = self.fids.take();
                self.say_seek(target, Step::Clone(fid), &walk(base, fid, &[]));
            }
        }
    }

    fn attach(&mut self, target: Target, user: u32) {
        let fid = self.fids.take();
        let name = self.user_name(user);
        let uid = self.is_linux().then_some(user);
        let aname = self.aname.clone();
        let message = Tmessage::Attach { fid, afid: NO_FID, uname: &name, aname: &aname, uid };
        self.say_seek(target, Step::Attach(fid), &message);
    }

    fn seek_on(&mut self, target: Target, base: u32, fid: Option<u32>, mut names: Vec<Name>) {
        assert!(!names.is_empty(), "who is there need not walk");
        let (bound, fid) = (fid.is_some(), fid.unwrap_or_else(|| self.fids.take()));
        let rest = names.split_off(names.len().min(WALK_MAX));
        let hike = Hike { fid, sent: names.len(), bound, rest };
        self.say_seek(target, Step::Walk(hike), &walk(base, fid, &names));
    }

    fn say_seek(&mut self, target: Target, step: Step, message: &Tmessage<'_>) {
        let message = Message::new(message);
        self.seeks.get_mut(&target).expect("it is under way").step = step;
        self.calls.begin(Party::Recovery, Owner::Seek(target), message, &mut self.outbox);
    }

    /// Handles the reply to a message of a recovery.
    pub(super) fn sought(
        &mut self,
        target: Target,
        answer: Result<&Rmessage<'_>, Error>,
        out: &mut Vec<Output>,
    ) {
        let seek = self.seeks.get_mut(&target).expect("its answer has come only now");
        let step = std::mem::replace(&mut seek.step, Step::Base);
        if let Some(base) = seek.base.take() {
            self.unpin_place(base);
        }
        match (step, answer) {
            (Step::Attach(fid), Ok(Rmessage::Attach { qid })) => {
                self.places.set_qid(ROOT, *qid);
                self.found(target, fid, out);
            }
            (Step::Walk(hike), Ok(Rmessage::Walk { qids })) => {
                self.walked(target, hike, qids.as_slice(), out);
            }
            (Step::Clone(fid), Ok(Rmessage::Walk { .. })) => {
                let Target::Open(open) = target else { unreachable!("{target:?} is no open file") };
                let access = Access { truncate: false, ..self.opens[open].access };
                let message = self.open_message(fid, access);
                self.say_seek(target, Step::Open(fid), &message);
            }
            (Step::Open(fid), Ok(Rmessage::Lopen { .. } | Rmessage::Open { .. })) => {
                let Target::Open(open) = target else { unreachable!("{target:?} is no open file") };
                self.opens[open].reopened(fid, self.epoch);
                self.end_seek(target, Ok(()), out);
            }
            (Step::Open(fid) | Step::Walk(Hike { fid, bound: true, .. }), answer) => {
                self.clunk(fid);
                self.end_seek(target, Err(answer.err().unwrap_or(Error::Io)), out);
            }
            (Step::Attach(fid) | Step::Walk(Hike { fid, .. }) | Step::Clone(fid), answer) => {
                self.fids.give(fid);
                self.end_seek(target, Err(answer.err().unwrap_or(Error::Io)), out);
            }
            (Step::Base, _) => unreachable!("nothing was sent"),
        }
    }

    fn walked(&mut self, target: Target, hike: Hike, qids: &[Qid], out: &mut Vec<Output>) {
        let Target::Tie(place, _) = target else { unreachable!("{target:?} is no place") };
        let Hike { fid, sent, bound, rest } = hike;
        match qids.last().filter(|_| qids.len() == sent) {
            Some(_) if !rest.is_empty() => self.seek_on(target, fid, Some(fid), rest),
            Some(qid) if words::is_same(*qid, self.places.qid(place)) => {
                self.places.set_qid(place, *qid);
                self.found(target, fid, out);
            }
            arrived => {
                if arrived.is_some() || bound {
                    self.clunk(fid);
                } else {
                    self.fids.give(fid);
                }
                self.end_seek(target, Err(Error::Stale), out);
            }
        }
    }

    fn found(&mut self, target: Target, fid: u32, out: &mut Vec<Output>) {
        let Target::Tie(place, user) = target else { unreachable!("{target:?} is no place") };
        self.bind(place, user, fid);
        self.end_seek(target, Ok(()), out);
    }

    fn end_seek(&mut self, target: Target, result: Result<(), Error>, out: &mut Vec<Output>) {
        let seek = self.seeks.remove(&target).expect("it is under way");
        let result = result.map_err(|error| match error {
            // The file existed under this name before.
            Error::NotFound | Error::NotDirectory if !matches!(target, Target::Tie(ROOT, _)) => {
                Error::Stale
            }
            other => other,
        });
        if let (Target::Open(open), Err(error)) = (target, result)
            && !is_passing(error)
        {
            self.opens[open].stale = true;
        }
        for waiter in seek.waiters {
            match (waiter, result) {
                (Waiter::Link, _) => self.attached(out),
                (Waiter::Nobody, _) => {}
                (Waiter::Errand(errand), Ok(())) if self.is_seeking(errand, target) => {
                    self.advance(errand, out);
                }
                (Waiter::Errand(errand), Err(error)) if self.is_seeking(errand, target) => {
                    let stale = matches!(target, Target::Open(open) if self.opens[open].stale);
                    let error = if stale { Error::Stale } else { error };
                    self.not_found(errand, error, out);
                }
                // The request was cancelled meanwhile.
                (Waiter::Errand(_), _) => {}
                (Waiter::Seek(other), Ok(())) => self.begin_seek(other, out),
                (Waiter::Seek(other), Err(error)) => self.end_seek(other, Err(error), out),
            }
        }
        self.unpin_target(target);
    }

    /// Returns the user of a recovery.
    fn sought_by(&self, target: Target) -> u32 {
        match target {
            Target::Tie(_, user) => user,
            Target::Open(open) => self.opens[open].user,
        }
    }

    /// Asserts that recoveries, their waiters, and what they hold agree.
    pub(super) fn check_seeks(&self) {
        let connected =
            matches!(self.link.state(), link::State::Attaching { .. } | link::State::Up { .. });
        assert!(connected || self.seeks.is_empty(), "nothing is sought without a connection");
        for (target, seek) in &self.seeks {
            let place = match target {
                Target::Tie(place, _) => *place,
                Target::Open(open) => self.opens[*open].place,
            };
            assert!(self.places.users(place) > 0, "what is sought is pinned");
            assert!(seek.base.is_none_or(|base| self.places.users(base) > 0), "so is its base");
            for waiter in &seek.waiters {
                if let Waiter::Seek(other) = waiter {
                    let waits = self.seeks.get(other).map(|seek| &seek.step);
                    assert!(matches!(waits, Some(Step::Base)), "{other:?} waits for {target:?}");
                }
            }
        }
        let busy = self.errands.len() + self.seeks.len();
        assert_eq!(self.places.busy(), busy, "what is under way for users is counted");
    }

    /// Drops all recoveries after the loss of the connection.
    pub(super) fn forget_seeks(&mut self) {
        for (target, seek) in std::mem::take(&mut self.seeks) {
            if let Some(base) = seek.base {
                self.unpin_place(base);
            }
            self.unpin_target(target);
        }
    }

    fn unpin_target(&mut self, target: Target) {
        self.places.done(self.sought_by(target));
        match target {
            Target::Tie(place, _) => self.unpin_place(place),
            Target::Open(open) => self.unpin_open(open),
        }
    }

    /// Returns the message that opens a file, in the server's dialect.
    pub(super) fn open_message(&self, fid: u32, access: Access) -> Tmessage<'static> {
        if self.is_linux() {
            Tmessage::Lopen { fid, flags: words::linux_flags(access) }
        } else {
            Tmessage::Open { fid, mode: words::plan9_mode(access) }
        }
    }

    pub(super) fn op_id(&self, local: usize) -> OpId {
        OpId(crate::request::NodeId::new(self.index, self.config.first_op + local).0)
    }
}

/// Returns a walk along at most sixteen names.
pub(super) fn walk<'a>(fid: u32, newfid: u32, names: &'a [Name]) -> Tmessage<'a> {
    let names: Vec<&[u8]> = names.iter().map(Name::as_bytes).collect();
    let names = Names::new(&names).expect("no more than sixteen");
    Tmessage::Walk { fid, newfid, names }
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

//! `PROPFIND`: the properties of a file, and of the members of a directory, which are sent as they
//! are read, so memory stays bounded.
//!
//! Links are followed; those that lead nowhere, and files that cannot be read over HTTP, are left
//! out. Dead properties cost two requests for each member, so they are read only if the client
//! requests all properties, or one that is not live.

use super::super::answer::{Head, status};
use super::super::exchange::{AHEAD, Context, Exchange, Stay};
use super::super::get::safe;
use super::super::room::HANDLES;
use super::super::transfer::frame;
use super::super::{CALL, DISCARDED, State};
use super::lock::{covers, describe_lock};
use super::properties::{
    ATTRIBUTE, Subject, describe, in_reply, wants_dead, wants_locks, wants_space,
};
use crate::{CallId, webdav};
use base::op::{Detail, Entry};
use base::{Buf, Error, Instant, Kind, Name, Stat, StatFs};
use std::collections::VecDeque;
use tree::{Ask, NodeId, OpenId, Reply};
use wire::dav::{CLOSING, OPENING, Property, Wanted, write_response};
use wire::http::{Depth, Request, Verdict, encode_component, refusal};

/// Maximum number of bytes of names requested at once.
const PAGE: u32 = 16 << 10;
/// Approximate number of bytes of responses generated in one step.
const ROWS: usize = 8 << 10;

/// A response being generated.
#[derive(Debug)]
pub(super) struct Propfind {
    request: Request,
    wanted: Wanted,
    step: Step,
    /// The open directory, if its members are reported or it is one.
    open: Option<OpenId>,
    /// Node of the target, if its attributes or those of its members are needed.
    node: Option<NodeId>,
    stat: Stat,
    space: Option<StatFs>,
    /// Locks of the target and its members.
    locks: Vec<webdav::Lock>,
    cookie: u64,
    entries: VecDeque<Entry>,
    ended: bool,
    /// Responses gathered and not yet sent; whether the head was sent.
    text: String,
    has_head: bool,
}

/// State of a `PROPFIND`.
#[derive(Debug)]
enum Step {
    /// Waiting for the locks.
    FindingLocks,
    /// Waiting for the attributes of the target, following links.
    Fetching,
    /// Waiting for its node.
    Walking,
    /// Waiting for the usage of the tree.
    Measuring,
    /// Waiting for its dead properties.
    Reading,
    /// Nothing is outstanding.
    Idle,
    /// Waiting for entries.
    Listing,
    /// Waiting for the target of the first entry, a link.
    Following,
    /// Waiting for the node of a member.
    Finding(Name, Stat),
    /// Waiting for its dead properties.
    ReadingMember(Name, Stat, NodeId),
}

impl Propfind {
    pub(super) fn begin(cx: &mut Context, request: Request, wanted: Wanted) -> State {
        let depth = request.dav.as_ref().and_then(|dav| dav.depth).unwrap_or(Depth::Infinity);
        if depth == Depth::Infinity {
            return cx.fail_with(403, "<D:propfind-finite-depth/>");
        }
        let has_locks = wants_locks(&wanted);
        let propfind = Propfind {
            request,
            wanted,
            step: Step::Fetching,
            locks: Vec::new(),
            open: None,
            node: None,
            stat: Stat::default(),
            space: None,
            cookie: 0,
            entries: VecDeque::new(),
            ended: false,
            text: String::new(),
            has_head: false,
        };
        if has_locks {
            cx.ask_locks(webdav::Request::Find(propfind.request.target.path.clone()));
            return Box::new(propfind).at(Step::FindingLocks);
        }
        Box::new(propfind).fetch(cx)
    }

    fn fetch(self: Box<Self>, cx: &mut Context) -> State {
        let path = self.request.target.path.clone();
        cx.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 });
        self.at(Step::Fetching)
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    /// Returns whether the members are reported.
    fn has_members(&self) -> bool {
        let depth = self.request.dav.as_ref().and_then(|dav| dav.depth);
        depth == Some(Depth::One) && self.stat.kind == Kind::Directory
    }

    /// Begins the response about the target.
    fn fetched(mut self: Box<Self>, cx: &mut Context, stat: Stat, open: Option<OpenId>) -> State {
        (self.stat, self.open) = (stat, open);
        if !matches!(self.stat.kind, Kind::File | Kind::Directory) {
            self.release(cx);
            return cx.fail(status(Error::Unsupported));
        }
        let tag = super::super::answer::etag(&self.stat);
        let facts = Some((&*tag, self.stat.modified));
        if self.request.conditions.judge(self.request.method, facts) == Verdict::Failed {
            self.release(cx);
            return cx.fail(refusal(412, "the file is not the one that was expected"));
        }
        if !self.has_members() {
            cx.close(self.open.take());
            self.ended = true;
        }
        if wants_dead(&self.wanted) || wants_space(&self.wanted) {
            let names = self.request.target.path.clone();
            cx.ask(Ask::Walk { from: cx.session.export.root, names });
            return self.at(Step::Walking);
        }
        self.target_read(cx, &[])
    }

    /// Requests the usage of the tree, if it is needed.
    fn walked(mut self: Box<Self>, cx: &mut Context, node: Option<NodeId>) -> State {
        self.node = node;
        match node {
            Some(node) if wants_space(&self.wanted) => {
                cx.ask(Ask::StatFs { node });
                self.at(Step::Measuring)
            }
            Some(_) => self.measured(cx),
            // The path leads through links: dead properties of their targets are not reported.
            None => self.target_read(cx, &[]),
        }
    }

    /// Requests the dead properties of the target, if they are needed.
    fn measured(self: Box<Self>, cx: &mut Context) -> State {
        match self.node {
            Some(node) if wants_dead(&self.wanted) => {
                cx.ask(Ask::GetAttr { node, name: ATTRIBUTE.to_vec() });
                self.at(Step::Reading)
            }
            Some(_) | None => self.target_read(cx, &[]),
        }
    }

    /// Reports the target; continues with its members.
    fn target_read(mut self: Box<Self>, cx: &mut Context, dead: &[Property]) -> State {
        let (path, stat) = (self.request.target.path.clone(), self.stat.clone());
        self.report(cx.now, &path, &stat, dead);
        self.step = Step::Idle;
        self.go_on(cx)
    }

    /// Adds the response about a file.
    fn report(&mut self, now: Instant, path: &Vec<Name>, stat: &Stat, dead: &[Property]) {
        let mut content = String::new();
        let locks = self.locks.iter().filter(|lock| covers(lock, path));
        let locks: String = locks.map(|lock| describe_lock(lock, now)).collect();
        let subject = Subject { path, stat, space: self.space.as_ref(), locks: &locks };
        describe(&subject, dead, &self.wanted, &mut content);
        write_response(&href(path, stat.kind), &content, &mut self.text);
    }

    fn report_member(&mut self, now: Instant, name: &Name, stat: &Stat, dead: &[Property]) {
        let path: Vec<Name> = self.request.target.path.iter().chain([name]).cloned().collect();
        self.report(now, &path, stat, dead);
    }

    /// Reports members until something is needed for them, at the pace of the client.
    fn go_on(mut self: Box<Self>, cx: &mut Context) -> State {
        assert!(matches!(self.step, Step::Idle), "nothing is outstanding: {:?}", self.step);
        loop {
            if self.text.len() >= ROWS {
                // One piece per step: the next one follows when this one has been sent.
                if cx.session.unsent <= cx.at_most(AHEAD) {
                    self.send(cx);
                }
                return self.stay();
            }
            let Some(entry) = self.entries.front() else { return self.list(cx) };
            match (entry.kind, &entry.stat) {
                (Kind::File | Kind::Directory, Some(stat)) => {
                    let (name, stat) = (entry.name.clone(), stat.clone());
                    self.entries.pop_front();
                    if self.member(cx, name, stat) {
                        return self.stay();
                    }
                }
                (Kind::Symlink, _) | (Kind::File | Kind::Directory, None) => {
                    let path = self.request.target.path.iter().chain([&entry.name]);
                    let path = path.cloned().collect();
                    cx.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 });
                    return self.at(Step::Following);
                }
                (Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice, _) => {
                    self.entries.pop_front();
                }
            }
        }
    }

    /// Requests more entries; ends the response if there are none.
    fn list(self: Box<Self>, cx: &mut Context) -> State {
        let Some(open) = self.open.filter(|_| !self.ended) else { return self.end(cx) };
        cx.session.outstanding = PAGE as usize;
        let (cookie, detail) = (self.cookie, Detail::Stat);
        cx.ask(Ask::List { open, cookie, bytes_max: PAGE, detail });
        self.at(Step::Listing)
    }

    /// Reports a member, or requests its dead properties first, if they are needed; returns
    /// whether it has.
    fn member(&mut self, cx: &mut Context, name: Name, stat: Stat) -> bool {
        match self.node {
            Some(from) if wants_dead(&self.wanted) => {
                cx.ask(Ask::Walk { from, names: vec![name.clone()] });
                self.step = Step::Finding(name, stat);
                true
            }
            Some(_) | None => {
                self.report_member(cx.now, &name, &stat, &[]);
                false
            }
        }
    }

    /// Sends what is gathered, with the head in front of the first part.
    fn send(&mut self, cx: &mut Context) {
        let mut bytes = Vec::new();
        let mut text = std::mem::take(&mut self.text);
        if !std::mem::replace(&mut self.has_head, true) {
            let head = safe(Head::new(207).field("Content-Type", "application/xml; charset=utf-8"));
            let head = cx.stream(head);
            bytes = cx.end(head);
            text.insert_str(0, OPENING);
        }
        let text = Buf::from(text.into_bytes());
        bytes.extend_from_slice(&frame(text, cx.session.manner.is_1_1));
        cx.send(Buf::from(bytes));
    }

    fn end(mut self: Box<Self>, cx: &mut Context) -> State {
        self.text.push_str(CLOSING);
        self.send(cx);
        if cx.session.manner.is_1_1 {
            cx.send(Buf::from(&b"0\r\n\r\n"[..]));
        }
        self.release(cx);
        cx.done()
    }

    /// Releases the nodes and the open directory.
    fn release(&self, cx: &mut Context) {
        cx.close(self.open);
        self.node.into_iter().for_each(|node| cx.release(node));
        if let Step::ReadingMember(_, _, node) = self.step {
            cx.release(node);
        }
    }

    fn failed(mut self: Box<Self>, cx: &mut Context, error: Error) -> State {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Walking => self.walked(cx, None),
            Step::Measuring => self.measured(cx),
            // A link that leads nowhere, or a member that has disappeared.
            Step::Following => {
                self.entries.pop_front();
                self.go_on(cx)
            }
            Step::Finding(..) if error == Error::NotFound => self.go_on(cx),
            Step::Finding(name, stat) => {
                self.report_member(cx.now, &name, &stat, &[]);
                self.go_on(cx)
            }
            Step::Fetching | Step::Listing => {
                self.release(cx);
                match self.has_head {
                    false => cx.fail(status(error)),
                    true => cx.hang_up("the directory could not be read to its end"),
                }
            }
            step @ (Step::FindingLocks | Step::Idle | Step::Reading | Step::ReadingMember(..)) => {
                unreachable!("{error:?} is handled in {step:?}")
            }
        }
    }
}

impl Exchange for Propfind {
    fn name(&self) -> &'static str {
        "describing"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (std::mem::replace(&mut self.step, Step::Idle), reply) {
            (Step::Fetching, Ok(Reply::Fetched(stat, _, open))) => self.fetched(cx, stat, open),
            (Step::Walking, Ok(Reply::Walked(stats, Some(node)))) => {
                // Of a link, the target is reported; of the root, no attributes are walked.
                let is_same = stats.last().is_none_or(|stat| stat.is_same(&self.stat));
                if !is_same {
                    cx.release(node);
                }
                self.walked(cx, is_same.then_some(node))
            }
            (Step::Walking, Ok(_)) => self.walked(cx, None),
            (Step::Measuring, Ok(Reply::StatFs(space))) => {
                self.space = Some(space);
                self.measured(cx)
            }
            (Step::Reading, reply) => match in_reply(reply) {
                Ok(dead) => self.target_read(cx, &dead),
                // Attributes may be unreadable where the rest is not.
                Err(_) => self.target_read(cx, &[]),
            },
            (Step::Listing, Ok(Reply::Entries(entries))) => {
                self.ended = entries.is_empty();
                self.cookie = entries.last().map_or(self.cookie, |entry| entry.cookie);
                self.entries.extend(entries);
                self.go_on(cx)
            }
            (Step::Following, Ok(Reply::Fetched(stat, _, open))) => {
                cx.close(open);
                let entry = self.entries.pop_front().expect("its target was requested");
                let is_usable = matches!(stat.kind, Kind::File | Kind::Directory);
                if is_usable && self.member(cx, entry.name, stat) {
                    return self.stay();
                }
                self.go_on(cx)
            }
            (Step::Finding(name, stat), Ok(Reply::Walked(_, Some(node)))) => {
                cx.ask(Ask::GetAttr { node, name: ATTRIBUTE.to_vec() });
                self.at(Step::ReadingMember(name, stat, node))
            }
            (Step::Finding(..), Ok(Reply::Walked(_, None))) => self.go_on(cx),
            (Step::ReadingMember(name, stat, node), reply) => {
                cx.release(node);
                let dead = in_reply(reply).unwrap_or_default();
                self.report_member(cx.now, &name, &stat, &dead);
                self.go_on(cx)
            }
            (step, Err(error)) => {
                self.step = step;
                self.failed(cx, error)
            }
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    fn locks_answered(mut self: Box<Self>, cx: &mut Context, reply: webdav::Reply) -> State {
        let webdav::Reply::Found(locks) = reply else { unreachable!("{reply:?} of a resource") };
        self.locks = locks;
        self.fetch(cx)
    }

    fn sent(self: Box<Self>, cx: &mut Context) -> State {
        if matches!(self.step, Step::Idle) { self.go_on(cx) } else { self.stay() }
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        self.release(cx);
        let is_asked = !matches!(self.step, Step::Idle | Step::FindingLocks);
        let of_locks = if matches!(self.step, Step::FindingLocks) { DISCARDED } else { 0 };
        of_locks + cx.cancel(CALL, is_asked)
    }

    /// With the target of a link, also opened.
    fn handles(&self) -> usize {
        HANDLES
    }

    fn gathered(&self) -> usize {
        let weight = |entry: &Entry| entry.name.as_bytes().len() + size_of::<Entry>();
        let locks = self.locks.iter().map(webdav::Lock::weight).sum::<usize>();
        self.text.capacity() + self.entries.iter().map(weight).sum::<usize>() + locks
    }
}

/// Returns the percent-encoded path of a file; a collection's ends in a slash (RFC 4918 §5.2).
pub(super) fn href(path: &[Name], kind: Kind) -> String {
    let mut text = String::new();
    for name in path {
        text.push('/');
        encode_component(name.as_bytes()).for_each(|part| text.push_str(part));
    }
    if kind == Kind::Directory || path.is_empty() {
        text.push('/');
    }
    text
}

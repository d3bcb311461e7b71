//! Calls in progress.
//!
//! Each call first gets the nodes of its handles, then an open file if it needs one. The rest is
//! its [`Procedure`], a machine with a state for each reply that it waits for.

use super::files::{Files, Pin};
use super::replays::CallKey;
use super::translate;
use crate::{Export, Identity, Output};
use base::{Access, Buf, Caller, Error, Instant, Kind, Stat};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::nfs::{self, After, Handle, PostOp, Status, Wcc};

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) xid: u32,
    /// Name of the procedure.
    pub(super) name: &'static str,
    /// Its claim, if it changes something and has begun.
    pub(super) claim: Option<CallKey>,
    pub(super) caller: Caller,
    pub(super) procedure: Box<dyn Procedure>,
    /// Files of its handles, once their nodes are known.
    pub(super) files: [Option<Pin>; 2],
    /// Open file of the first one, if needed.
    pub(super) open: Option<OpenId>,
    /// Open file of the first one to make its change durable: [`None`] inside if it has none.
    pub(super) sync: Option<Option<OpenId>>,
    pub(super) awaits: Await,
    /// Bytes that count against the connection's limit.
    pub(super) bytes: usize,
}

impl Call {
    /// Returns a call whose nodes are not known yet.
    pub(super) fn new(
        xid: u32,
        name: &'static str,
        caller: Caller,
        procedure: Box<dyn Procedure>,
        bytes: usize,
    ) -> Call {
        let (files, open, sync, awaits) = ([None; 2], None, None, Await::Procedure);
        let claim = None;
        Call { xid, name, claim, caller, procedure, files, open, sync, awaits, bytes }
    }

    /// Returns the handle with this index.
    pub(super) fn handle(&self, index: usize) -> Handle {
        self.procedure.handles()[index].expect("it has this handle")
    }

    /// Returns the file of its first handle, whose node is known.
    pub(super) fn file(&self) -> Pin {
        self.files[0].expect("its node is known")
    }

    /// Returns whether it goes on without its client: perhaps it has changed something, and the
    /// client will ask for its reply.
    pub(super) fn goes_on(&self) -> bool {
        self.claim.is_some() && self.awaits == Await::Procedure
    }

    /// Gives the call up: its reply will be discarded.
    pub(super) fn give_up(&mut self, out: &mut Vec<Output>) {
        out.extend(self.claim.take().map(|claim| Output::Settle(claim, None)));
        if let Await::Verify(_, node, _) = std::mem::replace(&mut self.awaits, Await::GivenUp) {
            out.push(Output::Release(node));
        }
    }
}

/// State of a call: the reply that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Await {
    /// Waiting for the claim of the call.
    Claim(CallKey),
    /// Waiting for the node of the handle with this index.
    Resolve(usize),
    /// Waiting for the node at the place where the file was found last.
    Walk(usize),
    /// Waiting for the handle of the file found there.
    Verify(usize, NodeId, Kind),
    /// Waiting for the open file.
    Open,
    /// Waiting for an open file with any access, opened by the server itself.
    OpenAny,
    /// Waiting for the attributes of the file, after an open was denied: protocols with opens check
    /// permissions at the open only, so the owner may use a file that has no permission any more,
    /// and a file that may be executed is read.
    Permission,
    /// Waiting for the open file, opened by the server itself.
    OpenAnyway,
    /// Waiting for the open file that will make a change durable.
    OpenSync,
    /// Waiting for a reply to the procedure's own request.
    Procedure,
    /// Waiting for a reply to discard.
    GivenUp,
}

impl Await {
    /// Returns its name for `/.upcall/`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Await::Claim(_) => "claim",
            Await::Resolve(_) => "resolve",
            Await::Walk(_) => "walk",
            Await::Verify(..) => "verify",
            Await::Open => "open",
            Await::OpenAny => "open any",
            Await::Permission => "permission",
            Await::OpenAnyway => "open anyway",
            Await::OpenSync => "open to sync",
            Await::Procedure => "procedure",
            Await::GivenUp => "given up",
        }
    }
}

/// Environment of a procedure.
pub(super) struct Context<'a> {
    /// The time.
    pub(super) now: Instant,
    /// The export.
    pub(super) export: &'a Export,
    /// Identity of the client.
    pub(super) identity: &'a Identity,
    /// Identity of the caller.
    pub(super) caller: &'a Caller,
    /// Files of the client.
    pub(super) files: &'a mut Files,
    /// Files of the call's handles.
    pub(super) pins: [Option<Pin>; 2],
    /// The open file.
    pub(super) open: Option<OpenId>,
    /// The open file to make a change durable.
    pub(super) sync: Option<OpenId>,
    /// The reply, to which the results are appended.
    pub(super) body: &'a mut Vec<u8>,
    /// Outputs of the session.
    pub(super) out: &'a mut Vec<Output>,
    /// Files to release at the end of the step.
    pub(super) found: Option<Pin>,
}

impl Context<'_> {
    /// Returns the node of the first handle.
    pub(super) fn node(&self) -> NodeId {
        self.node_of(0)
    }

    /// Returns the node of the handle with this index.
    pub(super) fn node_of(&self, index: usize) -> NodeId {
        self.files.node(self.pins[index].expect("its node is known"))
    }

    /// Returns the open file.
    pub(super) fn open(&self) -> OpenId {
        self.open.expect("it is open")
    }

    /// Returns attributes for the client.
    pub(super) fn attributes(&self, stat: &Stat) -> PostOp {
        Some(translate::attributes(stat, self.export.device))
    }

    /// Returns attributes of the file of the first handle, and records them; whether its caller
    /// must open the file again.
    pub(super) fn see(&mut self, stat: &Stat) -> (PostOp, bool) {
        let pin = self.pins[0].expect("its node is known");
        let is_outdated = self.files.see(pin, stat);
        (self.attributes(stat), is_outdated)
    }

    /// Returns attributes of the file of the first handle after a change, and records them.
    pub(super) fn changed_file(&mut self, after: Option<&Stat>) -> Wcc {
        let after = after.and_then(|stat| self.see(stat).0);
        Wcc { before: None, after }
    }

    /// Returns attributes after a change.
    pub(super) fn changed(&self, after: Option<&Stat>) -> Wcc {
        Wcc { before: None, after: after.and_then(|stat| self.attributes(stat)) }
    }

    /// Returns whether the caller may choose the owner of what it creates: only root, as which it
    /// came. From others clients send owners without need, and the creation must not fail for them.
    pub(super) fn may_choose_owner(&self) -> bool {
        let is_root = matches!(self.caller, Caller::User(user) if user.uid == 0);
        is_root && matches!(self.identity, Identity::Claimed(_))
    }

    /// Keeps a node that was found, and its handle.
    pub(super) fn keep(&mut self, handle: Handle, kind: Kind, node: NodeId) -> Pin {
        let pin = self.files.add(handle, kind, node, self.out);
        let before = self.found.replace(pin);
        assert!(before.is_none(), "a call finds one file");
        pin
    }
}

/// Next step of a procedure.
#[derive(Debug)]
pub(super) enum Next {
    /// Send a request and wait.
    Ask(Ask),
    /// Begin again with another open file: permissions may have changed.
    Reopen,
    /// Reply: the results are in the body.
    Reply,
    /// Reply: the results are in the body, followed by this data.
    Data(Vec<Buf>),
    /// Reply with the status of an error.
    Fail(Error),
    /// Reply with a status.
    FailWith(Status),
}

impl From<Error> for Next {
    fn from(error: Error) -> Next {
        Next::Fail(error)
    }
}

/// A procedure in progress.
pub(super) trait Procedure: std::fmt::Debug + Send {
    /// Returns the handles of the arguments.
    fn handles(&self) -> [Option<Handle>; 2];

    /// Returns the access to the first file that the procedure needs, if it must be open.
    fn access(&self) -> Option<Access> {
        None
    }

    /// Returns whether any open file will do, also one of the server's own.
    fn takes_any_open(&self) -> bool {
        false
    }

    /// Returns whether it changes the file or directory of the first handle, and makes the change
    /// durable before it replies.
    fn is_change(&self) -> bool {
        false
    }

    /// Begins, once the nodes are known and the file is open.
    fn start(&mut self, context: &mut Context<'_>) -> Next;

    /// Continues after a reply to its request.
    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next;

    /// Returns the form of what follows the status of a failure.
    fn failure(&self) -> After;

    /// Appends the results of a failure.
    fn put_failure(&self, status: Status, body: &mut Vec<u8>) {
        nfs::put_failure(status, &self.failure(), body);
    }

    /// Returns the node and the open file that it holds, when its client is gone.
    fn held(&mut self) -> (Option<NodeId>, Option<OpenId>) {
        (None, None)
    }
}

/// Returns the attributes of a reply to [`Ask::Stat`]: none after an error, since they are
/// optional.
pub(super) fn optional(reply: Result<Reply, Error>) -> Option<Stat> {
    match reply {
        Ok(Reply::Stat(stat)) => Some(stat),
        Ok(other) => unreachable!("{other:?} is no attributes"),
        Err(_) => None,
    }
}

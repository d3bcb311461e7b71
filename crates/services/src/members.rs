//! Changes of a service's membership, as seen by the server of one member.
//!
//! A new replica writes a join request to `peer` and reads its initial snapshot there; an
//! administrator writes a membership request and reads the outcome. Both prove that they know the
//! secret, as members do.

use crate::acceptor::{PeerAcceptor, Read, Refused};
use crate::hosted::{Hosted, OLDER_COPY};
use crate::joining::Joining;
use crate::opened::{Opened, PEER};
use crate::peer::{self, Peer};
use crate::peer_message::{Answer, PeerMessage};
use crate::proof::{ProofReply, VERDICT};
use crate::{Data, Operator, Snapshot};
use base::op::Address;
use base::{Caller, Error, Instant};
use replica::binary;
use replica::service::{
    Change, ChangeRequest, Input, MEMBERS_MAX, Membership, ORIGINS_MAX, Objection, Record, Replica,
    ReplicaId,
};
use replica::work;
use std::collections::BTreeSet;
use tree::{Output, Reply, RequestId, remote::Remote};

/// Identity of an administrator, who has the service's key, on the file `peer`.
pub const ADMINISTRATOR: ReplicaId = ReplicaId(0);

/// Role of an authenticated peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerRole {
    Administrator,
    Member,
    /// Former member.
    Retired,
    /// Not a member yet.
    Guest,
}

/// Parses a numeric address, which needs no name resolution.
///
/// ```
/// use services::address;
///
/// assert!(address("192.0.2.1:5640").is_some());
/// assert!(address("unix:/run/upcall").is_some());
/// assert!(address("example.org:5640").is_none());
/// ```
pub fn address(text: &str) -> Option<Address> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(Address::Unix(path.as_bytes().to_vec())),
        None => text.parse().ok().map(Address::Tcp),
    }
}

/// Formats replica numbers for people.
pub fn list(ids: impl IntoIterator<Item = ReplicaId>) -> String {
    let names: Vec<String> = ids.into_iter().map(|id| id.0.to_string()).collect();
    names.join(", ")
}

/// Describes the result of a change, for people.
pub(crate) fn aim(change: &Change) -> String {
    let members = list(change.members.keys().copied());
    match change.lost.is_empty() {
        true => members,
        false => format!("{members}; lost: {}", list(change.lost.iter().copied())),
    }
}

/// Explains why a membership request is rejected, for people.
fn explain(objection: &Objection) -> String {
    let these = |ids: &BTreeSet<ReplicaId>| list(ids.iter().copied());
    match objection {
        Objection::Nothing => "it is so, or is in progress".to_string(),
        Objection::Outside => {
            "this replica is not a member, or is listed in --lost; ask another one".to_string()
        }
        Objection::Unknown(ids) => format!("{} is no member: see its status", these(ids)),
        Objection::Known(ids) => {
            format!("{} is a member or was one: take another number", these(ids))
        }
        Objection::Nobody => "no replica would be left that has the data".to_string(),
        Objection::Most => "half of the members or more would be lost, and could continue without \
                            the remaining ones; if they are certainly down, add --force"
            .to_string(),
        Objection::Split => "the lost replicas may have completed the pending change, and could \
                             continue without the remaining ones; if they are certainly down, add \
                             --force"
            .to_string(),
        Objection::Many => format!(
            "a service has at most {MEMBERS_MAX} members, and {ORIGINS_MAX} in all its time: make \
             a new one with 'upcall replica init'"
        ),
    }
}

/// Explains why two changes cannot be joined, for people.
pub(crate) fn explain_clash(objection: &Objection) -> String {
    let both = "this change, and the one requested at another replica,";
    match objection {
        Objection::Most => format!(
            "{both} would lose half of the members or more: if you are sure that these do not go \
             on without the others, ask for all of it here, with --lost --force"
        ),
        Objection::Nobody => format!(
            "{both} would leave no replica that has the data: end those that are to go, and ask \
             one that stays to remove them with --lost --force"
        ),
        Objection::Split => format!(
            "{both} would lose replicas that may have completed this change: if you are sure that \
             these do not go on without the others, ask for all of it here, or for the same again \
             there, with --lost --force"
        ),
        Objection::Nothing
        | Objection::Outside
        | Objection::Unknown(_)
        | Objection::Known(_)
        | Objection::Many => format!("{both} cannot both be: {}", explain(objection)),
    }
}

/// Returns the role of a peer, according to a replica.
fn who(replica: &Replica<Data>, id: ReplicaId) -> PeerRole {
    let member_state = replica.member_state();
    let comes = member_state.change.as_ref().is_some_and(|it| it.members.contains_key(&id));
    match id {
        ADMINISTRATOR => PeerRole::Administrator,
        id if replica.membership().retired.contains_key(&id) => PeerRole::Retired,
        id if comes || member_state.membership.members.contains_key(&id) => PeerRole::Member,
        _guest => PeerRole::Guest,
    }
}

/// Returns the verdict for an authenticated peer.
pub(crate) fn judge(replica: &Replica<Data>, id: ReplicaId) -> ProofReply {
    match who(replica, id) {
        PeerRole::Administrator | PeerRole::Member | PeerRole::Guest => ProofReply::Welcome,
        PeerRole::Retired => ProofReply::Farewell,
    }
}

impl Hosted {
    /// Disconnects a peer after an invalid message. The operator is informed once only, as it may
    /// happen on every connection.
    pub(crate) fn distrust(&mut self, now: Instant, peer: ReplicaId, out: &mut Vec<Output>) {
        let link = self.links.get_mut(&peer);
        if !link.is_some_and(|link| std::mem::replace(&mut link.is_distrusted, true)) {
            self.notify_news(format!(
                "{}: replica {} sent an invalid message; is it {OLDER_COPY} of itself, or of \
                 another service?",
                self.settings.service, peer.0
            ));
        }
        self.shut_acceptor(peer);
        self.step_peer(now, peer, peer::Input::Leave, out);
    }

    /// Processes a peer message of an authenticated peer.
    pub(crate) fn peer_message(
        &mut self,
        now: Instant,
        open: usize,
        from: ReplicaId,
        peer_message: PeerMessage,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        // Further peer messages require another open file.
        if matches!(&self.opens[open], Opened::PeerAcceptor(acceptor) if acceptor.is_answered()) {
            return Err(Error::Denied);
        }
        match (peer_message, who(&self.replica, from)) {
            (PeerMessage::Gossip(mut message), PeerRole::Member) => {
                if !message.entries.iter().all(|entry| self.is_ours(&entry.operator)) {
                    return Err(Error::Invalid);
                }
                if self.journal.failed().is_some() && !message.entries.is_empty() {
                    // The sender retransmits it later on another open file.
                    return Err(Error::Io);
                }
                if self.journal.is_full() {
                    // The same; but a full replica may still leave.
                    message.entries.clear();
                }
                self.step_replica(now, Input::Received(from, message), out);
                Ok(())
            }
            (PeerMessage::Join(place), PeerRole::Member) if self.is_at(from, &place) => Ok(()),
            (PeerMessage::Silent(vote), PeerRole::Member) => {
                self.step_replica(now, Input::Voted(from, vote), out);
                Ok(())
            }
            // Another replica has taken its number meanwhile.
            (PeerMessage::Join(_), PeerRole::Member) => {
                let why = format!(
                    "another one has the number {}, or is at its address: make a new file with \
                     'upcall replica join', which takes another number",
                    from.0
                );
                self.answer(open, &Answer::No(why))
            }
            (PeerMessage::Join(place), PeerRole::Guest) => {
                let change_request =
                    ChangeRequest { add: [(from, place)].into(), ..ChangeRequest::default() };
                match self.change_request(now, &change_request, out) {
                    Ok(()) => Ok(()),
                    Err(why) => self.answer(open, &Answer::No(why)),
                }
            }
            (PeerMessage::ChangeRequest(change_request), PeerRole::Administrator) => {
                let answer = self
                    .change_request(now, &change_request, out)
                    .map_or_else(Answer::No, |()| Answer::Yes);
                self.answer(open, &answer)
            }
            (
                PeerMessage::Gossip(_)
                | PeerMessage::Join(_)
                | PeerMessage::ChangeRequest(_)
                | PeerMessage::Silent(_),
                _,
            ) => Err(Error::Denied),
        }
    }

    /// Starts the requested change of members.
    fn change_request(
        &mut self,
        now: Instant,
        change_request: &ChangeRequest,
        out: &mut Vec<Output>,
    ) -> Result<(), String> {
        if self.journal.failed().is_some() || self.replica.is_outdated() {
            return Err("this replica cannot keep anything: ask another one".to_string());
        }
        for (id, place) in &change_request.add {
            if *id == ADMINISTRATOR || address(place).is_none() {
                let id = id.0;
                return Err(format!("'{place}' is no address in numbers for a replica {id}"));
            }
        }
        let change = match self.replica.plan(change_request) {
            Ok(change) => change,
            // Already done or in progress: a client that repeats a request waits for it again.
            Err(Objection::Nothing) => return Ok(()),
            Err(objection) => return Err(explain(&objection)),
        };
        let (name, aim) = (&self.settings.service, aim(&change));
        self.notify_news(format!("{name}: the members are to be replicas {aim}"));
        self.step_replica(now, Input::Change(change), out);
        Ok(())
    }

    /// Answers the peer message on an open file.
    fn answer(&mut self, open: usize, answer: &Answer) -> Result<(), Error> {
        let Opened::PeerAcceptor(acceptor) = &mut self.opens[open] else {
            return Err(Error::Denied);
        };
        acceptor.answer(&binary::write(answer));
        Ok(())
    }

    /// Reports whether a current or future member has this address.
    fn is_at(&self, id: ReplicaId, place: &str) -> bool {
        let member_state = self.replica.member_state();
        let coming = member_state.change.as_ref().and_then(|change| change.members.get(&id));
        let there = member_state.membership.members.get(&id).or(coming);
        there.is_some_and(|there| there == place)
    }

    /// Reports whether an operator has the data type of this service.
    pub(crate) fn is_ours(&self, operator: &Operator) -> bool {
        operator.operator.kind() == self.data.0
    }

    /// Opens `peer` with an unpredictable challenge.
    pub(crate) fn open_acceptor(&mut self, caller: &Caller) -> Result<Reply, Error> {
        let acceptor = Box::new(PeerAcceptor::new(self.random()));
        let opened = self.opened(None, Opened::PeerAcceptor(acceptor), PEER)?;
        if let Reply::Opened(open, _) = &opened
            && let Some(first) = self.unauthenticated.add(caller, open.local())
        {
            self.shut(first);
        }
        Ok(opened)
    }

    /// Rejects further writes to an open file.
    fn shut(&mut self, open: usize) {
        let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open) else { return };
        self.acceptors.retain(|_, it| *it != open);
        acceptor.shut();
        if let Some(writing) = acceptor.join_snapshot.take() {
            self.replica.end_writing(*writing);
        }
        self.join_snapshots.remove(&open);
        self.unauthenticated.remove(open);
        self.count(open);
    }

    /// Rejects further writes of a replica.
    pub(crate) fn shut_acceptor(&mut self, peer: ReplicaId) {
        if let Some(open) = self.acceptors.get(&peer).copied() {
            self.shut(open);
        }
    }

    /// Ends a file `peer` that is closed or evicted. Returns its pending read.
    pub(crate) fn end_acceptor(
        &mut self,
        open: usize,
        mut acceptor: PeerAcceptor,
        why: Error,
        out: &mut Vec<Output>,
    ) -> Vec<RequestId> {
        self.acceptors.retain(|_, it| *it != open);
        if let Some(writing) = acceptor.join_snapshot.take() {
            self.replica.end_writing(*writing);
        }
        self.join_snapshots.remove(&open);
        self.unauthenticated.remove(open);
        acceptor.turn.map(|turn| self.writers.remove(&turn));
        acceptor.end(why, out).into_iter().collect()
    }

    /// Reads `peer`: the challenge, or the verdict and an answer as soon as there is one. A join
    /// snapshot is encoded on demand.
    pub(crate) fn read_acceptor(
        &mut self,
        id: RequestId,
        open: usize,
        read: Read,
        out: &mut Vec<Output>,
    ) {
        let Opened::PeerAcceptor(acceptor) = &mut self.opens[open] else { return };
        if let Some(peer) = acceptor.peer()
            && read.offset >= VERDICT as u64
            && !acceptor.is_answered()
            && let Some(join_snapshot) = self.replica.begin_join_snapshot(peer)
        {
            acceptor.begin_join_snapshot(join_snapshot);
            self.join_snapshots.insert(open);
        }
        self.reading.insert(id, (open, 0));
        if acceptor.read(id, read, out) {
            self.reading.remove(&id);
        }
        self.count(open);
    }

    /// Processes a write to `peer`: a proof immediately, peer messages in their turn.
    pub(crate) fn write_acceptor(
        &mut self,
        id: RequestId,
        open: usize,
        (offset, data): (u64, &[u8]),
        out: &mut Vec<Output>,
    ) {
        let Opened::PeerAcceptor(acceptor) = &mut self.opens[open] else { return };
        if acceptor.is_writing() {
            return out.push(Output::Reply(id, Err(Error::Busy)));
        }
        let count = u32::try_from(data.len()).expect("one message");
        acceptor.begin_write(id, count);
        let entered = acceptor.write(&self.settings, (offset, data), |it| judge(&self.replica, it));
        match entered {
            Ok(None) => self.queue_peer_messages(open),
            Ok(Some(peer)) => {
                acceptor.end_write(Ok(()), out);
                self.unauthenticated.remove(open);
                // Each replica has one link, so a new file replaces an older one.
                if peer != ADMINISTRATOR {
                    self.shut_acceptor(peer);
                    self.acceptors.insert(peer, open);
                }
            }
            Err(Refused) => {
                acceptor.end_write(Err(Error::Denied), out);
                self.shut(open);
            }
        }
        self.count(open);
    }

    /// Processes the written peer messages. Returns whether all are processed.
    pub(crate) fn take_peer_messages(
        &mut self,
        now: Instant,
        open: usize,
        out: &mut Vec<Output>,
    ) -> bool {
        let result = loop {
            let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open) else {
                return true;
            };
            if !acceptor.is_writing() {
                return true;
            }
            if !self.meter.has_left() {
                self.count(open);
                return false;
            }
            // Invalid peer messages fail the write, so that the sender backs off.
            let Some(peer) = acceptor.peer() else { break Err(Error::Denied) };
            let message = match acceptor.next() {
                Ok(Some(message)) => message,
                Ok(None) => break Ok(()),
                Err(Refused) => break Err(Error::Invalid),
            };
            self.count(open);
            self.meter.spend(1 + work::of_bytes(message.len()));
            let peer_message: Result<PeerMessage, _> = binary::read(&message);
            let peer_message = peer_message.map_err(|_| Error::Invalid);
            if let Err(error) =
                peer_message.and_then(|it| self.peer_message(now, open, peer, it, out))
            {
                break Err(error);
            }
        };
        if result.is_err() {
            self.shut(open);
        }
        if let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get_mut(open) {
            acceptor.end_write(result, out);
        }
        self.count(open);
        true
    }

    /// Processes a member's answer to the join request.
    pub(crate) fn receive_answer(
        &mut self,
        now: Instant,
        from: ReplicaId,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) {
        match Answer::read(bytes) {
            Ok(Answer::Begin(join_snapshot)) => {
                self.receive(now, from, (*join_snapshot, &bytes[1..]), out)
            }
            Ok(Answer::No(why)) => {
                self.complain(from, format!("replica {} does not take this one in: {why}", from.0));
            }
            Ok(Answer::Yes) | Err(_) => self.complain_of_version(from),
        }
    }

    fn complain_of_version(&mut self, from: ReplicaId) {
        let id = from.0;
        self.complain(
            from,
            format!(
                "invalid join snapshot from replica {id}; does its server have another version?"
            ),
        );
    }

    /// Starts to store the join snapshot.
    fn receive(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (join_snapshot, bytes): (Snapshot, &[u8]),
        out: &mut Vec<Output>,
    ) {
        let is_member =
            join_snapshot.member_state.membership.members.contains_key(&self.settings.me);
        let is_ours = join_snapshot.rest.iter().all(|entry| self.is_ours(&entry.operator));
        if !is_member || !is_ours || !join_snapshot.is_sound() {
            return self.complain_of_version(from);
        }
        if matches!(self.joining, Some(Joining::Asks)) {
            self.journal.begin(bytes, join_snapshot.rest.len());
            self.joining = Some(Joining::Keeps(Box::new(join_snapshot)));
            for id in self.links.keys().copied().collect::<Vec<_>>() {
                self.step_peer(now, id, peer::Input::Leave, out);
            }
        }
    }

    /// Becomes a member, after the join snapshot is durable.
    pub(crate) fn begin(&mut self, now: Instant, join_snapshot: Snapshot, out: &mut Vec<Output>) {
        let membership = join_snapshot.member_state.membership.clone();
        let (data, me, config) = (self.data, self.settings.me, Hosted::config());
        self.replica =
            Replica::recover(data, me, config, join_snapshot, Vec::<Record<Operator>>::new());
        for link in self.links.values_mut() {
            link.peer = Peer::new(None);
        }
        self.step_replica(now, Input::Watch(self.listeners > 0), out);
        self.follow(now, &membership, out);
    }

    /// Follows a new membership: adds links to new members, and closes those to former ones.
    pub(crate) fn follow(&mut self, now: Instant, membership: &Membership, out: &mut Vec<Output>) {
        let service = self.settings.service.clone();
        let (number, members) = (membership.epoch.number, &membership.members);
        let names = list(members.keys().copied());
        self.notify_news(format!("{service}: epoch {number}: the members are replicas {names}"));
        let me = self.settings.me;
        for (id, place) in members.iter().filter(|(id, _)| **id != me) {
            match (self.links.contains_key(id), address(place)) {
                // It may have connected before it became a member here.
                (true, _) if self.links[id].peer.is_up() => {
                    self.step_replica(now, Input::Connected(*id), out);
                }
                (true, _) => {}
                (false, Some(address)) => self.add_link(*id, vec![address]),
                (false, None) => self.notify_news(format!(
                    "{service}: replica {} is not reached before the next start: {place} is to be \
                     resolved",
                    id.0
                )),
            }
        }
        let gone = |id: &ReplicaId| !members.contains_key(id);
        for id in self.links.keys().copied().filter(gone).collect::<Vec<_>>() {
            self.step_peer(now, id, peer::Input::Leave, out);
            self.links.get_mut(&id).expect("it is there").is_closed = true;
            self.with_remote(now, id, Remote::close, out);
        }
        for id in self.acceptors.keys().copied().filter(gone).collect::<Vec<_>>() {
            self.shut_acceptor(id);
        }
        let known = self.origins();
        for (_, opened) in &mut self.opens {
            if let Opened::Ops(op_session, _) = opened {
                op_session.know(&known);
            }
        }
    }

    /// Returns the valid origins in tokens, if they are known.
    pub(crate) fn known(&self) -> Option<Vec<ReplicaId>> {
        self.joining.is_none().then(|| self.origins())
    }

    /// Returns the replicas whose operations count.
    pub(crate) fn origins(&self) -> Vec<ReplicaId> {
        self.replica.membership().origins().collect()
    }
}

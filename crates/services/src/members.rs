//! Changes of a service's membership, as seen by the server of one member.
//!
//! A new replica writes a join request to `peer` and reads its initial snapshot there; an
//! administrator writes a membership request and reads the outcome. Both prove that they know the
//! secret, as members do.

use crate::door::{Door, Read, Refused};
use crate::files::{Opened, PEER};
use crate::hosted::Hosted;
use crate::letter::{Answer, Letter};
use crate::peer::{self, Peer};
use crate::proof::{VERDICT, Verdict};
use crate::{Data, Operator, Snapshot};
use base::op::Address;
use base::{Caller, Error, Instant};
use replica::binary;
use replica::service::{
    Change, Input, MEMBERS_MAX, Membership, ORIGINS_MAX, Objection, Record, Replica, ReplicaId,
    Wish,
};
use replica::work;
use std::collections::BTreeSet;
use tree::{Output, Reply, RequestId, remote::Remote};

/// Identity of an administrator, who has the service's key, on the file `peer`.
pub const ADMINISTRATOR: ReplicaId = ReplicaId(0);

/// Progress of a joining replica.
#[derive(Debug)]
pub(crate) enum Joining {
    /// Asking one member after the other.
    Asks,
    /// Waiting for the join snapshot to be durable.
    Keeps(Box<Snapshot>),
}

/// Role of an authenticated peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
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
        Objection::Nothing => "it is so, or is under way".to_string(),
        Objection::Outside => {
            "this replica is no member, or is said to be lost: ask another one".to_string()
        }
        Objection::Unknown(ids) => format!("{} is no member: see its status", these(ids)),
        Objection::Known(ids) => {
            format!("{} is a member or was one: take another number", these(ids))
        }
        Objection::Nobody => "no replica would be left that has the data".to_string(),
        Objection::Most => "half of the members or more would be lost, and could go on without \
             those that are left: if you are sure that they do not, say --force"
            .to_string(),
        Objection::Split => "the replicas to be lost may have completed the change that is under \
             way, and could go on without those that are left: if you are sure that they do not, \
             say --force"
            .to_string(),
        Objection::Many => format!(
            "a service has at most {MEMBERS_MAX} members, and {ORIGINS_MAX} in all its time: make \
             a new one with 'upcall replica init'"
        ),
    }
}

/// Explains why two changes cannot be joined, for people.
pub(crate) fn explain_clash(objection: &Objection) -> String {
    let both = "this change, and what another replica was asked for,";
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
fn who(replica: &Replica<Data>, id: ReplicaId) -> Who {
    let standing = replica.standing();
    let comes = standing.change.as_ref().is_some_and(|it| it.members.contains_key(&id));
    match id {
        ADMINISTRATOR => Who::Administrator,
        id if replica.membership().retired.contains_key(&id) => Who::Retired,
        id if comes || standing.membership.members.contains_key(&id) => Who::Member,
        _guest => Who::Guest,
    }
}

/// Returns the verdict for an authenticated peer.
pub(crate) fn judge(replica: &Replica<Data>, id: ReplicaId) -> Verdict {
    match who(replica, id) {
        Who::Administrator | Who::Member | Who::Guest => Verdict::Welcome,
        Who::Retired => Verdict::Farewell,
    }
}

impl Hosted {
    /// Processes a letter of an authenticated peer.
    pub(crate) fn letter(
        &mut self,
        now: Instant,
        open: usize,
        from: ReplicaId,
        letter: Letter,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        // Further letters require another open file.
        if matches!(&self.opens[open], Opened::Door(door) if door.is_answered()) {
            return Err(Error::Denied);
        }
        match (letter, who(&self.replica, from)) {
            (Letter::Gossip(mut message), Who::Member) => {
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
                self.step_replica(now, Input::Heard(from, message), out);
                Ok(())
            }
            (Letter::Join(place), Who::Member) if self.is_at(from, &place) => Ok(()),
            (Letter::Silent(vote), Who::Member) => {
                self.step_replica(now, Input::Voted(from, vote), out);
                Ok(())
            }
            // Another replica has taken its number meanwhile.
            (Letter::Join(_), Who::Member) => {
                let why = format!(
                    "another one has the number {}, or is at its address: make a new file with \
                     'upcall replica join', which takes another number",
                    from.0
                );
                self.answer(open, &Answer::No(why))
            }
            (Letter::Join(place), Who::Guest) => {
                let wish = Wish { add: [(from, place)].into(), ..Wish::default() };
                match self.wish(now, &wish, out) {
                    Ok(()) => Ok(()),
                    Err(why) => self.answer(open, &Answer::No(why)),
                }
            }
            (Letter::Wish(wish), Who::Administrator) => {
                let answer = self.wish(now, &wish, out).map_or_else(Answer::No, |()| Answer::Yes);
                self.answer(open, &answer)
            }
            (Letter::Gossip(_) | Letter::Join(_) | Letter::Wish(_) | Letter::Silent(_), _) => {
                Err(Error::Denied)
            }
        }
    }

    /// Starts the requested change of members.
    fn wish(&mut self, now: Instant, wish: &Wish, out: &mut Vec<Output>) -> Result<(), String> {
        if self.journal.failed().is_some() || self.replica.is_outdated() {
            return Err("this replica cannot keep anything: ask another one".to_string());
        }
        for (id, place) in &wish.add {
            if *id == ADMINISTRATOR || address(place).is_none() {
                let id = id.0;
                return Err(format!("'{place}' is no address in numbers for a replica {id}"));
            }
        }
        let change = match self.replica.plan(wish) {
            Ok(change) => change,
            // Already done or in progress: a client that repeats a request waits for it again.
            Err(Objection::Nothing) => return Ok(()),
            Err(objection) => return Err(explain(&objection)),
        };
        let (name, aim) = (&self.settings.service, aim(&change));
        self.tell_news(format!("{name}: the members are to be replicas {aim}"));
        self.step_replica(now, Input::Change(change), out);
        Ok(())
    }

    /// Answers the letter on an open file.
    fn answer(&mut self, open: usize, answer: &Answer) -> Result<(), Error> {
        let Opened::Door(door) = &mut self.opens[open] else { return Err(Error::Denied) };
        door.answer(&binary::write(answer));
        Ok(())
    }

    /// Reports whether a current or future member has this address.
    fn is_at(&self, id: ReplicaId, place: &str) -> bool {
        let standing = self.replica.standing();
        let coming = standing.change.as_ref().and_then(|change| change.members.get(&id));
        let there = standing.membership.members.get(&id).or(coming);
        there.is_some_and(|there| there == place)
    }

    /// Reports whether an operator has the data type of this service.
    pub(crate) fn is_ours(&self, operator: &Operator) -> bool {
        operator.operator.kind() == self.data.0
    }

    /// Opens `peer` with an unpredictable challenge.
    pub(crate) fn open_door(&mut self, caller: &Caller) -> Result<Reply, Error> {
        let door = Box::new(Door::new(self.random()));
        let opened = self.opened(None, Opened::Door(door), PEER)?;
        if let Reply::Opened(open, _) = &opened
            && let Some(first) = self.strangers.add(caller, open.local())
        {
            self.shut(first);
        }
        Ok(opened)
    }

    /// Rejects further writes to an open file.
    fn shut(&mut self, open: usize) {
        let Some(Opened::Door(door)) = self.opens.get_mut(open) else { return };
        self.doors.retain(|_, it| *it != open);
        door.shut();
        if let Some(writing) = door.gift.take() {
            self.replica.end_writing(*writing);
        }
        self.gifts.remove(&open);
        self.strangers.remove(open);
        self.count(open);
    }

    /// Rejects further writes of a replica.
    pub(crate) fn shut_door(&mut self, peer: ReplicaId) {
        if let Some(open) = self.doors.get(&peer).copied() {
            self.shut(open);
        }
    }

    /// Ends a file `peer` that is closed or evicted. Returns its pending read.
    pub(crate) fn end_door(
        &mut self,
        open: usize,
        mut door: Door,
        why: Error,
        out: &mut Vec<Output>,
    ) -> Vec<RequestId> {
        self.doors.retain(|_, it| *it != open);
        if let Some(writing) = door.gift.take() {
            self.replica.end_writing(*writing);
        }
        self.gifts.remove(&open);
        self.strangers.remove(open);
        door.turn.map(|turn| self.writers.remove(&turn));
        door.end(why, out).into_iter().collect()
    }

    /// Reads `peer`: the challenge, or the verdict and an answer as soon as there is one. A join
    /// snapshot is encoded on demand.
    pub(crate) fn read_door(
        &mut self,
        id: RequestId,
        open: usize,
        read: Read,
        out: &mut Vec<Output>,
    ) {
        let Opened::Door(door) = &mut self.opens[open] else { return };
        if let Some(peer) = door.peer()
            && read.offset >= VERDICT as u64
            && !door.is_answered()
            && let Some(gift) = self.replica.begin_gift(peer)
        {
            door.begin_gift(gift);
            self.gifts.insert(open);
        }
        self.reading.insert(id, (open, 0));
        if door.read(id, read, out) {
            self.reading.remove(&id);
        }
        self.count(open);
    }

    /// Processes a write to `peer`: a proof immediately, letters in their turn.
    pub(crate) fn write_door(
        &mut self,
        id: RequestId,
        open: usize,
        (offset, data): (u64, &[u8]),
        out: &mut Vec<Output>,
    ) {
        let Opened::Door(door) = &mut self.opens[open] else { return };
        if door.is_writing() {
            return out.push(Output::Reply(id, Err(Error::Busy)));
        }
        let count = u32::try_from(data.len()).expect("one message");
        door.begin_write(id, count);
        let entered = door.write(&self.settings, (offset, data), |it| judge(&self.replica, it));
        match entered {
            Ok(None) => self.queue_letters(open),
            Ok(Some(peer)) => {
                door.end_write(Ok(()), out);
                self.strangers.remove(open);
                // Each replica has one link, so a new file replaces an older one.
                if peer != ADMINISTRATOR {
                    self.shut_door(peer);
                    self.doors.insert(peer, open);
                }
            }
            Err(Refused) => {
                door.end_write(Err(Error::Denied), out);
                self.shut(open);
            }
        }
        self.count(open);
    }

    /// Processes the written letters. Returns whether all are processed.
    pub(crate) fn take_letters(
        &mut self,
        now: Instant,
        open: usize,
        out: &mut Vec<Output>,
    ) -> bool {
        let result = loop {
            let Some(Opened::Door(door)) = self.opens.get_mut(open) else { return true };
            if !door.is_writing() {
                return true;
            }
            if !self.meter.has_left() {
                self.count(open);
                return false;
            }
            // Invalid letters fail the write, so that the sender backs off.
            let Some(peer) = door.peer() else { break Err(Error::Denied) };
            let message = match door.next() {
                Ok(Some(message)) => message,
                Ok(None) => break Ok(()),
                Err(Refused) => break Err(Error::Invalid),
            };
            self.count(open);
            self.meter.spend(1 + work::of_bytes(message.len()));
            let letter: Result<Letter, _> = binary::read(&message);
            let letter = letter.map_err(|_| Error::Invalid);
            if let Err(error) = letter.and_then(|it| self.letter(now, open, peer, it, out)) {
                break Err(error);
            }
        };
        if result.is_err() {
            self.shut(open);
        }
        if let Some(Opened::Door(door)) = self.opens.get_mut(open) {
            door.end_write(result, out);
        }
        self.count(open);
        true
    }

    /// Processes a member's answer to the join request.
    pub(crate) fn hear_answer(
        &mut self,
        now: Instant,
        from: ReplicaId,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) {
        match Answer::read(bytes) {
            Ok(Answer::Begin(gift)) => self.receive(now, from, (*gift, &bytes[1..]), out),
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
                "what replica {id} has sent to begin with makes no sense: is its server of \
                 another version?"
            ),
        );
    }

    /// Starts to store the join snapshot.
    fn receive(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (gift, bytes): (Snapshot, &[u8]),
        out: &mut Vec<Output>,
    ) {
        let is_member = gift.standing.membership.members.contains_key(&self.settings.me);
        let is_ours = gift.rest.iter().all(|entry| self.is_ours(&entry.operator));
        if !is_member || !is_ours || !gift.is_sound() {
            return self.complain_of_version(from);
        }
        if matches!(self.joining, Some(Joining::Asks)) {
            self.journal.begin(bytes);
            self.joining = Some(Joining::Keeps(Box::new(gift)));
            for id in self.links.keys().copied().collect::<Vec<_>>() {
                self.step_peer(now, id, peer::Input::Leave, out);
            }
        }
    }

    /// Becomes a member, after the join snapshot is durable.
    pub(crate) fn begin(&mut self, now: Instant, gift: Snapshot, out: &mut Vec<Output>) {
        let membership = gift.standing.membership.clone();
        let (data, me, config) = (self.data, self.settings.me, Hosted::config());
        self.replica = Replica::recover(data, me, config, gift, Vec::<Record<Operator>>::new());
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
        self.tell_news(format!("{service}: epoch {number}: the members are replicas {names}"));
        let me = self.settings.me;
        for (id, place) in members.iter().filter(|(id, _)| **id != me) {
            match (self.links.contains_key(id), address(place)) {
                // It may have connected before it became a member here.
                (true, _) if self.links[id].peer.is_up() => {
                    self.step_replica(now, Input::Connected(*id), out);
                }
                (true, _) => {}
                (false, Some(address)) => self.add_link(*id, vec![address]),
                (false, None) => self.tell_news(format!(
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
        for id in self.doors.keys().copied().filter(gone).collect::<Vec<_>>() {
            self.shut_door(id);
        }
        let known = self.origins();
        for (_, opened) in &mut self.opens {
            if let Opened::Ops(talk, _) = opened {
                talk.know(&known);
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

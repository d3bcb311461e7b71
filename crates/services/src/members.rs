//! How the members of a service change, as the server of one of them sees it.
//!
//! A new one writes to `peer` that it wants to be a member, and reads there what it begins with; an
//! administrator writes what is wished, and reads what came of it. Both prove that they know the
//! secret, as members do.

use crate::files::Opened;
use crate::hosted::Hosted;
use crate::letter::Letter;
use crate::peer::{self, Peer};
use crate::{Operator, Snapshot};
use base::op::Address;
use base::{Error, Instant};
use replica::binary;
use replica::service::{Change, Input, Membership, Objection, Record, Replica, ReplicaId, Wish};
use std::collections::BTreeSet;
use tree::Output;
use tree::flat::part;
use tree::{Reply, remote::Remote};

/// Who writes to `peer`, and is no replica: the one who has the key of the service.
pub const ADMINISTRATOR: ReplicaId = ReplicaId(0);

/// How a replica that is no member yet becomes one.
#[derive(Debug)]
pub(crate) enum Joining {
    /// It asks one member after the other.
    Asks,
    /// It has what it begins with, as soon as that is durable.
    Keeps(Box<Snapshot>),
}

/// Who somebody is who has proved a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Administrator,
    Member,
    /// Was a member.
    Retired,
    /// Wants to be a member.
    Guest,
}

/// Where a server is, if that is no name, which somebody would have to resolve.
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

/// The numbers of replicas, for people.
pub fn list(ids: impl IntoIterator<Item = ReplicaId>) -> String {
    let names: Vec<String> = ids.into_iter().map(|id| id.0.to_string()).collect();
    names.join(", ")
}

/// What a change leads to, for people.
pub(crate) fn aim(change: &Change) -> String {
    let members = list(change.members.keys().copied());
    match change.lost.is_empty() {
        true => members,
        false => format!("{members}; lost: {}", list(change.lost.iter().copied())),
    }
}

/// Why a wish is not granted, for people.
fn explain(objection: &Objection) -> String {
    let these = |ids: &BTreeSet<ReplicaId>| list(ids.iter().copied());
    match objection {
        Objection::Nothing => "nothing would change: it is so, or is under way".to_string(),
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
    }
}

impl Hosted {
    /// Who has this name.
    pub(crate) fn who(&self, id: ReplicaId) -> Who {
        let standing = self.replica.standing();
        let comes = standing.change.as_ref().is_some_and(|it| it.members.contains_key(&id));
        let here = self.replica.membership();
        match id {
            ADMINISTRATOR => Who::Administrator,
            id if here.retired.contains_key(&id) => Who::Retired,
            id if comes || standing.membership.members.contains_key(&id) => Who::Member,
            _guest => Who::Guest,
        }
    }

    /// Takes what somebody writes who has proved who it is.
    pub(crate) fn letter(
        &mut self,
        now: Instant,
        open: usize,
        from: ReplicaId,
        letter: Letter,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        match (letter, self.who(from)) {
            (Letter::Gossip(message), Who::Member) => {
                if !message.entries.iter().all(|entry| self.is_ours(&entry.operator)) {
                    return Err(Error::Invalid);
                }
                if let Some(error) = self.journal.refusal().filter(|_| !message.entries.is_empty())
                {
                    // It is told again later, by another door.
                    return Err(error);
                }
                self.step_replica(now, Input::Heard(from, message), out);
                Ok(())
            }
            // Its number may have been taken by another one meanwhile.
            (Letter::Join(place), Who::Member) if self.is_at(from, &place) => Ok(()),
            (Letter::Join(place), Who::Guest) if address(&place).is_some() => {
                let wish = Wish { add: [(from, place)].into(), ..Wish::default() };
                let change = self.replica.plan(&wish).map_err(|_| Error::Denied)?;
                self.change(now, change, out);
                Ok(())
            }
            (Letter::Wish(wish), Who::Administrator) => {
                let said = match self.replica.plan(&wish) {
                    Ok(change) => {
                        self.change(now, change, out);
                        String::new()
                    }
                    Err(objection) => explain(&objection),
                };
                if let Opened::Door(door) = &mut self.opens[open] {
                    door.say(said.into_bytes());
                }
                Ok(())
            }
            (Letter::Gossip(_) | Letter::Join(_) | Letter::Wish(_), _) => Err(Error::Denied),
        }
    }

    /// Whether a member is there, or one that comes.
    fn is_at(&self, id: ReplicaId, place: &str) -> bool {
        let standing = self.replica.standing();
        let coming = standing.change.as_ref().and_then(|change| change.members.get(&id));
        let there = standing.membership.members.get(&id).or(coming);
        there.is_some_and(|there| there == place)
    }

    /// Whether this is an operator of the type of this service.
    pub(crate) fn is_ours(&self, operator: &Operator) -> bool {
        operator.operator.kind() == self.data.0
    }

    fn change(&mut self, now: Instant, change: Change, out: &mut Vec<Output>) {
        let (name, aim) = (&self.settings.service, aim(&change));
        self.tell_news(format!("{name}: the members are to be replicas {aim}"));
        self.step_replica(now, Input::Change(change), out);
    }

    /// What is to be read at `peer`: a challenge, what a wish came to, or what a new member begins
    /// with; nothing as long as that is not known.
    pub(crate) fn read_door(
        &mut self,
        open: usize,
        (offset, count): (u64, u32),
        headroom: u32,
    ) -> Result<Reply, Error> {
        let Opened::Door(door) = &mut self.opens[open] else { return Err(Error::Denied) };
        if let Some(challenge) = door.challenge() {
            return Ok(Reply::Data(part(challenge, offset, count, headroom)));
        }
        let peer = door.peer().ok_or(Error::Denied)?;
        if door.said().is_empty()
            && let Some(gift) = self.replica.gift(peer)
        {
            door.say(binary::write(&gift));
        }
        Ok(Reply::Data(part(door.said(), offset, count, headroom)))
    }

    /// What this replica begins with has come.
    pub(crate) fn receive(&mut self, now: Instant, gift: &[u8], out: &mut Vec<Output>) {
        let gift: Option<Snapshot> = binary::read(gift).ok();
        let me = self.settings.me;
        let fits = |gift: &Snapshot| {
            let is_member = gift.standing.membership.members.contains_key(&me);
            is_member
                && gift.is_sound()
                && gift.rest.iter().all(|entry| self.is_ours(&entry.operator))
        };
        let Some(gift) = gift.filter(fits) else {
            return self.tell_news(format!(
                "{}: what a member has sent to begin with makes no sense: is its server of another \
                 version?",
                self.settings.service
            ));
        };
        if matches!(self.joining, Some(Joining::Asks)) {
            self.journal.begin(&gift);
            self.joining = Some(Joining::Keeps(Box::new(gift)));
            for id in self.ways.keys().copied().collect::<Vec<_>>() {
                self.step_peer(now, id, peer::Input::Leave, out);
            }
        }
    }

    /// What it begins with is durable: it is a member.
    pub(crate) fn begin(&mut self, now: Instant, gift: Snapshot, out: &mut Vec<Output>) {
        let membership = gift.standing.membership.clone();
        let (data, me, config) = (self.data, self.settings.me, Hosted::config());
        self.replica = Replica::recover(data, me, config, gift, Vec::<Record<Operator>>::new());
        for way in self.ways.values_mut() {
            way.peer = Peer::new(None);
        }
        self.follow(now, &membership, out);
    }

    /// The members are others: finds ways to those who are new, and has none to those who are gone.
    pub(crate) fn follow(&mut self, now: Instant, membership: &Membership, out: &mut Vec<Output>) {
        let service = self.settings.service.clone();
        let (number, members) = (membership.epoch.number, &membership.members);
        let names = list(members.keys().copied());
        self.tell_news(format!("{service}: epoch {number}: the members are replicas {names}"));
        let me = self.settings.me;
        for (id, place) in members.iter().filter(|(id, _)| **id != me) {
            match (self.ways.contains_key(id), address(place)) {
                // It may have been there before anybody listened to what it says.
                (true, _) if self.ways[id].peer.is_up() => {
                    self.step_replica(now, Input::Connected(*id), out);
                }
                (true, _) => {}
                (false, Some(address)) => self.find_way(*id, vec![address]),
                (false, None) => self.tell_news(format!(
                    "{service}: replica {} is not reached before the next start: {place} is to be \
                     resolved",
                    id.0
                )),
            }
        }
        let gone = |id: &ReplicaId| !members.contains_key(id);
        for id in self.ways.keys().copied().filter(gone).collect::<Vec<_>>() {
            self.step_peer(now, id, peer::Input::Leave, out);
            self.ways.get_mut(&id).expect("it is there").is_closed = true;
            self.with_remote(now, id, Remote::close, out);
        }
        let is_gone = |id: ReplicaId| id != ADMINISTRATOR && gone(&id);
        let known = self.origins();
        for (_, opened) in &mut self.opens {
            match opened {
                Opened::Door(door) if door.peer().is_some_and(is_gone) => door.shut(),
                Opened::Ops(talk, _) => talk.know(&known),
                Opened::Door(_) | Opened::Directory | Opened::Text(_) | Opened::Events(..) => {}
            }
        }
    }

    /// Whose operations there may be: whom tokens may name.
    pub(crate) fn origins(&self) -> Vec<ReplicaId> {
        self.replica.membership().origins().collect()
    }
}

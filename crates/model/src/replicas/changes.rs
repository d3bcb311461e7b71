//! Membership changes: members join, leave and are lost.

use super::clients::name;
use super::world::{Event, ReplicaHost, World, config};
use super::{Mistake, Replica};
use crate::op_list::OpList;
use esds::Id;
use replica::service::{
    Change, ChangeRequest, Input, Membership, Message, Objection, ReplicaId, Snapshot, Ticket,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of replica identifiers.
const HOUSES_MAX: u16 = 9;

/// Maximum repetitions of an administrator's request for a change that does not complete.
const CHANGES_MAX: usize = 20;

/// Maximum difference of the times at which two replicas detect a silent member.
const SILENCE: Duration = Duration::from_secs(1);

/// Delay before the start of a new member.
const BEGINS: Duration = Duration::from_millis(50);

impl World {
    /// An administrator requests a change of members.
    pub(super) fn change(&mut self, at: u16) -> Result<(), String> {
        let change_request = self.change_request(at);
        // Members declared lost are often gone, but not always.
        if self.rng.bool() {
            change_request.lost.iter().try_for_each(|id| self.die(id.0))?;
        }
        self.ask_for(at, &change_request)
    }

    fn ask_for(&mut self, at: u16, change_request: &ChangeRequest) -> Result<(), String> {
        match self.host(at).replica.plan(change_request) {
            Ok(change) => self.step(at, Input::Change(change)),
            Err(
                Objection::Nothing
                | Objection::Outside
                | Objection::Most
                | Objection::Split
                | Objection::Nobody
                | Objection::Many,
            ) => Ok(()),
            Err(other @ (Objection::Unknown(_) | Objection::Known(_))) => {
                Err(format!("{at} does not know its members: {other:?} for {change_request:?}"))
            }
        }
    }

    fn change_request(&mut self, at: u16) -> ChangeRequest {
        let members = self.host(at).replica.member_state().membership.members.clone();
        let mut change_request = ChangeRequest { lost: self.lost(at), ..ChangeRequest::default() };
        if self.rng.bool() && self.next_house < HOUSES_MAX {
            change_request.add.insert(name(self.next_house), String::new());
            self.next_house += 1;
        }
        // One member always stays; otherwise requests could contradict each other.
        let others = members.into_keys().filter(|id| !self.doomed.contains(&id.0));
        let others: Vec<ReplicaId> = others.skip(1).collect();
        if self.rng.bool() && !others.is_empty() {
            change_request.remove.insert(others[self.rng.usize(..others.len())]);
        }
        change_request
    }

    /// Chooses the members to declare lost: those that are gone, or one that may be lost, if no
    /// other is declared lost in this epoch.
    fn lost(&mut self, at: u16) -> BTreeSet<ReplicaId> {
        let members = self.host(at).replica.member_state().membership.clone();
        let is_member = |id: &u16| members.members.contains_key(&name(*id));
        let gone = self.doomed.iter().filter(|id| !self.hosts.contains_key(id)).copied();
        let gone: BTreeSet<ReplicaId> = gone.filter(is_member).map(name).collect();
        let loses = |host: &ReplicaHost| {
            let change = host.replica.member_state().change.as_ref();
            change.is_some_and(|change| !change.lost.is_empty())
        };
        if !gone.is_empty() || self.hosts.values().any(loses) || self.rng.bool() {
            return gone;
        }
        let silenced = self.silenced.filter(is_member);
        let may = |id: &&u16| is_member(id) && **id != at && silenced.is_none_or(|it| it == **id);
        self.doomed.iter().filter(may).map(|id| name(*id)).take(1).collect()
    }

    /// A member that may be lost becomes silent to the others, at different times. It is gone, or
    /// some hear it again later.
    pub(super) fn silence(&mut self) -> Result<(), String> {
        let at = self.any();
        let members = self.host(at).replica.member_state().membership.members.clone();
        let first = self.doomed.iter().copied().find(|id| members.contains_key(&name(*id)));
        let loses = |host: &ReplicaHost| {
            let change = host.replica.member_state().change.as_ref();
            change.is_some_and(|change| !change.lost.is_empty())
        };
        let many = members.len() > 2 && self.hosts.len() > 2;
        let Some(id) = first.filter(|_| many) else { return Ok(()) };
        if self.hosts.values().any(loses) {
            return Ok(());
        }
        self.silenced = Some(id);
        if self.rng.bool() && self.hosts.contains_key(&id) {
            self.die(id)?;
        }
        let others: Vec<u16> = self.hosts.keys().copied().filter(|it| *it != id).collect();
        for other in others {
            self.soon(SILENCE, Event::Silent(other, [name(id)].into()));
        }
        Ok(())
    }

    /// A replica reports silent members. Those that are not gone are heard again later.
    pub(super) fn silent(&mut self, at: u16, silent: BTreeSet<ReplicaId>) -> Result<(), String> {
        if !self.hosts.contains_key(&at) {
            return Ok(());
        }
        if silent.iter().any(|id| self.hosts.contains_key(&id.0)) {
            self.soon(SILENCE * 4, Event::Silent(at, BTreeSet::new()));
        }
        self.step(at, Input::Silent(silent))
    }

    /// A replica is lost permanently.
    fn die(&mut self, at: u16) -> Result<(), String> {
        self.hosts.remove(&at);
        self.waiting_at(at).into_iter().for_each(|ticket| self.give_up(ticket));
        for other in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.step(other, Input::Disconnected(name(at)))?;
        }
        Ok(())
    }

    /// Delivers a message; a removed replica is informed instead.
    pub(super) fn arrives(
        &mut self,
        from: u16,
        to: u16,
        message: Message<Id>,
    ) -> Result<(), String> {
        let (member_state, id) = (self.host(to).replica.member_state(), name(from));
        let comes = member_state.change.as_ref().is_some_and(|it| it.members.contains_key(&id));
        match self.host(to).replica.membership().retired.contains_key(&id) {
            false if comes || member_state.membership.members.contains_key(&id) => {
                self.step(to, Input::Received(id, message))
            }
            true => {
                self.soon(self.params.delay, Event::Refuses(to, from));
                Ok(())
            }
            false => Ok(()),
        }
    }

    /// A replica has entered another epoch.
    pub(super) fn members(&mut self, at: u16, membership: &Membership) -> Result<(), String> {
        self.report.epochs += 1;
        for id in membership.retired.keys() {
            self.soon(self.params.delay, Event::Refuses(at, id.0));
        }
        for id in membership.members.keys().filter(|id| id.0 != at) {
            if self.hosts.contains_key(&id.0) {
                self.step(at, Input::Connected(*id))?;
            } else if !self.doomed.contains(&id.0) {
                self.soon(BEGINS, Event::Begins(id.0));
            }
        }
        Ok(())
    }

    /// A replica rejects a former member, which is informed.
    pub(super) fn refuses(&mut self, at: u16, other: u16) -> Result<(), String> {
        if self.is_cut(at, other) {
            self.soon(BEGINS, Event::Refuses(at, other));
            return Ok(());
        }
        match self.hosts.contains_key(&other) {
            true => self.step(other, Input::Removed(name(at))),
            false => Ok(()),
        }
    }

    /// A new member starts from the join snapshot of another one.
    pub(super) fn begins(&mut self, at: u16) -> Result<(), String> {
        let is_member = |host: &ReplicaHost| {
            let member_state = host.replica.member_state();
            member_state.membership.members.contains_key(&name(at)) && !host.replica.is_removed()
        };
        if self.hosts.contains_key(&at) || !self.hosts.values().any(is_member) {
            return Ok(());
        }
        let join_snapshots: Vec<Snapshot<OpList>> =
            self.hosts.values().filter_map(|host| host.replica.join_snapshot(name(at))).collect();
        if join_snapshots.is_empty() {
            self.count()?;
            // The change may wait for a lost member.
            if self.is_over() {
                self.request_again()?;
            }
            self.soon(BEGINS, Event::Begins(at));
            return Ok(());
        }
        let mut join_snapshot = join_snapshots[self.rng.usize(..join_snapshots.len())].clone();
        if self.params.mistake == Some(Mistake::EmptyGift) {
            let membership = (*join_snapshot.member_state.membership).clone();
            join_snapshot = Snapshot::empty(&OpList, membership);
        }
        let replica = Replica::recover(OpList, name(at), config(&self.params), join_snapshot, []);
        self.hosts.insert(at, ReplicaHost::new(replica));
        for other in self.hosts.keys().copied().filter(|other| *other != at).collect::<Vec<_>>() {
            self.step(at, Input::Connected(name(other)))?;
            self.step(other, Input::Connected(name(at)))?;
        }
        Ok(())
    }

    /// Reports whether a refusal for lost predecessors is justified; the client forgets those.
    pub(super) fn has_lost(&mut self, at: u16, ticket: Ticket, lost: &[ReplicaId]) -> bool {
        let counts = self.host(at).replica.member_state().membership.retired.clone();
        let is_lost = |id: &ReplicaId| counts.contains_key(id) && self.doomed.contains(&id.0);
        let rightly = !lost.is_empty() && lost.iter().all(is_lost);
        let client = self.client_of(ticket);
        for id in lost {
            let most = counts.get(id).copied().unwrap_or(0);
            let token = std::mem::take(&mut self.clients[client].token);
            self.clients[client].token = token.up_to(*id, most);
            self.forget_seen(client, id.0);
        }
        rightly
    }

    /// Reports whether a replica's claim not to be a member is justified.
    pub(super) fn is_outside(&mut self, at: u16, ticket: Ticket) -> bool {
        let client = self.client_of(ticket);
        self.clients[client].replica = self.any();
        let replica = &self.host(at).replica;
        let leaves = |change: &Change| !change.members.contains_key(&name(at));
        replica.is_removed() || replica.member_state().change.as_ref().is_some_and(|it| leaves(it))
    }

    /// Checks the final state: all members have everything.
    pub(super) fn ends_well(&mut self) -> Result<(), String> {
        let there = self.hosts.values().filter(|host| !host.replica.is_removed());
        let newest = there.map(|host| host.replica.membership());
        let newest = newest.max_by_key(|membership| membership.epoch).expect("a house").clone();
        for (at, host) in &mut self.hosts {
            let member_state = host.replica.member_state();
            if !newest.members.contains_key(&name(*at)) {
                continue;
            }
            if member_state.membership.epoch != newest.epoch || member_state.change.is_some() {
                let unsealed = host.replica.unsealed();
                return Err(format!("G4: {at} waits for {unsealed:?} to change: {member_state:?}"));
            }
            let agreed = self.memory.agree(host.replica.stable());
            agreed.map_err(|wrong| format!("I6: at {at} what is final is {wrong}"))?;
            if host.replica.stable() != self.memory.order() || host.replica.kept() > 0 {
                let (kept, stable) = (host.replica.kept(), host.replica.stable());
                return Err(format!("G4: nothing happens, {kept} are kept, {stable:?} is final"));
            }
            if host.replica.current() != self.memory.order() {
                return Err("G4: the present state is not the final one".into());
            }
        }
        Ok(())
    }

    /// Forces a change that does not complete because it needs a lost member or conflicts with
    /// another change. Returns whether it did.
    pub(super) fn request_again(&mut self) -> Result<bool, String> {
        let needs = self.needs();
        let again = needs.is_some() && self.again < CHANGES_MAX;
        if let Some((at, lost)) = needs.filter(|_| again) {
            self.again += 1;
            self.ask_for(at, &ChangeRequest { lost, forced: true, ..ChangeRequest::default() })?;
        }
        Ok(again)
    }

    /// Returns a member that declares others lost, and these others, if a third member objects
    /// because they may have continued.
    fn clashing(&self) -> Option<(u16, BTreeSet<ReplicaId>)> {
        let mut hosts = self.hosts.values();
        let clashes = hosts.any(|host| host.replica.clash() == Some(&Objection::Split));
        let gives_up = |(at, host): (&u16, &ReplicaHost)| {
            let change = host.replica.member_state().change.as_ref()?;
            let may = !change.lost.is_empty() && !host.replica.is_removed();
            (may && !change.forced).then(|| (*at, change.lost.clone()))
        };
        self.hosts.iter().find_map(gives_up).filter(|_| clashes)
    }

    /// Returns a member that waits for lost members, and these members.
    fn needs(&self) -> Option<(u16, BTreeSet<ReplicaId>)> {
        let needs = |(at, host): (&u16, &ReplicaHost)| {
            let member_state = host.replica.member_state();
            let (members, change) = (&member_state.membership.members, &member_state.change);
            let is_gone = |id: &&ReplicaId| !self.hosts.contains_key(&id.0);
            let gone: BTreeSet<ReplicaId> = members
                .keys()
                .filter(is_gone)
                .filter(|id| self.doomed.contains(&id.0))
                .copied()
                .collect();
            let in_hand = change.as_ref().is_some_and(|change| change.lost == gone);
            let waits = !gone.is_empty() && !in_hand && !host.replica.is_removed();
            (waits && members.contains_key(&name(*at))).then_some((*at, gone))
        };
        self.hosts.iter().find_map(needs).or_else(|| self.clashing())
    }
}

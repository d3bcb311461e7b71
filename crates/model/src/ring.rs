//! The election of a leader, in every order in which its messages can travel.

use crate::reach::{Found, reach};
use crate::{State, Verdict, Whole};
use replica::ioa::{Channelled, Combined, Discipline, IoAutomaton, Reserved};
use replica::ring::Member;

/// The members of a composition, however they talk.
pub trait Ring {
    /// The members, in the order of the ring.
    fn members(&self) -> Vec<&Member>;
}

impl Ring for Combined<Member> {
    fn members(&self) -> Vec<&Member> {
        self.parts().iter().collect()
    }
}

impl Ring for Channelled<Member> {
    fn members(&self) -> Vec<&Member> {
        self.parts().iter().collect()
    }
}

impl Ring for Channelled<Reserved<Member>> {
    fn members(&self) -> Vec<&Member> {
        self.parts().iter().map(Reserved::part).collect()
    }
}

/// Checks one composition: at most one leads, it is the one with the greatest identifier, and it
/// can always still be found.
pub fn check<C>(ring: C, states_max: usize) -> (Verdict, Found<C>)
where
    C: IoAutomaton + Ring + State,
{
    let found = reach(&ring, led, states_max);
    let whole = Whole { initial: ring, wrong, sometimes: [led, led], within: |_| true };
    (whole.check(states_max), found)
}

fn led<C: Ring>(ring: &C) -> bool {
    ring.members().iter().any(|member| member.leads())
}

fn wrong<C: Ring>(ring: &C) -> Option<String> {
    let members = ring.members();
    let greatest = members.iter().map(|member| member.identifier()).max();
    let wrong =
        members.iter().find(|member| member.leads() && Some(member.identifier()) != greatest);
    wrong.map(|member| format!("{member:?} leads"))
}

/// A ring that talks through channels.
pub fn channelled(identifiers: &[u64], discipline: Discipline) -> Channelled<Member> {
    Channelled::new(Member::ring(identifiers), discipline)
}

/// A ring that talks through reservations.
pub fn reserved(identifiers: &[u64]) -> Channelled<Reserved<Member>> {
    let members = Member::ring(identifiers).into_iter().map(Reserved::new).collect();
    Channelled::new(members, Discipline::default())
}

//! Leader election, under every order of messages.

use crate::reach::{Found, reach};
use crate::{State, Verdict, Whole};
use esds::ioa::{Channelled, Combined, Discipline, IoAutomaton, Reserved};
use esds::ring::Member;

/// Composition of ring members.
pub trait Ring {
    /// Returns the members, in ring order.
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

/// Checks a composition: at most one member leads, it has the greatest identifier, and it can
/// always still be elected.
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

/// Creates a ring composed by channels.
pub fn channelled(identifiers: &[u64], discipline: Discipline) -> Channelled<Member> {
    Channelled::new(Member::ring(identifiers), discipline)
}

/// Creates a ring composed by reservations.
pub fn reserved(identifiers: &[u64]) -> Channelled<Reserved<Member>> {
    let members = Member::ring(identifiers).into_iter().map(Reserved::new).collect();
    Channelled::new(members, Discipline::default())
}

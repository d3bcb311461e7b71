//! Operations that are sent again are done once: a data type around another one.
//!
//! A client opens a *session*, and numbers what changes something from 1 on. Whatever it got no
//! answer to it sends again, with the same number, to any replica. Of all operations with one
//! number the first one in the order is done; the others answer what that one answered.
//!
//! # What clients keep to
//!
//! Several may be on their way at once, and come in any order, but no more than [`WINDOW`]: number
//! `n + 16` comes behind the answer to `n` (its token is among what it must come after). Then what
//! is so far behind that its number is not remembered was done.
//!
//! # What is kept, and why it commutes
//!
//! Of each session the last numbers and what they were answered, and of all sessions when they were
//! last heard of. Operations of different sessions change different entries, so the table does not
//! depend on their order. *Whatever forgets a session does*: whether a number is then done again
//! depends on whether it comes before or after. So nothing is forgotten by the way: there are
//! operations that say that they forget ([`Operator::forgets`]), which commute with none that are
//! noted. The replica that takes an operation from a client lets it forget when the table is full
//! or old ([`Once::operator`]): about once in an hour, or once in four thousand new sessions.
//!
//! # Answers are no part of what is equal
//!
//! Operations may commute and yet answer differently in another order: of two additions the second
//! one answers the sum. So after two orders that count as equal the kept answers may differ, and
//! the equality of states does not look at them. In a state that is not final they are what *some*
//! order gave, like every answer from such a state. In the stable state operations were applied in
//! the eventual order, one by one, so there they are exact, the same at all replicas; and a strict
//! answer comes from there.

use super::{DataType, Value};
use crate::binary;
use crate::work::Meter;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::Arc;

/// How many numbers of a session are remembered: its last one and those before.
pub const WINDOW: u64 = 16;

/// How many bytes the answers have that are kept of one session, at most, in their binary form; of
/// the last numbers first.
pub const ANSWERS_MAX: usize = 4 << 10;

/// With so many sessions the oldest ones are forgotten.
pub const SESSIONS_MAX: usize = 1 << 16;

/// How many are left then.
const SESSIONS_KEPT: usize = SESSIONS_MAX - SESSIONS_MAX / 16;

/// A session that was not heard of for so long may be forgotten, ms.
pub const IDLE_MAX_MS: u64 = 24 * 3600 * 1000;

/// They are forgotten together, when the oldest one is older by so much, ms.
const IDLE_SLACK_MS: u64 = 3600 * 1000;

/// A data type whose operations are done once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Once<D>(pub D);

/// Names a session: drawn at random by the client that opens it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

/// One of the operations of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Whose.
    pub session: SessionId,
    /// Which: counted from 1 on.
    pub number: NonZeroU64,
}

/// An operator of the other type, with what makes it be done once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator<O> {
    /// When the replica that was asked got it: milliseconds of wall time.
    pub stamp: u64,
    /// Nothing, if it is done as often as it comes.
    pub once: Option<Call>,
    /// Whether sessions are forgotten after it.
    pub forgets: bool,
    /// What is to be done.
    pub operator: O,
}

/// A state of the other type, and who has done what.
#[derive(Clone, Debug)]
pub struct State<S> {
    inner: S,
    sessions: RedBlackTreeMapSync<SessionId, Session>,
    /// The same sessions, those first that were not heard of for long.
    by_stamp: RedBlackTreeSetSync<(u64, SessionId)>,
}

impl<S> State<S> {
    /// The state of the other type.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many sessions are remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.size()
    }

    /// The sessions behind this one, in order, as they are written.
    pub(super) fn sessions_behind(
        &self,
        behind: Option<SessionId>,
    ) -> impl Iterator<Item = (SessionId, impl Serialize)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.sessions.range((from, Bound::Unbounded));
        all.map(|(id, session)| (*id, (*id, session)))
    }

    /// The greatest number of an operation of this session, if it is remembered.
    pub fn last_of(&self, id: SessionId) -> Option<NonZeroU64> {
        self.sessions.get(&id)?.notes.last().map(|note| note.number)
    }

    /// A session that was heard of.
    fn keep(&mut self, id: SessionId, session: Session) {
        if let Some(before) = self.sessions.get(&id) {
            self.by_stamp.remove_mut(&(before.stamp, id));
        }
        self.by_stamp.insert_mut((session.stamp, id));
        self.sessions.insert_mut(id, session);
    }

    /// Forgets those that were idle for long, and the oldest ones if there are too many.
    fn forget(&mut self, now: u64, meter: &mut Meter) {
        let horizon = now.saturating_sub(IDLE_MAX_MS);
        while let Some(first) = self.by_stamp.first().copied()
            && (first.0 < horizon || self.sessions.size() > SESSIONS_KEPT)
        {
            self.by_stamp.remove_mut(&first);
            self.sessions.remove_mut(&first.1);
            meter.spend(1);
        }
    }

    /// Whether no session is to be forgotten now, and none will have to be after so many operations
    /// more. (Sessions that only those have named may be idle for longer, until they are final.)
    pub fn has_room(&self, more: usize, now: u64) -> bool {
        !self.should_forget(now) && self.sessions.size() + more < SESSIONS_MAX
    }

    fn should_forget(&self, now: u64) -> bool {
        let horizon = now.saturating_sub(IDLE_MAX_MS + IDLE_SLACK_MS);
        let idle = self.by_stamp.first().is_some_and(|(stamp, _)| *stamp < horizon);
        idle || self.sessions.size() >= SESSIONS_MAX
    }
}

impl<S: PartialEq> PartialEq for State<S> {
    fn eq(&self, other: &State<S>) -> bool {
        self.inner == other.inner && self.sessions == other.sessions
    }
}

impl<S: Eq> Eq for State<S> {}

impl<S: Hash> Hash for State<S> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.inner.hash(hasher);
        self.sessions.hash(hasher);
    }
}

/// What is known of one session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "(u64, Vec<Note>)", into = "(u64, Vec<Note>)")]
struct Session {
    /// The latest time that anything of it was stamped with.
    stamp: u64,
    /// What was done, in the order of numbers; all within the window of the last one.
    notes: Vec<Note>,
}

/// An operation that was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    number: NonZeroU64,
    answer: Option<Arc<Value>>,
}

impl Session {
    /// What the operation with this number answered, if it was done: nothing, if that is not known
    /// any more.
    fn find(&self, number: NonZeroU64) -> Option<Option<&Value>> {
        let last = self.notes.last()?.number;
        let note = self.notes.iter().find(|note| note.number == number);
        let behind = last.get().checked_sub(number.get()).is_some_and(|by| by >= WINDOW);
        match note {
            Some(note) => Some(note.answer.as_deref()),
            None => behind.then_some(None),
        }
    }

    fn note(&mut self, number: NonZeroU64, answer: Option<Value>) {
        let at = self.notes.partition_point(|note| note.number < number);
        self.notes.insert(at, Note { number, answer: answer.map(Arc::new) });
        self.tidy();
    }

    /// Leaves what is within the window, and the answers there is room for.
    fn tidy(&mut self) {
        let last = self.notes.last().map_or(0, |note| note.number.get());
        self.notes.retain(|note| last - note.number.get() < WINDOW);
        let mut room = ANSWERS_MAX;
        for note in self.notes.iter_mut().rev() {
            let size = note.answer.as_deref().map_or(0, binary::size);
            match room.checked_sub(size) {
                Some(left) => room = left,
                None => note.answer = None,
            }
        }
    }
}

/// Answers are not looked at: see [the module](self).
impl PartialEq for Session {
    fn eq(&self, other: &Session) -> bool {
        self.stamp == other.stamp && self.numbers().eq(other.numbers())
    }
}

impl Eq for Session {}

impl Hash for Session {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.stamp.hash(hasher);
        self.numbers().for_each(|number| number.hash(hasher));
    }
}

impl Session {
    fn numbers(&self) -> impl Iterator<Item = NonZeroU64> {
        self.notes.iter().map(|note| note.number)
    }
}

impl<D: DataType<Value = Value>> Once<D> {
    /// The operator that a replica makes of what a client asks, given its current state and the
    /// wall time.
    pub fn operator(
        &self,
        state: &State<D::State>,
        stamp: u64,
        once: Option<Call>,
        operator: D::Operator,
    ) -> Operator<D::Operator> {
        Operator { stamp, once, forgets: state.should_forget(stamp), operator }
    }

    /// The session and the number under which it is noted. What changes nothing is not.
    fn noted(&self, operator: &Operator<D::Operator>) -> Option<Call> {
        operator.once.filter(|_| !self.0.is_read(&operator.operator))
    }

    fn apply_once(
        &self,
        state: &mut State<D::State>,
        call: Call,
        stamp: u64,
        operator: &D::Operator,
        meter: &mut Meter,
    ) -> Value {
        let mut session = state.sessions.get(&call.session).cloned().unwrap_or_default();
        session.stamp = session.stamp.max(stamp);
        let free = self.0.is_free(operator);
        let value = match session.find(call.number) {
            None => {
                let value = self.0.apply_metered(&mut state.inner, operator, meter);
                session.note(call.number, (!free).then(|| value.clone()));
                value
            }
            // It is the same in every state.
            Some(_) if free => self.0.apply_metered(&mut state.inner.clone(), operator, meter),
            Some(answer) => answer.cloned().unwrap_or(Value::Repeated),
        };
        state.keep(call.session, session);
        value
    }
}

impl<D: DataType<Value = Value>> DataType for Once<D> {
    type State = State<D::State>;
    type Operator = Operator<D::Operator>;
    type Value = Value;

    fn initial(&self) -> Self::State {
        let (sessions, by_stamp) =
            (RedBlackTreeMapSync::new_sync(), RedBlackTreeSetSync::new_sync());
        State { inner: self.0.initial(), sessions, by_stamp }
    }

    fn apply(&self, state: &mut Self::State, operator: &Self::Operator) -> Value {
        self.apply_metered(state, operator, &mut Meter::unlimited())
    }

    fn apply_metered(
        &self,
        state: &mut Self::State,
        operator: &Self::Operator,
        meter: &mut Meter,
    ) -> Value {
        let (stamp, inner) = (operator.stamp, &operator.operator);
        let value = match self.noted(operator) {
            Some(call) => self.apply_once(state, call, stamp, inner, meter),
            None => self.0.apply_metered(&mut state.inner, inner, meter),
        };
        if operator.forgets {
            state.forget(stamp, meter);
        }
        value
    }

    fn change(&self, state: &mut Self::State, operator: &Self::Operator, meter: &mut Meter) {
        if self.noted(operator).is_some() || operator.forgets {
            drop(self.apply_metered(state, operator, meter));
        } else {
            self.0.change(&mut state.inner, &operator.operator, meter);
        }
    }

    /// Those of one session do if neither can put the other one out of the window.
    fn commute(&self, a: &Self::Operator, b: &Self::Operator) -> bool {
        let (a_noted, b_noted) = (self.noted(a), self.noted(b));
        let forgets =
            a.forgets && (b.forgets || b_noted.is_some()) || b.forgets && a_noted.is_some();
        let apart = a_noted.zip(b_noted).is_none_or(|(a, b)| {
            let by = a.number.get().abs_diff(b.number.get());
            a.session != b.session || 0 < by && by < WINDOW
        });
        !forgets && apart && self.0.commute(&a.operator, &b.operator)
    }

    fn size(&self, operator: &Self::Operator) -> usize {
        self.0.size(&operator.operator)
    }

    fn value_size(&self, value: &Value) -> usize {
        self.0.value_size(value)
    }

    /// What answers the same in every state answers a repetition the same.
    fn is_free(&self, operator: &Self::Operator) -> bool {
        self.0.is_free(&operator.operator)
    }

    /// One of the same session may be what is repeated, or put it out of the window or its answer
    /// out of what is kept.
    fn oblivious(&self, a: &Self::Operator, b: &Self::Operator) -> bool {
        let apart = self
            .noted(a)
            .is_none_or(|a| !b.forgets && self.noted(b).is_none_or(|b| a.session != b.session));
        self.is_free(a) || apart && self.0.oblivious(&a.operator, &b.operator)
    }

    fn is_read(&self, operator: &Self::Operator) -> bool {
        !operator.forgets && self.0.is_read(&operator.operator)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Not the name of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSession;

impl fmt::Display for NoSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a session has 1 to 32 of the digits 0 to 9 and a to f")
    }
}

impl std::error::Error for NoSession {}

impl std::str::FromStr for SessionId {
    type Err = NoSession;

    fn from_str(digits: &str) -> Result<SessionId, NoSession> {
        let plain = (1..=32).contains(&digits.len()) && !digits.starts_with('+');
        let id = u128::from_str_radix(digits, 16).ok().filter(|_| plain);
        id.map(SessionId).ok_or(NoSession)
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(self) } else { self.0.serialize(to) }
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SessionId, D::Error> {
        if !from.is_human_readable() {
            return u128::deserialize(from).map(SessionId);
        }
        let digits = String::deserialize(from)?;
        digits.parse().map_err(serde::de::Error::custom)
    }
}

/// What was read may come from somebody else: it is put in order.
impl From<(u64, Vec<Note>)> for Session {
    fn from((stamp, mut notes): (u64, Vec<Note>)) -> Session {
        notes.sort_by_key(|note| note.number);
        notes.dedup_by_key(|note| note.number);
        let mut session = Session { stamp, notes };
        session.tidy();
        session
    }
}

impl From<Session> for (u64, Vec<Note>) {
    fn from(session: Session) -> (u64, Vec<Note>) {
        (session.stamp, session.notes)
    }
}

impl<S: Serialize> Serialize for State<S> {
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        (&self.inner, &self.sessions).serialize(to)
    }
}

impl<'de, S: Deserialize<'de>> Deserialize<'de> for State<S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<State<S>, D::Error> {
        type Sessions = RedBlackTreeMapSync<SessionId, Session>;
        let (inner, sessions) = <(S, Sessions)>::deserialize(from)?;
        let by_stamp = sessions.iter().map(|(id, session)| (session.stamp, *id)).collect();
        Ok(State { inner, sessions, by_stamp })
    }
}

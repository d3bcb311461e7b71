//! Exactly-once execution of retried operations, as a wrapper around another data type.
//!
//! A client opens a *session* and numbers its updates from 1. It retries an unanswered operation
//! with the same number at any replica. Of all operations with one number, only the first in the
//! order executes; the others return its result.
//!
//! # Client rules
//!
//! At most [`WINDOW`] operations may be outstanding, in any order: a client submits number `n + 16`
//! only after the result of `n`, with that result's token among its predecessors. A number below
//! the remembered window is therefore known to have executed.
//!
//! # Retained data, and its commutativity
//!
//! Each session keeps its latest numbers with their results and the time of its latest operation.
//! Operations of different sessions update different entries, so the table is independent of their
//! order. *Eviction is not*: whether a retry executes again depends on its position relative to the
//! eviction. So no session is evicted implicitly: eviction happens in operations marked
//! [`Operator::forgets`], which commute with no recorded operation. The replica that accepts a
//! client's operation marks it when the table is full or stale ([`Once::operator`]): about once an
//! hour, or once in four thousand new sessions.
//!
//! # Results are excluded from equality
//!
//! Operations may commute and still return different results in another order: of two additions the
//! second returns the sum. After two equivalent orders the retained results may therefore differ,
//! and equality of states ignores them. In a state that is not final they are the results of *some*
//! order, like every result from such a state. In the stable state operations were applied one by
//! one in the eventual order, so there the retained results are exact and the same at all replicas.
//! Strict results come from the stable state.

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

/// Remembered numbers of a session, counted back from its latest.
pub const WINDOW: u64 = 16;

/// Maximum bytes of retained results per session, in binary form; those of the latest numbers take
/// precedence.
pub const ANSWERS_MAX: usize = 4 << 10;

/// Number of sessions at which the oldest are evicted.
pub const SESSIONS_MAX: usize = 1 << 16;

/// Number of sessions left after an eviction by count.
const SESSIONS_KEPT: usize = SESSIONS_MAX - SESSIONS_MAX / 16;

/// Idle time after which a session may be evicted, in ms.
pub const IDLE_MAX_MS: u64 = 24 * 3600 * 1000;

/// Excess age of the oldest session that triggers an eviction, in ms; idle sessions are evicted in
/// batches.
const IDLE_SLACK_MS: u64 = 3600 * 1000;

/// Data type with exactly-once operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Once<D>(pub D);

/// Identifier of a session, drawn at random by the client that opens it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

/// Identity of an operation within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Session.
    pub session: SessionId,
    /// Number within the session, counted from 1.
    pub number: NonZeroU64,
}

/// Operator of the inner type with its exactly-once metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator<O> {
    /// Wall-clock time of acceptance at the client's replica, in ms.
    pub stamp: u64,
    /// Identity for deduplication; `None` executes every retry.
    pub once: Option<Call>,
    /// Whether sessions are evicted after it.
    pub forgets: bool,
    /// Inner operator.
    pub operator: O,
}

/// State of the inner type with the session table.
#[derive(Clone, Debug)]
pub struct State<S> {
    inner: S,
    sessions: RedBlackTreeMapSync<SessionId, Session>,
    /// The same sessions, least recently used first.
    by_stamp: RedBlackTreeSetSync<(u64, SessionId)>,
}

impl<S> State<S> {
    /// Returns the inner state.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the number of remembered sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.size()
    }

    /// Returns the sessions after `behind`, in serialization order.
    pub(super) fn sessions_behind(
        &self,
        behind: Option<SessionId>,
    ) -> impl Iterator<Item = (SessionId, impl Serialize)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.sessions.range((from, Bound::Unbounded));
        all.map(|(id, session)| (*id, (*id, session)))
    }

    /// Returns the greatest recorded number of a session, if the session is remembered.
    pub fn last_of(&self, id: SessionId) -> Option<NonZeroU64> {
        self.sessions.get(&id)?.notes.last().map(|note| note.number)
    }

    /// Inserts or updates a session.
    fn keep(&mut self, id: SessionId, session: Session) {
        if let Some(before) = self.sessions.get(&id) {
            self.by_stamp.remove_mut(&(before.stamp, id));
        }
        self.by_stamp.insert_mut((session.stamp, id));
        self.sessions.insert_mut(id, session);
    }

    /// Evicts idle sessions, and the oldest ones if there are too many.
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

    /// Reports whether no session is due for eviction now, nor after `more` further operations.
    /// (Sessions named only by those may stay idle longer, until the operations are final.)
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

/// Record of one session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "(u64, Vec<Note>)", into = "(u64, Vec<Note>)")]
struct Session {
    /// Latest stamp of its operations, in ms.
    stamp: u64,
    /// Executed operations by number, all within the window of the last one.
    notes: Vec<Note>,
}

/// Record of an executed operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    number: NonZeroU64,
    answer: Option<Arc<Value>>,
}

impl Session {
    /// Looks up an executed operation: `None` if it has not executed, `Some(None)` if its result is
    /// no longer retained.
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

    /// Drops numbers outside the window and results beyond [`ANSWERS_MAX`].
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

/// Ignores results: see [the module](self).
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
    /// Wraps a client's operator, given the replica's current state and the wall-clock time.
    pub fn operator(
        &self,
        state: &State<D::State>,
        stamp: u64,
        once: Option<Call>,
        operator: D::Operator,
    ) -> Operator<D::Operator> {
        Operator { stamp, once, forgets: state.should_forget(stamp), operator }
    }

    /// Returns the identity under which an operation is recorded; reads are not recorded.
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
            // The result is the same in every state.
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

    /// Operations of one session commute if neither can push the other out of the window.
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

    /// A retry of an operator that is free has the same result in every state.
    fn is_free(&self, operator: &Self::Operator) -> bool {
        self.0.is_free(&operator.operator)
    }

    /// An operation of the same session may be the original of this retry, or push that original
    /// out of the window or its result out of the retained ones.
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

/// Error for an invalid session identifier.
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

/// Decoded data may be foreign, so it is normalized.
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

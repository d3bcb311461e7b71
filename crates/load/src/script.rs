//! Filaments written as an `async fn`.
//!
//! A [`script`] is called once; each event resumes it where it waits. It needs no executor, no
//! waker and no thread. It can wait for the futures of its [`Context`], individually or with
//! [`Context::all`]; futures of other libraries that depend on a waker are never woken.
//!
//! ```
//! use load::script::script;
//! use load::{Io, Kind};
//! use std::time::Duration;
//!
//! // A reader that thinks for 5 ms between its reads, a hundred times.
//! let reader = script(|context| async move {
//!     for block in 0..100 {
//!         let io = Io { kind: Kind::Read, file: 0, offset: block * 4096, len: 4096 };
//!         let ended = context.io(io).await;
//!         assert_eq!(ended.scheduled, ended.issued);
//!         context.sleep(Duration::from_millis(5)).await;
//!     }
//! });
//! let run = load::simulated::run(vec![reader], &mut load::simulated::Instantly);
//! assert_eq!((run.records.len(), run.end.0), (100, 500_000_000));
//! ```

use crate::{Ended, Event, Filament, FilamentId, Io, Request};
use base::op::Envelope;
use base::{Automaton, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Creates a filament from an `async` closure.
pub fn script<F, T>(body: F) -> Box<dyn Filament>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let context = Context::default();
    // The body does not run before the first event.
    let inner = context.clone();
    let task = Box::pin(async move { body(inner).await });
    Box::new(Script { context, task: Some(task) })
}

/// Interface of a script to its filament.
#[derive(Clone, Debug, Default)]
pub struct Context(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Instant,
    tags: u64,
    out: Vec<Request>,
    rung: BTreeSet<u64>,
    ended: BTreeMap<u64, Ended>,
    mail: VecDeque<(FilamentId, Envelope)>,
}

/// Requested I/O; it is issued at its time, awaited or not.
#[derive(Debug)]
pub struct Ticket {
    context: Context,
    tag: u64,
}

impl Context {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// Issues an I/O now, and waits for its completion.
    pub async fn io(&self, io: Io) -> Ended {
        let now = self.now();
        self.begin(now, io).await
    }

    /// Issues an I/O at a time. Returns a future of its completion.
    pub fn begin(&self, at: Instant, io: Io) -> Ticket {
        let mut state = self.lock();
        state.tags += 1;
        let tag = state.tags;
        state.out.push(Request::with_completion(at, io, tag));
        drop(state);
        Ticket { context: self.clone(), tag }
    }

    /// Issues an I/O at a time, without a completion.
    pub fn issue(&self, at: Instant, io: Io) {
        self.lock().out.push(Request::io(at, io));
    }

    /// Waits for all tickets.
    pub async fn all(&self, tickets: Vec<Ticket>) -> Vec<Ended> {
        let mut ended = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            ended.push(ticket.await);
        }
        ended
    }

    /// Waits until a time.
    pub async fn sleep_until(&self, at: Instant) {
        let tag = {
            let mut state = self.lock();
            state.tags += 1;
            let tag = state.tags;
            state.out.push(Request::Timer { at, tag });
            tag
        };
        std::future::poll_fn(|_| match self.lock().rung.remove(&tag) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Waits for a duration.
    pub async fn sleep(&self, span: Duration) {
        let at = self.now() + span;
        self.sleep_until(at).await;
    }

    /// Sends a message to another filament.
    pub fn send(&self, to: FilamentId, at: Instant, envelope: Envelope) {
        self.lock().out.push(Request::Send { to, at, envelope });
    }

    /// Waits for a message of another filament.
    pub async fn receive(&self) -> (FilamentId, Envelope) {
        std::future::poll_fn(|_| match self.lock().mail.pop_front() {
            Some(mail) => Poll::Ready(mail),
            None => Poll::Pending,
        })
        .await
    }
}

impl Future for Ticket {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Ended> {
        match self.context.lock().ended.remove(&self.tag) {
            Some(ended) => Poll::Ready(ended),
            None => Poll::Pending,
        }
    }
}

/// Filament of a script.
struct Script {
    context: Context,
    /// Suspended body; `None` after its end.
    task: Option<Task>,
}

impl Automaton for Script {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        let Some(task) = &mut self.task else {
            return;
        };
        {
            let mut state = self.context.lock();
            state.now = now;
            match event {
                Event::Started => {}
                Event::Timer(tag) => drop(state.rung.insert(tag)),
                Event::Ended(ended) => drop(state.ended.insert(ended.tag, ended)),
                Event::Message { from, envelope } => state.mail.push_back((from, envelope)),
            }
        }
        let mut context = std::task::Context::from_waker(Waker::noop());
        if task.as_mut().poll(&mut context).is_ready() {
            self.task = None;
        }
        out.append(&mut self.context.lock().out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Queueing, run};

    #[test]
    fn scripts_wait_for_timers_ios_and_each_other() {
        let asks = script(|context| async move {
            let later = context.now() + Duration::from_micros(50);
            let first = context.begin(later, Io { len: 1024, ..Io::default() });
            let second = context.begin(later, Io { len: 1024, ..Io::default() });
            context.send(1, later, Envelope(Box::new("go")));
            let ended = context.all(vec![first, second]).await;
            assert_eq!(ended.iter().map(|e| e.ended.0).collect::<Vec<_>>(), [60_000, 70_000]);
        });
        let receives = script(|context| async move {
            let (from, envelope) = context.receive().await;
            assert_eq!((from, envelope.0.downcast_ref()), (0, Some(&"go")));
            assert_eq!(context.now(), Instant(50_000));
            context.sleep_until(Instant(90_000)).await;
            context.issue(context.now(), Io { len: 1024, ..Io::default() });
        });
        let mut device = Queueing::new(1, Duration::from_micros(10), Duration::ZERO);
        let run = run(vec![asks, receives], &mut device);
        let ends: Vec<u64> = run.records.iter().map(|r| r.completed_ns).collect();
        assert_eq!(ends, [60_000, 70_000, 100_000]);
    }
}

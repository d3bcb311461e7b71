//! The store behind a thread barrier: a bounded queue of requests, completions back.
//!
//! One thread owns the engine. It takes the whole queue as one turn, so the commits of all clients
//! that arrived while the disk was busy share one write. Disk operations are performed by other
//! threads, unless there is only one client and nothing else to do: then they are performed inline,
//! which saves two context switches.

use crate::clock::Clock;
use crate::disk::FileDisk;
use crate::port::{Completion, Port};
use crate::queue::{Message, Queue};
use crate::workers::Workers;
use crate::{Error, Options};
use engine::{Engine, Failure, Output, Reply, Request};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use store::{Config, Io, Ticket, drive};

/// A volume with a thread of its own.
#[derive(Debug)]
pub struct Service {
    queue: Arc<Queue>,
    thread: Option<thread::JoinHandle<()>>,
}

/// One user of a service: it submits requests, and receives completions on its port.
#[derive(Debug)]
pub struct Client {
    queue: Arc<Queue>,
    port: Arc<Port>,
}

impl Service {
    /// Opens a volume and serves it.
    ///
    /// # Errors
    /// Those of the file, of opening the volume, and of starting threads.
    pub fn open(path: &Path, options: &Options) -> Result<Service, Error> {
        let (disk, config) = FileDisk::open(path, !options.read_only, options.memory)?;
        let config = Config { accept_loss: options.accept_loss, ..config };
        Service::start(disk, config, path)
    }

    pub(crate) fn start(disk: FileDisk, config: Config, path: &Path) -> Result<Service, Error> {
        let queue = Arc::new(Queue::default());
        let (opened, wait) = mpsc::channel();
        let builder = thread::Builder::new().name("volume".to_string());
        let own = queue.clone();
        let doing = "start a thread for";
        let workers = Workers::start(&disk, &queue).map_err(Error::file(doing, path))?;
        let run = move || match Turns::open(disk, config, own, workers) {
            Ok(turns) => {
                // The opener waits for this.
                let _ = opened.send(Ok(()));
                turns.run();
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = Some(builder.spawn(run).map_err(Error::file(doing, path))?);
        let service = Service { queue, thread };
        wait.recv().unwrap_or(Err(store::Error::DiskFailed)).map_err(Error::volume(path))?;
        Ok(service)
    }

    /// Returns a new client with a port of its own.
    pub fn client(&self) -> Client {
        Client { queue: self.queue.clone(), port: Arc::default() }
    }

    /// Returns a client for a thread that parks instead of waiting at the port: completions unpark
    /// it.
    pub fn parked_client(&self, thread: thread::Thread) -> Client {
        Client { queue: self.queue.clone(), port: Arc::new(Port::of(thread)) }
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for Service {
    /// Closes the volume, which makes everything committed durable.
    fn drop(&mut self) {
        let close = Message { request: Request::Close, ticket: Ticket(0), port: None };
        // An error means that it is closed already.
        let _ = self.queue.push(close);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

impl Client {
    /// Submits a request; its completion carries this ticket. Sleeps while the queue is full.
    ///
    /// # Errors
    /// `Closed`.
    pub fn submit(&self, ticket: Ticket, request: Request) -> Result<(), Error> {
        self.queue.push(Message { request, ticket, port: Some(self.port.clone()) })
    }

    /// Returns the next completion, sleeping until there is one. Must be called only while a
    /// request is outstanding.
    pub fn wait(&self) -> Completion {
        self.port.wait()
    }

    /// Returns the next completion, if there is one.
    pub fn try_next(&self) -> Option<Completion> {
        self.port.try_next()
    }
}

/// State of the thread.
struct Turns {
    engine: Engine,
    disk: FileDisk,
    answers: Answers,
    workers: Workers,
    clock: Clock,
    outputs: Vec<Output>,
    to_do: VecDeque<Io>,
    /// Operations in progress at the workers.
    under_way: usize,
    next: u64,
    /// Ticket of the request to close, and its result.
    closing: Option<Ticket>,
    closed: Option<Result<Reply, Failure>>,
}

/// Pending requests and their ports. However the thread ends, all of them are completed.
struct Answers {
    queue: Arc<Queue>,
    waiting: BTreeMap<Ticket, (Option<Arc<Port>>, Ticket)>,
}

impl Answers {
    fn give(&mut self, own: Ticket, result: Result<Reply, Error>) {
        let (port, ticket) = self.waiting.remove(&own).expect("answered once");
        if let Some(port) = port {
            port.push((ticket, result));
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        for Message { ticket, port, .. } in self.queue.end().messages {
            port.into_iter().for_each(|port| port.push((ticket, Err(Error::Closed))));
        }
        for (port, ticket) in std::mem::take(&mut self.waiting).into_values() {
            port.into_iter().for_each(|port| port.push((ticket, Err(Error::Closed))));
        }
    }
}

impl Turns {
    /// Opens the volume in straight-line code: there are no clients yet.
    fn open(
        mut disk: FileDisk,
        config: Config,
        queue: Arc<Queue>,
        workers: Workers,
    ) -> Result<Turns, store::Error> {
        use drive::Disk;
        let head = disk.head().map_err(store::Error::of_disk)?;
        let (clock, mut outputs) = (Clock::start(), Vec::new());
        let engine = Engine::open(&head, config, clock.now(), &mut outputs)?;
        let mut turns = Turns {
            engine,
            disk,
            answers: Answers { queue, waiting: BTreeMap::new() },
            workers,
            clock,
            outputs,
            to_do: VecDeque::new(),
            under_way: 0,
            next: 0,
            closing: None,
            closed: None,
        };
        loop {
            if let Some(result) = turns.route() {
                return result.map(|()| turns);
            }
            let io = turns.to_do.pop_front().expect("recovery comes to its end");
            turns.perform(&io);
        }
    }

    fn run(mut self) {
        while self.closed.is_none() {
            let now = self.clock.now();
            let most = self.engine.deadline().map(|deadline| deadline.since(now));
            let arrived = self.answers.queue.take(most);
            let alone = arrived.messages.len() <= 1;
            let now = self.clock.now();
            for (id, done) in arrived.done {
                assert!(self.under_way > 0, "an operation ends after its begin");
                self.under_way -= 1;
                self.engine.done(now, id, done, &mut self.outputs);
            }
            for message in arrived.messages {
                self.ask(message);
            }
            self.end_turn();
            while alone
                && self.under_way == 0
                && self.to_do.len() == 1
                && !self.answers.queue.has_arrived()
            {
                let io = self.to_do.pop_front().expect("there is one");
                assert!(self.to_do.is_empty(), "it is the only one");
                self.perform(&io);
                drop(io);
                self.end_turn();
            }
            self.under_way += self.to_do.len();
            self.to_do.drain(..).for_each(|io| self.workers.submit(io));
        }
        // A client that sees the volume closed may reopen it at once, so it is released first.
        let Turns { disk, workers, mut answers, closing, closed, .. } = self;
        drop((workers, disk));
        if let (Some(own), Some(result)) = (closing, closed) {
            answers.give(own, result.map_err(Error::from));
        }
    }

    fn ask(&mut self, message: Message) {
        let Message { request, ticket, port } = message;
        let own = Ticket(self.next);
        self.next += 1;
        if matches!(request, Request::Close) {
            self.closing.get_or_insert(own);
        }
        assert!(self.closed.is_none(), "a closed volume receives no request");
        self.answers.waiting.insert(own, (port, ticket));
        self.engine.request(self.clock.now(), own, request, &mut self.outputs);
    }

    fn end_turn(&mut self) {
        self.engine.tick(self.clock.now(), &mut self.outputs);
        self.route();
    }

    /// Routes the engine's outputs; returns the result of opening the volume, if it is among them.
    fn route(&mut self) -> Option<Result<(), store::Error>> {
        let mut opened = None;
        for output in self.outputs.drain(..) {
            match output {
                Output::Io(io) => self.to_do.push_back(io),
                Output::Opened(result) => opened = Some(result),
                Output::Reply(own, result) if self.closing == Some(own) => {
                    self.closed = Some(result);
                }
                Output::Reply(own, result) => self.answers.give(own, result.map_err(Error::from)),
            }
        }
        opened
    }

    fn perform(&mut self, io: &Io) {
        let (id, done) = drive::perform(&mut self.disk, io);
        self.engine.done(self.clock.now(), id, done, &mut self.outputs);
    }
}

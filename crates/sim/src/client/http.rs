//! An HTTP client: it reads shared files, and puts, gets, lists and deletes files of its own.
//!
//! Requests are pipelined; responses arrive in order, so each expected response follows from
//! earlier ones. After an injected fault or a lost connection a file has its old contents, or those
//! of some unanswered request, and never a mixture.

pub(in crate::client) mod parse;
pub mod racer;

use super::{Client, Io};
use base::Instant;
use base::op::Listener;
use parse::{Response, take_response};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The shared file that reports size zero.
pub const SYNTHETIC: &str = "synthetic";

/// Configuration of an HTTP client.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Listener to connect to.
    pub listener: Listener,
    /// Name of its directory in the root.
    pub home: String,
    /// Inode of that directory.
    pub inode: u64,
    /// Files read by all clients, in `/shared`: name and contents.
    pub shared: Vec<(String, Vec<u8>)>,
}

/// A pending request.
#[derive(Clone, Debug)]
enum Ask {
    /// A file (shared or own), or a range of it; or only its head.
    Get {
        shared: bool,
        name: String,
        range: Option<(u64, u64)>,
        head: bool,
        tag: Option<String>,
    },
    /// `whole`: whether the body was sent to its end.
    Put {
        name: String,
        data: Vec<u8>,
        chunked: bool,
        whole: bool,
    },
    Delete {
        name: String,
    },
    List {
        json: bool,
    },
    Metrics,
    /// A malformed request; the server closes after its response.
    Wrong(&'static str),
}

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a wake-up to connect.
    Away,
    /// Waiting for responses.
    Working,
    /// Waiting for the connection to close.
    Leaving,
    /// Done.
    Done,
}

/// Contents of a file; `None` if it does not exist.
type State = Option<Vec<u8>>;

/// The client.
#[derive(Debug)]
pub struct Http {
    setup: Setup,
    phase: Phase,
    /// Possible states of each own file, the last known one first; only one without faults.
    files: BTreeMap<String, Vec<State>>,
    /// Entity tag of each own file, as last received.
    tags: BTreeMap<String, String>,
    queue: VecDeque<Ask>,
    input: Vec<u8>,
    left: u32,
    begun: Instant,
    /// Whether the last response announced the end of the connection.
    parting: bool,
}

const NAMES: [&str; 5] = ["a.txt", "b.html", "c", "d e", "f"];
const WRONG: [&str; 6] = [
    "GET / HTTP/1.1\r\n\r\n",
    "GET /../x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no request at all\r\n\r\n",
];

impl Http {
    /// Returns an unconnected client.
    pub fn new(setup: Setup, requests: u32) -> Http {
        Http {
            setup,
            phase: Phase::Away,
            files: NAMES.iter().map(|name| (name.to_string(), vec![None])).collect(),
            tags: BTreeMap::new(),
            queue: VecDeque::new(),
            input: Vec::new(),
            left: requests,
            begun: Instant(0),
            parting: false,
        }
    }

    fn draw(&self, io: &mut Io<'_>) -> Ask {
        let name = NAMES[io.rng().usize(..NAMES.len())].to_string();
        match io.rng().u8(..20) {
            0..=8 => {
                let shared = io.one_in(3);
                let index = io.rng().usize(..self.setup.shared.len());
                let name = if shared { self.setup.shared[index].0.clone() } else { name };
                let first = io.rng().u64(..5000);
                let range = io.one_in(3).then(|| (first, first + io.rng().u64(..9000)));
                let tag = self.tags.get(&name).filter(|_| range.is_none() && !shared).cloned();
                let tag = tag.filter(|_| io.rng().bool());
                let range = range.filter(|_| name != SYNTHETIC);
                let head = range.is_none() && io.one_in(6);
                Ask::Get { shared, name, range, head, tag }
            }
            9..=13 => {
                let most = if io.one_in(10) { 300_000 } else { 3000 };
                let most = most.min(io.env.params.piece_max * 300);
                let data = super::ninep::contents(io, most);
                Ask::Put { name, data, chunked: io.rng().bool(), whole: !io.one_in(15) }
            }
            14 | 15 => Ask::Delete { name },
            16 | 17 => Ask::List { json: io.rng().bool() },
            18 => Ask::Metrics,
            _ => match io.one_in(3) {
                true => Ask::Wrong(WRONG[io.rng().usize(..WRONG.len())]),
                false => Ask::Delete { name },
            },
        }
    }

    fn work(&mut self, io: &mut Io<'_>) {
        let most = io.env.params.outstanding.min(6);
        while self.phase == Phase::Working && self.queue.len() < most && !self.parting {
            if self.left == 0 || io.one_in(io.env.params.disconnect) {
                if self.queue.is_empty() || self.left > 0 {
                    self.leave(io);
                }
                return;
            }
            self.left -= 1;
            let ask = self.draw(io);
            io.trace(format_args!("{}", describe(&ask)));
            let (bytes, last) = self.encode(io, &ask);
            io.send(&bytes);
            self.queue.push_back(ask);
            if last {
                self.parting = true;
                io.finish();
            }
        }
    }

    /// Returns the bytes of a request, and whether it must be the last one.
    fn encode(&self, io: &mut Io<'_>, ask: &Ask) -> (Vec<u8>, bool) {
        let home = &self.setup.home;
        let path = |name: &str| format!("/{home}/{}", name.replace(' ', "%20"));
        let text = match ask {
            Ask::Get { shared, name, range, head, tag } => {
                let method = if *head { "HEAD" } else { "GET" };
                let path = match (*shared, &**name) {
                    (true, SYNTHETIC) => "/synthetic/f".to_string(),
                    (true, name) => format!("/shared/{name}"),
                    (false, name) => path(name),
                };
                let range = range.map(|(a, b)| format!("Range: bytes={a}-{b}\r\n"));
                let tag = tag.as_ref().map(|tag| format!("If-None-Match: {tag}\r\n"));
                let (range, tag) = (range.unwrap_or_default(), tag.unwrap_or_default());
                format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{range}{tag}\r\n")
            }
            Ask::Put { name, data, chunked, whole } => {
                return (encode_put(io, &path(name), data, *chunked, *whole), !whole);
            }
            Ask::Delete { name } => {
                format!("DELETE {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path(name))
            }
            Ask::List { json } => {
                let accept = if *json { "application/json" } else { "text/html" };
                format!("GET /{home}/ HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n")
            }
            Ask::Metrics => "GET /.upcall/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_string(),
            Ask::Wrong(text) => return (text.as_bytes().to_vec(), true),
        };
        (text.into_bytes(), false)
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Leaving;
        if io.rng().bool() { io.reset() } else { io.finish() }
    }

    fn answered(&mut self, io: &mut Io<'_>, ask: Ask, response: Response) {
        io.judged();
        let status = response.status;
        io.trace(format_args!("{status} for {}", describe(&ask)));
        if self.failed(io, &ask, status) {
            return;
        }
        let tag = response.field("etag").map(str::to_string);
        match ask {
            Ask::Get { shared: true, name, head, .. } if name == SYNTHETIC => {
                let file = self.setup.shared.iter().find(|(known, _)| *known == name);
                let whole = file.is_some_and(|(_, data)| head || *data == response.body);
                let claims = response.field("content-length") == Some("0");
                let bytes = response.body.len();
                assert!(status == 200 && whole && !claims, "/synthetic/f: {status}, {bytes} bytes");
            }
            Ask::Get { shared: true, name, range, head, .. } => {
                let file = self.setup.shared.iter().find(|(known, _)| *known == name);
                let good = judge_get(file.map(|(_, data)| data), range, head, None, &response);
                good.unwrap_or_else(|wrong| panic!("/shared/{name}: {wrong}"));
            }
            Ask::Get { name, range, head, tag: known, .. } => {
                let judge = |state: &State| {
                    judge_get(state.as_ref(), range, head, known.as_deref(), &response)
                };
                let states = self.files.get_mut(&name).expect("every name has states");
                let wrong = states.iter().map(judge).find_map(Result::err);
                states.retain(|state| judge(state).is_ok());
                let bytes = response.body.len();
                assert!(!states.is_empty(), "{name}: {wrong:?}, {status} {bytes}");
                self.tags.extend(tag.map(|tag| (name, tag)));
            }
            Ask::Put { name, data, whole, .. } => {
                let states = self.files.get_mut(&name).expect("every name has states");
                let known = match status {
                    204 => states.iter().any(Option::is_some) && whole,
                    201 => states.contains(&None) && whole,
                    400 => !whole,
                    _ => false,
                };
                assert!(known, "{status} for PUT {name}");
                if whole {
                    *states = vec![Some(data)];
                    self.tags.insert(name, tag.expect("a PUT gives a tag"));
                }
            }
            Ask::Delete { name } => {
                let states = self.files.get_mut(&name).expect("every name has states");
                let known = match status {
                    204 => states.iter().any(Option::is_some),
                    404 => states.contains(&None),
                    _ => false,
                };
                assert!(known, "{status} for DELETE {name}");
                *states = vec![None];
            }
            Ask::List { json } => {
                assert_eq!(status, 200, "a listing");
                self.judge_list(json, &response);
            }
            Ask::Metrics => {
                let text = String::from_utf8_lossy(&response.body).into_owned();
                assert!(status == 200 && text.contains("upcall_queue_length"), "metrics: {text}");
            }
            Ask::Wrong(text) => assert!((400..600).contains(&status), "{status} for {text}"),
        }
    }

    fn judge_list(&self, json: bool, response: &Response) {
        let text = String::from_utf8_lossy(&response.body).into_owned();
        let link = |name: &str| name.replace(' ', "%20");
        for name in NAMES {
            let states = &self.files[name];
            let there = states[0].is_some();
            let pattern = match json {
                true => format!("\"name\":\"{name}\",\"href\":\"{}\"", link(name)),
                false => format!("<a href=\"{}\">{name}</a>", link(name)),
            };
            let times = text.matches(&pattern).count();
            let known = times == usize::from(there) || states.len() > 1;
            assert!(known && times < 2, "{name} is listed {times} times: {text}");
        }
    }

    /// Returns whether a request failed in a way that a fault excuses; then the file may have
    /// changed or not.
    fn failed(&mut self, io: &Io<'_>, ask: &Ask, status: u16) -> bool {
        let late = status == 408 && io.env.params.faults.stall > 0;
        // A path that could not be followed looks like one that does not exist.
        let lost = matches!(status, 404 | 409) && !matches!(ask, Ask::Wrong(_));
        let failed = matches!(status, 500 | 503 | 507) || lost || late;
        if !failed || !(late || io.was_injected(self.begun, None)) {
            assert!(!failed || status == 404, "{status} for {}", describe(ask));
            return false;
        }
        if let Some((name, state)) = effect(ask) {
            self.files.entry(name.to_string()).or_default().push(state);
            self.tags.remove(name);
            return true;
        }
        status != 404
    }

    /// Determines the outcome of unanswered requests.
    fn settle(&mut self, io: &Io<'_>, asks: &[Ask]) {
        for ask in asks {
            if let Some((name, state)) = effect(ask) {
                self.files.entry(name.to_string()).or_default().push(state);
                self.tags.remove(name);
            }
        }
        let Some(disk) = io.disk() else { return };
        for (name, states) in &mut self.files {
            let real = disk.lookup(self.setup.inode, name.as_bytes());
            let real = real.and_then(|inode| disk.inode(inode));
            let real = real.map(|node| node.data.read(0, node.data.len() as usize));
            let length = real.as_ref().map(Vec::len);
            assert!(states.contains(&real), "{name} has {length:?} bytes: nobody gave it these");
            *states = vec![real];
        }
    }

    /// Checks that uploads left no temporary files, unless the disk refused to remove them.
    fn expect_tidy(&self, io: &Io<'_>) {
        let Some(disk) = io.disk() else { return };
        let names = disk.names(self.setup.inode);
        let left = names.keys().find(|name| name.as_bytes().starts_with(b".upcall-put"));
        let known = left.is_none() || io.was_injected(Instant(0), None);
        assert!(known, "{left:?} was left behind");
    }
}

fn encode_put(io: &mut Io<'_>, path: &str, data: &[u8], chunked: bool, whole: bool) -> Vec<u8> {
    let length = match chunked {
        true => "Transfer-Encoding: chunked".to_string(),
        false => format!("Content-Length: {}", data.len() + usize::from(!whole)),
    };
    let mut bytes =
        format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n").into_bytes();
    if !chunked {
        bytes.extend_from_slice(data);
        return bytes;
    }
    let mut rest = data;
    while !rest.is_empty() {
        let count = io.rng().usize(1..=rest.len());
        bytes.extend(format!("{count:x}\r\n").bytes());
        bytes.extend_from_slice(&rest[..count]);
        bytes.extend(b"\r\n");
        rest = &rest[count..];
    }
    bytes.extend_from_slice(if whole { b"0\r\n\r\n" } else { b"" });
    bytes
}

/// Returns the file that a request changes, and its new state.
fn effect(ask: &Ask) -> Option<(&str, State)> {
    match ask {
        Ask::Put { name, data, whole: true, .. } => Some((name, Some(data.clone()))),
        Ask::Delete { name } => Some((name, None)),
        _ => None,
    }
}

fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Put { name, data, chunked, whole } => {
            format!("PUT {name}, {} bytes, chunked {chunked}, whole {whole}", data.len())
        }
        other => format!("{other:?}"),
    }
}

/// Returns whether a response matches a file, or the difference.
fn judge_get(
    file: Option<&Vec<u8>>,
    range: Option<(u64, u64)>,
    head: bool,
    known: Option<&str>,
    response: &Response,
) -> Result<(), String> {
    let status = response.status;
    let expect = |expected: u16, good: bool| match good && status == expected {
        true => Ok(()),
        false => Err(format!("{status} with {} bytes, not {expected}", response.body.len())),
    };
    let Some(data) = file else { return expect(404, true) };
    if known.is_some_and(|known| response.field("etag") == Some(known)) {
        return expect(304, true);
    }
    match range.filter(|(first, _)| *first < data.len() as u64) {
        None if range.is_some() => expect(416, true),
        None => {
            let length = response.field("content-length") == Some(&*data.len().to_string());
            expect(200, length && (head || response.body == *data))
        }
        Some((first, last)) => {
            let last = (last + 1).min(data.len() as u64);
            expect(206, response.body == data[first as usize..last as usize])
        }
    }
}

impl Client for Http {
    fn wake(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Away {
            return;
        }
        if self.left == 0 || io.is_stopped() {
            self.phase = Phase::Done;
            return;
        }
        self.input.clear();
        self.begun = io.now();
        self.parting = false;
        self.phase = Phase::Leaving;
        if io.connect(self.setup.listener) {
            self.phase = Phase::Working;
            self.work(io);
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while self.phase == Phase::Working {
            let head = match self.queue.front() {
                Some(ask) => matches!(ask, Ask::Get { head: true, .. }),
                None => {
                    assert!(self.input.is_empty(), "an answer to no request");
                    break;
                }
            };
            let Some(response) = take_response(&mut self.input, head) else { break };
            let ask = self.queue.pop_front().expect("looked at above");
            let last = response.field("connection") == Some("close");
            self.answered(io, ask, response);
            if last {
                self.phase = Phase::Leaving;
                io.finish();
            }
        }
        self.work(io);
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.phase == Phase::Leaving
            || self.queue.is_empty()
            || self.parting
            || io.may_be_cut()
            || io.was_injected(self.begun, None);
        assert!(expected, "the server hung up while {:?}", self.phase);
        self.phase = Phase::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        let queue: Vec<Ask> = std::mem::take(&mut self.queue).into();
        self.settle(io, &queue);
        self.expect_tidy(io);
        self.phase = Phase::Away;
        let pause = io.rng().u64(1..100);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, io: &mut Io<'_>) {
        assert!(matches!(self.phase, Phase::Away | Phase::Done), "never came to rest: {self:?}");
        self.settle(io, &[]);
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}

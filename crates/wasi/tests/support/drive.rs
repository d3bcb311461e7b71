//! Drives a guest to its end, over a tree in memory.

use super::ram::Ram;
use base::Error;
use tree::{Ask, Reply};
use wasi::{
    Budget, Ended, Engine, Got, Guest, Pause, Program, Reason, Start, Stream, Times, Used, Want,
};

/// Fuel of a slice, and processor time charged for it, ns: the end of a run by fuel does not depend
/// on the machine.
pub(crate) const SLICE_FUEL: u64 = 10_000;
const SLICE_NS: u64 = 10_000;

/// Parameters of a run.
pub(crate) struct Session {
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) input: Vec<u8>,
    pub(crate) writes: bool,
    pub(crate) budget: Budget,
    pub(crate) seed: [u8; 32],
    /// Number of slices after which the guest is cancelled.
    pub(crate) slices_max: u64,
    /// Clock of processor time; without it every slice counts the same.
    pub(crate) clock: Option<fn() -> u64>,
}

impl Session {
    /// A session with these arguments, read-only.
    pub(crate) fn new(args: &[&str]) -> Session {
        Session {
            args: args.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            input: Vec::new(),
            writes: false,
            budget: Budget::default(),
            seed: [1; 32],
            slices_max: u64::MAX,
            clock: None,
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) ended: Ended,
    pub(crate) output: Vec<u8>,
    pub(crate) error: Vec<u8>,
    pub(crate) used: Used,
}

impl Run {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// An engine with deterministic slices.
pub(crate) fn by_fuel() -> Engine {
    Engine::new(wasi::Pace::Fuel(SLICE_FUEL)).expect("an engine")
}

/// Compiles a program from the text or the bytes of a module.
pub(crate) fn program(engine: &Engine, module: impl AsRef<[u8]>) -> Program {
    let bytes = wat::parse_bytes(module.as_ref()).expect("it is a module");
    engine.compile(&bytes).expect("it compiles")
}

/// Runs a program to its end.
pub(crate) fn run(ram: &mut Ram, program: &Program, session: &Session) -> Run {
    run_with(ram, program, session, &mut Ram::answer)
}

/// Runs a program with another server of requests.
pub(crate) fn run_with(
    ram: &mut Ram,
    program: &Program,
    session: &Session,
    answer: &mut dyn FnMut(&mut Ram, Ask) -> Result<Reply, Error>,
) -> Run {
    let start = Start {
        args: session.args.clone(),
        env: Vec::new(),
        root: ram.root(),
        stdin: None,
        writes: session.writes,
        seed: session.seed,
        budget: session.budget,
    };
    let mut guest = Guest::new(program, &start);
    let mut world =
        World { now: 0, input: session.input.clone(), output: [const { Vec::new() }; 2] };
    let (mut got, mut coming) = (None, None);
    let ended = loop {
        let begun = session.clock.map(|clock| clock());
        let pause = guest.resume(got.take(), world.times());
        let spent = begun.zip(session.clock).map_or(SLICE_NS, |(begun, clock)| clock() - begun);
        guest.charge(spent, 0);
        world.now += spent;
        guest.take_given().into_iter().for_each(|given| ram.take_back(given));
        if let Some(ask) = guest.take_foreseen() {
            coming = Some(answer(ram, ask));
        }
        let over = guest.used().slices > session.slices_max;
        let pause = match pause {
            Pause::Ended(ended) => break ended,
            Pause::Wants(want) if over => {
                let ended = guest.kill(Reason::Cancelled);
                late(ram, &guest, want, answer);
                break ended;
            }
            Pause::Slice if over => break guest.kill(Reason::Cancelled),
            pause @ (Pause::Slice | Pause::Wants(_)) => pause,
        };
        got = match pause {
            Pause::Wants(Want::File(ask)) => Some(Got::File(answer(ram, ask))),
            Pause::Wants(Want::Prefetch) => {
                guest.arrive(coming.take().expect("it was requested"));
                Some(Got::Done)
            }
            Pause::Wants(want) => Some(world.give(want)),
            Pause::Slice | Pause::Ended(_) => None,
        };
        // Prefetches complete at arbitrary times.
        if guest.used().slices.is_multiple_of(3) {
            coming.take().into_iter().for_each(|reply| guest.arrive(reply));
        }
        if world.now > session.budget.time_ns {
            if let Some(Got::File(Ok(reply))) = got.take() {
                guest.disclaim(&reply);
            }
            break guest.kill(Reason::Time);
        }
    };
    assert!(guest.is_over());
    let used = guest.used();
    guest.take_given().into_iter().for_each(|given| ram.take_back(given));
    assert_eq!(ram.held(), (0, 0), "all is given back");
    let [output, error] = world.output;
    assert!((output.len() + error.len()) as u64 <= session.budget.output, "output in its budget");
    assert!(used.memory <= session.budget.memory, "memory in its budget");
    assert!(used.operations <= session.budget.operations.saturating_add(1), "and requests");
    Run { ended, output, error, used }
}

/// Replies to a request after the end of the guest.
fn late(
    ram: &mut Ram,
    guest: &Guest,
    want: Want,
    answer: &mut dyn FnMut(&mut Ram, Ask) -> Result<Reply, Error>,
) {
    if let Want::File(ask) = want
        && let Ok(reply) = answer(ram, ask)
    {
        guest.disclaim(&reply);
    }
}

/// Environment of a guest except files.
struct World {
    now: u64,
    input: Vec<u8>,
    output: [Vec<u8>; 2],
}

impl World {
    fn times(&self) -> Times {
        let begin = 1_700_000_000_000_000_000;
        Times { wall: begin + self.now, monotonic: self.now }
    }

    fn give(&mut self, want: Want) -> Got {
        match want {
            Want::Input(count) => {
                let count = self.input.len().min(count as usize);
                Got::Input(self.input.drain(..count).collect())
            }
            Want::Output(stream, bytes) => {
                let which = match stream {
                    Stream::Output => 0,
                    Stream::Error => 1,
                };
                self.output[which].extend(bytes);
                Got::Done
            }
            Want::Sleep(span) => {
                self.now = self.now.saturating_add(span).min(1 << 62);
                Got::Done
            }
            Want::File(_) | Want::Prefetch => unreachable!("they are answered by a tree"),
        }
    }
}

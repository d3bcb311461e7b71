//! Random storelets of clients.

use super::{Budget, Job, Plan};
use crate::storelets::environment::Environment;
use crate::storelets::programs::{self, Kinds};
use base::Instant;
use base::rng::Rng;
use std::collections::VecDeque;
use std::fmt::Write as _;
use tree::OpenId;

/// Default budget.
const DEFAULT: Budget = Budget {
    cpu: 10_000_000_000,
    fuel: u64::MAX,
    time: 60_000_000_000,
    memory: 256 << 20,
    io: u64::MAX,
    bytes: u64::MAX,
    output: 1 << 30,
};

/// More time than a server permits: a hundred hours, ns.
const BEYOND: u64 = 360_000_000_000_000;

impl Job {
    /// Draws a client's next storelet, its `index`-th, with the number `id`.
    pub(in crate::storelets) fn draw(
        env: &mut Environment,
        open: OpenId,
        id: u64,
        index: usize,
    ) -> Job {
        if env.params.holds && index == 0 {
            return Job::holder(env, open, id);
        }
        let kind = Kinds::ALL[env.rng.usize(..Kinds::ALL.len())];
        let (wrong, garbage) = (env.one_in(env.params.wrong), env.one_in(env.params.wrong));
        let rng = &mut env.rng;
        let (frames, known) = (rng.u8(..4) > 0, !garbage && rng.u8(..3) == 0);
        let mut text = format!("arg program-{index}\n");
        let (path, expected) = subject(rng, kind, id, &mut text);
        let (budget, is_modest) = budget(rng, &mut text);
        let writes = rng.u8(..5) > 0;
        let (input, fed) = input(rng, kind, &expected);
        for (word, is_set) in [("frames\n", frames), ("write\n", writes), ("input\n", input)] {
            text.push_str(if is_set { word } else { "" });
        }
        let module = match garbage {
            true => b"\0asm\x01\0\0\0 and so on, but not as modules go on".to_vec(),
            false => programs::of(kind).module.clone(),
        };
        if wrong {
            text.push_str(["colour red\n", "cpu 10q\n", "root /a/../b\n"][rng.usize(..3)]);
        }
        match known {
            true => writeln!(text, "module sha256:{}", programs::of(kind).hash),
            false => writeln!(text, "module {}", module.len()),
        }
        .expect("a string");
        let mut bytes = text.into_bytes();
        bytes.push(b'\n');
        bytes.extend(if known { Vec::new() } else { module });
        let waits = input && kind == Kinds::Echo && !fed.ends_with(&[0; 4]);
        bytes.extend(fed);
        let expected = if kind == Kinds::Echo && !input { Vec::new() } else { expected };
        let pieces = cut(rng, &bytes);
        let plan = Plan {
            kind,
            budget,
            frames,
            wrong,
            garbage,
            known,
            writes,
            waits,
            is_modest,
            holds: false,
            expected,
            path,
        };
        Job::of(env, open, id, plan, pieces)
    }

    /// Returns the storelet of a client that takes as much memory as permitted, and waits for input
    /// that never comes, for as long as permitted.
    fn holder(env: &mut Environment, open: OpenId, id: u64) -> Job {
        let (kind, memory) = (Kinds::Echo, env.params.maxima().memory);
        let module = &programs::of(kind).module;
        let text = format!("frames\ninput\nmemory {memory}\ncpu 5ms\nmodule {}\n\n", module.len());
        let pieces = VecDeque::from([[text.as_bytes(), module].concat()]);
        let plan = Plan {
            kind,
            budget: Budget { memory, cpu: 5_000_000, ..DEFAULT },
            frames: true,
            wrong: false,
            garbage: false,
            known: false,
            writes: false,
            waits: true,
            is_modest: true,
            holds: true,
            expected: Vec::new(),
            path: String::new(),
        };
        Job::of(env, open, id, plan, pieces)
    }

    fn of(
        env: &mut Environment,
        open: OpenId,
        id: u64,
        plan: Plan,
        pieces: VecDeque<Vec<u8>>,
    ) -> Job {
        let some_time = |env: &mut Environment| Instant(env.now.0 + (1 << env.rng.u64(12..29)));
        let mut leave_at = env.one_in(env.params.leave).then(|| some_time(env));
        let kill_at = env.one_in(env.params.kill).then(|| some_time(env));
        let deaf = leave_at.is_some() && env.rng.bool();
        let deaf = if deaf { env.rng.usize(..1000) } else { usize::MAX };
        if leave_at.is_none() && plan.waits && plan.budget.time == DEFAULT.time && !plan.holds {
            leave_at = Some(Instant(env.now.0 + 90_000_000_000));
        }
        Job {
            open,
            id,
            plan,
            pieces,
            writing: false,
            begun: env.now,
            sent: env.now,
            reading: None,
            read_max: [1, 3, 77, 5000, 100_000][env.rng.usize(..5)],
            count: 0,
            cancelled: false,
            got: Vec::new(),
            ended: false,
            killed: false,
            kill_at,
            leave_at,
            deaf,
        }
    }
}

/// Draws the subject of a program; returns its path, and its output if it runs to its end.
fn subject(rng: &mut Rng, kind: Kinds, id: u64, text: &mut String) -> (String, Vec<u8>) {
    let stage = programs::stage();
    let mut path = String::new();
    let mut expected = Vec::new();
    match kind {
        Kinds::Cat | Kinds::Opener => {
            let names = ["empty", "small", "page", "large"];
            let name = names[rng.usize(..names.len())];
            let full = format!("data/{name}");
            let file = stage.into_iter().find(|(path, ..)| *path == full);
            if kind == Kinds::Cat {
                expected = file.expect("it is there").2;
            }
            let rooted = rng.u8(..4) == 0;
            path = if rooted { name.to_string() } else { full };
            text.push_str(if rooted { "root /data\n" } else { "" });
        }
        Kinds::List => {
            path = "data/many".to_string();
            let names = stage.iter().filter_map(|(path, ..)| path.strip_prefix("data/many/"));
            expected = names.flat_map(|name| format!("{name}\n").into_bytes()).collect();
        }
        Kinds::Search => {
            path = "data/many".to_string();
            let files = stage.into_iter().filter(|(path, ..)| path.starts_with("data/many/"));
            expected = files.flat_map(|(.., bytes)| bytes).collect();
        }
        Kinds::Writer => path = format!("out/f{id}"),
        Kinds::Sleeper | Kinds::Trap => expected = b"slept\n".to_vec(),
        Kinds::Echo => {
            let length = [0, 10, 5000, 600_000][rng.usize(..4)];
            expected = (0..length).map(|_| rng.u8(..)).collect();
        }
        Kinds::Spin | Kinds::Hog | Kinds::Flood => {}
    }
    writeln!(text, "arg {path}").expect("a string");
    (path, expected)
}

/// Draws a budget; CPU time is always limited, so that none takes long here. Also returns whether
/// it reserves nothing.
fn budget(rng: &mut Rng, text: &mut String) -> (Budget, bool) {
    let mut pick = |word: &str, from: &[u64], default: u64, unit: &str| {
        let value = from[rng.usize(..from.len())];
        if value == u64::MAX {
            return default;
        }
        writeln!(text, "{word} {value}{unit}").expect("a string");
        value
    };
    let none = u64::MAX;
    let budget = Budget {
        cpu: pick("cpu", &[100_000, 5_000_000, 20_000_000, 20_000_000], 0, "ns"),
        fuel: pick("fuel", &[none, none, none, 100_000, 0], DEFAULT.fuel, ""),
        time: pick("time", &[none, none, 10_000_000, 200_000_000], DEFAULT.time, "ns"),
        memory: pick("memory", &[40_000, 1 << 17, 1 << 20, 5 << 20, 5 << 20], 0, ""),
        io: pick("io", &[none, none, 0, 2, 100], DEFAULT.io, ""),
        bytes: pick("bytes", &[none, none, 10_000, 1 << 20], DEFAULT.bytes, ""),
        output: pick("output", &[none, none, 500, 100_000], DEFAULT.output, ""),
    };
    pick("weight", &[none, 1, 300, 10_000], 0, "");
    pick("limit", &[none, none, 20, 90], 0, "%");
    let certain = pick("reserve", &[none, none, 10], 0, "%");
    let certain = certain + pick("io-reserve", &[none, none, 20, 1000], 0, "");
    pick("io-limit", &[none, none, 300], 0, "");
    let memory = pick("memory", &[none, none, none, none, none, none, 300 << 20], 0, "");
    // Sometimes more than the server permits.
    let mut beyond = [none; 16];
    beyond[0] = BEYOND;
    let time = pick("time", &beyond, budget.time, "ns");
    let cpu = pick("cpu", &beyond, budget.cpu, "ns");
    let memory = if memory > 0 { memory } else { budget.memory };
    let budget = Budget { time, cpu, memory, ..budget };
    (budget, certain == 0)
}

/// Returns whether it has input, and the input in frames.
fn input(rng: &mut Rng, kind: Kinds, expected: &[u8]) -> (bool, Vec<u8>) {
    let input = rng.u8(..5) == 0 || (kind == Kinds::Echo && rng.u8(..10) > 0);
    let mut fed = Vec::new();
    if input {
        let data = if kind == Kinds::Echo { expected } else { b"that nobody hears" };
        let size = rng.usize(1..=40_000);
        data.chunks(size).for_each(|part| fed.extend(wire::storelet::encode_input(part)));
        if rng.u8(..4) > 0 || fed.ends_with(&[0; 4]) {
            fed.extend(wire::storelet::encode_input(b""));
        }
    }
    (input, fed)
}

/// Cuts bytes into pieces of odd sizes, not too many.
fn cut(rng: &mut Rng, bytes: &[u8]) -> VecDeque<Vec<u8>> {
    let most = [1, 7, 100, 5000, 1 << 20][rng.usize(..5)].max(bytes.len() / 100);
    let (mut pieces, mut rest) = (VecDeque::new(), bytes);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rng.usize(1..=most).min(rest.len()));
        pieces.push_back(piece.to_vec());
        rest = after;
    }
    pieces
}

//! Fuzzers of texts: names files, and run requests of storelets.

use super::streams;
use base::rng::Rng;
use names::Order;
use names::script::{Line, parse, path_text, quoted};
use storelet::Maxima;
use storelet::run_spec::{RunSpec, Wanted};

/// Letters of words, including all special ones.
const LETTERS: [char; 16] =
    ['a', 'b', 'c', '-', '.', '/', ' ', '\t', '\'', '#', '!', ':', '[', 'é', '\u{2028}', '9'];

/// Tests that parsed scripts survive a round trip, and that valid ones parse.
pub(super) fn script(rng: &mut Rng) {
    let lines: Vec<String> = (0..rng.usize(..5)).map(|_| line(rng)).collect();
    let mut bytes = lines.join("\n").into_bytes();
    let spoilt = rng.bool();
    if spoilt {
        streams::spoil(rng, &mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    match parse(&text) {
        Ok(lines) => {
            let again: String = lines.iter().map(|(_, line)| line_text(line) + "\n").collect();
            let known = parse(&again).unwrap_or_else(|mistake| panic!("{again:?}: {mistake}"));
            let lines = lines.into_iter().map(|(_, line)| line);
            assert!(known.into_iter().map(|(_, line)| line).eq(lines), "{text:?}: {again:?}");
        }
        Err(mistake) => {
            assert!(spoilt, "{text:?}: {mistake}");
            assert!((1..=text.lines().count()).contains(&mistake.line), "{text:?}: {mistake}");
        }
    }
}

fn word(rng: &mut Rng) -> String {
    let peer_message = |rng: &mut Rng| LETTERS[rng.usize(..LETTERS.len())];
    (0..rng.usize(1..12)).map(|_| peer_message(rng)).collect()
}

/// Draws a path without `.` and `..`.
fn place(rng: &mut Rng) -> String {
    let part = |rng: &mut Rng| format!("n{}", word(rng).replace('/', "s"));
    let parts: Vec<String> = (0..rng.usize(..4)).map(|_| part(rng)).collect();
    quoted(&format!("/{}", parts.join("/")))
}

fn source(rng: &mut Rng) -> String {
    let (name, aname) = (word(rng).replace('/', "d"), word(rng).replace('!', "a"));
    quoted(&match rng.u8(..5) {
        0 => format!("volume:{name}"),
        1 => format!("host:/{name}"),
        2 => format!("9p://host{}/{aname}", rng.u16(..)),
        3 => format!("9p://[::1]:{}", rng.u16(1..)),
        _ => format!("9p+unix:/{}!{aname}", name.replace('!', "u")),
    })
}

fn line(rng: &mut Rng) -> String {
    let flags = ["", "-a", "-b", "-r", "-c", "-ac", "-b -c"][rng.usize(..7)];
    let (one, two) = (place(rng), place(rng));
    let source = source(rng);
    let what = if rng.bool() { &two } else { &source };
    match rng.u8(..6) {
        0 | 1 => format!("mount {flags} {one} {source}"),
        2 => format!("  bind {flags} {one} {two} # why"),
        3 => format!("unmount {one}"),
        4 => {
            let file = quoted(&format!("volume:{}", word(rng)));
            format!("grow {file} {}{}", rng.u32(..), ["", "K", "GB", "GiB"][rng.usize(..4)])
        }
        _ => format!("unmount {what} {one}"),
    }
}

/// Returns a line as text.
fn line_text(line: &Line) -> String {
    let flags = |order: Order, create: bool| {
        let order = match order {
            Order::Replace => "-r",
            Order::Before => "-b",
            Order::After => "-a",
        };
        if create { format!("{order}c") } else { order.to_string() }
    };
    match line {
        Line::Mount { at, source, order, create } => {
            let source = quoted(&source.to_string());
            format!("mount {} {} {source}", flags(*order, *create), path_text(at))
        }
        Line::Bind { new, old, order, create } => {
            format!("bind {} {} {}", flags(*order, *create), path_text(new), path_text(old))
        }
        Line::Unmount { what, at } => {
            let what = what.as_ref().map(|what| quoted(what) + " ").unwrap_or_default();
            format!("unmount {what}{}", path_text(at))
        }
        Line::Grow { file, bytes } => format!("grow {} {bytes}", quoted(&format!("volume:{file}"))),
    }
}

/// Tests that a run request never exceeds the server's limits, and that valid ones parse.
pub(super) fn run_order(rng: &mut Rng) {
    let module = match rng.u8(..4) {
        0 => format!("module {}", rng.u32(1..1 << 24)),
        1 => "standing wc@2".to_owned(),
        _ => format!("module sha256:{:064x}", rng.u128(..)),
    };
    let mut lines = vec![module];
    let is_fixed = lines[0].starts_with("standing");
    lines.extend((0..rng.usize(..10)).map(|_| order_line(rng, is_fixed)));
    let mut bytes = lines.join("\n").into_bytes();
    let is_spoilt = rng.bool();
    if is_spoilt {
        streams::spoil(rng, &mut bytes);
    }
    let maxima = Maxima { time_ns: 60_000_000_000, cpu_ns: 10_000_000_000, memory: 64 << 20 };
    let all = RunSpec::parse(&bytes);
    match RunSpec::parse_within(&bytes, &maxima) {
        Ok(run_spec) => {
            let stages = std::iter::once(&run_spec).chain(&run_spec.then);
            for stage in stages.filter(|stage| !matches!(stage.module, Wanted::Standing(_))) {
                let given = stage.budget;
                let shown = String::from_utf8_lossy(&bytes);
                assert!(given.time_ns <= maxima.time_ns, "{shown:?}");
                assert!(given.cpu_ns <= maxima.cpu_ns, "{shown:?}");
                assert!(given.memory <= maxima.memory);
                assert!(stage.share_spec.reservation <= stage.share_spec.limit);
            }
            assert!(all.is_ok(), "what is understood within maxima is understood without");
            assert!(!run_spec.args.is_empty() || is_fixed || is_spoilt, "it has a name");
        }
        Err(why) => assert!(!why.is_empty() && why.len() < bytes.len() + 500, "{why}"),
    }
    assert!(all.is_ok() || is_spoilt, "{:?}: {all:?}", String::from_utf8_lossy(&bytes));
}

fn order_line(rng: &mut Rng, is_fixed: bool) -> String {
    let number = rng.u32(1..9);
    match rng.u8(..10) {
        0 if !is_fixed => format!("env A={}", word(rng).replace(['%', '\n'], "x")),
        1 if !is_fixed => format!("root /a/b{number}"),
        2 => format!("cpu {number}s"),
        3 => format!("memory {number}M"),
        4 => format!("time {number}ms"),
        5 => format!("io {number}"),
        6 => "frames".to_owned(),
        7 => format!("output {number}K"),
        _ => format!("arg {}", word(rng)),
    }
}

//! A fuzzer of names files.

use super::streams;
use base::rng::Rng;
use names::Order;
use names::script::{Line, parse, path_text, quoted};

/// Letters of words, among them all that mean something.
const LETTERS: [char; 16] =
    ['a', 'b', 'c', '-', '.', '/', ' ', '\t', '\'', '#', '!', ':', '[', 'é', '\u{2028}', '9'];

/// What is understood is the same when it is said again; what is right is understood.
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
            let again: String = lines.iter().map(|(_, line)| said(line) + "\n").collect();
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
    let letter = |rng: &mut Rng| LETTERS[rng.usize(..LETTERS.len())];
    (0..rng.usize(1..12)).map(|_| letter(rng)).collect()
}

/// A place: no part of it is `.` or `..`.
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
    match rng.u8(..5) {
        0 | 1 => format!("mount {flags} {one} {source}"),
        2 => format!("  bind {flags} {one} {two} # why"),
        3 => format!("unmount {one}"),
        _ => format!("unmount {what} {one}"),
    }
}

/// A line in words.
fn said(line: &Line) -> String {
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
    }
}

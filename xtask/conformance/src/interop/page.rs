//! `docs/interop.md`: the table as last recorded.

use super::clients::Client;
use super::peers::Peer;
use super::tools::Tools;
use super::{Cell, Entry, Row};
use anyhow::{Context, Result};
use rig::sh;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const PAGE: &str = "docs/interop.md";

const HEAD: &str = include_str!("head.md");

/// Reads the cells of the page by the names of row and client.
pub(super) fn read() -> Result<BTreeMap<(String, String), String>> {
    let text = std::fs::read_to_string(sh::root().join(PAGE)).unwrap_or_default();
    let mut cells = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let mut words = line.trim_matches('|').split('|').map(str::trim);
        let first = words.next().context("a row has a first cell")?;
        match first {
            "server" | "server behind `names`" => names = words.map(bare).collect(),
            _ if first.starts_with("client") => names.clear(),
            _ => {
                let row = bare(first);
                cells.extend(
                    names
                        .iter()
                        .zip(words)
                        .map(|(n, cell)| ((row.clone(), n.clone()), printed(cell))),
                );
            }
        }
    }
    Ok(cells)
}

/// Returns a name without code marks.
fn bare(name: &str) -> String {
    name.replace('`', "")
}

/// Returns a cell without its footnote.
fn printed(cell: &str) -> String {
    cell.split(" [").next().unwrap_or_default().to_owned()
}

/// Writes the page.
pub(super) fn write(entries: &[Entry], _tools: &Tools, kernel: &str) -> Result<()> {
    let mut notes = Vec::new();
    let mut text = HEAD.to_owned();
    text.push_str("\n## Directly\n\n");
    table(&mut text, entries, false, &mut notes)?;
    text.push_str("\n## Through a namespace\n\n");
    text.push_str(
        "The client speaks to `upcall serve --names`, which has mounted the server at `/far`: \
         here Upcall is the\nserver of every client, and the client of every server.\n\n",
    );
    table(&mut text, entries, true, &mut notes)?;
    text.push_str("\n## Error messages\n\n");
    for (number, note) in (1..).zip(&notes) {
        writeln!(text, "{number}. {note}")?;
    }
    text.push_str("\n## Who they are\n\n| server | what |\n|---|---|\n");
    for peer in Peer::ALL {
        let version = if peer == Peer::Diod { format!(" {}", diod()?) } else { String::new() };
        writeln!(text, "| `{}` | {}{version} |", peer.name(), peer.what())?;
    }
    text.push_str("\n| client | what |\n|---|---|\n");
    for client in Client::ALL {
        let version = if client == Client::Diod { format!("; {}", diod()?) } else { String::new() };
        writeln!(text, "| `{}` | {}{version} |", client.name(), client.what(kernel))?;
    }
    Ok(std::fs::write(sh::root().join(PAGE), text)?)
}

fn diod() -> Result<String> {
    sh::read(&mut sh::cmd("dpkg-query", &["-W", "-f", "${Version}", "diod"]))
}

fn table(
    text: &mut String,
    entries: &[Entry],
    joined: bool,
    notes: &mut Vec<String>,
) -> Result<()> {
    let first = if joined { "server behind `names`" } else { "server" };
    let clients: Vec<_> = Client::ALL.iter().map(|c| format!("`{}`", c.name())).collect();
    writeln!(text, "| {first} | {} |", clients.join(" | "))?;
    writeln!(text, "|---|{}", "---|".repeat(clients.len()))?;
    for row in Row::all().filter(|row| row.joined == joined) {
        write!(text, "| `{}` |", row.name())?;
        for client in Client::ALL {
            let cell = entries.iter().find(|(r, c, _)| *r == row && *c == client);
            let (_, _, Cell { words, why }) = cell.context("every pair has run")?;
            let note = why.as_ref().map(|why| format!(" [{}]", number(notes, why)));
            write!(text, " {words}{} |", note.unwrap_or_default())?;
        }
        text.push('\n');
    }
    Ok(())
}

/// Returns the number of a footnote; equal texts share one.
fn number(notes: &mut Vec<String>, why: &str) -> usize {
    let why = format!("`{}`", why.replace('`', "'").trim());
    let known = notes.iter().position(|note| *note == why);
    known.unwrap_or_else(|| {
        notes.push(why);
        notes.len() - 1
    }) + 1
}

//! Rules about the project's text that no compiler checks.
//!
//! - Rust: lines of at most 100 columns, files of at most 800 lines, functions of at most 70; no
//!   leftovers (see [`LEFTOVERS`]); no `_ =>` beside an `impl Automaton`; `unsafe` only in
//!   `crates/reactor`, in the memory of blocks, where compiled modules are loaded, and in
//!   `benches`, for foreign functions in C; each `lib.rs` and `main.rs` begins with its
//!   description.
//! - The server: at least one assertion for every other function (see [`assertions`]).
//! - Markdown: one title, no dead links to files.

mod assertions;

use anyhow::Result;
use rig::sh;
use std::path::Path;

/// Strings that must not stay, split so that this file does not match itself.
const LEFTOVERS: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("dbg", "!("),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[", "ignore"),
];

/// Paths where `unsafe` is allowed.
const UNSAFE: &[&str] = &[
    "crates/reactor/",
    "crates/base/src/block/memory.rs",
    "crates/wasi/src/artifact.rs",
    "benches/",
];

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Returns every violation, as `file:line: text`.
pub(crate) fn complaints() -> Result<Vec<String>> {
    let list = files()?;
    let (mut complaints, mut count) = (Vec::new(), assertions::Count::default());
    for name in list.lines() {
        let Ok(text) = std::fs::read_to_string(sh::root().join(name)) else { continue };
        if name.ends_with(".rs") {
            rust(name, &text, &mut complaints);
            count.add(name, &text);
        } else if name.ends_with(".md") {
            markdown(&sh::root(), name, &text, &mut complaints);
        }
    }
    complaints.extend(count.complaint());
    Ok(complaints)
}

/// Returns the names of the project's files, a line each.
pub(crate) fn files() -> Result<String> {
    sh::read(&mut sh::cmd("git", &["ls-files", "--cached", "--others", "--exclude-standard"]))
}

fn rust(name: &str, text: &str, complaints: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        complaints.push(format!("{name}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
    let root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
    if root && !text.starts_with("//!") {
        complaints.push(format!("{name}:1: begins with what it is, as `//!`"));
    }
    let automaton = text.lines().any(|line| line.starts_with("impl") && names_automaton(line));
    for (number, line) in (1..).zip(text.lines()) {
        let mut say = |what: &str| complaints.push(format!("{name}:{number}: {what}"));
        if line.chars().count() > COLUMNS_MAX {
            say("more than 100 columns");
        }
        for leftover in LEFTOVERS.iter().filter(|leftover| line.contains(*leftover)) {
            say(&format!("leftover `{leftover}`"));
        }
        let code = line.split("//").next().unwrap_or("");
        if automaton && code.trim_start().starts_with(concat!("_", " =>")) {
            say("a catch-all arm in a machine");
        }
        if !UNSAFE.iter().any(|home| name.starts_with(home)) && is_unsafe(code) {
            say("only crates/reactor, the memory of blocks and artifacts may be unsafe");
        }
    }
    functions(name, text, complaints);
}

fn names_automaton(line: &str) -> bool {
    line.contains("Automaton for ")
}

fn is_unsafe(code: &str) -> bool {
    let keyword = concat!("un", "safe");
    ["{", "fn ", "impl ", "extern "].iter().any(|next| code.contains(&format!("{keyword} {next}")))
        || code.contains(&format!("allow({keyword}_code)"))
}

/// Checks functions in text formatted by rustfmt: the closing brace has the indentation of the
/// `fn`.
fn functions(name: &str, text: &str, complaints: &mut Vec<String>) {
    let lines: Vec<_> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if !begins_function(line) {
            continue;
        }
        let close = close_of(line);
        let body = lines[at..].iter().take_while(|line| **line != close);
        let code = body.filter(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        });
        let length = code.count();
        let declared_only = lines[at..].iter().find(|line| line.ends_with([';', '{', '}']));
        if length > FUNCTION_LINES_MAX && declared_only.is_some_and(|line| line.ends_with('{')) {
            complaints.push(format!("{name}:{}: a function of {length} lines", at + 1));
        }
    }
}

/// Returns the line that closes the function beginning in this one.
fn close_of(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    format!("{}}}", " ".repeat(indent))
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub")
            || ["const", "extern", "\"C\"", concat!("un", "safe")].contains(word)
    });
    words.next() == Some("fn")
}

fn markdown(root: &Path, name: &str, text: &str, complaints: &mut Vec<String>) {
    let mut fenced = false;
    let mut titles = 0;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        titles += usize::from(line.starts_with("# "));
        for link in links(line) {
            let file = link.split('#').next().unwrap_or("");
            let outside = link.contains("://") || link.starts_with("mailto:") || file.is_empty();
            let from = root.join(name);
            let here = from.parent().expect("a file has a directory");
            if !outside && !here.join(file).exists() {
                complaints.push(format!("{name}:{number}: dead link {link}"));
            }
        }
    }
    // The drawing of a machine is a part of its module's documentation.
    let drawing = name.ends_with("/states.md");
    if titles != 1 && !drawing {
        complaints.push(format!("{name}: {titles} titles, not one"));
    }
}

/// Returns the targets of `[text](target)` in a line, outside of code spans.
fn links(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    outside_code
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split(' ').next().unwrap_or(""))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(name: &str, text: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        rust(name, text, &mut complaints);
        complaints
    }

    #[test]
    fn the_project_is_tidy() {
        let complaints = complaints().expect("git lists the files");
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn a_catch_all_in_a_machine_is_found() {
        let arm = concat!("        _", " => State::Idle,");
        let text = format!("impl Automaton for Door {{\n{arm}\n}}\n");
        assert_eq!(printed("a.rs", &text), ["a.rs:2: a catch-all arm in a machine"]);
        assert!(printed("a.rs", &format!("impl Door {{\n{arm}\n}}\n")).is_empty());
    }

    #[test]
    fn a_long_function_is_found_and_a_declaration_is_not() {
        let body = "    work();\n".repeat(70);
        let text = format!("pub(crate) fn long() {{\n{body}}}\n");
        assert_eq!(printed("a.rs", &text), ["a.rs:1: a function of 71 lines"]);
        let text = format!("    fn declared(&self);\n{body}");
        assert!(printed("a.rs", &text).is_empty());
    }

    #[test]
    fn unsafe_code_has_one_home() {
        let text = concat!("    un", "safe { read(at) }\n");
        assert_eq!(printed("crates/base/src/a.rs", text).len(), 1);
        assert!(printed("crates/reactor/src/a.rs", text).is_empty());
    }

    #[test]
    fn dead_links_and_second_titles_are_found() {
        let mut complaints = Vec::new();
        let text = "# One\n[gone](nowhere.md) `[code](no.md)` [web](https://example.org)\n# Two\n";
        markdown(&sh::root(), "README.md", text, &mut complaints);
        assert_eq!(
            complaints,
            ["README.md:2: dead link nowhere.md", "README.md: 2 titles, not one"]
        );
    }
}

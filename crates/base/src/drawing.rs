//! Draws a machine by running it: feeds every sample state and input to `step`.
//!
//! Each machine's test records its samples with [`Drawing::row`] and calls
//! [`Drawing::assert_fresh`] with the path of its `states.md`, which its module documentation
//! includes. `UPDATE_EXPECT=1` (`cargo xtask machines`) rewrites the file.

use crate::{Automaton, Instant};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

/// The rows seen so far, in the order of samples.
#[derive(Debug, Default)]
pub struct Drawing {
    rows: Vec<[String; 4]>,
    seen: BTreeSet<[String; 4]>,
}

/// Returns the name of an enum's variant: its `Debug` text up to the first field.
pub fn variant<T: Debug>(value: &T) -> String {
    let text = format!("{value:?}");
    text.split(['(', ' ', '{']).next().unwrap_or_default().to_string()
}

/// Runs `step`; returns `false` if it panicked. Panics of this thread print nothing meanwhile.
fn quietly(step: impl FnOnce()) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(step));
    QUIET.set(false);
    result.is_ok()
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

impl Drawing {
    /// Steps `machine` (a sample state) with `input`; records the row unless the pair panics as
    /// impossible. `state` returns the one-word name of a machine's state.
    pub fn sample<M>(&mut self, machine: M, input: M::Input, state: impl Fn(&M) -> String)
    where
        M: Automaton,
        M::Input: Debug,
        M::Output: Debug,
    {
        self.sample_as(&variant(&input), machine, input, state);
    }

    /// Like [`Drawing::sample`], with a label for an input whose variant's name is ambiguous.
    pub fn sample_as<M>(
        &mut self,
        label: &str,
        mut machine: M,
        input: M::Input,
        state: impl Fn(&M) -> String,
    ) where
        M: Automaton,
        M::Output: Debug,
    {
        let before = state(&machine);
        let mut out = Vec::new();
        // Impossible pairs panic by design; their messages would only confuse.
        let stepped = quietly(|| {
            machine.check();
            machine.step(Instant(0), input, &mut out);
            machine.check();
        });
        if stepped {
            let asks: Vec<String> = out.iter().map(variant).collect();
            self.row(&before, label, &state(&machine), &asks.join(", "));
        }
    }

    /// Records one row.
    pub fn row(&mut self, state: &str, input: &str, next: &str, asks: &str) {
        let row = [state, input, next, asks].map(str::to_string);
        if self.seen.insert(row.clone()) {
            self.rows.push(row);
        }
    }

    /// Returns the table and the graph as Markdown. The graph omits rows without a change of state
    /// and without an output.
    pub fn markdown(&self) -> String {
        let mut text = String::from("| state | input | next | asks for |\n|---|---|---|---|\n");
        for [state, input, next, asks] in &self.rows {
            writeln!(text, "| {state} | {input} | {next} | {asks} |").expect("a string");
        }
        text.push_str("\n```mermaid\nstateDiagram-v2\n");
        let mut arrows = BTreeSet::new();
        for [state, input, next, asks] in &self.rows {
            let idle = state == next && asks.is_empty();
            if !idle && arrows.insert([state, input, next]) {
                writeln!(text, "    {state} --> {next}: {input}").expect("a string");
            }
        }
        text.push_str("```\n");
        text
    }

    /// Compares the drawing with the file, or rewrites the file if `UPDATE_EXPECT` is set.
    pub fn assert_fresh(&self, path: impl AsRef<Path>) {
        let (path, text) = (path.as_ref(), self.markdown());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, &text).expect("the drawing stands beside the code");
        }
        let drawn = std::fs::read_to_string(path).unwrap_or_default();
        assert!(drawn == text, "{} is stale; run: cargo xtask machines", path.display());
    }
}

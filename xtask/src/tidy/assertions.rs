//! Density of assertions in the server's functions.
//!
//! It counts `assert!` and its kin, `unreachable!`, `panic!`, and `expect` with a reason; and
//! functions with bodies longer than three lines, since shorter ones have little to assert. Tests
//! are not counted.

use super::{begins_function, close_of};

/// Crates of the server.
const CRATES: [&str; 14] = [
    "base", "client", "embed", "front", "names", "node", "reactor", "replica", "services",
    "session", "store", "storelet", "tree", "wire",
];

/// Minimum number of assertions per hundred functions. The goal is 50.
const PER_HUNDRED_MIN: usize = 48;

/// Maximum body of an ignored function, lines.
const SHORT: usize = 3;

/// Calls counted as assertions, split so that this file has none.
const ASSERTIONS: &[&str] = &[
    concat!("assert", "!("),
    concat!("assert", "_eq!("),
    concat!("assert", "_ne!("),
    concat!("unreach", "able!("),
    concat!("pan", "ic!("),
    concat!(".exp", "ect(\""),
];

/// Totals of the files counted so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    functions: usize,
    assertions: usize,
}

impl Count {
    /// Counts the contents of a file, if it belongs to the server.
    pub(super) fn add(&mut self, name: &str, text: &str) {
        if !is_counted(name) {
            return;
        }
        let tests = text.find(concat!("#[cfg(test)]\n", "mod tests {"));
        let lines: Vec<&str> = text[..tests.unwrap_or(text.len())].lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = if line.trim_start().starts_with("//") { "" } else { line };
            self.assertions +=
                ASSERTIONS.iter().map(|kind| code.matches(kind).count()).sum::<usize>();
            let is_long = begins_function(line) && body(&lines[at..]) > SHORT;
            self.functions += usize::from(is_long);
        }
    }

    /// Returns a complaint if there are too few assertions.
    pub(super) fn complaint(&self) -> Option<String> {
        let Count { functions, assertions } = self;
        let too_few = assertions * 100 < functions * PER_HUNDRED_MIN;
        too_few.then(|| {
            format!(
                "crates: {assertions} assertions in {functions} functions, \
                 at least {PER_HUNDRED_MIN} for a hundred"
            )
        })
    }
}

fn is_counted(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let ["crates", package, "src", inner @ ..] = &parts[..] else { return false };
    let is_test = |part: &&str| ["tests", "tests.rs", "fuzz.rs"].contains(part);
    CRATES.contains(package) && !inner.iter().any(is_test)
}

/// Returns the length, lines, of the body of the function beginning here.
fn body(lines: &[&str]) -> usize {
    let Some(open) = lines.iter().position(|line| line.ends_with(['{', ';', '}'])) else {
        return 0;
    };
    if !lines[open].ends_with('{') {
        return 0;
    }
    let close = close_of(lines[0]);
    lines[open + 1..].iter().take_while(|line| **line != close).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> Count {
        let mut count = Count::default();
        count.add(name, text);
        count
    }

    #[test]
    fn assertions_of_the_server_are_counted() {
        let two =
            concat!("    assert", "!(a);\n    // assert", "!(b);\n    c.exp", "ect(\"c\");\n");
        let text = format!("fn long(\n    a: A,\n) {{\n{two}    d();\n}}\n\nfn short() {{}}\n");
        assert_eq!(count("crates/node/src/a.rs", &text), Count { functions: 1, assertions: 2 });
        let tested = format!("fn declared();\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(count("crates/node/src/a.rs", &tested), Count::default());
        for other in ["crates/sim/src/a.rs", "crates/node/src/tests.rs", "crates/node/tests/a.rs"] {
            assert_eq!(count(other, &text), Count::default(), "{other}");
        }
    }

    #[test]
    fn too_few_assertions_are_complained_of() {
        let of = |assertions| Count { functions: 200, assertions }.complaint();
        assert_eq!(of(2 * PER_HUNDRED_MIN), None);
        assert!(of(2 * PER_HUNDRED_MIN - 1).is_some());
    }
}

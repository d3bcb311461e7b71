//! Tests that cannot run where they are.

use std::io::Write as _;

/// Says that a test is skipped, and why, past the capture of the test harness: it would pass in
/// silence. `cargo xtask test` counts these lines.
///
/// # Panics
/// If the calling thread is not that of a test.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().expect("a test has a thread with its name");
    // One write, so that lines of several tests do not mix. Nobody may read it.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes());
}

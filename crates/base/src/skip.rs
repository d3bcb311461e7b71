//! Tests that cannot run where they are.

use std::io::Write as _;

/// Says that a test is skipped, and why, past the capture of the test harness: it would pass in
/// silence. `cargo xtask test` counts these lines, equal ones once.
#[track_caller]
pub fn skip(why: &str) {
    let place = std::panic::Location::caller();
    let thread = std::thread::current();
    // With one thread for all tests it has no name of a test.
    let test = format!("{} ({place})", thread.name().unwrap_or("main"));
    // One write, so that lines of several tests do not mix. Nobody may read it.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes());
}

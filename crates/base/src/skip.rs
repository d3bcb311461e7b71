//! Tests that cannot run in this environment.

use std::io::Write as _;

/// Reports a skipped test and the reason, past the output capture of the test harness, which would
/// hide them. `cargo xtask test` counts these lines, equal ones once.
#[track_caller]
pub fn skip(why: &str) {
    let place = std::panic::Location::caller();
    let thread = std::thread::current();
    // With one thread for all tests, the thread is not named after the test.
    let test = format!("{} ({place})", thread.name().unwrap_or("main"));
    // One write, so that lines of several tests do not mix. The stream may be closed.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes());
}

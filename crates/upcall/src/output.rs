//! Standard output and standard error of the commands. Writing never panics: their reader may have
//! ended, and the file behind them may be full.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;

/// First failure to write a result, and where to.
static FAILURE: Mutex<Option<(&str, io::Error)>> = Mutex::new(None);

const STANDARD_OUTPUT: &str = "standard output";

/// Writes a line to standard output; [`finish`] reports a failure.
macro_rules! out_line {
    ($($text:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes a line to standard error, if it can be written.
macro_rules! err_line {
    ($($text:tt)*) => { $crate::output::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes a result to standard output; [`finish`] reports the first failure, after which nothing
/// more is written. A closed pipe is none.
pub(crate) fn out(text: Arguments<'_>) {
    let has_failed = FAILURE.lock().expect("nobody panics with it").is_some();
    if !has_failed {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush());
        note(STANDARD_OUTPUT, written);
    }
}

/// Writes a result to standard error, in one piece; [`finish`] reports a failure.
pub(crate) fn result_to_err(text: Arguments<'_>) {
    note("standard error", io::stderr().write_all(text.to_string().as_bytes()));
}

/// Prints the help or the version, or an error of the command line; returns the exit code.
pub(crate) fn usage(text: &clap::Error) -> ExitCode {
    if text.use_stderr() {
        let _ = text.print();
        return ExitCode::from(2);
    }
    note(STANDARD_OUTPUT, text.print());
    finish(ExitCode::SUCCESS)
}

/// Remembers the first failure to write a result; a closed pipe is none.
fn note(stream: &'static str, written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        FAILURE.lock().expect("nobody panics with it").get_or_insert((stream, error));
    }
}

/// Writes to standard error, if it can be written, in one piece.
pub(crate) fn err(text: Arguments<'_>) {
    // There is no place left to report a failure.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Returns the exit code of a command: a failure also if its output could not be written.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    let failure = FAILURE.lock().expect("nobody panics with it").take();
    let Some((stream, error)) = failure else { return code };
    err_line!("upcall: cannot write to {stream}: {error}; write to another file or disk");
    if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
}

//! Standard output and standard error of the commands. Writing never panics: their reader may have
//! ended, and the file behind them may be full.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;

/// First failure of a write to standard output.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes a line to standard output; [`finish`] reports a failure.
macro_rules! out_line {
    ($($text:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes a line to standard error, if it can be written.
macro_rules! err_line {
    ($($text:tt)*) => { $crate::output::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard output; [`finish`] reports the first failure, after which nothing more is
/// written. A closed pipe is none.
pub(crate) fn out(text: Arguments<'_>) {
    let mut failure = FAILURE.lock().expect("nobody panics with it");
    if failure.is_some() {
        return;
    }
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush()) else {
        return;
    };
    if error.kind() != ErrorKind::BrokenPipe {
        *failure = Some(error);
    }
}

/// Writes to standard error, if it can be written, in one piece.
pub(crate) fn err(text: Arguments<'_>) {
    // There is no place left to report a failure.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Returns the exit code of a command: a failure also if its output could not be written.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    let Some(error) = FAILURE.lock().expect("nobody panics with it").take() else { return code };
    err_line!("upcall: cannot write to standard output: {error}; write to another file or disk");
    if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
}

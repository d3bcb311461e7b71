//! Standard output and standard error of the commands. Writing never panics: their reader may have
//! ended, and the file behind them may be full.

use serde::Serialize;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
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

/// Writes to standard error, if it can be written, in one piece. Names in a message may be those of
/// others, and control a terminal.
pub(crate) fn err(text: Arguments<'_>) {
    // There is no place left to report a failure.
    let _ = io::stderr().write_all(printable(&text.to_string()).as_bytes());
}

/// Replaces characters that control a terminal, or the direction of text, other than the ends of
/// lines and tabs.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|c| !matches!(c, '\n' | '\t') && is_unprintable(c), "\u{fffd}")
}

/// Returns whether a character controls a terminal, or the direction of text.
pub(crate) fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the exit code of a command: a failure also if its output could not be written.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    let failure = FAILURE.lock().expect("nobody panics with it").take();
    let Some((stream, error)) = failure else { return code };
    err_line!("upcall: cannot write to {stream}: {error}; write to another file or disk");
    if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
}

/// Quotes a path for a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Returns a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("names and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_control_the_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b\r\n\tc";
        assert_eq!(printable(hostile), "a\u{fffd}[2J\u{fffd}31m\u{fffd}b\u{fffd}\n\tc");
        assert_eq!(printable("größe 日本"), "größe 日本");
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("/srv/a-b.c")), "/srv/a-b.c");
        assert_eq!(quoted(Path::new("/my files/it's")), "'/my files/it'\\''s'");
    }
}

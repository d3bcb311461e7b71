//! Prints a summary of a trace: `cargo run -p load --example trace_info -- FILE [FORMAT]`.

use load::trace::{Error, Format, Options, Reader, Records, Summary};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: trace_info FILE [FORMAT]");
        return ExitCode::from(2);
    };
    let format = match arguments.next().map(|word| word.parse::<Format>()).transpose() {
        Ok(format) => format,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match print(Path::new(&path), format) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn print(path: &Path, format: Option<Format>) -> Result<(), Error> {
    let mut reader = Reader::open(path, format, Options::default())?;
    let summary = Summary::of(&mut reader)?;
    let mut text = format!("{}: {}\n{summary}", path.display(), reader.format());
    for (number, file) in &summary.files {
        let name = reader.name(*number).unwrap_or_default();
        let (count, bytes, end) = (file.count, file.bytes, file.end);
        text += &format!("  {number} {name}: {count} I/Os, {bytes} B, ends at {end}\n");
    }
    text += &format!("{:?}\n", reader.notes());
    // The output may be closed early.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

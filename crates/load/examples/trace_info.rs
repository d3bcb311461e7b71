//! Prints what a trace is like: `cargo run -p load --example trace_info -- FILE [FORMAT]`.

use load::trace::{Error, Format, Options, Reader, Summary};
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
    println!("{}: {}", path.display(), reader.format());
    print!("{summary}");
    for (number, file) in &summary.files {
        let name = usize::try_from(*number).ok().and_then(|number| reader.names().get(number));
        let name = name.map_or("", String::as_str);
        println!("  {number} {name}: {} I/Os, {} B, ends at {}", file.count, file.bytes, file.end);
    }
    println!("{:?}", reader.notes());
    Ok(())
}

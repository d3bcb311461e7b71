//! Prints data appended to a file of a server, like `tail -f`:
//! `cargo run --example tail -- HOST[:PORT] /PATH`.

use std::io::Write as _;
use std::time::Duration;
use upcall_client::{Client, Error, File, Options};

/// Bytes printed from the end at first.
const BACK: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, path] = &words[..] else {
        return Err("write: tail HOST[:PORT] /PATH".into());
    };
    let client = Client::connect(&address.parse()?, &Options::default())?;
    let file = client.open(path)?;
    let mut offset = file.metadata()?.size.saturating_sub(BACK);
    loop {
        let size = file.metadata()?.size;
        if size < offset {
            eprintln!("{path} was truncated");
            offset = size;
        }
        offset += show(&file, offset)?;
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// Prints the file from an offset on; returns the number of bytes.
fn show(file: &File, offset: u64) -> Result<u64, Error> {
    let mut shown = 0;
    for piece in file.stream(offset, u64::MAX)? {
        let piece = piece?;
        shown += piece.len() as u64;
        // Nothing is left to do once the output is closed.
        if std::io::stdout().write_all(&piece).is_err() {
            std::process::exit(0);
        }
    }
    Ok(shown)
}

//! `usage DIR…`: how many files and bytes there are of each kind of name, the most bytes first.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Files and bytes by what their names end in.
type Usage = BTreeMap<String, (u64, u64)>;

fn visit(dir: &Path, usage: &mut Usage) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        let kind = entry?;
        if kind.is_dir() {
            visit(&path, usage)?;
        } else if kind.is_file() {
            let end = path.extension().map_or("none".into(), |end| end.to_string_lossy());
            let (files, bytes) = usage.entry(end.into_owned()).or_default();
            *files += 1;
            *bytes += path.metadata()?.len();
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut usage = Usage::new();
    for dir in std::env::args_os().skip(1) {
        if let Err(error) = visit(Path::new(&dir), &mut usage) {
            eprintln!("usage: {}: {error}", dir.display());
            return ExitCode::FAILURE;
        }
    }
    let mut rows: Vec<_> = usage.into_iter().collect();
    rows.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
    for (end, (files, bytes)) in rows {
        println!("{bytes} {files} {end}");
    }
    ExitCode::SUCCESS
}

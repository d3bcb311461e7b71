//! `cargo xtask recording`: runs the commands of the front page and draws `docs/upcall.svg`.
//!
//! The commands run in a network namespace of their own, so the default ports are free. The picture
//! shows their real output, line by line, as an animation that any browser plays.

use anyhow::{Context as _, Result, bail, ensure};
use rig::{guests, server, sh};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Argument with which the command runs itself inside the namespace.
pub(crate) const INSIDE: &str = "recording-inside";

/// The commands, each with its maximum number of shown output lines.
const COMMANDS: &[(&str, usize)] = &[
    ("upcall serve photos &", 6),
    ("curl -s http://127.0.0.1:8080/notes.txt", 2),
    ("upcall ls -l :5640 /2025", 4),
    ("upcall run :5640 rg.wasm -- -n Bergen /", 3),
    ("upcall volume create demo.volume --size 8G", 2),
    ("upcall volume copy photos demo.volume:/photos", 2),
    ("upcall volume snapshot demo.volume create monday", 2),
];

/// Columns of the picture.
const COLUMNS: usize = 92;
/// Width of a character, pixels.
const CHAR_WIDTH: f64 = 8.0;
/// Distance of two lines, pixels.
const LINE_HEIGHT: f64 = 19.0;
/// Space around the text, pixels.
const MARGIN: f64 = 16.0;
/// Pauses before a command and before each line of output, seconds.
const PAUSES: (f64, f64) = (1.4, 0.12);

/// A line of the picture, and whether it is a command.
type Line = (String, bool);

/// Runs the command.
pub(crate) fn main() -> Result<()> {
    server::build()?;
    ensure!(guests::main(&["rg".to_owned()])?, "the program rg.wasm was not built");
    let mut inside = Command::new("unshare");
    inside.arg("--net");
    if !rustix::process::geteuid().is_root() {
        inside.args(["--map-current-user", "--keep-caps"]);
    }
    inside.arg(sh::own_path()?).arg(INSIDE);
    sh::run(&mut inside)
}

/// Runs the commands inside the namespace, and draws the picture.
pub(crate) fn inside() -> Result<()> {
    sh::run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    // A short path, which the picture shows.
    let dir = std::env::temp_dir().join("upcall-demo");
    std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let drawn = draw(&dir);
    std::fs::remove_dir_all(&dir)?;
    drawn
}

/// Runs the commands in a directory, and draws the picture.
fn draw(dir: &Path) -> Result<()> {
    prepare(dir)?;
    let text = sh::read(Command::new("bash").arg("-c").arg(script()?).current_dir(dir))?;
    let lines = lines(&text)?;
    let path = sh::root().join("docs/upcall.svg");
    std::fs::write(&path, svg(&lines))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}: {} lines", path.display(), lines.len());
    Ok(())
}

/// Creates the served directory and the storelet program.
fn prepare(dir: &Path) -> Result<()> {
    let photos = dir.join("photos/2025");
    std::fs::create_dir_all(&photos)?;
    std::fs::write(dir.join("photos/notes.txt"), "Summer in Bergen\n")?;
    std::fs::write(photos.join("harbour.jpg"), vec![7; 3_000_000])?;
    std::fs::write(photos.join("raw.dng"), vec![9; 41_000])?;
    std::fs::copy(sh::scratch("guests")?.join("rg.wasm"), dir.join("rg.wasm"))?;
    Ok(())
}

/// Returns a shell script that prints each command behind a marker, then its output.
fn script() -> Result<String> {
    let bin = server::binary().canonicalize()?;
    let bin = bin.parent().context("the program has a directory")?.display().to_string();
    let mut script = format!("export PATH='{bin}':$PATH; set -e; exec 2>&1\n");
    for (command, _) in COMMANDS {
        let _ = writeln!(script, "echo '\x01{command}'");
        match command.strip_suffix(" &") {
            // The last line of the greeting tells that the server is ready.
            Some(server) => {
                let _ = writeln!(
                    script,
                    ": > serve.log; {server} > serve.log 2>&1 & server=$!\n\
                     trap 'kill $server' EXIT\n\
                     tail --pid=$server -n +1 -f serve.log | sed '/^Ctrl-C/q' | head -n 99"
                );
            }
            None => {
                let _ = writeln!(script, "{command}");
            }
        }
    }
    script.push_str("trap - EXIT; kill $server; wait $server\n");
    Ok(script)
}

/// Returns the lines of the picture: those that fit, up to the limit of each command.
fn lines(text: &str) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut parts = text.split('\x01').skip(1);
    for (command, limit) in COMMANDS {
        let part = parts.next().with_context(|| format!("{command} did not run"))?;
        let mut output = part.lines();
        ensure!(output.next() == Some(command), "the output of {command} is out of order");
        lines.push((format!("$ {command}"), true));
        let output: Vec<&str> = output.collect();
        if output.is_empty() {
            bail!("{command} printed nothing");
        }
        let fits = |line: &&str| line.chars().count() <= COLUMNS;
        lines.extend(output.into_iter().filter(fits).take(*limit).map(|line| (line.into(), false)));
    }
    Ok(lines)
}

/// Draws the lines as an animated picture.
fn svg(lines: &[Line]) -> String {
    let width = 2.0 * MARGIN + COLUMNS as f64 * CHAR_WIDTH;
    let height = 2.0 * MARGIN + lines.len() as f64 * LINE_HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"upcall in a terminal\">\n\
         <style>text{{font:13.3px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee4;\
         white-space:pre;opacity:0;animation:show 1ms linear forwards}}\
         .command{{fill:#7ee787;font-weight:600}}@keyframes show{{to{{opacity:1}}}}\
         @media (prefers-reduced-motion:reduce){{text{{animation:none;opacity:1}}}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    let mut time = 0.0;
    for (index, (line, is_command)) in lines.iter().enumerate() {
        time += if *is_command { PAUSES.0 } else { PAUSES.1 };
        let class = if *is_command { " class=\"command\"" } else { "" };
        let y = MARGIN + (index as f64 + 0.75) * LINE_HEIGHT;
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\"{class} style=\"animation-delay:{time:.2}s\">{}</text>",
            escaped(line)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, lines, svg};

    #[test]
    fn output_is_cut_to_its_limit_and_drawn_in_order() {
        let mut text = String::new();
        for (command, limit) in COMMANDS {
            text.push_str(&format!("\x01{command}\n{}", "a < b & c\n".repeat(limit + 1)));
        }
        let lines = lines(&text).expect("every command has output");
        let shown: usize = COMMANDS.iter().map(|(_, limit)| limit + 1).sum();
        assert_eq!(lines.len(), shown);
        let svg = svg(&lines);
        assert_eq!(svg.matches("<text ").count(), shown);
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("a < b"));
    }

    #[test]
    fn a_command_without_output_is_an_error() {
        let (first, _) = COMMANDS[0];
        assert!(lines(&format!("\x01{first}\n")).is_err());
        assert!(lines("").is_err());
    }
}

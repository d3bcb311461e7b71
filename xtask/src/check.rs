//! `cargo xtask check`: static checks.
//!
//! Format, [tidy], [prose], [arrows], links of the documentation, [licences], [api], clippy over
//! all targets and rustdoc, warnings being errors. A failure does not skip the remaining checks.

use crate::{api, arrows, book, licences, prose, tidy};
use anyhow::{Result, bail};
use rig::report::Report;
use rig::sh;
use std::process::Command;

/// Runs the command. Returns whether there are no complaints.
pub(crate) fn main() -> Result<bool> {
    let mut report = Report::default();
    report.case("format", || quiet(&mut sh::cargo(&["fmt", "--all", "--check"])));
    report.case("tidy", || nothing(tidy::complaints()?));
    report.case("prose", || nothing(prose::complaints()?));
    report.case("arrows", || nothing(arrows::complaints()?));
    report.case("links", || nothing(book::complaints()?));
    report.case("licences", || nothing(licences::complaints()?));
    report.case("interfaces", || nothing(api::complaints()?));
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    report.case("clippy", || quiet(&mut sh::cargo(&clippy)));
    let mut doc =
        sh::cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
    report.case("documentation", || quiet(&mut doc));
    Ok(report.finish())
}

fn quiet(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let printed = [output.stdout, output.stderr].concat();
        print!("{}", String::from_utf8_lossy(&printed));
        bail!("see above");
    }
    Ok(String::new())
}

/// Returns complaints as an error, one a line.
fn nothing(complaints: Vec<String>) -> Result<String> {
    if complaints.is_empty() {
        return Ok(String::new());
    }
    for complaint in &complaints {
        println!("        {complaint}");
    }
    bail!("{} complaints", complaints.len())
}

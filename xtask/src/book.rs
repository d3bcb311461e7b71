//! `cargo xtask book [--pages]`: builds the documentation as a book, in `target/book/html`; with
//! `--pages` only its pages, with the server that is built already.
//!
//! The pages are those of `docs`. The reference is generated: commands from `--help` of the built
//! program, metrics and service files from a running server, and error codes from the source. A
//! relative link that leads nowhere is an error.

use crate::tidy;
use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;
use rig::server::{self, Kind, Server};
use rig::sh;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Component, Path};
use std::process::Command;

/// Version of mdBook.
const MDBOOK: &str = "0.4.52";

/// Parts of the book with their pages: title, and path in the repository.
const PARTS: &[(&str, &[(&str, &str)])] = &[
    ("Tutorial", &[("Upcall", "README.md"), ("From a directory to a volume", "docs/tutorial.md")]),
    (
        "How-to guides",
        &[
            ("Installation", "docs/installation.md"),
            ("NFS", "docs/nfs.md"),
            ("Browsers", "docs/browser.md"),
            ("WebDAV", "docs/webdav.md"),
            ("Watching for changes", "docs/watch.md"),
            ("Reading subtrees ahead", "docs/subtree.md"),
            ("Client commands", "docs/clients.md"),
            ("Volumes", "docs/volumes.md"),
            ("Namespaces", "docs/names.md"),
            ("Storelets", "docs/storelets.md"),
            ("Replicated services", "docs/replica.md"),
            ("Load generator", "docs/load.md"),
            ("Operating a server", "docs/operating.md"),
        ],
    ),
    (
        "Reference",
        &[
            ("Commands", "reference/commands.md"),
            ("Metrics", "reference/metrics.md"),
            ("Service files", "reference/files.md"),
            ("Errors", "reference/errors.md"),
            ("Data format", "docs/data-format.md"),
            ("Interoperability", "docs/interop.md"),
            ("Limits and robustness", "docs/robustness.md"),
            ("Conformance", "docs/conformance.md"),
            ("Performance", "docs/performance.md"),
            ("Trace reports", "docs/load/README.md"),
        ],
    ),
    (
        "Explanation",
        &[
            ("Architecture", "ARCHITECTURE.md"),
            ("Glossary", "docs/glossary.md"),
            ("Status", "docs/status.md"),
            ("Dependencies", "docs/dependencies.md"),
            ("Hacking", "docs/hacking.md"),
            ("Changes", "CHANGELOG.md"),
        ],
    ),
];

/// Service files without contents of their own, with their pages.
const STREAMS: &[(&str, &str)] = &[("watch", "watch.md"), ("subtree", "subtree.md")];

/// Runs the command.
pub(crate) fn main(args: &[String]) -> Result<()> {
    let renders = match args {
        [] => true,
        [word] if word == "--pages" => false,
        _ => bail!("usage: cargo xtask book [--pages]"),
    };
    if renders {
        server::build()?;
    }
    let dir = sh::empty("book")?;
    let src = dir.join("src");
    let pages = pages(&src)?;
    write(&src.join("SUMMARY.md"), &summary(&pages))?;
    let title = "[book]\ntitle = \"Upcall\"\n\n[output.html]\nno-section-label = true\n";
    write(&dir.join("book.toml"), title)?;
    let broken = broken(&src, pages.iter().map(|(_, _, path)| &**path))?;
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    if !renders {
        println!("{}: {} pages", src.display(), pages.len());
        return Ok(());
    }
    let mdbook = sh::exclusive(|| sh::tool("mdbook", MDBOOK))?;
    sh::run(Command::new(mdbook).arg("build").arg(&dir).args(["--dest-dir", "html"]))?;
    println!("{}: {} pages", dir.join("html/index.html").display(), pages.len());
    Ok(())
}

/// A page: part, title, path.
type Page = (String, String, String);

/// Writes all pages below `src`, and returns them in order.
fn pages(src: &Path) -> Result<Vec<Page>> {
    let mut pages: Vec<Page> = Vec::new();
    for (part, of_part) in PARTS {
        for (title, path) in *of_part {
            pages.push(((*part).into(), (*title).into(), (*path).into()));
        }
    }
    for (part, dir) in [("The papers, repeated", "docs/paper"), ("Decisions", "docs/decisions")] {
        for path in files(dir, "md")? {
            let text = std::fs::read_to_string(sh::root().join(&path))?;
            let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
            pages.push((part.into(), title.into(), path));
        }
    }
    for (_, _, path) in pages.iter().filter(|(_, _, path)| !path.starts_with("reference/")) {
        let text = std::fs::read_to_string(sh::root().join(path))?;
        write(&src.join(path), &without_source_links(&text)?)?;
    }
    for dir in ["docs", "docs/paper", "docs/load"] {
        for path in
            files(dir, "svg")?.into_iter().chain(files(dir, "html")?).chain(files(dir, "png")?)
        {
            std::fs::create_dir_all(src.join(dir))?;
            std::fs::copy(sh::root().join(&path), src.join(&path))?;
        }
    }
    let (metrics, service_files) = served()?;
    write(&src.join("reference/commands.md"), &commands()?)?;
    write(&src.join("reference/metrics.md"), &metrics)?;
    write(&src.join("reference/files.md"), &service_files)?;
    write(&src.join("reference/errors.md"), &errors()?)?;
    Ok(pages)
}

/// Returns the files of a directory of the repository with this extension, in order.
fn files(dir: &str, extension: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(sh::root().join(dir))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|it| it == extension) {
            found.push(format!("{dir}/{name}"));
        }
    }
    found.sort();
    Ok(found)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a page has a directory")?)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces links into the source by their text: the book has no source.
fn without_source_links(text: &str) -> Result<String> {
    let link = Regex::new(r"\[([^\]]*)\]\((?:\.\./)*(?:crates|xtask|guests|benches)/[^)]*\)")?;
    Ok(link.replace_all(text, "$1").into_owned())
}

fn summary(pages: &[Page]) -> String {
    let mut summary = String::from("# Summary\n");
    let mut last = "";
    for (part, title, path) in pages {
        if part != last {
            let _ = write!(summary, "\n# {part}\n\n");
            last = part;
        }
        let title = title.replace(['[', ']'], "");
        let _ = writeln!(summary, "- [{title}]({path})");
    }
    summary
}

/// Returns the relative links of the project's Markdown files that lead nowhere.
pub(crate) fn complaints() -> Result<Vec<String>> {
    let files = tidy::files()?;
    let is_page = |path: &&str| Path::new(path).extension().is_some_and(|it| it == "md");
    broken(&sh::root(), files.lines().filter(is_page))
}

/// Returns the relative links of these pages below a directory that lead nowhere.
fn broken<'a>(root: &Path, pages: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let link = Regex::new(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")?;
    let mut broken = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(root.join(page)).context(page.to_owned())?;
        let dir = Path::new(page).parent().context("a page has a directory")?;
        for target in outside_of_code(&text).flat_map(|line| link.captures_iter(line)) {
            let target = &target[1];
            let exists = |path: String| root.join(path).exists();
            if !target.contains(':') && !normal(&dir.join(target)).is_ok_and(exists) {
                broken.push(format!("{page}: link to {target} leads nowhere"));
            }
        }
    }
    Ok(broken)
}

/// Returns the lines outside of code blocks.
fn outside_of_code(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// Resolves `.` and `..`.
fn normal(path: &Path) -> Result<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => {
                ensure!(parts.pop().is_some(), "the link leaves the book");
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => bail!("the link is absolute"),
        }
    }
    Ok(parts.join("/"))
}

/// Returns the reference of all commands, from their help texts.
fn commands() -> Result<String> {
    let mut page = String::from("# Commands\n\nGenerated from `--help` of each command.\n");
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(command) = waiting.pop() {
        let help = sh::read(Command::new(server::binary()).args(&command).arg("--help"))?;
        let name = ["upcall".to_owned()].into_iter().chain(command.clone());
        let name = name.collect::<Vec<String>>().join(" ");
        let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end());
        let below = subcommands(&help).into_iter().rev();
        waiting.extend(below.map(|word| [&command[..], &[word]].concat()));
    }
    Ok(page)
}

/// Returns the names in the section `Commands:` of a help text.
fn subcommands(help: &str) -> Vec<String> {
    let section = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = section.take_while(|line| line.starts_with("  "));
    let words = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| {
        line.split_whitespace().next().filter(|word| *word != "help").map(str::to_owned)
    });
    words.collect()
}

/// Returns the references of metrics and of service files, from a running server with a volume.
fn served() -> Result<(String, String)> {
    let dir = sh::empty("book-served")?;
    let server = Server::start(Kind::Uring, &dir, &[])?;
    let url = format!("http://127.0.0.1:{}/.upcall/", server.http);
    let get = |name: &str| sh::read(Command::new("curl").args(["-sf", &format!("{url}{name}")]));
    let metrics = metrics(&get("metrics")?)?;
    let mut page = String::from(
        "# Service files\n\nThe files below `/.upcall/`, as a server shows them that has just been \
         started. [Operating a server](../docs/operating.md) explains them.\n",
    );
    let json = "Accept: application/json";
    let list = sh::read(Command::new("curl").args(["-sf", "-H", json, &url]))?;
    let entries: Vec<serde_json::Value> = serde_json::from_str(&list)?;
    for entry in &entries {
        let name = entry["name"].as_str().context("an entry has a name")?;
        if entry["type"] != "file" {
            let _ = write!(page, "\n## `{name}/`\n\nA directory.\n");
        } else if let Some((_, page_of)) = STREAMS.iter().find(|(stream, _)| *stream == name) {
            let about = "Requests are written to it, and their replies read";
            let _ = write!(page, "\n## `{name}`\n\n{about}: [its page](../docs/{page_of}).\n");
        } else if name != "metrics" {
            let text = get(name)?;
            let shown: Vec<&str> = text.lines().take(12).collect();
            let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", shown.join("\n"));
        }
    }
    ensure!(!entries.is_empty(), "the server shows no service files");
    Ok((metrics, page))
}

/// Returns a table of metric families, from their text format.
fn metrics(text: &str) -> Result<String> {
    let mut page = String::from(
        "# Metrics\n\nThe families of `/.upcall/metrics`, generated from a server that serves a \
         directory. Volumes, replicas and mounted servers add their own \
         ([all families](../docs/operating.md#metrics)).\n\n\
         | family | type | meaning |\n|---|---|---|\n",
    );
    let mut helps = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')) {
            helps.insert(name, help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
        {
            let help = helps.get(name).with_context(|| format!("{name} has no help"))?;
            let _ = writeln!(page, "| `{name}` | {kind} | {help} |");
        }
    }
    ensure!(!helps.is_empty(), "the server has no metrics");
    Ok(page)
}

/// Returns the reference of errors: meaning, errno over 9P, and status over HTTP, from the source.
fn errors() -> Result<String> {
    let read = |path: &str| std::fs::read_to_string(sh::root().join(path));
    let enumeration = read("crates/base/src/error.rs")?;
    let translation = read("crates/wire/src/ninep/translate.rs")?;
    let answers = read("crates/front/src/http/answer.rs")?;
    let variant = Regex::new(r"(?m)^    /// (.+)\n    ([A-Z][A-Za-z]+),$")?;
    let statuses = statuses(&answers)?;
    let mut page = String::from(
        "# Errors\n\nErrors of file requests, with their number over 9P2000.L (Linux errno) and \
         their status over HTTP.\n\n| error | meaning | errno | HTTP |\n|---|---|--:|--:|\n",
    );
    let mut count = 0;
    for found in variant.captures_iter(&enumeration) {
        let (meaning, name) = (&found[1], &found[2]);
        let number = Regex::new(&format!(r"Error::{name}(?: \| Error::\w+)* => (\d+)"))?;
        let errno =
            number.captures(&translation).map_or("", |it| it.get(1).map_or("", |m| m.as_str()));
        let status = statuses.get(name).map_or("", String::as_str);
        let _ = writeln!(page, "| {name} | {meaning} | {errno} | {status} |");
        count += 1;
    }
    ensure!(count > 20, "crates/base/src/error.rs has {count} documented errors");
    Ok(page)
}

/// Returns the status of each error, from the arms of the function that chooses it.
fn statuses(source: &str) -> Result<BTreeMap<String, String>> {
    let arm = Regex::new(r"((?:\|?\s*Error::\w+\s*)+)=>\s*\{?\s*refusal\(\s*(\d+)")?;
    let name = Regex::new(r"Error::(\w+)")?;
    let mut statuses = BTreeMap::new();
    for found in arm.captures_iter(source) {
        for error in name.captures_iter(&found[1]) {
            statuses.entry(error[1].to_owned()).or_insert_with(|| found[2].to_owned());
        }
    }
    Ok(statuses)
}

#[cfg(test)]
mod tests {
    use super::{broken, errors, metrics, normal, statuses, subcommands, without_source_links};
    use std::path::Path;

    #[test]
    fn subcommands_are_the_first_words_of_their_section() {
        let help =
            "What\n\nCommands:\n  a     does\n        more\n  b-c   x\n  help  y\n\nOptions:\n  -h";
        assert_eq!(subcommands(help), ["a", "b-c"]);
        assert!(subcommands("Options:\n  -h").is_empty());
    }

    #[test]
    fn every_error_has_its_number_and_status() {
        let page = errors().expect("the source is there");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        for row in &rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert!(cells[3].parse::<u16>().is_ok() && cells[4].parse::<u16>().is_ok(), "{row}");
        }
        assert!(
            rows.iter().any(|row| row.starts_with("| NotFound |") && row.ends_with("| 2 | 404 |"))
        );
    }

    #[test]
    fn arms_of_several_errors_count_for_each() {
        let arms =
            "Error::A | Error::B => refusal(404, \"x\"),\nError::C => {\n refusal(\n503, \"y\")";
        let found = statuses(arms).expect("the patterns are right");
        assert_eq!(
            found.iter().map(|(k, v)| format!("{k}{v}")).collect::<String>(),
            "A404B404C503"
        );
    }

    #[test]
    fn metrics_are_listed_with_type_and_help() {
        let page = metrics("# HELP a Things.\n# TYPE a counter\na 1\n").expect("one family");
        assert!(page.ends_with("| `a` | counter | Things. |\n"));
        assert!(metrics("# TYPE a counter\n").is_err() && metrics("").is_err());
    }

    #[test]
    fn a_link_to_a_missing_file_is_broken() {
        let dir = std::env::temp_dir().join(format!("upcall-links-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("docs")).expect("a directory");
        let text = "[a](../b.md#x) [c](c.md) [d](https://e/f)\n```\n[g](g.md)\n```\n";
        std::fs::write(dir.join("docs/a.md"), text).expect("a page");
        std::fs::write(dir.join("b.md"), "").expect("a page");
        let found = broken(&dir, ["docs/a.md"].into_iter()).expect("pages");
        std::fs::remove_dir_all(dir).expect("it is there");
        assert_eq!(found, ["docs/a.md: link to c.md leads nowhere"]);
    }

    #[test]
    fn links_into_the_source_become_text_and_others_are_resolved() {
        let text = "see [x](../crates/load/workloads/), [y](../README.md)";
        assert_eq!(without_source_links(text).expect("a pattern"), "see x, [y](../README.md)");
        assert_eq!(normal(Path::new("docs/paper/../names.md")).expect("inside"), "docs/names.md");
        assert!(normal(Path::new("docs/../../x")).is_err());
    }
}

//! `docs/performance.md`: each benchmark's table is kept between two markers and replaced there.

use super::Plan;
use anyhow::{Context, Result};
use rig::sh;

/// Returns the machine, the versions and the method, in one paragraph.
pub(crate) fn circumstances(plan: &Plan) -> String {
    format!(
        "{}; {}, {} rounds of {:.1} s for each server in turn, order alternating; server on \
         processor 0, client on processor 1.\n",
        rig::machine::describe(),
        packages(&["diod", "nginx", "wrk"]),
        plan.rounds,
        plan.time.as_secs_f64(),
    )
}

/// Returns the installed versions of Debian packages.
pub(crate) fn packages(names: &[&str]) -> String {
    let query =
        sh::cmd("dpkg-query", &["-W", "-f", "${Package} ${Version}, "]).args(names).output();
    let text = query.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().trim_end_matches(", ").to_owned()
}

/// Replaces the text between the markers of `name`, or appends a section with them.
pub(crate) fn record(name: &str, title: &str, text: &str) -> Result<()> {
    let path = sh::root().join("docs/performance.md");
    let old = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Performance\n".into());
    std::fs::write(&path, replaced(&old, name, title, text))
        .with_context(|| format!("write {}", path.display()))
}

fn replaced(old: &str, name: &str, title: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- bench {name} -->"), format!("<!-- end bench {name} -->"));
    let section = format!("{begin}\n{}\n{end}", text.trim());
    match (old.find(&begin), old.find(&end)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{section}{}", &old[..from], &old[to + end.len()..])
        }
        _ => format!("{}\n\n## {title}\n\n{section}\n", old.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn a_section_is_appended_once_and_then_replaced() {
        let once = replaced("# Performance\n", "9p", "9P", "one\n");
        let twice = replaced(&once, "9p", "9P", "two\n");
        assert_eq!(once.replace("one", "two"), twice);
        assert!(twice.starts_with("# Performance\n\n## 9P\n\n<!-- bench 9p -->\ntwo\n"));
    }
}

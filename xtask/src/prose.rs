//! Language of comments, messages and commits: a few patterns that the field does not write.
//!
//! - Documentation lines that begin with a relative clause ("What is …", "Who asks …") instead of
//!   the field's noun.
//! - Messages in the first person.
//! - Commit subjects without `crate: verb object`, or longer than 65 characters, among those that
//!   the upstream branch does not have; without one, the last commit.

use crate::tidy;
use anyhow::Result;
use rig::sh;

const CLAUSES: &[&str] = &["What", "Who", "Whoever", "Whom", "Whose", "That"];
const PERSONS: &[&str] = &["I", "we", "We", "our", "my"];
const SUBJECT_MAX: usize = 65;

/// Returns every violation, as `file:line: text`, or `commit: text`.
pub(crate) fn complaints() -> Result<Vec<String>> {
    let list = tidy::files()?;
    let mut complaints = Vec::new();
    for name in list.lines().filter(|name| name.ends_with(".rs")) {
        let Ok(text) = std::fs::read_to_string(sh::root().join(name)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            complaints.extend(judge(name, line).map(|what| format!("{name}:{number}: {what}")));
        }
    }
    let range = sh::read(&mut sh::cmd("git", &["rev-parse", "--verify", "-q", "@{upstream}"]));
    let range = range.map_or_else(|_| "-1".into(), |from| format!("{}..HEAD", from.trim()));
    let subjects =
        sh::read(&mut sh::cmd("git", &["log", "--no-merges", "--format=%h %s", &range]))?;
    for line in subjects.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        if !is_subject(subject) {
            complaints.push(format!("{commit}: not `crate: verb object` within {SUBJECT_MAX}"));
        }
    }
    Ok(complaints)
}

/// Returns the violation in a line of Rust.
fn judge(name: &str, line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    if let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
        let first = text.split_whitespace().next().unwrap_or_default();
        return CLAUSES.contains(&first).then_some("begins with a clause, not with a noun or verb");
    }
    // Names of our own server in tables, and texts of tests.
    let is_of_product = name.starts_with("crates/") && !name.contains("/tests");
    let is_assertion =
        ["assert", "panic!", "unreachable!", ".expect("].iter().any(|word| line.contains(word));
    if !is_of_product || is_assertion || line.starts_with("//") || line.contains("b\"") {
        return None;
    }
    let mut messages = line.split('"').skip(1).step_by(2);
    let is_personal = |text: &str| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '/');
        text.contains(' ') && words.any(|word| PERSONS.contains(&word))
    };
    messages.any(is_personal).then_some("a message in the first person")
}

fn is_subject(subject: &str) -> bool {
    let Some((scope, text)) = subject.split_once(": ") else { return false };
    let is_scope = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ", -".contains(c);
    scope.chars().all(is_scope)
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && subject.chars().count() <= SUBJECT_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_in_plain_language() {
        let complaints = complaints().expect("git lists the files");
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn clauses_and_persons_are_found() {
        let clause = Some("begins with a clause, not with a noun or verb");
        assert_eq!(judge("crates/a/src/b.rs", "    /// What the client asks for."), clause);
        assert_eq!(judge("xtask/src/b.rs", "//! Who is there."), clause);
        assert_eq!(judge("crates/a/src/b.rs", "/// Whatever comes."), None);
        let person = Some("a message in the first person");
        let printed = concat!("say(\"", "I", " cannot open it\")");
        assert_eq!(judge("crates/a/src/b.rs", printed), person);
        assert_eq!(judge("crates/a/src/b.rs", "say(\"10 I/Os of 4 KiB\")"), None);
        assert_eq!(judge("crates/a/src/tests.rs", printed), None);
    }

    #[test]
    fn subjects_name_a_crate_and_do_one_thing() {
        assert!(is_subject("tree: serve clients of a mounted server in turn"));
        assert!(is_subject("front, node: give back fids in steps"));
        for subject in ["Fix things", "tree: Fix things", "a commit", &"x".repeat(70)] {
            assert!(!is_subject(subject), "{subject}");
        }
    }
}

//! Command blocks of a page, and the shape of their output.

/// A command with the output shown on the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// Parses the commands of all blocks of a page, in order.
pub(super) fn commands(page: &str) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    let (mut in_block, mut is_open) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            (in_block, is_open) = (!in_block, false);
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| in_block) {
            commands.push(Shown { command: command.to_owned(), output: Vec::new() });
            is_open = true;
        } else if let Some(last) = commands.last_mut().filter(|_| in_block && is_open) {
            last.output.push(line.trim_end().to_owned());
        }
    }
    for command in &mut commands {
        while command.output.last().is_some_and(String::is_empty) {
            command.output.pop();
        }
    }
    commands
}

/// Comparison of the numbers in an output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Equal to those of the page.
    Exact,
    /// Any numbers.
    Any,
}

/// Returns the first difference between the output of a page and that of a command. A line `…`
/// is any number of lines, and `…` within a line is any text.
pub(super) fn difference(shown: &[String], printed: &[String], numbers: Numbers) -> Option<String> {
    let shape = |line: &str| match numbers {
        Numbers::Exact => without_hashes(line),
        Numbers::Any => shape(line),
    };
    let mut printed = printed.iter().map(|line| shape(line)).peekable();
    let mut skips = false;
    for line in shown {
        if line.trim() == "…" {
            skips = true;
            continue;
        }
        let wanted = shape(line);
        let found = if skips {
            printed.by_ref().any(|line| fits(&wanted, &line))
        } else {
            printed.next().is_some_and(|line| fits(&wanted, &line))
        };
        if !found {
            return Some(format!("the page shows: {line}"));
        }
        skips = false;
    }
    let rest: Vec<String> = printed.filter(|line| !line.is_empty()).collect();
    (!skips && !rest.is_empty()).then(|| format!("the page does not show: {}", rest.join(" / ")))
}

fn fits(wanted: &str, line: &str) -> bool {
    let mut parts: Vec<&str> = wanted.split('…').collect();
    let Some(last) = parts.pop().filter(|_| !parts.is_empty()) else { return wanted == line };
    let Some(mut rest) = line.strip_prefix(parts.remove(0)) else { return false };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Words in dates.
const DATES: &[&str] = &[
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun",
    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Removes variable parts of a line: numbers, their units, plurals and hashes.
fn shape(line: &str) -> String {
    const UNITS: &[&str] = &[
        "ns", "µs", "ms", "s", "B", "byte", "bytes", "KiB", "MiB", "GiB", "TiB", "bytes/s",
        "KiB/s", "MiB/s",
    ];
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let tail = &word[bare.len()..];
        let after_number =
            words.last().is_some_and(|last: &String| last.trim_start_matches('(').starts_with('0'));
        if after_number && UNITS.contains(&bare) {
            continue;
        }
        let mut shaped = if DATES.contains(&bare) { "0".to_owned() } else { numbers(bare) };
        if after_number {
            shaped = singular(&shaped);
        }
        words.push(shaped + tail);
    }
    words.join(" ")
}

/// Replaces hexadecimal names of at least eight digits.
fn without_hashes(text: &str) -> String {
    let mut shaped = String::new();
    for part in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let bare = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        if bare.len() >= 8 && bare.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            shaped.push('0');
            shaped.push_str(&part[bare.len()..]);
        } else {
            shaped.push_str(part);
        }
    }
    shaped
}

/// Replaces numbers and hexadecimal names.
fn numbers(word: &str) -> String {
    let mut out = String::new();
    for letter in without_hashes(word).chars() {
        match letter {
            '0'..='9' if out.ends_with('0') => {}
            '0'..='9' => out.push('0'),
            ',' | '.' if out.ends_with('0') => {}
            _ => out.push(letter),
        }
    }
    out.trim_start_matches('−').to_owned()
}

fn singular(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => word.strip_suffix('s').unwrap_or(word).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_those_of_blocks_with_their_output() {
        let page = "$ not this\n```console\n$ one\na\n\n$ two\n```\ntext\n```toml\nx = 1\n```\n";
        let shown = commands(page);
        assert_eq!(shown[0], Shown { command: "one".into(), output: lines("a") });
        assert_eq!(shown[1], Shown { command: "two".into(), output: Vec::new() });
        assert_eq!(shown.len(), 2);
    }

    #[test]
    fn outputs_of_one_shape_are_equal_and_others_are_not() {
        let same = |shown: &str, printed: &str| {
            difference(&lines(shown), &lines(printed), Numbers::Any).is_none()
        };
        assert!(same("copied 78,579 files, 1.2 GiB in 6.6 s", "copied 1 file, 3 KiB in 0.1 ms"));
        assert!(same("{\"token\":\"de6da4ac-1:2.2:1\"}", "{\"token\":\"0a6da4ff-11:2.3:1\"}"));
        assert!(same("15 bytes in 0.0 s (1.7 KiB/s)", "1 byte in 0.1 ms (456 bytes/s)"));
        assert!(same("in 6.6 s (187 MiB/s); 2 links", "in 1 s (3 KiB/s); 1 link"));
        assert!(same("Date: Sun, 22 Nov 2026 04:01 GMT", "Date: Thu, 1 Dec 2027 11:11 GMT"));
        assert!(same("one\n…\nlast 3", "one\ntwo\nthree\nlast 4"));
        assert!(same("one\n…", "one\ntwo"));
        assert!(!same("one", "one\ntwo"));
        assert!(!same("one\ntwo", "one"));
        assert!(!same("created x", "made x"));
        assert!(same("df53a9a4e5a1… rest", "df53a9a4e5a1bbbb rest"));
        let equal = |shown: &str, printed: &str| {
            difference(&lines(shown), &lines(printed), Numbers::Exact).is_none()
        };
        assert!(equal("{12,\"de6da4ac-1:2.2:1\"}", "{12,\"0a6da4ff-1:2.2:1\"}"));
        assert!(!equal("12", "13") && !equal("\"de6da4ac-1:2\"", "\"de6da4ac-1:3\""));
        assert!(same("{a…,b:2,…}", "{abc,b:3,d}") && !same("{a…,b:2,…}", "{abc,c:3,d}"));
    }
}

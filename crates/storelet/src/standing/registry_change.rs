//! Change requests of install sessions: install a storelet, select another version, or remove it.
//!
//! ```text
//! name wc                      or: use wc@2          or: remove wc
//! module 48213
//! arg wc
//! cpu 10s
//! every 5m                     or: at 03:00          and: on /incoming, existing
//! ```

use super::run_schedule::When;
use crate::maxima::Maxima;
use crate::run_spec::{self, Label, Pick, RunSpec, Wanted};
use base::Name;
use std::fmt::Write as _;

/// A change request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistryChange {
    /// Install a storelet as its next version.
    Install(Box<Plan>),
    /// Select another version.
    Use(Label, u32),
    /// Remove a storelet.
    Remove(Label),
}

/// An installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) label: Label,
    /// Parameters of its runs.
    pub(crate) run_spec: RunSpec,
    /// Text of the request, without name and module.
    pub(crate) text: String,
    /// Schedule of its automatic runs.
    pub(crate) when: Option<When>,
    /// Directory to watch.
    pub(crate) on: Option<On>,
}

/// A directory to watch for new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct On {
    pub(crate) dir: Vec<Name>,
    /// Whether existing files count as new.
    pub(crate) existing: bool,
}

/// Words that are allowed for runs only, not for installations.
const OF_RUNS: [&str; 5] = ["standing", "stdin", "input", "check", "read-only"];

impl RegistryChange {
    /// Parses a request, without the empty line, for a server with these maxima.
    ///
    /// # Errors
    /// The incorrect line, and a correction; or the resource that exceeds its maximum.
    pub(crate) fn parse(text: &[u8], maxima: &Maxima) -> Result<RegistryChange, String> {
        let text = str::from_utf8(text).map_err(|_| "the text must be UTF-8".to_string())?;
        let (mut label, mut module, mut rest, mut lines) = (None, None, String::new(), 0);
        for line in text.lines().map(|line| line.trim_end_matches('\r')) {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let wrong = |why: &dyn std::fmt::Display| format!("'{line}': {why}");
            match word {
                "frames" => continue,
                "name" => label = Some(value.parse().map_err(|why| wrong(&why))?),
                "use" | "remove" => {
                    let pick: Pick = value.parse().map_err(|why| wrong(&why))?;
                    let is_alone = text.lines().all(|other| other == "frames" || other == line);
                    return match (word, pick.version) {
                        _ if !is_alone => Err(wrong(&"use it alone")),
                        ("use", Some(version)) => Ok(RegistryChange::Use(pick.label, version)),
                        ("remove", None) => Ok(RegistryChange::Remove(pick.label)),
                        ("use", None) => Err(wrong(&"which version? write 'use NAME@VERSION'")),
                        _ => Err(wrong(&"all its versions are removed: write 'remove NAME'")),
                    };
                }
                "module" => module = Some(line),
                word if OF_RUNS.contains(&word) => {
                    return Err(wrong(&"this is set when it is run, not at installation"));
                }
                _other => rest.write_fmt(format_args!("{line}\n")).expect("a string"),
            }
            lines += 1;
        }
        if lines == 0 {
            return Err(
                "write 'name NAME' and a module, 'use NAME@VERSION' or 'remove NAME'".into()
            );
        }
        let label = label.ok_or("the name is missing; add 'name NAME'")?;
        let module = module.ok_or("write 'module LENGTH', and the module behind all")?;
        let plan = Plan::parse(label, module, rest, maxima)?;
        Ok(RegistryChange::Install(Box::new(plan)))
    }
}

impl Plan {
    /// Parses an installation from its name, the line about its module, and the rest of the text.
    pub(crate) fn parse(
        label: Label,
        module: &str,
        text: String,
        maxima: &Maxima,
    ) -> Result<Plan, String> {
        let (mut when, mut on, mut existing) = (None, None, false);
        let mut line_text = format!("{module}\n");
        for line in text.lines() {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let wrong = |why: String| format!("'{line}': {why}");
            match word {
                "every" | "at" if when.is_some() => return Err(wrong("use one of them".into())),
                "every" => when = Some(When::every(value).map_err(wrong)?),
                "at" => when = Some(When::at(value).map_err(wrong)?),
                "on" => on = Some(run_spec::dir(value).map_err(wrong)?),
                "existing" => existing = true,
                _order => line_text.write_fmt(format_args!("{line}\n")).expect("a string"),
            }
        }
        if existing && on.is_none() {
            return Err("'existing': of which directory? write 'on DIR' too".to_string());
        }
        let on = on.map(|dir| On { dir, existing });
        let mut run_spec = RunSpec::parse_within(line_text.as_bytes(), maxima)?;
        if !text.lines().any(|line| line.starts_with("arg ")) {
            run_spec.args = vec![label.as_str().as_bytes().to_vec()];
        }
        Ok(Plan { label, run_spec, text, when, on })
    }

    /// Returns the source of its module.
    pub(crate) fn module(&self) -> &Wanted {
        &self.run_spec.module
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_is_one_of_three() {
        let registry_change = |text: &str| RegistryChange::parse(text.as_bytes(), &Maxima::NONE);
        let Ok(RegistryChange::Install(plan)) =
            registry_change("frames\nname wc\ncpu 1s\nmodule 7\nmemory 1M")
        else {
            panic!("it is to be installed")
        };
        assert_eq!((plan.label.as_str(), plan.text.as_str()), ("wc", "cpu 1s\nmemory 1M\n"));
        assert_eq!(plan.run_spec.args, [b"wc".to_vec()]);
        assert_eq!(plan.module(), &Wanted::Follows(7));
        let label: Label = "wc".parse().expect("a name");
        assert_eq!(registry_change("use wc@3\nframes"), Ok(RegistryChange::Use(label.clone(), 3)));
        assert_eq!(registry_change("remove wc"), Ok(RegistryChange::Remove(label)));
    }

    #[test]
    fn syntax_errors_name_the_expected_form() {
        let fails = |text: &str| {
            RegistryChange::parse(text.as_bytes(), &Maxima::NONE).expect_err("it is wrong")
        };
        for (text, why) in [
            ("", "name NAME"),
            ("module 7", "name is missing"),
            ("name wc", "module LENGTH"),
            ("name ../../etc\nmodule 7", "at most 64 letters"),
            ("name a@1\nmodule 7", "at most 64 letters"),
            ("name wc\nmodule 7\ncolour red", "no such word"),
            ("name wc\nmodule 7\nstdin /a", "when it is run"),
            ("name wc\nmodule 7\nstanding b", "when it is run"),
            ("name wc\nmodule 0", "empty module"),
            ("name wc\nmodule 7\nevery 1h\nat 03:00", "one of them"),
            ("name wc\nmodule 7\nevery 1ms", "at least 1s"),
            ("name wc\nmodule 7\nat 3pm", "such as 03:00"),
            ("name wc\nmodule 7\nat 24:00", "such as 03:00"),
            ("name wc\nmodule 7\non ../x", "without '..'"),
            ("name wc\nmodule 7\nexisting", "on DIR"),
            ("use wc", "which version"),
            ("remove wc@1", "remove NAME"),
            ("remove wc\nremove wc2", "alone"),
            ("name wc\nmodule 7\nremove wc", "alone"),
        ] {
            assert!(fails(text).contains(why), "{text}: {}", fails(text));
        }
        assert!(RegistryChange::parse(b"name \xff", &Maxima::NONE).is_err());
    }
}

//! Names of installed storelets.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a name, bytes.
const LABEL_MAX: usize = 64;

/// Error message for an invalid name.
pub(super) const SAY: &str = "write NAME or NAME@VERSION: a name has at most 64 letters, digits, \
                              '-', '_' and '.', and begins with a letter or a digit";

/// Name of an installed storelet; also valid as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(String);

impl Label {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Error for text that is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLabel;

impl fmt::Display for NoLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SAY)
    }
}

impl FromStr for Label {
    type Err = NoLabel;

    fn from_str(text: &str) -> Result<Label, NoLabel> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let fits = begins && text.len() <= LABEL_MAX && text.bytes().all(plain);
        if fits { Ok(Label(text.to_string())) } else { Err(NoLabel) }
    }
}

/// Reference to an installed storelet: to its current version, or a specific one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The name.
    pub label: Label,
    /// The version; `None`: the current one.
    pub version: Option<u32>,
}

impl FromStr for Pick {
    type Err = NoLabel;

    fn from_str(text: &str) -> Result<Pick, NoLabel> {
        let (label, version) = match text.split_once('@') {
            Some((label, version)) => (label, Some(version.parse().map_err(|_| NoLabel)?)),
            None => (text, None),
        };
        match version {
            Some(0) => Err(NoLabel),
            version => Ok(Pick { label: label.parse()?, version }),
        }
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}@{version}", self.label),
            None => write!(f, "{}", self.label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere() {
        for good in ["a", "wc", "count-lines_2.0", "0"] {
            assert_eq!(good.parse::<Label>().expect(good).as_str(), good);
        }
        let long = "a".repeat(65);
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a b", "a@1", "a|b", "\u{e9}", &long] {
            assert_eq!(bad.parse::<Label>(), Err(NoLabel), "{bad}");
        }
        let pick: Pick = "a@12".parse().expect("both are there");
        assert_eq!((pick.to_string().as_str(), pick.version), ("a@12", Some(12)));
        for bad in ["a@", "a@0", "a@-1", "a@x", "a@99999999999", "@1"] {
            assert_eq!(bad.parse::<Pick>(), Err(NoLabel), "{bad}");
        }
    }
}

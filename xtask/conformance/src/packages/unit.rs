//! Units of systemd, as far as a launcher without systemd needs them.

use anyhow::{Context as _, Result, ensure};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::Path;

/// Options of a unit, in order.
pub(super) struct Unit {
    /// Section, key and value of each line.
    lines: Vec<(String, String, String)>,
}

impl Unit {
    pub(super) fn parse(text: &str) -> Result<Unit> {
        let (mut lines, mut section) = (Vec::new(), String::new());
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if !line.is_empty() && !line.starts_with('#') {
                let (key, value) = line.split_once('=').with_context(|| line.to_owned())?;
                lines.push((section.clone(), key.to_owned(), value.to_owned()));
            }
        }
        Ok(Unit { lines })
    }

    /// Returns the value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let line = self.lines.iter().rev().find(|(_, name, _)| name == key)?;
        Some(&line.2)
    }

    /// Returns the options of the service except for its command.
    pub(super) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.lines.iter();
        let service = lines.filter(|(section, key, _)| section == "Service" && key != "ExecStart");
        service.map(|(_, key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the words of the service's command.
    pub(super) fn words(&self) -> Result<Vec<String>> {
        let line = self.value("ExecStart").context("no ExecStart")?;
        ensure!(!line.contains(['"', '\'', '\\', '$', '%']), "cannot read ExecStart={line}");
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the command in a root, as the service's user, without privileges.
    pub(super) fn command(&self, root: &Path) -> Result<Vec<String>> {
        ensure!(self.value("NoNewPrivileges") == Some("yes"), "it may get privileges");
        ensure!(self.value("CapabilityBoundingSet") == Some(""), "it has capabilities");
        let user = self.value("User").context("no User")?;
        let group = self.value("Group").context("no Group")?;
        let mut words = vec!["chroot".to_owned(), root.display().to_string(), "setpriv".into()];
        words.push(format!("--reuid={user}"));
        words.push(format!("--regid={group}"));
        words.extend(
            ["--init-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
                .map(str::to_owned),
        );
        words.extend(self.words()?);
        Ok(words)
    }

    /// Returns the user and group of the service, by the files of a root.
    pub(super) fn ids(&self, root: &Path) -> Result<(u32, u32)> {
        let id = |file: &str, key: &str| {
            let text = std::fs::read_to_string(root.join(file))?;
            let name = self.value(key).with_context(|| format!("no {key}"))?;
            let line = text.lines().find(|line| line.split(':').next() == Some(name));
            let id = line.and_then(|line| line.split(':').nth(2));
            id.with_context(|| format!("no {key} {name}"))?.parse().map_err(anyhow::Error::from)
        };
        Ok((id("etc/passwd", "User")?, id("etc/group", "Group")?))
    }

    /// Creates the directories of the service, with its user as owner.
    pub(super) fn make_directories(&self, root: &Path) -> Result<()> {
        let (user, group) = self.ids(root)?;
        for (key, parent) in [("StateDirectory", "var/lib"), ("CacheDirectory", "var/cache")] {
            let mode = self.value(&format!("{key}Mode")).unwrap_or("0755");
            let mode = u32::from_str_radix(mode, 8)?;
            for name in self.value(key).unwrap_or_default().split_whitespace() {
                let path = root.join(parent).join(name);
                std::fs::DirBuilder::new().recursive(true).mode(mode).create(&path)?;
                chown(&path, Some(user), Some(group))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Unit;
    use std::path::Path;

    #[test]
    fn a_service_is_started_as_its_user_without_privileges() {
        let text = "[Unit]\nDescription=x\n# text\n[Service]\nExecStart=/bin/a b\nUser=u\n\
                    Group=g\nNoNewPrivileges=yes\nCapabilityBoundingSet=\n";
        let unit = Unit::parse(text).expect("a unit");
        let command = unit.command(Path::new("/r")).expect("a command");
        assert_eq!(command[..4], ["chroot", "/r", "setpriv", "--reuid=u"]);
        assert_eq!(command[command.len() - 2..], ["/bin/a", "b"]);
        assert_eq!(unit.options().next(), Some(("User", "u")));
        let privileged = text.replace("NoNewPrivileges=yes\n", "");
        let unit = Unit::parse(&privileged).expect("a unit");
        assert!(unit.command(Path::new("/r")).is_err());
    }

    #[test]
    fn lines_without_a_value_are_errors() {
        assert!(Unit::parse("[Service]\nExecStart\n").is_err());
        let quoted = Unit::parse("[Service]\nExecStart=/bin/a \"b c\"\n").expect("a unit");
        assert!(quoted.words().is_err());
    }
}

//! The name space as it is shown: in the words of a names file.

use super::Node;
use base::Name;
use names::script;

impl Node {
    /// The name space in the words of a names file.
    pub(crate) fn names_text(&self) -> String {
        let root = String::from_utf8_lossy(&self.export.path);
        let mut text = format!("# at the root: {root}\n");
        for (path, members) in self.names.points() {
            self.point_text(&path, &members, &mut text);
        }
        if let Some(complaint) = self.changes.complaint() {
            text.push_str(&format!("# the last change failed: {complaint}\n"));
        }
        text
    }

    /// Lines that would make a point, in the order in which they would have to be said.
    fn point_text(&self, at: &[Name], members: &[(Option<&str>, bool)], text: &mut String) {
        let own = members.iter().position(|(said, _)| said.is_none());
        let line = |(said, create): &(Option<&str>, bool), order: &str| {
            let Some(said) = said else { return String::new() };
            let flags = match (order, create) {
                ("", false) => String::new(),
                (order, create) => format!("-{order}{} ", if *create { "c" } else { "" }),
            };
            let at = script::path_text(at);
            match said.trim_start_matches('\'').starts_with('/') {
                true => format!("bind {flags}{said} {at}\n"),
                false => format!("mount {flags}{at} {said}\n"),
            }
        };
        let (before, behind) = members.split_at(own.unwrap_or(0));
        before.iter().rev().for_each(|member| text.push_str(&line(member, "b")));
        for (number, member) in behind.iter().enumerate() {
            let order = if number == 0 && own.is_none() { "" } else { "a" };
            text.push_str(&line(member, order));
        }
    }
}

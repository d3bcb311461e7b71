//! The namespace as text, in the format of a names file.

use super::Node;

impl Node {
    /// Returns the namespace as text, in the format of a names file.
    pub(crate) fn names_text(&self) -> String {
        let root = String::from_utf8_lossy(&self.export.path);
        let mut text = format!("# at the root: {root}\n");
        for line in self.names.text() {
            text.push_str(&line);
            text.push('\n');
        }
        if let Some(complaint) = self.changes.complaint() {
            text.push_str(&format!("# the last change failed: {complaint}\n"));
        }
        text
    }
}

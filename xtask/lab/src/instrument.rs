//! Runs `upcall load` and parses its output.

use anyhow::{Context, Result, bail};
use rig::{server, sh};
use serde_json::Value;

/// Runs `upcall load` with `--json`, pinned to a processor if given. An INVALID run is a result
/// too.
pub(crate) fn run(words: &[&str], core: Option<usize>) -> Result<Value> {
    let binary = server::binary().display().to_string();
    let mut command = match core {
        Some(core) => {
            let mut command = sh::cmd("taskset", &["-c", &core.to_string()]);
            command.arg(binary);
            command
        }
        None => sh::cmd::<&str>(&binary, &[]),
    };
    command.arg("load").args(words);
    if words.first() != Some(&"trace") {
        command.arg("--json");
    }
    let output = command.output().context("start upcall load")?;
    if !matches!(output.status.code(), Some(0 | 3)) {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("upcall load {}: {}", words.join(" "), sh::tail(&printed, 600));
    }
    serde_json::from_slice(&output.stdout).context("output of upcall load")
}

/// Returns a number of the output; NaN if missing.
pub(crate) fn number(printed: &Value, path: &str) -> f64 {
    printed.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Returns the share of I/Os issued at most this many ns late; NaN if there are none.
pub(crate) fn within(printed: &Value, limit_ns: u64) -> f64 {
    let rows = printed.pointer("/within").and_then(Value::as_array);
    let row = rows.and_then(|rows| rows.iter().find(|row| row["limit_ns"] == limit_ns));
    row.map_or(f64::NAN, |row| number(row, "/count") / number(printed, "/issued"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_was_issued() {
        let within_10 = serde_json::json!({ "limit_ns": 10_000, "count": 30 });
        let printed = serde_json::json!({ "issued": 40, "within": [within_10] });
        assert!((within(&printed, 10_000) - 0.75).abs() < 1e-9);
        assert!(within(&printed, 1).is_nan());
    }
}

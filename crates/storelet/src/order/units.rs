//! Parsers of durations and processor shares in orders.

/// Parses a duration that is not zero, ns.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    let time = base::units::time(text)?;
    let ns = u64::try_from(time.as_nanos()).ok().filter(|ns| *ns > 0);
    ns.ok_or_else(|| "write a time from 1ns to 500 years, like 500ms, 10s or 2m".to_string())
}

/// Parses a share of one processor, ns of each second.
pub(super) fn share(text: &str) -> Result<u64, String> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100_000.0).contains(percent));
    percent
        .map(|percent| (percent * 1e7) as u64)
        .ok_or_else(|| "write a share of a processor, such as 50%".to_string())
}

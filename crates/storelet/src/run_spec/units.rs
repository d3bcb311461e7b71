//! Parsers of durations and processor shares in orders.

/// Parses a duration that is not zero, ns.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    let time = base::units::time(text)?;
    let ns = u64::try_from(time.as_nanos()).ok().filter(|ns| *ns > 0);
    ns.ok_or_else(|| "write a time from 1ns to 500 years, like 500ms, 10s or 2m".to_string())
}

/// Parses a size, bytes; its unit may be in lower case.
pub(super) fn size(text: &str) -> Result<u64, String> {
    base::size::parse(&text.to_ascii_uppercase().replace("IB", "iB"))
}

/// Parses a share of one processor, ns of each second.
pub(super) fn share(text: &str) -> Result<u64, String> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100_000.0).contains(percent));
    percent
        .map(|percent| (percent * 1e7) as u64)
        .ok_or_else(|| "write a share of a processor, such as 50%".to_string())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_binary_unless_a_byte_is_named() {
        for (text, bytes) in
            [("65536", 65_536), ("64K", 65_536), ("64KiB", 65_536), ("64kB", 64_000)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(size(&text.to_lowercase()), Ok(bytes), "{text}");
        }
        assert_eq!((size("1G"), size("1GB")), (Ok(1 << 30), Ok(1_000_000_000)));
        assert!(size("1X").is_err() && size("B").is_err());
    }
}

//! Digests of the content of a request (RFC 9530).

use super::{Fields, Refusal, refusal};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Padding may be missing (RFC 8941 §4.2.7).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const MALFORMED: Refusal =
    refusal(400, "the digest is malformed; write it as sha-256=:BASE64: with 32 bytes");

/// Returns the SHA-256 digest of the content, if there is one. Content codings are not decoded, so
/// that of the representation is the same. Other algorithms are ignored (§2).
pub(super) fn parse(fields: &Fields<'_>) -> Result<Option<[u8; 32]>, Refusal> {
    let mut found = None;
    for member in ["content-digest", "repr-digest"].into_iter().flat_map(|name| fields.list(name)) {
        let Some(value) = member.strip_prefix("sha-256=") else { continue };
        // A byte sequence (RFC 8941 §3.3.5), perhaps with parameters.
        let value = value.split(';').next().unwrap_or_default();
        let text = value.strip_prefix(':').and_then(|text| text.strip_suffix(':'));
        let bytes = text.and_then(|text| BASE64.decode(text).ok());
        let digest = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(MALFORMED)?;
        if found.is_some_and(|before| before != digest) {
            return Err(refusal(400, "the digests of the request differ"));
        }
        found = Some(digest);
    }
    Ok(found)
}

//! Hashed passwords as crypt(3) writes them: scrypt (`$7$`), SHA-256-crypt (`$5$`) and SHA-512-crypt (`$6$`).
//!
//! Forms and bounds are checked when the file is read, so that a login can neither fail for a typing error nor take
//! the processor or the memory for long.

use scrypt::Scrypt;
use scrypt::password_hash::PasswordVerifier;
use sha_crypt::{PasswordHashRef, ShaCrypt};

/// Largest memory of one scrypt in bytes: the default of `mkpasswd -m scrypt`.
const SCRYPT_BYTES_MAX: u64 = 64 << 20;
/// Largest work of one scrypt: blocks mixed, four times those of that default.
const SCRYPT_BLOCKS_MAX: u64 = 4 << 19;
/// Most rounds of SHA-crypt: about the time of the most expensive scrypt.
const SHA_ROUNDS_MAX: u64 = 100_000;
/// Longest password in bytes that is compared with a hash: SHA-crypt takes longer the longer the password is.
pub(crate) const HASHED_PASSWORD_BYTES_MAX: usize = 128;

const MALFORMED: &str = "has a password hash that is malformed";
const TOO_EXPENSIVE: &str = "has a password hash that takes too long to verify";
const UNSUPPORTED_KIND: &str = "has a password hash of a kind that is not supported (scrypt $7$, SHA-256 $5$ and SHA-512 $6$ are)";

/// A hashed password.
pub(crate) enum PasswordHash {
    Scrypt(String),
    Sha(String),
}

impl PasswordHash {
    /// Parses a field of a password file: `None` if it is a plain password. The error is the end of a sentence.
    pub(crate) fn parse(field: &[u8]) -> Result<Option<PasswordHash>, &'static str> {
        let Some(kind) = hash_identifier(field) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(field).map_err(|_| MALFORMED)?;
        PasswordHashRef::new(text).map_err(|_| MALFORMED)?;
        let hash_parts: Vec<&str> = text.split('$').skip(2).collect();
        let digest_chars = match kind {
            b"5" | b"7" => 43,
            b"6" => 86,
            _ => return Err(UNSUPPORTED_KIND),
        };
        if hash_parts.last().map(|digest| digest.len()) != Some(digest_chars) {
            return Err(MALFORMED);
        }
        let cost = match (kind, hash_parts.as_slice()) {
            (b"7", [settings, _]) => scrypt_cost(settings.as_bytes()).ok_or(MALFORMED)?,
            (b"5" | b"6", [_, _]) => VerifyCost::default(),
            (b"5" | b"6", [rounds, _, _]) => {
                let rounds = rounds.strip_prefix("rounds=").ok_or(MALFORMED)?;
                VerifyCost {
                    rounds: rounds.parse().map_err(|_| MALFORMED)?,
                    ..VerifyCost::default()
                }
            }
            _ => return Err(MALFORMED),
        };
        let is_cheap = cost.bytes <= SCRYPT_BYTES_MAX
            && cost.blocks <= SCRYPT_BLOCKS_MAX
            && cost.rounds <= SHA_ROUNDS_MAX;
        if !is_cheap {
            return Err(TOO_EXPENSIVE);
        }
        Ok(Some(match kind {
            b"7" => PasswordHash::Scrypt(text.to_owned()),
            _ => PasswordHash::Sha(text.to_owned()),
        }))
    }

    /// Whether it is the hash of `password`; false for one longer than [`HASHED_PASSWORD_BYTES_MAX`].
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        if password.len() > HASHED_PASSWORD_BYTES_MAX {
            return false;
        }
        let (Self::Scrypt(text) | Self::Sha(text)) = self;
        let Ok(hash) = PasswordHashRef::new(text) else {
            return false;
        };
        match self {
            Self::Scrypt(_) => Scrypt::new().verify_password(password, hash).is_ok(),
            Self::Sha(_) => ShaCrypt::SHA256.verify_password(password, hash).is_ok(),
        }
    }
}

/// What verifying a hash takes.
#[derive(Default)]
struct VerifyCost {
    bytes: u64,
    blocks: u64,
    rounds: u64,
}

/// The identifier of a hash, between the first two dollars: a few letters and digits.
fn hash_identifier(field: &[u8]) -> Option<&[u8]> {
    let after_dollar = field.strip_prefix(b"$")?;
    let kind = after_dollar.get(..memchr::memchr(b'$', after_dollar)?)?;
    let is_identifier = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    (!kind.is_empty() && kind.iter().all(is_identifier)).then_some(kind)
}

/// The cost in the settings of `$7$`: one digit of 6 bits for log2 of N, five for r, five for p, then the salt.
fn scrypt_cost(settings: &[u8]) -> Option<VerifyCost> {
    let (digits, _salt) = settings.split_at_checked(11)?;
    let (log_n, r_and_p_digits) = digits.split_first()?;
    let (r, p) = r_and_p_digits.split_at_checked(5)?;
    let n = 1_u64.checked_shl(u32::try_from(parse_digits(&[*log_n])?).ok()?)?;
    let (r, p) = (parse_digits(r)?, parse_digits(p)?);
    if n < 2 || r == 0 || p == 0 {
        return None;
    }
    let blocks = n.saturating_mul(r);
    Some(VerifyCost {
        bytes: blocks.saturating_mul(128),
        blocks: blocks.saturating_mul(p),
        rounds: 0,
    })
}

/// A number in digits of 6 bits, the lowest first.
fn parse_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().rev().try_fold(0, |number: u64, digit| {
        let digit_value = match digit {
            b'.' => 0,
            b'/' => 1,
            b'0'..=b'9' => digit - b'0' + 2,
            b'A'..=b'Z' => digit - b'A' + 12,
            b'a'..=b'z' => digit - b'a' + 38,
            _ => return None,
        };
        Some(number << 6 | u64::from(digit_value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by crypt(3) of libxcrypt from the password "secret".
    const CRYPT_HASHES: [&str; 3] = [
        "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
        "$7$86..../....saltsalt$W8FO9.l0W4e1gEhH6uR1MYKcoKCutjgsf5FwOwJxx33",
    ];

    fn refusal(field: &str) -> &'static str {
        PasswordHash::parse(field.as_bytes()).map(|hash| hash.is_some()).unwrap_err()
    }

    #[test]
    fn hashes_of_crypt_verify_their_password_and_no_other() {
        for text in CRYPT_HASHES {
            let hash = PasswordHash::parse(text.as_bytes()).unwrap().unwrap();
            assert!(hash.verify(b"secret"), "{text}");
            for wrong in [&b"Secret"[..], b"", b"secrett", b"secre"] {
                assert!(!hash.verify(wrong), "{text} {wrong:?}");
            }
        }
    }

    #[test]
    fn a_password_that_begins_with_a_dollar_is_plain_unless_it_has_the_form_of_a_hash() {
        for plain in ["$", "$word", "$$", "$a b$c", "pass$5$word"] {
            assert!(PasswordHash::parse(plain.as_bytes()).unwrap().is_none(), "{plain}");
        }
        for unknown in ["$1$salt$x", "$2b$12$abc", "$y$j9T$abc", "$argon2id$v=19$abc"] {
            assert_eq!(refusal(unknown), UNSUPPORTED_KIND, "{unknown}");
        }
    }

    #[test]
    fn a_cut_hash_and_an_expensive_one_are_refused_when_the_file_is_read() {
        for text in CRYPT_HASHES {
            assert_eq!(refusal(&text[..text.len() - 1]), MALFORMED);
        }
        let digest = &CRYPT_HASHES[0][CRYPT_HASHES[0].len() - 43..];
        for (settings, reason) in [
            ("$5$rounds=100001$salt$", TOO_EXPENSIVE),
            ("$5$rounds=x$salt$", MALFORMED),
            ("$5$", MALFORMED),
            // 2^14 blocks of 32 are allowed, 2^15 are not.
            ("$7$DU..../....salt$", TOO_EXPENSIVE),
            ("$7$z6..../....salt$", TOO_EXPENSIVE),
            ("$7$8........../....salt$", MALFORMED),
        ] {
            assert_eq!(refusal(&format!("{settings}{digest}")), reason, "{settings}");
        }
        let default_cost_hash = format!("$7$CU..../....salt${digest}");
        assert!(PasswordHash::parse(default_cost_hash.as_bytes()).unwrap().is_some());
    }
}

//! By which digests a certificate is known, so that one that was revoked is known again however it is written.

use sha2::{Digest, Sha256};

/// A SHA-256 digest of a certificate.
pub type Fingerprint = [u8; 32];

/// The orders of the curves P-256, P-384 and P-521 (SEC 2, version 2.0).
const ORDERS: [&str; 3] = [
    "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    concat!(
        "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "fa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409"
    ),
];
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// The digest that tools print: of the whole certificate.
pub fn fingerprint(certificate: &[u8]) -> Fingerprint {
    Sha256::digest(certificate).into()
}

/// The digest of what the authority signed, which nobody else can write in another way. `None` for what is no certificate.
pub fn signed_part(certificate: &[u8]) -> Option<Fingerprint> {
    let (whole, _) = Element::read(certificate)?;
    let (signed, _) = Element::read(whole.content)?;
    Some(fingerprint(signed.bytes))
}

/// Every digest by which a certificate may have been revoked.
///
/// Whoever holds a certificate that was signed by ECDSA can write another signature on it: with `(r, s)`, `(r, n - s)` is
/// good, too. So the certificate with that one counts as well.
pub fn all(certificate: &[u8]) -> Vec<Fingerprint> {
    let twins = twins(certificate).unwrap_or_default();
    let twins = twins.iter().map(|twin| fingerprint(twin));
    [Some(fingerprint(certificate)), signed_part(certificate)].into_iter().flatten().chain(twins).collect()
}

/// The same certificate with the other signature, for each curve of which the authority's key may be.
fn twins(certificate: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (whole, _) = Element::read(certificate)?;
    let (signed, rest) = Element::read(whole.content)?;
    let (algorithm, rest) = Element::read(rest)?;
    let (signature, _) = Element::read(rest)?;
    let (pair, _) = Element::read(signature.content.strip_prefix(&[0])?)?;
    let (r, rest) = Element::read(pair.content)?;
    let (s, _) = Element::read(rest)?;
    if [whole.tag, signature.tag, pair.tag, r.tag, s.tag] != [SEQUENCE, BIT_STRING, SEQUENCE, INTEGER, INTEGER] {
        return None;
    }
    let twin = |order: &str| {
        let other = element(INTEGER, &integer(&difference(&bytes(order), s.content)?));
        let pair = element(SEQUENCE, &[r.bytes, &other].concat());
        let signature = element(BIT_STRING, &[&[0], pair.as_slice()].concat());
        Some(element(SEQUENCE, &[signed.bytes, algorithm.bytes, &signature].concat()))
    };
    Some(ORDERS.into_iter().filter_map(twin).collect())
}

/// A value of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// With its tag and length.
    bytes: &'a [u8],
}

impl<'a> Element<'a> {
    /// The first of some bytes, and what follows it.
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (tag, rest) = bytes.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            long @ 0x81..=0x84 => {
                let (said, rest) = rest.split_at_checked(usize::from(long - 0x80))?;
                (said.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            // No length is written so, or none of a certificate.
            0x80 | 0x85.. => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        let bytes = bytes.get(..bytes.len() - after.len())?;
        Some((Self { tag: *tag, content, bytes }, after))
    }
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length = length.iter().skip_while(|byte| **byte == 0).copied().collect::<Vec<u8>>();
    let mut out = vec![tag];
    match length.as_slice() {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(u8::MAX));
            out.extend(long);
        }
    }
    out.extend(content);
    out
}

/// A number as DER writes it: as short as can be, and not negative.
fn integer(number: &[u8]) -> Vec<u8> {
    let digits = number.iter().skip_while(|byte| **byte == 0).copied();
    let sign = number.iter().find(|byte| **byte != 0).is_none_or(|first| *first >= 0x80);
    sign.then_some(0).into_iter().chain(digits).collect()
}

/// `from - less`; `None` where that is negative.
fn difference(from: &[u8], less: &[u8]) -> Option<Vec<u8>> {
    let mut less = less.iter().rev();
    let mut out = Vec::with_capacity(from.len());
    let mut borrow = 0;
    for digit in from.iter().rev() {
        let left = i16::from(*digit) - i16::from(less.next().copied().unwrap_or(0)) - borrow;
        borrow = i16::from(left < 0);
        out.push(u8::try_from(left + borrow * 0x100).unwrap_or(0));
    }
    out.reverse();
    (borrow == 0 && less.all(|digit| *digit == 0)).then_some(out)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or(0);
    hex.as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |byte, half| byte << 4 | digit(*half))).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
        PKCS_ECDSA_P521_SHA512, PKCS_ED25519, SignatureAlgorithm,
    };
    use rustls::pki_types::{CertificateDer, UnixTime};

    use super::*;
    use crate::tls::client_verifier;

    fn pair(algorithm: &'static SignatureAlgorithm) -> (String, CertificateDer<'static>) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let leaf = CertificateParams::default().signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        (ca, leaf.der().clone())
    }

    /// The attack: a certificate that was revoked by its fingerprint, with another signature that is good as well.
    #[test]
    fn a_certificate_with_its_other_signature_is_the_same_one() {
        for (at, algorithm) in
            [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ECDSA_P521_SHA512].into_iter().enumerate()
        {
            let (ca, leaf) = pair(algorithm);
            let verifier = client_verifier(ca.as_bytes()).unwrap();
            let is_good = |der: &[u8]| {
                verifier.verify_client_cert(&CertificateDer::from(der.to_vec()), &[], UnixTime::now()).is_ok()
            };
            let twins = twins(&leaf).unwrap();
            let twin = twins.iter().find(|twin| is_good(twin)).unwrap_or_else(|| panic!("curve {at} has no twin"));
            assert!(is_good(&leaf) && twin.as_slice() != &*leaf);
            assert!(all(twin).contains(&fingerprint(&leaf)) && all(&leaf).contains(&fingerprint(twin)), "{at}");
            assert_eq!(signed_part(twin), signed_part(&leaf));
        }
        let (_, leaf) = pair(&PKCS_ED25519);
        assert_eq!(all(&leaf), [fingerprint(&leaf), signed_part(&leaf).unwrap()], "there is one signature only");
        assert_eq!(all(b"no certificate").len(), 1);
    }

    #[test]
    fn numbers_are_written_as_der_writes_them() {
        assert_eq!(integer(&[0, 0, 1]), [1]);
        assert_eq!(integer(&[0x80]), [0, 0x80]);
        assert_eq!(integer(&[0]), [0]);
        assert_eq!(difference(&[1, 0, 0], &[0, 1]), Some(vec![0, 0xff, 0xff]));
        assert_eq!(difference(&[1], &[2]), None);
        assert_eq!(difference(&[1], &[1, 0]), None);
        assert_eq!(element(4, &[7; 200])[..4], [4, 0x81, 200, 7]);
        assert_eq!(ORDERS.map(|order| bytes(order).len()), [32, 48, 66]);
    }
}

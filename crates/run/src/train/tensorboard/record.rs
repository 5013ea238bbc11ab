//! TFRecord, the framing of TensorBoard's event files (TensorFlow, `core/lib/io/record_writer.cc`):
//! of each record its length, u64 little-endian, a checksum of those eight bytes, the bytes, and a
//! checksum of them.

/// Appends a record that holds `data`.
pub(super) fn frame(data: &[u8], out: &mut Vec<u8>) {
    let length = (data.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked(crc32c(&length)).to_le_bytes());
    out.extend(data);
    out.extend(masked(crc32c(data)).to_le_bytes());
}

/// A checksum that may lie within data of which a checksum is taken (TensorFlow,
/// `core/lib/hash/crc32c.h`).
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C, Castagnoli's (RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

/// Its polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_record_is_its_length_its_bytes_and_two_checksums() {
        let mut file = vec![7];
        frame(b"123456789", &mut file);
        assert_eq!(file.len(), 1 + 8 + 4 + 9 + 4);
        assert_eq!((&file[1..9], &file[13..22]), (&[9, 0, 0, 0, 0, 0, 0, 0][..], &b"123456789"[..]));
        // (0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8, modulo 2^32.
        let expected = 0xc78a_b0e5_u32.to_le_bytes();
        assert_eq!(file[22..], expected);
    }
}

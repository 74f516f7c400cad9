//! Kafka's murmur2: which partition a key belongs to.

const M: u32 = 0x5bd1_e995;
const SEED: u32 = 0x9747_b28c;

fn murmur2(key: &[u8]) -> u32 {
    let mut hash = SEED ^ key.len() as u32;
    let words = key.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ word >> 24).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// The partition of a key that is not null; `partitions` is at least 1.
pub fn partition(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) as i32 % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn hashes_are_those_of_the_java_client() {
        for (key, hash) in [
            (&b"21"[..], -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key) as i32, hash);
        }
    }

    #[test]
    fn partitions_are_not_negative() {
        assert_eq!(partition(b"21", 7), (-973_932_308i32 & i32::MAX) % 7);
        assert_eq!(partition(b"", 1), 0);
        assert!((0..1000).all(|i: i32| (0..12).contains(&partition(&i.to_be_bytes(), 12))));
    }
}

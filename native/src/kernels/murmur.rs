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

//! The two searches that the parser's speed rests on, 16 bytes at a time where the processor is x86-64 (SSE2 is part of
//! its baseline, so nothing is asked at run time), byte by byte elsewhere and within the last 16 bytes of a buffer.
//!
//! Both may look past the end of a record into the next one of the same buffer, never past the buffer.

/// The place of the first byte in `data[from..]` that a string of ASCII without escapes cannot hold: a quote, a
/// backslash, a control character and, with `ASCII`, a byte of 0x80 or above. The buffer's length when there is none.
#[inline(always)]
pub fn special<const ASCII: bool>(data: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(chunk) = chunk_at(data, at) {
        let found = special_mask::<ASCII>(chunk);
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += 16;
    }
    while at < data.len() && !is_special::<ASCII>(data[at]) {
        at += 1;
    }
    at
}

#[inline(always)]
fn is_special<const ASCII: bool>(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\' || (ASCII && byte >= 0x80)
}

#[inline(always)]
fn chunk_at(data: &[u8], at: usize) -> Option<&[u8; 16]> {
    data.get(at..)?.first_chunk::<16>()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn load(chunk: &[u8; 16]) -> std::arch::x86_64::__m128i {
    // SAFETY: the reference is to 16 readable bytes, and this load asks for no alignment.
    unsafe { std::arch::x86_64::_mm_loadu_si128(chunk.as_ptr().cast()) }
}

/// A bit for each of the 16 bytes that is special.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn special_mask<const ASCII: bool>(chunk: &[u8; 16]) -> u32 {
    use std::arch::x86_64::*;
    let bytes = load(chunk);
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        let mut found = _mm_or_si128(_mm_or_si128(quote, backslash), control);
        if ASCII {
            found = _mm_or_si128(found, bytes); // the mask takes each byte's highest bit
        }
        _mm_movemask_epi8(found) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn special_mask<const ASCII: bool>(chunk: &[u8; 16]) -> u32 {
    chunk.iter().enumerate().fold(0, |mask, (i, &byte)| mask | (u32::from(is_special::<ASCII>(byte)) << i))
}

/// A short text that is compared at a given place, again and again.
pub struct Literal {
    text: Box<[u8]>,
    padded: [u8; 32],
    masks: [u32; 2],
}

impl Literal {
    pub fn new(text: &[u8]) -> Self {
        let mut padded = [0; 32];
        let short = text.len().min(32);
        padded[..short].copy_from_slice(&text[..short]);
        let bits = |n: usize| (1u32 << n.min(16)) - 1;
        Literal { text: text.into(), padded, masks: [bits(short), bits(short.saturating_sub(16))] }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether `data[at..end]` begins with the text.
    #[inline(always)]
    pub fn stands_at(&self, data: &[u8], at: usize, end: usize) -> bool {
        let length = self.text.len();
        if at + length > end {
            return false;
        }
        if length <= 16 {
            if let Some(chunk) = chunk_at(data, at) {
                return equal_mask(chunk, self.half(0)) & self.masks[0] == self.masks[0];
            }
        } else if length <= 32 {
            if let (Some(first), Some(second)) = (chunk_at(data, at), chunk_at(data, at + 16)) {
                return equal_mask(first, self.half(0)) == 0xffff
                    && equal_mask(second, self.half(1)) & self.masks[1] == self.masks[1];
            }
        }
        data[at..at + length] == *self.text
    }

    #[inline(always)]
    fn half(&self, which: usize) -> &[u8; 16] {
        let (first, second) = self.padded.split_at(16);
        let half: Option<&[u8; 16]> = [first, second][which].first_chunk();
        half.expect("32 bytes are two halves of 16")
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_mask(a: &[u8; 16], b: &[u8; 16]) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(load(a), load(b))) as u32 }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal_mask(a: &[u8; 16], b: &[u8; 16]) -> u32 {
    a.iter().zip(b).enumerate().fold(0, |mask, (i, (x, y))| mask | (u32::from(x == y) << i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_found_at_every_place() {
        for length in 0..40 {
            for at in 0..length {
                for byte in [b'"', b'\\', 0, 0x1f] {
                    let mut data = vec![b'a'; length];
                    data[at] = byte;
                    assert_eq!((special::<true>(&data, 0), special::<false>(&data, 0)), (at, at));
                    assert_eq!(special::<true>(&data, at + 1), length);
                }
                let mut data = vec![b' '; length];
                data[at] = 0x80;
                assert_eq!((special::<true>(&data, 0), special::<false>(&data, 0)), (at, length));
                data[at] = 0x7f;
                assert_eq!(special::<true>(&data, 0), length);
            }
        }
    }

    #[test]
    fn a_literal_stands_where_all_of_it_does() {
        for length in [0, 1, 15, 16, 17, 31, 32, 33, 50] {
            let text: Vec<u8> = (0..length).map(|i| b'a' + i as u8 % 26).collect();
            let literal = Literal::new(&text);
            assert_eq!(literal.len(), length);
            for room in [0, 40] {
                let data = [&b"xyz"[..], &text, &vec![b'!'; room]].concat();
                assert!(literal.stands_at(&data, 3, data.len()));
                assert!(literal.stands_at(&data, 3, 3 + length));
                for wrong in 0..length {
                    let mut other = data.clone();
                    other[3 + wrong] ^= 1;
                    assert!(!literal.stands_at(&other, 3, other.len()), "{length} {wrong}");
                    assert!(!literal.stands_at(&data, 3, 3 + wrong));
                }
            }
        }
    }
}

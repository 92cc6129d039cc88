//! SHA-256, for comparing pictures with recorded ones; written for brevity, not for secrets.

/// The digest as 64 hexadecimal digits.
pub(crate) fn hex(data: &[u8]) -> String {
    let (mut state, rounds) = constants();
    let mut blocks = data.chunks_exact(64);
    blocks.by_ref().for_each(|block| compress(&mut state, &rounds, block));
    let mut tail = blocks.remainder().to_vec();
    tail.push(0x80);
    tail.resize((tail.len() + 8).next_multiple_of(64) - 8, 0);
    tail.extend((data.len() as u64 * 8).to_be_bytes());
    tail.chunks_exact(64).for_each(|block| compress(&mut state, &rounds, block));
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// The first 32 bits of the fractions of square and cube roots of the first primes.
fn constants() -> ([u32; 8], [u32; 64]) {
    let mut primes = (2_u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    let mut roots = [0; 64];
    let mut state = [0; 8];
    for index in 0..64 {
        let prime = u128::from(primes.next().unwrap());
        roots[index] = root(prime << 96, 3) as u32;
        if index < 8 {
            state[index] = root(prime << 64, 2) as u32;
        }
    }
    (state, roots)
}

/// The greatest integer whose `power`th power is at most `value`.
fn root(value: u128, power: u32) -> u128 {
    let (mut low, mut high) = (0_u128, 1 << 38);
    while low + 1 < high {
        let middle = (low + high) / 2;
        if middle.checked_pow(power).is_some_and(|product| product <= value) { low = middle } else { high = middle }
    }
    low
}

fn compress(state: &mut [u32; 8], rounds: &[u32; 64], block: &[u8]) {
    let mut words = [0_u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().unwrap());
    }
    for t in 16..64 {
        let (a, b) = (words[t - 15], words[t - 2]);
        let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        words[t] = words[t - 16].wrapping_add(s0).wrapping_add(words[t - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in words.iter().zip(rounds) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(*round).wrapping_add(*word);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(s0.wrapping_add(majority)));
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = old.wrapping_add(new);
    }
}

#[test]
fn the_digest_of_abc_is_the_published_one() {
    assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

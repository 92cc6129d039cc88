//! Poisoned pictures: untouched ones show it in every probed pixel, written ones in none, half written ones in some.

use brimful::device::kernels::Picture;

use crate::gpu::Bench;

const SIZES: [(u32, u32); 6] = [(1, 1), (8, 8), (9, 17), (500, 375), (333, 2), (1024, 768)];

#[test]
fn only_what_nobody_wrote_still_holds_the_pattern() {
    let Some(bench) = Bench::open() else { return };
    let pitch = |width: u32| (width * 3).next_multiple_of(64);
    let memories: Vec<_> = SIZES.map(|(width, height)| bench.put(&vec![7; (pitch(width) * height) as usize])).into();
    let pictures: Vec<Picture> = SIZES
        .iter()
        .zip(&memories)
        .enumerate()
        .map(|(i, (&(width, height), memory))| Picture {
            pixels: memory.address(),
            pitch: pitch(width),
            width,
            height,
            salt: i as u32,
        })
        .collect();
    let list = bench.put(bytemuck::cast_slice(&pictures));
    let counts = bench.put(&vec![0xFF; 4 * pictures.len()]);
    let count = pictures.len() as u32;
    let probe = || -> Vec<u64> {
        // SAFETY: pictures, list and counts live until `get` has waited for the stream.
        unsafe { bench.kernels.probe(list.address(), count, counts.address(), bench.stream()) }.unwrap();
        let bytes = bench.get(&counts);
        bytes.as_chunks().0.iter().map(|&number| u64::from(u32::from_ne_bytes(number))).collect()
    };
    assert_eq!(probe(), [0; SIZES.len()], "never poisoned");
    // SAFETY: as above.
    unsafe { bench.kernels.poison(list.address(), count, bench.stream()) }.unwrap();
    let probes: Vec<u64> = pictures.iter().map(Picture::probes).collect();
    assert_eq!(probe(), probes, "poisoned");

    // Nothing but probed pixels was touched, and those of the last row and column among them.
    let (width, height) = SIZES[2];
    let bytes = bench.get(&memories[2]);
    for (y, row) in bytes.chunks_exact(pitch(width) as usize).enumerate() {
        for (x, pixel) in row.chunks_exact(3).take(width as usize).enumerate() {
            let is_probed = [(x, width), (y, height)].iter().all(|&(at, side)| at % 8 == 0 || at + 1 == side as usize);
            assert_eq!(*pixel != [7; 3], is_probed, "pixel {x}, {y}");
        }
    }

    // The picture in the middle written, of another one the first half of the rows.
    let written = bench.put(&vec![9; memories[3].len()]);
    let half: Vec<u8> = bench
        .get(&memories[5])
        .iter()
        .enumerate()
        .map(|(i, &byte)| if i < memories[5].len() / 2 { 9 } else { byte })
        .collect();
    let half = bench.put(&half);
    let mut later = pictures.clone();
    later[3].pixels = written.address();
    later[5].pixels = half.address();
    let later_list = bench.put(bytemuck::cast_slice(&later));
    // SAFETY: as above.
    unsafe { bench.kernels.probe(later_list.address(), count, counts.address(), bench.stream()) }.unwrap();
    let bytes = bench.get(&counts);
    let found: Vec<u64> = bytes.as_chunks().0.iter().map(|&number| u64::from(u32::from_ne_bytes(number))).collect();
    // Of 97 probed rows, those from 384 on were not written.
    let expected: Vec<u64> = [probes[0], probes[1], probes[2], 0, probes[4], 129 * 49].into();
    assert_eq!(found, expected);
}

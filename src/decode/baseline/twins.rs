//! Fast paths against their plain twins: the same pixels whichever instructions decode, and in however many lanes.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;

use super::header::{BLOCK, Header};
use super::idct::BlockRow;
use super::instructions::Instructions;
use super::{Baseline, Form, LANES, Refusal};
use crate::decode::Region;

const SAMPLINGS: [SamplingFactor; 4] =
    [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2];

fn jpeg(width: u16, height: u16, sampling: Option<SamplingFactor>, quality: u8, restart: u16) -> Vec<u8> {
    let (color, channels) = if sampling.is_some() { (ColorType::Rgb, 3) } else { (ColorType::Luma, 1) };
    let mut noise = u32::from(width) * 31 + u32::from(height);
    let count = usize::from(width) * usize::from(height) * channels;
    let pixels: Vec<u8> = (0..count)
        .map(|i| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((i / 5 % 200) as u32 + (noise >> 27)) as u8
        })
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(sampling.unwrap_or(SamplingFactor::F_1_1));
    encoder.set_restart_interval(restart);
    encoder.encode(&pixels, width, height, color).unwrap();
    bytes
}

/// Decodes the files in so many lanes.
fn decode(baseline: &mut Baseline, files: &[(&[u8], Region, Form)], lanes: usize) -> Vec<Result<Vec<u8>, Refusal>> {
    let mut results = vec![Err(Refusal::Data); files.len()];
    let mut held = [None; LANES];
    let mut next = 0;
    loop {
        for (lane, held) in held.iter_mut().enumerate().take(lanes) {
            while held.is_none() && next < files.len() {
                let (bytes, region, form) = files[next];
                match baseline.begin(lane, bytes, region, form) {
                    Ok(()) => *held = Some(next),
                    Err(refusal) => results[next] = Err(refusal),
                }
                next += 1;
            }
        }
        let Some((lane, outcome)) = baseline.advance(held.map(|held| held.is_some())) else { return results };
        let number = held[lane].take().unwrap();
        results[number] = outcome.map(|()| {
            let mut pixels = Vec::new();
            let form = baseline.swap_output(lane, &mut pixels);
            assert_eq!(form, files[number].2);
            let Region { width, height, .. } = files[number].1;
            let samples = if form == Form::Grey { 1 } else { 3 };
            pixels.truncate(width as usize * height as usize * samples);
            pixels
        });
    }
}

#[test]
fn all_instructions_and_lanes_decode_to_the_same_pixels() {
    let step = if cfg!(miri) { 9 } else { 1 };
    let mut files = Vec::new();
    for (number, side) in (1..=40).step_by(step).enumerate() {
        let (number, other) = (number as u16, 1 + side * 7 % 40);
        for sampling in SAMPLINGS.map(Some).into_iter().chain([None]) {
            let quality = 1 + (number * 37 % 100) as u8;
            files.push((jpeg(side, other, sampling, quality, number % 6), u32::from(side), u32::from(other)));
        }
    }
    let mut jobs = Vec::new();
    for (number, (bytes, width, height)) in files.iter().enumerate() {
        let (x, y) = (number as u32 * 5 % width, number as u32 * 3 % height);
        jobs.push((&bytes[..], Region::full(*width, *height), Form::Pixels));
        jobs.push((&bytes[..], Region { x, y, width: width - x, height: (height - y).min(9) }, Form::Pixels));
    }
    let plain = decode(&mut Baseline::with(Instructions::PLAIN), &jobs, 1);
    assert!(plain.iter().all(Result::is_ok));
    for pair in plain.chunks_exact(2).zip(jobs.chunks_exact(2)) {
        let ([Ok(whole), Ok(part)], [(_, full, _), (_, region, _)]) = pair else { panic!("they decode") };
        for y in 0..region.height {
            let start = 3 * ((region.y + y) * full.width + region.x) as usize;
            let row = 3 * region.width as usize;
            assert_eq!(whole[start..][..row], part[y as usize * row..][..row], "{region} of {full}");
        }
    }
    for instructions in Instructions::all() {
        for lanes in [1, 2] {
            let fast = decode(&mut Baseline::with(instructions), &jobs, lanes);
            assert!(fast == plain, "{instructions:?}, {lanes} lanes");
        }
    }
}

#[test]
fn damaged_data_have_the_same_outcome_by_the_book() {
    let mut state = 7_u32;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let mut refused = 0;
    for number in 0..if cfg!(miri) { 6 } else { 600 } {
        let sampling = SAMPLINGS.get(number % 5).copied();
        let mut bytes = jpeg(33, 21, sampling, 60, (number % 4) as u16);
        let scan = Header::read(&bytes).unwrap().scan;
        for _ in 0..1 + number % 3 {
            let at = scan + draw(bytes.len() - 2 - scan);
            bytes[at] = draw(256) as u8;
        }
        let jobs = [(&bytes[..], Region::full(33, 21), Form::Pixels)];
        let plain = decode(&mut Baseline::with(Instructions::PLAIN), &jobs, 1);
        refused += usize::from(plain[0].is_err());
        for instructions in Instructions::all() {
            let fast = decode(&mut Baseline::with(instructions), &jobs, 2);
            assert!(
                fast == plain,
                "{number}, {instructions:?}: {:?}, {:?}",
                plain[0].as_ref().err(),
                fast[0].as_ref().err()
            );
        }
    }
    assert!(refused > 0);
}

proptest! {
    #[test]
    fn transforms_of_any_coefficients_agree(
        blocks in prop::collection::vec((0..BLOCK, prop_oneof![4 => -300..300_i16, 1 => any::<i16>()]), 1..60),
        steps in prop_oneof![3 => 1..40_i16, 1 => 0..8189_i16],
    ) {
        let mut row = vec![0; 5 * BLOCK];
        for (number, &(place, value)) in blocks.iter().enumerate() {
            row[number % 5 * BLOCK + place] = value;
        }
        let layout = BlockRow { first: 1, mcu_blocks: 2, h: 2, count: 3 };
        let quantiser = std::array::from_fn(|i| steps + i as i16 % 3);
        let mut plain = vec![0; 8 * 40];
        let good = Instructions::SCALAR.transform(&row, layout, &quantiser, &mut plain, 40);
        for instructions in Instructions::all() {
            let mut fast = vec![0; 8 * 40];
            prop_assert_eq!(instructions.transform(&row, layout, &quantiser, &mut fast, 40), good);
            prop_assert!(!good || fast == plain);
        }
    }
}

//! Decodes a region of one JPEG with the baseline decoder and writes it as a PPM: the decoder without the loader.
//!
//! `cargo run --release --example decode -- photo.jpg 320x240+16+8 region.ppm`

#![expect(clippy::print_stderr, reason = "a program that tells what it found")]

use std::io::Write as _;

use brimful::decode::{Backend, DecodeOptions, ImageDecoder, Region};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, region, output] = &arguments[..] else {
        return Err("usage: decode INPUT.jpg WIDTHxHEIGHT+X+Y OUTPUT.ppm".into());
    };
    let numbers: Vec<u32> = region.split(['x', '+']).map(str::parse).collect::<Result<_, _>>()?;
    let &[width, height, x, y] = &numbers[..] else { return Err("a region is WIDTHxHEIGHT+X+Y".into()) };

    let bytes = std::fs::read(input)?;
    let mut decoder = ImageDecoder::new(DecodeOptions { backend: Backend::Baseline, ..DecodeOptions::default() })?;
    let wanted = Region { x, y, width, height };
    // What is decoded may be more than was asked for; the view of it is not.
    let pixels = decoder.decode(&bytes, Some(wanted))?.view(wanted)?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(output)?);
    writeln!(file, "P6 {width} {height} 255")?;
    for row in pixels.rows() {
        file.write_all(row)?;
    }
    file.flush()?;

    for (reason, count) in decoder.fallbacks().iter().filter(|&(_, count)| count > 0) {
        eprintln!("{count} file left to another decoder: {}", reason.as_str());
    }
    Ok(())
}

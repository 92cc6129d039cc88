//! Our own decoder of baseline JPEG, made for training: the pixels of a region, exactly libjpeg-turbo's, in half the time.
//!
//! It decodes sequential Huffman coding of 8 bits, grey or YCbCr at the usual samplings, in one scan. Whatever else a
//! file is, and whatever looks odd in it, it refuses before anything is handed out, and another decoder gets the file.
//!
//! Each stage stands where the standard (ITU-T T.81) has it:
//!
//! | file | stage | clause |
//! |---|---|---|
//! | `header` | marker segments up to the scan | B.2 |
//! | `stuffing` | byte stuffing, restart markers | B.1.1.5, F.1.2.3 |
//! | `huffman` | codes, one symbol | C, F.2.2.3 |
//! | `lookup` | tables that resolve two symbols at once | |
//! | `entropy` | coefficients by the book | F.2.2 |
//! | `lanes`, `links` | a picture on the way, and which of its tables comes next | F.2.2 |
//! | `advance` | coefficients, fast, for two pictures at once | F.2.2 |
//! | `idct` | dequantisation, inverse DCT | A.3.3, A.3.4 |
//! | `upsample` | chroma at the size of luma | A.1.1 |
//! | `color` | YCbCr to RGB | JFIF |
//! | `strip`, `output`, `picture` | which blocks a region needs, rows on the way, the order of it all | A.2 |
//! | `instructions`, `x86` | which of the twins runs | |

mod refusal;
mod header;
mod stuffing;
mod huffman;
mod lookup;
mod entropy;
mod links;
mod lanes;
#[expect(unsafe_code, reason = "bounds that hold by construction are not looked at for each symbol")]
mod advance;
mod idct;
mod upsample;
mod color;
mod output;
mod strip;
mod picture;
#[expect(unsafe_code, reason = "functions compiled for instructions that were found at run time are called")]
mod instructions;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(test)]
mod twins;

pub use refusal::{Fallbacks, Refusal};

pub(crate) use instructions::Instructions;
pub(super) use output::Form;

use super::Region;
use picture::Picture;

/// Decoder of up to two pictures at once; keeps their memory.
#[derive(Debug)]
pub(super) struct Baseline {
    pictures: [Picture; LANES],
    instructions: Instructions,
}

/// Pictures that are decoded at once.
pub(super) const LANES: usize = 2;

impl Default for Baseline {
    fn default() -> Self {
        Self::with(Instructions::detect())
    }
}

impl Baseline {
    /// A decoder that uses these instructions.
    pub(super) fn with(instructions: Instructions) -> Self {
        Self { pictures: Default::default(), instructions }
    }

    /// Begins a picture in `lane`, which has none: the region, inside the picture, in the form that is wanted.
    pub(super) fn begin(&mut self, lane: usize, bytes: &[u8], region: Region, form: Form) -> Result<(), Refusal> {
        self.pictures[lane].begin(bytes, region, form, self.instructions)
    }

    /// Decodes the pictures in the lanes that are `taken` until one of them is done, and says which and how; `None` if
    /// none is taken.
    pub(super) fn advance(&mut self, taken: [bool; LANES]) -> Option<(usize, Result<(), Refusal>)> {
        loop {
            for lane in (0..LANES).filter(|&lane| taken[lane]) {
                let picture = &mut self.pictures[lane];
                while picture.lane.has_stopped() {
                    match picture.take(self.instructions) {
                        Ok(false) => {}
                        Ok(true) => return Some((lane, Ok(()))),
                        Err(refusal) => return Some((lane, Err(refusal))),
                    }
                }
            }
            let [first, second] = &mut self.pictures;
            match taken {
                [true, true] => self.instructions.advance([&mut first.lane, &mut second.lane]),
                [true, false] => self.instructions.advance([&mut first.lane]),
                [false, true] => self.instructions.advance([&mut second.lane]),
                [false, false] => return None,
            }
        }
    }

    /// How the pixels in `lane` are laid out.
    pub(super) fn form(&self, lane: usize) -> Form {
        self.pictures[lane].output.form
    }

    /// The pixels of the picture that is done in `lane`, perhaps with something behind them.
    pub(super) fn data(&self, lane: usize) -> &[u8] {
        &self.pictures[lane].output.data
    }

    /// Samples from one row of a plane to the next, in planes.
    pub(super) fn stride(&self, lane: usize) -> usize {
        self.pictures[lane].output.stride()
    }

    /// Changes places with the pixels of the picture that is done in `lane`, and tells their form.
    pub(super) fn swap_output(&mut self, lane: usize, pixels: &mut Vec<u8>) -> Form {
        let output = &mut self.pictures[lane].output;
        std::mem::swap(&mut output.data, pixels);
        output.form
    }
}

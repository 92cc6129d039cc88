//! Seeded numbers, and planes of smooth noise made of them.
//!
//! It is not for shuffling or augmentation: those have streams of their own. Only exact float operations are used, so
//! that every machine makes the same pictures.

/// A stream of pseudo-random numbers that depends on its seed alone.
pub(super) struct Stream(u64);

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x6272_696D_6675_6C21))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in `[low, high)`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `low..=high`.
    pub(super) fn whole(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() % u64::from(high - low + 1)) as u32
    }

    pub(super) fn chance(&mut self, share: f32) -> bool {
        self.unit() < share
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// One number a pixel: `[height, width]`, `f32`, row-major.
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) data: Vec<f32>,
}

impl Plane {
    pub(super) fn new(width: usize, height: usize, value: f32) -> Self {
        Self { width, height, data: vec![value; width * height] }
    }

    pub(super) fn row(&self, y: usize) -> &[f32] {
        &self.data[y * self.width..][..self.width]
    }

    /// Adds noise in `-amplitude..amplitude` that is smooth over cells of `cell_x` by `cell_y` pixels, each at least 1.
    pub(super) fn add_noise(&mut self, (cell_x, cell_y): (f32, f32), amplitude: f32, stream: &mut Stream) {
        let seed = stream.next();
        let columns = self.width as f32 / cell_x;
        let steps: Vec<(u32, f32)> = (0..self.width).map(|x| step(x, cell_x)).collect();
        // The lattice is stretched to the width once a cell; what is left for each row is to blend two rows.
        let stretched = |row: u32| -> Vec<f32> {
            let seed = mix(seed ^ u64::from(row)) as u32;
            let lattice: Vec<f32> = (0..columns as u32 + 2).map(|column| white(seed, column) * amplitude).collect();
            let value = |&(cell, weight): &(u32, f32)| {
                let (left, right) = (lattice[cell as usize], lattice[cell as usize + 1]);
                left + (right - left) * weight
            };
            steps.iter().map(value).collect()
        };
        let (mut above, mut upper, mut lower) = (0, stretched(0), stretched(1));
        for (y, row) in self.data.chunks_exact_mut(self.width).enumerate() {
            let (cell, weight) = step(y, cell_y);
            if cell > above {
                above = cell;
                upper = std::mem::replace(&mut lower, stretched(cell + 1));
            }
            for ((value, upper), lower) in row.iter_mut().zip(&upper).zip(&lower) {
                *value += upper + (lower - upper) * weight;
            }
        }
    }
}

/// The cell that pixel `at` lies in, and how far it is towards the next one.
fn step(at: usize, cell: f32) -> (u32, f32) {
    let position = at as f32 / cell;
    (position as u32, ease(position - (position as u32) as f32))
}

fn ease(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

/// White noise in `[-1, 1)`: a hash of `index`.
#[inline]
fn white(seed: u32, index: u32) -> f32 {
    hash(seed, index) as i32 as f32 / (1u32 << 31) as f32
}

/// 32 well-mixed bits of `index`, a few instructions that compilers make vectors of.
#[inline]
pub(super) fn hash(seed: u32, index: u32) -> u32 {
    let mut word = index.wrapping_mul(0x9E37_79B1) ^ seed;
    word = (word ^ word >> 16).wrapping_mul(0x85EB_CA6B);
    word = (word ^ word >> 13).wrapping_mul(0xC2B2_AE35);
    word ^ word >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_stays_within_its_amplitude_and_is_smooth_over_its_cell() {
        let mut plane = Plane::new(64, 48, 0.0);
        plane.add_noise((16.0, 16.0), 2.0, &mut Stream::new(3));
        assert!(plane.data.iter().all(|value| value.abs() <= 2.0));
        let steepest = |row: &[f32]| row.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
        assert!((0..48).all(|y| steepest(plane.row(y)) < 0.5));
        assert!(plane.data.iter().any(|value| value.abs() > 0.5));
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut stream = Stream::new(1);
        let drawn: Vec<u32> = (0..500).map(|_| stream.whole(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert!((0..500).map(|_| stream.between(-1.0, 1.0)).all(|value| (-1.0..1.0).contains(&value)));
    }
}

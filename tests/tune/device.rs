//! A device made of a table of step times, and the loop that a controller runs it in. It is no GPU: time is a number.

use brimful::tune::{BatchSizeController, Decision, Options, Phase, Sizes, Step, Window};

/// Step time, activity and memory at some batch sizes; in between they lie on straight lines.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// (batch size, step time in seconds, share of SMs active, bytes).
    pub(crate) rows: Vec<(f64, f64, f64, f64)>,
    pub(crate) memory_bytes: f64,
    /// Samples a second that the data path gives at most.
    pub(crate) data_rate: f64,
    pub(crate) knows_activity: bool,
    /// Spread of single steps, and of whole windows.
    pub(crate) step_noise: f64,
    pub(crate) window_noise: f64,
}

pub(crate) const GB: f64 = 1e9;

impl Device {
    /// Steps of `launch_s` as long as little is asked for, then of `sample_s` a sample.
    pub(crate) fn made(launch_s: f64, fixed_s: f64, sample_s: f64) -> Self {
        let rows = (0..=20).map(|power| {
            let size = f64::from(1 << power);
            let busy = fixed_s + size * sample_s;
            let step = busy.max(launch_s);
            (size, step, 0.97 * size * sample_s / step, 1.0 * GB + size * 0.04 * GB)
        });
        Self {
            name: "made".to_owned(),
            rows: rows.collect(),
            memory_bytes: 141.0 * GB,
            data_rate: f64::INFINITY,
            knows_activity: true,
            step_noise: 0.0,
            window_noise: 0.0,
        }
    }

    /// The recorded sweeps.
    pub(crate) fn recorded() -> Vec<Self> {
        let mut devices: Vec<Self> = Vec::new();
        for line in include_str!("h200.tsv").lines().filter(|line| !line.starts_with('#')) {
            let cells: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| cells[at].parse::<f64>().unwrap();
            if devices.last().is_none_or(|device| device.name != cells[0]) {
                devices.push(Self { name: cells[0].to_owned(), rows: Vec::new(), ..Self::made(0.0, 0.0, 1.0) });
            }
            let row = (number(1), number(2) / 1e3, number(3), number(4) * GB);
            devices.last_mut().unwrap().rows.push(row);
        }
        devices
    }

    fn at(&self, size: usize, part: impl Fn(&(f64, f64, f64, f64)) -> f64) -> f64 {
        let size = size as f64;
        let after = self.rows.partition_point(|row| row.0 < size).clamp(1, self.rows.len() - 1);
        let (low, high) = (&self.rows[after - 1], &self.rows[after]);
        part(low) + (part(high) - part(low)) * (size - low.0) / (high.0 - low.0)
    }

    /// Time of a step without disturbance, in seconds, and how much of it is waiting for data.
    pub(crate) fn step_s(&self, size: usize) -> (f64, f64) {
        let device = self.at(size, |row| row.1);
        let data = size as f64 / self.data_rate;
        (device.max(data), (data - device).max(0.0))
    }

    pub(crate) fn rate(&self, size: usize) -> f64 {
        size as f64 / self.step_s(size).0
    }

    pub(crate) fn memory(&self, size: usize) -> f64 {
        self.at(size, |row| row.3)
    }

    pub(crate) fn activity(&self, size: usize) -> f64 {
        let busy = (self.step_s(size).0 - self.step_s(size).1) / self.step_s(size).0;
        self.at(size, |row| row.2) * busy
    }

    /// What an exhaustive sweep over `sizes` chooses: the smallest with `target` of the best rate.
    pub(crate) fn exhaustive(&self, sizes: &Sizes, target: f64) -> usize {
        let fits = |size: &&usize| self.memory(**size) <= self.memory_bytes * 0.9;
        let sizes: Vec<usize> = sizes.as_slice().iter().filter(fits).copied().collect();
        let best = sizes.iter().map(|&size| self.rate(size)).fold(0.0, f64::max);
        sizes.into_iter().find(|&size| self.rate(size) >= target * best).unwrap()
    }
}

/// Numbers without pattern, the same for the same seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, with a spread of 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// What a disturbance makes of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disturbed {
    pub(crate) slower: f64,
    pub(crate) is_throttled: bool,
}

/// A finished search.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) size: usize,
    pub(crate) controller: BatchSizeController,
    pub(crate) steps: usize,
    pub(crate) seconds: f64,
    pub(crate) decisions: Vec<Decision>,
    /// Sizes that ran at least one step.
    pub(crate) ran: Vec<usize>,
    pub(crate) out_of_memory: usize,
}

pub(crate) const WARM_UP: usize = 3;
pub(crate) const STEPS: usize = 12;

/// Batches that were begun before a change of the size takes effect.
const IN_FLIGHT: usize = 5;

pub(crate) fn options(min: usize, max: usize) -> Options {
    Options::new(Sizes::multiples(min, max, 8).unwrap())
}

/// Runs the controller on the device until it has settled and watched for `windows_after` windows more.
pub(crate) fn search(
    device: &Device,
    options: Options,
    seed: u64,
    windows_after: usize,
    disturb: impl Fn(f64) -> Disturbed,
) -> Outcome {
    let mut noise = Noise::new(seed);
    let mut controller = BatchSizeController::new(options).unwrap();
    let (mut steps, mut seconds, mut after, mut out_of_memory) = (0, 0.0, 0, 0);
    let (mut decisions, mut ran) = (Vec::new(), Vec::new());
    let mut carried = 0;
    for _ in 0..10_000 {
        let size = controller.batch_size();
        if device.memory(size) > device.memory_bytes {
            out_of_memory += 1;
            decisions.push(controller.out_of_memory(size));
            if controller.phase() == Phase::Failed {
                break;
            }
            continue;
        }
        ran.push(size);
        let window_noise = 1.0 + device.window_noise * noise.normal();
        let mut window = Window::new(size, WARM_UP, STEPS);
        let mut is_throttled = false;
        steps += carried;
        loop {
            let (step_s, waited_s) = device.step_s(size);
            let disturbed = disturb(seconds);
            is_throttled |= disturbed.is_throttled;
            let factor = disturbed.slower * window_noise * (1.0 + device.step_noise * noise.normal()).max(0.2);
            let elapsed_s = step_s * factor;
            steps += 1;
            seconds += elapsed_s;
            if window.push(Step { rows: size, elapsed_s, waited_s: waited_s * factor }) {
                break;
            }
        }
        let mut made = window.measurement(None, None).unwrap();
        made.memory_bytes = Some(device.memory(size) as u64);
        made.memory_limit_bytes = Some(device.memory_bytes as u64);
        made.sm_active = device.knows_activity.then(|| device.activity(size) / disturb(seconds).slower);
        made.is_throttled = is_throttled;
        let decision = controller.observe(&made);
        carried = if decision.change.is_some() { IN_FLIGHT } else { 0 };
        decisions.push(decision);
        if decision.phase == Phase::Settled {
            after += 1;
            if after > windows_after {
                break;
            }
        }
    }
    Outcome { size: controller.batch_size(), controller, steps, seconds, decisions, ran, out_of_memory }
}

pub(crate) fn calm(_: f64) -> Disturbed {
    Disturbed { slower: 1.0, is_throttled: false }
}

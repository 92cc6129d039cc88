//! A thread that asks a probe a few times a second, so that no training step waits for the driver. It keeps the readings
//! since it was last asked, and nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{self, RecvTimeoutError, Sender};

use super::probe::{Probe, Reading, Throttle};
use crate::{Error, ErrorKind, Result};

/// Readings a second at most: more cost the driver's time and tell nothing new.
const RATE_MAX_HZ: f64 = 10.0;

/// Readings kept at most: half an hour at the highest rate.
const KEPT_MAX: usize = 18_000;

/// Readings at regular times; the thread ends when it is dropped.
#[derive(Debug)]
pub struct Sampler {
    readings: Arc<Mutex<Vec<Reading>>>,
    description: String,
    stop: Option<Sender<()>>,
    ended: channel::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// How long the end waits for a call into the driver that does not come back.
const ENDING_MAX: Duration = Duration::from_millis(500);

impl Sampler {
    /// Starts to ask `probe` `rate_hz` times a second.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a rate that is not above 0 and at most 10; when no thread can be started.
    pub fn start(mut probe: impl Probe + 'static, rate_hz: f64) -> Result<Self> {
        if !(rate_hz > 0.0 && rate_hz <= RATE_MAX_HZ) {
            let error =
                Error::new(ErrorKind::InvalidOption, format!("rate_hz={rate_hz} is not above 0 and at most 10"));
            return Err(error.with_hint("2 to 5 readings a second are enough for a batch size"));
        }
        let period = Duration::try_from_secs_f64(1.0 / rate_hz).unwrap_or(Duration::MAX);
        let description = probe.describe();
        let readings = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = channel::bounded::<()>(0);
        let (alive, ended) = channel::bounded::<()>(0);
        let kept = Arc::clone(&readings);
        let work = move || {
            let _alive = alive;
            loop {
                let reading = probe.read();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < KEPT_MAX {
                    kept.push(reading);
                }
                drop(kept);
                if stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("brimful-probe".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::io("cannot start the probe's thread", error))?;
        Ok(Self { readings, description, stop: Some(stop), ended, thread: Some(thread) })
    }

    /// The readings since the last call, in order.
    #[must_use]
    pub fn take(&self) -> Vec<Reading> {
        std::mem::take(&mut *self.readings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the probe reads and what it does not, and why.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.description
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop = None;
        // A driver that hangs must not hang the program.
        if self.ended.recv_timeout(ENDING_MAX) == Err(RecvTimeoutError::Disconnected)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// The mean of some readings, each number over those that have it; reasons for lower clocks and processes are those of
/// any of them, memory in use the most. `None` without readings.
#[must_use]
pub fn mean(readings: &[Reading]) -> Option<Reading> {
    let last = readings.last()?;
    let average = |part: &dyn Fn(&Reading) -> Option<f64>| {
        let known: Vec<f64> = readings.iter().filter_map(part).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let any = |part: &dyn Fn(Throttle) -> bool| readings.iter().any(|reading| part(reading.throttle));
    Some(Reading {
        sm_active: average(&|reading| reading.sm_active),
        sm_occupancy: average(&|reading| reading.sm_occupancy),
        tensor: average(&|reading| reading.tensor),
        fp16: average(&|reading| reading.fp16),
        fp32: average(&|reading| reading.fp32),
        dram: average(&|reading| reading.dram),
        pcie_tx_bytes_per_s: average(&|reading| reading.pcie_tx_bytes_per_s),
        pcie_rx_bytes_per_s: average(&|reading| reading.pcie_rx_bytes_per_s),
        jpeg: average(&|reading| reading.jpeg),
        gpu_busy: average(&|reading| reading.gpu_busy),
        memory_busy: average(&|reading| reading.memory_busy),
        sm_clock_mhz: average(&|reading| reading.sm_clock_mhz),
        memory_clock_mhz: average(&|reading| reading.memory_clock_mhz),
        memory_used_bytes: readings.iter().filter_map(|reading| reading.memory_used_bytes).max(),
        memory_total_bytes: last.memory_total_bytes,
        processes: readings.iter().filter_map(|reading| reading.processes).max(),
        throttle: Throttle {
            power_cap: any(&|throttle| throttle.power_cap),
            thermal: any(&|throttle| throttle.thermal),
            hardware: any(&|throttle| throttle.hardware),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells of each reading that was asked for.
    struct Told(Sender<()>);

    impl Probe for Told {
        fn read(&mut self) -> Reading {
            let _ = self.0.send(());
            Reading { sm_active: Some(0.5), ..Reading::default() }
        }

        fn describe(&self) -> String {
            "fake".to_owned()
        }
    }

    #[test]
    fn readings_are_taken_on_a_thread_of_their_own_until_the_end() {
        let (told, asked) = channel::unbounded();
        let sampler = Sampler::start(Told(told), 10.0).unwrap();
        for _ in 0..3 {
            asked.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        let readings = sampler.take();
        assert!(readings.len() >= 2, "{}", readings.len());
        assert_eq!(sampler.describe(), "fake");
        drop(sampler);
        while asked.try_recv().is_ok() {}
        assert_eq!(asked.try_recv(), Err(channel::TryRecvError::Disconnected), "the thread has ended");
    }

    #[test]
    fn a_rate_that_would_disturb_is_refused() {
        for rate_hz in [0.0, -1.0, 11.0, f64::NAN] {
            let error = Sampler::start(super::super::ReplayProbe::new([]), rate_hz).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
        }
    }

    #[test]
    fn a_mean_is_over_those_that_know() {
        let with = |sm_active, used, thermal| Reading {
            sm_active,
            memory_used_bytes: Some(used),
            throttle: Throttle { thermal, ..Throttle::default() },
            ..Reading::default()
        };
        let all = mean(&[with(Some(0.2), 5, true), with(None, 9, false), with(Some(0.4), 7, false)]).unwrap();
        assert!((all.sm_active.unwrap() - 0.3).abs() < 1e-12);
        assert_eq!((all.memory_used_bytes, all.throttle.thermal, all.dram), (Some(9), true, None));
        assert!(mean(&[]).is_none());
    }
}
